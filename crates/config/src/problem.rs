//! Problems with a file, a variable or a flag, and their locations.

use std::fmt;
use std::sync::Arc;

/// A problem: its location, the setting, the value and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub location: Location,
    /// The path of the setting, as in `gate."api.example.com".max_rate`; empty if it is not about
    /// one.
    pub key: String,
    /// The value as written, shortened; `None` for secrets and missing values.
    pub value: Option<String>,
    /// What is wrong, as the rest of a sentence: `expected …`, or a separate statement.
    pub what: String,
}

/// Where a value is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In a file. Line and column are counted from 1, the column in characters.
    File {
        /// The file name as given.
        file: Arc<str>,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// A file that cannot be read at all.
    UnreadableFile(String),
    /// In this environment variable.
    Variable(String),
    /// In this flag.
    Flag(String),
    /// Not written anywhere.
    Default,
}

impl Problem {
    /// A value that is not what was expected.
    pub fn expected(
        location: &Location,
        key: impl Into<String>,
        value: impl AsRef<str>,
        expected: impl fmt::Display,
    ) -> Self {
        Self {
            location: location.clone(),
            key: key.into(),
            value: Some(shortened(value.as_ref())),
            what: format!("expected {expected}"),
        }
    }

    /// Another problem with a setting whose value must not be shown.
    pub fn about(location: &Location, key: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            location: location.clone(),
            key: key.into(),
            value: None,
            what: what.into(),
        }
    }

    /// The message without the location.
    pub fn sentence(&self) -> String {
        match (self.key.as_str(), &self.value) {
            ("", None) => self.what.clone(),
            ("", Some(value)) => format!("`{value}`: {}", self.what),
            (key, None) if self.what.starts_with("is ") || self.what.starts_with("has ") => {
                format!("`{key}` {}", self.what)
            }
            (key, None) => format!("`{key}`: {}", self.what),
            (key, Some(value)) => format!("`{key}` is `{value}`, {}", self.what),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Default => write!(f, "{}", self.sentence()),
            location => write!(f, "{location}: {}", self.sentence()),
        }
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::UnreadableFile(file) => write!(f, "{file}"),
            Self::Variable(name) | Self::Flag(name) => write!(f, "{name}"),
            Self::Default => write!(f, "default"),
        }
    }
}

/// The start of a value on one line, with control characters escaped: a message must not move the
/// cursor of a terminal.
pub fn shortened(value: &str) -> String {
    /// Longer than any sensible value, shorter than a terminal line.
    const MAX_CHARS: usize = 60;
    let mut shown = String::new();
    for c in value.chars().take(MAX_CHARS) {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    if value.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The path of a setting. Names with characters other than those of a word are quoted.
pub fn join(path: &str, name: &str) -> String {
    let is_plain = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let name = if is_plain {
        name.to_owned()
    } else {
        format!("\"{}\"", shortened(name))
    };
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_a_value_to_one_line() {
        assert_eq!(shortened("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(shortened(&"ä".repeat(60)), "ä".repeat(60));
        assert_eq!(shortened(&"ä".repeat(61)), format!("{}…", "ä".repeat(60)));
    }
}
