//! Times in four bytes and numbers in two, because every gate stores them.

use crate::time::Timestamp;

/// A time in milliseconds modulo 49 days, enough for the age of recent events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coarse(u32);

impl Coarse {
    #[expect(clippy::cast_possible_truncation, reason = "modulo 49 days is meant")]
    #[inline]
    pub(crate) fn of(at: Timestamp) -> Self {
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

    pub(crate) fn seconds_until(self, now: Timestamp) -> f64 {
        f64::from(self.millis_until(now)) / 1000.0
    }

    /// Seconds from an earlier time; negative if it is later.
    #[expect(
        clippy::cast_possible_wrap,
        reason = "differences up to 24 days are signed"
    )]
    pub(crate) fn seconds_since(self, earlier: Self) -> f64 {
        f64::from(self.0.wrapping_sub(earlier.0) as i32) / 1000.0
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "modulo 49 days is meant, and seconds are not negative"
    )]
    pub(crate) fn after_seconds(self, seconds: f64) -> Self {
        Self(self.0.wrapping_add((seconds * 1000.0) as u64 as u32))
    }

    /// The earlier of two times.
    pub(crate) fn min(self, other: Self) -> Self {
        if other.seconds_since(self) < 0.0 {
            other
        } else {
            self
        }
    }

    /// The later of two times.
    pub(crate) fn later(self, other: Self) -> Self {
        if other.seconds_since(self) > 0.0 {
            other
        } else {
            self
        }
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

/// A positive number with three digits, from 10⁻⁶ to 10¹³; zero or infinity outside of these.
///
/// Six bits of exponent and ten bits of fraction, which order like the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rough(u16);

impl Rough {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const INFINITY: Self = Self(u16::MAX);

    /// The nearest one; zero for negative numbers and for NaN.
    pub(crate) fn of(value: f64) -> Self {
        let bits = narrow(value.max(0.0)).to_bits() + HALF_DROPPED;
        let rough = (bits >> DROPPED_BITS).saturating_sub(LOWEST);
        Self(u16::try_from(rough).unwrap_or(u16::MAX))
    }

    pub(crate) fn get(self) -> f64 {
        match self {
            Self::ZERO => 0.0,
            Self::INFINITY => f64::INFINITY,
            Self(rough) => f64::from(f32::from_bits((u32::from(rough) + LOWEST) << DROPPED_BITS)),
        }
    }
}

/// Of the 23 bits of the fraction of an `f32`.
const DROPPED_BITS: u32 = 13;
const HALF_DROPPED: u32 = 1 << (DROPPED_BITS - 1);
/// 2⁻²⁰ as an `f32`, without the dropped bits.
const LOWEST: u32 = (127 - 20) << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "values that floats hold exactly")]
    fn rough_numbers_have_three_digits_and_keep_their_order() {
        let mut before = 0.0;
        for step in 0..4000 {
            let value = 1e-5 * 1.01f64.powi(step);
            let rough = Rough::of(value).get();
            let is_within_range = value < 4e12;
            assert!(rough > before || !is_within_range, "{value}");
            assert!(
                (rough / value - 1.0).abs() < 0.0005 || !is_within_range,
                "{value}"
            );
            before = rough;
        }
        for (value, rough) in [(0.0, 0.0), (-1.0, 0.0), (f64::NAN, 0.0), (1e-9, 0.0)] {
            assert_eq!(Rough::of(value).get(), rough);
        }
        for value in [1e14, f64::MAX, f64::INFINITY] {
            assert_eq!(Rough::of(value).get(), f64::INFINITY);
        }
        assert_eq!(Rough::of(1.0).get(), 1.0);
    }
}
