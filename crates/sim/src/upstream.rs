//! Upstreams as state machines: what happens to a request that arrives?
//!
//! A request is looked at in this order: is the server there at all, is this client banned, is it
//! within the limit, does it fail by chance. Everything is decided when it arrives, the moment at
//! which the answer leaves included, because nothing that comes later can change it: a queue is
//! first come, first served. So there is no event inside of a server, and a server on a real
//! network can ask the same code.
//!
//! **Chance.** Every request takes the same count of numbers from the upstream's stream, whether
//! they are used or not. The n-th request to arrive therefore finds the same luck whoever sent it
//! and whatever became of those before it: what a strategy changes is which request is the n-th,
//! and nothing else.
//!
//! At the edges: a step and an outage begin at the very instant that is written; an outage is over
//! at its end; limits go on counting during an outage, so a bucket refills; a request that is
//! refused by a ban or an outage takes nothing from the limit; one that fails by chance does.

mod answer;
mod ban;
mod bucket;
mod settings;
mod slots;
mod window;

use std::time::Duration;

use policy::duration::whole_seconds;
use policy::random::Random;
use policy::time::Timestamp;

pub use answer::{Answer, HeaderLines, Pace};
use ban::Bans;
use bucket::Bucket;
pub use settings::{Ban, Kind, Outage, Step, UpstreamSettings};
use slots::Slots;
use window::Window;

/// A server with a limit.
#[derive(Clone, Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    limit: Limit,
    /// How many of the steps were taken.
    stepped: usize,
    bans: Bans,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is answered.
    Answered {
        /// When the answer leaves the server.
        at: Timestamp,
        /// The answer.
        answer: Answer,
    },
    /// The connection is refused, at once.
    Unreachable,
    /// Nothing ever comes: the client gives up after this long.
    Silent {
        /// From sending to giving up.
        timeout: Duration,
    },
}

impl Upstream {
    /// A server that nobody has called.
    pub fn new(settings: &UpstreamSettings) -> Self {
        Self {
            limit: Limit::new(&settings.kind),
            settings: settings.clone(),
            stepped: 0,
            bans: Bans::default(),
        }
    }

    /// Takes a request of `client` that arrives at `now`, which is never before an earlier one.
    pub fn receive(&mut self, client: usize, now: Timestamp, random: &mut Random) -> Reply {
        let luck = Luck::draw(random);
        self.advance(now);
        if let Some(outage) = self.settings.outage_at(now) {
            return self.away(outage, &luck, now);
        }
        if self.bans.is_banned(client, now) {
            return self.refuse(403, None, now);
        }
        let length = luck.lognormal(self.settings.mean_time(), self.settings.latency_spread);
        match self.limit.take(now, length) {
            Taken::Served { until } => {
                let status = if luck.failure < self.settings.failure_rate {
                    500
                } else {
                    200
                };
                self.answer(status, None, until)
            }
            Taken::Excess { wait } => {
                if let Some(ban) = &self.settings.ban {
                    self.bans.exceed(ban, client, now);
                }
                let retry_after = self.settings.retry_after.then(|| whole_seconds(wait));
                self.refuse(429, retry_after, now)
            }
            Taken::QueueFull => self.refuse(503, None, now),
        }
    }

    /// What is left of the limit at `now`, which is never before an earlier request. Nothing is
    /// taken; if nothing remains, a request that arrives now is refused.
    pub fn pace(&mut self, now: Timestamp) -> Pace {
        self.advance(now);
        self.limit.pace()
    }

    /// How often a client was banned.
    pub fn bans(&self) -> u64 {
        self.bans.count()
    }

    /// The most that ever waited in the server's queue; `None` if it has none.
    pub fn max_queue(&self) -> Option<u64> {
        match &self.limit {
            Limit::Slots(slots) => Some(slots.longest_queue()),
            Limit::Bucket(_) | Limit::Window(_) => None,
        }
    }

    fn advance(&mut self, now: Timestamp) {
        while let Some(step) = self.settings.steps.get(self.stepped)
            && step.at <= now
        {
            self.limit.change(&step.kind, step.at);
            self.settings.kind = step.kind;
            self.stepped += 1;
        }
        self.limit.advance(now);
    }

    /// Whoever answers for the server may know when it is back.
    fn away(&self, outage: &Outage, luck: &Luck, now: Timestamp) -> Reply {
        let rest = || whole_seconds(outage.to.since(now));
        match outage.status {
            _ if luck.silence < outage.timeout_share => Reply::Silent {
                timeout: outage.timeout,
            },
            Some(status) => self.refuse(status, self.settings.retry_after.then(rest), now),
            None => Reply::Unreachable,
        }
    }

    fn refuse(&self, status: u16, retry_after: Option<u64>, now: Timestamp) -> Reply {
        self.answer(status, retry_after, now + self.settings.refuse_latency)
    }

    fn answer(&self, status: u16, retry_after: Option<u64>, at: Timestamp) -> Reply {
        let pace = self.settings.headers.then(|| self.limit.pace());
        let answer = Answer {
            status,
            retry_after,
            pace,
        };
        Reply::Answered { at, answer }
    }
}

/// The limit of a server.
#[derive(Clone, Debug)]
enum Limit {
    Bucket(Bucket),
    Window(Window),
    Slots(Slots),
}

/// What a limit says to a request.
enum Taken {
    /// It is served until then.
    Served { until: Timestamp },
    /// It is one too many; the next is taken after this long.
    Excess { wait: Duration },
    /// There is no place left to wait.
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

    /// The limit becomes another one of the same kind.
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

    fn take(&mut self, now: Timestamp, length: Duration) -> Taken {
        let (is_taken, wait) = match self {
            Self::Bucket(bucket) => (bucket.take(), bucket.next_token()),
            Self::Window(window) => (window.take(), window.rest()),
            Self::Slots(slots) => {
                return match slots.take(now, length) {
                    Some(until) => Taken::Served { until },
                    None => Taken::QueueFull,
                };
            }
        };
        if is_taken {
            Taken::Served {
                until: now + length,
            }
        } else {
            Taken::Excess { wait }
        }
    }

    fn pace(&self) -> Pace {
        match self {
            Self::Bucket(bucket) => bucket.pace(),
            Self::Window(window) => window.pace(),
            Self::Slots(slots) => slots.pace(),
        }
    }
}

/// What chance has in store for one request.
#[derive(Debug)]
struct Luck {
    silence: f64,
    failure: f64,
    /// Of a standard normal distribution.
    normal: f64,
}

impl Luck {
    fn draw(random: &mut Random) -> Self {
        let [silence, failure, radius, angle] = [(); 4].map(|()| random.unit());
        // The method of Box and Muller; a unit is never one, so the logarithm is finite.
        let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
        Self {
            silence,
            failure,
            normal: radius * (std::f64::consts::TAU * angle).cos(),
        }
    }

    /// A length of time with this mean. The mean of a lognormal is not its middle: without the
    /// correction by half the square it would be higher.
    fn lognormal(&self, mean: Duration, sigma: f64) -> Duration {
        let factor = (sigma * self.normal - sigma * sigma / 2.0).exp();
        Duration::try_from_secs_f64(mean.as_secs_f64() * factor).unwrap_or(LONGEST)
    }
}

/// Longer than anything is simulated.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
mod tests;
