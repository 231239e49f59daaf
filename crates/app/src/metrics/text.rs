//! The text format of Prometheus, version 0.0.4.

use std::fmt::{self, Display, Write};

use super::family::Family;
use super::histogram::{BOUNDS, Measured};

/// What is rendered so far.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Samples of a family, all in a row. One without samples is not mentioned.
    pub(super) fn family(&mut self, family: &'static Family) -> Samples<'_> {
        Samples {
            out: &mut self.0,
            family,
            has_begun: false,
        }
    }

    pub(super) fn end(self) -> String {
        self.0
    }
}

pub(super) struct Samples<'e> {
    out: &'e mut String,
    family: &'static Family,
    has_begun: bool,
}

impl Samples<'_> {
    /// One sample; `labels` has the values of all labels, in order.
    pub(super) fn number(&mut self, labels: &[&str], value: u64) {
        self.sample("", labels, None, value);
    }

    pub(super) fn switch(&mut self, labels: &[&str], value: bool) {
        self.number(labels, u64::from(value));
    }

    pub(super) fn float(&mut self, labels: &[&str], value: f64) {
        self.sample("", labels, None, Float(value));
    }

    pub(super) fn histogram(&mut self, labels: &[&str], measured: &Measured) {
        let mut up_to_here = 0;
        let bounds = BOUNDS.iter().map(|(text, _)| *text).chain(["+Inf"]);
        for (bound, count) in bounds.zip(measured.buckets) {
            up_to_here += count;
            self.sample("_bucket", labels, Some(bound), up_to_here);
        }
        self.sample("_sum", labels, None, Seconds(measured.sum_nanos));
        self.sample("_count", labels, None, up_to_here);
    }

    fn sample(&mut self, ending: &str, labels: &[&str], bound: Option<&str>, value: impl Display) {
        debug_assert_eq!(labels.len(), self.family.labels.len());
        self.begin();
        let names = self
            .family
            .labels
            .iter()
            .copied()
            .zip(labels.iter().copied());
        let names = names.chain(bound.map(|bound| ("le", bound)));
        self.out.push_str(self.family.name);
        self.out.push_str(ending);
        let mut separator = '{';
        for (name, value) in names {
            // Writing into a string cannot fail.
            _ = write!(self.out, "{separator}{name}=\"{}\"", Escaped(value));
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        _ = writeln!(self.out, " {value}");
    }

    fn begin(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            let Family {
                name, kind, help, ..
            } = self.family;
            let kind = kind.as_str();
            _ = write!(self.out, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
        }
    }
}

/// The value of a label: what would end it is escaped.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Nanoseconds as an exact number of seconds.
pub(super) struct Seconds(pub(super) u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{nanos:09}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

/// A number with a fraction, in the words that the format has for what is none.
struct Float(f64);

impl Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact() {
        let check = |nanos, text: &str| assert_eq!(Seconds(nanos).to_string(), text);
        check(0, "0");
        check(1, "0.000000001");
        check(1_500_000_000, "1.5");
        check(u64::MAX, "18446744073.709551615");
    }

    #[test]
    fn what_is_no_number_has_its_word() {
        let check = |value, text: &str| assert_eq!(Float(value).to_string(), text);
        check(2.0, "2");
        check(0.25, "0.25");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
    }
}
