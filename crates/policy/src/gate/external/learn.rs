//! The controller of a shared key: a gate that admits nothing itself.
//!
//! The owner of a key replays what all nodes reported through the strategy, as if one gate had sent it
//! all. Accepted responses are spread evenly over the time since the last replay, with their mean
//! latency; a refusal comes last.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::breaker::BreakerState;
use crate::fleet::{Feedback, RefusalKind};
use crate::gate::{Gate, GateSettings, Permit};
use crate::hint::Source;
use crate::rate::{self, Signal, Why};
use crate::time::{CoarseTime, Timestamp, nanos, saturating_u64};

/// What was reported since the last replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed<'a> {
    pub(crate) before: &'a Feedback,
    pub(crate) after: &'a Feedback,
    /// When `before` was replayed.
    pub(crate) since: Timestamp,
}

/// No more responses are replayed at once, which bounds the work; 100 000 per second at the usual
/// interval.
const MAX_REPLAYED: u64 = 10_000;

impl Gate {
    /// Learns from what all nodes reported. Returns whether the rate was lowered, which begins an epoch.
    pub(crate) fn replay(
        &mut self,
        settings: &GateSettings,
        replayed: &Replayed<'_>,
        now: Timestamp,
    ) -> bool {
        let Replayed {
            before,
            after,
            since,
        } = *replayed;
        let epoch = self.epoch();
        let sent = after.number.wrapping_sub(before.number);
        self.admitted = self.admitted.wrapping_add(low_bits(sent));
        let accepted = after.accepted.saturating_sub(before.accepted);
        let late = after.late_accepted.saturating_sub(before.late_accepted);
        let latency = after.latency_sum.saturating_sub(before.latency_sum);
        self.replay_accepted(settings, (accepted, late), latency, since, now);
        for _ in before.late_refused..after.late_refused.min(before.late_refused + 8) {
            self.adaptive.late_refusal();
        }
        if after.refusals > before.refusals {
            self.replay_refusal(settings, after, now);
        }
        if after.closes > before.closes {
            self.react(
                settings,
                Signal::BreakerClosed,
                &self.virtual_permit(now),
                now,
            );
        }
        let back = after.back - before.back;
        if back > 0.0 {
            let rate = (self.bucket.rate() + back).min(settings.max_rate);
            self.bucket.set_rate(rate);
            self.adaptive.raise_ceiling(back);
            self.why = Why::FastAnswers;
        }
        self.advance(settings, now);
        self.epoch() != epoch
    }

    fn replay_accepted(
        &mut self,
        settings: &GateSettings,
        (accepted, late): (u64, u64),
        latency_sum: Duration,
        since: Timestamp,
        now: Timestamp,
    ) {
        let count = (accepted + late).min(MAX_REPLAYED);
        if count == 0 {
            return;
        }
        let mean = nanos(latency_sum) / accepted.max(1);
        let time = nanos(now.since(since));
        for index in 1..=count {
            let at = since + Duration::from_nanos(time / count * index);
            let permit = Permit {
                admitted_at: at,
                ..self.virtual_permit(at)
            };
            self.succeeded = self.succeeded.saturating_add(1);
            self.last_success = Some(CoarseTime::of(at));
            if index <= late {
                self.adaptive
                    .late_success(self.moment(settings, &permit, at));
            } else {
                let latency = Duration::from_nanos(mean);
                self.react(settings, Signal::Accepted { latency }, &permit, at);
            }
        }
    }

    fn replay_refusal(&mut self, settings: &GateSettings, after: &Feedback, now: Timestamp) {
        let sent_since = low_bits(after.number.wrapping_sub(after.refusal_number));
        let age = nanos(after.refusal_age);
        let number = self.admitted.wrapping_sub(sent_since);
        let permit = Permit {
            admitted_at: Timestamp::from_nanos(now.as_nanos().saturating_sub(age)),
            number,
            ..self.virtual_permit(now)
        };
        let signal = match after.refusal {
            RefusalKind::Undirected => Signal::Refused { wait: None },
            RefusalKind::Directed(wait) => Signal::Refused { wait: Some(wait) },
            RefusalKind::Banned => Signal::Banned,
            RefusalKind::Failed => Signal::Failed,
        };
        self.throttled = self.throttled.saturating_add(1);
        // What is sent from now on is measured. Slots of the near future are being thinned out, so those
        // that were due do not tell what was sent meanwhile; the rate before does.
        let sent_meanwhile = self.bucket.rate() * after.refusal_age.as_secs_f64();
        let sent = number.wrapping_add(low_bits(saturating_u64(sent_meanwhile.round())));
        let admitted = std::mem::replace(&mut self.admitted, sent);
        self.react(settings, signal, &permit, now);
        self.admitted = admitted;
    }

    fn react(&mut self, settings: &GateSettings, signal: Signal, permit: &Permit, now: Timestamp) {
        let moment = self.moment(settings, permit, now);
        let reaction = rate::react(settings, &mut self.adaptive, signal, moment);
        self.apply(settings, reaction, now);
    }

    fn virtual_permit(&self, now: Timestamp) -> Permit {
        Permit {
            admitted_at: now,
            epoch: self.epoch(),
            number: self.admitted,
            cost: NonZeroU32::MIN,
            probe: None,
        }
    }

    /// Sets the rate of a new controller to that of the fleet.
    pub(crate) fn adopt_rate(&mut self, settings: &GateSettings, rate: f64) {
        if rate.is_finite() {
            self.bucket
                .set_rate(rate.clamp(settings.min_rate, settings.max_rate));
        }
    }

    /// Nothing is sent until then: growth is paused.
    pub(crate) fn follow_hold_until(&mut self, until: Timestamp, now: Timestamp) {
        if until > now {
            self.hold(until, Source::Assumed);
        }
    }

    /// Forgets failures, because the breaker of the fleet has opened or closed.
    pub(crate) fn forget_failures(&mut self, settings: &GateSettings, now: Timestamp) {
        self.advance(settings, now);
        if self.breaker.state(now) != BreakerState::Isolated {
            self.breaker.reset();
        }
        self.update_fast_path();
    }

    /// Whether it is unknown if the server accepts anything.
    pub(crate) fn is_probing_blind(&self) -> bool {
        self.adaptive.is_probing_blind()
    }

    /// What this node sends per second, for display.
    pub(crate) fn show_rate(&mut self, rate: f64) {
        self.bucket.set_rate(rate.max(f64::MIN_POSITIVE));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32 is meant")]
fn low_bits(number: u64) -> u32 {
    number as u32
}
