//! RFC 3339 times: `2026-11-15T06:00:00.5+01:00`.

use policy::time::WallTime;

/// Parses `text`, truncated to milliseconds: an earlier time never makes a wait too short. `None`
/// if it is invalid.
pub(super) fn parse(text: &str) -> Option<WallTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let (millis, zone) = fraction(rest)?;
    let seconds = days(date)? * 86_400 + seconds_of_day(clock)? - offset(zone)?;
    Some(WallTime::from_unix_millis(seconds * 1000 + millis))
}

fn days(date: &str) -> Option<i64> {
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let is_date = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    is_date.then(|| days_from_epoch(year, month, day))
}

/// A leap second counts as the start of the next minute.
fn seconds_of_day(clock: &str) -> Option<i64> {
    let [hour, minute, second] = fields(clock, ':', [2, 2, 2])?;
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// The milliseconds, and the text after them.
fn fraction(rest: &str) -> Option<(i64, &str)> {
    let Some(rest) = rest.strip_prefix('.') else {
        return Some((0, rest));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let digits = rest.get(..end).filter(|digits| !digits.is_empty())?;
    let millis = digits.bytes().chain([b'0'; 3]).take(3);
    let millis = millis.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some((millis, &rest[end..]))
}

/// The offset from UTC in seconds.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let [hours, minutes] = fields(rest, ':', [2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Exactly `N` numbers with exactly these widths.
fn fields<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        let is_number = part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar. Years start in March, so that the leap day is
/// the last day; an era is the 400 years after which the calendar repeats.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - EPOCH_DAY
}

const DAYS_PER_ERA: i64 = 146_097;
/// 1970-01-01, counted from 0000-03-01.
const EPOCH_DAY: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-15T06:00:00Z", 1_794_722_400_000),
            ("2026-11-15t06:00:00.25z", 1_794_722_400_250),
            ("2026-11-15 06:00:00.0009Z", 1_794_722_400_000),
            ("2026-11-15T07:30:00+01:30", 1_794_722_400_000),
            ("2026-11-15T05:00:00-01:00", 1_794_722_400_000),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(
                parse(text),
                Some(WallTime::from_unix_millis(millis)),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_invalid_times() {
        for text in [
            "",
            "now",
            "2026-11-15",
            "2026-11-15T06:00:00",
            "2026-11-15T06:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T06:00:00.Z",
            "2026-11-15T06:00:00.5",
            "2026-11-15T06:00:00+0100",
            "2026-11-15T06:00:00Z ",
            "2026-11-1éT06:00:00Z",
            "+026-11-15T06:00:00Z",
            "Sun, 15 Nov 2026 06:00:00 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
