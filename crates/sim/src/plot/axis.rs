//! Axes with few, round marks, and numbers as text.

use crate::whole;

/// An axis from zero to `top` with marks in equal steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its end.
    pub top: f64,
    /// Positions of the marks, and their labels.
    pub marks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis that ends slightly above `max`; at one if `max` is not positive.
    pub fn up_to(max: f64) -> Self {
        let max = if max.is_finite() && max > 0.0 {
            max
        } else {
            1.0
        };
        let step = round_up(max / MARKS);
        let top = max * 1.04;
        let count = whole(top / step);
        let marks = (0..=count).map(|index| index as f64 * step);
        Self {
            top,
            marks: marks.map(|at| (at, number(at))).collect(),
        }
    }

    /// An axis of shares, from 0 to 100 %.
    pub fn shares() -> Self {
        let marks = [0.0, 0.5, 1.0].map(|at| (at, format!("{:.0} %", at * 100.0)));
        Self {
            top: 1.0,
            marks: marks.to_vec(),
        }
    }

    /// An axis of time up to `end_s`, in seconds, minutes or hours.
    pub fn time(end_s: f64) -> Self {
        let end_s = if end_s > 0.0 { end_s } else { 1.0 };
        let (unit_s, unit) = match end_s {
            ..=600.0 => (1.0, "s"),
            ..=36_000.0 => (60.0, "min"),
            _ => (3600.0, "h"),
        };
        let step_s = time_step(end_s / 6.0);
        let count = whole(end_s / step_s + 1e-9);
        let marks = (0..=count).map(|index| {
            let at = index as f64 * step_s;
            (at, format!("{} {unit}", number(at / unit_s)))
        });
        Self {
            top: end_s,
            marks: marks.collect(),
        }
    }

    /// Removes every other label, for small plots.
    pub fn sparse(mut self) -> Self {
        for (_, label) in self.marks.iter_mut().skip(1).step_by(2) {
            label.clear();
        }
        self
    }
}

/// About how many steps an axis has.
const MARKS: f64 = 4.0;

/// The smallest of 1, 2, 5, 10, 20, 50 … that is not below `value`.
pub(crate) fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0];
    let step = steps
        .into_iter()
        .find(|step| step * power >= value * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

/// The same for time, whose units are multiples of sixty.
fn time_step(min_s: f64) -> f64 {
    const STEPS: [f64; 13] = [
        15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 21_600.0,
        43_200.0,
    ];
    const DAY_S: f64 = 86_400.0;
    if min_s <= 10.0 {
        return round_up(min_s);
    }
    let step = STEPS.into_iter().find(|step| *step >= min_s);
    step.unwrap_or_else(|| (min_s / DAY_S).ceil() * DAY_S)
}

/// A number with about three significant digits, and thousands separated.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let digits = match magnitude {
        0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.01.. => 3,
        _ => 5,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_owned();
    }
    thousands(&text)
}

/// A whole number with its thousands separated.
pub(crate) fn thousands(digits: &str) -> String {
    let mut separated = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            separated.push(NARROW_SPACE);
        }
        separated.push(digit);
    }
    separated
}

/// Prevents a line break.
const NARROW_SPACE: char = '\u{202f}';

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        let labels = axis.marks.iter().map(|(_, label)| label);
        labels
            .map(|label| label.replace(NARROW_SPACE, "_"))
            .collect()
    }

    #[test]
    fn axes_have_round_marks_at_every_magnitude() {
        assert_eq!(labels(&Axis::up_to(0.1)), ["0", "0.05", "0.1"]);
        assert_eq!(labels(&Axis::up_to(3.0)), ["0", "1", "2", "3"]);
        assert_eq!(labels(&Axis::up_to(201.0)), ["0", "100", "200"]);
        assert_eq!(labels(&Axis::up_to(10_000.0)), ["0", "5_000", "10_000"]);
    }

    #[test]
    fn an_axis_without_a_positive_maximum_ends_at_one() {
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Axis::up_to(nothing), Axis::up_to(1.0), "{nothing}");
        }
    }

    #[test]
    fn time_axes_use_seconds_minutes_and_hours() {
        let five = labels(&Axis::time(300.0));
        assert_eq!(five, ["0 s", "60 s", "120 s", "180 s", "240 s", "300 s"]);
        assert_eq!(labels(&Axis::time(1.0)).last().unwrap(), "1 s");
        assert_eq!(labels(&Axis::time(3600.0)).last().unwrap(), "60 min");
        assert_eq!(labels(&Axis::time(86_400.0)).last().unwrap(), "24 h");
        assert!(labels(&Axis::time(30.0 * 86_400.0)).len() <= 7);
    }

    #[test]
    fn numbers_have_about_three_significant_digits() {
        let check = |value, text: &str| assert_eq!(number(value), text);
        check(0.0, "0");
        check(0.0042, "0.0042");
        check(0.5, "0.5");
        check(12.34, "12.3");
        check(123.4, "123");
        check(1_234_567.0, "1\u{202f}234\u{202f}567");
    }
}
