//! `tidegate check`: problems of the settings, or the worst case of each route.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use app::check::{Amplification, Bound, Report, Route};
use app::settings::Flag;
use clap::Args;
use policy::duration::{Exact, Rounded};
use serde_json::{Value, json};

use super::settings::{DEFAULT_PATH, load};
use super::{Failure, problems};
use crate::args::{self, ConfigFile};
use crate::exit::Exit;
use crate::output::{self, Output};

/// Check the settings, and show the worst case of each route
///
/// Reports every problem in one run, with file, line, column, setting, value and
/// what was expected, and exits with 2. Without problems it shows each route with
/// its worst case: attempts, sends, waits and how much traffic retries add; then
/// settings that contradict each other or have no effect.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Settings file, instead of --config
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Setting to change first, by its path; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    #[command(flatten)]
    pub(crate) config: ConfigFile,
}

const EXAMPLES: &str = r#"Examples:
  # problems, or the worst cases
  tidegate check tidegate.toml

  # what if?
  tidegate check --set retry_budget.ratio=0.5 --set gate.max_wait=5s

  # environment and defaults only
  TIDEGATE_GATE__MAX_RATE=50 tidegate check /dev/null

  # for programs
  tidegate check --json | jq '.routes[] | {name, sends}'"#;

pub(super) fn run(args: &CheckArgs, output: &Output) -> Result<(), Failure> {
    let config = args.config.config.as_deref();
    if args.file.is_some() && config.is_some() {
        let error = anyhow!("FILE and `--config` both name a file, expected one of them");
        return Err(Failure::new(Exit::Usage, error));
    }
    let flags = flags(&args.settings)?;
    let loaded = load(args.file.as_deref().or(config), flags);
    let file = loaded.file.as_deref();
    let settings = loaded.settings.map_err(|problems| {
        let hint = "`tidegate config default` prints every setting with its default";
        problems::failure(file, problems, hint, output)
    })?;
    let report = app::check::check(&settings);
    output.result(&report_json(file, &report), || report_text(file, &report))
}

fn flags(settings: &[String]) -> Result<Vec<Flag>, Failure> {
    let (mut flags, mut errors) = (Vec::new(), Vec::new());
    for setting in settings {
        match args::key_value("--set", setting) {
            Ok((path, value)) => flags.push(Flag {
                name: format!("--set {path}"),
                path: path.to_owned(),
                value: value.to_owned(),
            }),
            Err(error) => errors.push(error),
        }
    }
    let hint = "a setting is written as `--set gate.max_rate=8`";
    match errors.is_empty() {
        true => Ok(flags),
        false => Err(Failure::usage(errors, hint)),
    }
}

fn report_text(file: Option<&str>, report: &Report) -> String {
    let mut text = match file {
        Some(file) => format!("{file} has no errors. The worst case of one request:\n\n"),
        None => format!("{DEFAULT_PATH} does not exist. The worst case with the defaults:\n\n"),
    };
    text.push_str(&output::table(HEADING, report.routes.iter().map(row)));
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

#[rustfmt::skip]
const HEADING: &[&str] = &[
    "route", "backoff", "endpoints", "attempts", "sends", "waits", "estimate", "amplification",
    "bounded by",
];

const NOTES: &str = "
attempts       sends that count, over all endpoints together
sends          with one more for each refresh of a credential
waits          from the shortest to the longest, between attempts
estimate       all delays before jitter and maximum, the one after the last send included
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
        Rounded(route.estimate_total).to_string(),
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
        "estimate_total_ms": millis(route.estimate_total),
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
