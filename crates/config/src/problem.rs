//! Problems with a file, a variable or a flag, and where they are.

use std::fmt;
use std::sync::Arc;

/// One problem: where it is, which setting has it, what was written and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub location: Location,
    /// The setting's path, as in `gate."api.example.com".max_rate`; empty when it is not about one.
    pub key: String,
    /// What was written, shortened; `None` for secrets and where nothing was written.
    pub value: Option<String>,
    /// What is wrong, as the rest of a sentence: `expected …`, or a statement of its own.
    pub what: String,
}

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In the file of this name, both counted from 1; the column in characters.
    File {
        /// The name as it was given.
        file: Arc<str>,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// The file of this name, which cannot be read at all.
    UnreadableFile(String),
    /// In the environment variable of this name.
    Variable(String),
    /// In the flag of this name.
    Flag(String),
    /// Nowhere: nothing was written.
    Default,
}

impl Problem {
    /// The value of a setting is not what was expected.
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

    /// Something else about a setting, whose value is not to be shown.
    pub fn about(location: &Location, key: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            location: location.clone(),
            key: key.into(),
            value: None,
            what: what.into(),
        }
    }

    /// The sentence without the location.
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

/// The beginning of a value on one line, with control characters spelled out: a message must not
/// move the cursor of the terminal that shows it.
pub fn shortened(value: &str) -> String {
    /// Longer than any sensible value, shorter than a line of a terminal.
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

/// The path of a setting: names with other characters than those of a word are quoted.
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
