//! `tidegate simulate`: figures as tables and JSON, assertions, and the report.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Output;

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{output, run, shown, tidegate};

/// Runs `tidegate simulate` with these arguments, which may contain blanks.
pub(crate) fn simulate(args: &[&str]) -> String {
    shown(&ended(args, b""))
}

pub(crate) fn ended(args: &[&str], input: &[u8]) -> Output {
    let mut child = tidegate("simulate").args(args).spawn().unwrap();
    _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs it over a file with this text.
pub(crate) fn simulate_file(text: &str, args: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("api.toml"), text).unwrap();
    let mut command = tidegate("simulate api.toml");
    command.args(args).current_dir(folder.path());
    shown(&command.output().unwrap())
}

/// Short, with a step and an outage, and with a strategy whose figures do not change.
const EVENTFUL: &str = r#"
duration = "70s"
seed = 7
[upstream]
kind = "bucket"
rate = 20
steps = [{ at = "20s", rate = 10 }]
outage = [{ from = "40s", to = "45s" }]
[[client]]
strategy = "aimd"
max_rate = 40
"#;

#[test]
fn help() {
    assert_snapshot!(run("simulate --help", ""), @r#"
    exit 0
    --- stdout
    Simulate clients against a model upstream in virtual time

    A scenario is a TOML file, a shipped one by its name (see --list), or an
    upstream without a file (--upstream). Minutes of virtual time take a fraction of
    a second, and the same scenario and seed always give the same figures. --random
    runs many random upstreams and prints how the figures are distributed.
    --from-log estimates a scenario from an access log of `tidegate serve`, and runs
    it.

    Usage: tidegate simulate [OPTIONS] <FILE|NAME|->
           tidegate simulate [OPTIONS] --upstream <KIND KEY=VALUE…>
           tidegate simulate [OPTIONS] --random <N>
           tidegate simulate [OPTIONS] --from-log <FILE>
           tidegate simulate --list
           tidegate simulate --show <NAME>

    Arguments:
      [FILE|NAME]
              Scenario file, `-` for stdin, or the name of a shipped scenario

    Options:
          --upstream <KIND KEY=VALUE…>
              Upstream without a file: its kind and the keys of `[upstream]`

          --strategy <STRATEGY,…>
              Strategies of the clients, compared if there are several: adaptive,
              aimd, fixed:RATE, none

          --duration <DURATION>
              Virtual time to simulate

          --clients <N>
              Number of clients

          --set <KEY=VALUE>
              Setting of the clients, by its name in the configuration, or a value
              of the scenario by its path, such as `upstream.rate=50`; may be
              repeated

          --seed <N>
              Seed of the random numbers

          --seeds <N>
              Number of seeds to run; figures are their mean and spread

          --assert <EXPR>
              Exit with 1 unless this holds, such as `goodput_ratio >= 95% and bans
              == 0`; may be repeated

          --report <FILE.html>
              Write a self-contained page with plots of the first seed

          --random <N>
              Run so many random upstreams: of all kinds and rates, with several
              clients, failures, changing limits, outages and bans. --seed names the
              set

          --worst <N>
              List so many of the worst random upstreams [default: 10]

          --write <PATH>
              Write the scenario of --from-log to this file, or those of --random to
              this folder

          --from-log <FILE>
              Estimate the scenario from an access log (json or combined), `-` for
              stdin: the offered rate, the limit behind the refusals, latencies and
              failures

          --route <NAME>
              Use only requests of this route; needed if the log has several

          --no-run
              Print the estimated scenario, or write it with --write, without
              running it

          --list
              List the shipped scenarios

          --show <NAME>
              Print a shipped scenario

      -h, --help
              Print help (see a summary with '-h')

    Global options:
          --config <FILE>
              Settings file whose `[gate]` applies to clients, where the scenario
              says nothing else [default: none]

          --json
              Print JSON on stdout

      -q, --quiet
              Print errors only

      -v, --verbose...
              Print more on stderr

    Upstreams without a file:
      bucket rate=N [burst=N]                           token bucket
      window quota=N period=DURATION [phase=DURATION]   fixed windows
      slots slots=N service=DURATION [queue=N]          so many at a time
      Each may have the other keys of a file: retry_after, headers, latency,
      latency_spread, refuse_latency, network, failure_rate, steps, outage, ban.
      Lists and tables are TOML:
      --upstream 'bucket rate=50 outage=[{ from = "60s", to = "90s" }]'

    Assertions:
      FIGURE OPERATOR NUMBER, joined by `and`. Operators are >= <= > < == !=, a
      number may end in %. Figures have their names of --json; in lists by index:
      outages[0].recovery_s <= 4, steps[1].settle_s <= 10. A figure that does not
      apply fails every assertion.

    Examples:
      # a shipped scenario
      tidegate simulate o1

      # an upstream without a file, strategies side by side
      tidegate simulate --upstream 'bucket rate=50 burst=10' \
          --strategy adaptive,aimd,fixed:50,none

      # what would these settings do?
      tidegate simulate --upstream 'window quota=600 period=60s' \
          --set initial_rate=20

      # what would the settings of a file do?
      tidegate simulate o5 --config tidegate.toml

      # how well do strategies do on 70 upstreams that none was tuned for?
      tidegate simulate --random 70 --seed 7 --strategy adaptive,aimd

      # what would another strategy have done with last night's traffic?
      tidegate simulate --from-log access.log --strategy adaptive,aimd \
          --write last-night.toml

      # a page with plots
      tidegate simulate o5 --strategy adaptive,none --report o5.html

      # in CI: exit code 1 unless it holds
      tidegate simulate api.toml --assert 'goodput_ratio >= 95% and bans == 0'

      # your own scenario, over five seeds, for programs
      tidegate simulate --show o7 > mine.toml
      tidegate simulate mine.toml --seeds 5 --json
    "#);
}

#[test]
fn simulate_lists_shipped_scenarios() {
    assert_snapshot!(run("simulate --list", ""), @"
    exit 0
    --- stdout
    scenario                     about
    o1                           token bucket of 50/s, 429 without Retry-After
    o2                           fixed window of 600 a minute, 429 with Retry-After
    o3                           fixed window of 300 in 10 s, headers on every answer, no Retry-After
    o4                           20 slots of 100 ms with a queue of 200: latency rises before anything is refused
    o5                           token bucket of 100/s that becomes 20/s after a minute and 200/s after two
    o6                           40 slots of 80 ms, 3 % of the answers are random 500s
    o7                           token bucket of 100/s, dead from 60 s to 90 s
    o8                           2 clients that know nothing of each other share a token bucket of 100/s
    o8-4                         the same with 4 clients
    o8-8                         the same with 8 clients
    o8-16                        the same with 16 clients
    o9                           one request in two seconds; five too many in 30 s are a ban of a minute
    tokens                       a language model: 500 requests and 90 000 tokens a minute, headers on every answer
    fleet-8                      8 nodes share a token bucket of 100/s through a store
    fleet-64                     the same with 64 nodes
    fleet-killed                 the store of 8 nodes is killed for 30 s and comes back empty
    fleet-flushed                the store of 8 nodes loses everything, twice, and one message in a hundred
    fleet-partition              4 of 8 nodes do not reach their store for 30 s
    fleet-nodes                  nodes join, are killed and start again
    poll-normal                  a job of 45 s is followed to its end
    poll-limited                 the same with 14 status requests a minute: three are refused, and the client slows down
    backoff-outage-standard      an outage of 10 s and the standard preset
    backoff-outage-exhausted     an outage without end: every preset gives up after its attempts
    backoff-outage-retry-after   an outage of two minutes, announced by Retry-After
    backoff-many                 a hundred operations at once, half of them refused with Retry-After
    queue-empty                  a failure queue without failures: the base gap
    queue-single-failure         one failure doubles the gap
    queue-many-failures          five failures: six times the gap
    queue-successes              every success takes a failure back
    queue-aging                  failures are forgotten, also while one waits
    queue-full                   a hundred failures: the longest gap there is
    protection-single-error      one 429 pauses an endpoint for 30 s
    protection-repeated-errors   three errors pause it for 30, 60 and 120 s
    protection-success-recovery  a success between errors: pauses begin anew
    protection-auto-disable      five errors in a row disable it
    protection-other-endpoints   one of three endpoints is paused, the others go on
    aimd-fast                    aimd before a fast server: up to its maximum
    aimd-slow                    aimd before a slow server: down to its minimum
    aimd-throttling              aimd before a limit of 5/s
    aimd-failing                 aimd before a server that fails for a minute: its breaker
    ");
    let listed = String::from_utf8(output("simulate --list --json", b"").stdout).unwrap();
    assert!(listed.starts_with("[\n  {\n    \"about\": \"token bucket of 50/s"));
}

#[test]
fn simulate_shows_a_shipped_scenario_as_written() {
    assert_snapshot!(run("simulate --show o9", ""), @r#"
    exit 0
    --- stdout
    # So little is allowed that every mistake is dear: who is refused five times in 30 s is banned.
    duration = "300s"
    seed = 1

    [upstream]
    kind = "bucket"
    rate = 0.5
    burst = 1
    ban = { excesses = 5, within = "30s", for = "60s" }

    [[client]]
    strategy = "adaptive"
    "#);
    assert_snapshot!(run("simulate --show o10", ""), @"
    exit 2
    --- stderr
    error: `o10` is not a shipped scenario
    hint: did you mean `o1`? shipped scenarios are o1, o2, o3, o4, o5, o6, o7, o8, o8-4, o8-8, o8-16, o9, tokens, fleet-8, fleet-64, fleet-killed, fleet-flushed, fleet-partition, fleet-nodes, poll-normal, poll-limited, backoff-outage-standard, backoff-outage-exhausted, backoff-outage-retry-after, backoff-many, queue-empty, queue-single-failure, queue-many-failures, queue-successes, queue-aging, queue-full, protection-single-error, protection-repeated-errors, protection-success-recovery, protection-auto-disable, protection-other-endpoints, aimd-fast, aimd-slow, aimd-throttling, aimd-failing
    ");
}

#[test]
fn simulate_runs_a_shipped_scenario_by_name() {
    assert_snapshot!(run("simulate o1 --duration 20s", ""), @"
    exit 0
    --- stdout
    o1: 20s of virtual time, seed 1

    strategy  goodput  settled  refused  sent  latency  p99  to 90 %  bans  breaker  early
    adaptive   88.0 %        –   0.34 %   887        –    –     2.1s     0        0      0

    strategy  at the end
    adaptive  staying at 49.6/s, at a limit of 49.6/s measured between two refusals; tries more in 4s
    ");
}

#[test]
fn simulate_prefers_a_file_over_a_shipped_scenario() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("o1"), "rate = 5\n").unwrap();
    let mut command = tidegate("simulate o1");
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_snapshot!(shown(&output), @"
    exit 2
    --- stderr
    error: o1:1:1: `rate`: unknown setting, expected one of: duration, seed, upstream, client
    error: o1:1:1: `upstream` is missing, expected a table
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
}

#[test]
fn simulate_prints_steps_and_outages() {
    assert_snapshot!(simulate_file(EVENTFUL, &[]), @"
    exit 0
    --- stdout
    api.toml: 70s of virtual time, seed 7

    strategy  goodput  settled  refused  sent  latency    p99  to 90 %  bans  breaker  early
    aimd       78.7 %  107.0 %   2.30 %   695     91ms  138ms     5.2s     0        0      0

    strategy      outage  sent  recovery
    aimd      40s to 45s     9     11.8s

    strategy  step at  settled after
    aimd          20s           0.0s

    strategy  at the end
    aimd      at 6.91/s, raised: responses are fast and none is refused
    ");
}

#[test]
fn simulate_prints_figures_as_json() {
    assert_snapshot!(simulate_file(EVENTFUL, &["--json"]), @r#"
    exit 0
    --- stdout
    {
      "strategy": "aimd",
      "seed": 7,
      "goodput_ratio": 0.7870588235294118,
      "goodput_ratio_settled": 1.07,
      "sent": 695,
      "accepted": 669,
      "refused": 16,
      "failed": 9,
      "refused_ratio": 0.02302158273381295,
      "early_after_hint": 0,
      "bans": 0,
      "breaker_opened": 0,
      "max_queue": null,
      "time_to_90_s": 5.2,
      "outages": [
        {
          "sent": 9,
          "recovery_s": 11.8
        }
      ],
      "steps": [
        {
          "at_s": 20.0,
          "settle_s": 0.0
        }
      ],
      "mean_latency_ms": 91.16929853271029,
      "p99_latency_ms": 137.51533899999998,
      "jain": null,
      "peak_ratio": 1.11,
      "store_calls_per_request": null
    }
    "#);
}

#[test]
fn simulate_compares_several_strategies() {
    let all = "adaptive,aimd,fixed:20,none";
    assert_snapshot!(simulate_file(EVENTFUL, &["--strategy", all]), @"
    exit 0
    --- stdout
    api.toml: 70s of virtual time, seed 7

    strategy  goodput  settled  refused  sent  latency    p99  to 90 %  bans  breaker  early
    adaptive   93.2 %  106.0 %   1.47 %   816     88ms  128ms     0.9s     0        2      0
    aimd       78.7 %  107.0 %   2.30 %   695     91ms  138ms     5.2s     0        0      0
    fixed:20  101.2 %  100.0 %  32.64 %  1305     90ms  130ms     0.0s     0        3      0
    none      102.0 %  100.0 %  86.55 %  8221     90ms  128ms     0.0s     0        0      0

    strategy      outage  sent  recovery
    adaptive  40s to 45s    12      4.2s
    aimd      40s to 45s     9     11.8s
    fixed:20  40s to 45s    16      0.0s
    none      40s to 45s   236      0.0s

    strategy  step at  settled after
    adaptive      20s           0.0s
    aimd          20s           0.0s
    fixed:20      20s          19.9s
    none          20s          20.1s

    strategy  at the end
    adaptive  others use this limit too: trying 10.3/s, in case there is room above a share of 9.8/s confirmed without a refusal
    aimd      at 6.91/s, raised: responses are fast and none is refused
    fixed:20  staying at 20/s, a fixed rate
    ");
    let separate = ["--strategy", "none", "--strategy", "fixed:20", "--json"];
    let json = simulate_file(EVENTFUL, &separate);
    assert!(json.starts_with("exit 0\n--- stdout\n[\n  {\n    \"strategy\": \"none\",\n"));
    assert!(json.ends_with("\n  }\n]\n"));
}

#[test]
fn simulate_prints_one_object_for_one_strategy() {
    let json = simulate_file(EVENTFUL, &["--strategy", "fixed:5", "--json"]);
    assert!(json.starts_with("exit 0\n--- stdout\n{\n  \"strategy\": \"fixed:5\",\n"));
}

#[test]
fn simulate_prints_mean_and_spread_of_several_seeds() {
    assert_snapshot!(simulate_file(EVENTFUL, &["--seeds", "3"]), @"
    exit 0
    --- stdout
    api.toml: 70s of virtual time, seeds 7 to 9, mean ± standard deviation

    strategy       goodput        settled        refused         sent   latency        p99     to 90 %  bans  breaker  early
    aimd      78.8 ± 0.1 %  107.3 ± 0.6 %  2.30 ± 0.01 %  696.0 ± 3.6  92 ± 2ms  136 ± 7ms  5.1 ± 0.1s     0        0      0

    strategy      outage       sent     recovery
    aimd      40s to 45s  9.7 ± 2.1  11.7 ± 0.2s

    strategy  step at  settled after
    aimd          20s           0.0s
    ");
    assert_snapshot!(simulate_file(EVENTFUL, &["--seeds", "3", "--json"]), @r#"
    exit 0
    --- stdout
    {
      "strategy": "aimd",
      "seed": 7,
      "seeds": 3,
      "goodput_ratio": 0.7878431372549021,
      "goodput_ratio_settled": 1.0733333333333335,
      "sent": 696,
      "accepted": 669.6666666666666,
      "refused": 16,
      "failed": 9.666666666666666,
      "refused_ratio": 0.0229889162263263,
      "early_after_hint": 0,
      "bans": 0,
      "breaker_opened": 0,
      "max_queue": null,
      "time_to_90_s": 5.1000000000000005,
      "outages": [
        {
          "sent": 9.666666666666666,
          "recovery_s": 11.666666666666666
        }
      ],
      "steps": [
        {
          "at_s": 20.0,
          "settle_s": 0.0
        }
      ],
      "mean_latency_ms": 91.62776892387795,
      "p99_latency_ms": 135.80769433333333,
      "jain": null,
      "peak_ratio": 1.11,
      "store_calls_per_request": null,
      "spread": {
        "goodput_ratio": 0.0013584712216226313,
        "goodput_ratio_settled": 0.005773502691896263,
        "sent": 3.605551275463989,
        "accepted": 1.1547005383792517,
        "refused": 0,
        "failed": 2.081665999466133,
        "refused_ratio": 0.00011885598759153358,
        "early_after_hint": 0,
        "bans": 0,
        "breaker_opened": 0,
        "max_queue": null,
        "time_to_90_s": 0.10000000000000009,
        "outages": [
          {
            "sent": 2.081665999466133,
            "recovery_s": 0.15275252316519491
          }
        ],
        "steps": [
          {
            "at_s": 0.0,
            "settle_s": 0.0
          }
        ],
        "mean_latency_ms": 1.648492315954347,
        "p99_latency_ms": 7.281261237155637,
        "jain": null,
        "peak_ratio": 0.0,
        "store_calls_per_request": null
      }
    }
    "#);
}

#[test]
fn simulate_gives_the_same_bytes_for_the_same_seed_only() {
    let json = |seed| ended(&["o1", "--duration", "20s", "--json", "--seed", seed], b"").stdout;
    assert_eq!(json("5"), json("5"));
    assert_ne!(json("5"), json("6"));
    let largest = u64::MAX.to_string();
    assert!(
        simulate(&["o1", "--duration", "5s", "--seed", &largest, "--seeds", "2"]).contains("seeds")
    );
}

#[test]
fn simulate_reads_an_upstream_from_a_flag() {
    let upstream = r#"slots slots=4, service=100ms queue=20 steps=[{ at = "10s", slots = 2 }]"#;
    assert_snapshot!(
        simulate(&["--upstream", upstream, "--duration", "20s", "--clients", "2", "--set", "backlog=30/s"]),
        @r#"
    exit 0
    --- stdout
    slots slots=4, service=100ms queue=20 steps=[{ at = "10s", slots = 2 }]: 20s of virtual time, seed 1

    strategy  goodput  settled  refused  sent  latency  p99  to 90 %  bans  breaker  early  queue
    adaptive   87.8 %        –   1.28 %   547        –    –     1.5s     0        0      0     20

    strategy  step at  settled after
    adaptive      10s           0.0s

    strategy  client  at the end
    adaptive       1  rising from 8.9/s to a limit of 10.5/s, above which responses became slow
    adaptive       2  rising from 10.2/s to a limit of 12/s, above which responses became slow
    "#
    );
}

#[test]
fn simulate_reads_a_scenario_from_stdin() {
    let told = ended(&["-", "--duration", "10s"], EVENTFUL.as_bytes());
    assert_snapshot!(shown(&told), @"
    exit 0
    --- stdout
    stdin: 10s of virtual time, seed 7

    strategy  goodput  settled  refused  sent  latency  p99  to 90 %  bans  breaker  early
    aimd       59.5 %        –   0.82 %   122        –    –        –     0        0      0

    strategy      outage  sent  recovery
    aimd      40s to 45s     0         –

    strategy  step at  settled after
    aimd          20s              –

    strategy  at the end
    aimd      at 15.6/s, lowered: the server refused
    ");
    let wrong = ended(&["-"], b"[upstream]\nkind = \"bucket\"\nrate = 0\n");
    assert_snapshot!(shown(&wrong), @"
    exit 2
    --- stderr
    error: stdin:3:8: `upstream.rate` is `0`, expected a number of requests per second above 0 and at most 1000000
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
}

#[test]
fn assertion_that_holds_exits_with_0() {
    let met = "goodput_ratio >= 50% and refused_ratio <= 0.1 and outages[0].sent > 0 and bans == 0";
    let told = simulate_file(EVENTFUL, &["--assert", met, "--json"]);
    assert!(told.starts_with("exit 0\n"), "{told}");
    assert!(!told.contains("stderr"), "{told}");
}

#[test]
fn assertion_that_fails_exits_with_1() {
    assert_snapshot!(
        simulate_file(EVENTFUL, &[
            "--strategy", "fixed:5,none",
            "--assert", "goodput_ratio >= 95% and refused_ratio <= 0.01",
            "--assert", "jain > 0.9 and steps[0].settle_s <= 1000 and steps[4].at_s == 0",
        ]),
        @"
    exit 1
    --- stdout
    api.toml: 70s of virtual time, seed 7

    strategy  goodput  settled  refused  sent  latency    p99  to 90 %  bans  breaker  early
    fixed:5    37.3 %   50.0 %   0.00 %   333     88ms  135ms        –     0        3      0
    none      102.0 %  100.0 %  86.55 %  8221     90ms  128ms     0.0s     0        0      0

    strategy      outage  sent  recovery
    fixed:5   40s to 45s    15         –
    none      40s to 45s   236      0.0s

    strategy  step at  settled after
    fixed:5       20s              –
    none          20s          20.1s

    strategy  at the end
    fixed:5   staying at 5/s, a fixed rate
    --- stderr
    error: fixed:5: `goodput_ratio >= 95%` is not met: `goodput_ratio` is 0.3729411764705882
    error: fixed:5: `jain > 0.9` is not met: `jain` is null, it does not apply
    error: fixed:5: `steps[0].settle_s <= 1000` is not met: `steps[0].settle_s` is null, it does not apply
    error: fixed:5: `steps[4].at_s == 0` is not met: `steps[4].at_s` is null, it does not apply
    error: none: `refused_ratio <= 0.01` is not met: `refused_ratio` is 0.8654664882617686
    error: none: `jain > 0.9` is not met: `jain` is null, it does not apply
    error: none: `steps[4].at_s == 0` is not met: `steps[4].at_s` is null, it does not apply
    "
    );
}

#[test]
fn closed_stdout_is_not_an_error() {
    let mut child = tidegate("simulate o1 --duration 2s --json")
        .spawn()
        .unwrap();
    // Closed before anything is written.
    drop(child.stdout.take());
    assert_snapshot!(shown(&child.wait_with_output().unwrap()), @"exit 0");
    let mut child = tidegate("simulate --show o1").spawn().unwrap();
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn simulate_writes_a_report_and_prints_the_table() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("page.html");
    let mut command = tidegate("simulate --duration 5s --strategy aimd,fixed:20 --seed 3");
    command
        .args(["--upstream", "bucket rate=20 burst=5", "--report"])
        .arg(&page);
    let ended = command.output().unwrap();
    assert!(ended.status.success());
    assert!(ended.stderr.is_empty());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    let command = "tidegate simulate --upstream &#39;bucket rate=20 burst=5&#39; --strategy aimd,fixed:20 --duration 5s --seed 3";
    let quotes = [("&#39;", "'"), ("&quot;", "\"")];
    let plain = |text: &str| {
        quotes
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    assert!(
        plain(&page).contains(&plain(command)),
        "the command that repeats it"
    );
    assert!(page.contains("<svg"));
}
