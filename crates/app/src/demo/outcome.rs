//! What the demo came to, next to what clients without a gate would have come to.
//!
//! The comparison is played, not remembered: as many clients with naive retries against the same
//! upstream, for as long, in the simulator's virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use sim::client::{ClientSettings, Strategy};
use sim::measure::Figures;
use sim::scenario::Scenario;
use sim::simulate::simulate;

use super::cast::{Role, Server};
use super::picture::ratio;

/// What the demo came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it ran.
    pub elapsed: Duration,
    /// Where requests went.
    pub gateway: SocketAddr,
    /// Where the admin API was.
    pub admin: SocketAddr,
    /// Every upstream.
    pub upstreams: Vec<Learned>,
}

/// What was learned of one upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Its name.
    pub name: &'static str,
    /// What is special about it.
    pub about: &'static str,
    /// What it really takes, in words.
    pub truth: String,
    /// What was possible per second from the moment at which that was reached.
    pub really: f64,
    /// What got through per second meanwhile.
    pub found: f64,
    /// When a second first carried nine tenths of what is possible; `None`: never.
    pub within: Option<Duration>,
    /// The pace that its gates began with, per second.
    pub initial: f64,
    /// The pace that its gates allow at the end, per second.
    pub learned: f64,
    /// Requests that it got.
    pub received: u64,
    /// Of those, how many it answered as wanted.
    pub accepted: u64,
    /// How many it refused.
    pub refused: u64,
    /// How many came before a `Retry-After` had ended.
    pub early: u64,
    /// Requests of clients that ended without success.
    pub unserved: u64,
    /// How long its answers take at the end.
    pub latency: Duration,
    /// What clients without a gate would have come to.
    pub naive: Naive,
}

/// What clients come to that have no gate and retry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Naive {
    /// The share of their requests that is refused.
    pub refused_ratio: f64,
    /// How long their answers take.
    pub latency: Duration,
}

impl Learned {
    /// The share of what it got that it refused.
    pub fn refused_ratio(&self) -> f64 {
        ratio(self.refused, self.received)
    }
}

/// What the clients of `role` would have come to without a gate.
pub(super) fn naive(role: &Role, elapsed: Duration) -> Naive {
    let elapsed = elapsed.clamp(MIN_ELAPSED, MAX_ELAPSED);
    let servers = u32::try_from(role.servers.len()).unwrap_or(1);
    let clients = role.clients.div_ceil(servers);
    let (mut sent, mut refused) = (0, 0);
    for server in &role.servers {
        let figures = play(server, clients, elapsed);
        sent += figures.sent;
        refused += figures.refused;
    }
    let latencies = role.servers.iter().map(|server| {
        let figures = play(server, clients, SETTLED);
        figures.mean_latency_ms.unwrap_or_default()
    });
    Naive {
        refused_ratio: ratio(refused, sent),
        latency: Duration::from_secs_f64(latencies.fold(0.0, f64::max) / 1000.0),
    }
}

fn play(server: &Server, clients: u32, duration: Duration) -> Figures {
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

/// Nothing happens in less.
const MIN_ELAPSED: Duration = Duration::from_secs(1);

/// Shares do not change any more after that.
const MAX_ELAPSED: Duration = Duration::from_secs(300);

/// The simulator tells latencies from a minute on.
const SETTLED: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::cast::roles;

    #[test]
    fn without_a_gate_much_is_refused_wherever_there_is_a_limit() {
        let minute = Duration::from_secs(60);
        let shares = roles().into_iter().map(|role| {
            let share = naive(&role, minute).refused_ratio;
            (role.name, share > 0.05)
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
