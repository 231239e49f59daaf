//! Axes and numbers as people read them: round steps, few of them, units with the numbers.

use crate::number::whole;

/// An axis from zero to `top` with marks in equal steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) top: f64,
    /// Where there is a mark, and its words.
    pub(super) marks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis that reaches a little further than `most`. If there is nothing to show, it reaches
    /// to one: an axis without length has no marks.
    pub(super) fn reaching(most: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 {
            most
        } else {
            1.0
        };
        let step = round_up(most / MARKS);
        let top = most * 1.04;
        let count = whole(top / step);
        let marks = (0..=count).map(|index| index as f64 * step);
        Self {
            top,
            marks: marks.map(|at| (at, number(at))).collect(),
        }
    }

    /// Shares of a whole.
    pub(super) fn shares() -> Self {
        let marks = [0.0, 0.5, 1.0].map(|at| (at, format!("{:.0} %", at * 100.0)));
        Self {
            top: 1.0,
            marks: marks.to_vec(),
        }
    }

    /// Time from the beginning to `end_s`, in a unit that suits it.
    pub(super) fn time(end_s: f64) -> Self {
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

    /// The same with words at every other mark only, for small plots.
    pub(super) fn sparse(mut self) -> Self {
        for (_, words) in self.marks.iter_mut().skip(1).step_by(2) {
            words.clear();
        }
        self
    }
}

/// About so many steps make an axis that can be read and does not clutter.
const MARKS: f64 = 4.0;

/// The next of 1, 2, 5, 10, 20, 50 … that is not less.
pub(super) fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0];
    let step = steps
        .into_iter()
        .find(|step| step * power >= value * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

/// The same for time, which is counted in sixties.
fn time_step(least_s: f64) -> f64 {
    const STEPS: [f64; 13] = [
        15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 21_600.0,
        43_200.0,
    ];
    const DAY_S: f64 = 86_400.0;
    if least_s <= 10.0 {
        return round_up(least_s);
    }
    let step = STEPS.into_iter().find(|step| *step >= least_s);
    step.unwrap_or_else(|| (least_s / DAY_S).ceil() * DAY_S)
}

/// A number with as many digits as tell something: three or so, and thousands apart.
pub(super) fn number(value: f64) -> String {
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

/// A whole number with thousands apart.
pub(super) fn thousands(digits: &str) -> String {
    let mut apart = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            apart.push(NARROW_SPACE);
        }
        apart.push(digit);
    }
    apart
}

/// Does not let a number break at the end of a line.
const NARROW_SPACE: char = '\u{202f}';

#[cfg(test)]
mod tests {
    use super::*;

    fn words(axis: &Axis) -> Vec<String> {
        let words = axis.marks.iter().map(|(_, words)| words.clone());
        words
            .map(|words| words.replace(NARROW_SPACE, "_"))
            .collect()
    }

    #[test]
    fn axes_have_round_marks_whatever_the_size() {
        assert_eq!(words(&Axis::reaching(0.1)), ["0", "0.05", "0.1"]);
        assert_eq!(words(&Axis::reaching(3.0)), ["0", "1", "2", "3"]);
        assert_eq!(words(&Axis::reaching(201.0)), ["0", "100", "200"]);
        assert_eq!(words(&Axis::reaching(10_000.0)), ["0", "5_000", "10_000"]);
    }

    #[test]
    fn an_axis_without_anything_on_it_still_has_a_length() {
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Axis::reaching(nothing), Axis::reaching(1.0), "{nothing}");
        }
    }

    #[test]
    fn time_is_counted_in_sixties() {
        let five = words(&Axis::time(300.0));
        assert_eq!(five, ["0 s", "60 s", "120 s", "180 s", "240 s", "300 s"]);
        assert_eq!(words(&Axis::time(1.0)).last().unwrap(), "1 s");
        assert_eq!(words(&Axis::time(3600.0)).last().unwrap(), "60 min");
        assert_eq!(words(&Axis::time(86_400.0)).last().unwrap(), "24 h");
        assert!(words(&Axis::time(30.0 * 86_400.0)).len() <= 7);
    }

    #[test]
    fn numbers_keep_the_digits_that_tell_something() {
        let check = |value, text: &str| assert_eq!(number(value), text);
        check(0.0, "0");
        check(0.0042, "0.0042");
        check(0.5, "0.5");
        check(12.34, "12.3");
        check(123.4, "123");
        check(1_234_567.0, "1\u{202f}234\u{202f}567");
    }
}
