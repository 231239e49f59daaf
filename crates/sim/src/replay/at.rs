//! The times of events: seconds from the start, exact to the nanosecond.
//!
//! Times are read from the digits as written and not as a floating-point number, which cannot
//! represent single nanoseconds beyond some months. Digits beyond nanoseconds are rounded, so that
//! `0.30000000000000004`, which is how programs print 0.1 + 0.2, is 0.3 s.

use std::fmt;

use policy::time::Timestamp;
use serde_json::value::RawValue;

use super::problem::Problem;

/// The time of an event, and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At<'a> {
    pub(super) text: &'a str,
    pub(super) time: Timestamp,
}

impl<'a> At<'a> {
    pub(super) fn read(value: &'a RawValue) -> Result<Self, Problem> {
        let text = value.get();
        let nanos = scaled(text, 9).ok_or_else(|| {
            Problem::value(
                "at",
                value,
                "seconds from the start, 0 to 18446744073",
                HINT,
            )
        })?;
        Ok(Self {
            text,
            time: Timestamp::from_nanos(nanos),
        })
    }

    pub(super) fn missing() -> Problem {
        Problem::new("`at` is missing, expected seconds from the start", HINT)
    }
}

/// Checks that time never goes back.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    last: Timestamp,
}

impl Timeline {
    pub(super) fn advance(&mut self, at: At<'_>) -> Result<Timestamp, Problem> {
        if at.time < self.last {
            let last = Seconds(self.last);
            return Err(Problem::new(
                format!(
                    "`at` is `{}`, expected at least `{last}`, the time of the event before",
                    super::problem::excerpt(at.text)
                ),
                "events are in order of time; those at the same time act in the order given",
            ));
        }
        self.last = at.time;
        Ok(at.time)
    }
}

const HINT: &str = "`at` is a number of seconds, such as `{\"at\":1.25}`";

/// An instant as a JSON number of seconds, with as many decimals as needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds(pub(super) Timestamp);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (seconds, mut fraction) = (nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND);
        if fraction == 0 {
            return write!(f, "{seconds}");
        }
        let mut width = 9;
        while fraction % 10 == 0 {
            fraction /= 10;
            width -= 1;
        }
        write!(f, "{seconds}.{fraction:0width$}")
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The JSON number `text` times ten to the power of `digits`, rounded. `None` if it is negative,
/// exceeds a `u64`, or is not a number.
pub(super) fn scaled(text: &str, digits: i64) -> Option<u64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, saturating_exponent(exponent)),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));

    let mut value: u128 = 0;
    let mut shift = digits.saturating_add(exponent);
    for (position, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let is_fraction = position >= whole.len();
        if value < MAX_SIGNIFICANT {
            value = value * 10 + u128::from(digit - b'0');
            shift = shift.saturating_sub(i64::from(is_fraction));
        } else {
            shift = shift.saturating_add(i64::from(!is_fraction));
        }
    }

    let value = shifted(value, shift)?;
    let is_fine = !is_negative || value == 0;
    is_fine.then(|| u64::try_from(value).ok()).flatten()
}

/// More than thirty digits only matter for rounding a tie, and would overflow a `u128`.
const MAX_SIGNIFICANT: u128 = 10_u128.pow(29);

fn shifted(value: u128, shift: i64) -> Option<u128> {
    if value == 0 {
        return Some(0);
    }
    let Some(power) = u32::try_from(shift.unsigned_abs())
        .ok()
        .and_then(|places| 10_u128.checked_pow(places))
    else {
        return (shift < 0).then_some(0);
    };
    if shift >= 0 {
        value.checked_mul(power)
    } else {
        Some(value / power + u128::from(value % power >= power - power / 2))
    }
}

/// The exponent of a JSON number, saturating.
fn saturating_exponent(text: &str) -> i64 {
    let endless = if text.starts_with('-') {
        i64::MIN / 2
    } else {
        i64::MAX / 2
    };
    text.parse::<i64>().map_or(endless, |exponent| {
        exponent.clamp(i64::MIN / 2, i64::MAX / 2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_to_the_nanosecond() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("-0e5", Some(0)),
            ("1.5", Some(1_500_000_000)),
            ("1e-9", Some(1)),
            ("12E+2", Some(1_200_000_000_000)),
            ("0.30000000000000004", Some(300_000_000)),
            ("29.999999999999996", Some(30_000_000_000)),
            ("0.0000000005", Some(1)),
            ("0.00000000049", Some(0)),
            ("9007199.254740993", Some(9_007_199_254_740_993)),
            ("18446744073.709551615", Some(u64::MAX)),
            ("18446744073.709551616", None),
            ("1e-999999999999999999999", Some(0)),
            ("0e999999999999999999999", Some(0)),
            ("1e999999999999999999999", None),
            ("1e400", None),
            ("-1", None),
            ("-0.1", None),
            ("\"1\"", None),
            ("null", None),
            ("[1]", None),
            ("true", None),
        ] {
            assert_eq!(scaled(text, 9), nanos, "{text}");
        }
        let long = format!("1.{}5", "0".repeat(500));
        assert_eq!(scaled(&long, 9), Some(1_000_000_000));
        let longer = format!("{}e-499", "1".repeat(500));
        assert_eq!(scaled(&longer, 9), Some(1_111_111_111));
    }

    #[test]
    fn seconds_have_as_many_decimals_as_they_need() {
        for (nanos, text) in [
            (0, "0"),
            (500_000_000, "0.5"),
            (1_000_000_001, "1.000000001"),
            (12_345_000_000_000, "12345"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(Seconds(Timestamp::from_nanos(nanos)).to_string(), text);
        }
    }

    #[test]
    fn printed_times_parse_to_the_same_value() {
        for nanos in [1, 999_999_999, 1_234_567_890_123, u64::MAX - 1] {
            let text = Seconds(Timestamp::from_nanos(nanos)).to_string();
            assert_eq!(scaled(&text, 9), Some(nanos));
        }
    }
}
