//! Follows a quota of requests that response headers tell: how many remain, and until when.
//!
//! Requests are numbered in the order in which they are sent. A response therefore says which request
//! is the last one that the server accepts: its own number plus what remains. That number is the same
//! in all responses until the quota is renewed, however many requests are in flight. It falls if other
//! clients use the quota too.

use std::time::Duration;

use super::{Gate, GateSettings, Permit};
use crate::hint::Source;
use crate::outcome::Outcome;
use crate::rate::{self, Coarse, Rough, Why};
use crate::time::Timestamp;

/// A quota as the last response told it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    /// The request whose response told it.
    number: u32,
    /// The last request that the server accepts.
    last: u32,
    /// When the quota is renewed.
    ends: Coarse,
    /// The rate before it was lowered because of the quota; zero if it is not lowered.
    pub(super) full_rate: Rough,
    /// For how many renewals others are assumed to use the quota too.
    others: u8,
    /// The header that told it.
    source: Source,
}

/// What a response says about the quota that was known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is the same, or there was none.
    None,
    /// The response belongs to a request that was sent before one that told more recently.
    Outdated,
    /// Others have used a part of it.
    Shared,
    /// It was renewed.
    Renewed,
}

impl Quota {
    /// What is known after the response to request `number`.
    pub(super) fn follow(
        known: Option<Self>,
        number: u32,
        remaining: u64,
        (ends, source): (Timestamp, Source),
        now: Timestamp,
    ) -> (Self, Change) {
        let remaining = u32::try_from(remaining).map_or(MAX_REMAINING, |it| it.min(MAX_REMAINING));
        let mut quota = Self {
            number,
            last: number.wrapping_add(remaining),
            ends: Coarse::of(ends),
            full_rate: Rough::ZERO,
            others: 0,
            source,
        };
        let Some(before) = known else {
            return (quota, Change::None);
        };
        if is_before(number, before.number) {
            return (before, Change::Outdated);
        }
        quota.full_rate = before.full_rate;
        quota.others = before.others;
        let is_over = before.seconds_left(now) <= 0.0;
        let change = if is_over || is_before(before.last, quota.last) {
            quota.others = quota.others.saturating_sub(1);
            Change::Renewed
        } else if quota.last == before.last {
            // Servers round up the time until the end.
            quota.ends = quota.ends.min(before.ends);
            Change::None
        } else {
            quota.others = OTHERS_FOR_RENEWALS;
            Change::Shared
        };
        (quota, change)
    }

    /// How many more requests are accepted after the request `admitted` until the quota is renewed.
    pub(super) fn left(&self, admitted: u32) -> u32 {
        match is_before(admitted, self.last) {
            true => self.last.wrapping_sub(admitted),
            false => 0,
        }
    }

    /// Seconds until the quota is renewed; not positive afterwards.
    pub(super) fn seconds_left(&self, now: Timestamp) -> f64 {
        self.ends.seconds_since(Coarse::of(now))
    }

    /// Whether others use the quota too.
    pub(super) fn is_shared(&self) -> bool {
        self.others > 0
    }
}

/// Two renewals without a sign of others: they may be idle for one.
const OTHERS_FOR_RENEWALS: u8 = 3;

/// More is as good as unlimited; the number of the last request must not wrap around too far.
const MAX_REMAINING: u32 = u32::MAX / 4;

/// Numbers wrap around; those in use are close to each other.
fn is_before(earlier: u32, later: u32) -> bool {
    earlier != later && later.wrapping_sub(earlier) < u32::MAX / 2
}

impl Gate {
    /// Takes what a response says of the quota, and adjusts the hold, and the rate if the response
    /// belongs to the present epoch. Returns `true` if the quota limits the rate, so that the response
    /// is no reason to raise it.
    pub(super) fn follow_quota(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        remaining: u64,
        reset: Duration,
        outcome: &Outcome,
        is_current: bool,
        now: Timestamp,
    ) -> bool {
        let source = outcome.hint.source.unwrap_or(Source::Assumed);
        let ends = (now + reset, source);
        let (quota, change) =
            Quota::follow(self.quota().copied(), permit.number, remaining, ends, now);
        self.change_extras(|extras| extras.quota = Some(quota));
        let sent_since = u64::from(self.admitted.wrapping_sub(permit.number));
        if remaining <= sent_since {
            self.hold(now + reset, source);
            // A bucket has a token again soon.
            let is_long = reset.as_secs_f64() * self.bucket.rate() > 2.0;
            return is_long || quota.full_rate != Rough::ZERO;
        }
        if change == Change::Outdated || !is_current {
            return quota.full_rate != Rough::ZERO;
        }
        let left = quota.left(self.admitted);
        let seconds = quota.seconds_left(now);
        let pace = self.quota_pace(&quota, left, seconds, outcome.latency);
        self.limit_rate(settings, pace)
    }

    /// The rate that the rest of the quota allows; infinite if there is no reason to slow down.
    ///
    /// A quota of seconds is paced: otherwise much of it would be lost between its end and the first
    /// response that tells the next one. A longer one is used at full speed, so that a client
    /// with little to send does not wait. If others use it too, what they take is known only from responses, and
    /// the last requests are spread over the time of two responses: then the gate learns which request
    /// is the last before it sends another.
    fn quota_pace(&self, quota: &Quota, left: u32, seconds: f64, latency: Duration) -> f64 {
        let left = f64::from(left);
        let paced = MAX_PACED_SECONDS.max(MAX_PACED_LATENCIES * self.adaptive.mean_latency());
        if seconds < paced {
            // The server counts from when the request arrived.
            let seconds = (seconds - latency.as_secs_f64()).max(0.5 * seconds);
            BELOW_PACE * (left + 1.0) / seconds
        } else if quota.is_shared() {
            left / self.spread(latency).min(seconds)
        } else {
            f64::INFINITY
        }
    }

    /// Lowers the rate to `pace`, or restores it if `pace` is higher. Returns whether it did or had.
    fn limit_rate(&mut self, settings: &GateSettings, pace: f64) -> bool {
        let full_rate = self.full_rate();
        let Some(quota) = self.quota_mut() else {
            return false;
        };
        let was_lowered = quota.full_rate != Rough::ZERO;
        let is_lowered = pace < full_rate;
        if !is_lowered && !was_lowered {
            return false;
        }
        if is_lowered {
            quota.full_rate = Rough::of(full_rate);
            self.why = Why::NearlyUsedUp;
        } else {
            quota.full_rate = Rough::ZERO;
            self.why = Why::QuotaRenewed;
        }
        let before = self.bucket.rate();
        let rate = pace.min(full_rate).max(settings.min_rate);
        if rate < before && rate > SAME_PACE * before {
            return true;
        }
        self.bucket.set_rate(rate);
        self.bucket.cut_to(rate::burst(settings, rate));
        if rate < before {
            self.begin_epoch();
        }
        true
    }

    /// The rate without what the quota lowered it by.
    #[inline]
    pub(super) fn full_rate(&self) -> f64 {
        match self.quota() {
            Some(quota) if quota.full_rate != Rough::ZERO => quota.full_rate.get(),
            _ => self.bucket.rate(),
        }
    }

    /// What a response means for the rate, if the quota is used up.
    pub(super) fn quota_signal(
        &self,
        outcome: &Outcome,
        is_limited: bool,
        signal: rate::Signal,
        now: Timestamp,
    ) -> rate::Signal {
        let Some(quota) = self.quota() else {
            return signal;
        };
        let left = quota.seconds_left(now);
        match signal {
            rate::Signal::Refused { wait: Some(wait) }
                if outcome.hint.remaining == Some(0) && left > 0.0 =>
            {
                rate::Signal::UsedUp {
                    wait,
                    refused: true,
                }
            }
            rate::Signal::Accepted { .. }
                if is_limited && quota.is_shared() && quota.left(self.admitted) == 0 =>
            {
                rate::Signal::UsedUp {
                    wait: Duration::from_secs_f64(left.max(0.0)),
                    refused: false,
                }
            }
            signal => signal,
        }
    }

    /// Holds the gate if the last request of the quota has just been admitted.
    pub(super) fn use_up_quota(&mut self, now: Timestamp) {
        let Some(quota) = self.quota() else { return };
        let seconds = quota.seconds_left(now);
        if quota.left(self.admitted) == 0 && seconds > 0.0 {
            let source = quota.source;
            self.hold(now.after_seconds(seconds), source);
        }
    }
}

/// A quota that ends within this many seconds is paced, and within so many response times.
const MAX_PACED_SECONDS: f64 = 5.0;
const MAX_PACED_LATENCIES: f64 = 20.0;
/// A pace this close to the present one is no reason for a decrease, which starts a new epoch.
const SAME_PACE: f64 = 0.97;
/// So that the quota lasts a little longer than its time.
const BELOW_PACE: f64 = 0.99;
