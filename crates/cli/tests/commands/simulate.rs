//! `tidegate simulate`: figures for people and programs, assertions, and every kind of bad input.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Output;

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{output, run, shown, tidegate};

/// Runs `tidegate simulate` with these arguments, which may have blanks in them.
fn simulate(args: &[&str]) -> String {
    shown(&ended(args, b""))
}

fn ended(args: &[&str], input: &[u8]) -> Output {
    let mut child = tidegate("simulate").args(args).spawn().unwrap();
    _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs it over a file with this text.
fn simulate_file(text: &str, args: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("api.toml"), text).unwrap();
    let mut command = tidegate("simulate api.toml");
    command.args(args).current_dir(folder.path());
    shown(&command.output().unwrap())
}

/// Short, with everything that has figures of its own, and with a strategy that does not change.
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
    Play clients against a model upstream in virtual time, and tell what that came to

    A scenario is a TOML file, or a shipped one by its name (see --list), or an upstream written in one
    line with --upstream. Five minutes pass in the blink of an eye, and the same scenario and seed
    always give the same figures.

    Usage: tidegate simulate [OPTIONS] <FILE|NAME|->
           tidegate simulate [OPTIONS] --upstream <KIND KEY=VALUE…>
           tidegate simulate --list
           tidegate simulate --show <NAME>

    Arguments:
      [FILE|NAME]
              A scenario file, `-` for stdin, or the name of a shipped scenario

    Options:
          --upstream <KIND KEY=VALUE…>
              The upstream, without a file: its kind and the keys of `[upstream]`

          --strategy <STRATEGY,…>
              What drives the clients, whatever the file says; several with commas are compared:
              adaptive, aimd, fixed:RATE, none

          --duration <DURATION>
              How much virtual time passes

          --clients <N>
              How many clients there are

          --set <KEY=VALUE>
              A setting of the clients, by its name in the configuration; may be repeated

          --seed <N>
              Where random numbers come from, whatever the file says

          --seeds <N>
              Play so many seeds, one after the other; every figure is the mean, with its spread

          --assert <EXPR>
              Exit with 1 unless this holds, such as `goodput_ratio >= 95% and bans == 0`; may be
              repeated

          --report <FILE.html>
              Write a page with plots of the first seed, which needs nothing but a browser

          --list
              List the shipped scenarios

          --show <NAME>
              Print a shipped scenario, to begin one's own with

      -h, --help
              Print help (see a summary with '-h')

    Options of every command:
          --config <FILE>
              The settings file [default: tidegate.toml, if it is there]

          --json
              Write for programs: JSON on stdout

      -q, --quiet
              Say only what went wrong

      -v, --verbose...
              Say more on stderr

    Upstreams in one line:
      bucket rate=N [burst=N]                           a token bucket
      window quota=N period=DURATION [phase=DURATION]   so many in each window
      slots slots=N service=DURATION [queue=N]          so many at a time, the others queue
      and for all of them, as in a file: retry_after, headers, latency, latency_spread, refuse_latency,
      network, failure_rate, steps, outage, ban. Lists and tables are written as TOML:
      --upstream 'bucket rate=50 outage=[{ from = "60s", to = "90s" }]'

    Assertions:
      FIGURE OPERATOR NUMBER, joined by `and`. Operators are >= <= > < == !=, numbers may end in %.
      Figures have their names of --json; of lists, one is named: outages[0].recovery_s <= 4,
      steps[1].settle_s <= 10. A figure that does not apply meets nothing.

    Examples:
      # one of the shipped scenarios
      tidegate simulate o1

      # an upstream in one line, strategies side by side
      tidegate simulate --upstream 'bucket rate=50 burst=10' --strategy adaptive,aimd,fixed:50,none

      # what would these settings do?
      tidegate simulate --upstream 'window quota=600 period=60s retry_after=true' --set initial_rate=20

      # a page with plots, to look at
      tidegate simulate o5 --strategy adaptive,none --report o5.html

      # in CI: exit code 1 unless it holds
      tidegate simulate api.toml --assert 'goodput_ratio >= 95% and refused_ratio <= 0.01'

      # a scenario of one's own, over five seeds, for programs
      tidegate simulate --show o7 > mine.toml
      tidegate simulate mine.toml --seeds 5 --json
    "#);
}

#[test]
fn shipped_scenarios_are_listed() {
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
fn a_shipped_scenario_is_shown_as_it_is_written() {
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
    error: `o10` is no shipped scenario
    hint: did you mean `o1`? shipped scenarios are o1, o2, o3, o4, o5, o6, o7, o8, o8-4, o8-8, o8-16, o9, poll-normal, poll-limited, backoff-outage-standard, backoff-outage-exhausted, backoff-outage-retry-after, backoff-many, queue-empty, queue-single-failure, queue-many-failures, queue-successes, queue-aging, queue-full, protection-single-error, protection-repeated-errors, protection-success-recovery, protection-auto-disable, protection-other-endpoints, aimd-fast, aimd-slow, aimd-throttling, aimd-failing
    ");
}

#[test]
fn a_shipped_scenario_is_played_by_its_name() {
    assert_snapshot!(run("simulate o1 --duration 20s", ""), @"
    exit 0
    --- stdout
    o1: 20s of virtual time, seed 1

    strategy  goodput  settled  refused  sent  latency  p99  to 90 %  bans  breaker  early
    adaptive   88.4 %        –   0.89 %   896        –    –     2.0s     0        0      0
    ");
}

#[test]
fn a_file_goes_before_what_is_shipped_under_its_name() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("o1"), "rate = 5\n").unwrap();
    let mut command = tidegate("simulate o1");
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_snapshot!(shown(&output), @"
    exit 2
    --- stderr
    error: o1:1:1: `rate`: unknown setting, expected one of: duration, seed, upstream, client
    error: o1:1:1: `upstream` is missing, expected a table
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn a_file_with_steps_and_outages() {
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
    ");
}

#[test]
fn figures_for_programs() {
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
      "jain": null
    }
    "#);
}

#[test]
fn several_strategies_are_side_by_side() {
    let all = "adaptive,aimd,fixed:20,none";
    assert_snapshot!(simulate_file(EVENTFUL, &["--strategy", all]), @"
    exit 0
    --- stdout
    api.toml: 70s of virtual time, seed 7

    strategy  goodput  settled  refused  sent  latency    p99  to 90 %  bans  breaker  early
    adaptive   97.5 %   99.0 %   6.73 %   906     89ms  153ms     0.6s     0        3      0
    aimd       78.7 %  107.0 %   2.30 %   695     91ms  138ms     5.2s     0        0      0
    fixed:20  101.2 %  100.0 %  32.64 %  1305     90ms  130ms     0.0s     0        3      0
    none      102.0 %  100.0 %  86.55 %  8221     90ms  128ms     0.0s     0        0      0

    strategy      outage  sent  recovery
    adaptive  40s to 45s    15      0.0s
    aimd      40s to 45s     9     11.8s
    fixed:20  40s to 45s    16      0.0s
    none      40s to 45s   236      0.0s

    strategy  step at  settled after
    adaptive      20s           9.6s
    aimd          20s           0.0s
    fixed:20      20s          19.9s
    none          20s          20.1s
    ");
    let separate = ["--strategy", "none", "--strategy", "fixed:20", "--json"];
    let json = simulate_file(EVENTFUL, &separate);
    assert!(json.starts_with("exit 0\n--- stdout\n[\n  {\n    \"strategy\": \"none\",\n"));
    assert!(json.ends_with("\n  }\n]\n"));
}

#[test]
fn one_named_strategy_is_one_object() {
    let json = simulate_file(EVENTFUL, &["--strategy", "fixed:5", "--json"]);
    assert!(json.starts_with("exit 0\n--- stdout\n{\n  \"strategy\": \"fixed:5\",\n"));
}

#[test]
fn several_seeds_have_a_mean_and_a_spread() {
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
        "jain": null
      }
    }
    "#);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let json = |seed| ended(&["o1", "--duration", "20s", "--json", "--seed", seed], b"").stdout;
    assert_eq!(json("5"), json("5"));
    assert_ne!(json("5"), json("6"));
    let largest = u64::MAX.to_string();
    assert!(
        simulate(&["o1", "--duration", "5s", "--seed", &largest, "--seeds", "2"]).contains("seeds")
    );
}

#[test]
fn an_upstream_in_one_line() {
    let upstream = r#"slots slots=4, service=100ms queue=20 steps=[{ at = "10s", slots = 2 }]"#;
    assert_snapshot!(
        simulate(&["--upstream", upstream, "--duration", "20s", "--clients", "2", "--set", "backlog=30/s"]),
        @r#"
    exit 0
    --- stdout
    slots slots=4, service=100ms queue=20 steps=[{ at = "10s", slots = 2 }]: 20s of virtual time, seed 1

    strategy  goodput  settled  refused  sent  latency  p99  to 90 %  bans  breaker  early  queue
    adaptive   89.0 %        –   0.55 %   547        –    –     1.7s     0        0      0     20

    strategy  step at  settled after
    adaptive      10s           0.0s
    "#
    );
}

#[test]
fn a_scenario_from_stdin() {
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
    ");
    let wrong = ended(&["-"], b"[upstream]\nkind = \"bucket\"\nrate = 0\n");
    assert_snapshot!(shown(&wrong), @"
    exit 2
    --- stderr
    error: stdin:3:8: `upstream.rate` is `0`, expected a number of requests per second above 0 and up to 1000000
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn an_assertion_that_is_met() {
    let met = "goodput_ratio >= 50% and refused_ratio <= 0.1 and outages[0].sent > 0 and bans == 0";
    let told = simulate_file(EVENTFUL, &["--assert", met, "--json"]);
    assert!(told.starts_with("exit 0\n"), "{told}");
    assert!(!told.contains("stderr"), "{told}");
}

#[test]
fn an_assertion_that_is_not_met() {
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
fn a_malformed_assertion() {
    assert_snapshot!(
        simulate(&["o1", "--assert", "goodput >= 95%", "--assert", "bans = 0", "--assert", "bans == 0 or sent > 5"]),
        @"
    exit 2
    --- stderr
    error: --assert 'goodput >= 95%', column 1: `goodput`, expected a figure; did you mean `goodput_ratio`?
    error: --assert 'bans = 0', column 6: `=`, expected `>=`, `<=`, `>`, `<`, `==` or `!=`; did you mean `==`?
    error: --assert 'bans == 0 or sent > 5', column 11: `or`, expected `and` or the end
    hint: an assertion is `FIGURE OPERATOR NUMBER`, joined by `and`; figures are goodput_ratio, goodput_ratio_settled, sent, accepted, refused, failed, refused_ratio, early_after_hint, bans, breaker_opened, max_queue, time_to_90_s, mean_latency_ms, p99_latency_ms, jain, outages[N].sent, outages[N].recovery_s, steps[N].at_s, steps[N].settle_s
    "
    );
}

#[test]
fn neither_a_file_nor_a_name() {
    assert_snapshot!(run("simulate o88", ""), @"
    exit 2
    --- stderr
    error: `o88` is neither a file that is there nor a shipped scenario
    hint: did you mean `o8`? shipped scenarios are o1, o2, o3, o4, o5, o6, o7, o8, o8-4, o8-8, o8-16, o9, poll-normal, poll-limited, backoff-outage-standard, backoff-outage-exhausted, backoff-outage-retry-after, backoff-many, queue-empty, queue-single-failure, queue-many-failures, queue-successes, queue-aging, queue-full, protection-single-error, protection-repeated-errors, protection-success-recovery, protection-auto-disable, protection-other-endpoints, aimd-fast, aimd-slow, aimd-throttling, aimd-failing
    ");
    assert_snapshot!(run("simulate /no/such/file.toml", ""), @"
    exit 2
    --- stderr
    error: `/no/such/file.toml` is neither a file that is there nor a shipped scenario
    hint: shipped scenarios are o1, o2, o3, o4, o5, o6, o7, o8, o8-4, o8-8, o8-16, o9, poll-normal, poll-limited, backoff-outage-standard, backoff-outage-exhausted, backoff-outage-retry-after, backoff-many, queue-empty, queue-single-failure, queue-many-failures, queue-successes, queue-aging, queue-full, protection-single-error, protection-repeated-errors, protection-success-recovery, protection-auto-disable, protection-other-endpoints, aimd-fast, aimd-slow, aimd-throttling, aimd-failing; `tidegate simulate --list` says more
    ");
    assert_snapshot!(run("simulate /", ""), @"
    exit 2
    --- stderr
    error: cannot read `/`: Is a directory (os error 21)
    ");
    assert_snapshot!(run("simulate", ""), @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      <FILE|NAME>

    Usage: tidegate simulate [OPTIONS] <FILE|NAME|->
           tidegate simulate [OPTIONS] --upstream <KIND KEY=VALUE…>
           tidegate simulate --list
           tidegate simulate --show <NAME>

    For more information, try '--help'.
    ");
    assert_snapshot!(simulate(&["o1", "--upstream", "bucket rate=5"]), @"
    exit 2
    --- stderr
    error: the argument '[FILE|NAME]' cannot be used with '--upstream <KIND KEY=VALUE…>'

    Usage: tidegate simulate [OPTIONS] <FILE|NAME|->
           tidegate simulate [OPTIONS] --upstream <KIND KEY=VALUE…>
           tidegate simulate --list
           tidegate simulate --show <NAME>

    For more information, try '--help'.
    ");
    assert_snapshot!(run("simulate o1 --seeds 0", ""), @"
    exit 2
    --- stderr
    error: invalid value '0' for '--seeds <N>': 0 is not in 1..=10000

    For more information, try '--help'.
    ");
}

#[test]
fn wrong_flags_are_told_together() {
    assert_snapshot!(
        simulate(&[
            "--upstream", "buckt rate=fast",
            "--strategy", "adaptive,fixed",
            "--duration", "300",
            "--clients", "0",
            "--set", "max_rat=5",
            "--set", "window",
        ]),
        @"
    exit 2
    --- stderr
    error: --clients: `client[0].count` is `0`, expected a whole number from 1 to 10000
    error: --duration: `duration` is `300`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: --set: `window`: expected KEY=VALUE
    error: --set max_rat: `client[0].max_rat`: unknown setting; did you mean `max_rate`?
    error: --strategy: `client[0].strategy` is `fixed`, expected `fixed:RATE` with a rate such as `fixed:50`, in requests per second
    error: --upstream: `upstream.kind` is `buckt`, expected `bucket`, `window` or `slots`; did you mean `bucket`?
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    "
    );
}

#[test]
fn a_setting_that_no_chosen_strategy_has() {
    assert_snapshot!(simulate(&["o1", "--strategy", "none", "--set", "max_rate=5"]), @"
    exit 2
    --- stderr
    error: --set max_rate: `client[0].max_rate`: unknown setting, expected one of: count, strategy, policy, max_in_flight, start, backlog, base, max, jitter, growth
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
    assert_snapshot!(simulate(&["o1", "--strategy", "fixed:5", "--set", "initial_rate=5"]), @"
    exit 2
    --- stderr
    error: --set initial_rate: `client[0].initial_rate` is `5`, expected no other rate next to that of the strategy
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn syntax_error() {
    assert_snapshot!(simulate_file("[upstream]\nkind = bucket\n", &[]), @"
    exit 2
    --- stderr
    error: api.toml:2:8: not TOML: string values must be quoted, expected literal string
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn nothing_in_the_file() {
    assert_snapshot!(simulate_file("", &[]), @"
    exit 2
    --- stderr
    error: api.toml:1:1: `upstream` is missing, expected a table
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn unknown_names() {
    let text = "sead = 1\n[upstream]\nkind = \"window\"\nquota = 5\nperiod = \"1s\"\nburst = 3\n\
                [[client]]\nstratgy = \"aimd\"\n[[client]]\npolicy = \"poll\"\nmax_rate = 5\n";
    assert_snapshot!(simulate_file(text, &[]), @"
    exit 2
    --- stderr
    error: api.toml:1:1: `sead`: unknown setting; did you mean `seed`?
    error: api.toml:6:1: `upstream.burst`: unknown setting, expected one of: kind, retry_after, headers, latency, latency_spread, refuse_latency, network, failure_rate, steps, outage, ban, quota, period, phase
    error: api.toml:8:1: `client[0].stratgy`: unknown setting; did you mean `strategy`?
    error: api.toml:11:1: `client[1].max_rate`: unknown setting, expected one of: count, strategy, policy, max_in_flight, start, backlog, early, middle, late, first, base, max, give_up_after, other_retries, job
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn wrong_values() {
    let text = "duration = \"0s\"\nseed = -1\n[upstream]\nkind = \"bucket\"\nrate = \"50\"\nburst = 0\n\
                latency = 70\nlatency_spread = 9\nretry_after = 1\nfailure_rate = 2\n\
                steps = { at = \"1s\" }\noutage = [{ from = \"9s\", to = \"5s\" }]\nban = { excesses = 0 }\n\
                [[client]]\ncount = 1.5\nbacklog = \"lots\"\nstart = \"5\"\nmax_rate = 1\nmin_rate = 2\n";
    assert_snapshot!(simulate_file(text, &[]), @"
    exit 2
    --- stderr
    error: api.toml:1:12: `duration` is `0s`, expected a duration above zero
    error: api.toml:2:8: `seed` is `-1`, expected a whole number from 0 to 18446744073709551615
    error: api.toml:5:8: `upstream.rate` is `50`, expected a number of requests per second above 0 and up to 1000000
    error: api.toml:6:9: `upstream.burst` is `0`, expected a number of requests from 1 to 1000000000
    error: api.toml:7:11: `upstream.latency` is `70`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: api.toml:8:18: `upstream.latency_spread` is `9`, expected a number from 0 to 5
    error: api.toml:9:15: `upstream.retry_after` is `1`, expected `true` or `false`
    error: api.toml:10:16: `upstream.failure_rate` is `2`, expected a share from 0 to 1
    error: api.toml:11:9: `upstream.steps` is `a table`, expected a list of tables
    error: api.toml:12:31: `upstream.outage[0].to` is `5s`, expected later than `from` (9s)
    error: api.toml:13:1: `upstream.ban.within` is missing, expected a duration such as `500ms`, `30s` or `5m`
    error: api.toml:13:1: `upstream.ban.for` is missing, expected a duration such as `500ms`, `30s` or `5m`
    error: api.toml:13:20: `upstream.ban.excesses` is `0`, expected a whole number from 1 to 1000000
    error: api.toml:15:9: `client[0].count` is `1.5`, expected a whole number from 1 to 10000
    error: api.toml:16:11: `client[0].backlog` is `lots`, expected `endless`, requests per second such as `30/s`, or a total such as `1000`
    error: api.toml:17:9: `client[0].start` is `5`, expected a duration such as `5s`, or two such as `0s..20s`
    error: api.toml:19:12: `client[0].min_rate` is `2`, expected at most `max_rate` (1)
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn problems_for_programs() {
    assert_snapshot!(simulate_file("[upstream]\nkind = \"bucket\"\nrate = 0\n", &["--json"]), @r#"
    exit 2
    --- stdout
    {
      "file": "api.toml",
      "ok": false,
      "problems": [
        {
          "column": 8,
          "file": "api.toml",
          "flag": null,
          "key": "upstream.rate",
          "line": 3,
          "message": "api.toml:3:8: `upstream.rate` is `0`, expected a number of requests per second above 0 and up to 1000000",
          "problem": "expected a number of requests per second above 0 and up to 1000000",
          "value": "0",
          "variable": null
        }
      ]
    }
    "#);
}

#[test]
fn a_file_that_is_no_text() {
    let told = ended(&["-"], b"seed = \"\xff\"\n");
    assert_snapshot!(shown(&told), @"
    exit 2
    --- stderr
    error: stdin:1:9: expected text in UTF-8
    hint: `tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags
    ");
}

#[test]
fn a_reader_that_has_seen_enough_is_an_ordinary_end() {
    let mut child = tidegate("simulate o1 --duration 2s --json")
        .spawn()
        .unwrap();
    // Gone before anything is written.
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
fn a_page_with_plots_is_written_beside_the_table() {
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

#[test]
fn a_page_that_cannot_be_written() {
    assert_snapshot!(simulate(&["--upstream", "bucket rate=20", "--duration", "1s", "--strategy", "aimd", "--report", "no/such/folder/page.html"]), @"
    exit 1
    --- stdout
    bucket rate=20: 1s of virtual time, seed 1

    strategy  goodput  settled  refused  sent  latency  p99  to 90 %  bans  breaker  early
    aimd       30.0 %        –   0.00 %     7        –    –        –     0        0      0
    --- stderr
    error: cannot write `no/such/folder/page.html`: No such file or directory (os error 2)
    ");
}
