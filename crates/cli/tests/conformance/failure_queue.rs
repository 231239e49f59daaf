//! Pace by recent failures: what a text means, what is counted, how long the gap is.

use std::process::Command;
use std::time::Duration;

use policy::failure_queue::{FailureQueue, FailureQueueOptions, FailureQueueSettings};
use policy::random::Random;
use policy::time::Timestamp;
use serde_json::{Value, json};

use crate::replay::replay;
use crate::{check, check_list, check_lists};

#[test]
fn texts() {
    let json = include_str!("../../../../conformance/002_classification.json");
    check_lists(json, &["cases", "attempts"]);
    check(
        json,
        &[
            ("private_video", means),
            ("terms_violation", means),
            ("unavailable", means),
            ("age_restricted", means),
            ("invalid_format", means),
            ("bot_flagged", means),
            ("retry_limit_exceeded", exhausted),
        ],
        &[(
            "banned",
            "by design: the list has what is wanted; a rules file may make a text terminal",
        )],
    );
    let file: Value = serde_json::from_str(json).unwrap();
    for case in file["attempts"].as_array().unwrap() {
        let mut options = FailureQueueOptions::default();
        let written = case["max_retries"].to_string();
        options.set("attempts", &written).unwrap();
        let settings = options.build().unwrap();
        assert_eq!(json!(settings.attempts()), case["total_attempts"]);
    }
}

#[test]
fn counting() {
    let json = include_str!("../../../../conformance/002_failure_queue.json");
    check_lists(json, &["cases"]);
    check(
        json,
        &[
            ("defaults", defaults),
            ("3F-1S-2F-1S", steps),
            ("10F-max5-keeps-newest", steps),
            ("age-boundary-exact-is-dropped", steps),
            ("age-boundary-1ms-younger-kept", steps),
            ("success-on-empty", steps),
            ("max-size-1", steps),
            ("max-age-0-means-never-expires", steps),
            ("size-read-after-idle", read_after_idle),
            ("clock-goes-backwards", backwards),
        ],
        &[(
            "no-capacity-neither",
            "by design: `tidegate run` has no exits to choose from; what is not tried is no event",
        )],
    );
}

#[test]
fn waits() {
    let json = include_str!("../../../../conformance/002_wait_time.json");
    check_lists(json, &["cases"]);
    check(
        json,
        &[
            ("size-1", gap),
            ("size-2", gap),
            ("size-3", gap),
            ("size-20", gap),
            ("size-100", gap),
            ("exp-size3", jittered),
            ("multiplier-2", jittered),
            ("multiplier-1", jittered),
            ("first-download-no-wait", first),
            ("elapsed-longer-than-wait", elapsed),
            ("gap-after-success-with-backlog-of-failures", after_success),
            ("terminal-error-sets-base-gap", after_terminal),
            ("other-source-does-not-touch-gap", other_site),
        ],
        &[(
            "window-never-shortened",
            "superseded by design: failures are counted at the moment of asking",
        )],
    );
}

#[test]
fn holdoff_of_a_later_version() {
    const RUN: &str =
        "by design: the gap is per upstream; an item waits at the end of the list, not for a time";
    const WORKERS: &str = "by design: one run has its journal to itself, there are no workers";
    let json = include_str!("../../../../conformance/002_retry_holdoff_later.json");
    check_list(
        json,
        "cases",
        &[],
        &[
            ("retry-1", RUN),
            ("retry-3", RUN),
            ("retry-5", RUN),
            ("retry-10", RUN),
            ("exempt-source", RUN),
            ("held-counts-in-queue-size", WORKERS),
            ("promote-only-due", WORKERS),
            ("two-pods-promote-once", WORKERS),
            ("payload-expired", WORKERS),
            ("promotion-batch", WORKERS),
        ],
    );
}

fn means(case: &Value) {
    let phrases = case["contains"].as_array().unwrap();
    let phrases: Vec<&str> = phrases
        .iter()
        .map(|phrase| phrase.as_str().unwrap())
        .collect();
    let text = format!("ERROR: [site] x: {}. More words", phrases.join(" are "));
    let class = match case["code"].as_str().unwrap() {
        // Retryable as well, with a class of its own.
        "bot_flagged" => "bot_check",
        _ => case["class"].as_str().unwrap(),
    };
    for text in [text.to_uppercase(), text.to_lowercase(), text] {
        let answers = replay("failure-queue", &[], &[json!({ "at": 0, "text": text })]);
        assert_eq!(answers[0]["class"], class, "{text}");
        let failures = u64::from(class != "terminal");
        assert_eq!(answers[0]["failures"], failures, "{text}");
    }
}

/// The events of `tidegate run --json` over these items.
fn run_events(options: &str, items: &[&str], script: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "--json"])
        .args(options.split_whitespace())
        .args(items)
        .args(["--", "sh", "-c", script, "{}"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    events.collect()
}

/// Used-up attempts are a fault, not an input that was declined.
fn exhausted(case: &Value) {
    assert_eq!(case["class"], "terminal");
    assert_eq!(case["rejected"], false);
    let events = run_events("--base 0s --attempts 3", &["x"], "exit 1");
    let ended = events.iter().filter(|event| event["event"] == "ended");
    let results: Vec<&Value> = ended.map(|event| &event["result"]).collect();
    assert_eq!(results, ["retry", "retry", "failed"]);
    let failed = events.iter().find(|event| event["event"] == "failed_item");
    assert_eq!(failed.unwrap()["reason"], "exhausted");
}

/// A success at one site leaves the gap of another as it is.
fn other_site(case: &Value) {
    assert_eq!(case["expect"]["wait_unchanged"], true);
    let items = ["http://a/1", "http://b/1", "http://a/2"];
    let options = "--per-host --attempts 1 --base 100ms";
    let events = run_events(options, &items, "test $0 != http://a/1");
    let after = events
        .iter()
        .position(|event| event["item"] == "http://b/1");
    let waiting = events[after.unwrap()..]
        .iter()
        .find(|event| event["event"] == "waiting" && event["site"] == "a");
    let waiting = waiting.unwrap();
    assert_eq!(
        (&waiting["failures"], &waiting["gap_ms"]),
        (&json!(1), &json!(200))
    );
}

fn settings(given: &Value) -> Vec<String> {
    let mut settings = Vec::new();
    if let Some(size) = given.get("max_size") {
        settings.push(format!("max_size={size}"));
    }
    if let Some(age) = given.get("max_age_s") {
        settings.push(format!("max_age={age}s"));
    }
    settings
}

fn defaults(case: &Value) {
    let expect = &case["expect"];
    let settings = FailureQueueSettings::default();
    assert_eq!(json!(settings.max_size()), expect["max_size"]);
    let age = settings.max_age().map(|age| age.as_secs());
    assert_eq!(json!(age), expect["max_age_s"]);
    let answers = replay("failure-queue", &[], &[json!({ "at": 0, "ask": true })]);
    assert_eq!(answers[0]["failures"], expect["size"]);
}

fn result(event: &Value) -> &str {
    match event.as_str().unwrap() {
        "failure" => "retryable",
        "success" => "success",
        event => panic!("unknown event {event}"),
    }
}

fn steps(case: &Value) {
    let steps = case["steps"].as_array().unwrap();
    let events: Vec<Value> = steps
        .iter()
        .map(|step| json!({ "at": step["t_s"], "result": result(&step["event"]) }))
        .collect();
    let answers = replay("failure-queue", &settings(&case["given"]), &events);
    for (step, answer) in steps.iter().zip(&answers) {
        assert_eq!(answer["failures"], step["size_after"], "{step}");
    }
    oldest(case);
}

/// What a replay does not show: which failure is the oldest.
fn oldest(case: &Value) {
    let mut options = FailureQueueOptions::default();
    for setting in settings(&case["given"]) {
        let (name, value) = setting.split_once('=').unwrap();
        options.set(name, value).unwrap();
    }
    let settings = options.build().unwrap();
    let mut queue = FailureQueue::new();
    for step in case["steps"].as_array().unwrap() {
        let now = Timestamp::ZERO.after_seconds(step["t_s"].as_f64().unwrap());
        match result(&step["event"]) {
            "success" => queue.succeeded(&settings, now),
            _ => queue.failed(&settings, now),
        }
        let oldest = step["oldest_t_s"].as_f64();
        let oldest = oldest.map(|seconds| Timestamp::ZERO.after_seconds(seconds));
        assert_eq!(queue.oldest(&settings, now), oldest, "{step}");
    }
}

fn read_after_idle(case: &Value) {
    let given = &case["given"];
    let failures = given["failures_at_s"].as_array().unwrap().iter();
    let mut events: Vec<Value> = failures
        .map(|at| json!({ "at": at, "result": "retryable" }))
        .collect();
    events.push(json!({ "at": given["read_at_s"], "ask": true }));
    let answers = replay("failure-queue", &settings(given), &events);
    assert_eq!(answers.last().unwrap()["failures"], case["expect"]["size"]);
}

/// Time never goes back in a replay, so the policy itself is asked.
fn backwards(case: &Value) {
    let settings = FailureQueueSettings::default();
    let mut queue = FailureQueue::new();
    let mut now = Timestamp::ZERO;
    for event in case["given"]["events"].as_array().unwrap() {
        now = Timestamp::from_secs(event["t_s"].as_u64().unwrap());
        queue.failed(&settings, now);
    }
    assert_eq!(
        json!(queue.failures(&settings, now)),
        case["expect"]["size"]
    );
}

fn gap(case: &Value) {
    let given = &case["given"];
    let failures = usize::try_from(given["queue_size"].as_u64().unwrap()).unwrap();
    let base = format!("base={}s", given["base_s"]);
    let events = vec![json!({ "at": 0, "result": "retryable" }); failures];
    let answers = replay("failure-queue", std::slice::from_ref(&base), &events);
    let wait = answers.last().unwrap()["wait_ms"].as_u64().unwrap();
    let expected = case["expect"]["linear_total_wait_s"].as_u64().unwrap();
    assert_eq!(wait, expected * 1000, "{case}");
    if let Some(double) = case["later_original_exponential_s"].as_u64() {
        let settings = [base, "growth=double".into()];
        let answers = replay("failure-queue", &settings, &events);
        let wait = answers.last().unwrap()["wait_ms"].as_u64().unwrap();
        assert_eq!(wait, double * 1000, "{case}");
    }
}

/// The originals pin the draw to the whole variance; ours stays just below it.
fn jittered(case: &Value) {
    let given = &case["given"];
    let (failures, growth) = match given["size_after_failure"].as_u64() {
        Some(failures) => (failures, "double"),
        None => (given["multiplier"].as_u64().unwrap() - 1, "linear"),
    };
    let mut options = FailureQueueOptions::default();
    options
        .set("base", &format!("{}s", given["base_s"]))
        .unwrap();
    options
        .set("variance", &format!("{}s", given["jitter_s"]))
        .unwrap();
    options.set("growth", growth).unwrap();
    let settings = options.build().unwrap();
    let mut queue = FailureQueue::new();
    for _ in 0..failures {
        queue.failed(&settings, Timestamp::ZERO);
    }
    let until = case["expect"]["wait_until"].as_u64().unwrap() - given["now"].as_u64().unwrap();
    let most = Duration::from_secs(until);
    let least = most - Duration::from_secs(given["jitter_s"].as_u64().unwrap());
    let mut random = Random::from_seed(1);
    let waits = (0..1000).map(|_| queue.wait(&settings, Timestamp::ZERO, &mut random));
    let waits: Vec<Duration> = waits.collect();
    assert!(
        waits.iter().all(|wait| (least..most).contains(wait)),
        "{case}"
    );
    assert!(
        waits
            .iter()
            .any(|wait| most - *wait < Duration::from_millis(50))
    );
}

/// A replay gives the whole gap, but the first attempt of all starts at once.
fn first(case: &Value) {
    let (settings, now) = (FailureQueueSettings::default(), Timestamp::from_secs(9));
    let queue = FailureQueue::new();
    let start = queue.start(&settings, None, now, &mut Random::from_seed(1));
    assert_eq!(json!(start.since(now).as_secs()), case["expect"]["wait_s"]);
    let answers = replay("failure-queue", &[], &[json!({ "at": 9, "ask": true })]);
    assert_eq!(answers[0]["wait_ms"], 30_000);
}

fn elapsed(case: &Value) {
    let given = &case["given"];
    let settings = FailureQueueSettings::default();
    let gap = settings.base().as_secs();
    let ended = Timestamp::from_secs(given["wait_until_s"].as_u64().unwrap() - gap);
    let now = Timestamp::from_secs(given["now_s"].as_u64().unwrap());
    let queue = FailureQueue::new();
    let start = queue.start(&settings, Some(ended), now, &mut Random::from_seed(1));
    assert_eq!(json!(start.since(now).as_secs()), case["expect"]["wait_s"]);
}

fn after_success(case: &Value) {
    let left = usize::try_from(case["given"]["size_after_success"].as_u64().unwrap()).unwrap();
    let mut events = vec![json!({ "at": 0, "result": "retryable" }); left + 1];
    events.push(json!({ "at": 0, "result": "success" }));
    let answers = replay("failure-queue", &[], &events);
    let wait = answers.last().unwrap()["wait_ms"].as_u64().unwrap();
    assert_eq!(json!(wait / 1000), case["expect"]["total_wait_s"]);
}

fn after_terminal(case: &Value) {
    let answers = replay(
        "failure-queue",
        &[],
        &[json!({ "at": 0, "result": "terminal" })],
    );
    let wait = answers[0]["wait_ms"].as_u64().unwrap();
    assert_eq!(json!(wait / 1000), case["expect"]["total_wait_s"]);
}
