//! A scenario: an upstream, its clients, and for how long.

mod client;
mod draft;
mod read;
mod shipped;
#[cfg(test)]
mod tests;
mod upstream;

use std::time::Duration;

pub use draft::{Draft, Variant};
pub use shipped::{SHIPPED, Shipped};

use crate::client::{ClientSettings, Strategy};
use crate::upstream::UpstreamSettings;

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// From the first instant to the last.
    pub duration: Duration,
    /// What random numbers come from, unless another seed is given.
    pub seed: u64,
    /// The server.
    pub upstream: UpstreamSettings,
    /// Its clients, by kind.
    pub clients: Vec<ClientSettings>,
}

impl Scenario {
    /// Five minutes of these.
    pub fn of(upstream: UpstreamSettings, clients: Vec<ClientSettings>) -> Self {
        let run = read::Run::default();
        Self {
            duration: run.duration,
            seed: run.seed,
            upstream,
            clients,
        }
    }

    /// The same scenario with all clients using `strategy`, whatever they used before.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        let clients = self.clients.into_iter();
        self.clients = clients
            .map(|client| client.with_strategy(strategy))
            .collect();
        self
    }

    /// How many clients there are in all.
    pub fn client_count(&self) -> usize {
        self.clients
            .iter()
            .map(|client| client.count as usize)
            .sum()
    }
}
