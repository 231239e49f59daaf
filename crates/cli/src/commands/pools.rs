//! `tidegate pools`.

use std::path::Path;

use app::admin::client::{ClientError, encoded};
use serde_json::{Value, json};

use super::gates::until;
use super::{Failure, asking, unwritten};
use crate::args::{EndpointArgs, PoolsArgs, PoolsCommand};
use crate::output::{Output, columns};

pub(crate) fn pools(
    args: &PoolsArgs,
    config: Option<&Path>,
    is_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    let (told, text) = match &args.what {
        PoolsCommand::List { pool, asking } => {
            let client = asking::client(asking, config, is_json, output)?;
            let path = match pool {
                Some(pool) => format!("/api/v1/pools/{}", encoded(pool)),
                None => "/api/v1/pools".to_owned(),
            };
            let seen = asked(client.get(&path))?;
            let text = table(&seen);
            (seen, text)
        }
        PoolsCommand::Enable(args) => switch(args, true, config, is_json, output)?,
        PoolsCommand::Disable(args) => switch(args, false, config, is_json, output)?,
        PoolsCommand::Test {
            pool,
            scenario,
            asking,
        } => {
            let client = asking::client(asking, config, is_json, output)?;
            let path = format!("/api/v1/pools/{}/test", encoded(pool));
            let body = json!({ "scenario": scenario.as_str() });
            let tested = asked(client.post(&path, &body))?;
            let text = steps(pool, &tested);
            (tested, text)
        }
    };
    let text = if is_json { format!("{told:#}\n") } else { text };
    output.print(text.as_bytes()).or_else(unwritten)
}

/// What came of asking.
fn asked(asking: impl Future<Output = Result<Value, ClientError>>) -> Result<Value, Failure> {
    asking::run(async { asking.await.map_err(asking::failed) })
}

fn switch(
    args: &EndpointArgs,
    is_enabled: bool,
    config: Option<&Path>,
    is_json: bool,
    output: &Output,
) -> Result<(Value, String), Failure> {
    let client = asking::client(&args.asking, config, is_json, output)?;
    let (pool, name) = (encoded(&args.pool), encoded(&args.endpoint));
    let path = format!("/api/v1/pools/{pool}/endpoints/{name}");
    let body = json!({ "enabled": is_enabled });
    let after = asked(client.patch(&path, &body))?;
    let word = if is_enabled { "enabled" } else { "disabled" };
    let text = format!("{word} `{}` of pool `{}`\n", args.endpoint, args.pool);
    Ok((after, text))
}

/// One pool, or all of them.
fn table(seen: &Value) -> String {
    let pools = match seen["pools"].as_array() {
        Some(pools) => pools.as_slice(),
        None => std::slice::from_ref(seen),
    };
    let heading = [
        "pool",
        "endpoint",
        "state",
        "errors",
        "in flight",
        "url",
        "last error",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for pool in pools {
        let endpoints = pool["endpoints"].as_array();
        let name = pool["name"].as_str().unwrap_or_default();
        rows.extend(
            endpoints
                .into_iter()
                .flatten()
                .map(|endpoint| row(name, endpoint)),
        );
    }
    if rows.len() == 1 {
        return "no endpoint: `[pool.NAME]` of the settings has them\n".to_owned();
    }
    columns(&rows)
}

fn row(pool: &str, endpoint: &Value) -> Vec<String> {
    let text = |name: &str| endpoint[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| endpoint[name].as_u64().unwrap_or_default().to_string();
    vec![
        pool.to_owned(),
        text("name"),
        state(endpoint),
        number("consecutive_errors"),
        number("in_flight"),
        text("url"),
        text("last_error"),
    ]
}

fn state(endpoint: &Value) -> String {
    match endpoint["disabled_reason"].as_str() {
        Some(reason) => format!("disabled: {}", reason.trim_start_matches("disabled ")),
        None if endpoint["paused_until_ms"].is_null() => "enabled".to_owned(),
        None => format!("paused{}", until(&endpoint["paused_until_ms"])),
    }
}

fn steps(pool: &str, tested: &Value) -> String {
    let mut text = String::new();
    let steps = tested["steps"].as_array();
    for (step, number) in steps.into_iter().flatten().zip(1..) {
        let told = step["text"].as_str().unwrap_or_default();
        text.push_str(&format!("request {number}: {told}\n"));
    }
    if tested["protected"] == json!(false) {
        text.push_str(&format!(
            "\npool `{pool}` itself is not protected now: it has one endpoint, or `protection.enabled` is false\n"
        ));
    }
    text
}
