//! `tidegate explain`.

use std::path::Path;

use app::admin::client::encoded;
use serde_json::Value;

use super::{Failure, asking, unwritten};
use crate::args::ExplainArgs;
use crate::output::{Output, columns};

pub(crate) fn explain(
    args: &ExplainArgs,
    config: Option<&Path>,
    is_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    let client = asking::client(&args.asking, config, is_json, output)?;
    let path = format!("/api/v1/explain/{}", encoded(&args.request_id));
    let told = asking::run(async { client.get(&path).await.map_err(asking::failed) })?;
    let text = if is_json {
        format!("{told:#}\n")
    } else {
        trail(&told)
    };
    output.print(text.as_bytes()).or_else(unwritten)
}

fn trail(told: &Value) -> String {
    let text = |name: &str| told[name].as_str().unwrap_or_default();
    let mut shown = format!(
        "{} {} through `{}`: {} ({}), sent {}, waited {:.0} ms\n\n",
        text("id"),
        text("method"),
        text("route"),
        told["status"],
        text("outcome"),
        times(&told["attempts"]),
        told["waited_ms"].as_f64().unwrap_or_default(),
    );
    let began = told["at_ms"].as_i64().unwrap_or_default();
    let steps = told["steps"].as_array();
    let rows: Vec<Vec<String>> = steps
        .into_iter()
        .flatten()
        .map(|step| row(step, began))
        .collect();
    shown.push_str(&columns(&rows));
    if told["left_out"].as_u64().unwrap_or_default() > 0 {
        let left_out = &told["left_out"];
        shown.push_str(&format!(
            "({left_out} steps before the last two are not kept)\n"
        ));
    }
    shown
}

fn times(attempts: &Value) -> String {
    match attempts.as_u64().unwrap_or_default() {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        times => format!("{times} times"),
    }
}

fn row(step: &Value, began: i64) -> Vec<String> {
    let after = step["at_ms"].as_i64().unwrap_or(began) - began;
    let text = step["text"].as_str().unwrap_or_default();
    vec![format!("+{} ms", after.max(0)), text.to_owned()]
}
