//! The part that `epochs` and `model` share: when a request may be sent at a given rate, and what its
//! result means for the rate.
//!
//! Checked in this order: breaker, hold, one at a time while nothing is accepted, in-flight bound,
//! token. A 403 soon after a throttling response is a ban, which starts a hold; holds grow from ban to
//! ban.

use std::time::Duration;

use policy::hint::{Hint, Source};
use policy::outcome::UpstreamResponse;
use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Action, AttemptId, AttemptResult, ControllerState, InFlight};

use super::breaker::{Breaker, Health};
use super::bucket::Bucket;
use super::delivered::Delivered;
use super::latency::Latency;

#[derive(Debug)]
pub(super) struct Pacer {
    max_in_flight: u32,
    in_flight: u32,
    sent: u64,
    sent_attempts: InFlight<Sent>,
    bucket: Bucket,
    breaker: Breaker,
    /// Nothing is sent before.
    pub(super) held_until: Timestamp,
    pub(super) latency: Latency,
    pub(super) delivered: Delivered,
    last_throttled: Option<Timestamp>,
    /// Bans since the last success.
    bans: usize,
}

/// An attempt in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Timestamp,
    number: u64,
}

/// A result, as far as the rate depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSignal {
    pub(super) sent_at: Timestamp,
    pub(super) kind: SignalKind,
    /// Whether the breaker closed on it.
    pub(super) closed: bool,
    /// Requests that are left, according to the server, minus those sent since, and until when.
    pub(super) left: Option<(u64, Timestamp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalKind {
    /// Accepted. `batch_done`: it completed a batch of latencies.
    Accepted { batch_done: bool },
    /// 429 or 503 without Retry-After.
    Refused,
    /// 429 or 503 with Retry-After; the hold has started.
    Directed { wait: Duration },
    /// A ban; the hold has started.
    Banned,
    /// Irrelevant for the rate.
    Other,
}

impl Pacer {
    pub(super) fn new(max_in_flight: u32) -> Self {
        Self {
            max_in_flight,
            in_flight: 0,
            sent: 0,
            sent_attempts: InFlight::new(),
            bucket: Bucket::new(INITIAL_RATE, 1.0, 1.0, Timestamp::ZERO),
            breaker: Breaker::default(),
            held_until: Timestamp::ZERO,
            latency: Latency::default(),
            delivered: Delivered::default(),
            last_throttled: None,
            bans: 0,
        }
    }

    /// Decides whether a request is sent at this rate. `alone`: only if none is in flight.
    pub(super) fn next_action(
        &mut self,
        id: AttemptId,
        rate: f64,
        alone: bool,
        now: Timestamp,
        random: &mut Random,
    ) -> Action {
        if self.in_flight >= self.max_in_flight {
            return Action::Wait { until: None };
        }
        let probe_at = self.breaker.probe_at();
        let free_at = probe_at.map_or(self.held_until, |at| at.max(self.held_until));
        if now < free_at {
            return Action::Wait {
                until: Some(free_at),
            };
        }
        if probe_at.is_none()
            && let Some(wait) = self.rate_wait(rate, alone, now)
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
        self.sent_attempts.insert(id, sent);
        Action::Send
    }

    /// The wait for the in-flight bound or for a token. Takes a token if there is no wait.
    fn rate_wait(&mut self, rate: f64, alone: bool, now: Timestamp) -> Option<Action> {
        let bound = match self.latency.usual {
            Some(usual) => MIN_IN_FLIGHT_BOUND + 2.0 * rate * usual,
            None => f64::INFINITY,
        };
        if alone && self.in_flight >= 1 || f64::from(self.in_flight) >= bound {
            return Some(Action::Wait { until: None });
        }
        self.bucket.set_rate(rate, (0.01 * rate).max(1.0), now);
        let until = self.bucket.take(now).err()?;
        Some(Action::Wait { until: Some(until) })
    }

    /// Processes the result of attempt `id`.
    pub(super) fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        random: &mut Random,
    ) -> Option<RateSignal> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let sent = self.sent_attempts.remove(id)?;
        let hint = &result.outcome.hint;
        let directed = hint
            .wait
            .filter(|_| hint.source == Some(Source::RetryAfter));
        let health = health(result, directed.is_some());
        let closed = self.breaker.attempt_ended(health, sent.at, now, random);
        let kind = match result.outcome.response {
            _ if result.is_accepted() => self.accepted(result, now),
            UpstreamResponse::Status(429 | 503) => self.throttled(directed, now, random),
            UpstreamResponse::Status(403) if self.is_banned(now) => self.banned(now),
            UpstreamResponse::Status(_) | UpstreamResponse::Failed { .. } => SignalKind::Other,
        };
        Some(RateSignal {
            sent_at: sent.at,
            kind,
            closed,
            left: self.left(sent, hint, now),
        })
    }

    /// Holds until `until` and removes all tokens; the bucket refills from then on.
    pub(super) fn hold_and_empty(&mut self, until: Timestamp) {
        self.bucket.empty_until(until);
        self.hold(until);
    }

    pub(super) fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(until);
    }

    /// Whether sending is suspended by a hold or the breaker.
    pub(super) fn is_suspended(&self, now: Timestamp) -> bool {
        now < self.held_until || self.breaker.probe_at().is_some()
    }

    pub(super) fn state(&self, rate: f64, now: Timestamp) -> ControllerState {
        ControllerState {
            rate: Some(rate),
            hold_until: Some(self.held_until).filter(|until| *until > now),
            breaker: Some(self.breaker.state()),
            ..ControllerState::default()
        }
    }

    pub(super) fn breaker_opened(&self) -> u64 {
        self.breaker.opened()
    }

    fn accepted(&mut self, result: &AttemptResult, now: Timestamp) -> SignalKind {
        self.bans = 0;
        self.delivered.count(now);
        let seconds = result.outcome.latency.as_secs_f64();
        SignalKind::Accepted {
            batch_done: self.latency.measure(seconds, now),
        }
    }

    fn throttled(
        &mut self,
        directed: Option<Duration>,
        now: Timestamp,
        random: &mut Random,
    ) -> SignalKind {
        self.last_throttled = Some(now);
        let Some(wait) = directed else {
            return SignalKind::Refused;
        };
        self.hold((now + wait).after_seconds(random.between(0.0, HOLD_JITTER_S)));
        SignalKind::Directed { wait }
    }

    fn is_banned(&self, now: Timestamp) -> bool {
        let recent = |at: Timestamp| now.since(at) <= BAN_WINDOW;
        self.bans > 0 || self.last_throttled.is_some_and(recent)
    }

    fn banned(&mut self, now: Timestamp) -> SignalKind {
        let step = self.bans.min(LADDER_S.len() - 1);
        self.hold(now.after_seconds(LADDER_S[step]));
        self.bans += 1;
        SignalKind::Banned
    }

    fn left(&self, sent: Sent, hint: &Hint, now: Timestamp) -> Option<(u64, Timestamp)> {
        let (remaining, reset) = hint.remaining.zip(hint.reset)?;
        let sent_after = self.sent - sent.number;
        Some((remaining.saturating_sub(sent_after), now + reset))
    }
}

/// The initial rate per second, and its bounds.
pub(super) const INITIAL_RATE: f64 = 2.0;
pub(super) const MIN_RATE: f64 = 0.1;
pub(super) const MAX_RATE: f64 = 10_000.0;

/// In flight at any latency.
const MIN_IN_FLIGHT_BOUND: f64 = 6.0;
/// Jitter after a hold, so that clients do not return at the same instant.
const HOLD_JITTER_S: f64 = 0.1;
/// For this long after a throttling response a 403 is taken for a ban.
const BAN_WINDOW: Duration = Duration::from_secs(120);
/// Holds after consecutive bans.
const LADDER_S: [f64; 5] = [30.0, 60.0, 120.0, 300.0, 600.0];

fn health(result: &AttemptResult, directed: bool) -> Health {
    match result.outcome.response {
        _ if result.is_accepted() => Health::Good,
        _ if directed => Health::Unknown,
        UpstreamResponse::Status(503) => Health::Overloaded,
        UpstreamResponse::Status(500..) | UpstreamResponse::Failed { .. } => Health::Bad,
        UpstreamResponse::Status(_) => Health::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::driven::{BANNED, Driven, REFUSED, accepted};
    use crate::baseline::epochs::{Epochs, Steps};

    #[test]
    fn treats_403_as_a_ban_only_after_throttling_and_holds_longer_each_time() {
        let mut driven = Driven::new(Epochs::new(Steps::BRISK, 1));
        driven.respond_until(|_| BANNED, Timestamp::from_secs(10));
        assert!(
            driven.sent > 15,
            "a 403 alone means nothing: {}",
            driven.sent
        );
        driven.respond_until(accepted, Timestamp::from_secs(11));
        driven.respond_until(|_| REFUSED, Timestamp::from_millis(11_100));
        let sent = driven.sent;
        driven.respond_until(|_| BANNED, Timestamp::from_secs(80));
        assert_eq!(driven.sent - sent, 2, "one now and one in 30 s");
        driven.respond_until(|_| BANNED, Timestamp::from_secs(500));
        assert_eq!(driven.sent - sent, 4, "and after 60 s, and after 120 s");
    }
}
