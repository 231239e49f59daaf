//! When a member calls the store, and what it says.

use std::time::Duration;

use super::Member;
use super::report::TripCause;
use crate::fleet::{Call, Left, Refusal, SharedSettings, Trip};
use crate::random::Random;
use crate::time::{Timestamp, saturating_u64};

/// When calls are made.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    pub(super) last: Timestamp,
    /// The first call since the last reply.
    pub(super) asked_at: Option<Timestamp>,
    pub(super) is_out: bool,
    pub(super) is_urgent: bool,
    /// Consecutive calls without a reply.
    pub(super) unanswered: u32,
    /// Not before, after calls without a reply.
    pub(super) retry_at: Timestamp,
    /// The time to the next call, over the interval: nodes do not stay in step.
    pub(super) pace: f64,
    pub(super) jitter: Random,
}

impl Member {
    /// When the next call is due; in the past: at once. It does not move while nothing happens. `None` while a call is out, or if there
    /// is nothing to say. `waiting` asks are in line.
    pub fn next_call(
        &self,
        settings: &SharedSettings,
        waiting: u32,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if self.calls.is_out {
            return None;
        }
        let interval = settings.fleet.interval.mul_f64(self.calls.pace);
        let due = if self.calls.is_urgent {
            self.calls.last
        } else if waiting > 0 && self.heard_at.is_none() {
            self.calls.last + MIN_BETWEEN_CALLS
        } else if self.has_slow_result() {
            self.calls.last + interval
        } else if waiting > 0 && self.is_short_of_slots(now) {
            (self.calls.last + MIN_BETWEEN_CALLS).max(self.quiet_until)
        } else if self.owner.is_some() && self.is_in_use(waiting) {
            self.calls.last + interval
        } else if self.is_in_use(waiting) {
            (self.calls.last + interval).max(self.quiet_until)
        } else if self.is_isolated || self.external.hold_until > now {
            // A person may have released it.
            self.calls.last + settings.fleet.lease
        } else {
            return None;
        };
        Some(due.max(self.calls.retry_at))
    }

    /// Whether there is a result that should not wait for the next slot: at slow rates the controller would
    /// change the rate for the request after that only.
    fn has_slow_result(&self) -> bool {
        self.rate < SLOW_RATE && self.feedback.accepted + self.feedback.late_accepted > 0
    }

    fn is_short_of_slots(&self, now: Timestamp) -> bool {
        self.external.rate_cap().is_none()
            && self.external.slots.is_empty()
            && self.external.hold_until <= now
    }

    /// Whether something happened that the store should know at once.
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.calls.is_urgent
    }

    /// What to tell the store. Exactly one of [`Member::replied`] and [`Member::unanswered`] follows.
    pub fn call(&mut self, settings: &SharedSettings, waiting: u32, now: Timestamp) -> Call {
        let elapsed = now.seconds_since(self.calls.last).min(10.0);
        let counts = self.external.take_counts();
        if self.calls.last > Timestamp::ZERO && elapsed > 0.0 {
            let weight = 1.0 - (-elapsed / DEMAND_SECONDS).exp();
            self.demand += weight * (f64::from(counts.asked) / elapsed - self.demand);
        }
        if self.demand < MIN_DEMAND {
            // Otherwise the last trace of it would reserve a slot with every call.
            self.demand = 0.0;
        }
        let interval = settings.fleet.interval.as_secs_f64();
        let is_short = waiting > 0 || self.external.was_short();
        let mut demand = self.demand;
        if is_short {
            // The line does not tell how much more would be sent.
            demand = demand.max(2.0 * self.share * self.rate);
            demand = demand.max(f64::from(waiting.max(1)) / (2.0 * interval));
        }
        self.external.clear_short();
        let held = self.external.slots.held(now);
        let soon = saturating_u64((3.0 * interval * demand).ceil());
        let soon = u32::try_from(soon).unwrap_or(u32::MAX);
        let want = soon.max(waiting).saturating_sub(held);
        let mut back = 0.0;
        if let Some(degraded) = &mut self.degraded {
            degraded.sent = degraded.sent.saturating_add(counts.sent);
            let seconds = now.seconds_since(degraded.since).max(0.1);
            back = f64::from(degraded.sent) / seconds;
        }
        let mut report = std::mem::take(&mut self.feedback);
        report.overriding = report
            .overriding
            .filter(|(_, at)| now.since(*at) < MAX_ORDER_AGE);
        let call = Call {
            demand,
            want,
            held,
            sent: counts.sent,
            sent_freely: counts.sent_freely,
            skipped: counts.skipped,
            accepted: report.accepted,
            latency_sum: report.latency_sum,
            late_accepted: report.late_accepted,
            late_refused: report.late_refused,
            refusal: report.refusal.map(|(refusal, sent_at)| Refusal {
                age: now.since(sent_at),
                ..refusal
            }),
            hold_for: report
                .hold_until
                .map_or(Duration::ZERO, |until| until.since(now)),
            left: report.left.and_then(|(left, told_at)| {
                let reset = left.reset.checked_sub(now.since(told_at))?;
                Some(Left { reset, ..left })
            }),
            trip: report.trip.map(|cause| Trip {
                is_decisive: cause == TripCause::Lost || self.share >= 0.5,
            }),
            probe: report.probe,
            back,
            claim: self.claim(),
            fence: self.owner.as_ref().map_or(0, |owner| owner.fence()),
            decision: self.owner.as_mut().and_then(|owner| owner.decision(now)),
            overriding: report.overriding.map(|(change, _)| change),
        };
        // Said again if there is no reply.
        self.feedback.refusal = report.refusal;
        self.feedback.hold_until = report.hold_until;
        self.feedback.trip = report.trip;
        self.feedback.probe = report.probe;
        self.feedback.overriding = report.overriding;
        self.calls.is_out = true;
        self.calls.pace = self.calls.jitter.between(0.95, 1.05);
        self.calls.is_urgent = false;
        self.calls.last = now;
        self.calls.asked_at.get_or_insert(now);
        call
    }

    /// The last call was not answered, or too late.
    pub fn unanswered(&mut self, now: Timestamp) {
        self.calls.is_out = false;
        self.calls.is_urgent |= self.feedback.refusal.is_some()
            || self.feedback.trip.is_some()
            || self.feedback.overriding.is_some();
        let doublings = self.calls.unanswered.min(2);
        self.calls.unanswered = self.calls.unanswered.saturating_add(1);
        let wait = FIRST_RETRY.saturating_mul(1 << doublings);
        let wait = wait.mul_f64(self.calls.jitter.between(0.75, 1.25));
        self.calls.retry_at = now + wait;
    }
}

/// Asks that need slots are gathered for this long.
const MIN_BETWEEN_CALLS: Duration = Duration::from_millis(20);
/// The wait after a call without a reply; doubles up to four times this.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// Demand follows what was asked over about this time.
const DEMAND_SECONDS: f64 = 0.3;
/// With a lower rate of the fleet, every result is reported within an interval: it is one call more for each
/// request.
const SLOW_RATE: f64 = 2.0;
/// With less demand per second a key is not in use.
pub(super) const MIN_DEMAND: f64 = 0.01;
/// What a person ordered while the store was silent is not done at other nodes any later: it would end
/// holds that began since.
const MAX_ORDER_AGE: Duration = Duration::from_secs(30);
