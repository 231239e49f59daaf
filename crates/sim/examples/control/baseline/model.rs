//! A model of the limit: what got through between two refusals is a lower bound of it, the rate
//! that was refused an upper one.
//!
//! It starts fast until the first refusal. From then on each refusal puts the ceiling between both
//! bounds, and the rate recovers to just below it, cruises there, and probes above it with steps
//! that double, until the next refusal or until the ceiling has proved wrong. Servers that tell
//! what is left are paced by that; those that tell when to come back, by the [`Quota`] that this
//! reveals.

use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Afterwards, Attempt, Controller, FlightId, Next, Standing};

use super::pacer::{Heard, INITIAL_RATE, MAX_RATE, MIN_RATE, News, Pacer};
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
    /// Was the last event outside of a probe?
    surprised: bool,
    /// Are the bounds of the ceiling far apart?
    unsure: bool,
    /// Requests to cruise for, at rates below one per second.
    patience: f64,
    /// What a server that tells is left, and until when.
    told: Option<Told>,
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

/// What is left of a window, as its server tells.
#[derive(Clone, Copy, Debug)]
struct Told {
    left: u64,
    ends: Timestamp,
    at: Timestamp,
}

impl Model {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            pacer: Pacer::new(most),
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
            patience: PATIENCE,
            told: None,
            quota: None,
        }
    }

    /// Lets the phase go on, except while nothing may leave.
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
        let requests = self.patience * (1.0 / self.rate).min(1.0);
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

    fn learn(&mut self, heard: &Heard, now: Timestamp) {
        if heard.closed {
            self.closed(now);
        }
        if let Some((left, ends)) = heard.left {
            self.tell(left, ends, now);
        }
        match heard.news {
            News::Accepted { whole } => self.accepted(heard, whole, now),
            News::Refused if heard.left.is_some() => {}
            News::Refused if self.is_new(heard) => self.refused(now),
            News::Directed { wait } => self.directed(wait, now),
            News::Refused | News::Banned | News::Other => {}
        }
    }

    /// The server is back, and it is not known how well.
    fn closed(&mut self, now: Timestamp) {
        let rate = self.rate;
        self.begin(rate, now);
        self.rate = (0.5 * rate).max(MIN_RATE);
        self.enter(Phase::Recover { from: 0.5 });
    }

    fn tell(&mut self, left: u64, ends: Timestamp, now: Timestamp) {
        // Of one window, the earliest end is right: the others were longer on their way.
        let ends = match self.told {
            Some(told) if now < told.ends => told.ends.min(ends),
            Some(_) | None => ends,
        };
        self.told = Some(Told {
            left,
            ends,
            at: now,
        });
        if left == 0 {
            self.pacer.hold(ends);
        }
    }

    fn is_new(&self, heard: &Heard) -> bool {
        let half = 0.5 * self.pacer.latency.recent;
        let after = |at: Timestamp| heard.sent_at >= at.after_seconds(half);
        self.event_at.is_none_or(after)
    }

    fn accepted(&mut self, heard: &Heard, whole: bool, now: Timestamp) {
        self.successes += 1;
        self.streak = 0;
        if let Some(quota) = &mut self.quota {
            quota.accepted(heard.sent_at);
        }
        let latency = &self.pacer.latency;
        if whole && latency.is_above(1.4) && self.is_new(heard) {
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

    /// A queue builds up at the server: what it delivers is its limit.
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
        self.pacer.rest(now);
        let closed_window = self.successes < 1 && self.streak >= 2;
        self.streak += 1;
        if closed_window {
            let wait = 0.25 * 4_f64.powf(f64::from(self.streak - 1));
            self.pacer.hold(now.after_seconds(wait.min(LONGEST_WAIT_S)));
            self.event_at = Some(now);
            return;
        }
        let mut ceiling = self.estimate(now);
        let surprised = matches!(self.phase, Phase::Recover { .. } | Phase::Cruise);
        if surprised && self.surprised {
            // Someone else takes a share.
            ceiling *= 0.85;
        }
        self.surprised = surprised;
        self.patience = match self.phase {
            Phase::Probe => (2.0 * self.patience).min(24.0),
            Phase::Start | Phase::Recover { .. } | Phase::Cruise => PATIENCE,
        };
        self.begin(ceiling, now);
    }

    /// Where the limit is, between what got through and what was tried.
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

    /// What got through per second, over so many seconds or so many requests.
    fn delivered(&self, seconds: f64, requests: f64, now: Timestamp) -> f64 {
        let stretch = seconds.max(requests / self.rate);
        self.pacer.delivered.per_second(stretch, now)
    }

    /// An event: this is the limit now.
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

    /// The rate, or what the server's own words make of it; the error is when to ask again.
    fn pace(&mut self, now: Timestamp) -> Result<f64, Timestamp> {
        if let Some(quota) = &mut self.quota {
            return quota.pace(now);
        }
        Ok(match self.told {
            Some(told) if now < told.ends => {
                let rest_s = told.ends.seconds_since(told.at);
                self.rate.min(told.left as f64 / rest_s.max(0.001))
            }
            Some(_) | None => self.rate,
        })
    }
}

/// Where it comes back to after an event, and where it cruises, as shares of the ceiling.
const BACK: f64 = 0.85;
const JUST_BELOW: f64 = 0.985;
const PATIENCE: f64 = 6.0;
const LONGEST_WAIT_S: f64 = 10.0;

impl Controller for Model {
    fn next(&mut self, id: FlightId, has_fresh: bool, now: Timestamp, random: &mut Random) -> Next {
        self.tick(now);
        if !has_fresh {
            return Next::Wait { until: None };
        }
        let rate = match self.pace(now) {
            Ok(rate) => rate.max(MIN_RATE),
            Err(until) => return Next::Wait { until: Some(until) },
        };
        let next = self.pacer.next(id, rate, self.streak >= 2, now, random);
        if let (Next::SendFresh, Some(quota)) = (next, &mut self.quota) {
            quota.sent();
        }
        next
    }

    fn answered(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        random: &mut Random,
    ) -> Afterwards {
        self.tick(now);
        if let Some(heard) = self.pacer.hear(id, attempt, now, random) {
            self.learn(&heard, now);
        }
        Afterwards::until_accepted(attempt)
    }

    fn standing(&self, now: Timestamp) -> Standing {
        self.pacer.standing(self.rate, now)
    }

    fn breaker_opened(&self) -> u64 {
        self.pacer.breaker_opened()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::driven::{Driven, REFUSED, accepted, left};

    #[test]
    fn the_ceiling_is_put_between_what_got_through_and_what_was_tried() {
        let mut driven = Driven::new(Model::new(256));
        driven.answer_all(accepted, Timestamp::from_secs(2));
        let before = driven.controller.rate;
        driven.answer_all(|_| REFUSED, Timestamp::from_millis(2040));
        let first = driven.controller.ceiling.unwrap();
        assert!(first < 0.95 * before, "{first} of {before}");
        driven.answer_all(accepted, Timestamp::from_secs(6));
        assert_eq!(driven.controller.phase, Phase::Cruise);
        driven.answer_all(accepted, Timestamp::from_secs(10));
        assert_eq!(driven.controller.phase, Phase::Probe);
        let tried = driven.controller.rate;
        driven.answer_all(|_| REFUSED, Timestamp::from_millis(10_040));
        let second = driven.controller.ceiling.unwrap();
        assert!(first < second && second < tried, "{first} {second} {tried}");
    }

    #[test]
    fn a_probe_that_nobody_refuses_forgets_the_ceiling() {
        let mut driven = Driven::new(Model::new(256));
        driven.answer_all(accepted, Timestamp::from_secs(2));
        driven.answer_all(|_| REFUSED, Timestamp::from_millis(2040));
        assert!(driven.controller.ceiling.is_some());
        driven.answer_all(accepted, Timestamp::from_secs(25));
        assert_eq!(driven.controller.ceiling, None);
    }

    #[test]
    fn what_is_left_is_spread_over_what_is_left_of_the_window() {
        let mut driven = Driven::new(Model::new(256));
        driven.answer_all(accepted, Timestamp::from_secs(2));
        let ends = Timestamp::from_secs(12);
        driven.answer_all(|now| left(40, ends.since(now)), Timestamp::from_secs(3));
        let pace = driven.controller.pace(Timestamp::from_secs(3)).unwrap();
        assert!(pace < 40.0 / 9.0, "some were sent after it: {pace}");
        driven.answer_all(|now| left(0, ends.since(now)), Timestamp::from_secs(11));
        assert_eq!(driven.controller.pacer.held_until, ends);
    }
}
