//! Time as a value.
//!
//! [`Timestamp`] is the monotonic time that decisions are made in; [`WallTime`] is calendar time,
//! needed only to read dates that servers send. They do not convert into each other here: only a
//! clock knows how they relate, and policies have none. All arithmetic saturates, so that a wait
//! of a hundred years or an event at the very end of time is an ordinary value, never a panic.

use std::num::NonZeroU32;
use std::ops::Add;
use std::time::Duration;

/// An instant on a monotonic clock, in whole nanoseconds from an origin that the owner of the
/// clock chose. Enough for 584 years; later instants saturate at [`Timestamp::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// The end of time, also used for "never".
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

    /// Time passed since `earlier`; zero if `earlier` is later, as when a clock steps back.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same in seconds, for the arithmetic of rates.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / NANOS_PER_SECOND
    }

    /// The first whole nanosecond at or after `seconds` from here. Waits are rounded up, so that a
    /// token is there at the end of its wait; a value within the float's own rounding of a whole
    /// number, such as 18 000 000.000 000 004 ns, is that number.
    /// NaN and negative values are no wait; values past the end of time saturate.
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

/// A [`Timestamp`] in four bytes: whole seconds, rounded down. `Option` of it takes four bytes as
/// well. Instants after 136 years saturate.
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

/// A moment of calendar time, in milliseconds since 1970-01-01T00:00:00Z; negative before.
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

    /// How long until `later`, zero if that is now; `None` if it has passed.
    pub fn until(self, later: Self) -> Option<Duration> {
        let millis = later.0.saturating_sub(self.0);
        u64::try_from(millis).ok().map(Duration::from_millis)
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;

    /// The moment so much later, rounded up to a millisecond and cut at the end of time.
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
    fn a_coarse_time_is_the_second_before_and_saturates() {
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
    fn a_wall_time_that_has_passed_is_no_wait() {
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
