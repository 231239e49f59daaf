//! Decimal numbers as servers write them. Exact: no floats, so that rounding never shortens a wait.

/// A non-negative number in steps of 10⁻¹², rounded up and saturating. Twelve places, because the
/// longest unit of time is a week, and 10⁻¹² of it is less than a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Decimal(u128);

impl Decimal {
    pub(super) const fn whole(value: u64) -> Self {
        Self(value as u128 * STEPS)
    }

    /// The number at the start of `text` and its length in bytes: digits, then optionally a point
    /// and more digits.
    pub(super) fn prefix(text: &[u8]) -> Option<(Self, usize)> {
        let whole = digits(text);
        if whole == 0 {
            return None;
        }
        let fraction = match text.get(whole..) {
            Some([b'.', fraction @ ..]) => digits(fraction),
            _ => 0,
        };
        let end = if fraction == 0 {
            whole
        } else {
            whole + 1 + fraction
        };
        let steps = steps_of_whole(text.get(..whole)?);
        let fraction = steps_of_fraction(text.get(end - fraction..end)?);
        Some((Self(steps.saturating_add(fraction)), end))
    }

    /// `text` as a number, if it is nothing else.
    pub(super) fn exact(text: &[u8]) -> Option<Self> {
        let (value, end) = Self::prefix(text)?;
        (end == text.len()).then_some(value)
    }

    /// `text` as a non-negative JSON number, which may have an exponent.
    pub(super) fn json(text: &[u8]) -> Option<Self> {
        let (value, end) = Self::prefix(text)?;
        match text.get(end..)? {
            [] => Some(value),
            [b'e' | b'E', b'-', exponent @ ..] => Some(value.shifted_down(exponent_of(exponent)?)),
            [b'e' | b'E', b'+', exponent @ ..] | [b'e' | b'E', exponent @ ..] => {
                Some(value.shifted_up(exponent_of(exponent)?))
            }
            _ => None,
        }
    }

    /// Rounded down to a whole number.
    pub(super) fn floor(self) -> u64 {
        u64::try_from(self.0 / STEPS).unwrap_or(u64::MAX)
    }

    /// `self` × `factor`, in steps.
    pub(super) const fn steps_times(self, factor: u64) -> u128 {
        self.0.saturating_mul(factor as u128)
    }

    fn shifted_up(self, places: u32) -> Self {
        let factor = 10u128.checked_pow(places).unwrap_or(u128::MAX);
        Self(self.0.saturating_mul(factor))
    }

    fn shifted_down(self, places: u32) -> Self {
        let divisor = 10u128.checked_pow(places).unwrap_or(u128::MAX);
        Self(self.0.div_ceil(divisor))
    }
}

/// Rounded up to a whole number.
pub(super) fn ceil(steps: u128) -> u64 {
    u64::try_from(steps.div_ceil(STEPS)).unwrap_or(u64::MAX)
}

const STEPS: u128 = 10u128.pow(PLACES);
const PLACES: u32 = 12;

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn steps_of_whole(digits: &[u8]) -> u128 {
    digits
        .iter()
        .fold(0u128, |sum, &digit| {
            sum.saturating_mul(10).saturating_add(value_of(digit))
        })
        .saturating_mul(STEPS)
}

fn steps_of_fraction(digits: &[u8]) -> u128 {
    let (kept, cut) = digits.split_at(digits.len().min(PLACES as usize));
    let (steps, _) = kept.iter().fold((0, STEPS), |(sum, place), &digit| {
        (sum + value_of(digit) * (place / 10), place / 10)
    });
    let rounding = u128::from(cut.iter().any(|&digit| digit != b'0'));
    steps + rounding
}

fn exponent_of(text: &[u8]) -> Option<u32> {
    if text.is_empty() || digits(text) != text.len() {
        return None;
    }
    Some(text.iter().fold(0u32, |sum, &digit| {
        sum.saturating_mul(10)
            .saturating_add(u32::from(digit.wrapping_sub(b'0')))
    }))
}

fn value_of(digit: u8) -> u128 {
    u128::from(digit.wrapping_sub(b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u64> {
        Decimal::exact(text.as_bytes()).map(|value| ceil(value.steps_times(1000)))
    }

    #[test]
    fn rounds_up_to_thousandths() {
        for (text, expected) in [
            ("0", 0),
            ("5", 5000),
            ("0005", 5000),
            ("1.5", 1500),
            ("64.57", 64570),
            ("0.001", 1),
            ("0.0010", 1),
            ("0.0011", 2),
            ("0.0000000000000000000001", 1),
            ("1.00000000000000000000", 1000),
            ("99999999999999999999999999999999999999999999", u64::MAX),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn returns_none_for_invalid_numbers() {
        for text in [
            "", "-3", "+5", "1e3", "0x10", "NaN", "inf", "٣", "5.", ".5", "1 2", "1.2.3",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }

    #[test]
    fn prefix_returns_its_length() {
        assert_eq!(Decimal::prefix(b"20s."), Some((Decimal::whole(20), 2)));
        assert_eq!(Decimal::prefix(b"20. Then"), Some((Decimal::whole(20), 2)));
        assert_eq!(Decimal::prefix(b"2.50x").map(|(_, end)| end), Some(4));
        assert_eq!(Decimal::prefix(b"x2"), None);
    }

    #[test]
    fn reads_json_exponents() {
        let json =
            |text: &str| Decimal::json(text.as_bytes()).map(|value| ceil(value.steps_times(1000)));
        for (text, expected) in [
            ("1.5", Some(1500)),
            ("1e3", Some(1_000_000)),
            ("1.5E+1", Some(15_000)),
            ("25e-1", Some(2500)),
            ("1e-9", Some(1)),
            ("1e-99", Some(1)),
            ("0e-99", Some(0)),
            ("0e99", Some(0)),
            ("1e99", Some(u64::MAX)),
            ("1e99999999999999999999", Some(u64::MAX)),
            ("-1", None),
            ("1e", None),
            ("1e+", None),
            ("1e5x", None),
            ("1x", None),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn floor_rounds_down() {
        assert_eq!(Decimal::exact(b"595.9").map(Decimal::floor), Some(595));
        assert_eq!(Decimal::exact(b"0.5").map(Decimal::floor), Some(0));
        let huge = b"99999999999999999999999999999999";
        assert_eq!(Decimal::exact(huge).map(Decimal::floor), Some(u64::MAX));
    }
}
