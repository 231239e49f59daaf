//! The invariants of one gate.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::gate::GateSettings;
use policy::outcome::Outcome;
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::pauses::Pauses;
use super::tokens::{LimitLog, Tokens};
use super::{Invariant, Violations};
use crate::client::{AttemptId, AttemptResult, GateView};
use crate::simulate::{ClientEvent, Observation};

#[derive(Debug)]
pub(super) struct GateChecker {
    pauses: Pauses,
    tokens: Tokens,
    limits: Vec<LimitLog>,
    in_flight: BTreeMap<usize, SentAttempt>,
    sent: u64,
    rate: f64,
    /// The rate before it was lowered because of a quota that the server named.
    full_rate: f64,
    epoch: u32,
    /// The start of the current epoch.
    epoch_since: Timestamp,
    /// The latest reset of tokens that the server named.
    tokens_reset: Timestamp,
}

/// The time until the bucket of a gate that counts costs is full. It holds one unit of cost, which is at
/// most twice the mean, and 2 ms of the rate.
fn full_of_cost(view: &GateView<'_>, now: Timestamp) -> Duration {
    let snapshot = view.gate.snapshot(view.settings, view.tickets, now);
    snapshot.cost.map_or(Duration::ZERO, |cost| {
        let missing = 2.0 * cost.mean + 0.002 * cost.rate - cost.available;
        Duration::from_secs_f64(missing.max(0.0) / cost.rate)
    })
}

#[derive(Clone, Copy, Debug)]
struct SentAttempt {
    sent_at: Timestamp,
    /// Counted from 1.
    number: u64,
    /// The HalfOpen round in which it is a probe.
    probe: Option<u64>,
}

impl GateChecker {
    pub(super) fn new(settings: &GateSettings) -> Self {
        let limits = settings.known_limits().iter();
        Self {
            pauses: Pauses::new(),
            tokens: Tokens::full(settings),
            limits: limits.map(|limit| LimitLog::new(*limit)).collect(),
            in_flight: BTreeMap::new(),
            sent: 0,
            rate: settings.initial_rate(),
            full_rate: 0.0,
            epoch: 0,
            epoch_since: Timestamp::ZERO,
            tokens_reset: Timestamp::ZERO,
        }
    }

    /// The end of the longest wait that the server named.
    pub(super) fn directed_until(&self) -> Timestamp {
        self.pauses.directed_until()
    }

    pub(super) fn check(
        &mut self,
        observation: &Observation<'_>,
        view: &GateView<'_>,
        violations: &mut Violations,
    ) {
        let now = observation.now;
        let pause = self.pauses.pause(view.settings);
        self.tokens.advance(view.settings, pause, now);
        self.pauses.advance(now);
        match observation.event {
            ClientEvent::Waits { until } => self.check_wait(observation, view, until, violations),
            ClientEvent::Sent { id, .. } => self.check_sent(id, view, now, violations),
            ClientEvent::Ended { id, result, .. } => {
                let quotas = result.outcome.hint.quotas.as_deref();
                if let Some(reset) = quotas.and_then(|quotas| quotas.tokens.reset) {
                    self.tokens_reset = self.tokens_reset.max(now + reset);
                }
                self.check_ended(id, result, view, now, violations)
            }
        }
        self.check_bounds(view, violations);
    }

    fn check_wait(
        &self,
        observation: &Observation<'_>,
        view: &GateView<'_>,
        until: Option<Timestamp>,
        violations: &mut Violations,
    ) {
        if !observation.has_backlog || !self.in_flight.is_empty() {
            return;
        }
        let periods = view
            .settings
            .known_limits()
            .iter()
            .map(|limit| limit.period());
        let one_token = Duration::from_secs_f64(1.0 / self.rate);
        // One nanosecond for each rounding up.
        let paused_until = self.pauses.until().max(observation.now);
        let latest = paused_until.max(self.tokens_reset)
            + one_token.max(full_of_cost(view, observation.now))
            + periods.max().unwrap_or_default()
            + Duration::from_nanos(3);
        violations.require(
            until.is_some_and(|until| until <= latest),
            Invariant::WaitIsBounded,
            || format!("asks again at {until:?}, expected by {latest:?}"),
        );
    }

    fn check_sent(
        &mut self,
        id: AttemptId,
        view: &GateView<'_>,
        now: Timestamp,
        violations: &mut Violations,
    ) {
        let permit = view.permits.get(id);
        let is_probe = permit.is_some_and(policy::gate::Permit::is_probe);
        let probe = self.pauses.sent(view.settings, is_probe, now, violations);
        let has_token = self.tokens.take();
        violations.require(has_token, Invariant::TokenPerRequest, || {
            let rate = self.rate;
            format!("{:.9} tokens at {rate} per second", self.tokens.tokens())
        });
        for limit in &mut self.limits {
            violations.require(limit.take(now), Invariant::KnownLimitIsKept, || {
                format!("one too many for {limit:?}")
            });
        }
        self.sent += 1;
        let attempt = SentAttempt {
            sent_at: now,
            number: self.sent,
            probe,
        };
        self.in_flight.insert(id.0, attempt);
        let is_same = self.rate.to_bits() == view.gate.rate().to_bits();
        violations.require(is_same, Invariant::GrowthIsBounded, || {
            format!(
                "from {} to {} without a result",
                self.rate,
                view.gate.rate()
            )
        });
    }

    fn check_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        view: &GateView<'_>,
        now: Timestamp,
        violations: &mut Violations,
    ) {
        let Some(attempt) = self.in_flight.remove(&id.0) else {
            return;
        };
        let is_exhausted = self.is_exhausted(view.settings, &attempt, result);
        self.check_rate(&attempt, result, view, now, violations);
        self.pauses
            .attempt_ended(view, result, is_exhausted, attempt.probe, now, violations);
    }

    /// Whether the response says that nothing is left. `adaptive` also counts the requests sent
    /// since, which the server had not seen, and ignores a reset that has passed when it arrives.
    fn is_exhausted(
        &self,
        settings: &GateSettings,
        attempt: &SentAttempt,
        result: &AttemptResult,
    ) -> bool {
        let since = match settings.strategy() {
            Strategy::Adaptive => self.sent - attempt.number,
            Strategy::Aimd | Strategy::Fixed => 0,
        };
        let Outcome { hint, latency, .. } = &result.outcome;
        let is_outdated = hint.reset.is_some_and(|reset| reset < *latency / 4);
        if settings.strategy() == Strategy::Adaptive && is_outdated {
            return false;
        }
        hint.remaining.is_some_and(|remaining| remaining <= since)
    }

    fn check_rate(
        &mut self,
        attempt: &SentAttempt,
        result: &AttemptResult,
        view: &GateView<'_>,
        now: Timestamp,
        violations: &mut Violations,
    ) {
        let (before, after) = (self.rate, view.gate.rate());
        let epoch = view.gate.epoch();
        let has_changed = before.to_bits() != after.to_bits() || epoch != self.epoch;
        let is_late = attempt.sent_at < self.epoch_since;
        let names_quota = result.outcome.hint.remaining.is_some();
        violations.require(
            !has_changed || !is_late,
            Invariant::OldEpochIsIgnored,
            || format!("from {before} to {after} per second, epoch {epoch}"),
        );
        if after > before {
            let max = self.max_step(view.settings, now);
            let is_slow = result.is_accepted() && after - before <= max * (1.0 + 1e-6);
            // It is stored with three digits.
            let is_restored = names_quota && after <= 1.001 * self.full_rate;
            let is_slow = is_slow || is_restored;
            violations.require(is_slow, Invariant::GrowthIsBounded, || {
                let verdict = result.verdict;
                format!("from {before} to {after} by {verdict:?}, at most {max} at once")
            });
        }
        if after < before {
            self.full_rate = match names_quota {
                true => self.full_rate.max(before),
                false => 0.0,
            };
            // A response that shows a queue lowers the rate by a hundredth at once.
            let is_eased = result.is_accepted() && after >= 0.99 * before * (1.0 - 1e-6);
            violations.require(
                is_eased || epoch != self.epoch,
                Invariant::OldEpochIsIgnored,
                || format!("fell from {before} to {after} within an epoch"),
            );
        }
        if epoch != self.epoch {
            self.epoch = epoch;
            self.epoch_since = now;
        }
        self.tokens.set_rate(view.settings, after);
        self.rate = after;
    }

    /// By how much one result may raise the rate. `adaptive` adds at most one, or half of a small
    /// rate; above a ceiling half a request per second each second, doubling every 0.6 s since the
    /// last pause, and never more than a quarter.
    fn max_step(&self, settings: &GateSettings, now: Timestamp) -> f64 {
        let rate = self.rate;
        match settings.strategy() {
            Strategy::Fixed => 0.0,
            Strategy::Aimd => settings.aimd().increase,
            Strategy::Adaptive => {
                // Its clock has a resolution of a millisecond.
                let seconds = now.seconds_since(self.pauses.last_end(now)) + 0.002;
                let creep = 0.5 * (seconds / 0.6).min(20.0).exp2() / rate;
                (0.5 * rate).min(1.0).max(creep.min(0.25 * rate))
            }
        }
    }

    fn check_bounds(&self, view: &GateView<'_>, violations: &mut Violations) {
        let (settings, gate) = (view.settings, view.gate);
        let (min, max) = settings.rate_bounds();
        let rate = gate.rate();
        violations.require(
            (min..=max).contains(&rate),
            Invariant::RateIsBounded,
            || format!("{rate}, expected {min} to {max}"),
        );
        let (counted, reported) = (self.in_flight.len(), gate.in_flight());
        violations.require(
            counted == reported as usize && reported <= settings.max_in_flight(),
            Invariant::InFlightIsBounded,
            || {
                let max = settings.max_in_flight();
                format!("{counted} in flight of {max}, the gate says {reported}")
            },
        );
        let waiting = gate.waiting(view.tickets);
        violations.require(
            waiting <= settings.max_waiting(),
            Invariant::LineIsBounded,
            || format!("{waiting} wait"),
        );
    }
}
