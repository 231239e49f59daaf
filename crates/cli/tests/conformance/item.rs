//! One item over its attempts, through `tidegate replay --policy backoff`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use policy::backoff::{BackoffOptions, BackoffSettings};
use policy::hint::Hint;
use policy::item::{Item, ItemKind};
use policy::outcome::{Outcome, Verdict};
use policy::random::Random;
use policy::time::Timestamp;
use serde_json::{Value, json};

use crate::check;

#[test]
fn attempts_and_schedule() {
    check(
        include_str!("../../../../conformance/001_attempts_and_schedule.json"),
        &[
            ("should-retry-max-5", should_retry),
            ("success-on-3rd", history),
            ("permanent-first", history),
            ("401-refresh-ok", history),
            ("401-does-not-consume-attempt", refresh_uses_nothing_up),
            ("409-not-blind-retried", history),
            ("409-bounded-reconcile", crate::operation::merges),
            (
                "409-concurrent-same-idempotency-key-is-transient",
                concurrent_request,
            ),
            ("network-error-is-retried", history),
            ("state-survives-restart", survives_restart),
        ],
        &[],
    );
}

#[test]
fn bounds() {
    check(
        include_str!("../../../../conformance/001_backoff_bounds.json"),
        &[
            ("preset-standard", table),
            ("preset-aggressive", table),
            ("preset-conservative", table),
            ("preset-background", table),
            ("preset-user_initiated_cap_example", table),
            ("exact-jitter-0", exact),
            ("exact-jitter-half", exact),
            ("jitter-before-cap", exact),
            ("jitter-before-cap-high", exact),
            ("truncate-to-whole-ms", exact),
            ("same-seed-same-sequence", same_seed),
            ("estimate-total-standard", estimate),
            ("estimate-conservative-ignores-cap", estimate),
        ],
        &[],
    );
}

#[test]
fn error_mapping() {
    let file: Value = serde_json::from_str(include_str!(
        "../../../../conformance/001_error_mapping.json"
    ))
    .unwrap();
    for case in file["http"].as_array().unwrap() {
        let answer = &replay(&[], &[json!({ "status": case["status"] })])[0];
        let expected = match case["class"].as_str().unwrap() {
            "special" => json!([true, "unauthorized"]),
            "permanent" => json!([false, "rejected"]),
            // 501 too: we know no 5xx that is for ever.
            "transient" => json!([true, "overloaded"]),
            "ambiguous" => json!([false, "conflict"]),
            class => panic!("unknown class {class}"),
        };
        assert_eq!(
            json!([answer["retry"], answer["reason"]]),
            expected,
            "{case}"
        );
    }
    for case in file["network"].as_array().unwrap() {
        let failure = match case["kind"].as_str().unwrap() {
            "connect_timeout" => "timeout",
            "connection_refused" => "connect",
            // By design, every transport failure is retried like every other.
            "tls_failed" => "tls",
            // Not a failure of the transport: a body is judged by the code that reads it.
            "type_error_in_body" => continue,
            kind => panic!("unknown kind {kind}"),
        };
        let answer = &replay(&[], &[json!({ "failure": failure })])[0];
        assert_eq!(answer["reason"], "unreachable", "{case}");
        assert_eq!(answer["retry"], true, "{case}");
    }
}

pub(crate) fn should_retry(case: &Value) {
    let statuses: Vec<_> = (1..=6)
        .map(|attempt| json!({ "attempt": attempt, "status": 503 }))
        .collect();
    let max_attempts = format!("max_attempts={}", case["given"]["max_attempts"]);
    let answers = replay(&["--set", &max_attempts], &statuses);
    let expect = &case["expect"];
    for (attempt, answer) in (1..).zip(&answers) {
        assert_eq!(
            answer["retry"],
            expect["should_retry"][format!("{attempt}")],
            "{attempt}"
        );
    }
    let waits = answers.iter().filter(|answer| answer["retry"] == true);
    assert_eq!(json!(waits.count()), expect["waits"]);
}

/// Plays the outcomes until nothing more is sent, and counts.
fn history(case: &Value) {
    let outcomes = case["given"]["outcomes"].as_array().unwrap();
    let events: Vec<_> = outcomes.iter().map(event).collect();
    let answers = replay(&[], &events);
    let from = |source: &str| answers.iter().filter(|a| a["source"] == source).count();
    let ends: Vec<_> = answers.iter().filter(|a| a["retry"] == false).collect();
    assert_eq!(ends.len(), 1, "it ends once, at the last outcome");
    assert_eq!(answers.last(), Some(ends[0]));

    let expect = &case["expect"];
    let counted = [
        ("sends", answers.len()),
        ("waits", from("backoff")),
        ("backoff_waits", from("backoff")),
        ("refreshes", from("refresh")),
    ];
    for (name, count) in counted {
        if let Some(expected) = expect.get(name) {
            assert_eq!(&json!(count), expected, "{name} of {case}");
        }
    }
    let reason = match expect["final"].as_str().unwrap() {
        "done" => Value::Null,
        "conflict" => json!("conflict"),
        // The words are those of the terminal reasons.
        "failed_ops" => json!("rejected"),
        other => panic!("{other}"),
    };
    assert_eq!(ends[0]["reason"], reason, "{case}");
}

fn event(outcome: &Value) -> Value {
    match outcome.as_str() {
        Some("connection_refused") => json!({ "failure": "connect" }),
        Some(other) => panic!("{other}"),
        None => json!({ "status": outcome }),
    }
}

fn refresh_uses_nothing_up(case: &Value) {
    history(case);
    let outcomes = case["given"]["outcomes"].as_array().unwrap();
    let answers = replay(&[], &outcomes.iter().map(event).collect::<Vec<_>>());
    // The wait after the 500 is that of the first send that counts.
    assert_eq!(case["expect"]["attempts_after"], 1);
    assert_eq!(answers[1]["max_ms"], 1500);
}

/// By design an ordinary backoff; the case expects at least two seconds.
fn concurrent_request(case: &Value) {
    let code = &case["given"]["body_code"];
    let event = json!({
        "attempt": 1,
        "status": case["given"]["status"],
        "body": json!({ "code": code }).to_string(),
    });
    let answer = &replay(&[], &[event])[0];
    assert_eq!(answer["retry"], case["expect"]["retry"]);
    assert_eq!(answer["source"], "backoff");
}

fn survives_restart(case: &Value) {
    let given = &case["given"];
    let now = Timestamp::from_secs(1_000_000);
    let kind = ItemKind::of("POST");
    let mut item = Item::new(kind, now);
    item.set_attempts(u32::try_from(given["attempts"].as_u64().unwrap()).unwrap());
    let seconds = given["next_attempt_in_s"].as_u64().unwrap();
    let hint = Hint {
        wait: Some(Duration::from_secs(seconds)),
        ..Hint::default()
    };
    let outcome = Outcome::status(429, Duration::ZERO).with_hint(hint);
    let settings = BackoffSettings::default();
    let mut random = Random::from_seed(1);
    item.after(
        &settings,
        &outcome,
        Some(Verdict::Throttled),
        now,
        &mut random,
    );

    let later = Timestamp::from_secs(3);
    let restored = Item::restore(kind, &item.record(now), later);
    assert_eq!(json!(restored.attempts()), case["expect"]["attempts"]);
    assert_eq!(restored.next_at().since(later), item.next_at().since(now));
    assert!(restored.next_at().since(later).as_secs() >= seconds);
    // The idempotency key is part of the stored request, which is not the item's.
}

/// Delays, their bounds and their totals, for many draws.
fn table(case: &Value) {
    let settings = settings(&case["given"]);
    let rows = case["expect"]["delays"].as_array().unwrap();
    let args: Vec<_> = settings
        .iter()
        .flat_map(|setting| ["--set", setting])
        .collect();
    // One attempt more, so that the last row is a wait too.
    let more = ["--set", "max_attempts=100"];
    let args: Vec<_> = args.into_iter().chain(more).collect();
    let events: Vec<_> = (0..DRAWS)
        .flat_map(|_| rows)
        .map(|row| json!({ "attempt": row["attempt"], "status": 503 }))
        .collect();
    for (row, answer) in rows.iter().cycle().zip(replay(&args, &events)) {
        assert_eq!(answer["min_ms"], row["min_ms"], "{row}");
        assert_eq!(answer["max_ms"], row["max_ms"], "{row}");
        let delay = answer["delay_ms"].as_u64();
        assert!(delay >= row["min_ms"].as_u64() && delay <= row["max_ms"].as_u64());
    }
    let args: Vec<_> = args.into_iter().chain(["--jitter", "none"]).collect();
    for (row, answer) in rows.iter().zip(replay(&args, &events[..rows.len()])) {
        assert_eq!(answer["delay_ms"], row["nominal_ms"], "{row}");
    }
    let backoff = built(&settings);
    let (least, most) = backoff.total_bounds();
    let expect = &case["expect"];
    assert_eq!(json!(backoff.max_attempts() - 1), expect["waits_performed"]);
    assert_eq!(json!(least.as_millis()), expect["total_wait_ms_min"]);
    assert_eq!(json!(most.as_millis()), expect["total_wait_ms_max"]);
}

/// How often each delay is drawn.
const DRAWS: u64 = 500;

/// Replay cannot choose a random number; the policy can.
fn exact(case: &Value) {
    let given = &case["given"];
    let attempt = u32::try_from(given["attempt"].as_u64().unwrap()).unwrap();
    let delay = built(&settings(given)).delay_at(attempt, given["uniform01"].as_f64().unwrap());
    assert_eq!(
        json!(delay.as_millis()),
        case["expect"]["delay_ms"],
        "{case}"
    );
    assert_eq!(delay.subsec_nanos() % 1_000_000, 0, "whole milliseconds");
}

fn same_seed(case: &Value) {
    let seed = case["given"]["rng_seed"].to_string();
    let calls = case["given"]["calls"].as_u64().unwrap();
    let events: Vec<_> = (0..calls)
        .map(|_| json!({ "attempt": 1, "status": 500 }))
        .collect();
    let run = |seed: &str| replay(&["--seed", seed], &events);
    assert_eq!(run(&seed), run(&seed));
    assert_ne!(run(&seed), run("556"));
}

fn estimate(case: &Value) {
    let estimate = built(&settings(&case["given"])).estimate_total();
    assert_eq!(json!(estimate.as_millis()), case["expect"]["estimate_ms"]);
}

/// What a case gives, as settings are written.
pub(crate) fn settings(given: &Value) -> Vec<String> {
    let names = [
        ("base_ms", "base", "ms"),
        ("cap_ms", "max", "ms"),
        ("max_ms", "max", "ms"),
        ("max_attempts", "max_attempts", ""),
        ("retry_max_attempts", "max_attempts", ""),
    ];
    let given = names
        .iter()
        .filter_map(|(theirs, ours, unit)| Some(format!("{ours}={}{unit}", given.get(theirs)?)));
    given.collect()
}

fn built(settings: &[String]) -> BackoffSettings {
    let mut options = BackoffOptions::default();
    for setting in settings {
        let (name, value) = setting.split_once('=').unwrap();
        options.set(name, value).unwrap();
    }
    options.build().unwrap()
}

/// Plays `events` as one item.
pub(crate) fn replay(args: &[&str], events: &[Value]) -> Vec<Value> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "--policy", "backoff"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    let mut stdin = process.stdin.take().unwrap();
    // Apart, for the answers fill the pipe before the events are all written.
    let writer = thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = process.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    let answers = std::str::from_utf8(&output.stdout).unwrap().lines();
    let answers: Vec<Value> = answers
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), events.len());
    answers
}
