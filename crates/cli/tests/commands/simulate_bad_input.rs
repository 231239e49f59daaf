//! `tidegate simulate` with every kind of bad input: exit code 2, the place, and what was expected.

use insta::assert_snapshot;

use crate::simulate::{ended, simulate, simulate_file};
use crate::support::{run, shown};

#[test]
fn rejects_a_malformed_assertion() {
    assert_snapshot!(
        simulate(&["o1", "--assert", "goodput >= 95%", "--assert", "bans = 0", "--assert", "bans == 0 or sent > 5"]),
        @"
        exit 2
        --- stderr
        error: `--assert` is `goodput >= 95%`, column 1: `goodput`, expected a figure; did you mean `goodput_ratio`?
        error: `--assert` is `bans = 0`, column 6: `=`, expected `>=`, `<=`, `>`, `<`, `==` or `!=`; did you mean `==`?
        error: `--assert` is `bans == 0 or sent > 5`, column 11: `or`, expected `and` or the end
        hint: an assertion is `FIGURE OPERATOR NUMBER`, joined by `and`; figures are goodput_ratio, goodput_ratio_settled, sent, accepted, refused, failed, refused_ratio, early_after_hint, bans, breaker_opened, max_queue, time_to_90_s, mean_latency_ms, p99_latency_ms, jain, peak_ratio, store_calls_per_request, outages[N].sent, outages[N].recovery_s, steps[N].at_s, steps[N].settle_s
        "
    );
}

#[test]
fn rejects_an_unknown_scenario() {
    assert_snapshot!(run("simulate o88", ""), @"
    exit 2
    --- stderr
    error: `o88` is neither a file nor a shipped scenario
    hint: did you mean `o8`? shipped scenarios are o1, o2, o3, o4, o5, o6, o7, o8, o8-4, o8-8, o8-16, o9, tokens, fleet-8, fleet-64, fleet-killed, fleet-flushed, fleet-partition, fleet-nodes, poll-normal, poll-limited, backoff-outage-standard, backoff-outage-exhausted, backoff-outage-retry-after, backoff-many, queue-empty, queue-single-failure, queue-many-failures, queue-successes, queue-aging, queue-full, protection-single-error, protection-repeated-errors, protection-success-recovery, protection-auto-disable, protection-other-endpoints, aimd-fast, aimd-slow, aimd-throttling, aimd-failing
    ");
    assert_snapshot!(run("simulate /no/such/file.toml", ""), @"
    exit 2
    --- stderr
    error: `/no/such/file.toml` is neither a file nor a shipped scenario
    hint: shipped scenarios are o1, o2, o3, o4, o5, o6, o7, o8, o8-4, o8-8, o8-16, o9, tokens, fleet-8, fleet-64, fleet-killed, fleet-flushed, fleet-partition, fleet-nodes, poll-normal, poll-limited, backoff-outage-standard, backoff-outage-exhausted, backoff-outage-retry-after, backoff-many, queue-empty, queue-single-failure, queue-many-failures, queue-successes, queue-aging, queue-full, protection-single-error, protection-repeated-errors, protection-success-recovery, protection-auto-disable, protection-other-endpoints, aimd-fast, aimd-slow, aimd-throttling, aimd-failing; `tidegate simulate --list` describes them
    ");
    assert_snapshot!(run("simulate /", ""), @"
    exit 2
    --- stderr
    error: cannot read `/`: Is a directory (os error 21)
    ");
    assert_snapshot!(run("simulate", ""), @"
    exit 2
    --- stderr
    error: `tidegate simulate` needs `<FILE|NAME>`
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["o1", "--upstream", "bucket rate=5"]), @"
    exit 2
    --- stderr
    error: `FILE|NAME` cannot be used with `--upstream`
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(run("simulate o1 --seeds 0", ""), @"
    exit 2
    --- stderr
    error: `--seeds` is `0`, expected a whole number from 1 to 10000
    hint: `tidegate simulate --help` shows what it takes
    ");
}

#[test]
fn reports_all_wrong_flags_in_one_run() {
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
    error: `--clients` is `0`, expected a whole number from 1 to 10000
    error: `--duration` is `300`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: --set: `window`: expected KEY=VALUE
    error: --set max_rat: `client[0].max_rat`: unknown setting; did you mean `max_rate`?
    error: `--strategy` is `fixed`, expected `fixed:RATE` with a rate such as `fixed:50`, in requests per second
    error: --upstream: `upstream.kind` is `buckt`, expected `bucket`, `window` or `slots`; did you mean `bucket`?
    error: --upstream: `upstream.rate` is `fast`, expected a number of requests per second above 0 and at most 1000000
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    "
    );
}

#[test]
fn rejects_a_setting_of_no_chosen_strategy() {
    assert_snapshot!(simulate(&["o1", "--strategy", "none", "--set", "max_rate=5"]), @"
    exit 2
    --- stderr
    error: --set max_rate: `client[0].max_rate`: unknown setting, expected one of: count, strategy, policy, max_in_flight, start, backlog, cost, base, max, jitter, growth
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
    assert_snapshot!(simulate(&["o1", "--strategy", "fixed:5", "--set", "initial_rate=5"]), @"
    exit 2
    --- stderr
    error: --set initial_rate: `client[0].initial_rate` is `5`, expected no other rate next to that of the strategy
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
}

#[test]
fn syntax_error() {
    assert_snapshot!(simulate_file("[upstream]\nkind = bucket\n", &[]), @"
    exit 2
    --- stderr
    error: api.toml:2:8: not TOML: string values must be quoted, expected literal string
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
}

#[test]
fn rejects_an_empty_file() {
    assert_snapshot!(simulate_file("", &[]), @"
    exit 2
    --- stderr
    error: api.toml:1:1: `upstream` is missing, expected a table
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
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
    error: api.toml:6:1: `upstream.burst`: unknown setting, expected one of: kind, retry_after, headers, latency, latency_spread, refuse_latency, network, failure_rate, steps, outage, ban, cost, quota, period, phase
    error: api.toml:8:1: `client[0].stratgy`: unknown setting; did you mean `strategy`?
    error: api.toml:11:1: `client[1].max_rate`: unknown setting, expected one of: count, strategy, policy, max_in_flight, start, backlog, cost, early, middle, late, first, base, max, give_up_after, other_retries, job
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
}

#[test]
fn wrong_values() {
    let text = "duration = \"0s\"\nseed = -1\n[upstream]\nkind = \"bucket\"\nrate = \"50\"\nburst = 0\n\
                latency = 70\nlatency_spread = 9\nretry_after = 1\nfailure_rate = 2\n\
                steps = { at = \"1s\" }\noutage = [{ from = \"9s\", to = \"5s\" }]\nban = { excesses = 0 }\n\
                [[client]]\ncount = 1.5\nbacklog = \"lots\"\nstart = \"5\"\nmax_rate = 1\nmin_rate = 2\n";
    assert_snapshot!(simulate_file(text, &[]), @r#"
    exit 2
    --- stderr
    error: api.toml:1:12: `duration` is `0s`, expected a duration above zero
    error: api.toml:2:8: `seed` is `-1`, expected a whole number from 0 to 18446744073709551615
    error: api.toml:5:8: `upstream.rate` is `50`, expected a number of requests per second above 0 and at most 1000000, not a string
    error: api.toml:6:9: `upstream.burst` is `0`, expected a number of requests from 1 to 1000000000
    error: api.toml:7:11: `upstream.latency` is `70`, expected a string with a number and a unit such as `"500ms"`, `"30s"` or `"5m"`, not a whole number
    error: api.toml:8:18: `upstream.latency_spread` is `9`, expected a number from 0 to 5
    error: api.toml:9:15: `upstream.retry_after` is `1`, expected `true` or `false`, not a whole number
    error: api.toml:10:16: `upstream.failure_rate` is `2`, expected a share from 0 to 1
    error: api.toml:11:9: `upstream.steps` is `a table`, expected a list of tables
    error: api.toml:12:31: `upstream.outage[0].to` is `5s`, expected later than `from` (9s)
    error: api.toml:13:1: `upstream.ban.within` is missing, expected a duration above zero
    error: api.toml:13:1: `upstream.ban.for` is missing, expected a duration above zero
    error: api.toml:13:20: `upstream.ban.excesses` is `0`, expected a whole number from 1 to 1000000
    error: api.toml:15:9: `client[0].count` is `1.5`, expected a whole number from 1 to 10000, not a fraction
    error: api.toml:16:11: `client[0].backlog` is `lots`, expected `endless`, requests per second such as `30/s`, or a total such as `1000`
    error: api.toml:17:9: `client[0].start` is `5`, expected a duration such as `5s`, or two such as `0s..20s`
    error: api.toml:19:12: `client[0].min_rate` is `2`, expected at most `max_rate` (1)
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    "#);
}

#[test]
fn reports_problems_as_json() {
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
          "message": "api.toml:3:8: `upstream.rate` is `0`, expected a number of requests per second above 0 and at most 1000000",
          "problem": "expected a number of requests per second above 0 and at most 1000000",
          "value": "0",
          "variable": null
        }
      ]
    }
    "#);
}

#[test]
fn rejects_a_file_that_is_not_utf8() {
    let told = ended(&["-"], b"seed = \"\xff\"\n");
    assert_snapshot!(shown(&told), @"
    exit 2
    --- stderr
    error: stdin:1:9: expected text in UTF-8
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
}

#[test]
fn reports_a_report_that_cannot_be_written() {
    assert_snapshot!(simulate(&["--upstream", "bucket rate=20", "--duration", "1s", "--strategy", "aimd", "--report", "no/such/folder/page.html"]), @"
    exit 1
    --- stdout
    bucket rate=20: 1s of virtual time, seed 1

    strategy  goodput  settled  refused  sent  latency  p99  to 90 %  bans  breaker  early
    aimd       30.0 %        –   0.00 %     7        –    –        –     0        0      0

    strategy  at the end
    aimd      at 3.5/s, raised: responses are fast and none is refused
    --- stderr
    error: cannot write `no/such/folder/page.html`: No such file or directory (os error 2)
    ");
}
