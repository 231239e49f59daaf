//! Settings: each is defined once, with name, type, bounds, default and description.
//!
//! `settings!` takes such definitions and generates the types that read and hold
//! the values. The definitions are data ([`Setting`], [`Kind`]): files are checked against them,
//! and the default file, the JSON schema and the reference are rendered from them. Each value is
//! checked on its own when it is read, so that all problems are reported together. The options are
//! then combined with the defaults, which adapt to them. Nothing falls back silently.

mod define;
mod kind;

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;
use std::vec;

pub(crate) use self::define::fit;
#[doc(hidden)]
pub use self::define::plain_name;
pub use self::define::{Options, Setting, SettingValue, Values};
pub use self::kind::{Format, Kind};
use crate::duration;

/// A problem with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The setting's name as written.
    pub setting: String,
    /// Its value as written.
    pub value: String,
    /// What was expected.
    pub expected: String,
}

impl SettingError {
    /// A problem with `setting`, which is `value`.
    pub fn new(setting: &str, value: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self {
            setting: setting.to_owned(),
            value: value.to_string(),
            expected: expected.into(),
        }
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

/// All problems with the settings: one or more, in the order of the settings.
///
/// It is one error, so that `?` works, and displays all problems on one line.
///
/// ```
/// # use tidegate_policy::backoff as tidegate;
/// use tidegate::{BackoffOptions, BackoffSettings};
///
/// fn settings() -> Result<BackoffSettings, Box<dyn std::error::Error>> {
///     let mut options = BackoffOptions::default();
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
    /// `None` if there are no `problems`.
    pub fn of(problems: Vec<SettingError>) -> Option<Self> {
        (!problems.is_empty()).then(|| Self(problems.into()))
    }

    /// `value` if there are no problems, otherwise all of them.
    ///
    /// # Errors
    ///
    /// The problems.
    pub fn none_of<T>(problems: Vec<SettingError>, value: T) -> Result<T, Self> {
        match Self::of(problems) {
            None => Ok(value),
            Some(problems) => Err(problems),
        }
    }
}

/// All problems in order; there is at least one.
impl Deref for SettingErrors {
    type Target = [SettingError];

    fn deref(&self) -> &[SettingError] {
        &self.0
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

impl IntoIterator for SettingErrors {
    type Item = SettingError;
    type IntoIter = vec::IntoIter<SettingError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

/// A text is not a value of the type it was parsed as.
///
/// ```
/// # use tidegate_policy::limits as tidegate;
/// use tidegate::Limit;
///
/// let error = "fast".parse::<Limit>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "expected a count and a period such as `10/1s` or `5000/1d`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError(Box<str>);

impl ValueError {
    /// An error that says what was `expected` instead: a noun, such as "a number".
    pub fn new(expected: impl Into<Box<str>>) -> Self {
        Self(expected.into())
    }

    /// What was expected instead.
    pub fn expected(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl std::error::Error for ValueError {}

impl From<ValueError> for String {
    fn from(error: ValueError) -> Self {
        error.0.into()
    }
}

/// What an error of parsing says was expected: without the verb, if it begins with that.
#[doc(hidden)]
pub fn expected_by(error: impl fmt::Display) -> String {
    let text = error.to_string();
    match text.strip_prefix("expected ") {
        Some(expected) => expected.to_owned(),
        None => text,
    }
}

/// A number in settings: no leading `+`, and `_` only between two digits.
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

/// `true` or `false`.
///
/// # Errors
///
/// What was expected instead.
pub fn switch(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "`true` or `false`".to_owned())
}

/// A whole number within inclusive bounds; `_` between digits is allowed.
///
/// # Errors
///
/// What was expected instead.
pub fn whole<T: FromStr + PartialOrd + fmt::Display>(
    value: &str,
    min: T,
    max: T,
) -> Result<T, String> {
    number(value)
        .filter(|number: &T| *number >= min && *number <= max)
        .ok_or_else(|| format!("a whole number from {min} to {max}"))
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

/// The parts of a list, separated by commas; TOML's brackets and quotes are allowed.
pub fn split_list(value: &str) -> impl Iterator<Item = &str> {
    let inner = value.trim_start_matches('[').trim_end_matches(']');
    inner
        .split(',')
        .map(|part| part.trim().trim_matches('"'))
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_lists_with_and_without_brackets() {
        for text in ["30s,60s", "[\"30s\", \"60s\"]", " 30s , 60s, "] {
            assert_eq!(
                split_list(text).collect::<Vec<_>>(),
                ["30s", "60s"],
                "{text}"
            );
        }
        assert_eq!(split_list("[]").count(), 0);
        assert_eq!(split_list("").count(), 0);
    }

    #[test]
    fn reads_underscores_between_digits_and_no_plus() {
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
    fn moves_a_default_and_reports_two_written_values() {
        let fitted = |low: (Option<u32>, u32), high: (Option<u32>, u32)| {
            let (mut least, mut most) = (low.0.unwrap_or(low.1), high.0.unwrap_or(high.1));
            let mut problems = Vec::new();
            let low = ("base", low.0, &mut least);
            let high = ("max", high.0, &mut most);
            fit(low, high, &mut problems);
            problems
                .first()
                .map_or_else(|| format!("{least} {most}"), ToString::to_string)
        };
        assert_eq!(fitted((None, 2), (None, 5)), "2 5");
        assert_eq!(fitted((Some(9), 2), (None, 5)), "9 9");
        assert_eq!(fitted((None, 2), (Some(1), 5)), "1 1");
        assert_eq!(
            fitted((Some(9), 2), (Some(1), 5)),
            "`base` is `9`, expected at most `max` (1)"
        );
    }

    #[test]
    fn joins_problems_and_has_no_error_without_any() {
        let base = SettingError::new("base", "0s", "a duration above zero");
        let growth = SettingError::new("growth", "cubic", "`linear` or `double`");
        let both = SettingErrors::of(vec![base.clone(), growth.clone()]).unwrap();
        assert_eq!(
            both.to_string(),
            "`base` is `0s`, expected a duration above zero; \
             `growth` is `cubic`, expected `linear` or `double`"
        );
        assert_eq!((both.len(), &both[1]), (2, &growth));
        assert!(both.iter().eq([&base, &growth]));
        assert!(both.into_iter().eq([base.clone(), growth]));
        assert_eq!(
            SettingErrors::from(base.clone()).to_string(),
            base.to_string()
        );
        assert_eq!(SettingErrors::of(Vec::new()), None);
    }
}
