//! Valid and invalid scenarios.

use std::time::Duration;

use policy::time::Timestamp;

use super::*;
use crate::client::Driver;
use crate::load::Backlog;
use crate::upstream::Kind;

fn read(text: &str) -> Scenario {
    Scenario::read("f", text.as_bytes()).unwrap()
}

fn problems(text: &str) -> Vec<String> {
    let problems = Scenario::read("f", text.as_bytes()).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

/// One bucket and the given text below it.
fn with_bucket(text: &str) -> String {
    format!("[upstream]\nkind = \"bucket\"\nrate = 50\n{text}")
}

#[test]
fn reads_every_shipped_scenario_by_a_unique_name() {
    for shipped in SHIPPED {
        let scenario = shipped.scenario();
        let is_compared = shipped.name.starts_with('o');
        let is_usual = scenario.duration == Duration::from_secs(300);
        assert!(is_usual || !is_compared, "{}", shipped.name);
        let alike = SHIPPED.iter().filter(|other| other.name == shipped.name);
        assert_eq!(alike.count(), 1, "{}", shipped.name);
        assert_eq!(Shipped::find(shipped.name), Some(shipped));
        assert!(!shipped.about.is_empty());
    }
    assert_eq!(
        Shipped::find("o8-16").unwrap().scenario().client_count(),
        16
    );
    assert_eq!(Shipped::find("o10"), None);
}

#[test]
fn reads_every_setting() {
    let scenario = read(
        r#"
        duration = "10m"
        seed = 7
        [upstream]
        kind = "bucket"
        rate = 50
        burst = 12.5
        retry_after = true
        headers = true
        latency = "71ms"
        latency_spread = 0.5
        refuse_latency = "16ms"
        network = "11ms"
        failure_rate = 0.1
        steps = [{ at = "60s", rate = 20 }, { at = "70s", burst = 3 }]
        outage = [{ from = "80s", to = "90s" }, { from = "60s", to = "80s", timeout_share = 1, timeout = "2s" }]
        ban = { excesses = 5, within = "30s", for = "60s" }
        [[client]]
        count = 3
        strategy = "fixed:50"
        max_in_flight = 9
        start = "1s..20s"
        backlog = "30/s"
        [[client]]
        strategy = "none"
        backlog = "1_000"
        "#,
    );
    assert_eq!((scenario.duration.as_secs(), scenario.seed), (600, 7));
    let upstream = &scenario.upstream;
    assert_eq!(
        upstream.kind,
        Kind::Bucket {
            rate: 50.0,
            burst: 12.5
        }
    );
    assert!(upstream.retry_after && upstream.headers);
    assert_eq!(
        upstream.steps[1].kind,
        Kind::Bucket {
            rate: 20.0,
            burst: 3.0
        }
    );
    assert_eq!(upstream.outages[0].from, Timestamp::from_secs(60));
    assert!((upstream.outages[1].timeout_share - 0.5).abs() < 1e-9);
    assert_eq!(upstream.ban.unwrap().length, Duration::from_secs(60));
    assert_eq!(scenario.client_count(), 4);
    assert_eq!(scenario.clients[0].backlog, Backlog::PerSecond(30.0));
    assert_eq!(scenario.clients[0].start.to, Duration::from_secs(20));
    assert_eq!(scenario.clients[1].backlog, Backlog::Total(1000));
    assert!(matches!(scenario.clients[1].driver, Driver::Naive(_)));
    let Driver::Gate(gate) = &scenario.clients[0].driver else {
        panic!("a gate");
    };
    assert_eq!(gate.max_in_flight(), 9);
}

#[test]
fn docs_page_shows_a_scenario_with_every_key() {
    let page = include_str!("../../../../docs/reference/scenarios.md");
    let (_, block) = page.split_once("```toml\n").unwrap();
    let (sample, _) = block.split_once("```").unwrap();
    let scenario = read(sample);
    assert_eq!(scenario.upstream.steps.len(), 1);
    // The values shown are also the defaults.
    let plain = read(&with_bucket(""));
    let shown = UpstreamSettings {
        steps: Vec::new(),
        outages: Vec::new(),
        ban: None,
        cost: None,
        ..scenario.upstream
    };
    assert_eq!(plain.upstream, shown);
    assert_eq!(plain.clients[0].driver, scenario.clients[0].driver);
    let found = problems("x = 1\n[upstream]\nx = 1\n[[client]]\nx = 1\npolicy = \"\"\n");
    let names = found
        .iter()
        .filter_map(|problem| problem.split_once("expected one of: "));
    let names: Vec<&str> = names.flat_map(|(_, names)| names.split(", ")).collect();
    assert!(names.len() > 40, "{found:?}");
    let of_policies =
        ["initial_rate", "early"].map(|first| names.iter().position(|name| *name == first));
    assert!(of_policies.iter().all(Option::is_some));
    let own = names.iter().take_while(|name| **name != "initial_rate");
    for name in own.filter(|name| !["upstream", "client"].contains(name)) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn docs_page_lists_all_shipped_scenarios() {
    let page = include_str!("../../../../docs/reference/scenarios.md");
    for Shipped { name, about, .. } in SHIPPED {
        assert!(page.contains(&format!("| `{name}` | {about} |")), "{name}");
    }
}

#[test]
fn reads_windows_and_slots_with_their_steps() {
    let window = read(
        "[upstream]\nkind = \"window\"\nquota = 300\nperiod = \"10s\"\nphase = \"3s\"\nsteps = [{ at = \"5s\", quota = 9 }]",
    );
    let (period, phase) = (Duration::from_secs(10), Duration::from_secs(3));
    assert_eq!(
        window.upstream.kind,
        Kind::Window {
            quota: 300,
            period,
            phase
        }
    );
    assert_eq!(
        window.upstream.steps[0].kind,
        Kind::Window {
            quota: 9,
            period,
            phase
        }
    );
    let slots = read("[upstream]\nkind = \"slots\"\nslots = 20\nservice = \"100ms\"\nqueue = 0");
    let service = Duration::from_millis(100);
    assert_eq!(
        slots.upstream.kind,
        Kind::Slots {
            slots: 20,
            service,
            queue: 0
        }
    );
    assert_eq!(slots.client_count(), 1, "one client by default");
}

#[test]
fn reads_policies_with_their_settings() {
    let client = |text: &str| {
        let text = with_bucket(&format!("[[client]]\n{text}"));
        read(&text).clients.remove(0)
    };
    let poll = client("policy = \"poll\"\nearly = \"1s\"\njob = \"60s\"");
    assert_eq!(poll.backlog, Backlog::Total(1));
    assert!(matches!(poll.driver, Driver::Poll { job: Some(_), .. }));
    let backoff = client("policy = \"backoff\"\npreset = \"crawl\"\nmax_attempts = 9");
    let Driver::Backoff(settings) = backoff.driver else {
        panic!("a backoff");
    };
    assert_eq!(
        (settings.max_attempts(), settings.base().as_millis()),
        (9, 200)
    );
    let queue = client("policy = \"failure-queue\"\nbase = \"2s\"");
    assert_eq!(queue.max_in_flight, 1);
    let protection = client("policy = \"protection\"\npauses = [\"1s\", \"2s\"]\nendpoints = 2");
    let Driver::Protection(settings) = protection.driver else {
        panic!("protection");
    };
    assert_eq!((settings.endpoints, settings.ladder.pauses().len()), (2, 2));
}

#[test]
fn reports_every_problem_with_its_line() {
    let found = problems(
        r#"duration = 300
sead = 1
[upstream]
kind = "buckets"
latency = "-5ms"
failure_rate = 1.5
headers = "yes"
[[client]]
strategy = "adaptiv"
count = -1
backlog = "30/m"
start = "20s..5s"
[[client]]
strategy = "fixed"
max_rat = 7
"#,
    );
    assert_eq!(
        found,
        [
            "f:1:12: `duration` is `300`, expected a string such as `\"300s\"`, not a whole number",
            "f:2:1: `sead`: unknown setting; did you mean `seed`?",
            "f:4:8: `upstream.kind` is `buckets`, expected `bucket`, `window` or `slots`; did you mean `bucket`?",
            "f:5:11: `upstream.latency` is `-5ms`, expected a number with a unit such as `500ms`, `30s` or `5m`",
            "f:6:16: `upstream.failure_rate` is `1.5`, expected a share from 0 to 1",
            "f:7:11: `upstream.headers` is `yes`, expected `true` or `false`, not a string",
            "f:9:12: `client[0].strategy` is `adaptiv`, expected `adaptive`, `aimd`, `fixed:RATE` (requests per second) or `none`; did you mean `adaptive`?",
            "f:10:9: `client[0].count` is `-1`, expected a whole number from 1 to 10000",
            "f:11:11: `client[0].backlog` is `30/m`, expected `endless`, requests per second such as `30/s`, or a total such as `1000`",
            "f:12:9: `client[0].start` is `20s..5s`, expected two durations of which the second is no shorter than the first",
            "f:14:12: `client[1].strategy` is `fixed`, expected `fixed:RATE` with a rate such as `fixed:50`, in requests per second",
            "f:15:1: `client[1].max_rat`: unknown setting; did you mean `max_rate`?",
        ]
    );
}

#[test]
fn says_that_a_string_was_given_where_a_number_is_expected() {
    assert_eq!(
        problems(
            "[upstream]\nkind = \"bucket\"\nrate = \"50\"\n[[client]]\nlimits = [\"x\", 5, \"1/1s\"]"
        ),
        [
            "f:3:8: `upstream.rate` is `50`, expected a number of requests per second above 0 and at most 1000000, not a string",
            "f:5:11: `client[0].limits[0]` is `x`, expected a count and a period such as `10/1s` or `5000/1d`",
            "f:5:16: `client[0].limits[1]` is `5`, expected a string such as `\"10/1s\"`, not a whole number",
        ]
    );
}

#[test]
fn reports_missing_settings_at_their_section() {
    assert_eq!(
        problems(""),
        ["f:1:1: `upstream` is missing, expected a table"]
    );
    let a_rate = "a number of requests per second above 0 and at most 1000000";
    assert_eq!(
        problems("\n[upstream]\nkind = \"bucket\"\nban = {}\n"),
        [
            format!("f:2:2: `upstream.rate` is missing, expected {a_rate}"),
            "f:4:1: `upstream.ban.excesses` is missing, expected a whole number from 1 to 1000000"
                .to_owned(),
            "f:4:1: `upstream.ban.within` is missing, expected a duration above zero".to_owned(),
            "f:4:1: `upstream.ban.for` is missing, expected a duration above zero".to_owned(),
        ]
    );
    assert_eq!(
        problems("[upstream]\nrate = 5"),
        ["f:1:2: `upstream.kind` is missing, expected `bucket`, `window` or `slots`"]
    );
}

#[test]
fn refuses_overlapping_outages_and_unordered_steps() {
    let text = with_bucket(
        "outage = [{ from = \"60s\", to = \"90s\" }, { from = \"89s\", to = \"95s\" }, { from = \"9s\", to = \"9s\" }]\n\
         steps = [{ at = \"60s\", rate = 5 }, { at = \"60s\", rate = 6 }, { at = \"70s\" }]\n",
    );
    assert_eq!(
        problems(&text),
        [
            "f:4:50: `upstream.outage[1].from` is `89s`, expected an outage apart from that of 1m to 90s",
            "f:4:91: `upstream.outage[2].to` is `9s`, expected later than `from` (9s)",
            "f:5:43: `upstream.steps[1].at` is `60s`, expected later than the step before it (1m)",
            "f:5:62: `upstream.steps[2].rate` is missing, expected what changes",
        ]
    );
    let apart = "outage = [{ from = \"60s\", to = \"90s\" }, { from = \"90s\", to = \"95s\" }]";
    assert_eq!(read(&with_bucket(apart)).upstream.outages.len(), 2);
}

#[test]
fn refuses_settings_of_another_kind_or_policy() {
    let found = problems(&with_bucket(
        "quota = 5\n[[client]]\npolicy = \"pol\"\nstrategy = \"none\"\n[[client]]\npolicy = \"poll\"\nmax_rate = 5\n",
    ));
    assert!(
        found[0].starts_with("f:4:1: `upstream.quota`: unknown setting"),
        "{found:?}"
    );
    assert_eq!(
        found[1..3],
        [
            "f:6:10: `client[0].policy` is `pol`, expected `poll`, `backoff`, `failure-queue` or `protection`; did you mean `poll`?",
            "f:7:12: `client[0].strategy` is `none`, expected no strategy next to a policy",
        ]
    );
    assert!(
        found[3].starts_with("f:10:1: `client[1].max_rate`: unknown setting"),
        "{found:?}"
    );
}

#[test]
fn reports_syntax_errors_with_their_location() {
    assert!(problems("[upstream")[0].starts_with("f:1:10: not TOML"));
    assert_eq!(
        problems("seed = 1\nseed = 2\n[upstream]\nkind = \"bucket\"\nrate = 1"),
        ["f:2:1: `seed` is given twice, expected once"]
    );
}
