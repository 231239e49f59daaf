//! Moves to another queue.

use super::*;
use crate::operations::{ExportedOperation, move_all};

shared_suite! {
    imports_everything_as_it_was,
    imports_nothing_twice,
    what_was_running_waits_again,
    what_is_imported_waits_for_those_with_its_order_key,
    moves_everything_and_leaves_nothing_behind,
}

fn export(queue: &Arc<dyn OperationQueue>) -> Vec<ExportedOperation> {
    wait(queue.export(0, 1000)).unwrap()
}

fn import(subject: &Subject, exported: Vec<ExportedOperation>) -> usize {
    wait(subject.queue().import(exported, at(50))).unwrap()
}

/// Moves all of them, by twos, and returns how many there were.
fn move_to(from: &Subject, to: &Subject) -> usize {
    let (from, to) = (from.queue(), to.queue());
    let moving = async move { move_all(&*from, &*to, at(50), 2).await };
    wait(Box::pin(moving)).unwrap()
}

/// A queue with operations in every state but running.
fn source() -> Subject {
    let source = Subject::memory();
    let response = StoredResponse {
        status: 201,
        headers: vec![("location".to_owned(), b"/1".to_vec())],
        body: b"made".to_vec(),
    };
    for (id, result) in [
        ("completed", ClaimResult::Completed(Some(response))),
        ("retryable", ClaimResult::Retry(at(60))),
        ("failed", ClaimResult::Failed(TerminalReason::Rejected)),
        ("conflict", ClaimResult::Conflict(conflict("theirs"), None)),
    ] {
        let new = NewOperation {
            client: "app1".to_owned(),
            is_reported: true,
            ..operation(id)
        };
        insert(&source, new);
        let claimed = claim_one(&source, 1);
        let settlement = Settlement {
            attempts: vec![attempt(1), attempt(2)],
            counters: Counters {
                sent: 2,
                attempts: 1,
                ..Counters::default()
            },
            ..settlement(3, result)
        };
        wait(source.queue().settle(claimed.claim, settlement)).unwrap();
    }
    insert(&source, operation("cancelled"));
    decide(&source, "cancelled", 4, OperationEvent::Cancel).unwrap();
    insert(&source, ordered("first"));
    insert(&source, ordered("blocked"));
    source
}

fn imports_everything_as_it_was(subject: &mut Subject) {
    let source = source();
    let exported = export(&source.queue());
    assert_eq!(import(subject, exported.clone()), 7);
    assert_eq!(contents(subject.store()), contents(source.store()));
    assert_eq!(export(&subject.queue()), exported);
    subject.restart();
    assert_eq!(contents(subject.store()), contents(source.store()));
    let later = wait(subject.queue().export(2, 3)).unwrap();
    assert_eq!(later, exported[2..5]);
}

fn imports_nothing_twice(subject: &Subject) {
    insert(
        subject,
        NewOperation {
            idempotency_key: "key-first".to_owned(),
            ..operation("other")
        },
    );
    let exported = export(&source().queue());
    assert_eq!(import(subject, exported.clone()), 6, "one has a known key");
    assert_eq!(import(subject, exported), 0);
}

fn what_was_running_waits_again(subject: &Subject) {
    let source = Subject::memory();
    insert(&source, operation("a"));
    let claimed = claim_one(&source, 1);
    import(subject, export(&source.queue()));
    let imported = get(subject, "a");
    assert_eq!(imported.state, OperationState::Available);
    assert_eq!(imported.next_at, Some(at(0)));
    assert_eq!(
        settle(subject, claimed.claim, 60, ClaimResult::Completed(None)),
        None
    );
    let again = claim_one(subject, 60);
    assert!(again.claim.fence > claimed.claim.fence);
}

fn what_is_imported_waits_for_those_with_its_order_key(subject: &Subject) {
    insert(subject, ordered("own"));
    import(subject, export(&source().queue()));
    assert!(get(subject, "first").is_blocked);
    let own = claim_one(subject, 10);
    assert_eq!(own.operation.id, "own");
    settle(subject, own.claim, 10, ClaimResult::Completed(None)).unwrap();
    assert!(!get(subject, "first").is_blocked);
    assert!(get(subject, "blocked").is_blocked);
}

fn moves_everything_and_leaves_nothing_behind(subject: &Subject) {
    let source = source();
    let expected = contents(source.store());
    assert_eq!(move_to(&source, subject), 7);
    assert_eq!(contents(subject.store()), expected);
    assert_eq!(source.queue().counts(), Default::default());
    let back = Subject::memory();
    assert_eq!(move_to(subject, &back), 7);
    assert_eq!(contents(back.store()), expected);
    assert_eq!(subject.queue().counts(), Default::default());
    assert_eq!(export(&subject.queue()), []);
}
