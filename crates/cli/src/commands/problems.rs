//! Problems of settings and scenarios, reported the same way by every command.

use anyhow::anyhow;
use config::{Location, Problem};
use serde_json::{Value, json};

use super::Failure;
use crate::exit::Exit;
use crate::output::Output;

/// The failure that reports every problem: on stderr for people, as data with `--json`.
pub(super) fn failure(
    file: Option<&str>,
    problems: Vec<Problem>,
    hint: &str,
    output: &Output,
) -> Failure {
    if !output.is_json() {
        let errors = problems.iter().map(|problem| anyhow!(message(problem)));
        return Failure::usage(errors.collect(), hint);
    }
    match output.json(&record(file, &problems)) {
        Ok(()) => Failure::silent(Exit::Usage),
        Err(failure) => failure,
    }
}

/// The problem in one line. A flag that stands for one setting is named instead of that setting.
pub(super) fn message(problem: &Problem) -> String {
    match (&problem.location, &problem.value) {
        (Location::Flag(flag), Some(value)) if !holds_several(flag) => {
            format!("`{flag}` is `{value}`, {}", problem.what)
        }
        _ => problem.to_string(),
    }
}

/// Do values of this flag name settings themselves?
fn holds_several(flag: &str) -> bool {
    flag.starts_with("--set") || flag == "--upstream"
}

fn record(file: Option<&str>, problems: &[Problem]) -> Value {
    let problems: Vec<Value> = problems.iter().map(problem_record).collect();
    json!({ "ok": false, "file": file, "problems": problems })
}

fn problem_record(problem: &Problem) -> Value {
    let (file, line, column) = match &problem.location {
        Location::File { file, line, column } => (Some(&**file), Some(line), Some(column)),
        Location::UnreadableFile(file) => (Some(&**file), None, None),
        Location::Variable(_) | Location::Flag(_) | Location::Default => (None, None, None),
    };
    let (variable, flag) = match &problem.location {
        Location::Variable(name) => (Some(name), None),
        Location::Flag(name) => (None, Some(name)),
        Location::File { .. } | Location::UnreadableFile(_) | Location::Default => (None, None),
    };
    json!({
        "file": file,
        "line": line,
        "column": column,
        "variable": variable,
        "flag": flag,
        "key": problem.key,
        "value": problem.value,
        "problem": problem.what,
        "message": message(problem),
    })
}
