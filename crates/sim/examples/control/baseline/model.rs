//! A model of the limit: the delivered rate between two refusals is a lower bound, the refused rate an
//! upper bound.
//!
//! It starts fast until the first refusal. From then on each refusal puts the ceiling between both
//! bounds; the rate recovers to just below it, cruises there, and probes above it in steps that
//! double, until the next refusal or until the ceiling is disproved. Servers with limit headers are
//! paced by these, servers with Retry-After by the [`Quota`] that is learned from it.

use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp};

use super::pacer::{INITIAL_RATE, MAX_RATE, MIN_RATE, Pacer, RateSignal, SignalKind};
use super::quota::Quota;

#[derive(Debug)]
pub(crate) struct Model {
    pacer: Pacer,
    phase: Phase,
    /// For how long the phase has lasted, pauses left out.
    lasted_s: f64,
    ticked_at: Timestamp,
    rate: f64,
    /// What is believed to be the limit; `None` before anything was refused.
    ceiling: Option<f64>,
    event_at: Option<Timestamp>,
    /// Since the last event.
    successes: u32,
    counted_from: Timestamp,
    /// Events since the last success.
    streak: u32,
    /// Whether the last event was outside of a probe.
    surprised: bool,
    /// Whether the bounds of the ceiling are far apart.
    unsure: bool,
    /// Requests to cruise for, at rates below one per second.
    stay_requests: f64,
    /// The window that the server's headers describe.
    window: Option<ReportedWindow>,
    quota: Option<Quota>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// No limit is known.
    Start,
    /// From this share of the ceiling back to just below it.
    Recover { from: f64 },
    /// Just below the ceiling.
    Cruise,
    /// Above it, more and more.
    Probe,
}

/// A window as the server's headers describe it.
#[derive(Clone, Copy, Debug)]
struct ReportedWindow {
    left: u64,
    ends: Timestamp,
    at: Timestamp,
}

impl Model {
    pub(crate) fn new(max_in_flight: u32) -> Self {
        Self {
            pacer: Pacer::new(max_in_flight),
            phase: Phase::Start,
            lasted_s: 0.0,
            ticked_at: Timestamp::ZERO,
            rate: INITIAL_RATE,
            ceiling: None,
            event_at: None,
            successes: 0,
            counted_from: Timestamp::ZERO,
            streak: 0,
            surprised: false,
            unsure: false,
            stay_requests: STAY_REQUESTS,
            window: None,
            quota: None,
        }
    }

    /// Advances the phase, except while sending is suspended.
    fn tick(&mut self, now: Timestamp) {
        let from = self.ticked_at.max(self.pacer.held_until);
        if !self.pacer.is_suspended(now) {
            self.lasted_s += now.seconds_since(from);
        }
        self.ticked_at = now;
        let Some(ceiling) = self.ceiling else {
            return;
        };
        match self.phase {
            Phase::Start => {}
            Phase::Recover { from } => self.recover(from, ceiling),
            Phase::Cruise => self.cruise(),
            Phase::Probe => self.probe(ceiling),
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.lasted_s = 0.0;
    }

    fn recover(&mut self, from: f64, ceiling: f64) {
        let share = self.lasted_s / (4.0 / self.rate).max(1.0);
        self.rate = ceiling * (from + (JUST_BELOW - from) * share.min(1.0));
        if share >= 1.0 {
            self.enter(Phase::Cruise);
        }
    }

    fn cruise(&mut self) {
        let shortest = if self.unsure { 1.5 } else { 5.0 };
        let requests = self.stay_requests * (1.0 / self.rate).min(1.0);
        if self.lasted_s >= (requests / self.rate).max(shortest).min(60.0) {
            self.enter(Phase::Probe);
        }
    }

    fn probe(&mut self, ceiling: f64) {
        let first = (0.02 * ceiling).max((0.1 * ceiling).min(0.5));
        let excess = first * (self.lasted_s / (4.0 / self.rate).max(1.0)).exp2();
        if excess > 0.5 * ceiling {
            self.ceiling = None;
            self.enter(Phase::Start);
        } else {
            self.rate = (JUST_BELOW * ceiling + excess).min(MAX_RATE);
        }
    }

    fn learn(&mut self, signal: &RateSignal, now: Timestamp) {
        if signal.closed {
            self.closed(now);
        }
        if let Some((left, ends)) = signal.left {
            self.update_window(left, ends, now);
        }
        match signal.kind {
            SignalKind::Accepted { batch_done } => self.accepted(signal, batch_done, now),
            SignalKind::Refused if signal.left.is_some() => {}
            SignalKind::Refused if self.is_new(signal) => self.refused(now),
            SignalKind::Directed { wait } => self.directed(wait, now),
            SignalKind::Refused | SignalKind::Banned | SignalKind::Other => {}
        }
    }

    /// The breaker closed: restarts at half of the rate.
    fn closed(&mut self, now: Timestamp) {
        let rate = self.rate;
        self.begin(rate, now);
        self.rate = (0.5 * rate).max(MIN_RATE);
        self.enter(Phase::Recover { from: 0.5 });
    }

    fn update_window(&mut self, left: u64, ends: Timestamp, now: Timestamp) {
        // The earliest end of a window is right: other responses took longer to arrive.
        let ends = match self.window {
            Some(window) if now < window.ends => window.ends.min(ends),
            Some(_) | None => ends,
        };
        self.window = Some(ReportedWindow {
            left,
            ends,
            at: now,
        });
        if left == 0 {
            self.pacer.hold(ends);
        }
    }

    fn is_new(&self, signal: &RateSignal) -> bool {
        let half = 0.5 * self.pacer.latency.recent;
        let after = |at: Timestamp| signal.sent_at >= at.after_seconds(half);
        self.event_at.is_none_or(after)
    }

    fn accepted(&mut self, signal: &RateSignal, batch_done: bool, now: Timestamp) {
        self.successes += 1;
        self.streak = 0;
        if let Some(quota) = &mut self.quota {
            quota.accepted(signal.sent_at);
        }
        let latency = &self.pacer.latency;
        if batch_done && latency.is_above(1.4) && self.is_new(signal) {
            self.slowed(now);
            return;
        }
        let slow = latency.is_above(1.2);
        match self.phase {
            Phase::Start if !slow => self.grow(now),
            Phase::Probe if slow => {
                self.ceiling = Some(self.rate / JUST_BELOW);
                self.enter(Phase::Cruise);
            }
            Phase::Start | Phase::Recover { .. } | Phase::Cruise | Phase::Probe => {}
        }
    }

    fn grow(&mut self, now: Timestamp) {
        let used = 2.5 * self.delivered(0.3, 6.0, now) + 4.0;
        let grown = self.rate + self.rate.min(2.0);
        self.rate = self.rate.max(grown.min(used).min(MAX_RATE));
    }

    /// A queue builds up at the server: the delivered rate is the limit.
    fn slowed(&mut self, now: Timestamp) {
        let recent = self.pacer.latency.recent;
        let delivered = self
            .pacer
            .delivered
            .per_second((2.0 * recent).max(0.4), now);
        self.begin(delivered, now);
        let from = (1.3 / self.pacer.latency.ratio()).min(BACK);
        self.enter(Phase::Recover { from });
        self.rate = (delivered * from).max(MIN_RATE);
    }

    fn refused(&mut self, now: Timestamp) {
        self.pacer.hold_and_empty(now);
        let closed_window = self.successes < 1 && self.streak >= 2;
        self.streak += 1;
        if closed_window {
            let wait = 0.25 * 4_f64.powf(f64::from(self.streak - 1));
            self.pacer.hold(now.after_seconds(wait.min(MAX_WAIT_S)));
            self.event_at = Some(now);
            return;
        }
        let mut ceiling = self.estimate(now);
        let surprised = matches!(self.phase, Phase::Recover { .. } | Phase::Cruise);
        if surprised && self.surprised {
            // Another client takes a share.
            ceiling *= 0.85;
        }
        self.surprised = surprised;
        self.stay_requests = match self.phase {
            Phase::Probe => (2.0 * self.stay_requests).min(24.0),
            Phase::Start | Phase::Recover { .. } | Phase::Cruise => STAY_REQUESTS,
        };
        self.begin(ceiling, now);
    }

    /// The limit, between the delivered and the refused rate.
    fn estimate(&mut self, now: Timestamp) -> f64 {
        let rate = self.rate;
        let elapsed = now.seconds_since(self.counted_from);
        let enough = self.successes >= 8;
        self.unsure = false;
        if self.event_at.is_some() && enough && elapsed >= 0.7 {
            let through = f64::from(self.successes) / elapsed;
            let delivered = self.delivered(0.5, 8.0, now);
            let lower = through.max(0.85 * delivered.min(rate)).min(rate);
            let upper = (1.25 * delivered).min(rate).max(lower);
            self.unsure = upper - lower > 0.1 * upper;
            return f64::midpoint(lower, upper);
        }
        if self.event_at.is_none() && enough {
            return 0.95 * rate.min(self.delivered(0.6, 8.0, now));
        }
        match self.successes {
            0 | 1 => 0.5 * rate,
            2 | 3 => 0.7 * rate,
            _ => 0.9 * rate,
        }
    }

    /// The delivered rate over `seconds`, or over `requests` if those take longer.
    fn delivered(&self, seconds: f64, requests: f64, now: Timestamp) -> f64 {
        let stretch = seconds.max(requests / self.rate);
        self.pacer.delivered.per_second(stretch, now)
    }

    /// Starts over with this ceiling.
    fn begin(&mut self, ceiling: f64, now: Timestamp) {
        let ceiling = ceiling.max(MIN_RATE);
        self.ceiling = Some(ceiling);
        self.rate = (BACK * ceiling).max(MIN_RATE);
        self.event_at = Some(now);
        self.counted_from = now;
        self.successes = 0;
        self.enter(Phase::Recover { from: BACK });
    }

    fn directed(&mut self, wait: Duration, now: Timestamp) {
        let delivered = &self.pacer.delivered;
        let accepted = |from| delivered.since(from);
        self.quota = Quota::learn(self.quota.take(), wait, accepted, now);
    }

    /// The rate, limited by the server's hints; the error is when to ask again.
    fn pace(&mut self, now: Timestamp) -> Result<f64, Timestamp> {
        if let Some(quota) = &mut self.quota {
            return quota.pace(now);
        }
        Ok(match self.window {
            Some(window) if now < window.ends => {
                let rest_s = window.ends.seconds_since(window.at);
                self.rate.min(window.left as f64 / rest_s.max(0.001))
            }
            Some(_) | None => self.rate,
        })
    }
}

/// The rate after an event, and while cruising, as shares of the ceiling.
const BACK: f64 = 0.85;
const JUST_BELOW: f64 = 0.985;
const STAY_REQUESTS: f64 = 6.0;
const MAX_WAIT_S: f64 = 10.0;

impl Controller for Model {
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        random: &mut Random,
    ) -> Action {
        self.tick(now);
        if !has_backlog {
            return Action::Wait { until: None };
        }
        let rate = match self.pace(now) {
            Ok(rate) => rate.max(MIN_RATE),
            Err(until) => return Action::Wait { until: Some(until) },
        };
        let next = self
            .pacer
            .next_action(id, rate, self.streak >= 2, now, random);
        if let (Action::Send, Some(quota)) = (next, &mut self.quota) {
            quota.sent();
        }
        next
    }

    fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        random: &mut Random,
    ) -> FollowUp {
        self.tick(now);
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
    use crate::baseline::driven::{Driven, REFUSED, accepted, with_limit};

    #[test]
    fn puts_the_ceiling_between_delivered_and_refused_rate() {
        let mut driven = Driven::new(Model::new(256));
        driven.respond_until(accepted, Timestamp::from_secs(2));
        let before = driven.controller.rate;
        driven.respond_until(|_| REFUSED, Timestamp::from_millis(2040));
        let first = driven.controller.ceiling.unwrap();
        assert!(first < 0.95 * before, "{first} of {before}");
        driven.respond_until(accepted, Timestamp::from_secs(6));
        assert_eq!(driven.controller.phase, Phase::Cruise);
        driven.respond_until(accepted, Timestamp::from_secs(10));
        assert_eq!(driven.controller.phase, Phase::Probe);
        let tried = driven.controller.rate;
        driven.respond_until(|_| REFUSED, Timestamp::from_millis(10_040));
        let second = driven.controller.ceiling.unwrap();
        assert!(first < second && second < tried, "{first} {second} {tried}");
    }

    #[test]
    fn drops_the_ceiling_when_a_probe_is_not_refused() {
        let mut driven = Driven::new(Model::new(256));
        driven.respond_until(accepted, Timestamp::from_secs(2));
        driven.respond_until(|_| REFUSED, Timestamp::from_millis(2040));
        assert!(driven.controller.ceiling.is_some());
        driven.respond_until(accepted, Timestamp::from_secs(25));
        assert_eq!(driven.controller.ceiling, None);
    }

    #[test]
    fn spreads_remaining_requests_over_the_window() {
        let mut driven = Driven::new(Model::new(256));
        driven.respond_until(accepted, Timestamp::from_secs(2));
        let ends = Timestamp::from_secs(12);
        driven.respond_until(
            |now| with_limit(40, ends.since(now)),
            Timestamp::from_secs(3),
        );
        let pace = driven.controller.pace(Timestamp::from_secs(3)).unwrap();
        assert!(pace < 40.0 / 9.0, "some were sent after it: {pace}");
        driven.respond_until(
            |now| with_limit(0, ends.since(now)),
            Timestamp::from_secs(11),
        );
        assert_eq!(driven.controller.pacer.held_until, ends);
    }
}
