//! The upstreams of the demo and their real limits, which the gateway does not know.

use std::time::Duration;

use policy::duration::Exact;
use policy::time::Timestamp;
use sim::measure::Capacity;
use sim::upstream::{Kind, Outage, UpstreamSettings};

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
    vec![
        UpstreamPlan {
            name: "steady",
            about: "429 without Retry-After",
            clients: 32,
            servers: vec![alone(bucket(50.0, 10.0))],
        },
        UpstreamPlan {
            name: "quota",
            about: "X-RateLimit headers on every response",
            clients: 32,
            servers: vec![alone(UpstreamSettings {
                headers: true,
                ..window(300)
            })],
        },
        UpstreamPlan {
            name: "polite",
            about: "429 with Retry-After",
            clients: 32,
            servers: vec![alone(UpstreamSettings {
                retry_after: true,
                ..window(120)
            })],
        },
        UpstreamPlan {
            name: "slow",
            about: "refuses nothing, becomes slow",
            clients: 48,
            servers: vec![alone(slots(10))],
        },
        UpstreamPlan {
            name: "pool",
            about: "three endpoints; `b` has an outage from 15 s to 25 s",
            clients: 48,
            servers: vec![
                server("a", slots(3)),
                server("b", with_outage(slots(3))),
                server("c", bucket(8.0, 4.0)),
            ],
        },
    ]
}

fn alone(upstream: UpstreamSettings) -> Server {
    server("only", upstream)
}

fn server(name: &'static str, upstream: UpstreamSettings) -> Server {
    Server { name, upstream }
}

fn bucket(rate: f64, burst: f64) -> UpstreamSettings {
    UpstreamSettings::of(Kind::Bucket { rate, burst })
}

fn slots(slots: u32) -> UpstreamSettings {
    UpstreamSettings::of(Kind::Slots {
        slots,
        service: Duration::from_millis(100),
        queue: 100,
    })
}

/// A window of ten seconds, to see several in a short demo.
fn window(quota: u64) -> UpstreamSettings {
    UpstreamSettings::of(Kind::Window {
        quota,
        period: Duration::from_secs(10),
        phase: Duration::ZERO,
    })
}

/// With an outage after the pace is learned, which ends during a short demo.
fn with_outage(upstream: UpstreamSettings) -> UpstreamSettings {
    let outage = Outage {
        from: Timestamp::from_secs(15),
        to: Timestamp::from_secs(25),
        timeout_share: 0.0,
        timeout: Duration::from_secs(5),
        status: None,
    };
    UpstreamSettings {
        outages: vec![outage],
        ..upstream
    }
}
