//! The rules of the architecture that no type and no lint can check: which crate may use which,
//! what `policy` may not use, which file prints, what must not be left in the tree.
//!
//! Every rule is a function from a text to its findings, each with file and line, so that the tests
//! at the end can show it bad samples. Sources are read without comments and literals: a comment
//! may speak of a clock, the code may not read one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Our crates, and which of our crates each may use.
const ARROWS: [(&str, &[&str]); 7] = [
    ("policy", &[]),
    ("config", &["policy"]),
    ("tidegate", &["policy"]),
    ("store", &["policy", "tidegate"]),
    ("sim", &["policy", "config"]),
    ("app", &["policy", "config", "tidegate", "store", "sim"]),
    (
        "cli",
        &["policy", "config", "tidegate", "store", "sim", "app"],
    ),
];

/// All that `policy` is built from besides the standard library.
const POLICY_DEPENDENCIES: [&str; 1] = ["idna"];

/// What must not appear in `policy`, and why.
const IMPURE: &[(&str, &str)] = &[
    ("std::fs", "no IO in policy"),
    ("std::io", "no IO in policy"),
    ("std::net", "no IO in policy; `core::net` has the addresses"),
    ("std::process", "no IO in policy"),
    ("std::env", "settings arrive as values"),
    ("std::thread", "policies are plain state machines"),
    (
        "std::{",
        "import one by one, so that this check can read it",
    ),
    ("Instant", "`now` arrives as a Timestamp"),
    ("SystemTime", "calendar time arrives as a WallTime"),
    ("HashMap", "random order breaks replay; use BTreeMap"),
    ("HashSet", "random order breaks replay; use BTreeSet"),
    ("RandomState", "random bits arrive as a Random"),
    ("tokio", "no runtime in policy"),
    ("async", "no runtime in policy"),
    ("serde", "records are serialised at the edge"),
];

/// What prints, and may do so in one file only.
const PRINTING: &[(&str, &str)] = &[
    ("print!", ONLY_OUTPUT_PRINTS),
    ("println!", ONLY_OUTPUT_PRINTS),
    ("eprint!", ONLY_OUTPUT_PRINTS),
    ("eprintln!", ONLY_OUTPUT_PRINTS),
    ("stdout()", ONLY_OUTPUT_PRINTS),
    ("stderr()", ONLY_OUTPUT_PRINTS),
];
const ONLY_OUTPUT_PRINTS: &str = "only crates/cli/src/output.rs prints";
const OUTPUT: &str = "crates/cli/src/output.rs";

/// What must not appear in `app`, and why.
const PARSING: &[(&str, &str)] = &[
    ("clap", "only cli parses arguments"),
    ("std::env::args", "only cli parses arguments"),
];

/// What speaks to databases, and the one folder that may use it.
const SPEAKING_TO_DATABASES: &[(&str, &str)] = &[
    ("rusqlite", "only crates/store/src/sqlite speaks SQL"),
    (
        "tokio_postgres",
        "only crates/store/src/postgres speaks SQL",
    ),
    ("redis::aio", "only crates/store/src/redis speaks to Redis"),
];
const DATABASES: &[&str] = &[
    "crates/store/src/sqlite",
    "crates/store/src/postgres",
    "crates/store/src/redis",
];

/// What must not be left in any Rust source.
const LEFTOVERS: &[(&str, &str)] = &[
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
    ("dbg!", "remove it"),
    ("#[ignore", "a test runs or goes"),
    ("#[should_panic", "assert on an error instead"),
];

#[test]
fn crates_use_only_what_is_left_of_them() {
    let workspace = read_toml("Cargo.toml");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    assert!(!members.is_empty());
    let mut findings = Vec::new();
    for member in members.iter().filter_map(Value::as_str) {
        let file = format!("{member}/Cargo.toml");
        let name = member.trim_start_matches("crates/");
        let manifest = read_toml(&file);
        findings.extend(wrong_arrows(&file, name, &manifest, &workspace));
    }
    assert_none(&findings);
}

#[test]
fn policy_depends_on_nothing_but_the_list() {
    let manifest = read_toml("crates/policy/Cargo.toml");
    let names: BTreeSet<&str> = dependencies(&manifest, &["dependencies", "build-dependencies"])
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, BTreeSet::from(POLICY_DEPENDENCIES));
}

#[test]
fn policy_is_pure() {
    let sources = sources_under("crates/policy/src");
    assert!(sources.len() > 5, "the sources of policy were not found");
    let findings: Vec<String> = sources
        .iter()
        .flat_map(|(file, source)| find(file, source, IMPURE))
        .collect();
    assert_none(&findings);
}

#[test]
fn only_output_prints() {
    let findings: Vec<String> = product_sources()
        .iter()
        .flat_map(|(file, source)| find_printing(file, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn app_parses_no_arguments() {
    let sources = sources_under("crates/app/src");
    assert!(sources.len() > 5, "the sources of app were not found");
    let findings: Vec<String> = sources
        .iter()
        .flat_map(|(file, source)| find(file, source, PARSING))
        .collect();
    assert_none(&findings);
}

#[test]
fn only_the_store_speaks_to_databases() {
    let sources = product_sources();
    let mut findings = Vec::new();
    for (word, folder) in SPEAKING_TO_DATABASES.iter().zip(DATABASES) {
        let (inside, outside): (Vec<_>, Vec<_>) = sources
            .iter()
            .partition(|(file, _)| file.starts_with(folder));
        assert!(!inside.is_empty(), "the sources of {folder} were not found");
        let word = std::slice::from_ref(word);
        findings.extend(
            outside
                .iter()
                .flat_map(|(file, source)| find(file, source, word)),
        );
    }
    assert_none(&findings);
}

/// What the modules of `app` may not use. Senders share `core`, `exchange` and `state`, which know
/// nothing of them; `admin`, `console`, `demo` and `server` may use all.
const FORBIDDEN_IN_APP: &[(&str, &[&str])] = &[
    ("settings", &["core", "exchange", "upstream", "state"]),
    ("upstream", &["core", "exchange", "state"]),
    ("log", &["core", "exchange", "state"]),
    ("metrics", &["core", "exchange", "state"]),
    ("core", &["exchange", "state"]),
    ("exchange", &["state"]),
    ("state", &[]),
    ("gateway", &["operations", "fetch", "run", "poll", "jobs"]),
    ("operations", &["gateway", "fetch", "run", "poll", "jobs"]),
    ("fetch", &["gateway", "operations", "run", "poll", "jobs"]),
    ("run", &["gateway", "operations", "fetch", "poll", "jobs"]),
    ("poll", &["gateway", "operations", "fetch", "run", "jobs"]),
    ("jobs", &["gateway", "operations", "run", "poll"]),
    (
        "mock",
        &["core", "exchange", "upstream", "state", "gateway"],
    ),
];

/// Modules above all senders.
const ABOVE: [&str; 4] = ["admin", "console", "demo", "server"];

/// Modules that are shared by senders, and below them.
const SHARED: [&str; 7] = [
    "settings", "upstream", "log", "metrics", "core", "exchange", "state",
];

const SENDERS: [&str; 6] = ["gateway", "operations", "fetch", "run", "poll", "jobs"];

#[test]
fn only_exchange_calls_upstream() {
    for (file, source) in product_sources() {
        assert_none(&find_upstream_calls(&file, &source));
    }
}

/// Every attempt is made by `exchange`; `core` only holds the client.
fn find_upstream_calls(file: &str, source: &str) -> Vec<String> {
    let allowed = ["upstream", "exchange"];
    let rule = ("crate::upstream", "attempts are made by `exchange`");
    let sends = (
        ".send(",
        "`core` holds the upstream client, `exchange` uses it",
    );
    match module_of_app(file) {
        Some("core") => find(file, source, &[sends]),
        Some(module) if !allowed.contains(&module) => find(file, source, &[rule]),
        _ => Vec::new(),
    }
}

#[test]
fn modules_of_app_use_only_those_below_them() {
    for (file, source) in product_sources() {
        assert_none(&find_wrong_modules(&file, &source));
    }
}

/// Every use of a module of `app` that the module of `file` may not use. Rules for modules that do
/// not exist yet have no sources to check, and apply from the day they are written.
fn find_wrong_modules(file: &str, source: &str) -> Vec<String> {
    let module = module_of_app(file);
    let rules = FORBIDDEN_IN_APP.iter();
    let Some((module, forbidden)) = rules.copied().find(|(name, _)| module == Some(name)) else {
        return Vec::new();
    };
    let is_shared = SHARED.contains(&module);
    let senders = SENDERS.iter().filter(|_| is_shared);
    let forbidden = forbidden.iter().chain(&ABOVE).chain(senders);
    let mut uses: Vec<String> = forbidden.map(|other| format!("crate::{other}")).collect();
    // Modules are imported one by one, so that this check can read it.
    uses.push("crate::{".to_owned());
    let reason = "what two senders need belongs into `core`, `exchange` or `state`";
    let rules: Vec<(&str, &str)> = uses.iter().map(|uses| (uses.as_str(), reason)).collect();
    find(file, source, &rules)
}

/// The name of the top-level module of `app` that a file belongs to.
fn module_of_app(file: &str) -> Option<&str> {
    file.strip_prefix("crates/app/src/")?
        .split(['/', '.'])
        .next()
}

#[test]
fn every_source_opens_with_what_it_is_for() {
    let findings: Vec<String> = product_sources()
        .iter()
        .filter_map(|(file, source)| find_no_opening(file, source))
        .collect();
    assert_none(&findings);
}

#[test]
fn nothing_unfinished_is_left_in_the_sources() {
    let findings: Vec<String> = sources_under("")
        .iter()
        .flat_map(|(file, source)| find(file, source, LEFTOVERS))
        .collect();
    assert_none(&findings);
}

#[test]
fn nothing_unfinished_is_left_in_any_text() {
    let findings: Vec<String> = texts_under("")
        .iter()
        .flat_map(|(file, text)| find_marks(file, text))
        .collect();
    assert_none(&findings);
}

/// Every dependency of `manifest` on one of our crates that has no arrow.
fn wrong_arrows(file: &str, name: &str, manifest: &Table, workspace: &Table) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
        return vec![format!(
            "{file}: `{name}` is not a crate of the architecture"
        )];
    };
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    dependencies(manifest, &kinds)
        .filter_map(|(key, value)| our_crate(key, value, workspace))
        .filter(|used| !allowed.contains(&used.as_str()))
        .map(|used| format!("{file}: `{name}` may not use `{used}`, only {allowed:?}"))
        .collect()
}

/// All dependencies of the given kinds, those for single targets too.
fn dependencies<'a>(
    manifest: &'a Table,
    kinds: &'a [&str],
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flatten();
    std::iter::once(manifest)
        .chain(targets.filter_map(|(_, target)| target.as_table()))
        .flat_map(move |table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()))
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
}

/// The folder of the dependency if it is a crate of ours: one with a path, its own or by way of
/// the workspace.
fn our_crate(key: &str, value: &Value, workspace: &Table) -> Option<String> {
    let inherited = value.get("workspace").is_some();
    let shared = workspace
        .get("workspace")
        .and_then(|table| table.get("dependencies"))
        .and_then(|table| table.get(key));
    let value = if inherited { shared? } else { value };
    let folder = Path::new(value.get("path")?.as_str()?).file_name()?;
    Some(folder.to_string_lossy().into_owned())
}

/// Printing outside the one file and outside of tests.
fn find_printing(file: &str, source: &str) -> Vec<String> {
    if file == OUTPUT {
        return Vec::new();
    }
    find(file, without_tests(source), PRINTING)
}

fn find_no_opening(file: &str, source: &str) -> Option<String> {
    let opens = source.starts_with("//!");
    (!opens).then(|| format!("{file}:1: expected `//!` and what the file is for"))
}

/// Marks of unfinished work and of a merge, spelled so that this file has none.
fn find_marks(file: &str, text: &str) -> Vec<String> {
    let unfinished = ["FIX", "ME"].concat();
    let conflicts = ["<".repeat(7), ">".repeat(7)];
    let mut findings = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if contains_word(line, &unfinished) {
            findings.push(format!("{file}:{number}: `{unfinished}`: do it or drop it"));
        }
        if conflicts.iter().any(|mark| line.starts_with(mark)) {
            findings.push(format!("{file}:{number}: an unresolved conflict"));
        }
    }
    findings
}

/// Every line of code that has one of the words, with the reason why it must not.
fn find(file: &str, source: &str, rules: &[(&str, &str)]) -> Vec<String> {
    let code = code_only(source);
    let mut findings = Vec::new();
    for (line, number) in code.lines().zip(1..) {
        for (word, reason) in rules {
            if contains_word(line, word) {
                findings.push(format!("{file}:{number}: `{word}`: {reason}"));
            }
        }
    }
    findings
}

/// Does the line have this word, and not merely as a part of a longer one?
fn contains_word(line: &str, word: &str) -> bool {
    let starts_inside = |at: usize| word.starts_with(is_word) && line[..at].ends_with(is_word);
    let ends_inside =
        |at: usize| word.ends_with(is_word) && line[at + word.len()..].starts_with(is_word);
    line.match_indices(word)
        .any(|(at, _)| !starts_inside(at) && !ends_inside(at))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The source up to the module of its tests, which by our style is the last thing in a file.
fn without_tests(source: &str) -> &str {
    match source.find("\n#[cfg(test)]\nmod tests {") {
        Some(tests) => &source[..tests],
        None => source,
    }
}

/// The source with comments and literals blanked out; every line stays where it is.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let blank = comment_length(rest).or_else(|| literal_length(rest, &code));
        let length = blank.unwrap_or_else(|| c.len_utf8());
        if blank.is_some() {
            let blanks = rest[..length].chars();
            code.extend(blanks.map(|c| if c == '\n' { c } else { ' ' }));
        } else {
            code.push(c);
        }
        rest = &rest[length..];
    }
    code
}

/// The length of the comment that the text starts with.
fn comment_length(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    Some(text.len())
}

/// The length of the string or character that the text starts with, given the code before it.
fn literal_length(text: &str, before: &str) -> Option<usize> {
    if let Some(inside) = text.strip_prefix('"') {
        return Some(1 + quoted_length(inside, '"'));
    }
    if text.starts_with('\'') {
        return character_length(text);
    }
    let raw = text.strip_prefix('r')?;
    if before.trim_end_matches(['b', 'c']).ends_with(is_word) {
        return None;
    }
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let inside = raw[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some("r\"".len() + hashes + length)
}

/// A character, as opposed to a lifetime, is closed after one character or an escape.
fn character_length(text: &str) -> Option<usize> {
    let inside = &text[1..];
    if inside.starts_with('\\') {
        return Some(1 + quoted_length(inside, '\''));
    }
    let length = 1 + inside.chars().next()?.len_utf8();
    text[length..].starts_with('\'').then_some(length + 1)
}

/// Up to and with the closing quote that no backslash escapes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_toml(path: &str) -> Table {
    let text = fs::read_to_string(root().join(path)).expect("manifests can be read");
    text.parse().expect("manifests are TOML")
}

/// The sources that the product is built from.
fn product_sources() -> Vec<(String, String)> {
    let mut sources = sources_under("crates");
    sources.retain(|(file, _)| file.split('/').nth(2) == Some("src"));
    assert!(!sources.is_empty(), "no sources were found");
    sources
}

fn sources_under(folder: &str) -> Vec<(String, String)> {
    let mut texts = texts_under(folder);
    texts.retain(|(file, _)| file.ends_with(".rs"));
    texts
}

/// All text files below a folder of the repository, with their path from its root.
fn texts_under(folder: &str) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    collect_texts(&root().join(folder), Path::new(folder), &mut texts);
    texts.sort();
    texts
}

/// Folders with what is built, downloaded or found by tools, and the history.
const NOT_OURS: [&str; 6] = [
    ".git",
    "target",
    "node_modules",
    "artifacts",
    "corpus",
    "coverage",
];

fn collect_texts(folder: &Path, shown: &Path, texts: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("folders of the repository can be read") {
        let entry = entry.expect("folders of the repository can be read");
        let kind = entry.file_type().expect("files have a type");
        let name = entry.file_name();
        let shown = shown.join(&name);
        if kind.is_dir() {
            if !NOT_OURS.iter().any(|other| name == *other) {
                collect_texts(&entry.path(), &shown, texts);
            }
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            texts.push((shown.to_string_lossy().replace('\\', "/"), text));
        }
    }
}

/// The rules must be able to fail.
mod samples {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().expect("samples are TOML")
    }

    const WORKSPACE: &str = r#"
        [workspace.dependencies]
        policy = { package = "tidegate-policy", path = "crates/policy" }
        sim = { path = "crates/sim" }
        idna = "1"
    "#;

    fn check_arrows(name: &str, manifest: &str) -> Vec<String> {
        wrong_arrows("Cargo.toml", name, &table(manifest), &table(WORKSPACE))
    }

    #[test]
    fn an_arrow_the_right_way_is_no_finding() {
        let manifest = "[dependencies]\npolicy.workspace = true\nidna.workspace = true";
        assert_none(&check_arrows("sim", manifest));
    }

    #[test]
    fn an_arrow_the_wrong_way_is_found() {
        assert_eq!(
            check_arrows("policy", "[dependencies]\nsim.workspace = true"),
            ["Cargo.toml: `policy` may not use `sim`, only []"]
        );
        for manifest in [
            "[dependencies]\nother = { path = \"../app\" }",
            "[dev-dependencies]\nsim.workspace = true",
            "[build-dependencies]\nsim = { workspace = true, optional = true }",
            "[target.'cfg(unix)'.dependencies]\nsim = { path = \"../sim\" }",
        ] {
            assert_eq!(check_arrows("policy", manifest).len(), 1, "{manifest}");
        }
    }

    #[test]
    fn a_crate_outside_the_architecture_is_found() {
        assert_eq!(
            check_arrows("other", ""),
            ["Cargo.toml: `other` is not a crate of the architecture"]
        );
    }

    #[test]
    fn impurity_is_found_with_file_and_line() {
        let source = "//! Docs.\nuse std::time::Instant;\n\nfn f() { std::fs::read(\"x\"); }\n";
        assert_eq!(
            find("a.rs", source, IMPURE),
            [
                "a.rs:2: `Instant`: `now` arrives as a Timestamp",
                "a.rs:4: `std::fs`: no IO in policy",
            ]
        );
        for source in [
            "use std::net::TcpStream;",
            "let v = std::env::var(name);",
            "let now = SystemTime::now();",
            "std::thread::sleep(x);",
            "use tokio::time;",
            "let m: HashMap<u8, u8>;",
            "let s = HashSet::new();",
            "use std::{fs, time};",
            "pub async fn f() {}",
            "#[derive(serde::Serialize)]",
        ] {
            assert_eq!(find("a.rs", source, IMPURE).len(), 1, "{source}");
        }
    }

    #[test]
    fn words_in_comments_literals_and_longer_words_are_no_findings() {
        for source in [
            "// Not an Instant.",
            "/// Not an Instant.",
            "/* HashMap /* nested */ HashMap */",
            "let s = \"HashMap \\\" HashMap\";",
            "let s = r#\"HashMap \" HashMap\"#;",
            "let s = br\"HashMap\";",
            "let c = ('\"', \"HashMap\", '\\'', \"HashMap\");",
            "let instant = Instantly; use serde_json::Value;",
            "use core::net::Ipv6Addr; use std::fmt;",
        ] {
            assert_none(&find("a.rs", source, IMPURE));
        }
    }

    #[test]
    fn code_between_literals_is_still_read() {
        for source in [
            "let s = \"a\\\\\"; HashMap",
            "let s = r#\"a\"#; HashMap",
            "let c = '\"'; HashMap; '\"'",
            "fn f<'a>(x: &'a HashMap) -> &'a str",
            "/* a */ HashMap /* b */",
            "let r#type = HashMap;",
            "let s = \"first\nsecond\"; HashMap",
        ] {
            assert_eq!(find("a.rs", source, IMPURE).len(), 1, "{source}");
        }
        assert_eq!(code_only("a \"b\nc\" d"), "a   \n   d");
    }

    #[test]
    fn printing_is_found_outside_of_output_and_tests() {
        let source =
            "fn f() { println!(\"a\"); }\n\n#[cfg(test)]\nmod tests {\n    eprintln!();\n}\n";
        assert_eq!(
            find_printing("crates/cli/src/main.rs", source),
            ["crates/cli/src/main.rs:1: `println!`: only crates/cli/src/output.rs prints"]
        );
        assert_none(&find_printing(OUTPUT, source));
        assert_eq!(find_printing("a.rs", "std::io::stderr().lock()").len(), 1);
        assert_none(&find_printing("a.rs", "reprint!(); writeln!(out)?;"));
    }

    #[test]
    fn wrong_modules_of_app_are_found() {
        for (module, forbidden) in FORBIDDEN_IN_APP {
            for other in forbidden.iter().chain(&ABOVE) {
                for source in [
                    format!("use crate::{other}::Name;"),
                    format!("use crate::{other};"),
                    format!("use crate::{{{other}::Name, redact}};"),
                ] {
                    for file in [format!("{module}.rs"), format!("{module}/part.rs")] {
                        let file = format!("crates/app/src/{file}");
                        let found = find_wrong_modules(&file, &source);
                        assert_eq!(found.len(), 1, "{file}: {source}");
                    }
                }
            }
        }
        for module in SHARED {
            let file = format!("crates/app/src/{module}.rs");
            for sender in SENDERS {
                let found = find_wrong_modules(&file, &format!("use crate::{sender}::Name;"));
                assert_eq!(found.len(), 1, "{module} uses {sender}");
            }
        }
        let file = "crates/app/src/gateway.rs";
        assert_none(&find_wrong_modules(file, "use crate::exchange::Target;"));
        assert_none(&find_wrong_modules(file, "use crate::runner::Name;"));
        let file = "crates/app/src/admin.rs";
        assert_none(&find_wrong_modules(file, "use crate::gateway::Trails;"));
    }

    #[test]
    fn calls_of_upstream_are_found() {
        let source = "use crate::upstream::Client;";
        for module in ["gateway", "state", "operations", "fetch", "poll", "admin"] {
            let file = format!("crates/app/src/{module}/part.rs");
            assert_eq!(find_upstream_calls(&file, source).len(), 1, "{module}");
        }
        for module in ["exchange", "upstream", "core"] {
            assert_none(&find_upstream_calls(
                &format!("crates/app/src/{module}.rs"),
                source,
            ));
        }
        let sends = "self.upstream.send(request)";
        assert_eq!(
            find_upstream_calls("crates/app/src/core.rs", sends).len(),
            1
        );
    }

    #[test]
    fn parsing_and_databases_are_found() {
        for source in ["use clap::Parser;", "for word in std::env::args() {}"] {
            assert_eq!(find("a.rs", source, PARSING).len(), 1, "{source}");
        }
        for source in [
            "use rusqlite::params;",
            "use tokio_postgres::Client;",
            "use redis::aio::PubSub;",
        ] {
            assert_eq!(
                find("a.rs", source, SPEAKING_TO_DATABASES).len(),
                1,
                "{source}"
            );
        }
    }

    #[test]
    fn a_source_without_an_opening_is_found() {
        assert!(find_no_opening("a.rs", "use std::fmt;\n").is_some());
        assert!(find_no_opening("a.rs", "").is_some());
        assert!(find_no_opening("a.rs", "//! What it is for.\n").is_none());
    }

    #[test]
    fn leftovers_are_found() {
        for source in [
            "fn f() { todo!() }",
            "unimplemented!(\"later\")",
            "dbg!(x)",
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "#[should_panic(expected = \"x\")]",
        ] {
            assert_eq!(find("a.rs", source, LEFTOVERS).len(), 1, "{source}");
        }
        let text = format!("a\n{} x\n# {}{}: x\n", "<".repeat(7), "FIX", "ME");
        assert_eq!(find_marks("a.md", &text).len(), 2);
        assert_none(&find_marks("a.md", "a <<< b\nprefixme\n"));
    }
}
