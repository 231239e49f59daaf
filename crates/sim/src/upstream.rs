//! Upstreams as state machines: what happens to a request that arrives.
//!
//! A request is checked in this order: outage, ban, limit, random failure. Everything, including
//! when the response is sent, is decided on arrival: queues are first come, first served, so later
//! requests change nothing. There are no events inside a server, and `tidegate mock` uses the same
//! code with a real clock.
//!
//! **Randomness.** Every request draws the same number of values from the upstream's stream, used
//! or not. The n-th request to arrive therefore gets the same draws whichever client sent it and
//! whatever happened to the requests before it.
//!
//! **Edge cases.** Steps and outages start exactly at the configured instant; an outage is over at
//! its end. Limits keep counting during an outage, so a bucket refills. A request refused by a ban
//! or an outage takes nothing from the limit; one that fails at random does.

mod bans;
mod bucket;
mod response;
mod settings;
mod slots;
mod window;

use std::time::Duration;

use policy::duration::whole_seconds;
use policy::random::Random;
use policy::time::Timestamp;

use bans::Bans;
use bucket::Bucket;
pub use response::{LimitStatus, REQUEST_HEADERS, TOKEN_HEADERS, UpstreamResponse};
pub use settings::{Ban, Kind, Outage, Step, UpstreamOptions, UpstreamSettings, UpstreamValues};
use slots::Slots;
use window::Window;

/// A server with a limit.
#[derive(Clone, Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    limit: Limit,
    cost: Option<Limit>,
    /// How many steps are in effect.
    steps_done: usize,
    bans: Bans,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The server responds.
    Response {
        /// When the response leaves the server.
        at: Timestamp,
        /// The response.
        response: UpstreamResponse,
    },
    /// The connection is refused at once.
    Unreachable,
    /// There is no response; the client times out.
    Silent {
        /// From sending to the timeout.
        timeout: Duration,
    },
}

impl Upstream {
    /// A server that has received no requests.
    pub fn new(settings: &UpstreamSettings) -> Self {
        Self {
            limit: Limit::new(&settings.kind),
            cost: settings.cost.as_ref().map(Limit::new),
            settings: settings.clone(),
            steps_done: 0,
            bans: Bans::default(),
        }
    }

    /// Receives a request of `client` at `now`, which must not be before an earlier one.
    pub fn receive(&mut self, client: usize, now: Timestamp, random: &mut Random) -> Reply {
        self.receive_cost(client, 1, now, random)
    }

    /// Receives a request with this cost.
    pub fn receive_cost(
        &mut self,
        client: usize,
        cost: u32,
        now: Timestamp,
        random: &mut Random,
    ) -> Reply {
        let draws = Draws::new(random);
        self.advance(now);
        if let Some(outage) = self.settings.outage_at(now) {
            return self.reply_in_outage(outage, &draws, now);
        }
        if self.bans.is_banned(client, now) {
            return self.refuse(403, None, now);
        }
        let service = draws.lognormal(self.settings.mean_service(), self.settings.latency_spread);
        match self.take(cost, now, service) {
            Admission::Served { until } => {
                let status = if draws.failure < self.settings.failure_rate {
                    500
                } else {
                    200
                };
                self.respond(status, None, until)
            }
            Admission::Excess { wait } => {
                if let Some(ban) = &self.settings.ban {
                    self.bans.record_excess(ban, client, now);
                }
                let retry_after = self.settings.retry_after.then(|| whole_seconds(wait));
                self.refuse(429, retry_after, now)
            }
            Admission::QueueFull => self.refuse(503, None, now),
        }
    }

    /// A request takes from both limits or from none. One that costs more than all of the limit on cost
    /// takes all of it, or it could never be sent.
    fn take(&mut self, cost: u32, now: Timestamp, service: Duration) -> Admission {
        if let Some(wait) = self.cost_wait(cost, now) {
            return Admission::Excess { wait };
        }
        let cost = self.settings.cost.map_or(cost, |limit| limit.at_most(cost));
        let admission = self.limit.take(1, now, service);
        if let (Some(limit), Admission::Served { .. }) = (&mut self.cost, &admission) {
            limit.take(cost, now, service);
        }
        admission
    }

    /// The state of the limit at `now`, which must not be before an earlier request. Takes nothing.
    /// If nothing remains, a request that arrives now is refused.
    pub fn limit_status(&mut self, now: Timestamp) -> LimitStatus {
        self.advance(now);
        self.limit.status()
    }

    /// How long a request with this cost has to wait for the limit on cost at `now`, which must not be
    /// before an earlier request. `None` if it does not. Takes nothing.
    pub fn cost_wait(&mut self, cost: u32, now: Timestamp) -> Option<Duration> {
        self.advance(now);
        let cost = self.settings.cost?.at_most(cost);
        self.cost.as_ref()?.lacks(cost)
    }

    /// How many times a client was banned.
    pub fn bans(&self) -> u64 {
        self.bans.count()
    }

    /// How many times the client was banned that was banned most often.
    pub fn max_client_bans(&self) -> u64 {
        self.bans.max_of_a_client()
    }

    /// The maximum length of the server's queue so far; `None` if it has no queue.
    pub fn max_queue(&self) -> Option<u64> {
        match &self.limit {
            Limit::Slots(slots) => Some(slots.max_queue()),
            Limit::Bucket(_) | Limit::Window(_) => None,
        }
    }

    fn advance(&mut self, now: Timestamp) {
        while let Some(step) = self.settings.steps.get(self.steps_done)
            && step.at <= now
        {
            self.limit.change(&step.kind, step.at);
            self.settings.kind = step.kind;
            self.steps_done += 1;
        }
        self.limit.advance(now);
        if let Some(limit) = &mut self.cost {
            limit.advance(now);
        }
    }

    fn reply_in_outage(&self, outage: &Outage, draws: &Draws, now: Timestamp) -> Reply {
        let remaining = || whole_seconds(outage.to.since(now));
        match outage.status {
            _ if draws.silence < outage.timeout_share => Reply::Silent {
                timeout: outage.timeout,
            },
            Some(status) => self.refuse(status, self.settings.retry_after.then(remaining), now),
            None => Reply::Unreachable,
        }
    }

    fn refuse(&self, status: u16, retry_after: Option<u64>, now: Timestamp) -> Reply {
        self.respond(status, retry_after, now + self.settings.refuse_latency)
    }

    fn respond(&self, status: u16, retry_after: Option<u64>, at: Timestamp) -> Reply {
        let response = UpstreamResponse {
            status,
            retry_after,
            limit: self.settings.headers.then(|| self.limit.status()),
            tokens: self
                .cost
                .as_ref()
                .filter(|_| self.settings.headers)
                .map(Limit::token_status),
        };
        Reply::Response { at, response }
    }
}

/// The limit of a server.
#[derive(Clone, Debug)]
enum Limit {
    Bucket(Bucket),
    Window(Window),
    Slots(Slots),
}

/// What a limit decides about a request.
enum Admission {
    /// It is served until then.
    Served { until: Timestamp },
    /// It exceeds the limit; the next request is admitted after this long.
    Excess { wait: Duration },
    /// All slots are busy and the queue is full.
    QueueFull,
}

impl Limit {
    fn new(kind: &Kind) -> Self {
        match *kind {
            Kind::Bucket { rate, burst } => Self::Bucket(Bucket::full(rate, burst)),
            Kind::Window {
                quota,
                period,
                phase,
            } => Self::Window(Window::new(quota, period, phase)),
            Kind::Slots { slots, queue, .. } => Self::Slots(Slots::free(slots, queue)),
        }
    }

    fn advance(&mut self, now: Timestamp) {
        match self {
            Self::Bucket(bucket) => bucket.refill(now),
            Self::Window(window) => window.advance(now),
            Self::Slots(slots) => slots.advance(now),
        }
    }

    /// Changes the limit to another one of the same kind.
    fn change(&mut self, kind: &Kind, at: Timestamp) {
        self.advance(at);
        match (self, *kind) {
            (Self::Bucket(bucket), Kind::Bucket { rate, burst }) => bucket.change(rate, burst),
            (Self::Window(window), Kind::Window { quota, .. }) => window.change(quota),
            (
                Self::Slots(slots),
                Kind::Slots {
                    slots: count,
                    queue,
                    ..
                },
            ) => {
                slots.change(count, queue, at);
            }
            (limit, kind) => *limit = Self::new(&kind),
        }
    }

    fn take(&mut self, cost: u32, now: Timestamp, service: Duration) -> Admission {
        let (is_taken, wait) = match self {
            Self::Bucket(bucket) => {
                let cost = f64::from(cost);
                (bucket.take(cost), bucket.time_until(cost))
            }
            Self::Window(window) => (window.take(cost.into()), window.remaining_time()),
            Self::Slots(slots) => {
                return match slots.take(now, service) {
                    Some(until) => Admission::Served { until },
                    None => Admission::QueueFull,
                };
            }
        };
        if is_taken {
            Admission::Served {
                until: now + service,
            }
        } else {
            Admission::Excess { wait }
        }
    }

    /// How long until `cost` is available, if it is not now. Slots do not count costs.
    fn lacks(&self, cost: u32) -> Option<Duration> {
        let (has, wait) = match self {
            Self::Bucket(bucket) => {
                let cost = f64::from(cost);
                (bucket.has(cost), bucket.time_until(cost))
            }
            Self::Window(window) => (window.has(cost.into()), window.remaining_time()),
            Self::Slots(_) => return None,
        };
        (!has).then_some(wait)
    }

    /// As language models give it: a bucket's reset is when it is full.
    fn token_status(&self) -> LimitStatus {
        match self {
            Self::Bucket(bucket) => bucket.status_until_full(),
            Self::Window(_) | Self::Slots(_) => self.status(),
        }
    }

    fn status(&self) -> LimitStatus {
        match self {
            Self::Bucket(bucket) => bucket.status(),
            Self::Window(window) => window.status(),
            Self::Slots(slots) => slots.status(),
        }
    }
}

/// The random draws of one request.
#[derive(Debug)]
struct Draws {
    silence: f64,
    failure: f64,
    /// Of a standard normal distribution.
    normal: f64,
}

impl Draws {
    fn new(random: &mut Random) -> Self {
        let [silence, failure] = [(); 2].map(|()| random.unit());
        Self {
            silence,
            failure,
            normal: normal(random),
        }
    }

    /// A lognormal duration with this mean.
    fn lognormal(&self, mean: Duration, sigma: f64) -> Duration {
        let seconds = lognormal(mean.as_secs_f64(), sigma, self.normal);
        Duration::try_from_secs_f64(seconds).unwrap_or(MAX_SERVICE)
    }
}

/// A number of a standard normal distribution, by Box–Muller.
pub(crate) fn normal(random: &mut Random) -> f64 {
    let [radius, angle] = [(); 2].map(|()| random.unit());
    // `unit` is less than one, so the logarithm is finite.
    let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
    radius * (std::f64::consts::TAU * angle).cos()
}

/// A lognormal number with this mean, from a `normal` one. Subtracting half of sigma squared makes it
/// the mean instead of the median.
pub(crate) fn lognormal(mean: f64, sigma: f64, normal: f64) -> f64 {
    mean * (sigma * normal - sigma * sigma / 2.0).exp()
}

/// Longer than any simulation.
const MAX_SERVICE: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
mod tests;
