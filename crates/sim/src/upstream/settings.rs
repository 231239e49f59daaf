//! Settings of upstreams: limit, latency, failures.

use std::time::Duration;

use policy::setting::Kind as SettingKind;
use policy::time::Timestamp;

use crate::whole;

policy::settings! {
    /// Options of an upstream; `None` keeps the default.
    pub struct UpstreamOptions;
    /// What every upstream has besides its limit and its troubles.
    pub struct UpstreamValues(pub) {
        /// A 429 carries `Retry-After`, in whole seconds rounded up.
        retry_after: bool = "false", SettingKind::Switch;
        /// Every response carries `X-RateLimit-Limit`, `-Remaining` and `-Reset`; with a limit on cost,
        /// once for requests and once for tokens.
        headers: bool = "false", SettingKind::Switch;
        /// Mean time at the server of a request that is not refused; slots have `service` instead.
        latency: Duration = "70ms", SettingKind::DURATION;
        /// How much times are spread: sigma of the lognormal distribution. Zero: not at all.
        // At five, one in a hundred takes longer than all others together.
        latency_spread: f64 = "0.25", SettingKind::number("a number", 0.0, 5.0);
        /// Time at the server of a request that is refused.
        refuse_latency: Duration = "15ms", SettingKind::DURATION;
        /// From a client to the server, and once more for the way back.
        network: Duration = "10ms", SettingKind::DURATION;
        /// Share of the requests within the limit that are answered with 500.
        failure_rate: f64 = "0.0", SettingKind::number("a share", 0.0, 1.0);
    }
}

/// Settings of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSettings {
    /// The limit at the start.
    pub kind: Kind,
    /// A bucket or window that counts the costs of requests, besides the limit on requests.
    pub cost: Option<Kind>,
    /// Whether a 429 carries `Retry-After`, in whole seconds rounded up.
    pub retry_after: bool,
    /// Whether every response carries `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub headers: bool,
    /// Mean time at the server of a request that is not refused; slots use `service` instead.
    pub latency: Duration,
    /// Sigma of the lognormal distribution of times at the server. Zero: all are equal.
    pub latency_spread: f64,
    /// Time at the server of a request that is refused.
    pub refuse_latency: Duration,
    /// Network latency each way.
    pub network: Duration,
    /// Share of the requests within the limit that get a 500, from 0 to 1.
    pub failure_rate: f64,
    /// Changes of the limit, in order.
    pub steps: Vec<Step>,
    /// Outages, in order and without overlap.
    pub outages: Vec<Outage>,
    /// Bans of clients that exceed the limit.
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
    /// A quota per window; window k is [k·period − phase, (k+1)·period − phase).
    Window {
        /// Requests in a window.
        quota: u64,
        /// Length of a window.
        period: Duration,
        /// How far into a window the simulation starts.
        phase: Duration,
    },
    /// A number of slots and a queue.
    Slots {
        /// Requests served at once.
        slots: u32,
        /// Mean time to serve one.
        service: Duration,
        /// Length of the queue.
        queue: u32,
    },
}

impl Kind {
    /// What the limit allows per second.
    pub fn per_second(&self) -> f64 {
        match *self {
            Self::Bucket { rate, .. } => rate,
            Self::Window { quota, period, .. } => quota as f64 / period.as_secs_f64(),
            Self::Slots { slots, service, .. } => f64::from(slots) / service.as_secs_f64(),
        }
    }
}

impl Kind {
    /// `cost`, but no more than the limit ever has.
    pub(super) fn at_most(&self, cost: u32) -> u32 {
        let most = match *self {
            Self::Bucket { burst, .. } => whole(burst),
            Self::Window { quota, .. } => quota,
            Self::Slots { .. } => return cost,
        };
        cost.min(u32::try_from(most).unwrap_or(u32::MAX))
    }
}

/// A change of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// From then on.
    pub at: Timestamp,
    /// The whole limit from then on; of the same kind.
    pub kind: Kind,
}

/// The server is unavailable from `from` until just before `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// Its first instant.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// The share of requests that get no response at all.
    pub timeout_share: f64,
    /// The client's timeout for those.
    pub timeout: Duration,
    /// The status of the others, as from a proxy in front of the server; `None`: their connections are
    /// refused.
    pub status: Option<u16>,
}

impl Outage {
    /// Whether the outage covers `at`.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// Clients that exceed the limit too often get 403 for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// This many 429s …
    pub excesses: u32,
    /// … in less than this …
    pub within: Duration,
    /// … ban a client for this long, from the last of them on.
    pub length: Duration,
}

impl UpstreamSettings {
    /// An upstream of this kind with default latencies and without failures.
    pub fn of(kind: Kind) -> Self {
        Self::new(kind, UpstreamValues::default())
    }

    /// An upstream of this kind with these values, and without outages, bans and steps.
    pub fn new(kind: Kind, values: UpstreamValues) -> Self {
        Self {
            kind,
            cost: None,
            retry_after: values.retry_after,
            headers: values.headers,
            latency: values.latency,
            latency_spread: values.latency_spread,
            refuse_latency: values.refuse_latency,
            network: values.network,
            failure_rate: values.failure_rate,
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

    /// Capacity in requests per second at `at`, ignoring outages and costs.
    pub fn rate_at(&self, at: Timestamp) -> f64 {
        match self.kind_at(at) {
            kind @ Kind::Slots { .. } => kind.per_second() * (1.0 - self.failure_rate),
            kind @ (Kind::Bucket { .. } | Kind::Window { .. }) => kind.per_second(),
        }
    }

    /// The outage that covers `at`.
    pub fn outage_at(&self, at: Timestamp) -> Option<&Outage> {
        self.outages.iter().find(|outage| outage.contains(at))
    }

    /// The mean time at the server of a request that is not refused.
    pub(super) fn mean_service(&self) -> Duration {
        match self.kind {
            Kind::Slots { service, .. } => service,
            Kind::Bucket { .. } | Kind::Window { .. } => self.latency,
        }
    }
}
