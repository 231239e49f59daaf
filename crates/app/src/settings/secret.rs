//! Secrets: where they are kept, and a type that never shows them.
//!
//! A settings file is copied, committed and pasted into tickets, so a secret in it is written as
//! `env:NAME` or `file:PATH`, after a word such as `Bearer` if need be: `Bearer env:KEY`. The
//! reference is followed when the settings are read, so that a missing secret is known before
//! anything starts. A literal secret is refused in the file and in flags; in the environment it is
//! fine, for that is where it would come from anyway.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::document::{Node, Value};
use super::problem::{Place, Problem};
use super::reader::Section;
use super::surroundings::Surroundings;

/// A value that must not be seen: not in logs, errors, `Debug` or the console.
///
/// ```
/// let secret = app::settings::Secret::new("k-123");
/// assert_eq!(format!("{secret:?} {secret}"), "Secret(…) …");
/// assert_eq!(secret.expose(), "k-123");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Keeps a value from being seen.
    pub fn new(value: impl Into<Box<str>>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that sends or compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Which references to secrets may be named: `env:LLM_*`, `file:/run/secrets/*`.
///
/// `*` stands for any number of characters, but not for `/`; a path with `..` in it never matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPattern(Box<str>);

impl SecretPattern {
    /// Whether `reference` (`env:NAME` or `file:PATH`, after a word such as `Bearer` if need be)
    /// matches.
    ///
    /// ```
    /// let pattern: app::settings::SecretPattern = "env:LLM_*".parse().unwrap();
    /// assert!(pattern.matches("Bearer env:LLM_KEY"));
    /// assert!(!pattern.matches("env:HOME"));
    /// ```
    pub fn matches(&self, reference: &str) -> bool {
        let (_, reference) = split_word(reference);
        let climbs = reference.split('/').any(|part| part == "..");
        !climbs && matches_glob(&self.0, reference)
    }
}

impl FromStr for SecretPattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let name = text
            .strip_prefix("env:")
            .or_else(|| text.strip_prefix("file:"));
        match name {
            Some(name) if !name.is_empty() => Ok(Self(text.into())),
            _ => Err("a reference such as `env:LLM_*` or `file:/run/secrets/*`"),
        }
    }
}

fn matches_glob(pattern: &str, text: &str) -> bool {
    let Some((front, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(front) else {
        return false;
    };
    let reach = text.find('/').unwrap_or(text.len());
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.any(|end| end <= reach && matches_glob(rest, &text[end..]))
}

/// May a secret be written out in the file?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    /// Yes, it is not really one.
    Allowed,
    /// No, and it is not shown either.
    Refused,
}

impl Section<'_> {
    /// Reads a secret; `None` if it is not written or cannot be had.
    pub(crate) fn secret(&self, name: &str, literal: Literal) -> Option<Secret> {
        let node = self.node(name)?;
        self.resolve(node, &self.key(name), literal)
    }

    /// Reads a secret that must be there.
    pub(crate) fn require_secret(&self, name: &str, literal: Literal) -> Option<Secret> {
        if self.node(name).is_none() {
            self.missing(name);
        }
        self.secret(name, literal)
    }

    /// Follows the reference in `node`.
    pub(crate) fn resolve(&self, node: &Node, path: &str, literal: Literal) -> Option<Secret> {
        let text = node.value.text()?;
        match self.found(text, node, literal) {
            Ok(secret) => Some(secret),
            Err(what) => {
                self.reader.report(Problem::about(&node.place, path, what));
                None
            }
        }
    }

    fn found(&self, text: &str, node: &Node, literal: Literal) -> Result<Secret, String> {
        if let Some(secret) = follow(text, self.reader.surroundings)? {
            self.reader.note_reference(split_word(text).1);
            return Ok(secret);
        }
        if literal == Literal::Refused && !is_from_environment(node) {
            return Err(NO_LITERAL.to_owned());
        }
        checked(text.trim(), "the value").map(Secret::new)
    }
}

/// The secret that a text refers to; `None` if it is no reference.
///
/// # Errors
///
/// Why it cannot be had, without anything of it.
pub(crate) fn follow(
    text: &str,
    surroundings: &dyn Surroundings,
) -> Result<Option<Secret>, String> {
    let (word, reference) = split_word(text);
    let (value, from) = if let Some(name) = reference.strip_prefix("env:") {
        let from = format!("the environment variable `{}`", shown(name));
        let value = surroundings.variable(name);
        (value.ok_or_else(|| format!("{from} is not set"))?, from)
    } else if let Some(path) = reference.strip_prefix("file:") {
        let from = format!("the file `{}`", shown(path));
        let bytes = surroundings.read(Path::new(path));
        let bytes = bytes.map_err(|error| format!("{from} cannot be read: {error}"))?;
        let value = String::from_utf8(bytes).map_err(|_| format!("{from} is not UTF-8"))?;
        (value, from)
    } else {
        return Ok(None);
    };
    // Editors and `echo` end a file with a newline that nobody means.
    let value = checked(value.trim(), &from)?;
    Ok(Some(Secret::new(match word {
        "" => value.to_owned(),
        word => format!("{word} {value}"),
    })))
}

const NO_LITERAL: &str = "a secret must not be written out, expected `env:NAME` or `file:PATH`";

/// The environment variable that a text refers to, if it does.
pub(crate) fn referenced_variable(text: &str) -> Option<&str> {
    split_word(text).1.strip_prefix("env:")
}

/// `Bearer env:KEY` has a word before the reference.
pub(super) fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    match text.split_once(' ') {
        Some((word, rest))
            if rest.trim_start().starts_with("env:") || rest.trim_start().starts_with("file:") =>
        {
            (word, rest.trim_start())
        }
        _ => ("", text),
    }
}

fn is_from_environment(node: &Node) -> bool {
    matches!(
        (&node.place, &node.value),
        (Place::Variable(_), Value::Any(_))
    )
}

fn checked<'a>(value: &'a str, from: &str) -> Result<&'a str, String> {
    if value.is_empty() {
        return Err(format!("{from} is empty, expected a value"));
    }
    if value.len() > MOST_BYTES {
        return Err(format!(
            "{from} is longer than {MOST_BYTES} bytes, expected a secret"
        ));
    }
    // What stands for bytes of a variable that are no text.
    if value.contains('\u{fffd}') {
        return Err(format!("{from} is not UTF-8"));
    }
    // It travels in a header, where a line break would begin another one.
    if value.chars().any(char::is_control) {
        return Err(format!(
            "{from} has control characters, expected one line of text"
        ));
    }
    Ok(value)
}

/// Headers of this size are refused by every server.
const MOST_BYTES: usize = 64 << 10;

fn shown(reference: &str) -> String {
    super::problem::shortened(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_files_but_no_other_folder() {
        let check = |pattern: &str, reference: &str, matches: bool| {
            let pattern: SecretPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(reference), matches, "{reference}");
        };
        check("env:KEY", "env:KEY", true);
        check("env:KEY", "env:KEY2", false);
        check("env:LLM_*_KEY", "Bearer env:LLM_A_KEY", true);
        check("env:LLM_*_KEY", "env:LLM_A_TOKEN", false);
        check("file:/run/secrets/*", "file:/run/secrets/b", true);
        check("file:/run/secrets/*", "file:/run/secrets/a/b", false);
        check("file:/run/secrets/*", "file:/run/secrets/..", false);
        check("file:/run/*/b", "file:/run/../b", false);
        check("env:*", "file:/etc/passwd", false);
    }

    #[test]
    fn refuses_patterns_that_name_no_source() {
        for bad in ["", "*", "env:", "file:", "KEY", "ENV:KEY"] {
            assert!(bad.parse::<SecretPattern>().is_err(), "{bad}");
        }
    }
}
