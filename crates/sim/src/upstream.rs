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
pub use response::{LimitStatus, UpstreamResponse};
pub use settings::{Ban, Kind, Outage, Step, UpstreamOptions, UpstreamSettings, UpstreamValues};
use slots::Slots;
use window::Window;

/// A server with a limit.
#[derive(Clone, Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    limit: Limit,
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
            settings: settings.clone(),
            steps_done: 0,
            bans: Bans::default(),
        }
    }

    /// Receives a request of `client` at `now`, which must not be before an earlier one.
    pub fn receive(&mut self, client: usize, now: Timestamp, random: &mut Random) -> Reply {
        let draws = Draws::new(random);
        self.advance(now);
        if let Some(outage) = self.settings.outage_at(now) {
            return self.reply_in_outage(outage, &draws, now);
        }
        if self.bans.is_banned(client, now) {
            return self.refuse(403, None, now);
        }
        let service = draws.lognormal(self.settings.mean_service(), self.settings.latency_spread);
        match self.limit.take(now, service) {
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

    /// The state of the limit at `now`, which must not be before an earlier request. Takes nothing.
    /// If nothing remains, a request that arrives now is refused.
    pub fn limit_status(&mut self, now: Timestamp) -> LimitStatus {
        self.advance(now);
        self.limit.status()
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

    fn take(&mut self, now: Timestamp, service: Duration) -> Admission {
        let (is_taken, wait) = match self {
            Self::Bucket(bucket) => (bucket.take(), bucket.next_token()),
            Self::Window(window) => (window.take(), window.remaining_time()),
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
        let [silence, failure, radius, angle] = [(); 4].map(|()| random.unit());
        // Box–Muller. `unit` is less than one, so the logarithm is finite.
        let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
        Self {
            silence,
            failure,
            normal: radius * (std::f64::consts::TAU * angle).cos(),
        }
    }

    /// A lognormal duration with this mean. Subtracting half of sigma squared makes it the mean
    /// instead of the median.
    fn lognormal(&self, mean: Duration, sigma: f64) -> Duration {
        let factor = (sigma * self.normal - sigma * sigma / 2.0).exp();
        Duration::try_from_secs_f64(mean.as_secs_f64() * factor).unwrap_or(MAX_SERVICE)
    }
}

/// Longer than any simulation.
const MAX_SERVICE: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
mod tests;
