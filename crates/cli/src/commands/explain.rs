//! `tidegate explain`: the decision trail of one request.

use app::admin::client::encoded;
use clap::Args;
use serde_json::Value;

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
    let path = format!("/api/v1/explain/{}", encoded(&args.request_id));
    let trail = server::call(client.get(&path))?;
    match output.is_json() {
        true => output.json(&trail),
        false => output.text(&text(&trail)),
    }
}

fn text(trail: &Value) -> String {
    let word = |name: &str| trail[name].as_str().unwrap_or_default();
    let mut text = format!(
        "{} {} through `{}`: {} ({}), sent {}, waited {:.0} ms\n\n",
        word("id"),
        word("method"),
        word("route"),
        trail["status"],
        word("outcome"),
        times(&trail["attempts"]),
        trail["waited_ms"].as_f64().unwrap_or_default(),
    );
    let start = trail["at_ms"].as_i64().unwrap_or_default();
    let steps = trail["steps"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = steps.map(|step| row(step, start)).collect();
    text.push_str(&columns(&rows));
    let left_out = trail["left_out"].as_u64().unwrap_or_default();
    if left_out > 0 {
        text.push_str(&format!(
            "({left_out} steps before the last two are not kept)\n"
        ));
    }
    text
}

fn times(attempts: &Value) -> String {
    match attempts.as_u64().unwrap_or_default() {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        times => format!("{times} times"),
    }
}

fn row(step: &Value, start: i64) -> Vec<String> {
    let after = step["at_ms"].as_i64().unwrap_or(start) - start;
    let text = step["text"].as_str().unwrap_or_default();
    vec![format!("+{} ms", after.max(0)), text.to_owned()]
}
