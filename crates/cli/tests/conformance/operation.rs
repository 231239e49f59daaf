//! Operations: their transitions, their claims, and what merge rules decide.

use std::sync::Arc;
use std::time::Duration;

use policy::item::TerminalReason;
use policy::merge::{Conflict, MergeDecision, MergeRule, Theirs};
use policy::operation::{Attempts, Body, MAX_MERGES, Operation, OperationEvent, OperationState};
use policy::time::WallTime;
use serde_json::{Value, json};
use store::Store;
use store::operations::{
    ClaimId, ClaimResult, Claimed, Counters, Inserted, Lane, Lease, NewOperation, OperationQueue,
    Settlement, StoredRequest, wait,
};

use crate::check;
use crate::gate::Gate;

#[test]
fn failed_operations() {
    const ONE_RECORD: &str =
        "by design: a retry is a transition of the same operation, which has all attempts again";
    const PURGED: &str = "by design: only finished operations are purged, after `retain`";
    const INDEX: &str = "by design: indexes change in the transactions of the rows themselves";
    check(
        include_str!("../../../../conformance/001_failed_ops_and_queue.json"),
        &[
            ("manual-retry-increments", manual_retry),
            ("lock-second-runner-refused", second_claim),
            ("lock-release-by-non-holder-noop", release_by_another),
            ("idempotency-ttl-plus-1ms", forgotten_key),
            ("changed-payload-needs-new-key", changed_payload),
        ],
        &[
            ("manual-reenqueue-does-not-increment", ONE_RECORD),
            ("archive-30d", PURGED),
            ("archive-custom-7d", PURGED),
            ("archive-boundary", PURGED),
            ("archive-age-0", PURGED),
            ("purge-archives-then-deletes", PURGED),
            ("index-rebuilt-when-corrupt", INDEX),
        ],
    );
}

/// Merge rules are off by default; `ours` is the one that sends again.
#[test]
fn reconciliation() {
    check(
        include_str!("../../../../conformance/001_reconcile_409.json"),
        &[
            ("update-deleted", reconciled),
            ("create-same", reconciled),
            ("create-gone", reconciled),
            ("delete-gone", reconciled),
            ("delete-exists", reconciled),
            (
                "resolved-create-or-delete-is-done-not-resent",
                done_not_resent,
            ),
        ],
        &[],
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

const LANE: &str = "api.example.com";

fn at(seconds: u64) -> WallTime {
    WallTime::from_unix_millis(0) + Duration::from_secs(seconds)
}

/// A queue with one operation.
fn queue() -> Arc<dyn OperationQueue> {
    let queue = Store::memory().operations();
    wait(queue.insert(new_operation())).unwrap();
    queue
}

fn new_operation() -> NewOperation {
    NewOperation {
        id: "op_1".to_owned(),
        kind: "default".to_owned(),
        destination: LANE.to_owned(),
        request: StoredRequest::default(),
        summary: String::new(),
        idempotency_key: "key".to_owned(),
        fingerprint: Vec::new(),
        client: String::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: None,
        accepted_at: at(0),
        expires_at: at(1_000_000),
        retain: Duration::from_secs(24 * 3600),
        is_reported: false,
    }
}

fn claim(queue: &dyn OperationQueue, now: u64, lease: u64) -> Option<Claimed> {
    let lane = Lane {
        destination: LANE.to_owned(),
        kind: "default".to_owned(),
    };
    let lease = Lease {
        now: at(now),
        until: at(now + lease),
    };
    wait(queue.claim(&lane, lease, 1)).unwrap().claimed.pop()
}

fn settle(queue: &dyn OperationQueue, claim: ClaimId, result: ClaimResult) -> bool {
    let settlement = Settlement {
        now: at(1),
        result,
        counters: Counters::default(),
        attempts: Vec::new(),
    };
    wait(queue.settle(claim, settlement)).unwrap().is_some()
}

/// A lock is a claim of one operation.
fn second_claim(case: &Value) {
    let queue = queue();
    let heartbeat_age = case["given"]["heartbeat_age_s"].as_u64().unwrap();
    assert!(claim(&*queue, 0, 300).is_some());
    let acquired = claim(&*queue, heartbeat_age, 300).is_some();
    assert_eq!(json!(acquired), case["expect"]["acquired"]);
}

fn release_by_another(case: &Value) {
    let queue = queue();
    let held = claim(&*queue, 0, 300).unwrap().claim;
    let other = ClaimId {
        fence: held.fence + 1,
        ..held
    };
    assert!(!settle(&*queue, other, ClaimResult::Released));
    let operation = wait(queue.get("op_1")).unwrap().unwrap();
    let is_held = operation.state == OperationState::Running;
    assert_eq!(json!(is_held), case["expect"]["still_held"]);
}

/// A key is known as long as its operation is stored: `retain` after its end.
fn forgotten_key(case: &Value) {
    let queue = queue();
    let claimed = claim(&*queue, 1, 300).unwrap().claim;
    assert!(settle(&*queue, claimed, ClaimResult::Completed(None)));
    let end = at(1) + new_operation().retain;
    let is_known = |now| {
        wait(queue.sweep(now, 10)).unwrap();
        matches!(
            wait(queue.insert(new_operation())).unwrap(),
            Inserted::Same(_)
        )
    };
    assert!(is_known(at(0) + new_operation().retain));
    assert_eq!(
        json!(!is_known(end + Duration::from_millis(1))),
        case["expect"]["expired"]
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

fn reconciled(case: &Value) {
    let (given, expect) = (&case["given"], &case["expect"]);
    let decided = MergeRule::Ours.decide(&conflict(given));
    let expected = match (expect["resolved"] == true, expect["action"].as_str()) {
        (true, None) => MergeDecision::Complete,
        (true, Some("retry")) => MergeDecision::Resend,
        _ => MergeDecision::Person,
    };
    assert_eq!(decided, expected, "{case}");
}

fn conflict(given: &Value) -> Conflict<'static> {
    Conflict {
        method: match given["op"].as_str().unwrap() {
            "CREATE" => "POST",
            "UPDATE" => "PUT",
            _ => "DELETE",
        },
        base: None,
        ours: b"{\"id\":1}",
        theirs: match given["server"].as_u64() {
            Some(404) => Theirs::Gone,
            Some(_) => Theirs::Document(b"{\"id\":2}"),
            None => Theirs::Document(b"{\"id\":1}"),
        },
        has_version: true,
    }
}

/// Nothing is sent, under any rule.
fn done_not_resent(case: &Value) {
    let decided = MergeRule::None.decide(&conflict(&case["given"]));
    assert_eq!(decided, MergeDecision::Complete);
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
