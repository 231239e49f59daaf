//! Calendar time as it is written in lines: RFC 3339, in UTC, in milliseconds.
//!
//! Local time would need the machine's time zones, and lines of several machines would not sort.

use std::fmt;

use policy::time::WallTime;

/// `2026-11-15T06:00:00.123Z`. Years below 0 and above 9999 have no such form and are shown as
/// the first and the last moment that has.
pub(super) struct Rfc3339(pub(super) WallTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, _) = split(self.0);
        let (year, month, day) = date(days);
        let time = TimeOfDay(self.0);
        write!(f, "{year:04}-{month:02}-{day:02}T{time}")
    }
}

/// `06:00:00.123Z`.
pub(super) struct TimeOfDay(pub(super) WallTime);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = split(self.0).1;
        write!(f, "{}.{:03}Z", Clock(millis), millis % 1000)
    }
}

/// `06:00:20Z`, for people: no fraction, and the date only if it is not the day of `now`.
pub(super) struct Until {
    pub(super) at: WallTime,
    pub(super) now: WallTime,
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, millis) = split(self.at);
        if days != split(self.now).0 {
            let (year, month, day) = date(days);
            write!(f, "{year:04}-{month:02}-{day:02} ")?;
        }
        write!(f, "{}Z", Clock(millis))
    }
}

/// Milliseconds of a day as hours, minutes and seconds.
struct Clock(i64);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}", seconds % 60)
    }
}

/// Whole days since 1970-01-01, and milliseconds of the day.
fn split(time: WallTime) -> (i64, i64) {
    let millis = time.as_unix_millis().clamp(FIRST, LAST);
    (
        millis.div_euclid(MILLIS_PER_DAY),
        millis.rem_euclid(MILLIS_PER_DAY),
    )
}

const MILLIS_PER_DAY: i64 = 86_400_000;
/// 0000-01-01T00:00:00Z.
const FIRST: i64 = -62_167_219_200_000;
/// 9999-12-31T23:59:59.999Z.
const LAST: i64 = 253_402_300_799_999;

/// Year, month and day of the Gregorian calendar. Years are counted from March, so that the leap
/// day is the last of its year; an era is the 400 years after which the calendar repeats.
fn date(days_since_1970: i64) -> (i64, i64, i64) {
    let days = days_since_1970 + EPOCH_DAY;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

const DAYS_PER_ERA: i64 = 146_097;
/// 1970-01-01, counted from 0000-03-01.
const EPOCH_DAY: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(millis: i64) -> String {
        Rfc3339(WallTime::from_unix_millis(millis)).to_string()
    }

    #[test]
    fn moments_are_written_as_rfc_3339_has_them() {
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(1_794_722_400_123), "2026-11-15T06:00:00.123Z");
        assert_eq!(shown(1_709_164_800_000), "2024-02-29T00:00:00.000Z");
        assert_eq!(shown(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(shown(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(shown(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(shown(i64::MIN), "0000-01-01T00:00:00.000Z");
        assert_eq!(shown(i64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = date(-719_528);
        for day in -719_527..60_000 {
            let (year, month, day) = date(day);
            let is_next = match day {
                1 if month == 1 => before == (year - 1, 12, 31),
                1 => (before.0, before.1) == (year, month - 1) && before.2 >= 28,
                day => before == (year, month, day - 1),
            };
            assert!(is_next, "{before:?} {:?}", (year, month, day));
            before = (year, month, day);
        }
    }

    #[test]
    fn people_see_the_date_only_of_another_day() {
        let now = WallTime::from_unix_millis(1_794_722_400_000);
        let until = |seconds: i64| {
            let at = WallTime::from_unix_millis(1_794_722_400_000 + seconds * 1000);
            Until { at, now }.to_string()
        };
        assert_eq!(until(20), "06:00:20Z");
        assert_eq!(until(86_400), "2026-11-16 06:00:00Z");
    }
}
