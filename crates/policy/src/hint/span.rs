//! Durations with units: `1m30s`, `370ms`, `1.5 hours`, "2 minutes and 5 seconds", `PT5S`.

use super::number::{Decimal, ceil};

/// `text` as a duration in milliseconds, rounded up, if it is nothing else.
pub(super) fn exact(text: &[u8]) -> Option<u64> {
    if let [b'P' | b'p', rest @ ..] = text {
        return iso(rest);
    }
    let (millis, end) = prefix(text)?;
    (end == text.len()).then_some(millis)
}

/// The duration at the start of `text` in milliseconds, and its length in bytes. Reads all parts:
/// "1 minute and 30 seconds" is never read as a minute.
pub(super) fn prefix(text: &[u8]) -> Option<(u64, usize)> {
    let (mut total, mut end) = part(text)?;
    while let Some((more, next)) = next_part(text, end) {
        total = total.saturating_add(more);
        end = next;
    }
    Some((to_millis(total), end))
}

/// The next part at `end`, directly adjacent or after spaces, a comma or "and".
fn next_part(text: &[u8], end: usize) -> Option<(u128, usize)> {
    let rest = text.get(end..)?;
    let mut tail = rest.trim_ascii_start();
    tail = tail.strip_prefix(b",").unwrap_or(tail).trim_ascii_start();
    if let Some((word, after)) = tail.split_at_checked(3)
        && word.eq_ignore_ascii_case(b"and")
        && after.first().is_some_and(u8::is_ascii_whitespace)
    {
        tail = after.trim_ascii_start();
    }
    let (nanos, length) = part(tail)?;
    Some((nanos, end + (rest.len() - tail.len()) + length))
}

/// One number with its unit, in steps of a nanosecond, and its length in bytes.
fn part(text: &[u8]) -> Option<(u128, usize)> {
    let (value, digits) = Decimal::prefix(text)?;
    let rest = text.get(digits..)?;
    let unit = rest.trim_ascii_start();
    let blanks = rest.len() - unit.len();
    let letters = letters(unit);
    let nanos = nanos_of(unit.get(..letters)?)?;
    Some((value.steps_times(nanos), digits + blanks + letters))
}

/// Letters, and the first byte of the `µ` of microseconds in both its encodings.
fn letters(text: &[u8]) -> usize {
    text.iter()
        .take_while(|byte| byte.is_ascii_alphabetic() || matches!(byte, 0xC2 | 0xB5 | 0xCE | 0xBC))
        .count()
}

/// The text after the `P` of an ISO 8601 duration. Years and months have no fixed length and are
/// not accepted.
fn iso(text: &[u8]) -> Option<u64> {
    let mut rest = text;
    let mut in_time = false;
    let mut total = 0u128;
    let mut parts = 0;
    while let Some(&first) = rest.first() {
        if !in_time && matches!(first, b'T' | b't') {
            in_time = true;
            rest = rest.get(1..)?;
            parts = 0;
            continue;
        }
        let (value, digits) = Decimal::prefix(rest)?;
        let nanos = match (in_time, rest.get(digits)?.to_ascii_uppercase()) {
            (false, b'W') => WEEK,
            (false, b'D') => DAY,
            (true, b'H') => HOUR,
            (true, b'M') => MINUTE,
            (true, b'S') => SECOND,
            _ => return None,
        };
        total = total.saturating_add(value.steps_times(nanos));
        rest = rest.get(digits + 1..)?;
        parts += 1;
    }
    (parts > 0).then(|| to_millis(total))
}

fn nanos_of(unit: &[u8]) -> Option<u64> {
    UNITS.iter().find_map(|(names, nanos)| {
        names
            .iter()
            .any(|name| unit.eq_ignore_ascii_case(name.as_bytes()))
            .then_some(*nanos)
    })
}

/// Steps of a nanosecond as whole milliseconds, rounded up.
fn to_millis(steps: u128) -> u64 {
    ceil(steps.div_ceil(MILLISECOND as u128))
}

const UNITS: &[(&[&str], u64)] = &[
    (&["s", "sec", "secs", "second", "seconds"], SECOND),
    (&["m", "min", "mins", "minute", "minutes"], MINUTE),
    (&["h", "hr", "hrs", "hour", "hours"], HOUR),
    (
        &[
            "ms",
            "msec",
            "msecs",
            "millis",
            "millisecond",
            "milliseconds",
        ],
        MILLISECOND,
    ),
    (&["d", "day", "days"], DAY),
    (&["w", "week", "weeks"], WEEK),
    (&["us", "µs", "μs", "microsecond", "microseconds"], 1_000),
    (&["ns", "nanosecond", "nanoseconds"], 1),
];

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit() {
        for (text, expected) in [
            ("1m30s", 90_000),
            ("370ms", 370),
            ("6m0s", 360_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("1.5s", 1500),
            ("0s", 0),
            ("1h2m3.5s", 3_723_500),
            ("1 minute", 60_000),
            ("2 Minutes 5 SECONDS", 125_000),
            ("1 hour, 2 mins and 3 secs", 3_723_000),
            ("1500us", 2),
            ("1500µs", 2),
            ("1500μs", 2),
            ("1ns", 1),
            ("0.4ms", 1),
            ("0.5ms0.5ms", 1),
            ("99999999999999999999999h", u64::MAX),
            ("PT5S", 5000),
            ("pt1m30.5s", 90_500),
            ("P1DT1H", 90_000_000),
            ("P1W", 604_800_000),
            ("PT0S", 0),
        ] {
            assert_eq!(exact(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn returns_none_for_invalid_spans() {
        for text in [
            "", "5", "s", "1m30", "1x", "-1s", "1s-", "1.s", "P", "PT", "P1", "P1M", "P1Y", "P1DT",
            "PT1D", "P1H", "PT5", "PT-5S", "1 month", "1s and", "1s, 2", "5 é",
        ] {
            assert_eq!(exact(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn prefix_takes_the_whole_span() {
        for (text, expected) in [
            ("20s.", (20_000, 3)),
            ("20s. Then 5s", (20_000, 3)),
            ("1 minute and 30 seconds!", (90_000, 23)),
            ("1 minute and a half", (60_000, 8)),
            ("5 seconds, please", (5000, 9)),
        ] {
            assert_eq!(prefix(text.as_bytes()), Some(expected), "{text}");
        }
        assert_eq!(prefix(b"20 requests"), None);
    }
}
