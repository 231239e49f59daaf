//! What is wrong with the settings, or what they come to.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use app::check::{Amplification, Bound, Report, Route};
use app::settings::Flag;
use policy::duration::{Exact, Rounded};
use serde_json::{Value, json};

use super::settings::{DEFAULT_PATH, load};
use super::{Failure, problems, unwritten};
use crate::args::CheckArgs;
use crate::exit::Exit;
use crate::output::{Output, columns};

pub(crate) fn check(
    args: &CheckArgs,
    config: Option<&Path>,
    is_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    if args.file.is_some() && config.is_some() {
        let error = anyhow!("both FILE and `--config` name a file, expected one of them");
        return Err(Failure::new(Exit::Usage, error));
    }
    let flags = flags(&args.settings)?;
    let loaded = load(args.file.as_deref().or(config), flags);
    let file = loaded.file.as_deref();
    match loaded.settings {
        Err(problems) => {
            let hint = "`tidegate config default` prints every setting with its default";
            Err(problems::failure(file, problems, hint, is_json, output))
        }
        Ok(settings) => {
            let report = app::check::check(&settings);
            let text = if is_json {
                format!("{:#}\n", report_json(file, &report))
            } else {
                report_text(file, &report)
            };
            output.print(text.as_bytes()).or_else(unwritten)
        }
    }
}

fn flags(settings: &[String]) -> Result<Vec<Flag>, Failure> {
    let flags = settings
        .iter()
        .map(|setting| match setting.split_once('=') {
            Some((path, value)) => Ok(Flag {
                name: format!("--set {path}"),
                path: path.trim().to_owned(),
                value: value.trim().to_owned(),
            }),
            None => Err(anyhow!("`--set {setting}` has no `=`, expected KEY=VALUE")),
        });
    let (flags, errors): (Vec<_>, Vec<_>) = flags.partition(Result::is_ok);
    let errors: Vec<_> = errors.into_iter().filter_map(Result::err).collect();
    if errors.is_empty() {
        return Ok(flags.into_iter().flatten().collect());
    }
    Err(Failure {
        exit: Exit::Usage,
        errors,
        hint: Some("settings are written as `--set gate.max_rate=8`".into()),
    })
}

fn report_text(file: Option<&str>, report: &Report) -> String {
    let mut text = match file {
        Some(file) => format!("{file} is fine. The worst that can become of one request:\n\n"),
        None => format!("{DEFAULT_PATH} is not there. The worst that the defaults come to:\n\n"),
    };
    let heading = [
        "route",
        "backoff",
        "endpoints",
        "attempts",
        "sends",
        "waits",
        "amplification",
        "bounded by",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(report.routes.iter().map(row));
    text.push_str(&columns(&rows));
    text.push_str(NOTES);
    if !report.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &report.warnings {
        // Writing into a string cannot fail.
        _ = writeln!(text, "warning: `{}` {}", warning.key, warning.what);
    }
    text
}

const NOTES: &str = "
attempts       sends that count, over all endpoints together
sends          with one more for each refresh of a credential
waits          from the shortest to the longest, between attempts
amplification  sends per request within the retry budget, and what its minimum allows
bounded by     what ends a wait that the server names (Retry-After): it uses no attempt up
";

fn row(route: &Route) -> Vec<String> {
    let (least, most) = route.waits;
    vec![
        format!("{} {}", route.kind.as_str(), route.name),
        route.backoff.clone(),
        route.endpoints.to_string(),
        route.attempts.to_string(),
        route.sends.to_string(),
        format!("{} to {}", Rounded(least), Rounded(most)),
        amplification(route.amplification),
        bound(route.bound),
    ]
}

fn amplification(amplification: Amplification) -> String {
    let Amplification {
        sustained,
        peak,
        peak_below,
    } = amplification;
    if f64::from(peak) > sustained {
        format!("{sustained:.1}; {peak} up to {peak_below:.1}/s")
    } else {
        format!("{sustained:.1}")
    }
}

fn bound(bound: Bound) -> String {
    let (name, time) = named(bound);
    format!("{name} {}", Exact(time))
}

fn named(bound: Bound) -> (&'static str, Duration) {
    match bound {
        Bound::MaxWait(time) => ("max_wait", time),
        Bound::ExpiresAfter(time) => ("expires_after", time),
    }
}

fn report_json(file: Option<&str>, report: &Report) -> Value {
    let routes: Vec<Value> = report.routes.iter().map(route_json).collect();
    let warnings = report.warnings.iter();
    let warnings: Vec<Value> = warnings
        .map(|warning| json!({ "key": warning.key, "warning": warning.what }))
        .collect();
    json!({ "ok": true, "file": file, "routes": routes, "warnings": warnings })
}

fn route_json(route: &Route) -> Value {
    let (least, most) = route.waits;
    let (setting, time) = named(route.bound);
    json!({
        "kind": route.kind.as_str(),
        "name": route.name,
        "backoff": route.backoff,
        "endpoints": route.endpoints,
        "attempts": route.attempts,
        "sends": route.sends,
        "min_wait_ms": millis(least),
        "max_wait_ms": millis(most),
        "amplification": {
            "sustained": route.amplification.sustained,
            "peak": route.amplification.peak,
            "peak_below_per_second": route.amplification.peak_below,
        },
        "bounded_by": { "setting": setting, "ms": millis(time) },
    })
}

/// Whole milliseconds, rounded up.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
