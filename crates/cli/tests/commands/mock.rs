//! `tidegate mock`: help, errors, and how it runs and ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use insta::assert_snapshot;

use crate::support::{run, shown, tidegate};

/// Runs it with flags whose values may contain blanks.
fn mock(flags: &str) -> String {
    shown(&tidegate("mock").args(words(flags)).output().unwrap())
}

/// Each flag and the text up to the next one.
fn words(flags: &str) -> Vec<String> {
    let mut words = Vec::new();
    for flag in flags.split("--").skip(1) {
        let (name, value) = flag
            .trim()
            .split_once(' ')
            .unwrap_or_else(|| (flag.trim(), ""));
        words.push(format!("--{name}"));
        words.extend((!value.is_empty()).then(|| value.to_owned()));
    }
    words
}

#[test]
fn help() {
    assert_snapshot!(run("mock --help", ""), @"
    exit 0
    --- stdout
    Run a local upstream that limits and fails like real ones

    Serves every path, over HTTP/1.1 and HTTP/2 without TLS. It behaves as the
    upstreams of `tidegate simulate` do, in real time. The first line on stdout is
    its address.

    Usage: tidegate mock [OPTIONS]

    Options:
          --listen <ADDRESS>
              Address to listen on; port 0 takes any free port
              
              [default: 127.0.0.1:7080]

          --threads <N>
              Number of threads
              
              [default: 1]

          --seed <N>
              Seed of the random numbers
              
              [default: 1]

          --for <DURATION>
              Stop after this time

      -h, --help
              Print help (see a summary with '-h')

    Limits:
          --limit <SPEC>
              Limit: '50/s burst 10', '600/1m' or 'slots 20 100ms queue 200'; may be
              repeated [default: no limit]

          --cost <SPEC>
              Limit on cost, such as tokens of a language model: '1500/s burst
              90000' or '90000/1m'

          --scenario <FILE|NAME>
              Take the upstream of a scenario: a file, `-` for stdin, or a shipped
              name

          --step <AT=SPEC>
              Change the first limit at a time: '60s=20/s'; may be repeated

          --ban <N in TIME for TIME>
              Ban a client that is refused too often, with 403: '5 in 30s for 60s'

          --retry-after
              Send Retry-After with every 429

          --headers
              Send X-RateLimit-Limit, -Remaining and -Reset with every response

    Responses:
          --style <STYLE>
              API to imitate

              Possible values:
              - plain:  No particular API: short JSON
              - github: GitHub: its headers and its refusals
              - openai: OpenAI: chat completions (also streamed), embeddings, models
              
              [default: plain]

          --script <ANSWER,…>
              Responses in order, one per request within the limit; the last one
              repeats: '200,200@2500ms,429:3,503*5,reset,200'

          --latency <DURATION>
              Mean time of a response; slots have their own [default: 0s]

          --latency-spread <N>
              Spread of that time: sigma of a lognormal distribution [default: 0.25]

          --refuse-latency <DURATION>
              Time of a refusal [default: 0s]

          --body-size <BYTES>
              Length of ordinary bodies in bytes; with `openai`, of the text in them

          --stream-every <DURATION>
              Time between the parts of a streamed completion [default: 20ms]

    Failures:
          --failure-rate <SHARE>
              Share of requests that fail at random, with 500

          --outage <FROM..TO>
              Outage: '60s..90s', or '60s..90s=503' with a status; may be repeated

          --timeout-share <SHARE>
              Share of requests in an outage that get no response; the others are
              reset [default: 0.5, with a status 0]

    Global options:
          --json
              Print JSON on stdout

      -q, --quiet
              Print errors only

      -v, --verbose...
              Print more on stderr

    Limits:
      50/s [burst 10]             token bucket; the default burst is one second's
      600/1m [phase 20s]          fixed window: 600 in each minute; `/s` is a rate,
                                  `/1s` a window
      slots 20 100ms [queue 200]  20 at a time, 100 ms each; others queue [default:
                                  up to 100]
      With several limits, a request has to be within all of them. The limit on cost
      is a bucket or a window that counts the tokens of requests (with `openai`), or
      the cost in their query, as in /work?cost=800.

    Scripts:
      STATUS[:RETRY_AFTER][@LATENCY][*TIMES], `reset` (closes the connection),
      `silent` (never responds) or `cut` (breaks off the response). The last one
      repeats; `repeat` at the end starts over.

    Paths of every mock:
      /echo  /bytes/N  /status/CODE  /trailers  /sse?n=5&every=100ms
      /slow?first=2s&n=1&every=0s
      /_mock/stats  /_mock/log  POST /_mock/reset  (never limited)

    Examples:
      # 50 per second, with Retry-After
      tidegate mock --limit '50/s burst 10' --retry-after

      # the upstream of `tidegate simulate o1`
      tidegate mock --scenario o1

      # an API like OpenAI's with three requests per minute
      tidegate mock --style openai --limit 3/1m
      OPENAI_BASE_URL=http://127.0.0.1:7080/v1 python my_program.py

      # a language model: 500 requests and 90000 tokens per minute
      tidegate mock --style openai --limit 500/1m --cost '1500/s burst 90000'

      # a quota and a rate like GitHub's
      tidegate mock --style github --limit 5000/1h --limit '15/s burst 100'

      # slow, failing, with an outage after a minute
      tidegate mock --latency 70ms --failure-rate 3% --outage 60s..90s

      # exactly these responses, for a test
      tidegate mock --listen 127.0.0.1:0 --script '503*2,429:3,reset,200'
    ");
}

#[test]
fn mock_reports_all_problems_in_one_run() {
    let words = "--limit 50 --limit slots 3 --limit 600/1m burst 5 --step 5s=9 --ban 5 \
                 --script 200,ok --latency 5 --latency-spread 9 --refuse-latency x \
                 --failure-rate 2 --outage 5s..3s --timeout-share - --body-size big \
                 --stream-every 1 --for 0s";
    assert_snapshot!(mock(words), @"
    exit 2
    --- stderr
    error: `--limit` is `50`, expected a token bucket such as `50/s burst 10`, a fixed window such as `600/1m`, or slots such as `slots 20 100ms queue 200`
    error: `--limit` is `slots 3`, expected a number of slots and how long each serves a request, as in `slots 20 100ms` or `slots 20 100ms queue 200`
    error: `--limit` is `600/1m burst 5`, expected a window without a burst; a token bucket has a bare unit, as in `50/s burst 10`
    error: `--latency` is `5`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: `--refuse-latency` is `x`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: `--latency-spread` is `9`, expected a number from 0 to 5
    error: `--failure-rate` is `2`, expected a share from 0 to 1, such as `0.03` or `3%`
    error: `--ban` is `5`, expected how many refusals in what time ban for how long, as in `5 in 30s for 60s`
    error: `--timeout-share` is `-`, expected a share from 0 to 1, such as `0.03` or `3%`
    error: `--outage` is `5s..3s`, expected an end later than its beginning (5s)
    error: `--step` is `5s=9`, expected a token bucket such as `50/s burst 10`, a fixed window such as `600/1m`, or slots such as `slots 20 100ms queue 200`
    error: `--for` is `0s`, expected a duration above zero
    error: `--script` is `200,ok`, expected an answer such as `200`, `200@2500ms`, `429:3`, `503*5`, `reset`, `silent` or `cut`, not `ok`
    error: `--body-size` is `big`, expected a number of bytes such as `128` or `64KiB`, up to `64MiB`
    error: `--stream-every` is `1`, expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate mock --help` shows how limits, scripts and outages are written
    ");
}

#[test]
fn mock_reports_problems_as_json() {
    assert_snapshot!(mock("--json --limit 50"), @r#"
    exit 2
    --- stdout
    {
      "file": null,
      "ok": false,
      "problems": [
        {
          "column": null,
          "file": null,
          "flag": "--limit",
          "key": "",
          "line": null,
          "message": "`--limit` is `50`, expected a token bucket such as `50/s burst 10`, a fixed window such as `600/1m`, or slots such as `slots 20 100ms queue 200`",
          "problem": "expected a token bucket such as `50/s burst 10`, a fixed window such as `600/1m`, or slots such as `slots 20 100ms queue 200`",
          "value": "50",
          "variable": null
        }
      ]
    }
    "#);
}

#[test]
fn mock_rejects_flags_that_change_nothing() {
    assert_snapshot!(mock("--ban 5 in 30s for 60s --refuse-latency 5ms"), @"
    exit 2
    --- stderr
    error: `--ban` is `5 in 30s for 60s`, expected a `--limit` with it: nothing is refused without one
    error: `--refuse-latency` is `5ms`, expected a `--limit` with it: nothing is refused without one
    hint: `tidegate mock --help` shows how limits, scripts and outages are written
    ");
}

#[test]
fn mock_rejects_steps_and_outages_that_overlap() {
    let words = "--limit 50/s --step 60s=20/s --step 90s=600/1m --outage 1s..5s --outage 4s..6s";
    assert_snapshot!(mock(words), @"
    exit 2
    --- stderr
    error: `--outage` is `4s..6s`, expected an outage apart from that of 1s to 5s
    error: `--step` is `90s=600/1m`, expected a limit of the same kind as the first, windows of the same length
    hint: `tidegate mock --help` shows how limits, scripts and outages are written
    ");
    assert_snapshot!(mock("--limit 50/s --step 60s=20/s --step 60s=30/s"), @"
    exit 2
    --- stderr
    error: `--step` is `60s=30/s`, expected a time later than that of the step before (1m)
    hint: `tidegate mock --help` shows how limits, scripts and outages are written
    ");
}

#[test]
fn mock_rejects_options_that_conflict() {
    assert_snapshot!(mock("--limit 50/s --scenario o1"), @"
    exit 2
    --- stderr
    error: `--limit` cannot be used with `--scenario`
    hint: `tidegate mock --help` shows what it takes
    ");
    assert_snapshot!(mock("--style gitlab"), @"
    exit 2
    --- stderr
    error: `--style` is `gitlab`, expected one of `plain`, `github`, `openai`
    hint: did you mean `github`? `tidegate mock --help` shows all
    ");
    assert_snapshot!(mock("--listen 7080"), @"
    exit 2
    --- stderr
    error: `--listen` is `7080`, expected an IP address and a port such as `127.0.0.1:7080` or `[::1]:7080`
    hint: `tidegate mock --help` shows how limits, scripts and outages are written
    ");
    assert_snapshot!(mock("--scenario o11"), @"
    exit 2
    --- stderr
    error: `o11` is neither a file nor a shipped scenario
    hint: did you mean `o1`? shipped scenarios are o1, o2, o3, o4, o5, o6, o7, o8, o8-4, o8-8, o8-16, o9, tokens, fleet-8, fleet-64, fleet-killed, fleet-flushed, fleet-partition, fleet-nodes, poll-normal, poll-limited, backoff-outage-standard, backoff-outage-exhausted, backoff-outage-retry-after, backoff-many, queue-empty, queue-single-failure, queue-many-failures, queue-successes, queue-aging, queue-full, protection-single-error, protection-repeated-errors, protection-success-recovery, protection-auto-disable, protection-other-endpoints, aimd-fast, aimd-slow, aimd-throttling, aimd-failing
    ");
}

#[test]
fn mock_reports_a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let told = mock(&format!("--listen {address}"));
    assert_snapshot!(told.replace(&address.to_string(), "ADDRESS"), @"
    exit 1
    --- stderr
    error: cannot listen at `ADDRESS`: Address already in use (os error 98)
    hint: another program uses this port; `--listen 127.0.0.1:0` takes any free port
    ");
}

#[test]
fn mock_prints_its_settings_and_its_counts() {
    let words = "--for 1ms --limit 50/s burst 10 --limit 600/1m --step 60s=20/s --retry-after \
                 --headers --latency 70ms --failure-rate 3% --outage 60s..90s \
                 --outage 100s..110s=503 --ban 5 in 30s for 60s --script 200,503 \
                 --listen 127.0.0.1:0";
    assert_snapshot!(without_port(&mock(words)), @"
    exit 0
    --- stdout
    listening on http://127.0.0.1:PORT
      limit    token bucket of 50/s, 10 at once
      and      600 in each window of 1m
      step     token bucket of 20/s, 10 at once after 1m
      headers  Retry-After and X-RateLimit headers
      latency  70ms (spread 0.25), 0s for a refusal
      fails    3 % at random, with 500
      outage   1m to 90s: 50 % get no response, others are reset
      outage   100s to 110s: 0 % get no response, others get 503
      ban      1m after 5 refusals in 30s
      script   requests within the limit get the scripted responses
      see      /_mock/stats, /_mock/log
    received 0: accepted 0, refused 0, failed 0; at most 0 at once
    ");
    let words = "--for 1ms --scenario o4 --listen 127.0.0.1:0";
    assert_snapshot!(without_port(&mock(words)), @"
    exit 0
    --- stdout
    listening on http://127.0.0.1:PORT
      limit    20 slots of 100ms, 200 may queue
      latency  120ms (spread 0.25), 35ms for a refusal
      see      /_mock/stats, /_mock/log
    received 0: accepted 0, refused 0, failed 0; at most 0 at once
    ");
    let words = "--for 1ms --listen 127.0.0.1:0 --quiet";
    assert_snapshot!(without_port(&mock(words)), @"
    exit 0
    --- stdout
    listening on http://127.0.0.1:PORT
    ");
}

#[test]
fn mock_warns_if_other_machines_can_reach_it() {
    let told = mock("--for 1ms --listen 0.0.0.0:0");
    assert_snapshot!(without_port(&told), @"
    exit 0
    --- stdout
    listening on http://0.0.0.0:PORT
      limit  none
      see    /_mock/stats, /_mock/log
    received 0: accepted 0, refused 0, failed 0; at most 0 at once
    --- stderr
    warning: 0.0.0.0:PORT can be reached from other machines, and the mock serves every client
    ");
}

/// Without ports and times, which differ from run to run.
fn without_port(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        let line = match line.split_once("0.1:").or_else(|| line.split_once("0.0:")) {
            Some((before, after)) => {
                let host = &line[before.len()..before.len() + 4];
                let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{before}{host}PORT{rest}")
            }
            None => line.split(", in ").next().unwrap_or(line).to_owned(),
        };
        shown.push_str(&line);
        shown.push('\n');
    }
    shown
}

/// A running mock and its address.
struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Running {
    fn start(flags: &str) -> Self {
        let mut command = tidegate("mock --listen 127.0.0.1:0");
        let mut child = command
            .args(words(flags))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("http://").unwrap();
        let address = rest.trim_end_matches(['\n', '"', '}']).to_owned();
        Self {
            child,
            stdout,
            address,
        }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for it to end; returns its exit code and the rest of its output.
    fn end(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let Output { status, stderr, .. } = self.child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(stderr).unwrap(), "");
        (status.code().unwrap(), rest)
    }
}

#[test]
fn mock_ends_with_0_after_sigterm() {
    let running = Running::start("--limit 1/1h --retry-after");
    assert!(running.get("/").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(running.get("/").starts_with("HTTP/1.1 429 "));
    running.signal("TERM");
    let (code, rest) = running.end();
    assert_eq!(code, 0);
    let last = rest.lines().last().unwrap();
    assert!(
        last.starts_with("received 2: accepted 1, refused 1, failed 0"),
        "{last}"
    );
}

#[test]
fn mock_ends_with_130_after_ctrl_c() {
    let running = Running::start("--json");
    assert!(running.get("/_mock/stats").contains("\"received\":0"));
    running.get("/");
    running.signal("INT");
    let (code, rest) = running.end();
    assert_eq!(code, 130);
    let stats: serde_json::Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(
        (&stats["received"], &stats["accepted"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn mock_ends_with_130_after_a_second_ctrl_c() {
    let running = Running::start("--script silent");
    let mut stream = TcpStream::connect(&running.address).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: mock\r\n\r\n")
        .unwrap();
    while !running.get("/_mock/stats").contains("\"received\":1") {}
    running.signal("INT");
    // Once it accepts no more connections, it waits for the requests in flight.
    while TcpStream::connect(&running.address).is_ok() {}
    running.signal("INT");
    let (code, _) = running.end();
    assert_eq!(code, 130);
}
