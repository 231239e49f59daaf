//! Controllers that others use, rebuilt from what their authors say about them in public, so that
//! Tidegate's strategies can be compared with something people know.
//!
//! They are for comparison, not for use: each does what its description says, also where that is
//! not wise. Naive retries and a fixed rate are the two others; they need no code of their own.

mod autothrottle;
mod cubic;

pub(super) use autothrottle::AutoThrottle;
pub(super) use cubic::Cubic;

use super::controller::Controller;

/// A known controller, with the settings that it comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The client-side rate limiter of the AWS SDKs' adaptive retry mode.
    Cubic,
    /// Scrapy's AutoThrottle extension.
    AutoThrottle,
}

impl Baseline {
    /// One that has at most `most` requests under way.
    pub(super) fn controller(self, most: u32) -> Box<dyn Controller> {
        match self {
            Self::Cubic => Box::new(Cubic::new(most)),
            Self::AutoThrottle => Box::new(AutoThrottle::new(most)),
        }
    }
}
