//! The reference of all settings, as a page of Markdown.
//!
//! Made from the same table and the same default file as everything else; a test holds that
//! `docs/reference/settings.md` is what this makes.

use std::fmt::Write;

use super::default_file::{self, About, Line};
use super::table::Kind;

/// The page.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut seen: Vec<&str> = Vec::new();
    for about in default_file::sections() {
        if seen.contains(&about.section.path) {
            continue;
        }
        seen.push(about.section.path);
        let lines: Vec<&Line> = about
            .lines
            .iter()
            .filter(|line| !line.reason.is_empty())
            .collect();
        let heading = heading(about.section.path);
        // Writing into a string cannot fail.
        _ = writeln!(page, "\n## `{heading}`\n\n{}\n", about.reason);
        _ = writeln!(
            page,
            "| setting | value | default | meaning |\n|---|---|---|---|"
        );
        for line in lines {
            _ = writeln!(page, "{}", row(&about, line));
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Settings

Every setting of `tidegate.toml`, in the order of the default file. `tidegate config default` prints that file,
`tidegate config schema` its JSON Schema; [how settings are given](../guide/configuration.md) is a page of its own.

<!-- Made from the table of settings and default.toml: scripts/update-reference writes it anew. -->
";

fn heading(path: &str) -> String {
    match path {
        "rule" => "[[gate.\"HOST\".rule]], [[pool.NAME.rule]], [[operation.TYPE.rule]]".to_owned(),
        "gate.HOST" => "[gate.\"HOST\"]".to_owned(),
        path => format!("[{path}]"),
    }
}

fn row(about: &About, line: &Line) -> String {
    let kind = about
        .section
        .key(&line.name)
        .map_or("", |key| words(key.kind));
    // Of an example the value is the default only where that is said in so many words.
    let default = match (line.is_example, about.section.path) {
        (false, _) => format!("`{}`", line.value),
        (true, "pool.NAME.protection") => format!("`{}`", line.value),
        (true, "pool.NAME") if HAVE_DEFAULTS.contains(&&*line.name) => format!("`{}`", line.value),
        (true, "credential.NAME") if line.name == "header" => format!("`{}`", line.value),
        (true, "gate.HOST") if line.name == "share" => "`false`".to_owned(),
        (true, "gate.HOST") => "as in `[gate]`".to_owned(),
        (true, _) => "–".to_owned(),
    };
    let reason = line.reason.replace('|', "\\|");
    format!("| `{}` | {kind} | {default} | {reason} |", line.name)
}

const HAVE_DEFAULTS: [&str; 3] = ["balance", "backoff", "retry_unsafe"];

fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch => "`true`, `false`",
        Kind::Whole => "whole number",
        Kind::Number => "number",
        Kind::Duration => "duration",
        Kind::Text => "string",
        Kind::Choice(_) => "word",
        Kind::Size => "size",
        Kind::Limit => "limit",
        Kind::Address => "address",
        Kind::Url => "URL",
        Kind::Path => "path",
        Kind::Secret => "secret",
        Kind::NameOf(_) => "name",
        Kind::List(Kind::Whole) => "list of whole numbers",
        Kind::List(Kind::Duration) => "list of durations",
        Kind::List(Kind::Limit) => "list of limits",
        Kind::List(_) => "list of strings",
        Kind::Headers | Kind::Table(_) => "table",
        Kind::Tables(_) => "list of tables",
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
