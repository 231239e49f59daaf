//! Additive increase, multiplicative decrease, with one decrease per epoch, a remembered ceiling
//! and a guard against queues.
//!
//! The rate grows with every success until the first refusal, whose rate becomes the ceiling. Below
//! the ceiling it recovers quickly; near it, it grows by 0.5 requests per second every second,
//! doubling every five seconds, after a hold that is counted in requests at low rates. A refusal
//! counts only if its request was sent after the last decrease. Rising latency counts as a refusal
//! too, and reduces the rate to the delivered rate. If nothing was accepted across two decreases,
//! the rate stays and one request at a time probes.

use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp};

use super::pacer::{INITIAL_RATE, MAX_RATE, MIN_RATE, Pacer, RateSignal, SignalKind};

#[derive(Debug)]
pub(crate) struct Epochs {
    pacer: Pacer,
    steps: Steps,
    rate: f64,
    /// The rate that was last refused; infinite if none was.
    ceiling: f64,
    decreased_at: Option<Timestamp>,
    /// Since the last decrease; `u32::MAX` at first and after a decrease for latency.
    successes: u32,
    /// Decreases since the last success.
    streak: u32,
    /// When growth near the ceiling started.
    near_since: Option<Timestamp>,
    /// Successes since then.
    near: u32,
    /// Requests sent near the ceiling before probing above it, at rates below one per second.
    stay_requests: f64,
}

/// How large its steps are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    /// The maximum that a success adds.
    increase: f64,
    /// The factor of a decrease, once a ceiling is known.
    decrease: f64,
    /// The maximum that a success adds while no ceiling is known, as a share of the rate.
    start: f64,
}

impl Steps {
    pub(crate) const GENTLE: Self = Self {
        increase: 0.25,
        decrease: 0.5,
        start: 0.125,
    };
    pub(crate) const BRISK: Self = Self {
        increase: 1.0,
        decrease: 0.7,
        start: 0.5,
    };
}

impl Epochs {
    pub(crate) fn new(steps: Steps, max_in_flight: u32) -> Self {
        Self {
            pacer: Pacer::new(max_in_flight),
            steps,
            rate: INITIAL_RATE,
            ceiling: f64::INFINITY,
            decreased_at: None,
            successes: u32::MAX,
            streak: 0,
            near_since: None,
            near: 0,
            stay_requests: STAY_REQUESTS,
        }
    }

    fn learn(&mut self, signal: &RateSignal, now: Timestamp) {
        if signal.closed {
            self.ceiling = self.rate;
            self.rate = (0.5 * self.rate).max(MIN_RATE);
            self.begin_epoch(now);
        }
        if let Some((0, ends)) = signal.left {
            self.pacer.hold(ends);
            if signal.kind == SignalKind::Refused && self.is_new(signal) {
                self.directed(now);
            }
            return;
        }
        match signal.kind {
            SignalKind::Accepted { batch_done } => self.accepted(signal, batch_done, now),
            SignalKind::Directed { .. } if self.is_new(signal) => self.directed(now),
            SignalKind::Refused if self.is_new(signal) => self.refused(now),
            SignalKind::Directed { .. }
            | SignalKind::Refused
            | SignalKind::Banned
            | SignalKind::Other => {}
        }
    }

    /// Whether the request was sent after the last decrease.
    fn is_new(&self, signal: &RateSignal) -> bool {
        self.decreased_at.is_none_or(|at| signal.sent_at >= at)
    }

    fn accepted(&mut self, signal: &RateSignal, batch_done: bool, now: Timestamp) {
        self.successes = self.successes.saturating_add(1);
        self.streak = 0;
        let latency = &self.pacer.latency;
        let usual = latency.usual.unwrap_or(f64::INFINITY);
        let slow_now = latency.recent >= 2.0 * usual && latency.ratio() > 1.2;
        if slow_now || batch_done && latency.is_above(1.5) {
            self.near_since = Some(now);
            self.slowed(signal, now);
        } else if latency.is_above(1.2) {
            self.near_since = Some(now);
        } else {
            self.grow(now);
        }
    }

    /// A queue builds up at the server: decreases to the delivered rate.
    fn slowed(&mut self, signal: &RateSignal, now: Timestamp) {
        let recent = self.pacer.latency.recent;
        let before = |at: Timestamp| signal.sent_at < at.after_seconds(recent);
        if self.decreased_at.is_some_and(before) {
            return;
        }
        let stretch = (2.0 * recent).max(0.4);
        let delivered = self.pacer.delivered.per_second(stretch, now);
        let capacity = self.rate.min(delivered);
        if self.rate > 0.97 * delivered {
            self.ceiling = capacity;
        }
        self.rate = (0.85 * capacity).max(MIN_RATE);
        self.decreased_at = Some(now);
        self.successes = u32::MAX;
    }

    fn grow(&mut self, now: Timestamp) {
        let step = self.step(now);
        let stretch = (2.0 * self.pacer.latency.recent).max(6.0 / self.rate);
        let delivered = self.pacer.delivered.per_second(stretch.max(0.3), now);
        // An unused rate proves nothing, so it does not grow; but it does not fall either.
        let used = 1.6 * delivered + 4.0;
        self.rate = self.rate.max((self.rate + step).min(MAX_RATE).min(used));
        if self.rate > 1.25 * self.ceiling + 0.5 {
            self.ceiling = f64::INFINITY;
            self.stay_requests = STAY_REQUESTS;
        }
    }

    fn step(&mut self, now: Timestamp) -> f64 {
        let Steps {
            increase, start, ..
        } = self.steps;
        let rate = self.rate;
        if self.ceiling.is_infinite() {
            return increase.min(start * rate);
        }
        if rate < 0.92 * self.ceiling {
            return increase.min(0.1 * rate * rate.min(1.0));
        }
        self.near += 1;
        if !self.is_probing() {
            self.near_since = Some(now);
            return 0.0;
        }
        let since = *self.near_since.get_or_insert(now);
        let doublings = now.seconds_since(since) / 5.0;
        (0.5 * doublings.exp2() / rate).min(0.25 * rate)
    }

    /// Whether it has stayed near the ceiling for long enough.
    fn is_probing(&self) -> bool {
        f64::from(self.near) > self.stay_requests * (1.0 / self.rate).min(1.0)
    }

    fn refused(&mut self, now: Timestamp) {
        let closed_window = self.successes < 1 && self.streak >= 2;
        if !closed_window {
            self.decrease();
        }
        self.begin_epoch(now);
        self.successes = 0;
        self.streak += 1;
        let doublings = f64::from(self.streak - 1);
        let probes = if doublings > 0.0 {
            0.25 * 4_f64.powf(doublings)
        } else {
            0.0
        };
        let wait = (doublings.exp2() / self.rate).max(probes);
        self.pacer
            .hold_and_empty(now.after_seconds(wait.min(MAX_WAIT_S)));
    }

    fn decrease(&mut self) {
        let known = self.ceiling.is_finite();
        if known {
            self.stay_requests = match self.is_probing() {
                true => (2.0 * self.stay_requests).min(32.0),
                false if self.rate < 1.0 => 16.0,
                false => STAY_REQUESTS,
            };
        }
        let factor = if known && self.successes >= 2 {
            self.steps.decrease
        } else {
            0.5
        };
        self.ceiling = self.rate;
        self.rate = (factor * self.rate).max(MIN_RATE);
    }

    /// After a Retry-After: decreases from the delivered rate.
    fn directed(&mut self, now: Timestamp) {
        let delivered = self.pacer.delivered.per_second(1.0, now);
        self.rate = (self.steps.decrease * self.rate.min(delivered)).max(MIN_RATE);
        self.ceiling = self.rate;
        self.begin_epoch(now);
    }

    fn begin_epoch(&mut self, now: Timestamp) {
        self.decreased_at = Some(now);
        self.near_since = None;
        self.near = 0;
    }
}

const STAY_REQUESTS: f64 = 4.0;
const MAX_WAIT_S: f64 = 10.0;

impl Controller for Epochs {
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        random: &mut Random,
    ) -> Action {
        if !has_backlog {
            return Action::Wait { until: None };
        }
        // Growth pauses during a hold; otherwise hundreds would be sent at once afterwards.
        if now < self.pacer.held_until
            && let Some(since) = &mut self.near_since
        {
            *since = self.pacer.held_until;
        }
        self.pacer
            .next_action(id, self.rate, self.streak >= 2, now, random)
    }

    fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        random: &mut Random,
    ) -> FollowUp {
        if let Some(signal) = self.pacer.attempt_ended(id, result, now, random) {
            self.learn(&signal, now);
        }
        FollowUp::until_accepted(result)
    }

    fn state(&self, now: Timestamp) -> ControllerState {
        self.pacer.state(self.rate, now)
    }

    fn breaker_opened(&self) -> u64 {
        self.pacer.breaker_opened()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::driven::{DIRECTED, Driven, REFUSED, accepted, with_limit};

    #[test]
    fn decreases_once_for_a_burst_of_refusals() {
        let mut driven = Driven::new(Epochs::new(Steps::BRISK, 256));
        driven.respond_until(accepted, Timestamp::from_secs(5));
        let before = driven.controller.rate;
        driven.respond_until(|_| REFUSED, Timestamp::from_millis(5040));
        assert!(driven.refused > 2, "{}", driven.refused);
        let Epochs { rate, ceiling, .. } = driven.controller;
        assert!((ceiling - before).abs() < 1e-9 && (rate - 0.5 * before).abs() < 1e-9);
        driven.respond_until(accepted, Timestamp::from_secs(60));
        assert!(driven.controller.ceiling.is_infinite(), "it was wrong");
    }

    #[test]
    fn keeps_the_rate_and_probes_one_at_a_time_while_nothing_is_accepted() {
        let mut driven = Driven::new(Epochs::new(Steps::GENTLE, 256));
        driven.respond_until(accepted, Timestamp::from_secs(2));
        driven.respond_until(|_| REFUSED, Timestamp::from_secs(10));
        let (rate, sent) = (driven.controller.rate, driven.sent);
        assert!(driven.controller.streak > 2);
        driven.respond_until(|_| REFUSED, Timestamp::from_secs(40));
        assert!((driven.controller.rate - rate).abs() < 1e-9);
        assert_eq!(driven.sent - sent, 3, "one in ten seconds");
    }

    #[test]
    fn holds_until_retry_after_and_reset() {
        let mut driven = Driven::new(Epochs::new(Steps::BRISK, 256));
        driven.respond_until(accepted, Timestamp::from_secs(1));
        driven.respond_until(|_| DIRECTED, Timestamp::from_millis(1100));
        let until = driven.controller.pacer.held_until;
        assert!(until >= Timestamp::from_secs(6), "{until:?}");
        let ends = Timestamp::from_secs(20);
        driven.respond_until(
            |now| with_limit(0, ends.since(now)),
            Timestamp::from_secs(10),
        );
        assert_eq!(driven.controller.pacer.held_until, ends);
    }
}
