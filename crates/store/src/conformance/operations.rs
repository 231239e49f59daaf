//! The behaviours of a queue of operations, for every kind of store.

use std::sync::Arc;
use std::time::Duration;

use policy::item::TerminalReason;
use policy::operation::{
    IllegalTransition, MAX_MERGES, OperationEvent, OperationState, Resolution,
};
use policy::time::WallTime;

use super::{Subject, suite};
use crate::Store;
use crate::operations::{
    AttemptRecord, ClaimId, ClaimResult, Claimed, Claims, Counters, Decision, DecisionError,
    Inserted, Lane, Lease, MAX_ATTEMPT_RECORDS, NewOperation, OperationFilter, OperationQueue,
    RequestChange, RuleDecision, Settlement, StoredConflict, StoredOperation, StoredRequest,
    StoredResponse, Swept, wait,
};

suite! {
    an_inserted_operation_is_available,
    the_same_request_is_stored_once,
    clients_may_use_the_same_key,
    a_second_operation_with_an_id_is_refused,
    claims_by_priority_then_by_time,
    claims_no_other_lane,
    a_claim_says_when_the_next_is_due,
    a_claim_fails_what_has_expired,
    completed_operations_have_their_response,
    a_retry_waits_for_its_time,
    a_released_operation_is_due_as_before,
    failed_operations_stay,
    a_late_worker_changes_nothing_but_attempts,
    fences_rise_with_every_claim,
    a_heartbeat_extends_leases,
    a_lost_lease_keeps_attempts,
    waiting_operations_expire,
    retention_deletes_everything,
    recover_takes_back_leases_of_a_process_that_ended,
    recover_leaves_leases_of_this_process,
    recover_moves_times_back_with_the_clock,
    a_retry_by_a_person_starts_again,
    a_retried_operation_has_its_time_again_each_time,
    a_conflict_waits_for_a_decision,
    merges_are_counted_until_a_person_decides,
    a_replaced_request_keeps_the_clients_key,
    decisions_that_are_illegal_change_nothing,
    order_keys_are_sent_one_at_a_time,
    a_conflict_blocks_its_order_key,
    a_retried_operation_takes_the_front_of_its_order_key,
    a_retried_operation_waits_for_the_one_that_is_running,
    lanes_are_listed_with_their_first_time,
    ended_operations_are_reported_once,
    a_report_that_is_refused_leaves_the_operation_unreported,
    the_last_attempts_are_stored,
    pages_are_filtered,
    counts_follow_states,
    strange_texts_and_bytes_come_back,
    numbers_are_not_used_again,
}

fn an_inserted_operation_is_available(subject: &mut Subject) {
    let queue = subject.queue();
    let new = operation("a");
    let inserted = wait(queue.insert(new.clone())).unwrap();
    let Inserted::New(stored) = inserted else {
        panic!("{inserted:?}");
    };
    let expected = StoredOperation {
        number: stored.number,
        id: "a".to_owned(),
        kind: "default".to_owned(),
        destination: "api.example.com".to_owned(),
        summary: "POST api.example.com/a".to_owned(),
        idempotency_key: "key-a".to_owned(),
        client: String::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: None,
        state: OperationState::Available,
        merges: 0,
        counters: Counters::default(),
        accepted_at: at(0),
        next_at: Some(at(0)),
        expires_at: at(DAY),
        ended_at: None,
        is_blocked: false,
        is_reported: false,
    };
    assert_eq!(stored, expected);
    drop(queue);
    subject.restart();
    assert_eq!(get(subject, "a"), expected);
    let queue = subject.queue();
    assert_eq!(
        wait(queue.request(stored.number)).unwrap(),
        Some(new.request)
    );
    assert_eq!(wait(queue.attempts(stored.number)).unwrap(), []);
    assert_eq!(wait(queue.conflict(stored.number)).unwrap(), None);
    assert_eq!(wait(queue.response(stored.number)).unwrap(), None);
    assert_eq!(wait(queue.get("b")).unwrap(), None);
    assert_eq!(wait(queue.request(99)).unwrap(), None);
}

fn the_same_request_is_stored_once(subject: &mut Subject) {
    insert(subject, operation("a"));
    let stored = get(subject, "a");
    subject.restart();
    let again = NewOperation {
        idempotency_key: "key-a".to_owned(),
        ..operation("b")
    };
    let other = NewOperation {
        fingerprint: b"other".to_vec(),
        ..again.clone()
    };
    let queue = subject.queue();
    assert_eq!(wait(queue.insert(again)).unwrap(), Inserted::Same(stored));
    assert_eq!(wait(queue.insert(other)).unwrap(), Inserted::OtherRequest);
    assert_eq!(wait(queue.get("b")).unwrap(), None);
    assert_eq!(queue.counts().available, 1);
}

fn clients_may_use_the_same_key(subject: &Subject) {
    for (id, client) in [("a", ""), ("b", "app1"), ("c", "app2")] {
        insert(
            subject,
            NewOperation {
                client: client.to_owned(),
                idempotency_key: "1".to_owned(),
                ..operation(id)
            },
        );
    }
    assert_eq!(get(subject, "b").client, "app1");
}

fn a_second_operation_with_an_id_is_refused(subject: &Subject) {
    insert(subject, operation("a"));
    let other = NewOperation {
        idempotency_key: "other".to_owned(),
        ..operation("a")
    };
    wait(subject.queue().insert(other)).unwrap_err();
    assert_eq!(subject.queue().counts().available, 1);
    assert!(!subject.store().is_degraded());
}

fn claims_by_priority_then_by_time(subject: &Subject) {
    for (id, priority, accepted) in [
        ("a", 0, 5),
        ("b", 0, 3),
        ("c", 9, 8),
        ("d", -3, 1),
        ("e", 9, 20),
        ("f", 0, 3),
        ("g", 9, 99),
    ] {
        let accepted_at = at(accepted);
        insert(
            subject,
            NewOperation {
                priority,
                accepted_at,
                ..operation(id)
            },
        );
    }
    let claims = claim(subject, 20, 4);
    assert_eq!(ids(&claims), ["c", "e", "b", "f"]);
    // The next one has been due for a while: it can be claimed now.
    assert_eq!(claims.next_at, Some(at(20)));
    for claimed in &claims.claimed {
        assert_eq!(claimed.operation.state, OperationState::Running);
        assert_eq!(claimed.operation.next_at, None);
        assert_eq!(claimed.request, request(&claimed.operation.id));
    }
    let claims = claim(subject, 20, 4);
    assert_eq!(ids(&claims), ["a", "d"]);
    assert_eq!(claims.next_at, Some(at(99)));
    assert!(claim(subject, 98, 4).claimed.is_empty());
    assert_eq!(ids(&claim(subject, 99, 4)), ["g"]);
}

fn claims_no_other_lane(subject: &Subject) {
    let elsewhere = |id, destination: &str| NewOperation {
        destination: destination.to_owned(),
        ..operation(id)
    };
    insert(subject, elsewhere("a", "api.example.com:8080"));
    insert(subject, elsewhere("b", "/llm"));
    insert(
        subject,
        NewOperation {
            kind: "mail".to_owned(),
            ..operation("c")
        },
    );
    let claims = claim(subject, 1, 10);
    assert!(claims.claimed.is_empty());
    assert_eq!(claims.next_at, None);
    let claims = wait(subject.queue().claim(&lane("/llm"), lease(1), 10)).unwrap();
    assert_eq!(ids(&claims), ["b"]);
}

fn a_claim_says_when_the_next_is_due(subject: &Subject) {
    for (id, accepted) in [("a", 10), ("b", 20), ("c", 30)] {
        insert(
            subject,
            NewOperation {
                accepted_at: at(accepted),
                ..operation(id)
            },
        );
    }
    assert_eq!(claim(subject, 9, 10).next_at, Some(at(10)));
    assert_eq!(claim(subject, 20, 1).next_at, Some(at(20)));
    assert_eq!(claim(subject, 20, 0).next_at, Some(at(20)));
    assert_eq!(claim(subject, 20, 1).next_at, Some(at(30)));
    assert_eq!(claim(subject, 30, 1).next_at, None);
}

fn a_claim_fails_what_has_expired(subject: &Subject) {
    insert(
        subject,
        NewOperation {
            expires_at: at(10),
            ..operation("a")
        },
    );
    insert(subject, operation("b"));
    let claims = claim(subject, 10, 10);
    assert_eq!(ids(&claims), ["b"]);
    assert_eq!(claims.expired, [get(subject, "a")]);
    let expired = OperationState::Failed(TerminalReason::Expired);
    assert_eq!(claims.expired[0].state, expired);
    assert_eq!(subject.queue().counts().failed, 1);
}

fn completed_operations_have_their_response(subject: &mut Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 1);
    let response = StoredResponse {
        status: 201,
        headers: vec![("location".to_owned(), b"/1".to_vec())],
        body: b"made".to_vec(),
    };
    let settlement = Settlement {
        counters: Counters {
            sent: 1,
            attempts: 1,
            ..Counters::default()
        },
        attempts: vec![attempt(2)],
        ..settlement(3, ClaimResult::Completed(Some(response.clone())))
    };
    let settled = wait(subject.queue().settle(claimed.claim, settlement))
        .unwrap()
        .unwrap();
    assert_eq!(settled.state, OperationState::Completed);
    assert_eq!((settled.ended_at, settled.next_at), (Some(at(3)), None));
    assert_eq!(settled.counters.sent, 1);
    subject.restart();
    assert_eq!(get(subject, "a"), settled);
    let queue = subject.queue();
    assert_eq!(
        wait(queue.response(settled.number)).unwrap(),
        Some(response)
    );
    assert_eq!(wait(queue.attempts(settled.number)).unwrap(), [attempt(2)]);
}

fn a_retry_waits_for_its_time(subject: &mut Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 1);
    let settled = settle(subject, claimed.claim, 2, ClaimResult::Retry(at(60))).unwrap();
    assert_eq!(settled.state, OperationState::Retryable);
    assert_eq!((settled.next_at, settled.ended_at), (Some(at(60)), None));
    subject.restart();
    let claims = claim(subject, 59, 1);
    assert!(claims.claimed.is_empty());
    assert_eq!(claims.next_at, Some(at(60)));
    assert_eq!(ids(&claim(subject, 60, 1)), ["a"]);
}

fn a_released_operation_is_due_as_before(subject: &Subject) {
    insert(subject, operation("a"));
    let first = claim_one(subject, 1);
    settle(subject, first.claim, 2, ClaimResult::Retry(at(60))).unwrap();
    let second = claim_one(subject, 100);
    let released = settle(subject, second.claim, 101, ClaimResult::Released).unwrap();
    assert_eq!(released.state, OperationState::Available);
    assert_eq!(released.next_at, Some(at(60)));
}

fn failed_operations_stay(subject: &Subject) {
    for reason in TerminalReason::ALL {
        insert(subject, operation(reason.as_str()));
        let claimed = claim_one(subject, 1);
        let settled = settle(subject, claimed.claim, 2, ClaimResult::Failed(reason)).unwrap();
        assert_eq!(settled.state.reason(), Some(reason));
        assert_eq!(settled.ended_at, Some(at(2)));
    }
    let swept = sweep(subject, 1000 * DAY);
    assert_eq!(
        swept,
        Swept {
            deleted: 1,
            ..Swept::default()
        },
        "only the cancelled one is deleted"
    );
    let counts = subject.queue().counts();
    assert_eq!(
        (counts.failed, counts.conflict, counts.cancelled),
        (8, 1, 0)
    );
}

fn a_late_worker_changes_nothing_but_attempts(subject: &Subject) {
    insert(subject, operation("a"));
    let late = claim_one(subject, 1);
    assert_eq!(sweep(subject, 31).reclaimed.len(), 1);
    let present = claim_one(subject, 40);
    let completed = Settlement {
        attempts: vec![attempt(1)],
        counters: Counters {
            sent: 9,
            ..Counters::default()
        },
        ..settlement(41, ClaimResult::Completed(None))
    };
    let settled = wait(subject.queue().settle(late.claim, completed.clone())).unwrap();
    assert_eq!(settled, None);
    assert_eq!(get(subject, "a"), present.operation);
    decide(subject, "a", 42, OperationEvent::Cancel).unwrap();
    let settled = wait(subject.queue().settle(present.claim, completed.clone())).unwrap();
    assert_eq!(settled, None);
    assert_eq!(get(subject, "a").state, OperationState::Cancelled);
    let attempts = wait(subject.queue().attempts(late.claim.number)).unwrap();
    assert_eq!(attempts, [attempt(1), attempt(1)]);
    let never = ClaimId {
        number: 99,
        fence: 1,
    };
    assert_eq!(
        wait(subject.queue().settle(never, completed)).unwrap(),
        None
    );
    assert_eq!(wait(subject.queue().attempts(99)).unwrap(), []);
}

fn fences_rise_with_every_claim(subject: &mut Subject) {
    insert(subject, operation("a"));
    let mut last = 0;
    for round in 0..5 {
        let claimed = claim_one(subject, round * 10);
        assert!(claimed.claim.fence > last);
        last = claimed.claim.fence;
        settle(subject, claimed.claim, round * 10, ClaimResult::Released).unwrap();
        subject.restart();
    }
}

fn a_heartbeat_extends_leases(subject: &Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 0);
    wait(subject.queue().heartbeat(lease(20))).unwrap();
    assert_eq!(sweep(subject, 49).reclaimed, []);
    let taken_back = sweep(subject, 50).reclaimed;
    assert_eq!(taken_back.len(), 1);
    wait(subject.queue().heartbeat(lease(60))).unwrap();
    assert_eq!(
        settle(subject, claimed.claim, 61, ClaimResult::Released),
        None
    );
}

fn a_lost_lease_keeps_attempts(subject: &Subject) {
    insert(subject, operation("a"));
    let first = claim_one(subject, 0);
    let counters = Counters {
        sent: 2,
        attempts: 1,
        directed_waits: 1,
        refreshed: true,
    };
    let retry = Settlement {
        counters,
        ..settlement(1, ClaimResult::Retry(at(2)))
    };
    wait(subject.queue().settle(first.claim, retry))
        .unwrap()
        .unwrap();
    claim_one(subject, 2);
    assert_eq!(sweep(subject, 31).reclaimed, []);
    let reclaimed = sweep(subject, 32).reclaimed;
    assert_eq!(reclaimed[0].state, OperationState::Retryable);
    assert_eq!(reclaimed[0].counters, counters);
    assert_eq!(reclaimed[0].next_at, Some(at(33)));
    assert_eq!(reclaimed, [get(subject, "a")]);
}

fn waiting_operations_expire(subject: &Subject) {
    for (id, expires) in [("a", 30), ("b", 10), ("c", 20), ("d", 40)] {
        insert(
            subject,
            NewOperation {
                expires_at: at(expires),
                ..operation(id)
            },
        );
    }
    assert_eq!(sweep(subject, 9), Swept::default());
    let running = wait(subject.queue().claim(&lane("api.example.com"), lease(0), 1)).unwrap();
    assert_eq!(ids(&running), ["a"]);
    let swept = wait(subject.queue().sweep(at(29), 1)).unwrap();
    assert_eq!(swept.expired, [get(subject, "b")]);
    let swept = wait(subject.queue().sweep(at(29), 10)).unwrap();
    assert_eq!(swept.expired, [get(subject, "c")]);
    let expired = &swept.expired[0];
    assert_eq!(
        expired.state,
        OperationState::Failed(TerminalReason::Expired)
    );
    assert_eq!(expired.ended_at, Some(at(29)));
    assert_eq!(
        get(subject, "a").state,
        OperationState::Running,
        "a running one does not expire"
    );
}

fn retention_deletes_everything(subject: &Subject) {
    insert(subject, operation("a"));
    insert(
        subject,
        NewOperation {
            retain: Duration::from_secs(5),
            ..operation("b")
        },
    );
    insert(subject, operation("c"));
    let claims = claim(subject, 1, 2);
    for claimed in &claims.claimed {
        let response = StoredResponse {
            status: 200,
            headers: Vec::new(),
            body: Vec::new(),
        };
        let settlement = Settlement {
            attempts: vec![attempt(1)],
            ..settlement(10, ClaimResult::Completed(Some(response)))
        };
        wait(subject.queue().settle(claimed.claim, settlement)).unwrap();
    }
    assert_eq!(sweep(subject, 14).deleted, 0);
    assert_eq!(sweep(subject, 15).deleted, 1);
    let queue = subject.queue();
    let number = claims.claimed[1].claim.number;
    assert_eq!(wait(queue.get("b")).unwrap(), None);
    assert_eq!(wait(queue.request(number)).unwrap(), None);
    assert_eq!(wait(queue.response(number)).unwrap(), None);
    assert_eq!(wait(queue.attempts(number)).unwrap(), []);
    assert_eq!(queue.counts().completed, 1);
    decide(subject, "c", 20, OperationEvent::Cancel).unwrap();
    assert_eq!(sweep(subject, 20 + 7 * DAY - 1).deleted, 1);
    assert_eq!(sweep(subject, 20 + 7 * DAY).deleted, 1);
    assert_eq!(queue.counts(), Default::default());
}

fn recover_takes_back_leases_of_a_process_that_ended(subject: &mut Subject) {
    for id in ["a", "b", "c"] {
        insert(subject, operation(id));
    }
    claim(subject, 1, 2);
    subject.restart();
    let recovered = wait(subject.queue().recover(at(2))).unwrap();
    assert_eq!(recovered, [get(subject, "a"), get(subject, "b")]);
    for operation in recovered {
        assert_eq!(operation.state, OperationState::Retryable);
        assert_eq!(operation.next_at, Some(at(3)));
    }
    assert_eq!(subject.queue().counts().running, 0);
    assert_eq!(wait(subject.queue().recover(at(2))).unwrap(), []);
}

fn recover_leaves_leases_of_this_process(subject: &Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 1);
    assert_eq!(wait(subject.queue().recover(at(2))).unwrap(), []);
    settle(subject, claimed.claim, 3, ClaimResult::Completed(None)).unwrap();
}

fn recover_moves_times_back_with_the_clock(subject: &mut Subject) {
    let late = 10 * DAY;
    let new = |id| NewOperation {
        accepted_at: at(late),
        expires_at: at(late + DAY),
        ..operation(id)
    };
    for id in ["waiting", "running", "failed"] {
        insert(subject, new(id));
    }
    let first = claim_one(subject, late);
    settle(
        subject,
        first.claim,
        late,
        ClaimResult::Retry(at(late + 60)),
    )
    .unwrap();
    claim_one(subject, late);
    let third = claim_one(subject, late);
    let failed = ClaimResult::Failed(TerminalReason::Rejected);
    settle(subject, third.claim, late, failed).unwrap();
    let failed = get(subject, "failed");
    insert(subject, operation("fine"));
    subject.restart();
    // A minute is an ordinary correction.
    wait(subject.queue().recover(at(late - 60))).unwrap();
    assert_eq!(get(subject, "waiting").next_at, Some(at(late + 60)));

    wait(subject.queue().recover(at(0))).unwrap();
    let waiting = get(subject, "waiting");
    assert_eq!(
        (waiting.next_at, waiting.expires_at),
        (Some(at(60)), at(DAY))
    );
    let running = get(subject, "running");
    assert_eq!(running.state, OperationState::Retryable);
    assert_eq!(get(subject, "failed"), failed);
    assert_eq!(get(subject, "fine").next_at, Some(at(0)));
    wait(subject.queue().recover(at(0))).unwrap();
    assert_eq!(get(subject, "waiting"), waiting);
}

fn a_retry_by_a_person_starts_again(subject: &mut Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 1);
    let counters = Counters {
        sent: 5,
        attempts: 5,
        directed_waits: 7,
        refreshed: true,
    };
    let failed = ClaimResult::Failed(TerminalReason::Exhausted);
    let failed = Settlement {
        counters,
        ..settlement(2, failed)
    };
    wait(subject.queue().settle(claimed.claim, failed))
        .unwrap()
        .unwrap();
    let retried = decide(subject, "a", 2 * DAY, OperationEvent::Retry).unwrap();
    assert_eq!(retried.state, OperationState::Available);
    assert_eq!(retried.counters, Counters::default());
    assert_eq!(retried.next_at, Some(at(2 * DAY)));
    assert_eq!(retried.expires_at, at(3 * DAY));
    assert_eq!(retried.ended_at, None);
    assert_eq!(retried.idempotency_key, "key-a");
    subject.restart();
    assert_eq!(get(subject, "a"), retried);
    assert_eq!(ids(&claim(subject, 2 * DAY, 1)), ["a"]);
}

fn a_retried_operation_has_its_time_again_each_time(subject: &Subject) {
    insert(subject, operation("a"));
    for day in [5, 50, 500] {
        decide(subject, "a", day * DAY, OperationEvent::Cancel).unwrap();
        let retried = decide(subject, "a", day * DAY, OperationEvent::Retry).unwrap();
        assert_eq!(retried.expires_at, at((day + 1) * DAY));
        assert_eq!(sweep(subject, day * DAY), Swept::default());
    }
}

fn a_conflict_waits_for_a_decision(subject: &mut Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 1);
    let conflict = conflict("theirs");
    let settled = settle(
        subject,
        claimed.claim,
        2,
        ClaimResult::Conflict(conflict.clone(), None),
    )
    .unwrap();
    assert_eq!(settled.state, OperationState::Conflict);
    assert_eq!(settled.ended_at, Some(at(2)));
    subject.restart();
    assert_eq!(sweep(subject, 100 * DAY), Swept::default());
    assert_eq!(
        wait(subject.queue().conflict(settled.number)).unwrap(),
        Some(conflict)
    );
    let change = RequestChange {
        request: StoredRequest {
            headers: vec![("if-match".to_owned(), b"2".to_vec())],
            ..request("a")
        },
        idempotency_key: "key-a".to_owned(),
    };
    let decision = Decision {
        id: "a".to_owned(),
        now: at(100 * DAY),
        event: OperationEvent::Resolve(Resolution::Resend),
        request: Some(change.clone()),
    };
    let resolved = wait(subject.queue().decide(decision)).unwrap().unwrap();
    assert_eq!(resolved.state, OperationState::Available);
    assert_eq!(resolved.expires_at, at(101 * DAY));
    assert_eq!(
        wait(subject.queue().conflict(settled.number)).unwrap(),
        None
    );
    let claimed = claim_one(subject, 100 * DAY);
    assert_eq!(claimed.request, change.request);
}

fn merges_are_counted_until_a_person_decides(subject: &mut Subject) {
    insert(subject, operation("a"));
    let run_into_conflict = |subject: &Subject, rule| {
        let claimed = claim_one(subject, 1);
        let result = ClaimResult::Conflict(conflict("x"), Some(rule));
        settle(subject, claimed.claim, 1, result).unwrap()
    };
    let send = |round| {
        RuleDecision::Send(RequestChange {
            request: request(&format!("merged-{round}")),
            idempotency_key: format!("key-{round}"),
        })
    };
    for round in 0..MAX_MERGES {
        let merged = run_into_conflict(subject, send(round));
        assert_eq!(merged.state, OperationState::Available);
        assert_eq!(merged.merges, round + 1);
        assert_eq!(merged.idempotency_key, format!("key-{round}"));
        assert_eq!(wait(subject.queue().conflict(1)).unwrap(), None);
        subject.restart();
    }
    let left = run_into_conflict(subject, send(MAX_MERGES));
    assert_eq!(left.state, OperationState::Conflict);
    let last = MAX_MERGES - 1;
    assert_eq!(left.idempotency_key, format!("key-{last}"));
    assert!(wait(subject.queue().conflict(1)).unwrap().is_some());
    let resend = OperationEvent::Resolve(Resolution::Resend);
    assert_eq!(decide(subject, "a", 1, resend).unwrap().merges, 0);
    let claimed = claim_one(subject, 1);
    assert_eq!(claimed.request, request(&format!("merged-{last}")));
    let result = ClaimResult::Conflict(conflict("x"), Some(RuleDecision::Complete));
    let completed = settle(subject, claimed.claim, 1, result).unwrap();
    assert_eq!(completed.state, OperationState::Completed);
}

fn a_replaced_request_keeps_the_clients_key(subject: &mut Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 1);
    settle(
        subject,
        claimed.claim,
        2,
        ClaimResult::Conflict(conflict("x"), None),
    )
    .unwrap();
    let decision = Decision {
        id: "a".to_owned(),
        now: at(3),
        event: OperationEvent::Resolve(Resolution::Replace),
        request: Some(RequestChange {
            request: request("replaced"),
            idempotency_key: "key-a-2".to_owned(),
        }),
    };
    let replaced = wait(subject.queue().decide(decision)).unwrap().unwrap();
    assert_eq!(replaced.idempotency_key, "key-a-2");
    subject.restart();
    assert_eq!(get(subject, "a"), replaced);
    let again = NewOperation {
        id: "b".to_owned(),
        ..operation("a")
    };
    assert_eq!(
        wait(subject.queue().insert(again)).unwrap(),
        Inserted::Same(replaced)
    );
    assert_eq!(claim_one(subject, 3).request, request("replaced"));
}

fn decisions_that_are_illegal_change_nothing(subject: &Subject) {
    assert_eq!(
        decide(subject, "a", 1, OperationEvent::Retry),
        Err(DecisionError::Unknown)
    );
    insert(subject, operation("a"));
    let before = get(subject, "a");
    let change = RequestChange {
        request: request("other"),
        idempotency_key: "other".to_owned(),
    };
    for event in [
        OperationEvent::Retry,
        OperationEvent::Merge,
        OperationEvent::Claim,
        OperationEvent::Expire,
        OperationEvent::Complete,
        OperationEvent::Resolve(Resolution::Discard),
    ] {
        let state = OperationState::Available;
        let decision = Decision {
            id: "a".to_owned(),
            now: at(1),
            event,
            request: Some(change.clone()),
        };
        let illegal = DecisionError::Illegal(IllegalTransition { state, event });
        assert_eq!(
            wait(subject.queue().decide(decision)).unwrap(),
            Err(illegal)
        );
    }
    assert_eq!(get(subject, "a"), before);
    assert_eq!(
        wait(subject.queue().request(before.number)).unwrap(),
        Some(request("a"))
    );
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

fn lanes_are_listed_with_their_first_time(subject: &Subject) {
    let list = |subject: &Subject, after: Option<&Lane>, limit| {
        wait(subject.queue().lanes(after, limit)).unwrap()
    };
    assert_eq!(list(subject, None, 10), []);
    for (id, destination, kind, accepted, priority) in [
        ("a", "b.example.com", "mail", 5, 0),
        ("b", "b.example.com", "mail", 3, 0),
        ("c", "b.example.com", "mail", 4, 7),
        ("d", "a.example.com", "mail", 9, 0),
        ("e", "/llm", "sync", 1, 0),
        ("f", "blocked", "sync", 1, 0),
        ("g", "ended", "sync", 1, 0),
        ("h", "a.example.com", "sync", 8, 0),
    ] {
        insert(
            subject,
            NewOperation {
                destination: destination.to_owned(),
                kind: kind.to_owned(),
                accepted_at: at(accepted),
                priority,
                order_key: (["e", "f"].contains(&id)).then(|| "one".to_owned()),
                ..operation(id)
            },
        );
    }
    decide(subject, "g", 1, OperationEvent::Cancel).unwrap();
    let lane = |destination: &str, kind: &str| Lane {
        destination: destination.to_owned(),
        kind: kind.to_owned(),
    };
    let all = [
        (lane("/llm", "sync"), at(1)),
        (lane("a.example.com", "mail"), at(9)),
        (lane("a.example.com", "sync"), at(8)),
        (lane("b.example.com", "mail"), at(3)),
    ];
    assert_eq!(list(subject, None, 10), all);
    assert_eq!(list(subject, None, 2), all[..2]);
    assert_eq!(list(subject, Some(&all[1].0), 1), all[2..3]);
    assert_eq!(list(subject, Some(&all[2].0), 9), all[3..]);
    assert_eq!(
        list(subject, Some(&lane("a.example.com", "n")), 9),
        all[2..]
    );
    assert_eq!(list(subject, Some(&all[3].0), 9), []);
}

fn ended_operations_are_reported_once(subject: &mut Subject) {
    let reported = |id| NewOperation {
        is_reported: true,
        ..operation(id)
    };
    for id in ["a", "b", "c"] {
        insert(subject, reported(id));
    }
    insert(subject, operation("quiet"));
    let list = |subject: &Subject| -> Vec<String> {
        let operations = wait(subject.queue().unreported(10)).unwrap();
        operations
            .into_iter()
            .map(|operation| operation.id)
            .collect()
    };
    assert!(list(subject).is_empty());
    for (id, now) in [("c", 1), ("a", 2), ("b", 3), ("quiet", 3)] {
        decide(subject, id, now, OperationEvent::Cancel).unwrap();
    }
    subject.restart();
    assert_eq!(list(subject), ["c", "a", "b"]);
    assert_eq!(
        wait(subject.queue().unreported(1)).unwrap(),
        [get(subject, "c")]
    );
    decide(subject, "a", 4, OperationEvent::Retry).unwrap();
    assert_eq!(list(subject), ["c", "b"]);
    let number = get(subject, "c").number;
    for report in ["report-1", "report-2"] {
        wait(subject.queue().report(number, Some(operation(report)))).unwrap();
    }
    assert_eq!(list(subject), ["b"]);
    assert_eq!(get(subject, "report-1").state, OperationState::Available);
    assert_eq!(wait(subject.queue().get("report-2")).unwrap(), None);
    let number = get(subject, "b").number;
    wait(subject.queue().report(number, None)).unwrap();
    wait(subject.queue().report(99, None)).unwrap();
    assert!(list(subject).is_empty());
    decide(subject, "a", 5, OperationEvent::Cancel).unwrap();
    assert_eq!(list(subject), ["a"]);
}

fn a_report_that_is_refused_leaves_the_operation_unreported(subject: &Subject) {
    insert(
        subject,
        NewOperation {
            is_reported: true,
            ..operation("a")
        },
    );
    insert(subject, operation("b"));
    let cancelled = decide(subject, "a", 1, OperationEvent::Cancel).unwrap();
    let report = NewOperation {
        idempotency_key: "new".to_owned(),
        ..operation("b")
    };
    wait(subject.queue().report(cancelled.number, Some(report))).unwrap_err();
    assert_eq!(wait(subject.queue().unreported(9)).unwrap(), [cancelled]);
}

fn the_last_attempts_are_stored(subject: &mut Subject) {
    insert(subject, operation("a"));
    let most = i64::try_from(MAX_ATTEMPT_RECORDS).unwrap();
    for round in 0..3 {
        let claimed = claim_one(subject, round);
        let settlement = Settlement {
            attempts: (0..50).map(|number| attempt(round * 50 + number)).collect(),
            ..settlement(round, ClaimResult::Released)
        };
        wait(subject.queue().settle(claimed.claim, settlement)).unwrap();
    }
    subject.restart();
    let expected: Vec<AttemptRecord> = (150 - most..150).map(attempt).collect();
    assert_eq!(wait(subject.queue().attempts(1)).unwrap(), expected);
}

fn pages_are_filtered(subject: &Subject) {
    for number in 0..20 {
        let id = number.to_string();
        let kind = ["sync", "mail", "default"][number % 3].to_owned();
        let destination = ["a", "b"][number % 2].to_owned();
        insert(
            subject,
            NewOperation {
                kind,
                destination,
                ..operation(&id)
            },
        );
        if number % 5 == 0 {
            decide(subject, &id, 1, OperationEvent::Cancel).unwrap();
        }
    }
    let claims = wait(subject.queue().claim(&lane("a"), lease(1), 2)).unwrap();
    let failed = ClaimResult::Failed(TerminalReason::Rejected);
    settle(subject, claims.claimed[0].claim, 2, failed).unwrap();
    let page = |subject: &Subject, filter: OperationFilter, before, limit| -> Vec<String> {
        let operations = wait(subject.queue().page(filter, before, limit)).unwrap();
        operations
            .into_iter()
            .map(|operation| operation.id)
            .collect()
    };
    let any = OperationFilter::default;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(page(subject, any(), None, 3), ["19", "18", "17"]);
    assert_eq!(page(subject, any(), Some(3), 10), ["1", "0"]);
    let cancelled = OperationFilter {
        state: text("cancelled"),
        ..any()
    };
    assert_eq!(page(subject, cancelled.clone(), None, 3), ["15", "10", "5"]);
    assert_eq!(page(subject, cancelled.clone(), Some(11), 9), ["5", "0"]);
    let mail = OperationFilter {
        kind: text("mail"),
        ..any()
    };
    assert_eq!(page(subject, mail.clone(), None, 3), ["19", "16", "13"]);
    let both = OperationFilter {
        state: text("cancelled"),
        ..mail
    };
    assert_eq!(page(subject, both, None, 9), ["10"]);
    let destination = OperationFilter {
        destination: text("b"),
        ..cancelled
    };
    assert_eq!(page(subject, destination, None, 9), ["15", "5"]);
    let rejected = OperationFilter {
        reason: Some(TerminalReason::Rejected),
        ..any()
    };
    assert_eq!(page(subject, rejected.clone(), None, 9), ["2"]);
    let none = OperationFilter {
        state: text("cancelled"),
        ..rejected
    };
    assert!(page(subject, none, None, 9).is_empty());
    let unknown = OperationFilter {
        state: text("lost"),
        ..any()
    };
    assert!(page(subject, unknown, None, 9).is_empty());
    assert!(page(subject, any(), None, 0).is_empty());
}

fn counts_follow_states(subject: &mut Subject) {
    for id in ["a", "b", "c", "d", "e", "f", "g"] {
        insert(subject, operation(id));
    }
    let claims = claim(subject, 1, 5);
    let results = [
        ClaimResult::Completed(None),
        ClaimResult::Retry(at(99)),
        ClaimResult::Failed(TerminalReason::Exhausted),
        ClaimResult::Conflict(conflict("x"), None),
    ];
    for (claimed, result) in claims.claimed.iter().zip(results) {
        settle(subject, claimed.claim, 2, result).unwrap();
    }
    decide(subject, "g", 3, OperationEvent::Cancel).unwrap();
    let counts = subject.queue().counts();
    assert_eq!(counts.all().map(|(_, count)| count), [1; 7]);
    subject.restart();
    assert_eq!(subject.queue().counts(), counts);
}

fn strange_texts_and_bytes_come_back(subject: &mut Subject) {
    let strange = "a'b\"c\0d\u{1F300}\n; DROP TABLE operations --".to_owned();
    let bytes: Vec<u8> = (0..=255).collect();
    let new = NewOperation {
        id: strange.clone(),
        kind: strange.clone(),
        destination: strange.clone(),
        request: StoredRequest {
            method: "PATCH".to_owned(),
            url: strange.clone(),
            headers: vec![
                (strange.clone(), bytes.clone()),
                (String::new(), Vec::new()),
            ],
            body: bytes.clone(),
            base: Some(Vec::new()),
            resource: Some(strange.clone()),
        },
        summary: strange.clone(),
        idempotency_key: strange.clone(),
        fingerprint: bytes,
        client: strange.clone(),
        credential: Some(strange.clone()),
        backoff: Some(strange.clone()),
        order_key: Some(strange.clone()),
        priority: i32::MIN,
        trace_id: Some(strange.clone()),
        accepted_at: at(0),
        expires_at: WallTime::from_unix_millis(i64::MAX),
        retain: Duration::MAX,
        is_reported: true,
    };
    insert(subject, new.clone());
    let lane = Lane {
        destination: new.destination,
        kind: strange.clone(),
    };
    let claims = wait(subject.queue().claim(&lane, lease(0), 1)).unwrap();
    let claimed = &claims.claimed[0];
    assert_eq!(claimed.request, new.request);
    let number = claimed.claim.number;
    let conflict = StoredConflict {
        theirs: None,
        etag: Some(strange.clone()),
        fetched_at: WallTime::from_unix_millis(i64::MIN),
    };
    let attempt = AttemptRecord {
        at: WallTime::from_unix_millis(i64::MIN),
        phase: strange.clone(),
        status: None,
        latency: Duration::from_nanos(1),
        waited: Duration::ZERO,
        reason: strange.clone(),
    };
    let settlement = Settlement {
        counters: Counters {
            sent: u32::MAX,
            attempts: u32::MAX,
            directed_waits: u32::MAX,
            refreshed: true,
        },
        attempts: vec![attempt.clone()],
        ..settlement(1, ClaimResult::Conflict(conflict.clone(), None))
    };
    let settled = wait(subject.queue().settle(claimed.claim, settlement))
        .unwrap()
        .unwrap();
    subject.restart();
    assert_eq!(get(subject, &strange), settled);
    let queue = subject.queue();
    assert_eq!(wait(queue.conflict(number)).unwrap(), Some(conflict));
    assert_eq!(wait(queue.attempts(number)).unwrap(), [attempt]);
    let discarded = decide(
        subject,
        &strange,
        9,
        OperationEvent::Resolve(Resolution::Discard),
    );
    assert_eq!(discarded.unwrap().state, OperationState::Cancelled);
    assert_eq!(sweep(subject, 1000 * DAY), Swept::default());
}

fn numbers_are_not_used_again(subject: &mut Subject) {
    for round in 1..4 {
        let id = round.to_string();
        let inserted = NewOperation {
            retain: Duration::ZERO,
            ..operation(&id)
        };
        insert(subject, inserted);
        assert_eq!(get(subject, &id).number, round);
        decide(subject, &id, 1, OperationEvent::Cancel).unwrap();
        assert_eq!(sweep(subject, 1).deleted, 1);
        subject.restart();
    }
}

const DAY: i64 = 86_400;

/// A moment, in seconds.
pub(crate) fn at(seconds: i64) -> WallTime {
    WallTime::from_unix_millis(seconds * 1000)
}

/// The operations of the type `default` for a destination.
pub(crate) fn lane(destination: &str) -> Lane {
    Lane {
        destination: destination.to_owned(),
        kind: "default".to_owned(),
    }
}

/// A lease of thirty seconds.
pub(crate) fn lease(now: i64) -> Lease {
    Lease {
        now: at(now),
        until: at(now + 30),
    }
}

pub(crate) fn request(id: &str) -> StoredRequest {
    StoredRequest {
        method: "POST".to_owned(),
        url: format!("https://api.example.com/{id}?secret"),
        headers: vec![("content-type".to_owned(), b"text/plain".to_vec())],
        body: format!("body of {id}").into_bytes(),
        base: None,
        resource: None,
    }
}

pub(crate) fn operation(id: &str) -> NewOperation {
    NewOperation {
        id: id.to_owned(),
        kind: "default".to_owned(),
        destination: "api.example.com".to_owned(),
        request: request(id),
        summary: format!("POST api.example.com/{id}"),
        idempotency_key: format!("key-{id}"),
        fingerprint: b"same".to_vec(),
        client: String::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: None,
        accepted_at: at(0),
        expires_at: at(DAY),
        retain: Duration::from_secs(7 * 86_400),
        is_reported: false,
    }
}

fn ordered(id: &str) -> NewOperation {
    NewOperation {
        order_key: Some("one".to_owned()),
        ..operation(id)
    }
}

pub(crate) fn conflict(theirs: &str) -> StoredConflict {
    StoredConflict {
        theirs: Some(theirs.into()),
        etag: Some("\"2\"".to_owned()),
        fetched_at: at(1),
    }
}

pub(crate) fn attempt(seconds: i64) -> AttemptRecord {
    AttemptRecord {
        at: at(seconds),
        phase: "receiving".to_owned(),
        status: Some(503),
        latency: Duration::from_millis(70),
        waited: Duration::from_micros(1500),
        reason: "overloaded".to_owned(),
    }
}

pub(crate) fn settlement(now: i64, result: ClaimResult) -> Settlement {
    Settlement {
        now: at(now),
        result,
        counters: Counters::default(),
        attempts: Vec::new(),
    }
}

fn insert(subject: &Subject, operation: NewOperation) {
    let inserted = wait(subject.queue().insert(operation)).unwrap();
    assert!(matches!(inserted, Inserted::New(_)), "{inserted:?}");
}

fn get(subject: &Subject, id: &str) -> StoredOperation {
    wait(subject.queue().get(id)).unwrap().unwrap()
}

fn claim(subject: &Subject, now: i64, limit: usize) -> Claims {
    wait(
        subject
            .queue()
            .claim(&lane("api.example.com"), lease(now), limit),
    )
    .unwrap()
}

fn claim_one(subject: &Subject, now: i64) -> Claimed {
    let claims = claim(subject, now, 1);
    claims.claimed.into_iter().next().expect("one is due")
}

fn settle(
    subject: &Subject,
    claim: ClaimId,
    now: i64,
    result: ClaimResult,
) -> Option<StoredOperation> {
    wait(subject.queue().settle(claim, settlement(now, result))).unwrap()
}

fn decide(
    subject: &Subject,
    id: &str,
    now: i64,
    event: OperationEvent,
) -> Result<StoredOperation, DecisionError> {
    let id = id.to_owned();
    let now = at(now);
    let decision = Decision {
        id,
        now,
        event,
        request: None,
    };
    wait(subject.queue().decide(decision)).unwrap()
}

fn sweep(subject: &Subject, now: i64) -> Swept {
    wait(subject.queue().sweep(at(now), 1000)).unwrap()
}

fn ids(claims: &Claims) -> Vec<&str> {
    claims
        .claimed
        .iter()
        .map(|claimed| claimed.operation.id.as_str())
        .collect()
}

/// Everything that a store has of operations, for comparison.
pub(crate) fn contents(store: &Store) -> Vec<String> {
    let queue = store.operations();
    let operations = wait(queue.page(OperationFilter::default(), None, 10_000)).unwrap();
    let mut contents = Vec::new();
    for operation in operations {
        let number = operation.number;
        let request = wait(queue.request(number)).unwrap().unwrap();
        let conflict = wait(queue.conflict(number)).unwrap();
        let conflict = conflict.map(|found| (found.theirs, found.etag, found.fetched_at));
        let response = wait(queue.response(number)).unwrap();
        let response = response.map(|found| (found.status, found.headers, found.body));
        let attempts = wait(queue.attempts(number)).unwrap();
        let StoredRequest {
            method,
            url,
            headers,
            body,
            base,
            resource,
        } = request;
        let request = (method, url, headers, body, base, resource);
        contents.push(format!(
            "{operation:?} {request:?} {conflict:?} {response:?} {attempts:?}"
        ));
    }
    contents.push(format!("{:?}", queue.counts()));
    contents.push(format!("{:?}", wait(queue.lanes(None, 10_000)).unwrap()));
    contents.push(format!("{:?}", wait(queue.unreported(10_000)).unwrap()));
    contents
}

impl Subject {
    pub(crate) fn queue(&self) -> Arc<dyn OperationQueue> {
        self.store().operations()
    }
}
