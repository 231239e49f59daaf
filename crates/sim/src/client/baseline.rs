//! Controllers that others use, rebuilt from what their authors say about them in public, so that
//! Tidegate's strategies can be compared with something people know.
//!
//! They are for comparison, not for use: each does what its description says, also where that is
//! not wise. Naive retries and a fixed rate are the two others; they need no code of their own.
//! `epochs` and `model` are no products but designs that the default strategy has to stand up to:
//! what it learned from each, and what it gave up for that, shows in the difference.

mod autothrottle;
mod breaker;
mod bucket;
mod cubic;
mod delivered;
mod epochs;
mod latency;
mod model;
mod pacer;

pub(super) use autothrottle::AutoThrottle;
pub(super) use cubic::Cubic;
use epochs::{Epochs, Steps};
use model::Model;

use super::controller::Controller;

/// A known controller, with the settings that it comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The client-side rate limiter of the AWS SDKs' adaptive retry mode.
    Cubic,
    /// Scrapy's AutoThrottle extension.
    AutoThrottle,
    /// Additive increase with small steps, one halving per epoch, a remembered ceiling.
    EpochsGentle,
    /// The same with large steps, and a smaller decrease.
    EpochsBrisk,
    /// A model of the limit between two bounds.
    Model,
}

impl Baseline {
    /// One that has at most `most` requests under way.
    pub(super) fn controller(self, most: u32) -> Box<dyn Controller> {
        match self {
            Self::Cubic => Box::new(Cubic::new(most)),
            Self::AutoThrottle => Box::new(AutoThrottle::new(most)),
            Self::EpochsGentle => Box::new(Epochs::new(Steps::GENTLE, most)),
            Self::EpochsBrisk => Box::new(Epochs::new(Steps::BRISK, most)),
            Self::Model => Box::new(Model::new(most)),
        }
    }
}

#[cfg(test)]
mod tests;
