//! Which gates are forgotten.

use serde_json::{Value, json};

use crate::check;
use crate::gate::Gate;

#[test]
fn eviction() {
    const BACKOFF: &str = "pending: the delays and attempts of an item are policy `backoff`";
    check(
        include_str!("cases/004_retry_backoff_and_eviction.json"),
        &[
            ("evict-must-keep-directed-wait", keeps_holds),
            ("evict-must-keep-open-circuit", keeps_open_breakers),
            ("denied-acquire-refreshes-activity", refusals_are_activity),
        ],
        &[
            ("delay-ceiling-1", BACKOFF),
            ("delay-ceiling-2", BACKOFF),
            ("delay-ceiling-4", BACKOFF),
            ("delay-ceiling-5", BACKOFF),
            ("delay-ceiling-6", BACKOFF),
            ("delay-ceiling-8", BACKOFF),
            ("attempt-budget", BACKOFF),
            ("attempt-budget-2", BACKOFF),
            (
                "jitter-zero-returns-full-delay",
                "superseded: full jitter may draw no delay at all",
            ),
            ("classification-500", BACKOFF),
        ],
    );
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
