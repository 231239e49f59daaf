//! `--config` of `replay` and `simulate`: the settings of a file as the base of theirs.

use std::fs;
use std::io::Write;

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{shown, tidegate};

/// Runs it in a folder whose `tidegate.toml` has this text.
fn run(text: &str, args: &str, input: &str) -> String {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    let mut command = tidegate(args);
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    shown(&child.wait_with_output().unwrap())
}

const FILE: &str = r#"
[gate]
strategy = "fixed"
initial_rate = 1
[backoff.standard]
base = "4s"
jitter = "none"
[backoff.slow]
base = "20s"
jitter = "none"
[run]
base = "7s"
[poll]
first = "9s"
early = "9s"
[pool.llm]
endpoints = [{ name = "a", url = "https://a.example.com", headers = { authorization = "env:NOT_SET" } }]
[pool.llm.protection]
pauses = ["5s"]
"#;

const ACQUIRES: &str = "{\"at\":0,\"acquire\":\"a\"}\n{\"at\":0,\"acquire\":\"a\"}\n";

#[test]
fn replay_starts_from_the_file_and_set_overrides_it() {
    assert_snapshot!(run(FILE, "replay --policy gate --config tidegate.toml", ACQUIRES), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"wait","until":0.998,"reason":"rate"}
    "#);
    let args = "replay --policy gate --config tidegate.toml --set initial_rate=10";
    assert_snapshot!(run(FILE, args, ACQUIRES), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"wait","until":0.098,"reason":"rate"}
    "#);
    let failed = r#"{"attempt":1,"status":503}"#;
    assert_snapshot!(run(FILE, "--config tidegate.toml replay --policy backoff", failed), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":4000,"min_ms":4000,"max_ms":4000,"source":"backoff","reason":"overloaded"}
    "#);
    let args = "replay --policy backoff --config tidegate.toml --preset slow";
    assert_snapshot!(run(FILE, args, failed), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":20000,"min_ms":20000,"max_ms":20000,"source":"backoff","reason":"overloaded"}
    "#);
    let asked = r#"{"at":0,"ask":true}"#;
    assert_snapshot!(run(FILE, "replay --policy failure-queue --config tidegate.toml", asked), @r#"
    exit 0
    --- stdout
    {"at":0,"failures":0,"wait_ms":7000,"class":null}
    "#);
    let polled = r#"{"at":0,"status":200,"job":"running"}"#;
    assert_snapshot!(run(FILE, "replay --policy poll --config tidegate.toml", polled), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"polling","next_ms":9000,"consecutive_429":0,"banner":false}
    "#);
    let errors = "{\"at\":0,\"start\":1}\n{\"at\":0,\"finish\":1,\"status\":429}\n";
    assert_snapshot!(run(FILE, "replay --policy protection --config tidegate.toml", errors), @r#"
    exit 0
    --- stdout
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":0,"enabled":true,"paused":true,"paused_until":5,"remaining_s":5,"consecutive_errors":1,"last_error":"HTTP 429"}
    "#);
}

#[test]
fn replay_reads_no_file_unless_it_is_named() {
    let without = run("", "replay --policy gate", ACQUIRES);
    assert_eq!(run(FILE, "replay --policy gate", ACQUIRES), without);
    assert_eq!(run("not TOML", "replay --policy gate", ACQUIRES), without);
}

#[test]
fn replay_reports_problems_of_the_sections_it_reads() {
    let text = "[gate]\nmax_rat = 5\n[poll]\nbase = 3\n[server]\nlisten = 1\n";
    assert_snapshot!(run(text, "replay --policy gate --config tidegate.toml", ""), @r#"
    exit 2
    --- stderr
    error: tidegate.toml:2:1: `gate.max_rat`: unknown setting; did you mean `max_rate`?
    error: tidegate.toml:4:8: `poll.base` is `3`, expected a string with a number and a unit such as `"500ms"`, `"30s"` or `"5m"`, not a whole number
    hint: `tidegate check FILE` shows all problems of a file
    "#);
    assert_snapshot!(run("", "replay --policy gate --config missing.toml", ""), @"
    exit 2
    --- stderr
    error: missing.toml: cannot read the settings: No such file or directory (os error 2)
    hint: `tidegate check FILE` shows all problems of a file
    ");
    let several = "[pool.a]\n[pool.b.protection]\ndisable_after = 2\n";
    assert_snapshot!(run(several, "replay --policy protection --config tidegate.toml", ""), @"
    exit 2
    --- stderr
    error: `tidegate.toml` has several pools, expected `--pool` with one of: a, b
    hint: a setting is written as `--set pauses=30s,60s`, by its name in `[pool.NAME.protection]`
    ");
    let args = "replay --policy protection --config tidegate.toml --pool c";
    assert_snapshot!(run(several, args, ""), @"
    exit 2
    --- stderr
    error: `--pool` is `c`, expected one of: a, b
    hint: a setting is written as `--set pauses=30s,60s`, by its name in `[pool.NAME.protection]`
    ");
    let args = "replay --policy protection --config tidegate.toml --pool b";
    assert_snapshot!(run(several, args, ""), @"
    exit 0
    ");
}

#[test]
fn simulate_gives_clients_the_gate_of_the_file() {
    let simulated = |text: &str, args: &str| {
        run(
            text,
            &format!("simulate --upstream bucket,rate=50 --duration 10s {args}"),
            "",
        )
    };
    let with_file =
        |text: &str, args: &str| simulated(text, &format!("--config tidegate.toml {args}"));
    assert_eq!(with_file("", ""), simulated(FILE, ""));
    assert_eq!(with_file(FILE, ""), simulated("", "--strategy fixed:1"));
    let tuned = "[gate]\ninitial_rate = 9\nmax_rate = 20\nmax_wait = \"5s\"\n";
    assert_eq!(
        with_file(tuned, ""),
        simulated("", "--set initial_rate=9 --set max_rate=20")
    );
    assert_eq!(
        with_file(tuned, "--set max_rate=30"),
        simulated("", "--set initial_rate=9 --set max_rate=30")
    );
    assert_eq!(
        with_file(tuned, "--strategy none"),
        simulated("", "--strategy none")
    );
    assert_snapshot!(with_file("[gate]\nmax_rate = -1\n", ""), @"
    exit 2
    --- stderr
    error: tidegate.toml:2:12: `gate.max_rate` is `-1`, expected a number of requests per second from 0.000001 to 1000000000
    hint: `tidegate check FILE` shows all problems of a file
    ");
}

#[test]
fn simulate_prefers_what_the_scenario_says_of_its_clients() {
    let scenario = "duration = \"10s\"\n[upstream]\nkind = \"bucket\"\nrate = 50\n\
                    [[client]]\nstrategy = \"aimd\"\nmax_rate = 40\n[[client]]\npolicy = \"poll\"\n";
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("s.toml"), scenario).unwrap();
    fs::write(
        folder.path().join("same.toml"),
        "[gate]\nstrategy = \"fixed\"\nmax_rate = 3\n",
    )
    .unwrap();
    let simulated = |args: &str| {
        let mut command = tidegate(&format!("simulate s.toml {args}"));
        shown(&command.current_dir(folder.path()).output().unwrap())
    };
    assert_eq!(simulated("--config same.toml"), simulated(""));
}
