//! The reference of all settings, as a page of Markdown.
//!
//! A test checks that `docs/reference/settings.md` is what this renders.

use std::fmt::Write;
use std::ops::Bound;
use std::time::Duration;

use config::schema::{Section, Shape};
use policy::duration::Seconds;
use policy::setting::{Kind, Setting};

use super::default_file::{description, in_toml};
use super::sections::ROOT;

/// The page.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut seen = Vec::new();
    add(&mut page, &ROOT, &mut seen);
    page
}

const INTRODUCTION: &str = "\
# Settings

Every setting of `tidegate.toml`, in the order of the default file. `tidegate config default` prints that file,
`tidegate config schema` its JSON Schema; [how settings are given](../guide/configuration.md) is a page of its own.

<!-- Rendered from the definitions of the settings: scripts/update-reference writes it anew. -->
";

/// A section and all sections in it, each once.
fn add(page: &mut String, section: &'static Section, seen: &mut Vec<&'static str>) {
    if seen.contains(&section.path) {
        return;
    }
    seen.push(section.path);
    if section.settings().next().is_some() {
        let heading = heading(section.path);
        // Writing into a string cannot fail.
        _ = writeln!(page, "\n## `{heading}`\n\n{}\n", section.about);
        page.push_str("| setting | value | default | meaning |\n|---|---|---|---|\n");
        // What a host has in common with all hosts is not repeated.
        let groups = match section.path {
            "gate.HOST" => &section.settings[1..],
            _ => section.settings,
        };
        for setting in groups.iter().copied().flatten() {
            _ = writeln!(page, "{}", row(setting));
        }
        for inner in section.tables {
            let kind = match inner.shape {
                Shape::One(_) | Shape::Map => "table",
                Shape::List(_) => "list of tables",
            };
            let about = match inner.shape {
                Shape::One(section) | Shape::List(section) if inner.about.is_empty() => {
                    section.about
                }
                _ => inner.about,
            };
            _ = writeln!(page, "| `{}` | {kind} | – | {about} |", inner.name);
        }
    }
    let inner = section.tables.iter().filter_map(|inner| match inner.shape {
        Shape::One(section) | Shape::List(section) => Some(section),
        Shape::Map => None,
    });
    for section in inner.chain(section.named.map(|named| named.section)) {
        add(page, section, seen);
    }
}

fn heading(path: &str) -> String {
    match path {
        "rule" => "[[gate.\"HOST\".rule]], [[pool.NAME.rule]], [[operation.TYPE.rule]]".to_owned(),
        "gate.HOST" => "[gate.\"HOST\"]".to_owned(),
        "server.tls" => "[server.tls], [server.admin_tls]".to_owned(),
        path => format!("[{path}]"),
    }
}

fn row(setting: &Setting) -> String {
    let default = match setting.default {
        Some(default) => format!("`{}`", in_toml(&setting.kind, default)),
        None => "–".to_owned(),
    };
    let meaning = description(setting).replace('|', "\\|");
    let value = values(&setting.kind);
    format!("| `{}` | {value} | {default} | {meaning} |", setting.name)
}

/// Which values a kind has.
fn values(kind: &Kind) -> String {
    match kind {
        Kind::Switch => "`true`, `false`".to_owned(),
        Kind::Whole {
            min, max: u64::MAX, ..
        } => format!("whole number from {min}"),
        Kind::Whole { min, max, .. } => format!("whole number, {min} to {max}"),
        Kind::PowerOfTwo(max) => format!("power of two up to {max}"),
        Kind::Number { min, max, .. } => match (min, max) {
            (Bound::Included(min), Bound::Included(max)) => format!("number, {min} to {max}"),
            (Bound::Excluded(min), Bound::Included(max)) => {
                format!("number above {min}, up to {max}")
            }
            (Bound::Excluded(min), Bound::Excluded(max)) => {
                format!("number above {min}, below {max}")
            }
            _ => "number".to_owned(),
        },
        Kind::Duration(Duration::ZERO) => "duration".to_owned(),
        Kind::Duration(min) if min.as_nanos() == 1 => "duration above 0".to_owned(),
        Kind::Duration(min) => format!("duration of at least {}", Seconds(*min)),
        Kind::Choice(words) => format!("`\"{}\"`", words.join("\"`, `\"")),
        Kind::Format(format) => format.name.to_owned(),
        Kind::Secret { .. } => "secret".to_owned(),
        Kind::NameOf(section) => format!("name of a `[{section}]`"),
        Kind::List { of, .. } => format!("list: {}", values(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_in_step() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/settings.md"
        );
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == reference(),
            "docs/reference/settings.md is old; scripts/update-reference writes it anew"
        );
    }
}
