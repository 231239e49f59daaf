//! Reads sections of the tree into values that mean something, and keeps what is wrong.
//!
//! Reading never stops at a problem: it is written down, the default takes the value's place, and
//! the rest is read on. Whoever began the reading looks at the problems at the end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use policy::setting::{SettingError, SettingErrors};
use url::Url;

use super::document::{Entry, Node, Table, Value};
use super::problem::{Place, Problem, join};
use super::surroundings::Surroundings;
use super::value;

/// What all sections share while they are read.
pub(crate) struct Reader<'a> {
    pub(crate) surroundings: &'a dyn Surroundings,
    problems: RefCell<Vec<Problem>>,
    /// References to secrets that were followed, without a word before them.
    references: RefCell<BTreeSet<String>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(surroundings: &'a dyn Surroundings, problems: Vec<Problem>) -> Self {
        Self {
            surroundings,
            problems: RefCell::new(problems),
            references: RefCell::default(),
        }
    }

    pub(crate) fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(crate) fn note_reference(&self, reference: &str) {
        self.references.borrow_mut().insert(reference.to_owned());
    }

    pub(crate) fn references(&self) -> BTreeSet<String> {
        self.references.borrow().clone()
    }

    pub(crate) fn problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

/// One section of the tree.
#[derive(Clone)]
pub(crate) struct Section<'a> {
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) path: String,
    /// Where it begins.
    pub(crate) place: Place,
    table: Option<&'a Table>,
}

impl<'a> Section<'a> {
    pub(crate) fn root(reader: &'a Reader<'a>, table: &'a Table) -> Self {
        Self {
            reader,
            path: String::new(),
            place: Place::Default,
            table: Some(table),
        }
    }

    /// The section within, empty if it is not written.
    pub(crate) fn section(&self, name: &str) -> Self {
        let entry = self.table.and_then(|table| table.entries.get(name));
        self.within(name, entry)
    }

    /// Every section within that is a table, by name.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&'a str, Self)> + '_ {
        let entries = self.table.into_iter().flat_map(|table| &table.entries);
        entries
            .filter(|(_, entry)| matches!(entry.node.value, Value::Table(_)))
            .map(|(name, entry)| (name.as_str(), self.within(name, Some(entry))))
    }

    fn within(&self, name: &str, entry: Option<&'a Entry>) -> Self {
        let table = entry.and_then(|entry| match &entry.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        });
        Self {
            reader: self.reader,
            path: join(&self.path, name),
            place: entry.map_or(Place::Default, |entry| entry.place.clone()),
            table,
        }
    }

    /// The tables of a list of tables.
    pub(crate) fn tables(&self, name: &str) -> Vec<Self> {
        let Some(Value::List(list)) = self.node(name).map(|node| &node.value) else {
            return Vec::new();
        };
        let path = self.key(name);
        let tables = list.iter().enumerate().filter_map(|(index, node)| {
            let Value::Table(table) = &node.value else {
                return None;
            };
            Some(Self {
                reader: self.reader,
                path: format!("{path}[{index}]"),
                place: node.place.clone(),
                table: Some(table),
            })
        });
        tables.collect()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&'a Node> {
        self.table.and_then(|table| table.get(name))
    }

    /// Everything written in this section itself, in no particular order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&'a str, &'a Node)> {
        let entries = self.table.into_iter().flat_map(|table| &table.entries);
        entries.map(|(name, entry)| (name.as_str(), &entry.node))
    }

    /// The full path of a setting.
    pub(crate) fn key(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Where a setting is written, or else its section.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        let written = self.node(name).map(|node| node.place.clone());
        written.unwrap_or_else(|| self.place.clone())
    }

    /// Reads one value; `None` if it is not written or not right.
    pub(crate) fn read<T, E: fmt::Display>(
        &self,
        name: &str,
        judge: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let node = self.node(name)?;
        self.judge(node, &self.key(name), judge)
    }

    /// Reads a value that must be there.
    pub(crate) fn require<T, E: fmt::Display>(
        &self,
        name: &str,
        judge: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        if self.node(name).is_none() {
            self.missing(name);
        }
        self.read(name, judge)
    }

    pub(crate) fn missing(&self, name: &str) {
        let problem = Problem::about(&self.place, self.key(name), "is missing, expected a value");
        self.reader.report(problem);
    }

    /// Reads a URL that must be there. In a message it is shown without what may be secret.
    pub(crate) fn require_url(&self, name: &str) -> Option<Url> {
        let Some(node) = self.node(name) else {
            self.missing(name);
            return None;
        };
        let text = node.value.text()?;
        let url = value::http_url(text.trim());
        let report = |expected: &&str| {
            let shown = value::shown_url(text);
            let problem = Problem::expected(&node.place, self.key(name), shown, expected);
            self.reader.report(problem);
        };
        url.inspect_err(report).ok()
    }

    /// Reads a list, each part by itself; `None` if it is not written. Wrong parts are left out.
    pub(crate) fn list<T, E: fmt::Display>(
        &self,
        name: &str,
        judge: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let Value::List(list) = &self.node(name)?.value else {
            return None;
        };
        let path = self.key(name);
        let parts = list.iter().enumerate();
        let parts =
            parts.filter_map(|(at, node)| self.judge(node, &format!("{path}[{at}]"), &judge));
        Some(parts.collect())
    }

    fn judge<T, E: fmt::Display>(
        &self,
        node: &Node,
        path: &str,
        judge: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = node.value.text()?;
        match judge(text.trim()) {
            Ok(value) => Some(value),
            Err(expected) => {
                let problem = Problem::expected(&node.place, path, text, expected);
                self.reader.report(problem);
                None
            }
        }
    }

    /// Says of a written value what would have been right.
    pub(crate) fn expected(&self, name: &str, expected: impl fmt::Display) {
        let value = self.node(name).map(|node| node.value.shown());
        let place = self.place_of(name);
        self.reader.report(match value {
            Some(value) => Problem::expected(&place, self.key(name), value, expected),
            None => Problem::about(&place, self.key(name), format!("expected {expected}")),
        });
    }

    /// Sets the options of a policy, which judges each value, from the settings of these names.
    pub(crate) fn fill(
        &self,
        names: &[&str],
        mut set: impl FnMut(&str, &str) -> Result<(), SettingError>,
    ) {
        for (name, node) in self.nodes().filter(|(name, _)| names.contains(name)) {
            let Some(text) = joined(&node.value) else {
                continue;
            };
            if let Err(error) = set(name, &text) {
                let shown = node.value.text().map_or(&*text, |text| text);
                let problem = Problem::expected(&node.place, self.key(name), shown, error.expected);
                self.reader.report(problem);
            }
        }
    }

    /// Takes what a policy made of its options, or its contradictions.
    pub(crate) fn built<T>(&self, built: Result<T, SettingErrors>) -> Option<T> {
        self.built_over(built, None)
    }

    /// The same over what an outer section has, whose own contradictions were `told` there.
    pub(crate) fn built_over<T>(
        &self,
        built: Result<T, SettingErrors>,
        told: Option<&SettingErrors>,
    ) -> Option<T> {
        let errors = match built {
            Ok(settings) => return Some(settings),
            Err(errors) => errors,
        };
        let is_told = |error| told.is_some_and(|told| told.iter().any(|known| known == error));
        for error in errors.iter().filter(|error| !is_told(*error)) {
            let key = self.key(&error.setting);
            let place = self.place_of_contradiction(error);
            let problem = Problem::expected(&place, key, &error.value, &error.expected);
            self.reader.report(problem);
        }
        None
    }

    /// Where the setting is written, or else the other one that it does not fit with.
    fn place_of_contradiction(&self, error: &SettingError) -> Place {
        let is_other = |name: &str| error.expected.contains(&format!("`{name}`"));
        let mut others = self.nodes().filter(|(name, _)| is_other(name));
        match (self.node(&error.setting), others.next()) {
            (Some(node), _) | (None, Some((_, node))) => node.place.clone(),
            (None, None) => self.place.clone(),
        }
    }
}

impl fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Section({})", self.path)
    }
}

/// A scalar as it is, a list with commas between its parts, as policies read them; `None` if any
/// of it is wrong already.
fn joined(value: &Value) -> Option<String> {
    match value {
        Value::List(list) => {
            let parts = list.iter().map(|node| node.value.text());
            let parts: Option<Vec<&str>> = parts.collect();
            parts.map(|parts| parts.join(","))
        }
        value => value.text().map(str::to_owned),
    }
}
