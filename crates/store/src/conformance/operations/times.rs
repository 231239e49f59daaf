//! What happens by time: leases, expiry, retention, and recovery after a restart.

use super::*;

shared_suite! {
    a_heartbeat_extends_leases,
    a_claim_without_a_heartbeat_of_its_own_is_taken_back,
    a_lost_claim_does_not_extend_the_lease_of_the_next,
    a_lost_lease_keeps_attempts,
    waiting_operations_expire,
    retention_deletes_everything,
    recover_takes_back_leases_of_a_process_that_ended,
    recover_leaves_leases_of_this_process,
    recover_moves_times_back_with_the_clock,
}

fn a_heartbeat_extends_leases(subject: &Subject) {
    insert(subject, operation("a"));
    let claimed = claim_one(subject, 0);
    let heartbeat = |now| {
        let beat = subject.queue().heartbeat(vec![claimed.claim], lease(now));
        wait(beat).unwrap();
    };
    heartbeat(20);
    // An earlier one that comes late shortens nothing.
    heartbeat(10);
    assert_eq!(sweep(subject, 49).reclaimed, []);
    let taken_back = sweep(subject, 50).reclaimed;
    assert_eq!(taken_back.len(), 1);
    heartbeat(60);
    assert_eq!(
        settle(subject, claimed.claim, 61, ClaimResult::Released),
        None
    );
}

fn a_claim_without_a_heartbeat_of_its_own_is_taken_back(subject: &Subject) {
    insert(subject, operation("a"));
    insert(subject, operation("b"));
    let claims = claim(subject, 0, 2);
    let known = claims.claimed[1].claim;
    wait(subject.queue().heartbeat(vec![known], lease(20))).unwrap();
    let reclaimed = sweep(subject, 30).reclaimed;
    assert_eq!(reclaimed, [get(subject, "a")]);
}

fn a_lost_claim_does_not_extend_the_lease_of_the_next(subject: &Subject) {
    insert(subject, operation("a"));
    let late = claim_one(subject, 0);
    sweep(subject, 30);
    claim_one(subject, 31);
    wait(subject.queue().heartbeat(vec![late.claim], lease(50))).unwrap();
    assert_eq!(sweep(subject, 61).reclaimed, [get(subject, "a")]);
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
