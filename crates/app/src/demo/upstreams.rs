//! The upstreams of the demo and their real limits, which the gateway does not know.

use std::time::Duration;

use policy::duration::Exact;
use policy::time::Timestamp;
use sim::measure::Capacity;
use sim::scenario::Draft;
use sim::upstream::{Kind, UpstreamSettings};

use super::plan;

/// A pool of the gateway, and the servers behind it.
#[derive(Clone, Debug)]
pub(super) struct UpstreamPlan {
    pub(super) name: &'static str,
    /// Its description.
    pub(super) about: &'static str,
    /// The number of clients, each of which sends its next request after the last response.
    pub(super) clients: u32,
    pub(super) servers: Vec<Server>,
}

/// One server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) upstream: UpstreamSettings,
}

impl UpstreamPlan {
    /// The longest window of its limits; a second without one.
    pub(super) fn period(&self) -> Duration {
        let periods = self
            .servers
            .iter()
            .map(|server| match server.upstream.kind {
                Kind::Window { period, .. } => period,
                Kind::Bucket { .. } | Kind::Slots { .. } => Duration::from_secs(1),
            });
        periods.max().unwrap_or(Duration::from_secs(1))
    }

    /// Its capacity up to `at`, without outages.
    pub(super) fn possible(&self, at: Duration) -> f64 {
        let capacities = self.servers.iter().map(|server| {
            Capacity::of(&server.upstream).between(Timestamp::ZERO, Timestamp::ZERO + at)
        });
        capacities.sum()
    }

    /// Its capacity per second without an outage.
    pub(super) fn healthy(&self) -> f64 {
        let servers = self.servers.iter();
        servers
            .map(|server| server.upstream.rate_at(Timestamp::ZERO))
            .sum()
    }

    /// Its real limit as text.
    pub(super) fn limit(&self) -> String {
        match self.servers.as_slice() {
            [server] => server.limit(),
            _ => format!("{}/s together", self.healthy()),
        }
    }
}

impl Server {
    /// A server as `tidegate simulate --upstream` describes one, with the outages of the script.
    fn new(pool: &str, name: &'static str, line: &str) -> Self {
        let draft = Draft {
            upstream: Some(line.to_owned()),
            ..Draft::default()
        };
        let mut variants = draft
            .variants()
            .expect("the upstreams of the demo are right");
        let mut upstream = variants.remove(0).scenario.upstream;
        if pool == plan::POOL && name == plan::OUTAGE_ENDPOINT {
            upstream.outages = plan::outages(plan::OUTAGE, None);
        }
        if pool == plan::POOL && name == plan::FAILING_ENDPOINT {
            upstream.outages = plan::outages(plan::FAILING, Some(503));
        }
        Self { name, upstream }
    }

    /// Its real limit as text.
    pub(super) fn limit(&self) -> String {
        match self.upstream.kind {
            Kind::Bucket { rate, .. } => format!("{rate}/s"),
            Kind::Window { quota, period, .. } => format!("{quota} in {}", Exact(period)),
            Kind::Slots { slots, service, .. } => format!("{slots} at once, {}", Exact(service)),
        }
    }
}

/// All upstreams, in the order in which they are shown.
pub(super) fn upstream_plans() -> Vec<UpstreamPlan> {
    let plans: [(_, _, _, &[_]); 5] = [
        (
            "steady",
            "429 without Retry-After",
            32,
            &[("only", "bucket rate=50 burst=10")],
        ),
        (
            "quota",
            "X-RateLimit headers on every response",
            32,
            &[("only", "window quota=300 period=10s headers=true")],
        ),
        (
            "polite",
            "429 with Retry-After",
            32,
            &[("only", "window quota=120 period=10s retry_after=true")],
        ),
        (
            "slow",
            "refuses nothing, becomes slow",
            48,
            &[("only", "slots slots=10 service=100ms")],
        ),
        (
            "pool",
            "three endpoints; `b` has an outage, `c` fails",
            48,
            &[
                ("a", "slots slots=3 service=100ms"),
                ("b", "slots slots=3 service=100ms"),
                ("c", "bucket rate=20 burst=10"),
            ],
        ),
    ];
    let plans = plans.map(|(name, about, clients, servers)| UpstreamPlan {
        name,
        about,
        clients,
        servers: servers
            .iter()
            .map(|(server, line)| Server::new(name, server, line))
            .collect(),
    });
    plans.into()
}
