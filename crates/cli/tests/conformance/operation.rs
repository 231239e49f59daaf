//! Operations: which moves there are. What is stored, locked or shown waits for the parts that do.

use policy::item::TerminalReason;
use policy::operation::{Attempts, Body, MAX_MERGES, Operation, OperationEvent, OperationState};
use serde_json::{Value, json};

use crate::check;
use crate::gate::Gate;

#[test]
fn failed_operations() {
    const STORAGE: &str = "pending: what is stored belongs to the operations queue";
    const PURGED: &str = "by design: only finished operations are purged, after `retain`";
    const WORKERS: &str = "pending: leases of several workers belong to the operations queue";
    check(
        include_str!("../../../../conformance/001_failed_ops_and_queue.json"),
        &[
            ("manual-retry-increments", manual_retry),
            ("changed-payload-needs-new-key", changed_payload),
        ],
        &[
            ("manual-reenqueue-does-not-increment", STORAGE),
            ("archive-30d", PURGED),
            ("archive-custom-7d", PURGED),
            ("archive-boundary", PURGED),
            ("archive-age-0", PURGED),
            ("purge-archives-then-deletes", PURGED),
            ("lock-second-runner-refused", WORKERS),
            ("lock-release-by-non-holder-noop", WORKERS),
            ("index-rebuilt-when-corrupt", STORAGE),
            ("idempotency-ttl-plus-1ms", STORAGE),
        ],
    );
}

#[test]
fn reconciliation() {
    const RULES: &str = "pending: merge rules, off by default, belong to the operations queue";
    check(
        include_str!("../../../../conformance/001_reconcile_409.json"),
        &[(
            "resolved-create-or-delete-is-done-not-resent",
            done_not_resent,
        )],
        &[
            ("update-deleted", RULES),
            ("create-same", RULES),
            ("create-gone", RULES),
            ("delete-gone", RULES),
            ("delete-exists", RULES),
        ],
    );
}

/// From the system, not from the text: informative. What agrees with the gate's breaker is run.
#[test]
fn breaker_of_the_sync_engine() {
    check(
        include_str!("../../../../conformance/001_circuit_breaker.json"),
        &[
            ("threshold-3", trips_at_threshold),
            ("success-clears-count", follows_letters),
            ("success-does-not-clear-trip", follows_letters),
        ],
        &[
            (
                "window-excluded",
                "by design: failures in a row count however far apart; the window has its own share",
            ),
            (
                "cooldown-exact",
                "by design: at the end of the open time it is half open",
            ),
            (
                "no-half-open",
                "by design: half open admits at most `half_open_probes`",
            ),
        ],
    );
}

/// Runs of attempts and conflicts: rules merge at most so often, then it waits for a person.
pub(crate) fn merges(case: &Value) {
    let mut operation = Operation::new();
    let mut rounds = 0;
    for _ in case["given"]["outcomes"].as_array().unwrap() {
        for event in [OperationEvent::Claim, OperationEvent::Conflict] {
            operation = operation.apply(event).unwrap().operation;
        }
        if let Ok(merged) = operation.apply(OperationEvent::Merge) {
            operation = merged.operation;
            rounds += 1;
        }
    }
    let expect = &case["expect"];
    assert_eq!(json!(MAX_MERGES), expect["reconcile_rounds_max"]);
    assert_eq!(json!(rounds), expect["reconcile_rounds_max"]);
    assert_eq!(operation.state().as_str(), expect["final"]);
}

/// How often a person retried is counted where it is stored.
fn manual_retry(case: &Value) {
    let failed = Operation::restore(OperationState::Failed(TerminalReason::Exhausted), 0);
    let moved = failed.apply(OperationEvent::Retry).unwrap();
    assert_eq!(case["expect"]["new_pending_attempts"], 0);
    assert_eq!(
        (moved.attempts, moved.body),
        (Attempts::Restarted, Body::Same)
    );
}

fn changed_payload(case: &Value) {
    let merged = Operation::restore(OperationState::Conflict, 0)
        .apply(OperationEvent::Merge)
        .unwrap();
    assert_eq!(
        case["expect"],
        json!({ "new_idempotency_key": true, "attempts": 0 })
    );
    assert_eq!(
        (merged.attempts, merged.body),
        (Attempts::Restarted, Body::New)
    );
}

fn done_not_resent(case: &Value) {
    let moved = Operation::restore(OperationState::Conflict, 0)
        .apply(OperationEvent::Reconcile)
        .unwrap();
    assert_eq!(case["expect"]["final"], "done");
    assert_eq!(moved.operation.state(), OperationState::Completed);
    assert!(
        moved.operation.apply(OperationEvent::Claim).is_err(),
        "nothing more is sent"
    );
}

fn trips_at_threshold(case: &Value) {
    let given = &case["given"];
    let cooldown = format!("{}s", given["cooldown_s"]);
    let mut gate = Gate::new(&[
        &format!("consecutive_failures={}", given["threshold"]),
        &format!("window={}s", given["window_s"]),
        &format!("open_first={cooldown}"),
        &format!("open_for={cooldown}"),
    ]);
    let times = given["failures_at_s"].as_array().unwrap();
    for (time, tripped) in times
        .iter()
        .zip(case["expect"]["tripped_after_each"].as_array().unwrap())
    {
        let answer = gate.attempt(time.as_f64().unwrap(), 500);
        assert_eq!(&json!(answer["breaker"] == "open"), tripped, "{case}");
    }
    let (answer, _) = gate.acquire(0.0);
    assert_eq!(
        (&answer["decision"], &answer["until"]),
        (&json!("refuse"), &given["cooldown_s"])
    );
    gate.end();
}

/// One attempt after the other, for only what was sent after the last decrease counts; an open
/// breaker admits nothing, so what comes then was under way since the beginning.
fn follows_letters(case: &Value) {
    let given = &case["given"];
    let mut gate = Gate::new(&[&format!("consecutive_failures={}", given["threshold"])]);
    let mut under_way = Some(gate.admit(0.0));
    let mut answer = Value::Null;
    for (step, event) in (1_u32..).zip(given["events"].as_array().unwrap()) {
        let at = f64::from(step) * 10.0;
        let status = if event == "F" { 500 } else { 200 };
        answer = if answer["breaker"] == "open" {
            gate.settle(at, under_way.take().unwrap(), status)
        } else {
            gate.attempt(at, status)
        };
    }
    let expect = &case["expect"];
    assert_eq!(json!(answer["breaker"] == "open"), expect["tripped"]);
    if let Some(count) = expect.get("count") {
        assert_eq!(&answer["consecutive_failures"], count);
    }
    gate.end();
}
