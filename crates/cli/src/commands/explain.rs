//! `tidegate explain`: the decision trail of one request.

use app::admin::bodies::{Decision, Explanation};
use clap::Args;
use serde_json::json;

use super::Failure;
use super::server::{self, ServerArgs};
use crate::output::{Output, columns};

/// Show every decision about one request of a running server
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// Value of `Tidegate-Request-Id` in the response
    #[arg(value_name = "REQUEST_ID")]
    request_id: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

const EXAMPLES: &str = "\
Examples:
  curl -i http://127.0.0.1:7070/llm/v1/models   # shows Tidegate-Request-Id
  tidegate explain 8c1f03aa0000000000000007";

pub(super) fn run(args: &ExplainArgs, output: &Output) -> Result<(), Failure> {
    let client = server::client(&args.server, output)?;
    let trail = server::call(client.explain(&args.request_id))?;
    output.result(&json!(trail), || text(&trail))
}

fn text(trail: &Explanation) -> String {
    let request = &trail.request;
    let mut text = format!(
        "{} {} through `{}`: {} ({}), sent {}, waited {:.0} ms\n\n",
        request.id,
        request.method,
        request.route,
        request.status,
        request.outcome,
        times(request.attempts),
        request.waited_ms,
    );
    let steps = trail.steps.iter();
    let rows: Vec<Vec<String>> = steps.map(|step| row(step, request.at_ms)).collect();
    text.push_str(&columns(&rows));
    if trail.left_out > 0 {
        text.push_str(&format!(
            "({} steps before the last two are not kept)\n",
            trail.left_out
        ));
    }
    text
}

fn times(attempts: u32) -> String {
    match attempts {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        times => format!("{times} times"),
    }
}

fn row(step: &Decision, start: i64) -> Vec<String> {
    let after = step.at_ms - start;
    vec![format!("+{} ms", after.max(0)), step.text.clone()]
}
