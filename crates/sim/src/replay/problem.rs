//! Problems with a line of input.

use std::fmt;

use serde_json::value::RawValue;

/// What is wrong with a line, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    what: String,
    hint: &'static str,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>, hint: &'static str) -> Self {
        Self {
            what: what.into(),
            hint,
        }
    }

    /// `name` has `value`, which is not what was `expected`.
    pub(super) fn value(name: &str, value: &RawValue, expected: &str, hint: &'static str) -> Self {
        let value = excerpt(value.get());
        Self::new(format!("`{name}` is `{value}`, expected {expected}"), hint)
    }

    /// Like [`Self::value`], but names only the type of the value, which may be secret.
    pub(super) fn kind(what: &str, value: &RawValue, expected: &str, hint: &'static str) -> Self {
        let kind = kind(value);
        Self::new(format!("{what} is {kind}, expected {expected}"), hint)
    }

    /// What to do about it, in one line.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// The start of `text`, safe to print: it fits on a line and contains no control characters.
pub(super) fn excerpt(text: &str) -> String {
    let mut excerpt: String = text
        .chars()
        .take(MAX_EXCERPT)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(MAX_EXCERPT).is_some() {
        excerpt.push('…');
    }
    excerpt
}

/// Enough to recognise a value, short enough for a message.
const MAX_EXCERPT: usize = 60;

fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "a truth value",
        Some(b'n') => "null",
        _ => "a number",
    }
}
