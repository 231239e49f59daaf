//! Tests of the documents: commands print what is shown, links have targets, lists are complete.
//!
//! In a fenced block marked `console`, lines that start with `$ ` are run by `sh` in the root of the
//! repository with this build's `tidegate`, and the lines below each must be its stdout. Commands that
//! cannot run in a test are in blocks with another mark.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
fn console_blocks_show_what_commands_print() {
    let mut findings = Vec::new();
    let mut count = 0;
    for (file, text) in documents() {
        for session in sessions(&text) {
            count += 1;
            let printed = run(&session.command);
            if printed != session.output {
                findings.push(format!(
                    "{file}:{}: `{}` prints\n{printed}",
                    session.line, session.command
                ));
            }
        }
    }
    assert!(count > 0, "no command was found");
    assert_none(&findings);
}

#[test]
fn every_link_has_a_target() {
    let findings: Vec<String> = documents()
        .iter()
        .flat_map(|(file, text)| dead_links(file, text))
        .collect();
    assert_none(&findings);
}

#[test]
fn every_example_is_used_by_a_document() {
    let documents = documents();
    let unused: Vec<String> = files_under("examples")
        .into_iter()
        .filter(|example| !documents.iter().any(|(_, text)| text.contains(example)))
        .map(|example| format!("{example}: no document uses it"))
        .collect();
    assert_none(&unused);
}

#[test]
fn table_of_clients_is_the_last_that_was_measured() {
    let measured = read("bench/clients.jsonl");
    let last: Value = serde_json::from_str(measured.lines().last().unwrap()).unwrap();
    let rows = last["clients"].as_array().unwrap().iter().map(|row| {
        let count = |name: &str| row[name].as_u64().unwrap();
        format!(
            "| {} | {} | {} | {} | {:.1} s |",
            row["client"].as_str().unwrap(),
            count("answered"),
            count("extra"),
            count("refused"),
            row["seconds"].as_f64().unwrap(),
        )
    });
    let rows: Vec<String> = rows.collect();
    let readme = read("crates/tidegate/README.md");
    let (_, table) = readme.split_once("<!-- clients -->\n").unwrap();
    let (table, _) = table.split_once("<!-- /clients -->").unwrap();
    let shown: Vec<&str> = table.lines().skip(2).collect();
    assert_eq!(shown, rows);
    let text = format!("{} requests to five servers", last["requests"]);
    assert!(readme.contains(&text), "{text}");
}

#[test]
fn every_library_example_is_tested_and_listed() {
    let (tests, guide) = (
        read("crates/tidegate/tests/examples.rs"),
        read("docs/guide/library.md"),
    );
    let examples: Vec<String> = files_under("crates/tidegate/examples")
        .into_iter()
        .filter(|example| !example.contains("/support/"))
        .collect();
    assert!(!examples.is_empty(), "no example was found");
    let left_out: Vec<String> = examples
        .into_iter()
        .filter(|example| {
            let name = name_of(example);
            !tests.contains(&format!("\"../examples/{name}\"")) || !guide.contains(name)
        })
        .map(|example| format!("{example}: not run by a test, or not in the guide"))
        .collect();
    assert_none(&left_out);
}

#[test]
fn code_map_names_every_module() {
    let map = read("ARCHITECTURE.md");
    let missing: Vec<String> = ["policy", "config", "tidegate", "store", "sim", "app", "cli"]
        .iter()
        .flat_map(|name| missing_modules(name, &map))
        .collect();
    assert_none(&missing);
}

#[test]
fn replay_reference_lists_exactly_the_settings() {
    let reference = read("docs/reference/replay.md");
    let (_, settings) = reference.split_once("\n## Settings\n").unwrap();
    let (settings, _) = settings.split_once("\n## ").unwrap();
    let mut count = 0;
    for section in settings.split("\n### `").skip(1) {
        let (policy, table) = section.split_once('`').unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
        let mut listed: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        listed.sort_unstable();
        assert_eq!(listed, known_settings(policy), "{policy}");
        count += 1;
    }
    assert!(count >= 2, "the settings were not found");
}

/// The names of a policy's settings, sorted, from its own error message.
fn known_settings(policy: &str) -> Vec<String> {
    let command = format!("tidegate replay --policy {policy} --set no_such_setting_at_all=1 2>&1");
    let printed = run(&command);
    let (_, names) = printed.split_once("a known setting: ").unwrap();
    let names = names.lines().next().unwrap().split(", ");
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[test]
fn index_lists_every_decision() {
    let index = read("docs/decisions/README.md");
    let missing: Vec<String> = files_under("docs/decisions")
        .into_iter()
        .filter(|file| !file.ends_with("/README.md"))
        .filter(|file| !index.contains(&format!("]({})", name_of(file))))
        .map(|file| format!("{file}: not in the index"))
        .collect();
    assert_none(&missing);
}

/// A command in a document and the output shown below it.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    line: usize,
    command: String,
    output: String,
}

/// Every command of every block marked `console`.
fn sessions(text: &str) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    let mut is_console = false;
    for (line, number) in text.lines().zip(1..) {
        if let Some(mark) = line.strip_prefix("```") {
            is_console = mark == "console";
        } else if !is_console {
            continue;
        } else if let Some(command) = line.strip_prefix("$ ") {
            sessions.push(Session {
                line: number,
                command: command.to_owned(),
                output: String::new(),
            });
        } else {
            let session = sessions.last_mut().unwrap();
            session.output.push_str(line);
            session.output.push('\n');
        }
    }
    sessions
}

/// What the command prints on stdout, with `tidegate` for `cargo run --release --`.
fn run(command: &str) -> String {
    let command = command.replace("cargo run --release --", "tidegate");
    let output = Command::new("sh")
        .args(["-c", &command])
        .current_dir(root())
        .env("PATH", path_with_tidegate())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn path_with_tidegate() -> OsString {
    let folder = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(folders).unwrap()
}

/// Links of a document to files or headings that do not exist.
fn dead_links(file: &str, text: &str) -> Vec<String> {
    let folder = root().join(file).parent().unwrap().to_path_buf();
    let mut findings = Vec::new();
    for (number, target) in links(text) {
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let linked = if path.is_empty() {
            root().join(file)
        } else {
            folder.join(path)
        };
        if !linked.exists() {
            findings.push(format!("{file}:{number}: `{path}` does not exist"));
        } else if !heading.is_empty() && !has_heading(&linked, heading) {
            findings.push(format!("{file}:{number}: `{target}` has no such heading"));
        }
    }
    findings
}

/// The targets of links within the repository, with their lines; blocks of code have none.
fn links(text: &str) -> Vec<(usize, &str)> {
    let is_elsewhere = |target: &str| target.contains("://") || target.starts_with("mailto:");
    prose(text)
        .flat_map(|(number, line)| {
            let targets = line.split("](").skip(1);
            targets.filter_map(move |rest| Some((number, rest.split_once(')')?.0)))
        })
        .filter(|(_, target)| !is_elsewhere(target))
        .collect()
}

fn has_heading(file: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(file).unwrap();
    prose(&text)
        .filter(|(_, line)| line.starts_with('#'))
        .any(|(_, line)| anchor(line.trim_start_matches('#')) == wanted)
}

/// The name of a heading in a link: lower case, hyphens for blanks, without punctuation.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let lower = heading.trim().to_lowercase();
    lower
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((index + 1, line))
    })
}

/// Top-level modules of a crate that its section of the map does not name.
fn missing_modules(name: &str, map: &str) -> Vec<String> {
    let (_, section) = map.split_once(&format!("### `crates/{name}`")).unwrap();
    let section = section.split("\n#").next().unwrap();
    let folder = format!("crates/{name}/src/");
    let modules: BTreeSet<String> = files_under(&folder)
        .into_iter()
        .filter_map(|file| {
            let path = file[folder.len()..].trim_end_matches(".rs");
            path.split('/').next().map(str::to_owned)
        })
        .filter(|module| module != "lib" && module != "main")
        .collect();
    modules
        .into_iter()
        .filter(|module| {
            let names = [
                format!("`{module}`"),
                format!("`{module}.rs`"),
                format!("`{module}/"),
            ];
            !names.iter().any(|name| section.contains(name))
        })
        .map(|module| format!("{folder}{module}: not in the code map"))
        .collect()
}

/// Every document, by its path from the root.
fn documents() -> Vec<(String, String)> {
    let documents: Vec<_> = files_under("")
        .into_iter()
        .filter(|file| file.ends_with(".md"))
        .map(|file| {
            let text = read(&file);
            (file, text)
        })
        .collect();
    assert!(documents.len() > 10, "the documents were not found");
    documents
}

/// All files of a folder, by their paths from the root, sorted; without built and hidden ones.
fn files_under(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || matches!(&*name, "target" | "corpus" | "artifacts") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(root()).unwrap();
                files.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    files.sort();
    files
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn name_of(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn sessions_split_commands_from_output() {
    let text = "```console\n$ one\n1\n\n$ two\n```\n```sh\n$ three\n```\n";
    let session = |line, command: &str, output: &str| Session {
        line,
        command: command.into(),
        output: output.into(),
    };
    assert_eq!(
        sessions(text),
        [session(2, "one", "1\n\n"), session(5, "two", "")]
    );
}

#[test]
fn links_ignores_other_sites_and_code() {
    let text = "[a](b.md#c) [d](https://e)\n```\n[f](g)\n```\n[h](#i)\n";
    assert_eq!(links(text), [(1, "b.md#c"), (5, "#i")]);
    assert_eq!(dead_links("README.md", "[a](none.md)").len(), 1);
    assert_eq!(dead_links("README.md", "[a](#no-such-heading)").len(), 1);
}

#[test]
fn anchor_matches_the_names_in_links() {
    assert_eq!(
        anchor(" What `adaptive` does, and when"),
        "what-adaptive-does-and-when"
    );
}
