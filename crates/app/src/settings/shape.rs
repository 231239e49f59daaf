//! Does a file have only settings that exist, each with a value of the right kind?
//!
//! Whatever does not is reported, and taken out of the tree or marked, so that everything after it
//! reads only what has the right shape and each problem is told once.

use policy::hosts::HostPattern;
use policy::suggest::suggestion;

use super::document::{Entry, Node, Table, Value};
use super::problem::{Place, Problem, join};
use super::table::{Kind, Name, Section};

/// Takes out of `table` what does not belong into `section`, and marks values of a wrong kind.
pub(crate) fn check(table: &mut Table, section: &Section, path: &str, problems: &mut Vec<Problem>) {
    table.entries.retain(|name, entry| {
        let path = join(path, name);
        match (section.key(name), section.named) {
            (Some(key), _) => check_kind(&mut entry.node, key.kind, &path, problems),
            (None, Some(named)) if matches!(entry.node.value, Value::Table(_)) => {
                problems.extend(wrong_name(name, named.name, &path, entry));
                check_kind(&mut entry.node, Kind::Table(named.section), &path, problems);
            }
            (None, _) => {
                problems.push(unknown(name, section, &path, entry));
                return false;
            }
        }
        true
    });
}

fn check_kind(node: &mut Node, kind: Kind, path: &str, problems: &mut Vec<Problem>) {
    match (&mut node.value, kind) {
        (Value::Any(text), Kind::List(_)) => node.value = split(text, &node.place),
        (Value::Table(table), Kind::Table(section)) => check(table, section, path, problems),
        (Value::List(list), Kind::Tables(section)) => {
            check_list(list, Kind::Table(section), path, problems);
        }
        (Value::List(list), Kind::List(kind)) => check_list(list, *kind, path, problems),
        (Value::Table(table), Kind::Headers) => {
            for (name, entry) in &mut table.entries {
                check_kind(&mut entry.node, Kind::Secret, &join(path, name), problems);
            }
        }
        (value, kind) if fits(value, kind) => {}
        (value, kind) => {
            problems.push(wrong_kind(value, kind, &node.place, path));
            node.value = Value::Wrong;
        }
    }
}

fn check_list(list: &mut [Node], kind: Kind, path: &str, problems: &mut Vec<Problem>) {
    for (index, node) in list.iter_mut().enumerate() {
        check_kind(node, kind, &format!("{path}[{index}]"), problems);
    }
}

fn wrong_kind(value: &Value, kind: Kind, place: &Place, path: &str) -> Problem {
    match (value, kind) {
        (Value::Any(_), _) => Problem::about(place, path, "is a section, expected a setting in it"),
        // What stands where a secret should be may be one.
        (value, Kind::Secret) => {
            let what = format!("is {}, expected {}", value.kind(), kind.expected());
            Problem::about(place, path, what)
        }
        (value, kind) => Problem::expected(place, path, value.shown(), kind.expected()),
    }
}

fn fits(value: &Value, kind: Kind) -> bool {
    if matches!(value, Value::Any(_)) {
        return kind.is_value();
    }
    match kind {
        Kind::Switch => matches!(value, Value::Switch(_)),
        Kind::Whole => matches!(value, Value::Whole(_)),
        Kind::Number => matches!(value, Value::Whole(_) | Value::Fraction(_)),
        Kind::Duration
        | Kind::Text
        | Kind::Choice(_)
        | Kind::Size
        | Kind::Limit
        | Kind::Address
        | Kind::Url
        | Kind::Path
        | Kind::Secret
        | Kind::NameOf(_) => matches!(value, Value::Text(_)),
        Kind::List(_) | Kind::Headers | Kind::Table(_) | Kind::Tables(_) => false,
    }
}

/// A list in the environment is its parts with commas between.
fn split(text: &str, place: &Place) -> Value {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    let parts = inner.split(',').map(|part| part.trim().trim_matches('"'));
    let parts = parts.filter(|part| !part.is_empty()).map(|part| Node {
        place: place.clone(),
        value: Value::Any(part.to_owned()),
    });
    Value::List(parts.collect())
}

fn wrong_name(name: &str, kind: Name, path: &str, entry: &Entry) -> Option<Problem> {
    let expected = match kind {
        Name::Word if is_word(name) => return None,
        Name::Word => A_WORD,
        Name::Host => match name.parse::<HostPattern>() {
            Ok(_) => return None,
            Err(expected) => expected,
        },
    };
    let what = format!("wrong name, expected {expected}");
    Some(Problem::about(&entry.place, path, what))
}

const A_WORD: &str = "up to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";

fn is_word(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn unknown(name: &str, section: &Section, path: &str, entry: &Entry) -> Problem {
    let names: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
    let what = match (suggestion(name, &names), section.named) {
        (Some(close), _) => format!("unknown setting; did you mean `{close}`?"),
        (None, Some(_)) if names.is_empty() => "expected a table".to_owned(),
        (None, _) => format!("unknown setting, expected one of: {}", names.join(", ")),
    };
    Problem::about(&entry.place, path, what)
}

impl Kind {
    /// What a value of this kind is, for a message.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Switch => "`true` or `false`".to_owned(),
            Self::Whole => "a whole number".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::Duration => {
                "a string with a number and a unit such as `\"500ms\"`, `\"30s\"` or `\"5m\"`"
                    .to_owned()
            }
            Self::Text | Self::Path => "a string".to_owned(),
            Self::Choice(words) => format!("one of `{}`", words.join("`, `")),
            Self::Size => "a string such as `\"64KiB\"`, `\"1MiB\"` or `\"none\"`".to_owned(),
            Self::Limit => "a string such as `\"10/1s\"` or `\"5000/1d\"`".to_owned(),
            Self::Address => "a string such as `\"127.0.0.1:7070\"`".to_owned(),
            Self::Url => "a string such as `\"https://api.example.com/v1\"`".to_owned(),
            Self::Secret => "a string such as `\"env:NAME\"` or `\"file:PATH\"`".to_owned(),
            Self::NameOf(section) => {
                format!("the name of a section `[{section}.NAME]`, as a string")
            }
            Self::List(kind) => format!("a list, each {}", kind.expected()),
            Self::Headers => "a table of header names and values".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables(_) => "a list of tables".to_owned(),
        }
    }
}
