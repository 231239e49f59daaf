//! Everything that one gate promises.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::gate::GateSettings;
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::pauses::{Ended, Pauses};
use super::tokens::{Stretch, Tokens};
use super::{Found, Promise};
use crate::client::{Attempt, FlightId, GateView};
use crate::simulate::{Sight, What};

#[derive(Debug)]
pub(super) struct GateWatch {
    pauses: Pauses,
    tokens: Tokens,
    stretches: Vec<Stretch>,
    flights: BTreeMap<usize, Flight>,
    sent: u64,
    rate: f64,
    epoch: u32,
    /// When the present epoch began.
    epoch_since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    sent_at: Timestamp,
    number: u64,
    probe: Option<u64>,
}

impl GateWatch {
    pub(super) fn new(settings: &GateSettings) -> Self {
        let limits = settings.limits().iter();
        Self {
            pauses: Pauses::new(),
            tokens: Tokens::full(settings),
            stretches: limits.map(|limit| Stretch::new(*limit)).collect(),
            flights: BTreeMap::new(),
            sent: 0,
            rate: settings.initial_rate(),
            epoch: 0,
            epoch_since: Timestamp::ZERO,
        }
    }

    /// Until when the server has asked to be left alone.
    pub(super) fn directed_until(&self) -> Timestamp {
        self.pauses.directed_until()
    }

    pub(super) fn look(&mut self, sight: &Sight<'_>, view: &GateView<'_>, found: &mut Found) {
        let now = sight.now;
        let pause = self.pauses.pause(view.settings);
        self.tokens.pass(view.settings, pause, now);
        self.pauses.pass(now);
        match sight.what {
            What::Waits { until } => self.waits(sight, view, until, found),
            What::Sent { id, .. } => self.sent(id, view, now, found),
            What::Ended { id, attempt, .. } => self.ended(id, attempt, view, now, found),
        }
        self.compare_bounds(view, found);
    }

    fn waits(
        &self,
        sight: &Sight<'_>,
        view: &GateView<'_>,
        until: Option<Timestamp>,
        found: &mut Found,
    ) {
        if !sight.has_fresh || !self.flights.is_empty() {
            return;
        }
        let longest = view.settings.limits().iter().map(|limit| limit.period());
        let a_token = Duration::from_secs_f64(1.0 / self.rate);
        // A nanosecond for every sum that is rounded up.
        let latest = self.pauses.until().max(sight.now)
            + a_token
            + longest.max().unwrap_or_default()
            + Duration::from_nanos(3);
        found.expect(
            until.is_some_and(|until| until <= latest),
            Promise::WaitsEnd,
            || format!("asks again at {until:?}, expected by {latest:?}"),
        );
    }

    fn sent(&mut self, id: FlightId, view: &GateView<'_>, now: Timestamp, found: &mut Found) {
        let permit = view.permits.get(id);
        let is_probe = permit.is_some_and(policy::gate::Permit::is_probe);
        let probe = self.pauses.leave(view.settings, is_probe, now, found);
        let has_token = self.tokens.take();
        found.expect(has_token, Promise::TokensAreTaken, || {
            let rate = self.rate;
            format!("{:.9} tokens at {rate} per second", self.tokens.tokens())
        });
        for stretch in &mut self.stretches {
            found.expect(stretch.take(now), Promise::LimitsAreKept, || {
                format!("one too many for {stretch:?}")
            });
        }
        self.sent += 1;
        let flight = Flight {
            sent_at: now,
            number: self.sent,
            probe,
        };
        self.flights.insert(id.0, flight);
        let is_same = self.rate.to_bits() == view.gate.rate().to_bits();
        found.expect(is_same, Promise::GrowthIsSlow, || {
            format!("from {} to {} by asking", self.rate, view.gate.rate())
        });
    }

    fn ended(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        view: &GateView<'_>,
        now: Timestamp,
        found: &mut Found,
    ) {
        let Some(flight) = self.flights.remove(&id.0) else {
            return;
        };
        let ended = Ended {
            exhausted: self.is_exhausted(view.settings, &flight, attempt),
            probe: flight.probe,
        };
        self.judge_rate(&flight, attempt, view, now, found);
        self.pauses.learn(view, attempt, ended, now, found);
    }

    /// `adaptive` counts what was sent since: the server did not know of it.
    fn is_exhausted(&self, settings: &GateSettings, flight: &Flight, attempt: &Attempt) -> bool {
        let since = match settings.strategy() {
            Strategy::Adaptive => self.sent - flight.number,
            Strategy::Aimd | Strategy::Fixed => 0,
        };
        let remaining = attempt.outcome.hint.remaining;
        remaining.is_some_and(|remaining| remaining <= since)
    }

    fn judge_rate(
        &mut self,
        flight: &Flight,
        attempt: &Attempt,
        view: &GateView<'_>,
        now: Timestamp,
        found: &mut Found,
    ) {
        let (before, after) = (self.rate, view.gate.rate());
        let epoch = view.gate.epoch();
        let has_learned = before.to_bits() != after.to_bits() || epoch != self.epoch;
        let is_late = flight.sent_at < self.epoch_since;
        found.expect(
            !has_learned || !is_late,
            Promise::LateAnswersTeachNothing,
            || format!("from {before} to {after} per second, epoch {epoch}"),
        );
        if after > before {
            let most = self.longest_step(view.settings, now);
            let is_slow = attempt.is_accepted() && after - before <= most * (1.0 + 1e-6);
            found.expect(is_slow, Promise::GrowthIsSlow, || {
                let verdict = attempt.verdict;
                format!("from {before} to {after} by {verdict:?}, at most {most} at once")
            });
        }
        if after < before {
            found.expect(
                epoch != self.epoch,
                Promise::LateAnswersTeachNothing,
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

    /// By how much one answer may raise the rate. `adaptive` adds at most one, or half of a small
    /// rate; near a ceiling half a request per second each second, doubling every five since the
    /// last pause, and never more than a quarter.
    fn longest_step(&self, settings: &GateSettings, now: Timestamp) -> f64 {
        let rate = self.rate;
        match settings.strategy() {
            Strategy::Fixed => 0.0,
            Strategy::Aimd => settings.aimd().increase,
            Strategy::Adaptive => {
                // Its clock counts milliseconds.
                let seconds = now.seconds_since(self.pauses.ended_by(now)) + 0.002;
                let creep = 0.5 * (seconds / 5.0).min(20.0).exp2() / rate;
                (0.5 * rate).min(1.0).max(creep.min(0.25 * rate))
            }
        }
    }

    fn compare_bounds(&self, view: &GateView<'_>, found: &mut Found) {
        let (settings, gate) = (view.settings, view.gate);
        let (least, most) = settings.rate_bounds();
        let rate = gate.rate();
        found.expect(
            (least..=most).contains(&rate),
            Promise::RateIsBounded,
            || format!("{rate}, expected {least} to {most}"),
        );
        let (seen, told) = (self.flights.len(), gate.in_flight());
        found.expect(
            seen == told as usize && told <= settings.max_in_flight(),
            Promise::InFlightIsBounded,
            || {
                let most = settings.max_in_flight();
                format!("{seen} under way of {most}, the gate says {told}")
            },
        );
        let waiting = gate.waiting(view.tickets);
        found.expect(
            waiting <= settings.max_waiting(),
            Promise::LineIsBounded,
            || format!("{waiting} wait"),
        );
    }
}
