//! Dates as servers write them, in milliseconds since 1970: the three forms of HTTP (RFC 9110,
//! section 5.6.7) and RFC 3339.
//!
//! Lenient where the meaning is clear (case, a wrong weekday, one-digit days, `UTC` for `GMT`,
//! times without seconds), strict where it is not: a date without a zone, or a day that does not
//! exist, is not a date. Leap seconds are only accepted where they can occur, at 23:59:60 UTC.

use crate::time::WallTime;

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or
/// `Sun Nov  6 08:49:37 1994`. A year of two digits is the one within 50 years of `now`.
pub(super) fn http(text: &[u8], now: Option<WallTime>) -> Option<i64> {
    let mut words = [&text[..0]; 6];
    let mut count = 0;
    for word in text.split(|byte| matches!(byte, b' ' | b'\t' | b',' | b'-')) {
        if !word.is_empty() {
            *words.get_mut(count)? = word;
            count += 1;
        }
    }
    let (day, month, year, clock) = match words.get(..count)? {
        [first, day, month, year, clock, zone] if is_weekday(first) && is_utc(zone) => {
            (day, month, year, clock)
        }
        [first, month, day, clock, year] if is_weekday(first) => (day, month, year, clock),
        _ => return None,
    };
    let day = digits(day).filter(|_| day.len() <= 2)?;
    let year = match year.len() {
        4 => digits(year)?,
        2 => full_year(digits(year)?, now),
        _ => return None,
    };
    let days = days_since_1970(year, month_number(month)?, day)?;
    moment(days, time_of_day(clock)?, 0, 0)
}

/// Reads `1994-11-06T08:49:37.5+01:00`; also with a space for the `T`, without seconds, with an
/// offset without colon, or with `UTC` for the `Z`. A fraction is rounded up to milliseconds.
pub(super) fn rfc3339(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *date else {
        return None;
    };
    let days = days_since_1970(
        digits(&[y1, y2, y3, y4])?,
        digits(&[m1, m2])?,
        digits(&[d1, d2])?,
    )?;
    let [b'T' | b't' | b' ', rest @ ..] = rest else {
        return None;
    };
    let clock_end = rest
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b':')
        .count();
    let (clock, rest) = rest.split_at_checked(clock_end)?;
    let (millis, rest) = match rest {
        [b'.', rest @ ..] if clock.len() == 8 => fraction(rest)?,
        rest => (0, rest),
    };
    moment(days, time_of_day(clock)?, millis, offset(rest)?)
}

/// A weekday, whole or as three letters, in any case.
pub(super) fn is_weekday(word: &[u8]) -> bool {
    WEEKDAYS.iter().any(|day| {
        word.eq_ignore_ascii_case(day.as_bytes())
            || word.eq_ignore_ascii_case(day.as_bytes().get(..3).unwrap_or_default())
    })
}

fn is_utc(zone: &[u8]) -> bool {
    ["GMT", "UTC", "UT", "Z", "+0000"]
        .iter()
        .any(|name| zone.eq_ignore_ascii_case(name.as_bytes()))
}

/// The fraction as milliseconds, rounded up, and the text after it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(count)?;
    if digits.is_empty() {
        return None;
    }
    let place = |index: usize| i64::from(digits.get(index).map_or(0, |digit| digit - b'0'));
    let cut = digits.get(3..).unwrap_or_default();
    let rounding = i64::from(cut.iter().any(|&digit| digit != b'0'));
    Some((place(0) * 100 + place(1) * 10 + place(2) + rounding, rest))
}

/// The zone's offset from UTC in seconds.
fn offset(zone: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match *zone {
        [sign, h1, h2, b':', m1, m2] | [sign, h1, h2, m1, m2] => (sign, [h1, h2], [m1, m2]),
        _ => return is_utc(zone.trim_ascii_start()).then_some(0),
    };
    let hours = digits(&hours).filter(|&hours| hours < 24)?;
    let minutes = digits(&minutes).filter(|&minutes| minutes < 60)?;
    let seconds = hours * 3600 + minutes * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

fn moment(days: i64, clock: Clock, millis: i64, offset: i64) -> Option<i64> {
    let seconds = days * SECONDS_PER_DAY + clock.seconds - offset;
    if clock.leap && seconds % SECONDS_PER_DAY != 0 {
        return None;
    }
    Some(seconds * 1000 + millis)
}

struct Clock {
    seconds: i64,
    /// Whether the second is the 61st of its minute.
    leap: bool,
}

/// Reads `08:49:37` or `08:49`.
fn time_of_day(text: &[u8]) -> Option<Clock> {
    let (hour, minute, second) = match *text {
        [h1, h2, b':', m1, m2, b':', s1, s2] => ([h1, h2], [m1, m2], [s1, s2]),
        [h1, h2, b':', m1, m2] => ([h1, h2], [m1, m2], [b'0', b'0']),
        _ => return None,
    };
    let hour = digits(&hour).filter(|&hour| hour < 24)?;
    let minute = digits(&minute).filter(|&minute| minute < 60)?;
    let second = digits(&second).filter(|&second| second <= 60)?;
    Some(Clock {
        seconds: hour * 3600 + minute * 60 + second,
        leap: second == 60,
    })
}

/// The year that ends in `short` and is within 50 years of `now`. Without a `now`, years up to 68
/// are in this century, as in POSIX.
fn full_year(short: i64, now: Option<WallTime>) -> i64 {
    let Some(now) = now else {
        return if short < 69 {
            2000 + short
        } else {
            1900 + short
        };
    };
    let days = now.as_unix_millis().div_euclid(1000 * SECONDS_PER_DAY);
    // No form has years of more than four digits.
    let present = year_of(days).clamp(0, 9999);
    let year = present - present.rem_euclid(100) + short;
    if year > present + 50 {
        year - 100
    } else if year < present - 49 {
        year + 100
    } else {
        year
    }
}

/// Days from 1970-01-01 to this date of the Gregorian calendar; `None` if the date does not exist.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    // With years that start in March the leap day is the last day, so months have fixed offsets.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + day_of_year - MARCH_OF_YEAR_0_TO_1970)
}

/// The year of the day `days` after 1970-01-01. May be off by one around New Year, which does not
/// matter for a rule of 50 years.
fn year_of(days: i64) -> i64 {
    1970 + days.saturating_mul(400).div_euclid(DAYS_IN_400_YEARS)
}

fn month_number(word: &[u8]) -> Option<i64> {
    let index = MONTHS
        .iter()
        .position(|month| word.eq_ignore_ascii_case(month.as_bytes()))?;
    i64::try_from(index + 1).ok()
}

/// At most four digits and nothing else.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 4 {
        return None;
    }
    text.iter().try_fold(0, |sum, byte| {
        byte.is_ascii_digit()
            .then(|| sum * 10 + i64::from(byte - b'0'))
    })
}

const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const SECONDS_PER_DAY: i64 = 86_400;
const DAYS_IN_400_YEARS: i64 = 146_097;
const MARCH_OF_YEAR_0_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-15T06:00:00Z.
    const NOW: WallTime = WallTime::from_unix_millis(1_794_722_400_000);

    #[test]
    fn reads_the_three_http_forms() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "sun, 6 nov 1994 08:49:37 utc",
            "Mon, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 +0000",
        ] {
            for now in [Some(NOW), None] {
                assert_eq!(http(text.as_bytes(), now), Some(784_111_777_000), "{text}");
            }
        }
    }

    #[test]
    fn reads_the_forms_of_rfc_3339() {
        for text in [
            "1994-11-06T08:49:37Z",
            "1994-11-06t08:49:37z",
            "1994-11-06 08:49:37 UTC",
            "1994-11-06T08:49:37+00:00",
            "1994-11-06T09:49:37+01:00",
            "1994-11-06T03:19:37-0530",
            "1994-11-06T08:49:36.999001Z",
        ] {
            assert_eq!(rfc3339(text.as_bytes()), Some(784_111_777_000), "{text}");
        }
        assert_eq!(rfc3339(b"1994-11-06T08:49Z"), Some(784_111_740_000));
        assert_eq!(rfc3339(b"1970-01-01T00:00:00.5Z"), Some(500));
        assert_eq!(rfc3339(b"1970-01-01T00:00:00.1234Z"), Some(124));
    }

    #[test]
    fn handles_calendar_edge_cases() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1000),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("2026-11-15T06:00:00Z", NOW.as_unix_millis()),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("2017-01-01T00:59:60+01:00", 1_483_228_800_000),
        ] {
            assert_eq!(rfc3339(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn returns_none_for_invalid_dates() {
        for text in [
            "",
            "soon",
            "1994",
            "Sun",
            "Sun, 31 Feb 2026 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 PST",
            "Sun, 06 Nov 194 08:49:37 GMT",
            "Sun, 06 Nob 1994 08:49:37 GMT",
            "Sun, 006 Nov 1994 08:49:37 GMT",
            "Sun, 0x Nov 1994 08:49:37 GMT",
            "Son, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT more",
            "1994-11-06",
            "1994-11-06T",
            "1994-11-06T08Z",
            "1994-11-06T08:49:37",
            "1994-11-06T08:49:37.Z",
            "1994-11-06T08:49.5Z",
            "1994-11-06T08:49:37*01:00",
            "1994-11-06T08:49:37+24:00",
            "1994-11-06T08:49:37+00:60",
            "1994-13-06T08:49:37Z",
            "1994-11-31T08:49:37Z",
            "1900-02-29T08:49:37Z",
            "1994-11-06T24:00:00Z",
            "1994-11-06T08:49:60Z",
            "1994/11/06T08:49:37Z",
            "1994-11-06_08:49:37Z",
            "\u{661}994-11-06T08:49:37Z",
        ] {
            assert_eq!(http(text.as_bytes(), Some(NOW)), None, "{text}");
            assert_eq!(rfc3339(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn short_years_are_within_fifty_years_of_now() {
        for (now, short, expected) in [
            (2026, 26, 2026),
            (2026, 76, 2076),
            (2026, 77, 1977),
            (2026, 94, 1994),
            (2095, 5, 2105),
            (2095, 45, 2145),
            (2095, 46, 2046),
        ] {
            let days = days_since_1970(now, 7, 1).unwrap();
            let now = WallTime::from_unix_millis(days * SECONDS_PER_DAY * 1000);
            assert_eq!(full_year(short, Some(now)), expected);
        }
        assert_eq!(full_year(68, None), 2068);
        assert_eq!(full_year(69, None), 1969);
        for end in [i64::MAX, i64::MIN] {
            let end = WallTime::from_unix_millis(end);
            assert!(http(b"Sunday, 06-Nov-94 08:49:37 GMT", Some(end)).is_some());
        }
    }
}
