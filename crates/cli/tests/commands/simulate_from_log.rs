//! `tidegate simulate --from-log`: an access log becomes a scenario.

use std::fs;

use insta::assert_snapshot;

use crate::simulate::{ended, simulate};
use crate::support::shown;

/// A log of a bucket of 5/s that is asked ten times a second: every second request is refused.
fn log(route: &str) -> String {
    let mut log = String::new();
    let mut tokens = 5.0_f64;
    for number in 0..600_u32 {
        tokens = (tokens + 0.5).min(5.0);
        let is_accepted = tokens >= 1.0;
        tokens -= f64::from(u8::from(is_accepted));
        let status = if is_accepted { 200 } else { 429 };
        let (minute, second, tenth) = (number / 600, number / 10 % 60, number % 10);
        log.push_str(&format!(
            "{{\"time\":\"2026-11-15T06:{minute:02}:{second:02}.{tenth}00Z\",\"route\":\"{route}\",\"status\":{status},\
             \"attempts\":1,\"wait_ms\":0,\"latency_ms\":50,\"duration_ms\":51}}\n"
        ));
    }
    log
}

#[test]
fn prints_the_scenario_of_a_log() {
    let output = ended(&["--from-log", "-", "--no-run"], log("llm").as_bytes());
    assert_snapshot!(shown(&output), @r#"
    exit 0
    --- stdout
    # Estimated from stdin: 600 requests in 60 s; the server accepted 304, refused 296 and failed 0.
    # A token bucket explains 100 % of the answers.
    duration = "120s"
    seed = 1

    [upstream]
    kind = "bucket"
    rate = 5
    burst = 5
    latency = "50ms"
    latency_spread = 0
    network = "0ms"
    refuse_latency = "50ms"

    [[client]]
    strategy = "adaptive"
    backlog = "10/s"
    "#);
}

#[test]
fn writes_and_runs_the_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let (file, scenario) = (
        folder.path().join("access.log"),
        folder.path().join("api.toml"),
    );
    fs::write(&file, log("llm")).unwrap();
    let (file, scenario) = (file.to_str().unwrap(), scenario.to_str().unwrap());
    let shown = simulate(&[
        "--from-log",
        file,
        "--write",
        scenario,
        "--assert",
        "refused_ratio < 10%",
    ]);
    assert!(shown.starts_with("exit 0\n--- stdout\nfrom "), "{shown}");
    assert!(shown.contains("adaptive"), "{shown}");
    // What was written is a scenario file like any other, with the same figures.
    let again = simulate(&[scenario]);
    let table = |text: &str| text.split_once("\n\n").unwrap().1.to_owned();
    assert_eq!(table(&shown), table(&again));
}

#[test]
fn names_the_line_that_is_wrong() {
    let input = format!("{}\nnot a line\n", log("llm").lines().next().unwrap());
    let output = ended(&["--from-log", "-"], input.as_bytes());
    assert_snapshot!(shown(&output), @r#"
    exit 2
    --- stderr
    error: stdin:2: expected a line of the access log: a JSON object, or `- - - [15/Nov/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 0 …`
    hint: `server.access_log = "json"` or `"combined"` makes `tidegate serve` write such a log
    "#);
}

#[test]
fn several_routes_need_a_choice() {
    let both = log("llm") + log("crm").lines().next().unwrap() + "\n";
    let output = ended(&["--from-log", "-"], both.as_bytes());
    assert_snapshot!(shown(&output), @r"
    exit 2
    --- stderr
    error: cannot estimate a scenario from `stdin`: the log has requests of several routes
    hint: choose one with `--route NAME`: `llm` (600), `crm` (1)
    ");
    let output = ended(
        &["--from-log", "-", "--route", "llm", "--no-run"],
        both.as_bytes(),
    );
    assert_eq!(output.status.code(), Some(0));
    let output = ended(&["--from-log", "-", "--route", "crm"], both.as_bytes());
    assert_snapshot!(shown(&output), @r"
    exit 2
    --- stderr
    error: cannot estimate a scenario from `stdin`: the log has 1 such requests, expected at least two
    hint: a longer log says more; without `--route`, all requests count
    ");
}

#[test]
fn write_needs_something_to_write() {
    assert_snapshot!(simulate(&["o1", "--write", "x"]), @r"
    exit 2
    --- stderr
    error: `FILE|NAME` cannot be used with `--write`
    hint: `tidegate simulate --help` shows what it takes
    ");
}
