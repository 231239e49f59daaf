//! Assertions about the figures of a run: comparisons, joined by `and`.
//!
//! ```text
//! goodput_ratio >= 95% and refused_ratio <= 0.01 and outages[0].recovery_s <= 4
//! ```
//!
//! There is no `or` and no brackets, so each failure can be reported as one comparison with its
//! values. A figure that does not apply fails every comparison, even `!=`: a check that cannot be
//! made must not pass.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use config::shortened;
use policy::setting;
use policy::suggest::suggestion;
use thiserror::Error;

use crate::measure::{FIGURES, Summary};

/// Comparisons, all of which have to hold.
///
/// ```
/// use sim::assertion::Assertion;
///
/// let wrong = "goodput_ratio > 95% or bans == 0".parse::<Assertion>().unwrap_err();
/// assert_eq!(wrong.to_string(), "column 21: `or`, expected `and` or the end");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    comparisons: Vec<Comparison>,
}

impl Assertion {
    /// The names of all figures; `N` stands for an index from 0.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let listed = [
            "outages[N].sent",
            "outages[N].recovery_s",
            "steps[N].at_s",
            "steps[N].settle_s",
        ];
        FIGURES.iter().map(|(name, ..)| *name).chain(listed)
    }

    /// The comparisons that do not hold.
    pub fn failures(&self, summary: &Summary) -> Vec<FailedComparison> {
        let comparisons = self.comparisons.iter();
        comparisons
            .filter_map(|comparison| comparison.check(summary))
            .collect()
    }
}

impl FromStr for Assertion {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser { text, at: 0 };
        let mut comparisons = vec![parser.comparison()?];
        while !parser.is_at_end() {
            parser.and()?;
            comparisons.push(parser.comparison()?);
        }
        Ok(Self { comparisons })
    }
}

/// A comparison that does not hold, with the values of its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedComparison {
    comparison: Comparison,
    values: Vec<(FigurePath, Option<f64>)>,
}

impl fmt::Display for FailedComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not met", self.comparison)?;
        for (index, (path, value)) in self.values.iter().enumerate() {
            let before = if index == 0 { ":" } else { "," };
            match value {
                Some(value) => write!(f, "{before} `{path}` is {value}")?,
                None => write!(f, "{before} `{path}` is null, it does not apply")?,
            }
        }
        Ok(())
    }
}

/// A syntax error in an assertion.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("column {column}: {found}, expected {expected}")]
pub struct SyntaxError {
    /// Where, in characters, counted from 1.
    pub column: usize,
    /// The text there.
    pub found: String,
    /// What should be there.
    pub expected: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    left: Operand,
    /// Of [`OPERATORS`].
    operator: usize,
    right: Operand,
}

impl Comparison {
    /// `None` if it holds.
    fn check(&self, summary: &Summary) -> Option<FailedComparison> {
        let (left, right) = (self.left.value(summary), self.right.value(summary));
        let order = left
            .zip(right)
            .and_then(|(left, right)| left.partial_cmp(&right));
        if order.is_some_and(OPERATORS[self.operator].1) {
            return None;
        }
        let operands = [(&self.left, left), (&self.right, right)];
        let values = operands
            .into_iter()
            .filter_map(|(operand, value)| match operand {
                Operand::Figure(path) => Some((*path, value)),
                Operand::Number { .. } => None,
            });
        Some(FailedComparison {
            comparison: self.clone(),
            values: values.collect(),
        })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (symbol, _) = OPERATORS[self.operator];
        write!(f, "{} {symbol} {}", self.left, self.right)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Figure(FigurePath),
    /// A number and its text.
    Number {
        value: f64,
        text: String,
    },
}

impl Operand {
    fn value(&self, summary: &Summary) -> Option<f64> {
        match self {
            Self::Figure(path) => path.value(summary),
            Self::Number { value, .. } => Some(*value),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Figure(path) => write!(f, "{path}"),
            Self::Number { text, .. } => f.write_str(text),
        }
    }
}

/// The name of a figure, in a list with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FigurePath {
    list: Option<(&'static str, usize)>,
    name: &'static str,
}

impl FigurePath {
    fn value(self, summary: &Summary) -> Option<f64> {
        match self.list {
            None => summary.figure(self.name),
            Some(("outages", index)) => summary.outage(index, self.name),
            Some((_, index)) => summary.step(index, self.name),
        }
    }
}

impl fmt::Display for FigurePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((list, index)) = self.list {
            write!(f, "{list}[{index}].")?;
        }
        f.write_str(self.name)
    }
}

/// A comparison's symbol, and the orders of its two sides for which it holds.
type Operator = (&'static str, fn(Ordering) -> bool);

/// In the order in which they are tried: `>=` before `>`.
const OPERATORS: [Operator; 6] = [
    (">=", Ordering::is_ge),
    ("<=", Ordering::is_le),
    ("==", Ordering::is_eq),
    ("!=", Ordering::is_ne),
    (">", Ordering::is_gt),
    ("<", Ordering::is_lt),
];

/// A position in the text, on a character boundary.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn comparison(&mut self) -> Result<Comparison, SyntaxError> {
        let start = self.skip_whitespace();
        let left = self.operand()?;
        let operator = self.operator()?;
        let right = self.operand()?;
        if let (Operand::Number { .. }, Operand::Number { .. }) = (&left, &right) {
            self.at = start;
            return Err(self.error("a figure on one side of the comparison"));
        }
        Ok(Comparison {
            left,
            operator,
            right,
        })
    }

    fn and(&mut self) -> Result<(), SyntaxError> {
        let start = self.skip_whitespace();
        if self.word().eq_ignore_ascii_case("and") {
            return Ok(());
        }
        self.at = start;
        Err(self.error("`and` or the end"))
    }

    fn operator(&mut self) -> Result<usize, SyntaxError> {
        self.skip_whitespace();
        if let Some(known) = OPERATORS.iter().position(|(symbol, _)| self.take(symbol)) {
            return Ok(known);
        }
        let known = "`>=`, `<=`, `>`, `<`, `==` or `!=`";
        if self.rest().starts_with('=') {
            return Err(self.error(format!("{known}; did you mean `==`?")));
        }
        Err(self.error(known))
    }

    fn operand(&mut self) -> Result<Operand, SyntaxError> {
        self.skip_whitespace();
        match self.rest().chars().next() {
            Some(c) if c.is_alphabetic() || c == '_' => self.path().map(Operand::Figure),
            Some(c) if c.is_ascii_digit() || "+-.".contains(c) => self.number(),
            _ => Err(self.error("a figure or a number")),
        }
    }

    fn path(&mut self) -> Result<FigurePath, SyntaxError> {
        let start = self.at;
        match self.word() {
            "outages" => self.listed("outages", ["sent", "recovery_s"]),
            "steps" => self.listed("steps", ["at_s", "settle_s"]),
            word => match FIGURES.iter().find(|(name, ..)| *name == word) {
                Some((name, ..)) => Ok(FigurePath { list: None, name }),
                None => {
                    self.at = start;
                    Err(self.error(expected_name(word)))
                }
            },
        }
    }

    fn listed(
        &mut self,
        list: &'static str,
        names: [&'static str; 2],
    ) -> Result<FigurePath, SyntaxError> {
        Ok(FigurePath {
            list: Some((list, self.index(list)?)),
            name: self.field(names)?,
        })
    }

    /// An index into a list: `[0]` is the first.
    fn index(&mut self, list: &str) -> Result<usize, SyntaxError> {
        let expected = format!("which of them, such as `{list}[0]`");
        self.skip_whitespace();
        let start = self.at;
        if self.take("[") {
            self.skip_whitespace();
            let index = self.take_while(|c| c.is_ascii_digit()).parse();
            self.skip_whitespace();
            if let Ok(index) = index
                && self.take("]")
            {
                return Ok(index);
            }
        }
        self.at = start;
        Err(self.error(expected))
    }

    fn field(&mut self, names: [&'static str; 2]) -> Result<&'static str, SyntaxError> {
        let start = self.at;
        if self.take(".") {
            let word = self.word();
            if let Some(name) = names.into_iter().find(|name| *name == word) {
                return Ok(name);
            }
        }
        self.at = start;
        Err(self.error(format!("`.{}` or `.{}`", names[0], names[1])))
    }

    /// A number; `%` divides it by 100.
    fn number(&mut self) -> Result<Operand, SyntaxError> {
        let start = self.at;
        // Takes letters too, so that `4s` is reported as one malformed number.
        self.take_while(|c| c.is_alphanumeric() || "+-._".contains(c));
        self.take("%");
        let text = &self.text[start..self.at];
        let (digits, divisor) = match text.strip_suffix('%') {
            Some(digits) => (digits, 100.0),
            None => (text, 1.0),
        };
        match setting::number(digits).filter(|number: &f64| number.is_finite()) {
            Some(number) => Ok(Operand::Number {
                value: number / divisor,
                text: text.to_owned(),
            }),
            None => {
                self.at = start;
                Err(self.error("a number such as `4`, `0.95` or `95%`"))
            }
        }
    }

    fn word(&mut self) -> &'a str {
        self.take_while(|c| c.is_alphanumeric() || c == '_')
    }

    fn take_while(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !matches(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    fn skip_whitespace(&mut self) -> usize {
        self.take_while(char::is_whitespace);
        self.at
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_whitespace();
        self.rest().is_empty()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The error that `expected` was not found here.
    fn error(&self, expected: impl Into<String>) -> SyntaxError {
        let next = self.rest().split_whitespace().next();
        SyntaxError {
            column: self.text[..self.at].chars().count() + 1,
            found: next.map_or_else(
                || "the end".to_owned(),
                |next| format!("`{}`", shortened(next)),
            ),
            expected: expected.into(),
        }
    }
}

/// Suggests a name for a misspelt one or for its beginning.
fn expected_name(word: &str) -> String {
    let mut names: Vec<&str> = FIGURES.iter().map(|(name, ..)| *name).collect();
    names.extend(["outages", "steps"]);
    let completed = || names.iter().copied().find(|name| name.starts_with(word));
    match suggestion(word, &names).or_else(completed) {
        Some(close) => format!("a figure; did you mean `{close}`?"),
        None => "a figure".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Shipped;
    use crate::simulate::simulate;

    fn summary() -> Summary {
        Summary {
            figures: vec![
                ("goodput_ratio", Some(0.95)),
                ("bans", Some(0.0)),
                ("sent", Some(120.0)),
                ("accepted", Some(114.0)),
                ("jain", None),
            ],
            outages: vec![vec![("sent", Some(7.0)), ("recovery_s", Some(3.5))]],
            steps: vec![
                vec![("at_s", Some(60.0)), ("settle_s", Some(1.0))],
                vec![("at_s", Some(120.0)), ("settle_s", None)],
            ],
        }
    }

    fn failures(text: &str) -> Vec<String> {
        let assertion: Assertion = text.parse().unwrap();
        let failures = assertion.failures(&summary());
        failures.iter().map(ToString::to_string).collect()
    }

    fn syntax_error(text: &str) -> String {
        text.parse::<Assertion>().unwrap_err().to_string()
    }

    #[test]
    fn comparisons_that_hold_are_not_reported() {
        for text in [
            "goodput_ratio >= 0.95",
            "goodput_ratio>=95%and bans==0",
            "goodput_ratio == 95% AND bans != 1 and sent > 1_00 and sent < 1.3e2",
            "  outages[0].recovery_s <= 4 and steps[ 0 ].settle_s < 2  ",
            "100 < sent and accepted <= sent",
            "bans > -1",
        ] {
            assert_eq!(failures(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn failed_comparisons_are_reported_with_their_values() {
        assert_eq!(
            failures(
                "goodput_ratio > 95% and bans == 0 and outages[0].recovery_s<=3 and sent < accepted"
            ),
            [
                "`goodput_ratio > 95%` is not met: `goodput_ratio` is 0.95",
                "`outages[0].recovery_s <= 3` is not met: `outages[0].recovery_s` is 3.5",
                "`sent < accepted` is not met: `sent` is 120, `accepted` is 114",
            ]
        );
    }

    #[test]
    fn figures_that_do_not_apply_fail_every_comparison() {
        for (text, path) in [
            ("jain != 2", "jain"),
            ("steps[1].settle_s <= 100", "steps[1].settle_s"),
            ("outages[1].sent >= 0", "outages[1].sent"),
        ] {
            assert_eq!(
                failures(text),
                [format!(
                    "`{text}` is not met: `{path}` is null, it does not apply"
                )]
            );
        }
    }

    #[test]
    fn syntax_errors_are_reported_with_their_column() {
        let operators = "`>=`, `<=`, `>`, `<`, `==` or `!=`";
        let cases = [
            (
                "",
                "column 1: the end, expected a figure or a number".to_owned(),
            ),
            (
                "goodput_ration >= 1",
                "column 1: `goodput_ration`, expected a figure; did you mean `goodput_ratio`?"
                    .into(),
            ),
            (
                "weather >= 1",
                "column 1: `weather`, expected a figure".into(),
            ),
            (
                "goodput >= 1",
                "column 1: `goodput`, expected a figure; did you mean `goodput_ratio`?".into(),
            ),
            ("bans", format!("column 5: the end, expected {operators}")),
            (
                "bans = 0",
                format!("column 6: `=`, expected {operators}; did you mean `==`?"),
            ),
            (
                "bans == ",
                "column 9: the end, expected a figure or a number".into(),
            ),
            (
                "time_to_90_s <= 4s",
                "column 17: `4s`, expected a number such as `4`, `0.95` or `95%`".into(),
            ),
            (
                "bans == 0 and ",
                "column 15: the end, expected a figure or a number".into(),
            ),
            (
                "bans == 0 bans",
                "column 11: `bans`, expected `and` or the end".into(),
            ),
            (
                "outages.sent == 0",
                "column 8: `.sent`, expected which of them, such as `outages[0]`".into(),
            ),
            (
                "outages[x].sent == 0",
                "column 8: `[x].sent`, expected which of them, such as `outages[0]`".into(),
            ),
            (
                "steps[0].sent == 0",
                "column 9: `.sent`, expected `.at_s` or `.settle_s`".into(),
            ),
            (
                "1 < 2",
                "column 1: `1`, expected a figure on one side of the comparison".into(),
            ),
            ("bans == inf", "column 9: `inf`, expected a figure".into()),
            (
                "bäns == (",
                "column 1: `bäns`, expected a figure; did you mean `bans`?".into(),
            ),
            (
                "bans == (",
                "column 9: `(`, expected a figure or a number".into(),
            ),
        ];
        for (text, message) in cases {
            assert_eq!(syntax_error(text), message, "{text}");
        }
    }

    #[test]
    fn every_figure_can_be_compared() {
        let scenario = Shipped::find("o7").unwrap().scenario();
        let summary = Summary::of(&simulate(&scenario, 1));
        let names: Vec<&str> = summary.figures.iter().map(|(name, _)| *name).collect();
        let known: Vec<&str> = FIGURES.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, known);
        let assertion: Assertion = "outages[0].sent > 0".parse().unwrap();
        assert_eq!(assertion.failures(&summary), []);
    }
}
