//! What is wrong with something written, told in the same way whatever was written.

use serde_json::{Value, json};
use sim::written::problem::{Place, Problem};

use super::{Failure, unwritten};
use crate::exit::Exit;
use crate::output::Output;

/// The failure that tells every problem: for people on stderr, for programs as data.
pub(super) fn failure(
    file: Option<&str>,
    problems: Vec<Problem>,
    hint: &str,
    is_json: bool,
    output: &Output,
) -> Failure {
    if !is_json {
        return Failure {
            exit: Exit::Usage,
            errors: problems.into_iter().map(Into::into).collect(),
            hint: Some(hint.to_owned()),
        };
    }
    let text = format!("{:#}\n", record(file, &problems));
    match output.print(text.as_bytes()).or_else(unwritten) {
        Ok(()) => Failure {
            exit: Exit::Usage,
            errors: Vec::new(),
            hint: None,
        },
        Err(failure) => failure,
    }
}

fn record(file: Option<&str>, problems: &[Problem]) -> Value {
    let problems: Vec<Value> = problems.iter().map(problem_record).collect();
    json!({ "ok": false, "file": file, "problems": problems })
}

fn problem_record(problem: &Problem) -> Value {
    let (file, line, column) = match &problem.place {
        Place::File { file, line, column } => (Some(&**file), Some(line), Some(column)),
        Place::Unread(file) => (Some(&**file), None, None),
        Place::Variable(_) | Place::Flag(_) | Place::Default => (None, None, None),
    };
    let (variable, flag) = match &problem.place {
        Place::Variable(name) => (Some(name), None),
        Place::Flag(name) => (None, Some(name)),
        Place::File { .. } | Place::Unread(_) | Place::Default => (None, None),
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
        "message": problem.to_string(),
    })
}
