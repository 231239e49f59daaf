//! How polling ended: text or JSON, and the exit code.

use std::time::Duration;

use anyhow::anyhow;
use app::poll::{PollEnd, PollFailure, PollSummary};
use policy::duration::{Exact, Rounded};
use serde_json::json;

use super::responses::millis;
use crate::commands::Failure;
use crate::exit::Exit;
use crate::output::Output;

/// Prints the summary. `exec` is the exit code of the program that was run.
pub(super) fn print(
    deadline: Option<Duration>,
    summary: &PollSummary,
    exec: Option<Option<i32>>,
    is_stdout_used: bool,
    output: &Output,
) -> Result<(), Failure> {
    let result = result(deadline, summary, exec);
    if matches!(summary.end, PollEnd::Unfit(_) | PollEnd::NotSent(_)) {
        return result;
    }
    if output.is_json() {
        output.json(&record(summary, exec))?;
    } else if result.is_ok() && !is_stdout_used && !output.is_quiet() {
        let requests = requests(summary.sent);
        output.text(&format!(
            "done after {}, {requests}\n",
            Rounded(summary.elapsed)
        ))?;
    }
    result
}

fn record(summary: &PollSummary, exec: Option<Option<i32>>) -> serde_json::Value {
    let last = summary.last.as_ref();
    json!({
        "state": summary.end.as_str(),
        "status": last.and_then(|last| last.status.as_deref()),
        "progress": summary.progress,
        "requests": summary.sent,
        "elapsed_ms": millis(summary.elapsed),
        "http_status": last.and_then(|last| last.http_status),
        "problem": last.and_then(|last| last.problem.as_deref()),
        "exec_code": exec.flatten(),
        "response": last.and_then(|last| last.json.as_ref()),
    })
}

fn result(
    deadline: Option<Duration>,
    summary: &PollSummary,
    exec: Option<Option<i32>>,
) -> Result<(), Failure> {
    let (exit, error) = match &summary.end {
        PollEnd::Done => return exec_result(exec),
        PollEnd::Interrupted => return Err(Failure::silent(Exit::Interrupted)),
        PollEnd::Unfit(problem) => {
            let hint = "`--status` and `--progress` are JSON pointers into the response; the URL must return the status itself";
            return Err(Failure::new(Exit::Usage, anyhow!("{problem}")).with_hint(hint));
        }
        PollEnd::NotSent(problem) => {
            let hint = "`network.allow` in the settings lists addresses that may be dialled besides public ones";
            return Err(Failure::new(Exit::Failed, anyhow!("{problem}")).with_hint(hint));
        }
        PollEnd::Failed(failure) => failed(deadline, summary, *failure),
    };
    let after = format!(
        "after {}, {}",
        Rounded(summary.elapsed),
        requests(summary.sent)
    );
    Err(Failure::new(exit, anyhow!("{error} ({after})")))
}

fn failed(
    deadline: Option<Duration>,
    summary: &PollSummary,
    failure: PollFailure,
) -> (Exit, String) {
    let last = summary.last.as_ref();
    let problem = last.and_then(|last| last.problem.as_deref());
    let problem = problem
        .map(|problem| format!(": {problem}"))
        .unwrap_or_default();
    match failure {
        PollFailure::Job => {
            let status = last.and_then(|last| last.status.as_deref());
            let status = status.map(|status| format!(": its status is `{status}`"));
            (
                Exit::Failed,
                format!("the job failed{}", status.unwrap_or_default()),
            )
        }
        PollFailure::NotFound => (
            Exit::Failed,
            "not found: HTTP 404, the server knows no such job".to_owned(),
        ),
        PollFailure::Errors | PollFailure::Stopped => {
            (Exit::Failed, format!("too many errors in a row{problem}"))
        }
        PollFailure::GaveUp => (
            Exit::GaveUp,
            format!("gave up: the server refused for too long{problem}"),
        ),
        PollFailure::QuotaExhausted => (
            Exit::GaveUp,
            format!("gave up: the quota is used up{problem}"),
        ),
        PollFailure::BreakerOpen => (
            Exit::BreakerOpen,
            format!("the breaker of this server is open{problem}"),
        ),
        PollFailure::Deadline => {
            let deadline = deadline.map(|deadline| format!(" {}", Exact(deadline)));
            let deadline = deadline.unwrap_or_default();
            (
                Exit::GaveUp,
                format!("the job is not done within{deadline}"),
            )
        }
    }
}

fn exec_result(exec: Option<Option<i32>>) -> Result<(), Failure> {
    let error = match exec {
        None | Some(Some(0)) => return Ok(()),
        Some(Some(code)) => anyhow!("the program of `--exec` failed with exit code {code}"),
        Some(None) => anyhow!("the program of `--exec` was ended by a signal"),
    };
    Err(Failure::new(Exit::Failed, error))
}

fn requests(sent: u32) -> String {
    match sent {
        1 => "1 request".to_owned(),
        sent => format!("{sent} requests"),
    }
}
