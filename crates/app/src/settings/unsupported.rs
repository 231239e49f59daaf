//! Settings that this build reads and checks but does not act on.
//!
//! They are part of the contract of the file, and nothing is ignored silently: `check` and `serve` warn
//! about each that is written with another value than its default. A change that makes a
//! command act on one removes it from the list.

use config::document::{Node, Table, Value};
use config::join;
use config::schema::Section;

use super::sections::ROOT;

/// Sections and settings, with capitals for what people name themselves.
const UNSUPPORTED: &[&str] = &[];

/// The paths of all that is written, differs from its default and has no effect.
pub(super) fn find(root: &Table) -> Vec<String> {
    let mut found = Vec::new();
    find_in(root, &ROOT, "", &mut found);
    found
}

fn find_in(table: &Table, section: &Section, path: &str, found: &mut Vec<String>) {
    if UNSUPPORTED.contains(&section.path) {
        found.extend(differs(table, section).then(|| path.to_owned()));
        return;
    }
    for (name, entry) in &table.entries {
        let path = join(path, name);
        let known = format!("{}.{name}", section.path);
        if UNSUPPORTED.contains(&known.as_str()) {
            found.extend(is_other(section, name, &entry.node).then(|| path.clone()));
        } else if let Some(inner) = section.inner(name) {
            each_table(&entry.node, |table| find_in(table, inner, &path, found));
        }
    }
}

/// Whether anything in it is not the default.
fn differs(table: &Table, section: &Section) -> bool {
    let mut entries = table.entries.iter();
    entries.any(|(name, entry)| is_other(section, name, &entry.node))
}

fn is_other(section: &Section, name: &str, node: &Node) -> bool {
    let Some(setting) = section.setting(name) else {
        return true;
    };
    let parts: Vec<&str> = match &node.value {
        Value::List(nodes) => nodes.iter().filter_map(|node| node.value.text()).collect(),
        value => setting.kind.split(value.text().unwrap_or_default()),
    };
    !setting.is_default(&parts)
}

fn each_table(node: &Node, mut visit: impl FnMut(&Table)) {
    match &node.value {
        Value::Table(table) => visit(table),
        Value::List(nodes) => {
            for node in nodes {
                if let Value::Table(table) = &node.value {
                    visit(table);
                }
            }
        }
        _ => {}
    }
}
