//! `tidegate check`: every kind of problem, and the worst cases of valid settings.

use std::fs;

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{output, run, shown, tidegate};

/// Runs `tidegate check` in a folder whose `tidegate.toml` has this text.
fn check(text: &str) -> String {
    check_with(text, "check", &[])
}

fn check_with(text: &str, args: &str, variables: &[(&str, &str)]) -> String {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    let mut command = tidegate(args);
    command.current_dir(folder.path());
    command.envs(variables.iter().copied());
    shown(&command.output().unwrap())
}

const GOOD: &str = r#"
[pool.llm]
endpoints = [
  { name = "a", url = "https://a.example.com/v1", headers = { authorization = "Bearer env:KEY_A" } },
  { name = "b", url = "https://b.example.com/v1" },
]
[gate."*.example.com"]
max_rate = 50
max_wait = "10s"
[forward]
allow = ["*.example.org"]
[operation.analytics]
backoff = "background"
"#;

#[test]
fn check_prints_the_worst_case_of_valid_settings() {
    assert_snapshot!(check_with(GOOD, "check", &[("KEY_A", "k")]), @"
    exit 0
    --- stdout
    tidegate.toml has no errors. The worst case of one request:

    route                backoff     endpoints  attempts  sends  waits            estimate  amplification       bounded by
    pool llm             standard            2         5      5  8s to 23s        31s       1.2; 5 up to 2.5/s  max_wait 10s
    gate *.example.com   crawl               1         3      3  0s to 1s         2s        1.2; 3 up to 5.0/s  max_wait 10s
    gate *               crawl               1         3      3  0s to 1s         2s        1.2; 3 up to 5.0/s  max_wait 30s
    forward *            standard            1         5      5  8s to 23s        31s       1.2; 5 up to 2.5/s  max_wait 30s
    operation analytics  background          1         7      7  1m 3s to 2m 33s  4m 14s    1.2; 7 up to 1.7/s  expires_after 1d
    operation default    standard            1         5      5  8s to 23s        31s       1.2; 5 up to 2.5/s  expires_after 1d

    attempts       sends that count, over all endpoints together
    sends          with one more for each refresh of a credential
    waits          from the shortest to the longest, between attempts
    estimate       all delays before jitter and maximum, the one after the last send included
    amplification  sends per request within the retry budget, and what its minimum allows
    bounded by     what ends a wait that the server names (Retry-After): it uses no attempt up
    ");
}

#[test]
fn check_prints_the_worst_case_as_json() {
    let text = "[gate]\nlimits = [\"5/1m\"]\n";
    assert_snapshot!(check_with(text, "check --json", &[]), @r#"
    exit 0
    --- stdout
    {
      "file": "tidegate.toml",
      "ok": true,
      "routes": [
        {
          "amplification": {
            "peak": 3,
            "peak_below_per_second": 5.0,
            "sustained": 1.2
          },
          "attempts": 3,
          "backoff": "crawl",
          "bounded_by": {
            "ms": 30000,
            "setting": "max_wait"
          },
          "endpoints": 1,
          "estimate_total_ms": 1400,
          "kind": "gate",
          "max_wait_ms": 600,
          "min_wait_ms": 0,
          "name": "*",
          "sends": 3
        },
        {
          "amplification": {
            "peak": 5,
            "peak_below_per_second": 2.5,
            "sustained": 1.2
          },
          "attempts": 5,
          "backoff": "standard",
          "bounded_by": {
            "ms": 86400000,
            "setting": "expires_after"
          },
          "endpoints": 1,
          "estimate_total_ms": 31000,
          "kind": "operation",
          "max_wait_ms": 22500,
          "min_wait_ms": 7500,
          "name": "default",
          "sends": 5
        }
      ],
      "warnings": [
        {
          "key": "gate.min_samples",
          "warning": "is never reached: at most 5 outcomes fit into `window` (10s); only `consecutive_failures` opens the breaker"
        }
      ]
    }
    "#);
}

#[test]
fn check_warns_about_settings_without_effect() {
    let text = r#"
[gate]
max_rate = 0.5
max_wait = "1s"
[pool.one]
endpoints = [{ name = "a", url = "http://127.0.0.1:8080" }]
backoff = "background"
"#;
    assert_snapshot!(check(text), @"
    exit 0
    --- stdout
    tidegate.toml has no errors. The worst case of one request:

    route              backoff     endpoints  attempts  sends  waits            estimate  amplification       bounded by
    pool one           background          1         7      7  1m 3s to 2m 33s  4m 14s    1.2; 7 up to 1.7/s  max_wait 1s
    gate *             crawl               1         3      3  0s to 1s         2s        1.2; 3 up to 5.0/s  max_wait 1s
    operation default  standard            1         5      5  8s to 23s        31s       1.2; 5 up to 2.5/s  expires_after 1d

    attempts       sends that count, over all endpoints together
    sends          with one more for each refresh of a credential
    waits          from the shortest to the longest, between attempts
    estimate       all delays before jitter and maximum, the one after the last send included
    amplification  sends per request within the retry budget, and what its minimum allows
    bounded by     what ends a wait that the server names (Retry-After): it uses no attempt up

    warning: `gate.min_samples` is never reached: at most 6 outcomes fit into `window` (10s); only `consecutive_failures` opens the breaker
    warning: `gate.max_wait` is below the wait for one token at `initial_rate` (2.0s): every caller but the first is refused
    warning: `pool.one.protection` is off: a single endpoint is left to its gate, because no other could do its work
    warning: `pool.one.backoff` allows 7 attempts, but the 3rd comes after `max_wait` (1s) at the earliest
    ");
}

#[test]
fn check_without_a_file_uses_the_defaults() {
    let folder = TempDir::new().unwrap();
    let output = tidegate("check")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_snapshot!(shown(&output), @"
    exit 0
    --- stdout
    tidegate.toml does not exist. The worst case with the defaults:

    route              backoff   endpoints  attempts  sends  waits      estimate  amplification       bounded by
    gate *             crawl             1         3      3  0s to 1s   2s        1.2; 3 up to 5.0/s  max_wait 30s
    operation default  standard          1         5      5  8s to 23s  31s       1.2; 5 up to 2.5/s  expires_after 1d

    attempts       sends that count, over all endpoints together
    sends          with one more for each refresh of a credential
    waits          from the shortest to the longest, between attempts
    estimate       all delays before jitter and maximum, the one after the last send included
    amplification  sends per request within the retry budget, and what its minimum allows
    bounded by     what ends a wait that the server names (Retry-After): it uses no attempt up
    ");
}

#[test]
fn check_accepts_the_default_file() {
    let default = output("config default", b"").stdout;
    let text = String::from_utf8(default).unwrap();
    assert!(check(&text).starts_with("exit 0\n--- stdout\ntidegate.toml has no errors."));
}

#[test]
fn missing_file() {
    assert_snapshot!(run("check /no/such/file.toml", ""), @"
    exit 2
    --- stderr
    error: /no/such/file.toml: cannot read the settings: No such file or directory (os error 2)
    hint: `tidegate config default` prints every setting with its default
    ");
    assert_snapshot!(run("check --config /no/such/file.toml", ""), @"
    exit 2
    --- stderr
    error: /no/such/file.toml: cannot read the settings: No such file or directory (os error 2)
    hint: `tidegate config default` prints every setting with its default
    ");
    assert_snapshot!(run("check --config a.toml b.toml", ""), @"
    exit 2
    --- stderr
    error: FILE and `--config` both name a file, expected one of them
    ");
}

#[test]
fn rejects_a_directory() {
    assert_snapshot!(run("check /", ""), @"
    exit 2
    --- stderr
    error: /: cannot read the settings: Is a directory (os error 21)
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn syntax_error() {
    assert_snapshot!(check("[gate]\nmax_rate = \n"), @"
    exit 2
    --- stderr
    error: tidegate.toml:2:12: not TOML: string values must be quoted, expected literal string
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn wrong_type() {
    assert_snapshot!(check("[gate]\nmax_in_flight = \"many\"\nlimits = \"10/1s\"\n[pool]\nllm = 5\n"), @r#"
    exit 2
    --- stderr
    error: tidegate.toml:2:17: `gate.max_in_flight` is `many`, expected a whole number from 1 to 1000000, not a string
    error: tidegate.toml:3:10: `gate.limits` is `10/1s`, expected a list, each a string such as `"10/1s"`, not a string
    error: tidegate.toml:5:1: `pool.llm`: expected a table
    hint: `tidegate config default` prints every setting with its default
    "#);
}

#[test]
fn unknown_key() {
    assert_snapshot!(check("[gate]\nmax_rat = 5\n[sever]\nlisten = \"127.0.0.1:1\"\n"), @"
    exit 2
    --- stderr
    error: tidegate.toml:2:1: `gate.max_rat`: unknown setting; did you mean `max_rate`?
    error: tidegate.toml:3:2: `sever`: unknown setting; did you mean `server`?
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn contradictory_limits() {
    assert_snapshot!(check("[gate]\nmin_rate = 5\nmax_rate = 1\n"), @"
    exit 2
    --- stderr
    error: tidegate.toml:2:12: `gate.min_rate` is `5`, expected at most `max_rate` (1)
    hint: `tidegate config default` prints every setting with its default
    ");
    assert_snapshot!(check("[gate]\nmin_rate = 5\n[gate.\"a.example.com\"]\nmax_rate = 1\n"), @r#"
    exit 2
    --- stderr
    error: tidegate.toml:4:12: `gate."a.example.com".min_rate` is `5`, expected at most `max_rate` (1)
    hint: `tidegate config default` prints every setting with its default
    "#);
}

#[test]
fn zero_negative_and_huge() {
    let text = "[gate]\nmax_rate = 0\nmin_rate = -1\nmax_in_flight = 99999999999\nmax_wait = \"9999999999d\"\nwindow = \"0s\"\n";
    assert_snapshot!(check(text), @"
    exit 2
    --- stderr
    error: tidegate.toml:2:12: `gate.max_rate` is `0`, expected a number of requests per second from 0.000001 to 1000000000
    error: tidegate.toml:3:12: `gate.min_rate` is `-1`, expected a number of requests per second from 0.000001 to 1000000000
    error: tidegate.toml:4:17: `gate.max_in_flight` is `99999999999`, expected a whole number from 1 to 1000000
    error: tidegate.toml:5:12: `gate.max_wait` is `9999999999d`, expected a duration below 584 years
    error: tidegate.toml:6:10: `gate.window` is `0s`, expected a duration above zero
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn wrong_unit_or_none() {
    let text = "[gate]\nmax_wait = 30\nmax_hold = \"30\"\nwindow = \"10 minutes\"\n[http]\nreplay_buffer = \"1MB2\"\n";
    assert_snapshot!(check(text), @r#"
    exit 2
    --- stderr
    error: tidegate.toml:2:12: `gate.max_wait` is `30`, expected a string with a number and a unit such as `"500ms"`, `"30s"` or `"5m"`, not a whole number
    error: tidegate.toml:3:12: `gate.max_hold` is `30`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: tidegate.toml:4:10: `gate.window` is `10 minutes`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: tidegate.toml:6:17: `http.replay_buffer` is `1MB2`, expected a number with a unit such as `64KiB` or `1MiB`, or `none`
    hint: `tidegate config default` prints every setting with its default
    "#);
}

#[test]
fn duplicate_names() {
    let text = "[gate]\nmax_rate = 1\nmax_rate = 2\n[pool.llm]\nendpoints = [\n  { name = \"a\", url = \"https://a.example.com\" },\n  { name = \"a\", url = \"https://b.example.com\" },\n]\n";
    assert_snapshot!(check(text), @"
    exit 2
    --- stderr
    error: tidegate.toml:3:1: `max_rate` is given twice, expected once
    error: tidegate.toml:7:12: `pool.llm.endpoints[1].name` is `a`, expected a name that no other endpoint of the pool has
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn rejects_a_reference_to_a_missing_secret() {
    let text = "[client.app]\ntoken = \"env:NO_SUCH_VARIABLE\"\n[client.other]\ntoken = \"file:/no/such/file\"\n";
    assert_snapshot!(check(text), @"
    exit 2
    --- stderr
    error: tidegate.toml:2:9: `client.app.token`: the environment variable `NO_SUCH_VARIABLE` is not set
    error: tidegate.toml:4:9: `client.other.token`: the file `/no/such/file` cannot be read: No such file or directory (os error 2)
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn rejects_a_literal_secret_without_printing_it() {
    let text = "[client.app]\ntoken = \"hunter2\"\n[pool.a]\nendpoints = [{ name = \"a\", url = \"https://me:hunter2@a.example.com\", headers = { x-api-key = \"hunter2\" } }]\n";
    let said = check(text);
    assert!(!said.contains("hunter2"));
    assert_snapshot!(said, @"
    exit 2
    --- stderr
    error: tidegate.toml:2:9: `client.app.token`: a secret must not be written out, expected `env:NAME` or `file:PATH`
    error: tidegate.toml:4:34: `pool.a.endpoints[0].url` is `https://…@a.example.com`, expected a URL without user info; credentials go into `headers`
    error: tidegate.toml:4:94: `pool.a.endpoints[0].headers.x-api-key`: a secret must not be written out, expected `env:NAME` or `file:PATH`
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn check_prints_all_problems_as_json() {
    let variables = [("TIDEGATE_GATE__MAX_RATE", "fast")];
    let text = "[gate]\nmax_wait = 30\n";
    assert_snapshot!(check_with(text, "check --json --set gate.shards=3", &variables), @r#"
    exit 2
    --- stdout
    {
      "file": "tidegate.toml",
      "ok": false,
      "problems": [
        {
          "column": 12,
          "file": "tidegate.toml",
          "flag": null,
          "key": "gate.max_wait",
          "line": 2,
          "message": "tidegate.toml:2:12: `gate.max_wait` is `30`, expected a string with a number and a unit such as `\"500ms\"`, `\"30s\"` or `\"5m\"`, not a whole number",
          "problem": "expected a string with a number and a unit such as `\"500ms\"`, `\"30s\"` or `\"5m\"`, not a whole number",
          "value": "30",
          "variable": null
        },
        {
          "column": null,
          "file": null,
          "flag": null,
          "key": "gate.max_rate",
          "line": null,
          "message": "TIDEGATE_GATE__MAX_RATE: `gate.max_rate` is `fast`, expected a number of requests per second from 0.000001 to 1000000000",
          "problem": "expected a number of requests per second from 0.000001 to 1000000000",
          "value": "fast",
          "variable": "TIDEGATE_GATE__MAX_RATE"
        },
        {
          "column": null,
          "file": null,
          "flag": "--set gate.shards",
          "key": "gate.shards",
          "line": null,
          "message": "--set gate.shards: `gate.shards` is `3`, expected a power of two from 1 to 65536",
          "problem": "expected a power of two from 1 to 65536",
          "value": "3",
          "variable": null
        }
      ]
    }
    "#);
}

#[test]
fn check_reports_problems_of_the_environment() {
    let variables = [
        ("TIDEGATE_GATE__MAX_WAIT", "5"),
        ("TIDEGATE_GATE_MAX_RATE", "5"),
        ("TIDEGATE_SERVER__LISTEN", "0.0.0.0:7070"),
    ];
    assert_snapshot!(check_with("", "check", &variables), @"
    exit 2
    --- stderr
    error: TIDEGATE_GATE_MAX_RATE: not a setting; did you mean `TIDEGATE_GATE__MAX_RATE`?
    error: TIDEGATE_GATE__MAX_WAIT: `gate.max_wait` is `5`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: TIDEGATE_SERVER__LISTEN: `server.listen` is `0.0.0.0:7070`, expected a loopback address, or a section `[client.NAME]` with a token: any other address is open to other machines
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let bound = |args: &str, variables: &[(&str, &str)]| {
        let said = check_with("[gate]\nmax_wait = \"1s\"\n", args, variables);
        let (_, bound) = said.split_once("max_wait ").unwrap();
        bound.lines().next().unwrap().to_owned()
    };
    let variables = [("TIDEGATE_GATE__MAX_WAIT", "2s")];
    assert_eq!(bound("check", &[]), "1s");
    assert_eq!(bound("check", &variables), "2s");
    assert_eq!(bound("check --set gate.max_wait=3s", &variables), "3s");
}

#[test]
fn environment_names_the_settings_file() {
    let variables = [("TIDEGATE_CONFIG", "/no/such/file.toml")];
    assert_snapshot!(check_with("", "check", &variables), @"
    exit 2
    --- stderr
    error: /no/such/file.toml: cannot read the settings: No such file or directory (os error 2)
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn rejects_a_set_flag_without_a_value() {
    assert_snapshot!(check_with("", "check --set gate.max_wait --set gate=1", &[]), @"
    exit 2
    --- stderr
    error: `--set gate.max_wait` has no `=`, expected KEY=VALUE
    hint: a setting is written as `--set gate.max_rate=8`
    ");
    assert_snapshot!(check_with("", "check --set gate=1 --set no.such=1", &[]), @"
    exit 2
    --- stderr
    error: --set gate: `gate` is a section, expected a setting in it
    error: --set no.such: `no`: unknown setting, expected one of: server, storage, gate, backoff, pool, forward, network, client, http, retry_budget, trails, run, poll, operation, credential, fetch, jobs, telemetry
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn help_of_check() {
    assert_snapshot!(run("check --help", ""), @"
    exit 0
    --- stdout
    Check the settings, and show the worst case of each route

    Reports every problem in one run, with file, line, column, setting, value and
    what was expected, and exits with 2. Without problems it shows each route with
    its worst case: attempts, sends, waits and how much traffic retries add; then
    settings that contradict each other or have no effect.

    Usage: tidegate check [OPTIONS] [FILE]

    Arguments:
      [FILE]
              Settings file, instead of --config

    Options:
          --set <KEY=VALUE>
              Setting to change first, by its path; may be repeated

      -h, --help
              Print help (see a summary with '-h')

    Global options:
          --config <FILE>
              Settings file [default: TIDEGATE_CONFIG, else tidegate.toml if it
              exists]

          --json
              Print JSON on stdout

      -q, --quiet
              Print errors only

      -v, --verbose...
              Print more on stderr

    Examples:
      # problems, or the worst cases
      tidegate check tidegate.toml

      # what if?
      tidegate check --set retry_budget.ratio=0.5 --set gate.max_wait=5s

      # environment and defaults only
      TIDEGATE_GATE__MAX_RATE=50 tidegate check /dev/null

      # for programs
      tidegate check --json | jq '.routes[] | {name, sends}'
    ");
}
