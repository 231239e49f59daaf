//! Times and numbers in four bytes, because every gate stores them.

use crate::time::Timestamp;

/// A time in milliseconds modulo 49 days, enough for the age of recent events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coarse(u32);

impl Coarse {
    #[expect(clippy::cast_possible_truncation, reason = "modulo 49 days is meant")]
    #[inline]
    pub(super) fn of(at: Timestamp) -> Self {
        Self((at.as_nanos() / 1_000_000) as u32)
    }

    #[inline]
    pub(super) fn millis_until(self, now: Timestamp) -> u32 {
        Self::of(now).0.wrapping_sub(self.0)
    }

    /// Milliseconds until `now`; negative if `now` is earlier.
    #[expect(
        clippy::cast_possible_wrap,
        reason = "differences up to 24 days are signed"
    )]
    #[inline]
    pub(super) fn signed_millis_until(self, now: Timestamp) -> i32 {
        self.millis_until(now) as i32
    }

    pub(super) fn seconds_until(self, now: Timestamp) -> f64 {
        f64::from(self.millis_until(now)) / 1000.0
    }

    /// Seconds from an earlier time; negative if it is later.
    #[expect(
        clippy::cast_possible_wrap,
        reason = "differences up to 24 days are signed"
    )]
    pub(super) fn seconds_since(self, earlier: Self) -> f64 {
        f64::from(self.0.wrapping_sub(earlier.0) as i32) / 1000.0
    }

    /// The later of two times that are not after `now`.
    pub(super) fn max(self, other: Self, now: Timestamp) -> Self {
        if other.seconds_until(now) < self.seconds_until(now) {
            other
        } else {
            self
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rates and times need no more than seven digits here"
)]
pub(super) fn narrow(value: f64) -> f32 {
    value as f32
}
