//! Secrets: references to them, and a type that never shows them.
//!
//! A settings file is copied, committed and pasted into tickets, so a secret in it is written as
//! `env:NAME` or `file:PATH`, after a word such as `Bearer` if need be: `Bearer env:KEY`. The
//! reference is followed when the settings are read, so that a missing secret is reported before
//! anything starts. A literal secret is refused in the file and in flags, but not in the environment,
//! where it would come from anyway.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use config::Resolve;
use policy::setting::SettingValue;

use super::environment::Environment;

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
    /// Wraps a value.
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

impl fmt::Display for SecretPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

policy::setting_values!(SecretPattern);

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

impl SettingValue for Secret {
    fn read(parts: &[&str]) -> Result<Self, String> {
        Ok(Self::new(parts.concat()))
    }

    fn write(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

/// Follows references, and collects which ones there are.
pub(crate) struct References<'a> {
    environment: &'a dyn Environment,
    found: RefCell<BTreeSet<String>>,
}

impl<'a> References<'a> {
    pub(crate) fn new(environment: &'a dyn Environment) -> Self {
        Self {
            environment,
            found: RefCell::default(),
        }
    }

    /// Those that were followed, without a word before them.
    pub(crate) fn into_found(self) -> BTreeSet<String> {
        self.found.into_inner()
    }
}

impl Resolve for References<'_> {
    fn resolve(&self, text: &str) -> Result<Option<String>, String> {
        let secret = follow(text, self.environment)?;
        if secret.is_some() {
            let reference = split_word(text).1.to_owned();
            self.found.borrow_mut().insert(reference);
        }
        match secret {
            Some(secret) => Ok(Some(secret.expose().to_owned())),
            None => checked(text, "the value").map(|_| None),
        }
    }

    /// Not collected: the admin API must not have a key put into a header.
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let bytes = self.environment.read(Path::new(path));
        bytes.map_err(|error| format!("the file `{}` cannot be read: {error}", shown(path)))
    }
}

/// The secret that a text refers to; `None` if it is no reference.
///
/// # Errors
///
/// Why it cannot be had, without anything of it.
pub(crate) fn follow(text: &str, environment: &dyn Environment) -> Result<Option<Secret>, String> {
    let (word, reference) = split_word(text);
    let (value, from) = if let Some(name) = reference.strip_prefix("env:") {
        let from = format!("the environment variable `{}`", shown(name));
        let value = environment.variable(name);
        (value.ok_or_else(|| format!("{from} is not set"))?, from)
    } else if let Some(path) = reference.strip_prefix("file:") {
        let from = format!("the file `{}`", shown(path));
        let bytes = environment.read(Path::new(path));
        let bytes = bytes.map_err(|error| format!("{from} cannot be read: {error}"))?;
        let value = String::from_utf8(bytes).map_err(|_| format!("{from} is not UTF-8"))?;
        (value, from)
    } else {
        return Ok(None);
    };
    // Editors and `echo` end a file with a newline that is not part of it.
    let value = checked(value.trim(), &from)?;
    Ok(Some(Secret::new(match word {
        "" => value.to_owned(),
        word => format!("{word} {value}"),
    })))
}

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

fn checked<'a>(value: &'a str, from: &str) -> Result<&'a str, String> {
    if value.is_empty() {
        return Err(format!("{from} is empty, expected a value"));
    }
    if value.len() > MAX_BYTES {
        return Err(format!(
            "{from} is longer than {MAX_BYTES} bytes, expected a secret"
        ));
    }
    // The replacement for bytes of a variable that are not UTF-8.
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
const MAX_BYTES: usize = 64 << 10;

fn shown(reference: &str) -> String {
    config::shortened(reference)
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
