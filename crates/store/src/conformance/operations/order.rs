//! Order keys.

use super::*;

shared_suite! {
    order_keys_are_sent_one_at_a_time,
    a_conflict_blocks_its_order_key,
    a_retried_operation_takes_the_front_of_its_order_key,
    a_retried_operation_waits_for_the_one_that_is_running,
    a_call_returns_the_lane_that_it_unblocks,
}

fn order_keys_are_sent_one_at_a_time(subject: &mut Subject) {
    for id in ["a", "b", "c"] {
        insert(subject, ordered(id));
    }
    insert(subject, operation("free"));
    assert!(!get(subject, "a").is_blocked);
    assert!(get(subject, "b").is_blocked);
    let claims = claim(subject, 1, 10);
    assert_eq!(ids(&claims), ["a", "free"]);
    assert_eq!(claims.next_at, None);
    settle(
        subject,
        claims.claimed[0].claim,
        2,
        ClaimResult::Retry(at(60)),
    )
    .unwrap();
    assert!(claim(subject, 59, 10).claimed.is_empty());
    subject.restart();
    let first = claim_one(subject, 60);
    assert_eq!(first.operation.id, "a");
    settle(subject, first.claim, 61, ClaimResult::Completed(None)).unwrap();
    let second = claim_one(subject, 61);
    assert_eq!(second.operation.id, "b");
    decide(subject, "b", 62, OperationEvent::Cancel).unwrap();
    assert_eq!(claim_one(subject, 62).operation.id, "c");
    assert!(!get(subject, "b").is_blocked);
}

fn a_conflict_blocks_its_order_key(subject: &Subject) {
    insert(subject, ordered("a"));
    insert(subject, ordered("b"));
    let first = claim_one(subject, 1);
    settle(
        subject,
        first.claim,
        1,
        ClaimResult::Conflict(conflict("x"), None),
    )
    .unwrap();
    assert!(claim(subject, 2, 1).claimed.is_empty());
    decide(
        subject,
        "a",
        2,
        OperationEvent::Resolve(Resolution::Discard),
    )
    .unwrap();
    let second = claim_one(subject, 2);
    let failed = ClaimResult::Failed(TerminalReason::Rejected);
    settle(subject, second.claim, 3, failed).unwrap();
    insert(subject, ordered("c"));
    assert_eq!(claim_one(subject, 3).operation.id, "c");
}

fn a_retried_operation_takes_the_front_of_its_order_key(subject: &Subject) {
    for id in ["a", "b", "c"] {
        insert(subject, ordered(id));
    }
    decide(subject, "a", 1, OperationEvent::Cancel).unwrap();
    assert!(!get(subject, "b").is_blocked);
    let retried = decide(subject, "a", 2, OperationEvent::Retry).unwrap();
    assert!(!retried.is_blocked);
    assert!(get(subject, "b").is_blocked);
    assert_eq!(ids(&claim(subject, 2, 10)), ["a"]);
}

fn a_retried_operation_waits_for_the_one_that_is_running(subject: &Subject) {
    for id in ["a", "b", "c"] {
        insert(subject, ordered(id));
    }
    decide(subject, "a", 1, OperationEvent::Cancel).unwrap();
    let running = claim_one(subject, 1);
    assert_eq!(running.operation.id, "b");
    assert!(
        decide(subject, "a", 2, OperationEvent::Retry)
            .unwrap()
            .is_blocked
    );
    assert!(claim(subject, 2, 10).claimed.is_empty());
    settle(subject, running.claim, 3, ClaimResult::Retry(at(4))).unwrap();
    // Nothing runs any more: the oldest comes first.
    assert_eq!(ids(&claim(subject, 10, 10)), ["a"]);
    assert!(get(subject, "b").is_blocked);
}

fn a_call_returns_the_lane_that_it_unblocks(subject: &Subject) {
    for (number, id) in (1..).zip(["a", "b", "c", "d", "e"]) {
        let expires_at = if id == "c" { at(5) } else { at(DAY) };
        let destination = format!("{number}.example.com");
        insert(
            subject,
            NewOperation {
                destination,
                expires_at,
                ..ordered(id)
            },
        );
    }
    let queue = subject.queue();
    let claim = |number: i64, now| {
        let lane = lane(&format!("{number}.example.com"));
        let claims = wait(queue.claim(&lane, lease(now), 1)).unwrap();
        claims.claimed[0].claim
    };
    let first = claim(1, 1);
    let retried = settle(subject, first, 1, ClaimResult::Retry(at(2))).unwrap();
    assert_eq!(retried.unblocked, None);
    let completed = settle(subject, claim(1, 2), 2, ClaimResult::Completed(None)).unwrap();
    assert_eq!(completed.unblocked, Some((lane("2.example.com"), at(0))));
    assert_eq!(get(subject, "a").unblocked, None);

    let cancelled = decide(subject, "b", 3, OperationEvent::Cancel).unwrap();
    assert_eq!(cancelled.unblocked, Some((lane("3.example.com"), at(0))));
    let expired = sweep(subject, 5).expired;
    assert_eq!(expired[0].unblocked, Some((lane("4.example.com"), at(0))));

    // An older one that is retried waits for the one that is running.
    let running = claim(4, 6);
    decide(subject, "b", 6, OperationEvent::Retry).unwrap();
    let released = settle(subject, running, 7, ClaimResult::Released).unwrap();
    assert_eq!(released.unblocked, Some((lane("2.example.com"), at(6))));
    assert!(released.is_blocked);
}
