//! Settings as people write them: what can be wrong with one, and how common kinds are read.
//!
//! Every policy takes its settings by name and text, from a file or from the command line alike,
//! and each value is judged alone, so that all problems can be told in one go. What does not fit
//! is refused with what would; nothing falls back silently.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

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

/// `true` or `false`.
///
/// # Errors
///
/// What was expected instead.
pub fn switch(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "`true` or `false`".to_owned())
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
    let parsed = value.replace('_', "").parse::<T>().ok();
    parsed
        .filter(|number| *number >= least && *number <= most)
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
    fn a_contradiction_names_both_sides() {
        let error = SettingError::contradiction("base", "20s", "at most", "max", "15s");
        assert_eq!(
            error.to_string(),
            "`base` is `20s`, expected at most `max` (15s)"
        );
    }
}
