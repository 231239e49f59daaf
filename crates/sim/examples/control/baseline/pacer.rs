//! Everything around a rate that `epochs` and `model` have in common: when a request may leave at
//! a given rate, and what its answer means.
//!
//! Asked in this order: the breaker, the hold, one at a time while nothing gets through, how many
//! make sense at once, a token. Answers with 403 soon after a throttling one are bans, and are
//! answered with growing holds.

use std::time::Duration;

use policy::hint::{Hint, Source};
use policy::outcome::Answer;
use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Attempt, FlightId, Next, Outstanding, Standing};

use super::breaker::{Breaker, Health};
use super::bucket::Bucket;
use super::delivered::Delivered;
use super::latency::Latency;

#[derive(Debug)]
pub(super) struct Pacer {
    most: u32,
    in_flight: u32,
    sent: u64,
    under_way: Outstanding<Sent>,
    bucket: Bucket,
    breaker: Breaker,
    /// Nothing leaves before.
    pub(super) held_until: Timestamp,
    pub(super) latency: Latency,
    pub(super) delivered: Delivered,
    last_throttled: Option<Timestamp>,
    /// How many bans there were since the last success.
    bans: usize,
}

/// A request as it left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Timestamp,
    number: u64,
}

/// An answer, as far as a rate depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) sent_at: Timestamp,
    pub(super) news: News,
    /// Did the breaker close on it?
    pub(super) closed: bool,
    /// What the server says is left, with what was sent since taken off, and when that ends.
    pub(super) left: Option<(u64, Timestamp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Accepted. `whole`: a batch of latencies became whole.
    Accepted { whole: bool },
    /// 429 or 503 without a time to come back.
    Refused,
    /// 429 or 503 with one, and the hold is on.
    Directed { wait: Duration },
    /// A ban, and the hold is on.
    Banned,
    /// Nothing that a rate should follow.
    Other,
}

impl Pacer {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            in_flight: 0,
            sent: 0,
            under_way: Outstanding::new(),
            bucket: Bucket::new(INITIAL_RATE, 1.0, 1.0, Timestamp::ZERO),
            breaker: Breaker::default(),
            held_until: Timestamp::ZERO,
            latency: Latency::default(),
            delivered: Delivered::default(),
            last_throttled: None,
            bans: 0,
        }
    }

    /// May a request leave at this rate? `alone`: only if none is under way.
    pub(super) fn next(
        &mut self,
        id: FlightId,
        rate: f64,
        alone: bool,
        now: Timestamp,
        random: &mut Random,
    ) -> Next {
        if self.in_flight >= self.most {
            return Next::Wait { until: None };
        }
        let probe_at = self.breaker.probe_at();
        let free_at = probe_at.map_or(self.held_until, |at| at.max(self.held_until));
        if now < free_at {
            return Next::Wait {
                until: Some(free_at),
            };
        }
        if probe_at.is_none()
            && let Some(wait) = self.waits(rate, alone, now)
        {
            return wait;
        }
        self.breaker.sent(now, random);
        self.in_flight += 1;
        self.sent += 1;
        let sent = Sent {
            at: now,
            number: self.sent,
        };
        self.under_way.put(id, sent);
        Next::SendFresh
    }

    /// Why nothing leaves now although nothing is wrong; takes a token if nothing holds it back.
    fn waits(&mut self, rate: f64, alone: bool, now: Timestamp) -> Option<Next> {
        let sensible = match self.latency.usual {
            Some(usual) => ALWAYS + 2.0 * rate * usual,
            None => f64::INFINITY,
        };
        if alone && self.in_flight >= 1 || f64::from(self.in_flight) >= sensible {
            return Some(Next::Wait { until: None });
        }
        self.bucket.move_to(rate, (0.01 * rate).max(1.0), now);
        let until = self.bucket.take(now).err()?;
        Some(Next::Wait { until: Some(until) })
    }

    /// What came of the request under `id`.
    pub(super) fn hear(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        random: &mut Random,
    ) -> Option<Heard> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let sent = self.under_way.take(id)?;
        let hint = &attempt.outcome.hint;
        let directed = hint
            .wait
            .filter(|_| hint.source == Some(Source::RetryAfter));
        let health = health(attempt, directed.is_some());
        let closed = self.breaker.hear(health, sent.at, now, random);
        let news = match attempt.outcome.answer {
            _ if attempt.is_accepted() => self.accepted(attempt, now),
            Answer::Status(429 | 503) => self.throttled(directed, now, random),
            Answer::Status(403) if self.is_banned(now) => self.banned(now),
            Answer::Status(_) | Answer::Failed { .. } => News::Other,
        };
        Some(Heard {
            sent_at: sent.at,
            news,
            closed,
            left: self.left(sent, hint, now),
        })
    }

    /// No token is left, and none comes before `until`.
    pub(super) fn rest(&mut self, until: Timestamp) {
        self.bucket.empty_until(until);
        self.hold(until);
    }

    pub(super) fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(until);
    }

    /// Does anything but the rate keep requests from leaving?
    pub(super) fn is_suspended(&self, now: Timestamp) -> bool {
        now < self.held_until || self.breaker.probe_at().is_some()
    }

    pub(super) fn standing(&self, rate: f64, now: Timestamp) -> Standing {
        Standing {
            rate: Some(rate),
            hold_until: Some(self.held_until).filter(|until| *until > now),
            breaker: Some(self.breaker.state()),
        }
    }

    pub(super) fn breaker_opened(&self) -> u64 {
        self.breaker.opened()
    }

    fn accepted(&mut self, attempt: &Attempt, now: Timestamp) -> News {
        self.bans = 0;
        self.delivered.count(now);
        let seconds = attempt.outcome.latency.as_secs_f64();
        News::Accepted {
            whole: self.latency.measure(seconds, now),
        }
    }

    fn throttled(
        &mut self,
        directed: Option<Duration>,
        now: Timestamp,
        random: &mut Random,
    ) -> News {
        self.last_throttled = Some(now);
        let Some(wait) = directed else {
            return News::Refused;
        };
        self.hold((now + wait).after_seconds(random.between(0.0, LATE_S)));
        News::Directed { wait }
    }

    fn is_banned(&self, now: Timestamp) -> bool {
        let recent = |at: Timestamp| now.since(at) <= SUSPICIOUS;
        self.bans > 0 || self.last_throttled.is_some_and(recent)
    }

    fn banned(&mut self, now: Timestamp) -> News {
        let step = self.bans.min(LADDER_S.len() - 1);
        self.hold(now.after_seconds(LADDER_S[step]));
        self.bans += 1;
        News::Banned
    }

    fn left(&self, sent: Sent, hint: &Hint, now: Timestamp) -> Option<(u64, Timestamp)> {
        let (remaining, reset) = hint.remaining.zip(hint.reset)?;
        let sent_after = self.sent - sent.number;
        Some((remaining.saturating_sub(sent_after), now + reset))
    }
}

/// Both begin with this many a second and never go below or above these.
pub(super) const INITIAL_RATE: f64 = 2.0;
pub(super) const MIN_RATE: f64 = 0.1;
pub(super) const MAX_RATE: f64 = 10_000.0;

/// So many may be under way however fast answers come.
const ALWAYS: f64 = 6.0;
/// Nobody comes back at the very moment that all were told.
const LATE_S: f64 = 0.1;
/// For so long after a throttling answer a 403 is taken for a ban.
const SUSPICIOUS: Duration = Duration::from_secs(120);
/// How long to stay away, ban after ban.
const LADDER_S: [f64; 5] = [30.0, 60.0, 120.0, 300.0, 600.0];

fn health(attempt: &Attempt, directed: bool) -> Health {
    match attempt.outcome.answer {
        _ if attempt.is_accepted() => Health::Good,
        _ if directed => Health::Unknown,
        Answer::Status(503) => Health::Strained,
        Answer::Status(500..) | Answer::Failed { .. } => Health::Bad,
        Answer::Status(_) => Health::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::driven::{BANNED, Driven, REFUSED, accepted};
    use crate::baseline::epochs::{Epochs, Steps};

    #[test]
    fn a_403_is_a_ban_only_after_throttling_and_each_is_waited_for_longer() {
        let mut driven = Driven::new(Epochs::new(Steps::BRISK, 1));
        driven.answer_all(|_| BANNED, Timestamp::from_secs(10));
        assert!(
            driven.sent > 15,
            "a 403 alone means nothing: {}",
            driven.sent
        );
        driven.answer_all(accepted, Timestamp::from_secs(11));
        driven.answer_all(|_| REFUSED, Timestamp::from_millis(11_100));
        let sent = driven.sent;
        driven.answer_all(|_| BANNED, Timestamp::from_secs(80));
        assert_eq!(driven.sent - sent, 2, "one now and one in 30 s");
        driven.answer_all(|_| BANNED, Timestamp::from_secs(500));
        assert_eq!(driven.sent - sent, 4, "and after 60 s, and after 120 s");
    }
}
