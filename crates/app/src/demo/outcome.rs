//! The results of the demo, and those of clients without a gate.
//!
//! The latter are simulated: as many clients with naive retries and the same upstream, for the same
//! time, in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use sim::client::{ClientSettings, Strategy};
use sim::measure::Figures;
use sim::scenario::Scenario;
use sim::simulate::simulate;

use super::upstreams::{Server, UpstreamPlan};
use super::view::ratio;
use crate::admin::bodies::DemoStep;

/// The results of the demo.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it ran.
    pub elapsed: Duration,
    /// The gateway's address.
    pub gateway: SocketAddr,
    /// The admin API's address.
    pub admin: SocketAddr,
    /// The steps of the guided tour, in the last round.
    pub steps: Vec<DemoStep>,
    /// Every upstream.
    pub upstreams: Vec<UpstreamOutcome>,
}

/// The results of one upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamOutcome {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its real limit as text.
    pub limit: String,
    /// Its capacity per second from `within` on.
    pub really: f64,
    /// Accepted requests per second from `within` on.
    pub found: f64,
    /// When a second first carried nine tenths of the capacity; `None`: never.
    pub within: Option<Duration>,
    /// The initial rate of its gates, per second.
    pub initial: f64,
    /// The rate of its gates at the end, per second.
    pub learned: f64,
    /// Requests received.
    pub received: u64,
    /// Requests accepted.
    pub accepted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests received before the end of a `Retry-After`.
    pub early: u64,
    /// Requests of clients that ended without success.
    pub unserved: u64,
    /// Its latency at the end.
    pub latency: Duration,
    /// The results of clients without a gate.
    pub naive: NaiveOutcome,
}

/// The results of clients with naive retries and without a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NaiveOutcome {
    /// The share of their requests that was refused.
    pub refused_ratio: f64,
    /// Their latency.
    pub latency: Duration,
}

impl UpstreamOutcome {
    /// Refused over received.
    pub fn refused_ratio(&self) -> f64 {
        ratio(self.refused, self.received)
    }
}

/// Simulates the clients of `plan` without a gate.
pub(super) fn naive(plan: &UpstreamPlan, elapsed: Duration) -> NaiveOutcome {
    let elapsed = elapsed.clamp(MIN_ELAPSED, MAX_ELAPSED);
    let servers = u32::try_from(plan.servers.len()).unwrap_or(1);
    let clients = plan.clients.div_ceil(servers);
    let (mut sent, mut refused) = (0, 0);
    for server in &plan.servers {
        let figures = run(server, clients, elapsed);
        sent += figures.sent;
        refused += figures.refused;
    }
    let latencies = plan.servers.iter().map(|server| {
        let figures = run(server, clients, SETTLED);
        figures.mean_latency_ms.unwrap_or_default()
    });
    NaiveOutcome {
        refused_ratio: ratio(refused, sent),
        latency: Duration::from_secs_f64(latencies.fold(0.0, f64::max) / 1000.0),
    }
}

fn run(server: &Server, clients: u32, duration: Duration) -> Figures {
    let client = ClientSettings {
        max_in_flight: clients,
        ..ClientSettings::of(Strategy::None)
    };
    let scenario = Scenario {
        duration,
        ..Scenario::of(server.upstream.clone(), vec![client])
    };
    simulate(&scenario, scenario.seed)
}

/// Shorter runs have no results.
const MIN_ELAPSED: Duration = Duration::from_secs(1);

/// Shares do not change after that.
const MAX_ELAPSED: Duration = Duration::from_secs(300);

/// The simulator measures latencies from a minute on.
const SETTLED: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::upstreams::upstream_plans;

    #[test]
    fn naive_clients_are_refused_at_every_limit() {
        let minute = Duration::from_secs(60);
        let shares = upstream_plans().into_iter().map(|plan| {
            let share = naive(&plan, minute).refused_ratio;
            (plan.name, share > 0.05)
        });
        let shares: Vec<_> = shares.collect();
        let expected = [
            ("steady", true),
            ("quota", true),
            ("polite", true),
            ("slow", false),
            ("pool", true),
        ];
        assert_eq!(shares, expected);
    }
}
