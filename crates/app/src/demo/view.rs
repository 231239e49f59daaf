//! The state of the demo at one moment, for the caller to show.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::GateSnapshot;
use policy::hint::Source;
use store::operations::OperationCounts;
use tidegate::Timestamp;

use super::events::DemoEvent;
use crate::admin::bodies::DemoTour;

/// The demo at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoView {
    /// Since the start.
    pub elapsed: Duration,
    /// The gateway's address.
    pub gateway: SocketAddr,
    /// The console's address, with the admin token.
    pub console: String,
    /// The admin API's address.
    pub admin: SocketAddr,
    /// The file with the admin API's token; removed with the demo.
    pub token: PathBuf,
    /// The guided tour.
    pub tour: DemoTour,
    /// Operations by state.
    pub operations: OperationCounts,
    /// The job of this round.
    pub job: Option<JobView>,
    /// Every upstream.
    pub upstreams: Vec<UpstreamView>,
    /// The last events, the oldest first.
    pub events: Vec<DemoEvent>,
}

/// The job of the demo, as its own status checks see it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Its id.
    pub id: String,
    /// In per cent, if it is known.
    pub progress: Option<f64>,
    /// Its stage, if it is known.
    pub stage: Option<String>,
    /// Its end: `done`, `error` or `cancelled`.
    pub end: Option<String>,
    /// Status checks refused in a row.
    pub refused: usize,
    /// The time until the next status check.
    pub next_check: Option<Duration>,
}

/// An upstream at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamView {
    /// Its name, the first part of its path at the gateway.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its real limit as text; the gateway does not know it.
    pub limit: String,
    /// The rate of its gates, per second.
    pub learned: f64,
    /// Accepted requests per second, over the last second.
    pub answered: f64,
    /// Requests received.
    pub received: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests of clients that wait in the gateway.
    pub waiting: u32,
    /// What they wait for.
    pub wait_reason: WaitReason,
    /// What its first gate does and why, as text.
    pub why: String,
    /// Its servers; at least one.
    pub servers: Vec<ServerView>,
}

impl UpstreamView {
    /// Refused over received.
    pub fn refused_ratio(&self) -> f64 {
        ratio(self.refused, self.received)
    }
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerView {
    /// Its name within the upstream.
    pub name: &'static str,
    /// Its real limit as text.
    pub limit: String,
    /// The rate of its gate, per second.
    pub learned: f64,
    /// The state of its breaker.
    pub breaker: BreakerState,
    /// Whether it is paused or disabled.
    pub badge: Option<Badge>,
    /// What its gate waits for.
    pub wait_reason: WaitReason,
    /// Requests received.
    pub received: u64,
    /// Requests refused.
    pub refused: u64,
}

impl ServerView {
    /// Refused over received.
    pub fn refused_ratio(&self) -> f64 {
        ratio(self.refused, self.received)
    }
}

/// Why an endpoint of a pool is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Badge {
    /// After errors, for a while.
    Paused {
        /// Until when, since the start.
        until: Duration,
        /// Errors in a row.
        errors: u32,
    },
    /// Until a person enables it.
    Disabled,
}

/// What requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Their turn at the learned pace.
    Pace,
    /// The end of a hold.
    Hold {
        /// Its end, since the start.
        until: Duration,
        /// Where it came from.
        source: Source,
    },
    /// An open breaker.
    Breaker {
        /// When it admits a probe; `None`: when a person releases it.
        until: Option<Duration>,
    },
    /// The results of a half-open breaker's probes.
    Probes,
}

impl WaitReason {
    /// What callers in line at this gate wait for.
    pub(super) fn of(gate: &GateSnapshot, since: impl Fn(Timestamp) -> Duration) -> Self {
        match (gate.breaker, gate.hold) {
            (BreakerState::Open | BreakerState::Isolated, _) => Self::Breaker {
                until: gate.breaker_until.map(since),
            },
            (BreakerState::HalfOpen, _) => Self::Probes,
            (BreakerState::Closed, Some((until, source))) => Self::Hold {
                until: since(until),
                source,
            },
            (BreakerState::Closed, None) => Self::Pace,
        }
    }
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
