//! Durations as text: in settings and for display.

use std::fmt;
use std::time::Duration;

/// Reads a duration in the format of settings: numbers with units, in any order, as in `500ms`,
/// `30s`, `2.5s`, `1m30s`, `1d`. A bare number without a unit is an error.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "a number with a unit such as `500ms`, `30s` or `5m`";
    const TOO_LONG: &str = "a duration below 584 years";
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(EXPECTED);
    }
    while !rest.is_empty() {
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.len()
            - tail
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let (unit, tail) = tail.split_at(letters);
        let part = part(number, unit).ok_or(EXPECTED)?;
        let part = part.ok_or(TOO_LONG)?;
        total = total.checked_add(part).ok_or(TOO_LONG)?;
        rest = tail.trim_start();
    }
    if total > MAX_DURATION {
        return Err(TOO_LONG);
    }
    Ok(total)
}

/// In whole seconds, rounded up so that a wait is never too short.
///
/// ```
/// use std::time::Duration;
/// use tidegate_policy::duration::whole_seconds;
///
/// assert_eq!(whole_seconds(Duration::from_millis(2001)), 3);
/// ```
pub fn whole_seconds(length: Duration) -> u64 {
    let has_rest = length.subsec_nanos() > 0;
    length.as_secs().saturating_add(u64::from(has_rest))
}

/// A duration for display: whole seconds rounded up, as in `45s`, `2m`, `2m 30s`, `60m`.
#[derive(Clone, Copy, Debug)]
pub struct Rounded(pub Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = whole_seconds(self.0);
        match (seconds / 60, seconds % 60) {
            (0, seconds) => write!(f, "{seconds}s"),
            (minutes, 0) => write!(f, "{minutes}m"),
            (minutes, seconds) => write!(f, "{minutes}m {seconds}s"),
        }
    }
}

/// An exact duration in the format of settings, in the largest unit that divides it.
#[derive(Clone, Copy, Debug)]
pub struct Exact(pub Duration);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, size) = UNITS
            .iter()
            .rev()
            .find(|(_, size)| nanos.is_multiple_of(u128::from(*size)))
            .filter(|_| nanos > 0)
            .unwrap_or(&("s", NANOS_PER_SECOND));
        write!(f, "{}{unit}", nanos / u128::from(*size))
    }
}

/// An exact duration in the format of settings; whole seconds are shown in seconds, as in `90s`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_nanos() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => Exact(self.0).fmt(f),
        }
    }
}

/// One number with its unit: `None` if it is not a number, `Some(None)` if it is too long.
fn part(number: &str, unit: &str) -> Option<Option<Duration>> {
    let &(_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    if let Ok(whole) = number.parse::<u64>() {
        return Some(whole.checked_mul(nanos).map(Duration::from_nanos));
    }
    let seconds = number.parse::<f64>().ok()? * (nanos as f64 / NANOS_PER_SECOND as f64);
    Some(Duration::try_from_secs_f64(seconds).ok())
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3600 * NANOS_PER_SECOND),
    ("d", 86_400 * NANOS_PER_SECOND),
];

/// The range of a monotonic clock in nanoseconds.
const MAX_DURATION: Duration = Duration::from_nanos(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_with_units() {
        let check = |text: &str, nanos: u64| {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}")
        };
        check("500ms", 500_000_000);
        check("30s", 30_000_000_000);
        check("5m", 300_000_000_000);
        check("1m30s", 90_000_000_000);
        check("1m 30s", 90_000_000_000);
        check("2.5s", 2_500_000_000);
        check("0s", 0);
        check("1d", 86_400_000_000_000);
        check("1us", 1000);
        check("9223372036s", 9_223_372_036_000_000_000);
    }

    #[test]
    fn refuses_missing_unit_or_number() {
        for bad in [
            "",
            " ",
            "30",
            "s",
            "-3s",
            "1.2.3s",
            "3 s",
            "1e3s",
            "NaNs",
            "5 minutes",
            "99999999999999d",
            "18446744073s5m",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn reports_too_long_durations() {
        for long in [
            "99999999999999d",
            "18446744073s5m",
            "99999999999999999999999s",
        ] {
            assert_eq!(parse(long), Err("a duration below 584 years"), "{long}");
        }
    }

    #[test]
    fn displays_whole_seconds_rounded_up() {
        let check = |millis: u64, text: &str| {
            assert_eq!(Rounded(Duration::from_millis(millis)).to_string(), text)
        };
        check(0, "0s");
        check(1, "1s");
        check(45_000, "45s");
        check(120_000, "2m");
        check(149_001, "2m 30s");
        check(3_600_000, "60m");
    }

    #[test]
    fn exact_durations_round_trip() {
        for text in ["500ms", "30s", "5m", "1h", "1d", "90s", "1us", "7ns", "0s"] {
            assert_eq!(Exact(parse(text).unwrap()).to_string(), text);
        }
    }
}
