//! `tidegate gates`.

use std::path::Path;
use std::time::Duration;

use app::admin::client::Client;
use policy::duration::Rounded;
use serde_json::Value;

use super::{Failure, asking, unwritten};
use crate::args::GatesArgs;
use crate::exit::Exit;
use crate::output::{Output, columns};

pub(crate) fn gates(
    args: &GatesArgs,
    config: Option<&Path>,
    is_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    let client = asking::client(&args.asking, config, is_json, output)?;
    let path = format!(
        "/api/v1/gates?sort={}&limit={}",
        args.sort.as_str(),
        args.limit
    );
    if args.watch {
        return asking::run(watch(&client, &path, is_json, output));
    }
    let seen = asking::run(async { client.get(&path).await.map_err(asking::failed) })?;
    let text = if is_json {
        format!("{seen:#}\n")
    } else {
        table(&seen)
    };
    output.print(text.as_bytes()).or_else(unwritten)
}

/// Often enough to watch, and nothing to a server.
const EVERY: Duration = Duration::from_secs(1);

async fn watch(client: &Client, path: &str, is_json: bool, output: &Output) -> Result<(), Failure> {
    let looking = async {
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            let seen = client.get(path).await.map_err(asking::failed)?;
            let written = if is_json {
                output.print(format!("{seen}\n").as_bytes())
            } else {
                output.print_again(format!("{}\n", table(&seen)).as_bytes())
            };
            if let Err(error) = written {
                return unwritten(error);
            }
        }
    };
    tokio::select! {
        ended = looking => ended,
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(Exit::Interrupted)),
    }
}

fn table(seen: &Value) -> String {
    let heading = [
        "key",
        "rate/s",
        "in flight",
        "waiting",
        "p95",
        "errors",
        "breaker",
        "hold",
        "admitted",
        "throttled",
        "failed",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let gates = seen["gates"].as_array();
    rows.extend(gates.into_iter().flatten().map(row));
    let mut text = if rows.len() > 1 {
        columns(&rows)
    } else {
        "no gate yet: gates come with their first request\n".to_owned()
    };
    text.push_str(&totals(&seen["totals"]));
    text
}

fn row(gate: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_u64().unwrap_or_default().to_string();
    let p95 = gate["latency_ms"]["p95"].as_f64();
    let error_rate = gate["error_rate"].as_f64().unwrap_or_default();
    let breaker = gate["breaker"]["state"].as_str().unwrap_or_default();
    let counts = &gate["counts"];
    vec![
        gate["key"].as_str().unwrap_or_default().to_owned(),
        format!(
            "{:.2}",
            gate["rate_per_second"].as_f64().unwrap_or_default()
        ),
        number(&gate["in_flight"]),
        number(&gate["waiting"]),
        p95.map_or_else(|| "-".to_owned(), |p95| format!("{p95:.0} ms")),
        format!("{:.0} %", error_rate * 100.0),
        format!("{}{}", breaker, until(&gate["breaker"]["until_ms"])),
        gate["hold"]["source"].as_str().map_or_else(
            || "-".to_owned(),
            |source| format!("{source}{}", until(&gate["hold"]["until_ms"])),
        ),
        number(&counts["admitted"]),
        number(&counts["throttled"]),
        number(&counts["failed"]),
    ]
}

fn totals(totals: &Value) -> String {
    let names = [
        "requests",
        "throttled",
        "denied",
        "retries",
        "open",
        "half_open",
        "gates",
        "evicted",
    ];
    let told = names.map(|name| {
        let count = totals[name].as_u64().unwrap_or_default();
        format!("{} {count}", name.replace('_', "-"))
    });
    format!("\n{}\n", told.join("  "))
}

/// How long a time of the server's is away, by the clock of this machine; nothing if it has come.
pub(super) fn until(at_ms: &Value) -> String {
    let now = now_ms();
    match at_ms.as_i64().and_then(|at| u64::try_from(at - now).ok()) {
        Some(left) if left > 0 => format!(" {}", Rounded(Duration::from_millis(left))),
        _ => String::new(),
    }
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.ok()
        .and_then(|now| i64::try_from(now.as_millis()).ok())
        .unwrap_or_default()
}
