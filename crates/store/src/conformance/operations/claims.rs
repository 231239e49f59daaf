//! Claims and how they are settled.

use super::*;

shared_suite! {
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
    the_last_attempts_are_stored,
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
    for &reason in TerminalReason::ALL {
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
        (9, 1, 0)
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

fn the_last_attempts_are_stored(subject: &mut Subject) {
    insert(subject, operation("a"));
    let max = i64::try_from(MAX_ATTEMPT_RECORDS).unwrap();
    for round in 0..3 {
        let claimed = claim_one(subject, round);
        let settlement = Settlement {
            attempts: (0..50).map(|number| attempt(round * 50 + number)).collect(),
            ..settlement(round, ClaimResult::Released)
        };
        wait(subject.queue().settle(claimed.claim, settlement)).unwrap();
    }
    subject.restart();
    let expected: Vec<AttemptRecord> = (150 - max..150).map(attempt).collect();
    assert_eq!(wait(subject.queue().attempts(1)).unwrap(), expected);
}
