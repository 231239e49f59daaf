//! Reads tables of a file into options and collects problems.
//!
//! Reading never stops at a problem: it is reported, the value counts as missing, and reading
//! continues. The caller checks the problems at the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use policy::setting::{Kind, Options, Setting, SettingError, SettingErrors};
use policy::suggest::suggestion;

use crate::document::{Entry, Node, Table, Value};
use crate::problem::{Location, Problem, join};
use crate::schema;

/// State shared by all tables of a file.
#[derive(Default)]
pub struct Context<'a> {
    resolve: Option<&'a dyn Resolve>,
    problems: RefCell<Vec<Problem>>,
    /// Names of sections that settings may refer to, by group.
    names: RefCell<BTreeMap<&'static str, Vec<String>>>,
}

/// Resolves references to secrets.
pub trait Resolve {
    /// The secret that `text` refers to; `None` if it is not a reference.
    ///
    /// # Errors
    ///
    /// Why it cannot be resolved, without anything secret.
    fn resolve(&self, text: &str) -> Result<Option<String>, String>;

    /// The bytes of the file at `path`.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
}

impl<'a> Context<'a> {
    /// Resolves references through `resolve` and starts with these `problems`.
    pub fn new(resolve: &'a dyn Resolve, problems: Vec<Problem>) -> Self {
        Self {
            resolve: Some(resolve),
            problems: RefCell::new(problems),
            names: RefCell::default(),
        }
    }

    fn allow_names<'n>(&self, group: &'static str, names: impl Iterator<Item = &'n String>) {
        let names = names.cloned().collect();
        self.names.borrow_mut().insert(group, names);
    }

    /// Adds a problem.
    pub fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// All problems: those of the file in order, then those of the environment and of flags.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by(|a, b| a.location.cmp(&b.location));
        problems
    }

    fn check_name(&self, group: &str, name: &str) -> Result<(), String> {
        let names = self.names.borrow();
        let known = names.get(group).map_or(&[][..], Vec::as_slice);
        if known.iter().any(|known| known == name) {
            return Ok(());
        }
        let expected = format!("the name of a section `[{group}.NAME]`");
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        Err(match suggestion(name, &known) {
            Some(close) => format!("{expected}; did you mean `{close}`?"),
            None if known.is_empty() => format!("{expected}; there is none"),
            None => format!("{expected}: {}", known.join(", ")),
        })
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.problems).finish()
    }
}

/// A table of a file, which may be missing.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    context: &'a Context<'a>,
    /// The path of its settings: `pool.llm`.
    pub path: String,
    /// Where it starts.
    pub location: Location,
    table: Option<&'a Table>,
}

impl<'a> Reader<'a> {
    /// The whole file; missing values are reported at `location`.
    pub fn root(context: &'a Context<'a>, table: &'a Table, location: Location) -> Self {
        Self {
            context,
            path: String::new(),
            location,
            table: Some(table),
        }
    }

    /// The inner table with this name; empty if it is missing.
    pub fn table(&self, name: &str) -> Self {
        let entry = self.table.and_then(|table| table.entries.get(name));
        self.within(name, entry)
    }

    /// All inner tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = (&'a str, Self)> + '_ {
        let entries = self.table.into_iter().flat_map(|table| &table.entries);
        entries
            .filter(|(_, entry)| matches!(entry.node.value, Value::Table(_)))
            .map(|(name, entry)| (name.as_str(), self.within(name, Some(entry))))
    }

    fn within(&self, name: &str, entry: Option<&'a Entry>) -> Self {
        let table = entry.and_then(|entry| match &entry.node.value {
            Value::Table(table) => Some(table),
            value => {
                let what = match value {
                    Value::Untyped(_) => "is a section, expected a setting in it".to_owned(),
                    value => format!("expected a table, not {}", value.kind()),
                };
                let problem = Problem::about(&entry.node.location, self.key(name), what);
                self.context.report(problem);
                None
            }
        });
        Self {
            context: self.context,
            path: self.key(name),
            location: entry.map_or(Location::Default, |entry| entry.location.clone()),
            table,
        }
    }

    /// The tables of a list of tables; none if it is missing.
    pub fn list(&self, name: &str) -> Vec<Self> {
        let Some(node) = self.node(name) else {
            return Vec::new();
        };
        let Value::List(nodes) = &node.value else {
            self.expected(name, "a list of tables");
            return Vec::new();
        };
        let tables = nodes.iter().enumerate().filter_map(|(index, node)| {
            let path = format!("{}[{index}]", self.key(name));
            let Value::Table(table) = &node.value else {
                let shown = node.value.shown();
                let problem = Problem::expected(&node.location, path, shown, "a table");
                self.context.report(problem);
                return None;
            };
            Some(Self {
                context: self.context,
                path,
                location: node.location.clone(),
                table: Some(table),
            })
        });
        tables.collect()
    }

    /// Allows settings to refer to these sections of `group`.
    pub fn allow_names<'n>(&self, group: &'static str, names: impl Iterator<Item = &'n String>) {
        self.context.allow_names(group, names);
    }

    /// Whether the table is written.
    pub fn is_written(&self) -> bool {
        self.table.is_some()
    }

    /// Whether it has a value with this name, valid or not.
    pub fn has(&self, name: &str) -> bool {
        self.node(name).is_some()
    }

    /// The value with this name.
    pub fn node(&self, name: &str) -> Option<&'a Node> {
        self.table.and_then(|table| table.get(name))
    }

    /// All values of this table.
    pub fn nodes(&self) -> impl Iterator<Item = (&'a str, &'a Node)> {
        let entries = self.table.into_iter().flat_map(|table| &table.entries);
        entries.map(|(name, entry)| (name.as_str(), &entry.node))
    }

    /// The path of a setting in this table.
    pub fn key(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Reports every other name, for tables without a section definition.
    pub fn allow(&self, names: &[&str]) {
        let entries = self.table.into_iter().flat_map(|table| &table.entries);
        for (name, entry) in entries.filter(|(name, _)| !names.contains(&name.as_str())) {
            let what = schema::unknown(name, names);
            let problem = Problem::about(&entry.location, self.key(name), what);
            self.context.report(problem);
        }
    }

    /// Reads all valid settings of `O`.
    pub fn options<O: Options>(&self) -> O {
        self.options_of(O::default(), |_| true)
    }

    /// Reads only the settings selected by `includes`, on top of `options`.
    pub fn options_of<O: Options>(&self, mut options: O, includes: impl Fn(&str) -> bool) -> O {
        for setting in O::SETTINGS.iter().filter(|setting| includes(setting.name)) {
            let Some(parts) = self.parts(setting) else {
                continue;
            };
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            if let Err(problems) = options.assign(setting.name, &parts) {
                self.built::<()>(Err(problems), None);
            }
        }
        options
    }

    /// The parts of a setting's value, if it is written and valid.
    fn parts(&self, setting: &Setting) -> Option<Vec<String>> {
        let (node, path) = (self.node(setting.name)?, self.key(setting.name));
        let parts = match (&node.value, &setting.kind) {
            (Value::List(nodes), Kind::List { of, .. }) => {
                let parts = nodes.iter().enumerate();
                let parts: Vec<Option<String>> = parts
                    .map(|(index, node)| self.value(node, of, &format!("{path}[{index}]")))
                    .collect();
                parts.into_iter().collect::<Option<Vec<String>>>()?
            }
            (Value::Untyped(text), Kind::List { .. }) => {
                let parts = setting.kind.split(text);
                parts.into_iter().map(str::to_owned).collect()
            }
            (_, kind) => return self.value(node, kind, &path).map(|text| vec![text]),
        };
        let texts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let problems = setting.kind.check(&path, &texts);
        for problem in &problems {
            let SettingError {
                setting,
                value,
                expected,
            } = problem;
            self.context
                .report(Problem::expected(&node.location, setting, value, expected));
        }
        problems.is_empty().then_some(parts)
    }

    /// The text of one value of this kind, if it is valid; for a secret, the secret itself.
    pub fn value(&self, node: &Node, kind: &Kind, path: &str) -> Option<String> {
        let problem = match checked(node, kind, self.context) {
            Ok(text) => return Some(text),
            Err(Wrong::Value(expected)) => {
                let text = node.value.shown();
                let shown = match kind {
                    Kind::Format(format) => format.shown.map(|shown| shown(text)),
                    _ => None,
                };
                let shown = shown.as_deref().unwrap_or(text);
                Problem::expected(&node.location, path, shown, expected)
            }
            Err(Wrong::Secret(what)) => Problem::about(&node.location, path, what),
        };
        self.context.report(problem);
        None
    }

    /// The bytes of the file that the setting `name` refers to as `file:PATH`. `None` if it is not
    /// written or, after a report, if the file cannot be read.
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.node(name)?.value.text()?.trim();
        let resolve = self.context.resolve?;
        let read = resolve.read(path.strip_prefix("file:")?);
        read.map_err(|what| self.report(name, what)).ok()
    }

    /// Reports a missing setting.
    pub fn require(&self, name: &str, expected: impl fmt::Display) {
        if !self.has(name) {
            let what = format!("is missing, expected {expected}");
            let problem = Problem::about(&self.location, self.key(name), what);
            self.context.report(problem);
        }
    }

    /// Reports every missing setting of `O` with one of these names.
    pub fn require_of<O: Options>(&self, names: &[&str]) {
        for setting in O::SETTINGS
            .iter()
            .filter(|setting| names.contains(&setting.name))
        {
            self.require(setting.name, setting.kind.expected());
        }
    }

    /// Reports what was expected instead of the value.
    pub fn expected(&self, name: &str, expected: impl fmt::Display) {
        let (key, location) = (self.key(name), self.location_of(name));
        self.context.report(match self.node(name) {
            Some(node) => Problem::expected(&location, key, node.value.shown(), expected),
            None => Problem::about(&location, key, format!("expected {expected}")),
        });
    }

    /// Reports a problem with a setting without showing its value.
    pub fn report(&self, name: &str, what: impl Into<String>) {
        let problem = Problem::about(&self.location_of(name), self.key(name), what);
        self.context.report(problem);
    }

    /// Reports a problem with this table.
    pub fn report_table(&self, what: impl Into<String>) {
        self.context
            .report(Problem::about(&self.location, &self.path, what));
    }

    /// The location of a setting, or of its table if it is missing.
    fn location_of(&self, name: &str) -> Location {
        let written = self.node(name).map(|node| node.location.clone());
        written.unwrap_or_else(|| self.location.clone())
    }

    /// The built settings, or `None` after reporting every problem except those in `known`.
    pub fn built<T>(
        &self,
        built: Result<T, SettingErrors>,
        known: Option<&SettingErrors>,
    ) -> Option<T> {
        let problems = match built {
            Ok(settings) => return Some(settings),
            Err(problems) => problems,
        };
        let is_known = |problem| known.is_some_and(|known| known.iter().any(|one| one == problem));
        for problem in problems.iter().filter(|problem| !is_known(*problem)) {
            let written = self.node(&problem.setting);
            let text = written.and_then(|node| node.value.text());
            let is_other = |name: &str| problem.expected.contains(&format!("`{name}`"));
            let node =
                written.or_else(|| self.nodes().find(|(name, _)| is_other(name)).map(|n| n.1));
            let location = node.map_or(&self.location, |node| &node.location);
            self.context.report(Problem::expected(
                location,
                self.key(&problem.setting),
                text.unwrap_or(&problem.value),
                &problem.expected,
            ));
        }
        None
    }
}

enum Wrong {
    /// The value may be shown; contains what was expected.
    Value(String),
    /// The value must not be shown; contains what is wrong.
    Secret(String),
}

/// The text of a value of this kind.
fn checked(node: &Node, kind: &Kind, context: &Context<'_>) -> Result<String, Wrong> {
    let Some(text) = node.value.text().filter(|_| fits(&node.value, kind)) else {
        let (given, expected) = (node.value.kind(), in_toml(kind));
        return Err(match kind {
            // A value in the place of a secret may itself be secret.
            Kind::Secret { .. } => Wrong::Secret(format!("is {given}, expected {expected}")),
            _ => Wrong::Value(format!("{expected}, not {given}")),
        });
    };
    let text = text.trim();
    match kind {
        Kind::Secret { literal } => {
            let found = context
                .resolve
                .map_or(Ok(None), |resolve| resolve.resolve(text));
            let is_variable = matches!(node.location, Location::Variable(_));
            match found.map_err(Wrong::Secret)? {
                Some(secret) => Ok(secret),
                None if *literal || is_variable => Ok(text.to_owned()),
                None => Err(Wrong::Secret(NO_LITERAL.to_owned())),
            }
        }
        Kind::NameOf(group) => {
            let known = context.check_name(group, text);
            known.map(|()| text.to_owned()).map_err(Wrong::Value)
        }
        kind => {
            let checked = kind.check_one(text);
            checked.map(|()| text.to_owned()).map_err(Wrong::Value)
        }
    }
}

const NO_LITERAL: &str = "a secret must not be written out, expected `env:NAME` or `file:PATH`";

fn fits(value: &Value, kind: &Kind) -> bool {
    match (value, kind) {
        (_, Kind::List { .. }) | (Value::Date(_) | Value::List(_) | Value::Table(_), _) => false,
        (Value::Untyped(_), _) => true,
        (Value::Switch(_), kind) => matches!(kind, Kind::Switch),
        (Value::Whole(_), Kind::Whole { .. } | Kind::PowerOfTwo(_) | Kind::Number { .. }) => true,
        (Value::Fraction(_), Kind::Number { .. }) => true,
        (Value::Whole(_), Kind::Format(format)) => format.or_number,
        (Value::Whole(_) | Value::Fraction(_), _) => false,
        (Value::Text(_), kind) => !matches!(
            kind,
            Kind::Switch | Kind::Whole { .. } | Kind::PowerOfTwo(_) | Kind::Number { .. }
        ),
    }
}

/// What a value of this kind looks like in TOML, for a value of the wrong type.
fn in_toml(kind: &Kind) -> String {
    match kind {
        Kind::Duration(_) => {
            "a string with a number and a unit such as `\"500ms\"`, `\"30s\"` or `\"5m\"`"
                .to_owned()
        }
        Kind::Format(format) => format!("a string such as `{}`", format.example),
        Kind::Secret { .. } => "a string such as `\"env:NAME\"` or `\"file:PATH\"`".to_owned(),
        Kind::List { of, .. } => format!("a list, each {}", in_toml(of)),
        kind => kind.expected(),
    }
}
