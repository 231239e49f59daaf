//! Settings from the environment: `TIDEGATE_GATE__MAX_RATE=50` is `gate.max_rate`.
//!
//! The path is in capitals with two underscores between its parts, for one underscore is part of
//! many names. What a person named, a pool or a host, is found by its letters and digits alone:
//! `TIDEGATE_GATE__API_EXAMPLE_COM__MAX_RATE` means `[gate."api.example.com"]`, which has to be in
//! the file. An unknown name is refused, because a slip would otherwise change nothing in silence;
//! the exceptions are those that are not settings.

use policy::suggest::suggestion;

use config::document::{Node, Table, Value};
use config::schema::{Name, Section, Shape};
use config::{Location, Problem};

use super::secret::referenced_variable;
use super::sections::ROOT;

/// The file to read if no flag names one.
pub const CONFIG_VARIABLE: &str = "TIDEGATE_CONFIG";

/// The admin token, for commands that ask a running server.
pub const ADMIN_TOKEN_VARIABLE: &str = "TIDEGATE_ADMIN_TOKEN";

/// Which events a server logs, if no flag says it.
pub const LOG_VARIABLE: &str = "TIDEGATE_LOG";

const PREFIX: &str = "TIDEGATE_";

/// Lays what the environment says over `root`.
pub(crate) fn apply(root: &mut Table, variables: &[(String, String)], problems: &mut Vec<Problem>) {
    let mut references = Vec::new();
    collect_references(root, &mut references);
    let values = variables
        .iter()
        .filter(|(name, _)| name.starts_with(PREFIX));
    let values = values.filter_map(|(_, value)| referenced_variable(value));
    references.extend(values.map(str::to_owned));
    let settings = variables.iter().filter(|(name, _)| {
        name.starts_with(PREFIX) && !is_other(name) && !references.contains(name)
    });
    for (name, value) in settings {
        let location = Location::Variable(name.clone());
        match path_of(&name[PREFIX.len()..], root) {
            Ok(path) => problems.extend(set(root, &path, value, &location)),
            Err(what) => problems.push(Problem::about(&location, "", what)),
        }
    }
}

/// Lays `value` over what is at `path`, unless that is a whole section.
pub(crate) fn set(
    root: &mut Table,
    path: &[String],
    value: &str,
    location: &Location,
) -> Option<Problem> {
    let (name, outer) = path.split_last()?;
    let mut table = root;
    for part in outer {
        // Something else than a table is there only if the file is wrong, which is reported already.
        table = table.inner(part, location)?;
    }
    if let Some(Value::Table(_)) = table.get(name).map(|node| &node.value) {
        let what = format!("`{name}` is a section, expected a setting in it");
        return Some(Problem::about(location, "", what));
    }
    let node = Node {
        location: location.clone(),
        value: Value::Untyped(value.to_owned()),
    };
    table.insert(name, node);
    None
}

/// Names with the prefix that are no settings: the file, the token, the log's filter, and what
/// Kubernetes sets in every container when a service is called `tidegate`.
fn is_other(name: &str) -> bool {
    name == CONFIG_VARIABLE
        || name == ADMIN_TOKEN_VARIABLE
        || name == LOG_VARIABLE
        || name == "TIDEGATE_PORT"
        || name.starts_with("TIDEGATE_PORT_")
        || name.starts_with("TIDEGATE_SERVICE_HOST")
        || name.starts_with("TIDEGATE_SERVICE_PORT")
}

/// Variables that hold secrets may have any name.
fn collect_references(table: &Table, references: &mut Vec<String>) {
    for entry in table.entries.values() {
        collect_from(&entry.node.value, references);
    }
}

fn collect_from(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Text(text) => {
            references.extend(referenced_variable(text).map(str::to_owned));
        }
        Value::Table(table) => collect_references(table, references),
        Value::List(list) => {
            for node in list {
                collect_from(&node.value, references);
            }
        }
        Value::Whole(_)
        | Value::Fraction(_)
        | Value::Switch(_)
        | Value::Date(_)
        | Value::Untyped(_) => {}
    }
}

fn path_of(name: &str, root: &Table) -> Result<Vec<String>, String> {
    let mut section: &Section = &ROOT;
    let mut table = Some(root);
    let mut path = Vec::new();
    let parts: Vec<&str> = name.split("__").collect();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        let lower = part.to_ascii_lowercase();
        let inner = match section.table(&lower).map(|inner| inner.shape) {
            Some(Shape::One(inner)) => Some(inner),
            Some(Shape::List(_) | Shape::Map) | None => None,
        };
        let next = match (inner, section.named) {
            (Some(inner), _) if !is_last => {
                section = inner;
                lower
            }
            _ if is_last && section.setting(&lower).is_some() => lower,
            (_, Some(named)) if !is_last => {
                section = named.section;
                own_name(part, named.name, table)?
            }
            _ => return Err(unknown(name)),
        };
        table = table.and_then(|table| match &table.get(&next)?.value {
            Value::Table(inner) => Some(inner),
            _ => None,
        });
        path.push(next);
    }
    Ok(path)
}

/// The name in the file that the part means, or a new one where that is allowed.
fn own_name(part: &str, kind: Name, table: Option<&Table>) -> Result<String, String> {
    let written = table.into_iter().flat_map(|table| &table.entries);
    let is_meant = |name: &str| in_capitals(name) == part.to_ascii_uppercase();
    let mut meant = written
        .filter(|(name, entry)| matches!(entry.node.value, Value::Table(_)) && is_meant(name));
    match (meant.next(), meant.next()) {
        (Some((name, _)), None) => Ok(name.clone()),
        (Some((one, _)), Some((other, _))) => Err(format!(
            "could mean `{one}` or `{other}`, expected names that differ in letters and digits"
        )),
        (None, _) if kind == Name::Word => Ok(part.to_ascii_lowercase()),
        (None, _) => Err("names no host of the file; add its section there first".to_owned()),
    }
}

fn in_capitals(name: &str) -> String {
    let c = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    name.chars().map(c).collect()
}

fn unknown(name: &str) -> String {
    let known = known_names(&ROOT, "");
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    match suggestion(name, &names) {
        Some(close) => format!("not a setting; did you mean `{PREFIX}{close}`?"),
        None => "not a setting, expected a name such as `TIDEGATE_GATE__MAX_RATE`".to_owned(),
    }
}

/// The variables of all settings that have a fixed path.
fn known_names(section: &Section, prefix: &str) -> Vec<String> {
    let variable = |name: &str| format!("{prefix}{}", name.to_ascii_uppercase());
    let settings = section.settings().map(|setting| variable(setting.name));
    let inner = section.tables.iter().flat_map(|inner| match inner.shape {
        Shape::One(section) => known_names(section, &format!("{}__", variable(inner.name))),
        Shape::List(_) | Shape::Map => Vec::new(),
    });
    settings.chain(inner).collect()
}
