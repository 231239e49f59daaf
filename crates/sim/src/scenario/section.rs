//! Sections of a scenario file: values with their places, problems kept and reading on.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use policy::duration;
use policy::setting::{self, SettingError, SettingErrors};
use policy::suggest::suggestion;

use crate::written::document::{Node, Table, Value};
use crate::written::problem::{Place, Problem, join};

/// What is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(super) fn report(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    pub(super) fn into_inner(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

/// One section.
#[derive(Clone, Debug)]
pub(super) struct Section<'a> {
    problems: &'a Problems,
    path: String,
    place: Place,
    table: &'a Table,
}

impl<'a> Section<'a> {
    pub(super) fn root(problems: &'a Problems, table: &'a Table, place: Place) -> Self {
        Self {
            problems,
            path: String::new(),
            place,
            table,
        }
    }

    /// Reports every name that is none of these.
    pub(super) fn allow(&self, names: &[&str]) {
        for (name, entry) in &self.table.entries {
            if names.contains(&name.as_str()) {
                continue;
            }
            let what = match suggestion(name, names) {
                Some(close) => format!("unknown setting; did you mean `{close}`?"),
                None => format!("unknown setting, expected one of: {}", names.join(", ")),
            };
            let key = join(&self.path, name);
            self.problems
                .report(Problem::about(&entry.place, key, what));
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.table.get(name).is_some()
    }

    pub(super) fn is_whole(&self, name: &str) -> bool {
        let node = self.table.get(name);
        node.is_some_and(|node| matches!(node.value, Value::Whole(_)))
    }

    /// The section within; a problem if it is missing or something else.
    pub(super) fn section(&self, name: &str) -> Option<Self> {
        self.require(name, "a table");
        let entry = self.table.entries.get(name)?;
        self.within(&entry.node, join(&self.path, name), &entry.place)
    }

    /// The tables of a list of tables; none if there is no such list.
    pub(super) fn sections(&self, name: &str) -> Vec<Self> {
        let Some(node) = self.table.get(name) else {
            return Vec::new();
        };
        let Value::List(list) = &node.value else {
            self.expected(name, "a list of tables");
            return Vec::new();
        };
        let path = join(&self.path, name);
        let nodes = list.iter().enumerate();
        nodes
            .filter_map(|(index, node)| self.within(node, format!("{path}[{index}]"), &node.place))
            .collect()
    }

    fn within(&self, node: &'a Node, path: String, place: &Place) -> Option<Self> {
        let Value::Table(table) = &node.value else {
            let problem = Problem::expected(&node.place, path, node.value.shown(), "a table");
            self.problems.report(problem);
            return None;
        };
        Some(Self {
            problems: self.problems,
            path,
            place: place.clone(),
            table,
        })
    }

    /// Reports a value that is not there.
    pub(super) fn require(&self, name: &str, expected: impl fmt::Display) {
        if !self.has(name) {
            let what = format!("is missing, expected {expected}");
            let problem = Problem::about(&self.place, join(&self.path, name), what);
            self.problems.report(problem);
        }
    }

    /// Says of a value what would have been right.
    pub(super) fn expected(&self, name: &str, expected: impl fmt::Display) {
        if let Some(node) = self.table.get(name) {
            let key = join(&self.path, name);
            let problem = Problem::expected(&node.place, key, node.value.shown(), expected);
            self.problems.report(problem);
        }
    }

    /// A string; `None` if there is none or a wrong one.
    pub(super) fn text<T, E: fmt::Display>(
        &self,
        name: &str,
        judge: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = &self.table.get(name)?.value;
        match (judge(value.text().unwrap_or_default().trim()), value) {
            (Ok(right), Value::Text(_)) => Some(right),
            (Ok(_), _) => self.refuse(name, "a string"),
            // Of what is no string either, the best that can be said is what would be right.
            (Err(expected), _) => self.refuse(name, expected),
        }
    }

    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        self.text(name, duration::parse)
    }

    pub(super) fn positive_duration(&self, name: &str) -> Option<Duration> {
        self.text(name, setting::positive)
    }

    pub(super) fn switch(&self, name: &str) -> Option<bool> {
        match self.table.get(name)?.value {
            Value::Switch(switch) => Some(switch),
            _ => self.refuse(name, "`true` or `false`"),
        }
    }

    /// A number for which `fits` holds.
    pub(super) fn number(
        &self,
        name: &str,
        fits: impl Fn(f64) -> bool,
        expected: &str,
    ) -> Option<f64> {
        let number = match &self.table.get(name)?.value {
            Value::Whole(text) | Value::Fraction(text) => text.replace('_', "").parse().ok(),
            _ => None,
        };
        match number.filter(|number| fits(*number)) {
            Some(number) => Some(number),
            None => self.refuse(name, expected),
        }
    }

    pub(super) fn whole(&self, name: &str, least: u64, most: u64) -> Option<u64> {
        let judged = match &self.table.get(name)?.value {
            Value::Whole(text) => setting::whole(text, least, most),
            _ => Err(format!("a whole number from {least} to {most}")),
        };
        match judged {
            Ok(number) => Some(number),
            Err(expected) => self.refuse(name, expected),
        }
    }

    fn refuse<T>(&self, name: &str, expected: impl fmt::Display) -> Option<T> {
        self.expected(name, expected);
        None
    }

    /// Lets a policy judge its own settings, and fits them together.
    pub(super) fn options<O, S>(
        &self,
        names: &[&str],
        mut options: O,
        set: impl Fn(&mut O, &str, &str) -> Result<(), SettingError>,
        build: impl FnOnce(O) -> Result<S, SettingErrors>,
    ) -> Option<S> {
        let mut is_right = true;
        for name in names {
            let Some(node) = self.table.get(name) else {
                continue;
            };
            if let Err(error) = set(&mut options, name, &joined(&node.value)) {
                self.expected(name, error.expected);
                is_right = false;
            }
        }
        match build(options) {
            Ok(settings) => is_right.then_some(settings),
            Err(errors) => {
                errors.iter().for_each(|error| self.contradiction(error));
                None
            }
        }
    }

    fn contradiction(&self, error: &SettingError) {
        let node = self.table.get(&error.setting);
        let place = node.map_or(&self.place, |node| &node.place);
        let key = join(&self.path, &error.setting);
        let problem = Problem::expected(place, key, &error.value, &error.expected);
        self.problems.report(problem);
    }
}

/// A scalar as it is, a list with commas between its parts, as policies read them.
fn joined(value: &Value) -> String {
    match value {
        Value::List(list) => {
            let parts: Vec<&str> = list.iter().map(|node| node.value.shown()).collect();
            parts.join(",")
        }
        value => value.shown().to_owned(),
    }
}
