//! Sections: the allowed settings and tables of a file.

use policy::hosts::HostPattern;
use policy::setting::Setting;
use policy::suggest::suggestion;

use crate::document::{Entry, Node, Table, Value};
use crate::problem::{Problem, join};

/// A table of a file: `[server]`, `[pool.NAME]`, one entry of `[[pool.NAME.rule]]`.
#[derive(Debug)]
pub struct Section {
    /// Its path, with user-chosen names in capitals.
    pub path: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its settings, in groups.
    pub settings: &'static [&'static [Setting]],
    /// The tables in it.
    pub tables: &'static [Inner],
    /// Tables with user-chosen names, if allowed.
    pub named: Option<Named>,
}

/// One or more tables in a section.
#[derive(Debug)]
pub struct Inner {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// A description if it is written in one line; otherwise its section has it.
    pub about: &'static str,
    /// Its one-line form in the default file; empty if it has its own heading.
    pub example: &'static str,
}

/// The shape of a table in a section.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// The settings of a section.
    One(&'static Section),
    /// A list of tables, each with the settings of a section.
    List(&'static Section),
    /// Any names, each with a string.
    Map,
}

/// Tables with user-chosen names.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The allowed names.
    pub name: Name,
    /// The section of each table.
    pub section: &'static Section,
}

/// The allowed names of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A word of ASCII letters, digits, `-`, `_` and `.`.
    Word,
    /// A host, or `*.` and a host.
    Host,
}

impl Section {
    /// A section with only settings.
    pub const fn new(
        path: &'static str,
        about: &'static str,
        settings: &'static [&'static [Setting]],
    ) -> Self {
        Self {
            path,
            about,
            settings,
            tables: &[],
            named: None,
        }
    }

    /// Adds inner tables.
    #[must_use]
    pub const fn with(self, tables: &'static [Inner]) -> Self {
        Self { tables, ..self }
    }

    /// Adds tables with user-chosen names.
    #[must_use]
    pub const fn named(self, name: Name, section: &'static Self) -> Self {
        let named = Some(Named { name, section });
        Self { named, ..self }
    }

    /// All settings, group by group.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.settings.iter().copied().flatten()
    }

    /// The setting with this name.
    pub fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.settings().find(|setting| setting.name == name)
    }

    /// The table with this name.
    pub fn table(&self, name: &str) -> Option<&'static Inner> {
        self.tables.iter().find(|inner| inner.name == name)
    }

    /// The section of the table with this name.
    pub fn inner(&self, name: &str) -> Option<&'static Self> {
        match self.table(name).map(|inner| inner.shape) {
            Some(Shape::One(section) | Shape::List(section)) => Some(section),
            Some(Shape::Map) => None,
            None => self.named.map(|named| named.section),
        }
    }

    /// Reports every unknown name in `table`, and user-chosen names that are not allowed.
    pub fn check_names(&self, table: &Table, path: &str, problems: &mut Vec<Problem>) {
        for (name, entry) in &table.entries {
            let path = join(path, name);
            if self.setting(name).is_some() {
                continue;
            }
            match (self.inner(name), self.table(name), &entry.node.value) {
                (
                    _,
                    Some(Inner {
                        shape: Shape::Map, ..
                    }),
                    _,
                ) => {}
                (Some(section), Some(_), value) => section.check_inner(value, &path, problems),
                (Some(section), None, value @ Value::Table(_)) => {
                    problems.extend(self.wrong_name(name, &path, entry));
                    section.check_inner(value, &path, problems);
                }
                _ => problems.push(self.unknown(name, &path, entry)),
            }
        }
    }

    fn check_inner(&self, value: &Value, path: &str, problems: &mut Vec<Problem>) {
        match value {
            Value::Table(table) => self.check_names(table, path, problems),
            Value::List(nodes) => {
                for (index, Node { value, .. }) in nodes.iter().enumerate() {
                    self.check_inner(value, &format!("{path}[{index}]"), problems);
                }
            }
            // Reading it reports that it is not a table.
            _ => {}
        }
    }

    fn unknown(&self, name: &str, path: &str, entry: &Entry) -> Problem {
        let names: Vec<&str> = self
            .settings()
            .map(|setting| setting.name)
            .chain(self.tables.iter().map(|inner| inner.name))
            .collect();
        let what = if names.is_empty() {
            "expected a table".to_owned()
        } else {
            unknown(name, &names)
        };
        Problem::about(&entry.location, path, what)
    }

    fn wrong_name(&self, name: &str, path: &str, entry: &Entry) -> Option<Problem> {
        let expected = match self.named?.name {
            Name::Word if is_word(name) => return None,
            Name::Word => A_WORD,
            Name::Host => name.parse::<HostPattern>().err()?.expected(),
        };
        let what = format!("wrong name, expected {expected}");
        Some(Problem::about(&entry.location, path, what))
    }
}

/// The message for an unknown name.
pub(crate) fn unknown(name: &str, names: &[&str]) -> String {
    match suggestion(name, names) {
        Some(close) => format!("unknown setting; did you mean `{close}`?"),
        None => format!("unknown setting, expected one of: {}", names.join(", ")),
    }
}

const A_WORD: &str = "up to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";

fn is_word(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
