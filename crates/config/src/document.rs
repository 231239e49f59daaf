//! A TOML file as a tree of values with locations.
//!
//! Not the parser's own tree, because values from the environment and from flags replace those of
//! the file and have their own locations.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Location, Problem};

/// A value and its location.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it is written.
    pub location: Location,
    /// The value.
    pub value: Value,
}

/// A value as written.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number, as text without `_`.
    Whole(String),
    /// A number with a fraction or exponent, `inf` or `nan`.
    Fraction(String),
    /// `true` or `false`.
    Switch(bool),
    /// A date or time; no setting takes one.
    Date(String),
    /// Text of an environment variable or flag, which may represent any kind of value.
    Untyped(String),
    /// A list.
    List(Vec<Node>),
    /// A table.
    Table(Table),
}

/// A table of values by name.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The values by name.
    pub entries: BTreeMap<String, Entry>,
}

/// A value with the location of its name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where its name is.
    pub location: Location,
    /// The value.
    pub node: Node,
}

impl Table {
    /// The table with this name, created if missing; `None` if there is another value.
    pub fn inner(&mut self, name: &str, location: &Location) -> Option<&mut Self> {
        let entry = self
            .entries
            .entry(name.to_owned())
            .or_insert_with(|| Entry {
                location: location.clone(),
                node: Node {
                    location: location.clone(),
                    value: Value::Table(Self::default()),
                },
            });
        match &mut entry.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Sets a value, replacing any previous one.
    pub fn insert(&mut self, name: &str, node: Node) {
        let entry = Entry {
            location: node.location.clone(),
            node,
        };
        self.entries.insert(name.to_owned(), entry);
    }

    /// The value with this name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries.get(name).map(|entry| &entry.node)
    }
}

impl Value {
    /// Its type, for a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Whole(_) => "a whole number",
            Self::Fraction(_) => "a fraction",
            Self::Switch(_) => "`true` or `false`",
            Self::Date(_) => "a date",
            Self::Untyped(_) => "text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// A scalar as text; `None` for lists and tables.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text)
            | Self::Whole(text)
            | Self::Fraction(text)
            | Self::Date(text)
            | Self::Untyped(text) => Some(text),
            Self::Switch(true) => Some("true"),
            Self::Switch(false) => Some("false"),
            Self::List(_) | Self::Table(_) => None,
        }
    }

    /// For a message: a scalar itself, or its type.
    pub fn shown(&self) -> &str {
        self.text().unwrap_or_else(|| self.kind())
    }
}

/// Parses a file. Duplicate names are reported in `problems` and the rest is read; after any other
/// syntax error there is nothing to read.
///
/// # Errors
///
/// `None` if there is nothing to read; `problems` has the reasons.
pub fn parse(file: &str, bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Table> {
    let locator = Locator::new(file, bytes);
    if bytes.len() > MAX_BYTES {
        let what = format!(
            "the file has {} bytes, expected at most {MAX_BYTES}",
            bytes.len()
        );
        problems.push(Problem::about(&locator.at(0), "", what));
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let location = locator.at(error.valid_up_to());
            problems.push(Problem::about(&location, "", "expected text in UTF-8"));
            return None;
        }
    };
    let (root, errors) = DeTable::parse_recoverable(text);
    problems.extend(errors.iter().map(|error| syntax(error, text, &locator)));
    let is_whole = errors.iter().all(|error| error.message() == DUPLICATE);
    is_whole.then(|| table(root.into_inner(), &locator))
}

/// Parses the value of a flag as it would appear in a file; other text is untyped. All parts have
/// the location `location`.
pub fn parse_value(text: &str, location: &Location) -> Node {
    let line = format!("value = {text}");
    let (root, errors) = DeTable::parse_recoverable(&line);
    let mut values = table(root.into_inner(), &Locator::fixed(location)).entries;
    match values.remove("value") {
        Some(entry) if errors.is_empty() && values.is_empty() => entry.node,
        _ => Node {
            location: location.clone(),
            value: Value::Untyped(text.to_owned()),
        },
    }
}

/// Settings files are written by hand; this is enough for ten thousand hosts.
const MAX_BYTES: usize = 4 << 20;

const DUPLICATE: &str = "duplicate key";

fn syntax(error: &toml::de::Error, text: &str, locator: &Locator<'_>) -> Problem {
    let span = error.span().unwrap_or(0..0);
    let location = locator.at(span.start);
    if error.message() == DUPLICATE {
        let name = text.get(span).unwrap_or_default();
        return Problem::about(&location, name, "is given twice, expected once");
    }
    // The parser's message may have several lines; it never quotes the file.
    let message = error.message().replace('\n', ", ");
    Problem::about(&location, "", format!("not TOML: {message}"))
}

fn table(table: DeTable<'_>, locator: &Locator<'_>) -> Table {
    let entries = table.into_iter().map(|(key, value)| {
        let location = locator.at(key.span().start);
        let node = node(value, locator);
        (key.into_inner().into_owned(), Entry { location, node })
    });
    Table {
        entries: entries.collect(),
    }
}

fn node(value: Spanned<DeValue<'_>>, locator: &Locator<'_>) -> Node {
    let location = locator.at(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(whole) => Value::Whole(whole.to_string()),
            Err(_) => Value::Whole(number.to_string()),
        },
        DeValue::Float(number) => Value::Fraction(number.as_str().to_owned()),
        DeValue::Boolean(switch) => Value::Switch(switch),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(list) => {
            Value::List(list.into_iter().map(|value| node(value, locator)).collect())
        }
        DeValue::Table(inner) => Value::Table(table(inner, locator)),
    };
    Node { location, value }
}

/// Maps byte offsets to lines and columns.
struct Locator<'a> {
    /// The location of everything, if not in a file.
    fixed: Option<&'a Location>,
    file: Arc<str>,
    bytes: &'a [u8],
    /// Where each line starts.
    lines: Vec<usize>,
}

impl<'a> Locator<'a> {
    fn new(file: &str, bytes: &'a [u8]) -> Self {
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
        Self {
            fixed: None,
            file: file.into(),
            bytes,
            lines: lines.collect(),
        }
    }

    fn fixed(location: &'a Location) -> Self {
        Self {
            fixed: Some(location),
            ..Self::new("", &[])
        }
    }

    fn at(&self, offset: usize) -> Location {
        if let Some(location) = self.fixed {
            return location.clone();
        }
        let offset = offset.min(self.bytes.len());
        // The first line starts at 0, so at least one line starts at or before any offset.
        let line = self.lines.partition_point(|start| *start <= offset);
        let before = &self.bytes[self.lines[line - 1]..offset];
        Location::File {
            file: Arc::clone(&self.file),
            line,
            column: String::from_utf8_lossy(before).chars().count() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Table, Vec<String>) {
        let mut problems = Vec::new();
        let table = parse("f", text.as_bytes(), &mut problems).unwrap_or_default();
        (table, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn locates_values_by_line_and_column() {
        let (table, problems) =
            parsed("# ä\n[gate]\nmax_wait = \"5s\"\nlimits = [\n  \"ä\", 0x10]\n");
        assert!(problems.is_empty());
        let Value::Table(gate) = &table.get("gate").unwrap().value else {
            panic!("a table");
        };
        let location = |name: &str| gate.get(name).unwrap().location.to_string();
        assert_eq!(location("max_wait"), "f:3:12");
        let Value::List(limits) = &gate.get("limits").unwrap().value else {
            panic!("a list");
        };
        assert_eq!(limits[1].location.to_string(), "f:5:8");
        assert_eq!(limits[1].value.shown(), "16");
    }

    #[test]
    fn reports_syntax_errors_with_their_location() {
        assert_eq!(
            parsed("[gate]\nmax_rate = 1\nmax_rate = 2\n").1,
            ["f:3:1: `max_rate` is given twice, expected once"]
        );
        let (_, problems) = parsed("[gate\nmax_rate = = 2\n");
        assert!(problems[0].starts_with("f:1:6: not TOML: "), "{problems:?}");
        let mut problems = Vec::new();
        parse("f", b"a = 1\nb = \"\xff\"", &mut problems);
        assert_eq!(problems[0].to_string(), "f:2:6: expected text in UTF-8");
    }
}
