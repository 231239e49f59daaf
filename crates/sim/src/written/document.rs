//! A TOML file as a tree in which everything knows where it is written.
//!
//! The tree is our own and not the parser's, because values from the environment and from flags
//! are laid over those of the file and keep their own places.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem};

/// A value and where it is written.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where.
    pub place: Place,
    /// What.
    pub value: Value,
}

/// A value as it is written.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string of the file.
    Text(String),
    /// A number of the file, as text without `_`.
    Whole(String),
    /// A number of the file with a fraction or an exponent, or one of `inf` and `nan`.
    Fraction(String),
    /// `true` or `false`.
    Switch(bool),
    /// A date or time; no setting is one.
    Date(String),
    /// Text of the environment or of a flag, which may stand for a value of any kind.
    Any(String),
    /// A list.
    List(Vec<Node>),
    /// A table.
    Table(Table),
    /// A value of a wrong kind, which was reported: it counts as written and says nothing.
    Wrong,
}

/// A table: values by their names.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// By name.
    pub entries: BTreeMap<String, Entry>,
}

/// A value with the place of its name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where its name is.
    pub place: Place,
    /// The value.
    pub node: Node,
}

impl Table {
    /// The table inside of this one, made if it is not there; `None` if something else is there.
    pub fn inner(&mut self, name: &str, place: &Place) -> Option<&mut Self> {
        let entry = self
            .entries
            .entry(name.to_owned())
            .or_insert_with(|| Entry {
                place: place.clone(),
                node: Node {
                    place: place.clone(),
                    value: Value::Table(Self::default()),
                },
            });
        match &mut entry.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Puts a value under a name, in place of what was there.
    pub fn insert(&mut self, name: &str, node: Node) {
        let entry = Entry {
            place: node.place.clone(),
            node,
        };
        self.entries.insert(name.to_owned(), entry);
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries.get(name).map(|entry| &entry.node)
    }
}

impl Value {
    /// What it is, for a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Whole(_) => "a whole number",
            Self::Fraction(_) => "a number",
            Self::Switch(_) => "a switch",
            Self::Date(_) => "a date",
            Self::Any(_) => "text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Wrong => "something else",
        }
    }

    /// A scalar as text; `None` for lists and tables.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text)
            | Self::Whole(text)
            | Self::Fraction(text)
            | Self::Date(text)
            | Self::Any(text) => Some(text),
            Self::Switch(true) => Some("true"),
            Self::Switch(false) => Some("false"),
            Self::List(_) | Self::Table(_) | Self::Wrong => None,
        }
    }

    /// For a message: a scalar itself, or what it is.
    pub fn shown(&self) -> &str {
        self.text().unwrap_or_else(|| self.kind())
    }
}

/// Reads a file. What can be read of a broken one is returned with its problems; `is_whole` says
/// whether it makes sense to judge it any further.
pub fn parse(file: &str, bytes: &[u8], problems: &mut Vec<Problem>) -> Parsed {
    let places = Places::new(file, bytes);
    if bytes.len() > MOST_BYTES {
        let what = format!(
            "the file has {} bytes, expected at most {MOST_BYTES}",
            bytes.len()
        );
        problems.push(Problem::about(&places.at(0), "", what));
        return Parsed::default();
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let place = places.at(error.valid_up_to());
            problems.push(Problem::about(&place, "", "expected text in UTF-8"));
            return Parsed::default();
        }
    };
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut is_whole = true;
    for error in &errors {
        // A name that is given twice leaves the rest as it was meant; anything else does not.
        is_whole &= error.message() == DUPLICATE;
        problems.push(syntax(error, text, &places));
    }
    Parsed {
        table: table(root.into_inner(), &places),
        is_whole,
    }
}

/// What was read of a file.
#[derive(Debug, Default)]
pub struct Parsed {
    /// What could be read.
    pub table: Table,
    /// Does it make sense to judge it any further?
    pub is_whole: bool,
}

/// A settings file is written by hand; this is room for ten thousand hosts.
const MOST_BYTES: usize = 4 << 20;

const DUPLICATE: &str = "duplicate key";

fn syntax(error: &toml::de::Error, text: &str, places: &Places<'_>) -> Problem {
    let span = error.span().unwrap_or(0..0);
    let place = places.at(span.start);
    if error.message() == DUPLICATE {
        let name = text.get(span).unwrap_or_default();
        return Problem::about(&place, name, "is given twice, expected once");
    }
    // The parser's message may have several lines; it never repeats what is in the file.
    let message = error.message().replace('\n', ", ");
    Problem::about(&place, "", format!("not TOML: {message}"))
}

fn table(table: DeTable<'_>, places: &Places<'_>) -> Table {
    let entries = table.into_iter().map(|(key, value)| {
        let place = places.at(key.span().start);
        let node = node(value, places);
        (key.into_inner().into_owned(), Entry { place, node })
    });
    Table {
        entries: entries.collect(),
    }
}

fn node(value: Spanned<DeValue<'_>>, places: &Places<'_>) -> Node {
    let place = places.at(value.span().start);
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
            Value::List(list.into_iter().map(|value| node(value, places)).collect())
        }
        DeValue::Table(inner) => Value::Table(table(inner, places)),
    };
    Node { place, value }
}

/// From bytes of a file to lines and columns.
struct Places<'a> {
    file: Arc<str>,
    bytes: &'a [u8],
    /// Where each line starts.
    lines: Vec<usize>,
}

impl<'a> Places<'a> {
    fn new(file: &str, bytes: &'a [u8]) -> Self {
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
        Self {
            file: file.into(),
            bytes,
            lines: lines.collect(),
        }
    }

    fn at(&self, offset: usize) -> Place {
        let offset = offset.min(self.bytes.len());
        // The first line starts at 0, so at least one line starts at or before any offset.
        let line = self.lines.partition_point(|start| *start <= offset);
        let before = &self.bytes[self.lines[line - 1]..offset];
        Place::File {
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
        let parsed = parse("f", text.as_bytes(), &mut problems);
        (
            parsed.table,
            problems.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn values_know_their_lines_and_columns() {
        let (table, problems) =
            parsed("# ä\n[gate]\nmax_wait = \"5s\"\nlimits = [\n  \"ä\", 0x10]\n");
        assert!(problems.is_empty());
        let Value::Table(gate) = &table.get("gate").unwrap().value else {
            panic!("a table");
        };
        let place = |name: &str| gate.get(name).unwrap().place.to_string();
        assert_eq!(place("max_wait"), "f:3:12");
        let Value::List(limits) = &gate.get("limits").unwrap().value else {
            panic!("a list");
        };
        assert_eq!(limits[1].place.to_string(), "f:5:8");
        assert_eq!(limits[1].value.shown(), "16");
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_place() {
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
