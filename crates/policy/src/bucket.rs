//! A token bucket with a variable rate.
//!
//! The state is a number of tokens, not a "theoretical arrival time": the rate changes with almost
//! every response, and that must not change the tokens already refilled. Tokens are a float, times
//! are whole nanoseconds, and waits are rounded up. `SLACK` absorbs floating-point error, so that
//! an ask that waits exactly that long finds a token. A grant always takes the whole cost, even if
//! that leaves slightly less than zero: the debt is carried over, so the rate is exact.
//!
//! A bucket refills while its gate is held or its breaker is open, but the saved tokens must not
//! leave in one burst. When such a [`Pause`] ends, only `keep` tokens remain.

use crate::time::Timestamp;

/// A token count, its refill rate, and when it was last refilled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Tokens per second; positive and finite.
    rate: f64,
    tokens: f64,
    refilled_at: Timestamp,
}

/// An interval in which nothing leaves. It has no effect once a refill has passed its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// The first instant at which tokens may be taken again.
    pub until: Timestamp,
    /// The maximum number of saved tokens at that instant.
    pub keep: f64,
}

impl Bucket {
    /// A full bucket.
    pub fn full(rate: f64, burst: f64, now: Timestamp) -> Self {
        Self {
            rate,
            tokens: burst,
            refilled_at: now,
        }
    }

    /// Tokens per second.
    #[inline]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Tokens at the last refill. Negative after a cost was corrected upwards.
    pub fn tokens(&self) -> f64 {
        self.tokens
    }

    /// When the bucket was last refilled.
    #[inline]
    pub fn refilled_at(&self) -> Timestamp {
        self.refilled_at
    }

    /// Adds the tokens since the last refill, up to `burst`. A clock that steps back changes
    /// nothing.
    pub fn refill(&mut self, now: Timestamp, burst: f64, pause: Pause) {
        let saved = burst.max(pause.keep);
        if self.refilled_at < pause.until && pause.until <= now {
            self.fill_until(pause.until, saved);
            self.tokens = self.tokens.min(pause.keep);
        }
        let capacity = if now < pause.until { saved } else { burst };
        self.fill_until(now, capacity);
    }

    /// When `ahead` tokens and then `cost` more will have been taken, if they are taken as fast as
    /// possible and nothing else is. Never before the last refill or the end of `pause`.
    ///
    /// A cost above the burst is granted when the bucket is full and leaves a debt, so no request
    /// is too expensive to be sent.
    pub fn ready_at(&self, ahead: f64, cost: f64, burst: f64, pause: Pause) -> Timestamp {
        let mut then = *self;
        if then.refilled_at < pause.until {
            then.refill(pause.until, burst, pause);
        }
        let missing = ahead + cost.min(burst) - then.tokens;
        if missing <= SLACK {
            return then.refilled_at;
        }
        // Floating-point error must not be rounded up to a whole nanosecond: an ask that is due at
        // the instant of an event has to be due then, not just after it.
        let rounding = (PICOSECOND * then.rate).min(SLACK / 2.0);
        then.refilled_at
            .after_seconds((missing - rounding) / then.rate)
    }

    /// Takes `cost` tokens if available; the bucket must have been refilled to now.
    #[must_use]
    pub fn take(&mut self, cost: f64, burst: f64) -> bool {
        let granted = self.tokens >= cost.min(burst) - SLACK;
        if granted {
            self.tokens -= cost;
        }
        granted
    }

    /// Corrects a cost afterwards: positive takes more, negative returns tokens up to `burst`.
    pub fn correct(&mut self, difference: f64, burst: f64) {
        self.tokens = if difference > 0.0 {
            self.tokens - difference
        } else {
            (self.tokens - difference).min(burst.max(self.tokens))
        };
    }

    /// [`Bucket::refill`] when no pause is active or has just ended.
    #[inline]
    pub(crate) fn refill_unpaused(&mut self, now: Timestamp, burst: f64) {
        self.fill_until(now, burst);
    }

    /// Takes `cost` tokens only if they are certainly available; cases within `SLACK` are left to
    /// [`Bucket::take`].
    #[inline]
    #[must_use]
    pub(crate) fn take_whole(&mut self, cost: f64, burst: f64) -> bool {
        let granted = self.tokens >= lesser(cost, burst);
        if granted {
            self.tokens -= cost;
        }
        granted
    }

    /// Sets the rate; tokens already refilled stay.
    #[inline]
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// Multiplies rate and tokens, because the unit of cost has changed.
    pub(crate) fn rescale(&mut self, factor: f64) {
        self.rate *= factor;
        self.tokens *= factor;
    }

    /// Reduces the bucket to at most `most` tokens.
    pub fn cut_to(&mut self, most: f64) {
        self.tokens = self.tokens.min(most);
    }

    #[inline]
    fn fill_until(&mut self, at: Timestamp, capacity: f64) {
        if at <= self.refilled_at {
            return;
        }
        if self.tokens < capacity {
            let came = at.seconds_since(self.refilled_at) * self.rate;
            self.tokens = lesser(self.tokens + came, capacity);
        }
        self.refilled_at = at;
    }
}

impl Pause {
    /// No pause at all.
    pub const NONE: Self = Self {
        until: Timestamp::ZERO,
        keep: 1.0,
    };
}

/// `f64::min` for numbers that are never NaN: one instruction instead of six.
#[inline]
fn lesser(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}

/// A billionth of a token. Floating-point error stays below this over any relevant time, and at the
/// highest rate it is worth a tenth of a picosecond of waiting.
const SLACK: f64 = 1e-9;

/// Far above floating-point error, far below the resolution of a clock.
const PICOSECOND: f64 = 1e-12;

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "values that floats hold exactly")]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::ZERO.after_seconds(seconds)
    }

    #[test]
    fn waits_then_grants_with_capacity_one_and_two_per_second() {
        let mut bucket = Bucket::full(2.0, 1.0, at(0.0));
        let mut ask = |seconds: f64| {
            bucket.refill(at(seconds), 1.0, Pause::NONE);
            let ready = bucket.ready_at(0.0, 1.0, 1.0, Pause::NONE);
            (
                bucket.take(1.0, 1.0),
                ready.since(at(seconds)).as_secs_f64(),
            )
        };
        assert_eq!(ask(0.0), (true, 0.0));
        assert_eq!(ask(0.0), (false, 0.5));
        assert_eq!(ask(0.25), (false, 0.25));
        assert_eq!(ask(0.5), (true, 0.0));
    }

    /// Found by a model with exact fractions: a refill in between made the wait end one nanosecond
    /// after the predicted instant.
    #[test]
    fn refill_in_between_does_not_change_ready_at() {
        let mut bucket = Bucket::full(0.5, 1.0, at(57.224));
        assert!(bucket.take(1.0, 1.0));
        for seconds in [58.924, 59.174, 59.2] {
            bucket.refill(at(seconds), 1.0, Pause::NONE);
            assert_eq!(bucket.ready_at(0.0, 1.0, 1.0, Pause::NONE), at(59.224));
        }
    }

    #[test]
    fn clock_step_back_changes_nothing() {
        let mut bucket = Bucket::full(2.0, 4.0, at(10.0));
        assert!(bucket.take(3.0, 4.0));
        bucket.refill(at(5.0), 4.0, Pause::NONE);
        assert_eq!((bucket.tokens(), bucket.refilled_at()), (1.0, at(10.0)));
    }

    #[test]
    fn pause_keeps_one_token_and_refills_from_its_end() {
        let mut bucket = Bucket::full(2.0, 4.0, at(0.0));
        let pause = Pause {
            until: at(10.0),
            keep: 1.0,
        };
        bucket.refill(at(3.0), 4.0, pause);
        assert_eq!(bucket.tokens(), 4.0);
        bucket.refill(at(10.5), 4.0, pause);
        assert_eq!(
            bucket.tokens(),
            2.0,
            "one kept, one refilled since, whether asked in between or not"
        );
        bucket.refill(at(11.0), 4.0, pause);
        assert_eq!(bucket.tokens(), 3.0, "the pause is over for good");
    }

    #[test]
    fn long_pause_may_keep_more_than_the_burst() {
        let mut bucket = Bucket::full(0.25, 1.0, at(0.0));
        let pause = Pause {
            until: at(15.0),
            keep: 3.0,
        };
        bucket.refill(at(2.0), 1.0, pause);
        bucket.refill(at(15.0), 1.0, pause);
        assert_eq!(bucket.tokens(), 3.0);
        bucket.refill(at(20.0), 1.0, pause);
        assert_eq!(
            bucket.tokens(),
            3.0,
            "above the burst nothing is added or removed"
        );
    }

    #[test]
    fn line_leaves_at_the_rate_from_the_end_of_a_pause() {
        let bucket = Bucket::full(2.0, 4.0, at(0.0));
        let pause = Pause {
            until: at(10.0),
            keep: 1.0,
        };
        let leaves = |ahead| bucket.ready_at(ahead, 1.0, 4.0, pause);
        assert_eq!(
            [leaves(0.0), leaves(1.0), leaves(2.0)],
            [at(10.0), at(10.5), at(11.0)]
        );
    }

    #[test]
    fn cost_above_burst_is_granted_when_full_and_leaves_debt() {
        let mut bucket = Bucket::full(1.0, 4.0, at(0.0));
        assert!(bucket.take(10.0, 4.0));
        assert_eq!(bucket.tokens(), -6.0);
        assert_eq!(bucket.ready_at(0.0, 1.0, 4.0, Pause::NONE), at(7.0));
    }

    #[test]
    fn correction_returns_at_most_the_burst() {
        let mut bucket = Bucket::full(1.0, 4.0, at(0.0));
        assert!(bucket.take(3.0, 4.0));
        bucket.correct(2.0, 4.0);
        assert_eq!(bucket.tokens(), -1.0);
        bucket.correct(-100.0, 4.0);
        assert_eq!(bucket.tokens(), 4.0);
    }

    proptest! {
        /// A measured bug of the original: a wait truncated to whole nanoseconds left less than a
        /// token, which was granted all the same, without limit.
        #[test]
        fn token_is_available_after_the_predicted_wait(
            rate in 0.001f64..20_000.0, start in 0u64..1 << 60, skip in 0u64..1 << 40,
        ) {
            let mut bucket = Bucket::full(rate, 1.0, Timestamp::from_nanos(start));
            let mut now = Timestamp::from_nanos(start) + Duration::from_nanos(skip);
            for _ in 0..20 {
                bucket.refill(now, 1.0, Pause::NONE);
                prop_assert!(bucket.take(1.0, 1.0));
                prop_assert!(!bucket.take(1.0, 1.0), "an empty bucket grants nothing");
                now = bucket.ready_at(0.0, 1.0, 1.0, Pause::NONE);
            }
        }
    }
}
