//! A scenario: an upstream, its clients, and a duration.

mod client;
mod draft;
mod fields;
mod read;
mod shipped;
#[cfg(test)]
mod tests;
mod upstream;

use std::time::Duration;

pub use draft::{Draft, Variant};
pub use fields::{Field, fields};
pub use shipped::{SHIPPED, Shipped};

use crate::client::{ClientSettings, Strategy};
use crate::upstream::UpstreamSettings;

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The length of the run.
    pub duration: Duration,
    /// The seed of the random numbers, unless another is given.
    pub seed: u64,
    /// The server.
    pub upstream: UpstreamSettings,
    /// Its clients, by kind.
    pub clients: Vec<ClientSettings>,
}

impl Scenario {
    /// Five minutes of this upstream and these clients.
    pub fn of(upstream: UpstreamSettings, clients: Vec<ClientSettings>) -> Self {
        let run = read::Run::default();
        Self {
            duration: run.duration,
            seed: run.seed,
            upstream,
            clients,
        }
    }

    /// The scenario with `strategy` for all clients.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        let clients = self.clients.into_iter();
        self.clients = clients
            .map(|client| client.with_strategy(strategy))
            .collect();
        self
    }

    /// The total number of clients.
    pub fn client_count(&self) -> usize {
        self.clients
            .iter()
            .map(|client| client.count as usize)
            .sum()
    }
}
