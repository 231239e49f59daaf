//! Inserts: ids, idempotency keys and what is stored.

use super::*;

shared_suite! {
    an_inserted_operation_is_available,
    the_same_request_is_stored_once,
    clients_may_use_the_same_key,
    a_second_operation_with_an_id_is_refused,
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
        unblocked: None,
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
