//! Delays of a crawl, and which gates are forgotten.

use serde_json::{Value, json};

use crate::check;
use crate::gate::Gate;
use crate::item::{replay, settings};

#[test]
fn eviction() {
    check(
        include_str!("../../../../conformance/004_retry_backoff_and_eviction.json"),
        &[
            ("delay-ceiling-1", full_jitter),
            ("delay-ceiling-2", full_jitter),
            ("delay-ceiling-4", full_jitter),
            ("delay-ceiling-5", full_jitter),
            ("delay-ceiling-6", full_jitter),
            ("delay-ceiling-8", full_jitter),
            ("attempt-budget", attempts),
            ("attempt-budget-2", attempts),
            ("classification-500", retries_500),
            ("evict-must-keep-directed-wait", keeps_holds),
            ("evict-must-keep-open-circuit", keeps_open_breakers),
            ("denied-acquire-refreshes-activity", refusals_are_activity),
        ],
        &[(
            "jitter-zero-returns-full-delay",
            "superseded: full jitter may draw no delay at all",
        )],
    );
}

/// Spread evenly from nothing to the ceiling, and nowhere else.
fn full_jitter(case: &Value) {
    let given = &case["given"];
    let settings = settings(given);
    let mut args: Vec<_> = settings
        .iter()
        .flat_map(|setting| ["--set", setting])
        .collect();
    args.extend(["--preset", "crawl", "--set", "max_attempts=100"]);
    let event = json!({ "attempt": given["attempt"], "status": 503 });
    let answers = replay(&args, &vec![event; 1000]);
    let expect = &case["expect"];
    let most = expect["upper_bound_ms"].as_u64().unwrap();
    let mut quarters = [0; 4];
    for answer in answers {
        assert_eq!(answer["min_ms"], expect["lower_bound_ms"]);
        assert_eq!(answer["max_ms"], expect["upper_bound_ms"]);
        let delay = answer["delay_ms"].as_u64().unwrap();
        assert!(delay < most, "{delay}");
        quarters[usize::try_from(4 * delay / most).unwrap()] += 1;
    }
    // Four standard deviations of 250.
    assert!(
        quarters.iter().all(|count| (195..305).contains(count)),
        "{quarters:?}"
    );
}

fn attempts(case: &Value) {
    let settings = settings(&case["given"]);
    let args = ["--preset", "crawl", "--set", &settings[0]];
    let answers = replay(&args, &vec![json!({ "status": 500 }); 3]);
    let waits = answers
        .iter()
        .take_while(|answer| answer["retry"] == true)
        .count();
    let expect = &case["expect"];
    if let Some(sends) = expect.get("total_attempts") {
        assert_eq!(&json!(waits + 1), sends);
        assert_eq!(json!(waits), expect["waits"]);
    } else {
        assert_eq!(answers[1]["retry"], expect["retryable_flag"]);
        assert_eq!(answers[1]["reason"], "exhausted");
    }
}

fn retries_500(case: &Value) {
    let event = json!({ "attempt": 1, "status": case["given"]["status"] });
    let answers = replay(&["--preset", "crawl"], &[event]);
    assert_eq!(answers[0]["retry"], case["expect"]["retry"]);
}

fn keeps_holds(case: &Value) {
    let given = &case["given"];
    let mut gate = Gate::new(&[&format!("idle_after={}s", given["ttl_s"])]);
    let number = gate.admit(0.0);
    let seconds = given["retry_after_s"].to_string();
    let result = json!({ "status": 429, "headers": { "retry-after": seconds } });
    gate.settle_with(0.0, number, result);
    let (answer, _) = gate.acquire(given["idle_s"].as_f64().unwrap());
    assert_eq!(answer["decision"], "refuse");
    assert_eq!(answer["until"], given["retry_after_s"]);
    gate.end();
}

fn keeps_open_breakers(case: &Value) {
    let given = &case["given"];
    let open = given["open_s"].to_string();
    let mut gate = Gate::new(&[
        "consecutive_failures=1",
        &format!("open_first={open}s"),
        &format!("open_for={open}s"),
    ]);
    gate.attempt(0.0, 503);
    let (answer, _) = gate.acquire(given["idle_s"].as_f64().unwrap());
    assert_eq!(answer["reason"], "breaker_open");
    assert_eq!(answer["until"], given["open_s"]);
    gate.end();
}

/// A hold ends at 100 s; an ask was refused at 90 s. Idle since 0 s, the gate would be new at 130 s.
fn refusals_are_activity(_: &Value) {
    let mut gate = Gate::new(&["max_wait=1s"]);
    let number = gate.admit(0.0);
    let result = json!({ "status": 429, "headers": { "retry-after": "100" } });
    gate.settle_with(0.0, number, result);
    let (answer, _) = gate.acquire(90.0);
    assert_eq!(answer["decision"], "refuse");
    assert_eq!(
        gate.attempt(130.0, 404)["rate"],
        1,
        "still as it was learned"
    );
    assert_eq!(gate.attempt(250.0, 404)["rate"], 2, "new after 120 s");
    gate.end();
}
