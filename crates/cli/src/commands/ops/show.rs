//! `tidegate ops show`.

use app::admin::bodies::{Conflict, Operation, OperationAttempt};
use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::list::{age, state};
use super::{Source, named_failure};
use crate::commands::Failure;
use crate::commands::gates::until;
use crate::output::{self, Output};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Id of the operation
    #[arg(value_name = "ID")]
    id: String,

    /// Show the documents of its conflict as well: base, ours and theirs
    #[arg(long)]
    conflict: bool,
}

pub(super) async fn run(args: &ShowArgs, source: &Source, output: &Output) -> Result<(), Failure> {
    let operation = source.client.operation(&args.id).await;
    let operation = operation.map_err(named_failure)?;
    let conflict = match args.conflict {
        true => {
            let conflict = source.client.conflict(&args.id).await;
            Some(conflict.map_err(crate::commands::server::failure)?)
        }
        false => None,
    };
    let mut value = json!(operation);
    if let Some(conflict) = &conflict {
        value["documents"] = json!(conflict);
    }
    output.result(&value, || {
        let mut text = described(&operation);
        if let Some(conflict) = &conflict {
            text.push_str(&documents(conflict));
        }
        text
    })
}

fn described(operation: &Operation) -> String {
    let mut rows = vec![
        ("id", operation.id.clone()),
        ("request", operation.summary.clone()),
        ("type", operation.kind.clone()),
        ("state", state(operation)),
        ("accepted", format!("{} ago", age(operation.accepted_at_ms))),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    let ended = operation.ended_at_ms;
    add("ended", ended.map(|at| format!("{} ago", age(at))));
    let expires = until(operation.expires_at_ms);
    add(
        "expires in",
        Some(expires.trim().to_owned()).filter(|text| !text.is_empty()),
    );
    add("backoff", operation.backoff.clone());
    add("credential", operation.credential.clone());
    add("order key", operation.order_key.clone());
    let priority = operation.priority;
    add("priority", (priority != 0).then(|| priority.to_string()));
    let rounds = operation.conflict.map(|conflict| conflict.rounds);
    add(
        "merged",
        rounds
            .filter(|rounds| *rounds > 0)
            .map(|rounds| format!("{rounds} times")),
    );
    add("trace", operation.trace_id.clone());
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    let mut text = output::columns(&rows);
    match operation.attempts.as_deref() {
        None | Some([]) => text.push_str("\nnot sent yet\n"),
        Some(attempts) => {
            text.push('\n');
            text.push_str(&output::table(HEADING, attempts.iter().map(attempt)));
        }
    }
    text
}

const HEADING: &[&str] = &["sent", "status", "phase", "latency", "waited", "result"];

fn attempt(attempt: &OperationAttempt) -> Vec<String> {
    let status = attempt.status.map(|status| status.to_string());
    vec![
        format!("{} ago", age(attempt.at_ms)),
        status.unwrap_or_else(|| "-".to_owned()),
        attempt.phase.clone(),
        format!("{:.0} ms", attempt.latency_ms),
        format!("{:.0} ms", attempt.wait_ms),
        attempt.reason.clone(),
    ]
}

fn documents(conflict: &Conflict) -> String {
    let documents = [
        ("base", &conflict.base),
        ("ours", &conflict.ours),
        ("theirs", &conflict.theirs),
    ];
    let documents = documents.map(|(name, document)| {
        let text = document
            .as_deref()
            .map_or_else(|| "unknown".to_owned(), document_text);
        format!("\n{name}:\n{text}\n")
    });
    documents.concat()
}

/// JSON as it was written, for numbers would change; a string as it is.
fn document_text(document: &RawValue) -> String {
    match serde_json::from_str(document.get()) {
        Ok(Value::String(text)) => text,
        _ => document.get().to_owned(),
    }
}
