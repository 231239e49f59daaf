//! A scenario: an upstream, its clients, and a duration.

mod client;
mod draft;
mod fields;
mod fleet;
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
use crate::upstream::{Kind, UpstreamSettings};
use policy::time::Timestamp;

/// A limit on cost that binds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindingCost {
    pub(crate) limit: Kind,
    pub(crate) mean: f64,
}

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

    /// The limit on cost and the mean cost of a request, if that limit allows fewer requests than the
    /// limit on requests at the start.
    pub(crate) fn binding_cost(&self) -> Option<BindingCost> {
        let limit = self.upstream.cost?;
        let weigh = |client: &ClientSettings| {
            let mean = client.cost.map_or(1.0, |cost| cost.mean);
            let senders = f64::from(client.senders());
            (senders * mean, senders)
        };
        let (costs, clients) = self
            .clients
            .iter()
            .map(weigh)
            .fold((0.0, 0.0), |(costs, clients), (cost, count)| {
                (costs + cost, clients + count)
            });
        let mean = costs / clients;
        let binds = limit.per_second() / mean < self.upstream.rate_at(Timestamp::ZERO);
        binds.then_some(BindingCost { limit, mean })
    }

    /// The limit that binds at `at`.
    pub(crate) fn limit_at(&self, at: Timestamp) -> Kind {
        match self.binding_cost() {
            Some(binding) => binding.limit,
            None => self.upstream.kind_at(at),
        }
    }

    /// Capacity in requests per second at `at`, ignoring outages.
    pub(crate) fn rate_at(&self, at: Timestamp) -> f64 {
        match self.binding_cost() {
            Some(binding) => binding.limit.per_second() / binding.mean,
            None => self.upstream.rate_at(at),
        }
    }

    /// The total number of clients; every node of a fleet is one.
    pub fn client_count(&self) -> usize {
        self.clients
            .iter()
            .map(|client| client.senders() as usize)
            .sum()
    }
}
