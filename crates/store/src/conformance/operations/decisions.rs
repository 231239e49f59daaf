//! What a person or a merge rule decides.

use super::*;

shared_suite! {
    a_retry_by_a_person_starts_again,
    a_retried_operation_has_its_time_again_each_time,
    a_conflict_waits_for_a_decision,
    merges_are_counted_until_a_person_decides,
    a_replaced_request_keeps_the_clients_key,
    decisions_that_are_illegal_change_nothing,
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
