//! How a fetch ended: report, text or JSON, and the exit code.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::anyhow;
use app::admin::bodies::{Gate, GateList};
use app::fetch::{FetchCounts, FetchSummary, Report, UrlError};
use policy::duration::Rounded;
use policy::item::TerminalReason;
use serde_json::{Map, Value, json};

use super::FetchArgs;
use super::input::{is_stream, report_paths};
use super::results::Results;
use super::screen::{number, size};
use crate::commands::Failure;
use crate::exit::Exit;
use crate::output::Output;

/// Hosts in `--json`: those with the most requests.
pub(super) const MAX_HOSTS: usize = 100;

/// Writes the report and prints the summary.
pub(super) fn finish(
    args: &FetchArgs,
    mut summary: FetchSummary,
    results: &Results,
    gates: GateList,
    output: &Output,
) -> Result<(), Failure> {
    let report = summary.report.take();
    let written = write_report(args, report.as_ref());
    if output.is_json() {
        output.json(&record(&summary, gates))?;
    } else if !output.is_quiet() {
        let text = format!("{}{}\n", results.text(), totals(&summary));
        match args.outputs.jsonl.as_deref().is_some_and(is_stream) {
            true => text.lines().for_each(|line| output.notice(line)),
            false => output.text(&text)?,
        }
    }
    written?;
    result(&summary)
}

fn write_report(args: &FetchArgs, report: Option<&Report>) -> Result<(), Failure> {
    let (Some(path), Some(report)) = (&args.outputs.report, report) else {
        return Ok(());
    };
    let paths = report_paths(path);
    let (data, page) = match &paths[..] {
        [page, data] => (data, Some(page)),
        _ => (path, None),
    };
    let json = serde_json::to_string_pretty(report).map_err(io::Error::from);
    write(data, json.map(|json| json + "\n"))?;
    match page {
        Some(page) => write(page, Ok(report.to_html())),
        None => Ok(()),
    }
}

/// Replaces a file at once: a reader never sees half a report.
fn write(path: &Path, text: io::Result<String>) -> Result<(), Failure> {
    let write = |text: String| {
        if path.exists() && !path.is_file() {
            return fs::write(path, text);
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        fs::write(&temporary, text)?;
        fs::rename(&temporary, path)
    };
    text.and_then(write).map_err(|error| {
        let error = anyhow!("cannot write `{}`: {error}", path.display());
        Failure::new(Exit::Failed, error)
    })
}

fn record(summary: &FetchSummary, gates: GateList) -> Value {
    let FetchCounts {
        known,
        queued,
        in_flight,
        retrying,
        done,
        failed,
        denied,
        not_modified,
        sent,
        bytes,
    } = summary.counts;
    let errors: Map<String, Value> = summary
        .errors
        .iter()
        .map(|(error, count)| (error.to_string(), (*count).into()))
        .collect();
    let hosts: Vec<Value> = gates.gates.iter().map(host).collect();
    json!({
        "state": if summary.is_interrupted { "interrupted" } else { "done" },
        "counts": {
            "known": known,
            "left": queued + in_flight + retrying,
            "done": done,
            "fetched": done - failed,
            "not_modified": not_modified,
            "failed": failed,
            "denied": denied,
            "left_out": summary.left_out,
            "sent": sent,
            "bytes": bytes,
        },
        "errors": errors,
        "totals": gates.totals,
        "hosts": hosts,
        "hosts_left_out": gates.totals.gates.saturating_sub(hosts.len() as u64),
        "elapsed_ms": u64::try_from(summary.elapsed.as_millis()).unwrap_or(u64::MAX),
    })
}

fn host(gate: &Gate) -> Value {
    json!({
        "key": gate.key,
        "counts": gate.counts,
        "rate_per_second": gate.rate_per_second,
        "ceiling": gate.ceiling,
        "latency_ms": gate.latency_ms,
        "breaker": gate.breaker.state,
        "why": gate.why,
    })
}

/// What was done, in one line.
fn totals(summary: &FetchSummary) -> String {
    let FetchCounts {
        known,
        done,
        failed,
        not_modified,
        bytes,
        ..
    } = summary.counts;
    let mut parts = vec![format!("{} fetched", number(done - failed))];
    if not_modified > 0 {
        parts[0].push_str(&format!(" ({} unchanged)", number(not_modified)));
    }
    if failed > 0 {
        parts.push(format!("{} failed", number(failed)));
    }
    parts.push(size(bytes));
    let mut text = format!("{} in {}", parts.join(", "), Rounded(summary.elapsed));
    if summary.is_interrupted {
        let left = number(known.saturating_sub(done));
        text.push_str(&format!(", interrupted: {left} known URLs are left"));
    }
    if summary.left_out > 0 {
        let left_out = number(summary.left_out);
        text.push_str(&format!(", {left_out} left out because there are too many"));
    }
    text
}

fn result(summary: &FetchSummary) -> Result<(), Failure> {
    if summary.is_interrupted {
        return Err(Failure::silent(Exit::Interrupted));
    }
    if summary.errors.is_empty() {
        return Ok(());
    }
    let are_all = |reason| {
        let error = UrlError::Item(reason);
        summary.errors.keys().all(|other| *other == error)
    };
    let exit = if are_all(TerminalReason::BreakerOpen) {
        Exit::BreakerOpen
    } else if are_all(TerminalReason::GaveUp) {
        Exit::GaveUp
    } else {
        Exit::Failed
    };
    let errors = summary.errors.iter();
    let errors: Vec<String> = errors
        .map(|(error, count)| format!("{error} {}", number(*count)))
        .collect();
    let FetchCounts { done, failed, .. } = summary.counts;
    let (failed, done) = (number(failed), number(done));
    let error = anyhow!("{failed} of {done} URLs failed: {}", errors.join(", "));
    Err(Failure::new(exit, error))
}
