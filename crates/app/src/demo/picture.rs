//! What can be seen of the demo at one moment, as plain values, to be drawn by the caller.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::GateSnapshot;
use policy::hint::Source;
use tidegate::Timestamp;

use super::story::StoryLine;

/// The demo at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Since the beginning.
    pub elapsed: Duration,
    /// Where requests go.
    pub gateway: SocketAddr,
    /// Where the admin API is.
    pub admin: SocketAddr,
    /// The file with the admin API's token; gone with the demo.
    pub token: PathBuf,
    /// Every upstream.
    pub upstreams: Vec<Seen>,
    /// The last things that happened, the oldest first.
    pub story: Vec<StoryLine>,
}

/// An upstream at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Its name, the first part of its path at the gateway.
    pub name: &'static str,
    /// What is special about it.
    pub about: &'static str,
    /// What it really takes, in words; the gateway does not know it.
    pub truth: String,
    /// The pace that its gates allow, per second.
    pub learned: f64,
    /// Requests that it answered as wanted, per second over the last second.
    pub answered: f64,
    /// Requests that it got.
    pub received: u64,
    /// Of those, how many it refused.
    pub refused: u64,
    /// Requests of clients that wait in the gateway.
    pub waiting: u32,
    /// What they wait for.
    pub because: Because,
    /// The last change of the pace, in words.
    pub why: String,
    /// Its servers; at least one.
    pub servers: Vec<SeenServer>,
}

impl Seen {
    /// The share of what it got that it refused.
    pub fn refused_ratio(&self) -> f64 {
        ratio(self.refused, self.received)
    }
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenServer {
    /// Its name within the upstream.
    pub name: &'static str,
    /// What it really takes, in words.
    pub truth: String,
    /// The pace that its gate allows, per second.
    pub learned: f64,
    /// The state of its breaker.
    pub breaker: BreakerState,
    /// Is it left alone, and until when?
    pub badge: Option<Badge>,
    /// What its gate waits for.
    pub because: Because,
    /// Requests that it got.
    pub received: u64,
    /// Of those, how many it refused.
    pub refused: u64,
}

impl SeenServer {
    /// The share of what it got that it refused.
    pub fn refused_ratio(&self) -> f64 {
        ratio(self.refused, self.received)
    }
}

/// Why an endpoint of a pool is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Badge {
    /// After errors, for a while.
    Paused {
        /// Until when, from the beginning on.
        until: Duration,
        /// Errors in a row.
        errors: u32,
    },
    /// Until a person enables it.
    Disabled,
}

/// What requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Their turn at the learned pace.
    Pace,
    /// The end of a hold.
    Hold {
        /// From the beginning on.
        until: Duration,
        /// Who asked for it.
        source: Source,
    },
    /// An open breaker.
    Breaker {
        /// When it lets a request through to look; `None`: when a person says so.
        until: Option<Duration>,
    },
    /// What comes of the few requests that find out whether it works again.
    Probes,
}

impl Because {
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
