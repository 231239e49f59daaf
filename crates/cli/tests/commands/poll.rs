//! `tidegate poll`: what it prints, its exit codes, and when it asks.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::Value;

use crate::job_server::{JobServer, Response, done, response, running};
use crate::support::{in_terminal, shown, tidegate};

/// Intervals and waits are a tenth of the defaults.
const SHORT: &str =
    "--early 300ms --middle 250ms --late 200ms --first 200ms --base 200ms --max 1500ms";

/// Otherwise the gate would wait between requests that are less than half a second apart.
const QUICK: (&str, &str) = ("TIDEGATE_GATE__INITIAL_RATE", "100");

fn command(server: &JobServer, args: &str) -> Command {
    let mut command = tidegate(&format!("poll {} {SHORT} {args}", server.url));
    command.stdin(Stdio::null()).env(QUICK.0, QUICK.1);
    command
}

fn poll(server: &JobServer, args: &str) -> Output {
    command(server, args).output().unwrap()
}

/// Polls a server with these responses, and shows everything without times and the address.
fn show(responses: Vec<Response>, args: &str) -> String {
    let server = JobServer::new(responses);
    without_times(&shown(&poll(&server, args)), &server)
}

fn without_times(text: &str, server: &JobServer) -> String {
    let text = text.replace(&server.url, "URL");
    text.lines().map(|line| without_time(line) + "\n").collect()
}

/// Hides the time of a log line, the elapsed time at the start of a line, and estimates.
fn without_time(line: &str) -> String {
    let line = match line.split_once("Z ") {
        Some((time, rest)) if time.len() == 12 => format!("[time] {rest}"),
        _ => line.to_owned(),
    };
    let line = match line.trim_start().split_once("s  ") {
        Some((seconds, rest)) if seconds.chars().all(|c| c.is_ascii_digit()) => {
            format!("   [s]  {rest}")
        }
        _ => line,
    };
    let line = match line.split_once(", about ") {
        Some((line, _)) => format!("{line}, about [s] left"),
        None => line,
    };
    match line.split_once("after ") {
        Some((line, rest)) => {
            let (_, rest) = rest.split_once(", ").unwrap();
            format!("{line}after [s], {rest}")
        }
        None => line,
    }
}

/// A job that is slowed down, and one other error.
fn scan() -> Vec<Response> {
    vec![
        running("queued", 0),
        running("analyzing content", 40),
        response(429, ""),
        response(429, ""),
        running("checking trackers", 75),
        response(503, "busy"),
        running("finishing", 90),
        done(),
    ]
}

#[test]
fn prints_a_line_for_every_change_when_piped() {
    assert_snapshot!(show(scan(), ""), @"
    exit 0
    --- stdout
    done after [s], 8 requests
    --- stderr
       [s]    0 %  queued, next check in 1s
       [s]   40 %  analyzing content, next check in 1s, about [s] left
    [time] WARN  poll_rate_limited Rate limited. Backing off to 200ms. Attempt 1
    Slowing down: the server limits how often its status may be asked for. The job is not affected; checks speed up again once the limit clears.
       [s]   40 %  analyzing content, next check in 1s, about [s] left
    [time] WARN  poll_rate_limited Rate limited. Backing off to 400ms. Attempt 2
    [time] INFO  poll_recovered    Rate limit cleared. Resetting to normal interval.
       [s]   75 %  checking trackers, next check in 1s, about [s] left
       [s]   75 %  checking trackers (HTTP 503), next check in 1s, about [s] left
       [s]   90 %  finishing, next check in 1s, about [s] left
       [s]  100 %  done
    ");
}

#[test]
fn prints_only_the_log_as_json_with_log_json() {
    let server = JobServer::new(scan());
    let output = poll(&server, "--log json");
    let lines = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let shown: Vec<String> = lines
        .iter()
        .map(|line| {
            let fields = ["level", "event", "message"].map(|name| line[name].as_str().unwrap());
            fields.join(" | ")
        })
        .collect();
    assert_snapshot!(shown.join("\n"), @"
    warn | poll_rate_limited | Rate limited. Backing off to 200ms. Attempt 1
    warn | poll_rate_limited | Rate limited. Backing off to 400ms. Attempt 2
    info | poll_recovered | Rate limit cleared. Resetting to normal interval.
    ");
}

#[test]
fn prints_errors_only_with_quiet() {
    assert_snapshot!(show(scan(), "-q"), @"exit 0");
    assert_snapshot!(show(vec![response(404, "{}")], "-q"), @"
    exit 1
    --- stderr
    error: not found: HTTP 404, the server knows no such job (after [s], 1 request)
    ");
}

#[test]
fn prints_a_summary_as_json() {
    let server = JobServer::new(scan());
    let output = poll(&server, "--json -q");
    let mut summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["elapsed_ms"].as_u64().unwrap() > 2000);
    summary["elapsed_ms"] = 0.into();
    assert_snapshot!(serde_json::to_string_pretty(&summary).unwrap(), @r#"
    {
      "elapsed_ms": 0,
      "exec_code": null,
      "http_status": 200,
      "problem": null,
      "progress": 100.0,
      "requests": 8,
      "response": {
        "progress": 100,
        "result": [
          1,
          2
        ],
        "status": "done"
      },
      "state": "done",
      "status": "done"
    }
    "#);
}

#[test]
fn exits_as_documented() {
    let ends = |responses, args: &str| show(responses, args);
    assert_snapshot!(ends(vec![response(200, r#"{"status":"cancelled"}"#)], ""), @"
    exit 1
    --- stderr
       [s]  cancelled
    error: the job failed: its status is `cancelled` (after [s], 1 request)
    ");
    assert_snapshot!(ends(vec![response(404, "{}")], ""), @"
    exit 1
    --- stderr
       [s]  HTTP 404
    error: not found: HTTP 404, the server knows no such job (after [s], 1 request)
    ");
    assert_snapshot!(ends(vec![response(500, r#"{"status":"error"}"#)], "--other-retries 0"), @"
    exit 1
    --- stderr
       [s]  HTTP 500
    error: too many errors in a row: HTTP 500 (after [s], 1 request)
    ");
    assert_snapshot!(ends(vec![response(429, "")], "--give-up-after 1s"), @"
    exit 75
    --- stderr
    [time] WARN  poll_rate_limited Rate limited. Backing off to 200ms. Attempt 1
    Slowing down: the server limits how often its status may be asked for. The job is not affected; checks speed up again once the limit clears.
       [s]  HTTP 429, next check in 1s
    [time] WARN  poll_rate_limited Rate limited. Backing off to 400ms. Attempt 2
    [time] WARN  poll_rate_limited Rate limited. Backing off to 800ms. Attempt 3
    [time] ERROR poll_gave_up      Rate limited for too long. Stopping retries.
       [s]  HTTP 429
    error: gave up: the server refused for too long: HTTP 429 (after [s], 4 requests)
    ");
    let named = (429, "retry-after: 400\r\n", String::new());
    assert_snapshot!(ends(vec![named], ""), @"
    exit 75
    --- stderr
    [time] ERROR poll_gave_up      Rate limited for too long. Stopping retries.
       [s]  HTTP 429
    error: gave up: the server refused for too long: HTTP 429 (after [s], 1 request)
    ");
    assert_snapshot!(ends(vec![running("running", 5)], "--deadline 800ms"), @"
    exit 75
    --- stderr
       [s]    5 %  running, next check in 1s
    error: the job is not done within 800ms (after [s], 3 requests)
    ");
    let exhausted = response(429, r#"{"error":{"code":"insufficient_quota"}}"#);
    assert_snapshot!(ends(vec![exhausted], ""), @"
    exit 75
    --- stderr
       [s]  HTTP 429 insufficient_quota
    error: gave up: the quota is used up: HTTP 429 insufficient_quota (after [s], 1 request)
    ");
}

#[test]
fn exits_with_69_if_the_breaker_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidegate.toml");
    let gate = "[gate]\nconsecutive_failures = 2\nopen_first = \"60s\"\nopen_for = \"60s\"\n";
    // Secrets of sections that poll does not need may be missing.
    let pool = "[pool.a]\nendpoints = [{ name = \"a\", url = \"https://a.example.com\", headers = { x-key = \"env:NO_SUCH_KEY\" } }]\n";
    fs::write(
        &config,
        format!("{gate}[poll]\ngive_up_after = \"5s\"\n{pool}"),
    )
    .unwrap();
    let args = format!("--config {}", config.display());
    assert_snapshot!(show(vec![response(500, "")], &args), @"
    exit 69
    --- stderr
       [s]  HTTP 500, next check in 1s
    error: the breaker of this server is open: HTTP 500 (after [s], 2 requests)
    ");
}

#[test]
fn refuses_bad_input_before_anything_is_sent() {
    let run = |args: &str| crate::support::run(&format!("poll {args}"), "");
    assert_snapshot!(run(""), @"
    exit 2
    --- stderr
    error: `tidegate poll` needs `<URL>`
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("example.com/jobs/7"), @"
    exit 2
    --- stderr
    error: `URL` is `example.com/…`, expected a URL such as `https://api.example.com/v1`
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("ftp://example.com/jobs/7"), @"
    exit 2
    --- stderr
    error: `URL` is `ftp://example.com/…`, expected a URL that begins with `http://` or `https://`
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("https://me:pw@example.com/jobs/7"), @"
    exit 2
    --- stderr
    error: `URL` is `https://…@example.com/…`, expected a URL without user info; credentials go into a header
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("http://127.0.0.1:1 --status status"), @"
    exit 2
    --- stderr
    error: `--status` is `status`, expected a JSON pointer, which begins with `/`, such as `/status`
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("http://127.0.0.1:1 --done a,b --failed b"), @"
    exit 2
    --- stderr
    error: `b` is in `--done` and in `--failed`, expected in one of them
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("http://127.0.0.1:1 -H authorization:s3cret -H x --exec /no/such/program"), @"
    exit 2
    --- stderr
    error: `--header`: the value of `authorization` is written out, expected `env:NAME` or `file:PATH`
    error: `--header`: expected NAME: VALUE
    error: `--exec` is `/no/such/program`, expected a program that exists
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("http://127.0.0.1:1 --early 5 --give-up-after 0s --other-retries many"), @"
    exit 2
    --- stderr
    error: `--early` is `5`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: `--give-up-after` is `0s`, expected a duration above zero
    error: `--other-retries` is `many`, expected a whole number from 0 to 1000
    hint: `tidegate config default` prints every setting with its default
    ");
    assert_snapshot!(run("http://127.0.0.1:1 --jsonl /no/such/folder/file"), @"
    exit 2
    --- stderr
    error: `--jsonl` is `/no/such/folder/file`, expected a file that can be written: No such file or directory (os error 2)
    ");
    assert_snapshot!(run("http://127.0.0.1:1 --jsonl - --json"), @"
    exit 2
    --- stderr
    error: `--jsonl -` and `--json` both write to stdout, expected one of them
    hint: `--jsonl FILE` writes to a file
    ");
    assert_snapshot!(run("http://127.0.0.1:1 --deadline 5"), @"
    exit 2
    --- stderr
    error: `--deadline` is `5`, expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate poll --help` shows what it takes
    ");
    assert_snapshot!(run("http://127.0.0.1:1 -- jq"), @"
    exit 2
    --- stderr
    error: `tidegate poll` needs `--exec <PROGRAM>`
    hint: `tidegate poll --help` shows what it takes
    ");
}

#[test]
fn ends_at_once_if_the_first_response_has_no_status() {
    assert_snapshot!(show(vec![response(200, "<html>")], "--jsonl -"), @"
    exit 2
    --- stderr
    error: the body of HTTP 200 OK is no JSON, expected JSON
    hint: `--status` and `--progress` are JSON pointers into the response; the URL must return the status itself
    ");
    assert_snapshot!(show(vec![response(200, r#"{"state":"done"}"#)], "--json"), @"
    exit 2
    --- stderr
    error: the response has nothing at `/status`, expected the job's status; it has `/state`
    hint: `--status` and `--progress` are JSON pointers into the response; the URL must return the status itself
    ");
    let moved = (302, "location: /login?next=s3cret\r\n", String::new());
    assert_snapshot!(show(vec![moved], ""), @"
    exit 2
    --- stderr
    error: HTTP 302 points to `/login?next=…`, expected a status; redirects are not followed
    hint: `--status` and `--progress` are JSON pointers into the response; the URL must return the status itself
    ");
    let long = response(200, &format!("\"{}\"", "x".repeat(17 << 20)));
    assert_snapshot!(show(vec![long], ""), @"
    exit 2
    --- stderr
    error: the response is longer than 16 MiB, expected the status of a job
    hint: `--status` and `--progress` are JSON pointers into the response; the URL must return the status itself
    ");
}

#[test]
fn retries_a_later_response_without_a_status() {
    let page = || response(200, "<html>");
    let later = vec![running("running", 80), page(), done()];
    assert_snapshot!(show(later, ""), @"
    exit 0
    --- stdout
    done after [s], 3 requests
    --- stderr
       [s]   80 %  running, next check in 1s
       [s]   80 %  running (the body of HTTP 200 OK is no JSON, expected JSON), next check in 1s
       [s]  100 %  done
    ");
}

#[test]
fn never_prints_control_characters_of_the_server() {
    let server = JobServer::new(vec![
        running("a\\u001b]0;title\\u0007\\u202e", 1),
        response(200, r#"{"status":"\u001b[2Jcancelled"}"#),
    ]);
    let output = poll(&server, "--failed \u{1b}[2Jcancelled --jsonl -");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap();
    let is_active = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!printed.contains(is_active), "{printed:?}");
    assert!(printed.contains(r"a\u{1b}]0;title"), "{printed}");
}

#[test]
fn writes_every_response_as_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("responses.jsonl");
    let server = JobServer::new(vec![
        running("running", 80),
        response(429, "slow down"),
        done(),
    ]);
    let output = poll(&server, &format!("-q --jsonl {}", file.display()));
    assert_eq!(output.status.code(), Some(0));
    let lines = fs::read_to_string(&file).unwrap();
    let lines: Vec<String> = lines
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let object = line.as_object_mut().unwrap();
            assert!(object.remove("at_ms").unwrap().as_i64() > Some(1_700_000_000_000));
            assert!(object.remove("elapsed_ms").unwrap().is_u64());
            line.to_string()
        })
        .collect();
    assert_snapshot!(lines.join("\n"), @r#"
    {"body":{"progress":80,"status":"running"},"consecutive_429":0,"http_status":200,"next_ms":200,"problem":null,"progress":80.0,"request":1,"state":"polling","status":"running"}
    {"body":"slow down","consecutive_429":1,"http_status":429,"next_ms":200,"problem":"HTTP 429","progress":80.0,"request":2,"state":"slowed","status":null}
    {"body":{"progress":100,"result":[1,2],"status":"done"},"consecutive_429":0,"http_status":200,"next_ms":null,"problem":null,"progress":100.0,"request":3,"state":"done","status":"done"}
    "#);
}

#[test]
fn runs_a_program_with_the_last_response_on_its_stdin() {
    let server = JobServer::new(vec![running("running", 80), done()]);
    let output = command(&server, "-q --exec sh -- -c")
        .args(["cat; exit 3"])
        .output()
        .unwrap();
    assert_snapshot!(shown(&output), @r#"
    exit 1
    --- stdout
    {"status":"done","progress":100,"result":[1,2]}--- stderr
    error: the program of `--exec` failed with exit code 3
    "#);
    // It is not run if the job failed.
    let failed = vec![response(200, r#"{"status":"error"}"#)];
    assert_snapshot!(show(failed, "--exec cat"), @"
    exit 1
    --- stderr
       [s]  error
    error: the job failed: its status is `error` (after [s], 1 request)
    ");
    // A program that does not read its stdin is fine.
    assert_snapshot!(show(vec![done()], "--exec true"), @"
    exit 0
    --- stderr
       [s]  100 %  done
    ");
}

#[test]
fn sends_headers_with_secrets_that_are_never_printed() {
    let server = JobServer::new(vec![running("running", 80), response(401, ""), done()]);
    let output = command(&server, "-v")
        .args(["-H", "Authorization: Bearer env:POLL_TEST_TOKEN"])
        .args(["-H", "accept: application/vnd.job+json"])
        .env("POLL_TEST_TOKEN", "s3cret")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!shown(&output).contains("s3cret"));
    let heads = server.heads();
    assert_eq!(heads.len(), 3);
    assert_snapshot!(heads[0].replace(&server.url[7..server.url.len() - 7], "HOST"), @"
    GET /jobs/7 HTTP/1.1
    host: HOST
    user-agent: tidegate/0.1.0
    authorization: Bearer s3cret
    accept: application/vnd.job+json
    ");
}

#[test]
fn draws_a_bar_on_a_terminal() {
    for columns in [80, 40] {
        let server = JobServer::new(scan());
        let screen = in_terminal(columns, &command(&server, ""));
        assert_eq!(screen.exit, 0);
        let pictures = pictures(&screen.text);
        let lines = pictures.iter().flat_map(|picture| picture.lines());
        // Lines of the log are as long as they are.
        let drawn = lines.filter(|line| !line.starts_with("[time]"));
        let widest = drawn.map(|line| line.chars().count()).max();
        assert!(widest < Some(columns.into()), "{}", screen.text);
        let pictures = pictures.join("---\n");
        insta::with_settings!({ snapshot_suffix => columns.to_string() }, {
            assert_snapshot!(pictures);
        });
    }
}

/// What was drawn, one picture after the other, without repetitions and times.
fn pictures(text: &str) -> Vec<String> {
    let mut pictures: Vec<String> = Vec::new();
    for picture in text.split("\r\u{1b}[J") {
        let picture = picture.split("\u{1b}[").next().unwrap();
        let lines = picture.lines().map(without_time);
        // The countdown ends while a request is under way.
        let lines = lines.map(|line| line.replace("asking now", "next check in 1s"));
        let picture: String = lines.map(|line| line + "\n").collect();
        if pictures.last() != Some(&picture) {
            pictures.push(picture);
        }
    }
    pictures
}

/// Three jobs at once: for every gap at least `expected`, and the median at most 50 ms more.
fn check_gaps(responses: &[Response], args: &[&str], expected_ms: &[u64]) {
    let polled: Vec<_> = (0..3)
        .map(|_| {
            let server = JobServer::new(responses.to_vec());
            let mut command = tidegate(&format!("poll -q {}", server.url));
            command.args(args).stdin(Stdio::null());
            let child = command.env(QUICK.0, QUICK.1).spawn();
            (server, child.unwrap())
        })
        .collect();
    let gaps: Vec<Vec<Duration>> = polled
        .into_iter()
        .map(|(server, mut child)| {
            assert!(child.wait().unwrap().success());
            server.gaps()
        })
        .collect();
    for (number, expected) in expected_ms.iter().enumerate() {
        let expected = Duration::from_millis(*expected);
        let mut three: Vec<Duration> = gaps.iter().map(|gaps| gaps[number]).collect();
        three.sort();
        assert!(three[0] >= expected, "gap {number}: {three:?}");
        assert!(
            three[1] <= expected + Duration::from_millis(50),
            "gap {number}: {three:?}"
        );
    }
    assert!(
        gaps.iter().all(|gaps| gaps.len() == expected_ms.len()),
        "{gaps:?}"
    );
}

#[test]
fn asks_when_the_table_says_so() {
    // 2 s late in the job, then 2 and 4 s after 429s, then 2 s again.
    let responses = [
        running("running", 75),
        response(429, ""),
        response(429, ""),
        running("running", 80),
        done(),
    ];
    check_gaps(&responses, &[], &[2000, 2000, 4000, 2000]);
}

#[test]
fn asks_when_the_table_says_so_at_a_tenth_of_the_time() {
    let mut responses = vec![
        response(202, ""),
        running("running", 10),
        running("running", 29),
        running("running", 30),
        running("running", 70),
    ];
    responses.extend(vec![response(429, ""); 5]);
    responses.extend([running("running", 40), done()]);
    let args: Vec<&str> = SHORT.split(' ').collect();
    let gaps = [200, 300, 300, 250, 200, 200, 400, 800, 1500, 1500, 250];
    check_gaps(&responses, &args, &gaps);
}

#[cfg(unix)]
#[test]
fn ends_with_130_after_ctrl_c() {
    let server = JobServer::new(vec![running("running", 80)]);
    let mut command = tidegate(&format!("poll {} --late 60s --json", server.url));
    let child = command.spawn().unwrap();
    server.wait_for_request();
    // The request is sent; its response may still be on its way.
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", shown(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["state"], "interrupted");
    assert_eq!(server.heads().len(), 1);
}

#[test]
fn guide_shows_what_is_printed() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/poll.md");
    let guide = fs::read_to_string(guide).unwrap();
    let numberless = |text: &str| {
        let mut shown = String::new();
        for c in text.chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            if c != '0' || !shown.ends_with('0') {
                shown.push(c);
            }
        }
        shown
    };
    let shows = |output: &Output, server: &JobServer| {
        let text = [&*output.stderr, &*output.stdout].concat();
        let text = String::from_utf8(text).unwrap();
        let text = text.replace(&server.url, "https://api.example.com/jobs/7");
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let text = lines.join("\n");
        let is_shown = numberless(&guide).contains(&numberless(&text));
        assert!(is_shown, "docs/guide/poll.md does not show\n{text}");
    };
    let server = JobServer::new(scan());
    shows(&poll(&server, ""), &server);
    let server = JobServer::new(vec![response(200, r#"{"job":{"state":"succeeded"}}"#)]);
    shows(&poll(&server, ""), &server);
    let server = JobServer::new(vec![done()]);
    shows(&poll(&server, "-q --json"), &server);
}
