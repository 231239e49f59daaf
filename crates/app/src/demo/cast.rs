//! The upstreams of the demo and their real limits, which the gateway does not know.

use std::time::Duration;

use policy::duration::Exact;
use policy::time::Timestamp;
use sim::measure::Capacity;
use sim::upstream::{Kind, Outage, UpstreamSettings};

/// One name that the gateway serves, and what stands behind it.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) name: &'static str,
    /// What is special about it, for people.
    pub(super) about: &'static str,
    /// Programs that send the next request as soon as the last one is answered.
    pub(super) clients: u32,
    pub(super) servers: Vec<Server>,
}

/// One server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) upstream: UpstreamSettings,
}

impl Role {
    /// The length of time after which its limit begins anew.
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

    /// What it could have taken until `at`; nothing in outages.
    pub(super) fn possible(&self, at: Duration) -> f64 {
        let capacities = self.servers.iter().map(|server| {
            Capacity::of(&server.upstream).between(Timestamp::ZERO, Timestamp::ZERO + at)
        });
        capacities.sum()
    }

    /// What it takes per second when all is well.
    pub(super) fn healthy(&self) -> f64 {
        let servers = self.servers.iter();
        servers
            .map(|server| server.upstream.rate_at(Timestamp::ZERO))
            .sum()
    }

    /// What it really takes, in words.
    pub(super) fn truth(&self) -> String {
        match self.servers.as_slice() {
            [server] => server.truth(),
            _ => format!("{}/s together", self.healthy()),
        }
    }
}

impl Server {
    /// What it really takes, in words.
    pub(super) fn truth(&self) -> String {
        match self.upstream.kind {
            Kind::Bucket { rate, .. } => format!("{rate}/s"),
            Kind::Window { quota, period, .. } => format!("{quota} in {}", Exact(period)),
            Kind::Slots { slots, service, .. } => format!("{slots} at once, {}", Exact(service)),
        }
    }
}

/// Everybody, in the order in which they are shown.
pub(super) fn roles() -> Vec<Role> {
    vec![
        Role {
            name: "steady",
            about: "429 without Retry-After",
            clients: 32,
            servers: vec![alone(bucket(50.0, 10.0))],
        },
        Role {
            name: "quota",
            about: "X-RateLimit headers on every response",
            clients: 32,
            servers: vec![alone(UpstreamSettings {
                headers: true,
                ..window(300)
            })],
        },
        Role {
            name: "polite",
            about: "429 with Retry-After",
            clients: 32,
            servers: vec![alone(UpstreamSettings {
                retry_after: true,
                ..window(120)
            })],
        },
        Role {
            name: "slow",
            about: "refuses nothing, becomes slow",
            clients: 48,
            servers: vec![alone(slots(10))],
        },
        Role {
            name: "pool",
            about: "three endpoints; `b` has an outage from 15 s to 25 s",
            clients: 48,
            servers: vec![
                server("a", slots(3)),
                server("b", away(slots(3))),
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

/// So many in ten seconds: a minute would be long to look at.
fn window(quota: u64) -> UpstreamSettings {
    UpstreamSettings::of(Kind::Window {
        quota,
        period: Duration::from_secs(10),
        phase: Duration::ZERO,
    })
}

/// After everybody has learned its pace, and over before most people have seen enough.
fn away(upstream: UpstreamSettings) -> UpstreamSettings {
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
