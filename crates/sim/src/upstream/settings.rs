//! What an upstream is like: its limit, its times, its troubles.

use std::time::Duration;

use policy::time::Timestamp;

/// What is written about an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSettings {
    /// Its limit to begin with.
    pub kind: Kind,
    /// Does a 429 carry `Retry-After`, in whole seconds rounded up?
    pub retry_after: bool,
    /// Does every answer carry `X-RateLimit-Limit`, `-Remaining` and `-Reset`?
    pub headers: bool,
    /// Mean time at the server of a request that is not refused; for slots, `service` takes its
    /// place.
    pub latency: Duration,
    /// How much times are spread: sigma of the lognormal distribution. Zero: not at all.
    pub latency_spread: f64,
    /// Time at the server of a request that is refused.
    pub refuse_latency: Duration,
    /// From a client to the server, and once more for the way back.
    pub network: Duration,
    /// Share of the requests within the limit that are answered with 500, from 0 to 1.
    pub failure_rate: f64,
    /// Changes of the limit, in order.
    pub steps: Vec<Step>,
    /// When it is not there, in order and apart.
    pub outages: Vec<Outage>,
    /// What it does about clients that exceed its limit.
    pub ban: Option<Ban>,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A token bucket, which starts full.
    Bucket {
        /// Tokens per second.
        rate: f64,
        /// Tokens that it holds.
        burst: f64,
    },
    /// So many in each of a row of windows: window k is [k·period − phase, (k+1)·period − phase).
    Window {
        /// Requests in a window.
        quota: u64,
        /// Length of a window.
        period: Duration,
        /// How far into a window the simulation begins.
        phase: Duration,
    },
    /// So many at a time, and a queue for the others.
    Slots {
        /// Requests served at once.
        slots: u32,
        /// Mean time to serve one.
        service: Duration,
        /// How many may wait for a slot.
        queue: u32,
    },
}

/// The limit changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// From then on.
    pub at: Timestamp,
    /// The whole limit as it is from then on; of the same kind.
    pub kind: Kind,
}

/// The server is not there: from `from` until just before `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// Its first instant.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// The share of requests that get no answer at all.
    pub timeout_share: f64,
    /// After how long a client gives up on those.
    pub timeout: Duration,
    /// What stands before the server answers the others with this status; `None`: their connections
    /// are refused.
    pub status: Option<u16>,
}

impl Outage {
    /// Is the server away at `at`?
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// Who exceeds the limit too often is answered with 403 for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// So many 429s …
    pub excesses: u32,
    /// … in less than this …
    pub within: Duration,
    /// … ban a client for so long, from the last of them on.
    pub length: Duration,
}

impl UpstreamSettings {
    /// An upstream of this kind with the usual times and no troubles.
    pub fn of(kind: Kind) -> Self {
        Self {
            kind,
            retry_after: false,
            headers: false,
            latency: Duration::from_millis(70),
            latency_spread: 0.25,
            refuse_latency: Duration::from_millis(15),
            network: Duration::from_millis(10),
            failure_rate: 0.0,
            steps: Vec::new(),
            outages: Vec::new(),
            ban: None,
        }
    }

    /// The limit at `at`.
    pub fn kind_at(&self, at: Timestamp) -> Kind {
        let taken = self.steps.iter().take_while(|step| step.at <= at);
        taken.last().map_or(self.kind, |step| step.kind)
    }

    /// What can be accepted per second at `at`, outages aside.
    pub fn rate_at(&self, at: Timestamp) -> f64 {
        match self.kind_at(at) {
            Kind::Bucket { rate, .. } => rate,
            Kind::Window { quota, period, .. } => quota as f64 / period.as_secs_f64(),
            Kind::Slots { slots, service, .. } => {
                f64::from(slots) / service.as_secs_f64() * (1.0 - self.failure_rate)
            }
        }
    }

    /// The outage that `at` is in.
    pub fn outage_at(&self, at: Timestamp) -> Option<&Outage> {
        self.outages.iter().find(|outage| outage.contains(at))
    }

    /// The mean time at the server of a request that is not refused.
    pub(super) fn mean_time(&self) -> Duration {
        match self.kind {
            Kind::Slots { service, .. } => service,
            Kind::Bucket { .. } | Kind::Window { .. } => self.latency,
        }
    }
}
