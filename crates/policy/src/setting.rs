//! Settings as people write them: what can be wrong with one, and how common kinds are read.
//!
//! Every policy takes its settings by name and text, from a file or from the command line alike,
//! and each value is judged alone, so that all problems can be told in one go. What does not fit
//! is refused with what would; nothing falls back silently.

use std::fmt;
use std::ops::Index;
use std::slice;
use std::str::FromStr;
use std::time::Duration;
use std::vec;

use crate::duration;
use crate::suggest::suggestion;

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The setting's name as written.
    pub setting: String,
    /// Its value as written.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl SettingError {
    pub(crate) fn new(
        setting: &str,
        value: impl fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            setting: setting.to_owned(),
            value: value.to_string(),
            expected: expected.into(),
        }
    }

    /// Two values that were both written and cannot both be: `setting` has to be `relation`
    /// (as in "at most") the `bound` that `other` is.
    pub(crate) fn contradiction(
        setting: &str,
        value: impl fmt::Display,
        relation: &str,
        other: &str,
        bound: impl fmt::Display,
    ) -> Self {
        Self::new(setting, value, format!("{relation} `{other}` ({bound})"))
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is `{}`, expected {}",
            self.setting, self.value, self.expected
        )
    }
}

impl std::error::Error for SettingError {}

/// Everything that is wrong with the settings: one thing or more, in the order of the settings.
///
/// It is an error as a whole, so that `?` passes it on, and tells all of it on one line.
///
/// ```
/// use policy::poll::{PollOptions, PollSettings};
///
/// fn settings() -> Result<PollSettings, Box<dyn std::error::Error>> {
///     let mut options = PollOptions::default();
///     options.set("base", "20s")?;
///     options.set("max", "10s")?;
///     Ok(options.build()?)
/// }
/// let error = settings().unwrap_err();
/// assert_eq!(error.to_string(), "`base` is `20s`, expected at most `max` (10s)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingErrors(Box<[SettingError]>);

impl SettingErrors {
    /// All of `problems`; `None` if there are none.
    pub fn of(problems: Vec<SettingError>) -> Option<Self> {
        (!problems.is_empty()).then(|| Self(problems.into()))
    }

    /// Every problem in its order.
    pub fn iter(&self) -> slice::Iter<'_, SettingError> {
        self.0.iter()
    }

    /// How many there are, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for SettingErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingErrors {}

impl From<SettingError> for SettingErrors {
    fn from(problem: SettingError) -> Self {
        Self(Box::new([problem]))
    }
}

/// The problem at a place, counted from 0. There always is a first.
impl Index<usize> for SettingErrors {
    type Output = SettingError;

    fn index(&self, index: usize) -> &SettingError {
        &self.0[index]
    }
}

impl IntoIterator for SettingErrors {
    type Item = SettingError;
    type IntoIter = vec::IntoIter<SettingError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

impl<'a> IntoIterator for &'a SettingErrors {
    type Item = &'a SettingError;
    type IntoIter = slice::Iter<'a, SettingError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// `true` or `false`.
///
/// # Errors
///
/// What was expected instead.
pub fn switch(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "`true` or `false`".to_owned())
}

/// A number as settings spell it: no leading `+`, and `_` only between two digits.
pub fn number<T: FromStr>(value: &str) -> Option<T> {
    let parts: Vec<&str> = value.split('_').collect();
    let separates_digits = parts.windows(2).all(|sides| {
        sides[0].ends_with(|c: char| c.is_ascii_digit())
            && sides[1].starts_with(|c: char| c.is_ascii_digit())
    });
    if value.starts_with('+') || !separates_digits {
        return None;
    }
    parts.concat().parse().ok()
}

/// A whole number within bounds, both included; `_` between digits is allowed.
///
/// # Errors
///
/// What was expected instead.
pub fn whole<T: FromStr + PartialOrd + fmt::Display>(
    value: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    number(value)
        .filter(|number: &T| *number >= least && *number <= most)
        .ok_or_else(|| format!("a whole number from {least} to {most}"))
}

/// A duration above zero.
///
/// # Errors
///
/// What was expected instead.
pub fn positive(value: &str) -> Result<Duration, String> {
    match duration::parse(value)? {
        Duration::ZERO => Err("a duration above zero".to_owned()),
        duration => Ok(duration),
    }
}

/// The parts of a list, separated by commas; the brackets and quotes of a list are allowed.
pub(crate) fn list(value: &str) -> impl Iterator<Item = &str> {
    let inner = value.trim_start_matches('[').trim_end_matches(']');
    inner
        .split(',')
        .map(|part| part.trim().trim_matches('"'))
        .filter(|part| !part.is_empty())
}

/// What to say about a name that no setting has.
pub(crate) fn unknown(name: &str, names: &[&str]) -> String {
    match suggestion(name, names) {
        Some(close) => format!("a known setting; did you mean `{close}`?"),
        None => format!("a known setting: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_be_written_with_or_without_its_brackets() {
        for text in ["30s,60s", "[\"30s\", \"60s\"]", " 30s , 60s, "] {
            assert_eq!(list(text).collect::<Vec<_>>(), ["30s", "60s"], "{text}");
        }
        assert_eq!(list("[]").count(), 0);
        assert_eq!(list("").count(), 0);
    }

    #[test]
    fn a_number_has_underscores_only_between_digits_and_no_plus() {
        for (text, expected) in [("1", 1), ("10_000", 10_000), ("1_0_0", 100)] {
            assert_eq!(whole(text, 0, 10_000), Ok(expected), "{text}");
        }
        for text in ["_1", "1_", "1__0", "_", "+5", "", "-1", "1.0", "1 0"] {
            assert!(whole(text, 0, 10_000).is_err(), "{text}");
        }
        assert_eq!(number("1_000.5"), Some(1000.5));
        for text in ["1_.5", "1._5", "+0.5", "1_e3"] {
            assert_eq!(number::<f64>(text), None, "{text}");
        }
    }

    #[test]
    fn a_contradiction_names_both_sides() {
        let error = SettingError::contradiction("base", "20s", "at most", "max", "15s");
        assert_eq!(
            error.to_string(),
            "`base` is `20s`, expected at most `max` (15s)"
        );
    }

    #[test]
    fn problems_are_told_together_and_none_are_no_error() {
        let base = SettingError::new("base", "0s", "a duration above zero");
        let growth = SettingError::new("growth", "cubic", "`linear` or `double`");
        let both = SettingErrors::of(vec![base.clone(), growth.clone()]).unwrap();
        assert_eq!(
            both.to_string(),
            "`base` is `0s`, expected a duration above zero; \
             `growth` is `cubic`, expected `linear` or `double`"
        );
        assert_eq!((both.len(), &both[1]), (2, &growth));
        assert!((&both).into_iter().eq([&base, &growth]));
        assert!(both.into_iter().eq([base.clone(), growth]));
        assert_eq!(
            SettingErrors::from(base.clone()).to_string(),
            base.to_string()
        );
        assert_eq!(SettingErrors::of(Vec::new()), None);
    }
}
