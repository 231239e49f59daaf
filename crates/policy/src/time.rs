//! Time as a value.
//!
//! Decisions use [`Timestamp`], which is monotonic. [`WallTime`] is only needed to read dates that
//! servers send. The two do not convert into each other here: only a clock knows how they relate,
//! and policies have none. All arithmetic saturates, so a wait of a hundred years or an event at
//! the end of time never panics.

use std::num::NonZeroU32;
use std::ops::Add;
use std::time::Duration;

/// An instant on a monotonic clock, in nanoseconds since the clock's origin. Covers 584 years;
/// later instants saturate at [`Timestamp::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// The last instant, also used for "never".
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The instant `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later, for example after a clock step.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time since `earlier` in seconds, for rate arithmetic.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / NANOS_PER_SECOND
    }

    /// The first whole nanosecond at least `seconds` from here. Waits are rounded up, so that the
    /// token is available when the wait ends. A value within floating-point error of a whole
    /// number, such as 18 000 000.000 000 004 ns, is rounded to that number. NaN and negative
    /// values are no wait; values past the end of time saturate.
    pub fn after_seconds(self, seconds: f64) -> Self {
        let nanos = seconds * NANOS_PER_SECOND;
        let meant = nanos.round();
        let rounding = 4.0 * f64::EPSILON * nanos;
        let nanos = if (nanos - meant).abs() <= rounding {
            meant
        } else {
            nanos.ceil()
        };
        self + Duration::from_nanos(saturating_u64(nanos.max(0.0)))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

/// A length in whole nanoseconds, at most 584 years.
#[inline]
pub(crate) fn nanos(length: Duration) -> u64 {
    let whole = length.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(length.subsec_nanos()))
}

/// A [`Timestamp`] in four bytes: whole seconds, rounded down. An `Option` of it also takes four
/// bytes. Saturates after 136 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoarseTime(NonZeroU32);

impl CoarseTime {
    pub(crate) fn of(at: Timestamp) -> Self {
        let seconds = u32::try_from(at.0 / 1_000_000_000).unwrap_or(u32::MAX);
        Self(NonZeroU32::MIN.saturating_add(seconds))
    }

    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp::from_secs(u64::from(self.0.get() - 1))
    }
}

/// A wall-clock time in milliseconds since 1970-01-01T00:00:00Z; negative before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_unix_millis(self) -> i64 {
        self.0
    }

    /// Time until `later`, zero if it is now; `None` if it has passed.
    pub fn until(self, later: Self) -> Option<Duration> {
        let millis = later.0.saturating_sub(self.0);
        u64::try_from(millis).ok().map(Duration::from_millis)
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;

    /// Adds `wait`, rounded up to a millisecond; saturates.
    fn add(self, wait: Duration) -> Self {
        let millis = i64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

const NANOS_PER_SECOND: f64 = 1e9;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates and takes NaN to zero, which is what is wanted"
)]
pub(crate) fn saturating_u64(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_to_the_next_nanosecond() {
        assert_eq!(
            Timestamp::ZERO.after_seconds(1.0 / 3.0).as_nanos(),
            333_333_334
        );
        assert_eq!(
            Timestamp::from_secs(1).after_seconds(0.0),
            Timestamp::from_secs(1)
        );
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
        assert_eq!(nanos(Duration::from_nanos(u64::MAX)), u64::MAX);
        assert_eq!(nanos(Duration::from_nanos(u64::MAX - 1)), u64::MAX - 1);
        assert_eq!(Timestamp::ZERO.since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(Timestamp::from_secs(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.after_seconds(f64::INFINITY), Timestamp::MAX);
        assert_eq!(
            Timestamp::from_secs(7).after_seconds(f64::NAN),
            Timestamp::from_secs(7)
        );
        assert_eq!(
            Timestamp::from_secs(7).after_seconds(-1.0),
            Timestamp::from_secs(7)
        );
    }

    #[test]
    fn coarse_time_rounds_down_and_saturates() {
        let coarse = |at| CoarseTime::of(at).timestamp();
        assert_eq!(coarse(Timestamp::ZERO), Timestamp::ZERO);
        assert_eq!(
            coarse(Timestamp::from_millis(7_999)),
            Timestamp::from_secs(7)
        );
        assert_eq!(
            coarse(Timestamp::MAX),
            Timestamp::from_secs(u64::from(u32::MAX) - 1)
        );
        assert_eq!(size_of::<Option<CoarseTime>>(), 4);
    }

    #[test]
    fn until_returns_none_for_past_wall_time() {
        let noon = WallTime::from_unix_millis(1000);
        assert_eq!(
            noon.until(WallTime::from_unix_millis(1001)),
            Some(Duration::from_millis(1))
        );
        assert_eq!(noon.until(noon), Some(Duration::ZERO));
        assert_eq!(noon.until(WallTime::from_unix_millis(i64::MIN)), None);
        assert!(
            WallTime::from_unix_millis(i64::MIN)
                .until(WallTime::from_unix_millis(i64::MAX))
                .is_some()
        );
    }
}
