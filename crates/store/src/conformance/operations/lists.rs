//! Lanes, reports, pages and counts.

use super::*;

shared_suite! {
    lanes_are_listed_with_their_first_time,
    ended_operations_are_reported_once,
    a_report_that_is_refused_leaves_the_operation_unreported,
    pages_are_filtered,
    every_filter_lists_what_it_matches,
    counts_follow_states,
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
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(page(subject, any(), None, 3), ["19", "18", "17"]);
    assert_eq!(page(subject, any(), Some(3), 10), ["1", "0"]);
    let cancelled = OperationFilter {
        states: words(&["cancelled"]),
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
        states: words(&["cancelled"]),
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
        states: words(&["cancelled"]),
        ..rejected
    };
    assert!(page(subject, none, None, 9).is_empty());
    let unknown = OperationFilter {
        states: words(&["lost"]),
        ..any()
    };
    assert!(page(subject, unknown, None, 9).is_empty());
    assert!(page(subject, any(), None, 0).is_empty());
    let both = OperationFilter {
        states: words(&["cancelled", "failed"]),
        ..any()
    };
    assert_eq!(page(subject, both, Some(11), 3), ["5", "2", "0"]);
    let prefix = OperationFilter {
        id_prefix: text("1"),
        ..any()
    };
    assert_eq!(page(subject, prefix.clone(), None, 3), ["19", "18", "17"]);
    assert_eq!(page(subject, prefix.clone(), Some(12), 9), ["10", "1"]);
    let cancelled = OperationFilter {
        states: words(&["cancelled"]),
        ..prefix
    };
    assert_eq!(page(subject, cancelled, None, 9), ["15", "10"]);
}

/// Every list is what looking at each operation finds, whichever index it takes.
fn every_filter_lists_what_it_matches(subject: &Subject) {
    let kinds = ["sync", "mail", "default"];
    let destinations = ["a", "b"];
    for number in 0..60 {
        let new = NewOperation {
            kind: kinds[number % 3].to_owned(),
            destination: destinations[number / 3 % 2].to_owned(),
            ..operation(&format!("op_{:02}", number * 7 % 60))
        };
        insert(subject, new);
    }
    let results = [
        ClaimResult::Completed(None),
        ClaimResult::Retry(at(99)),
        ClaimResult::Failed(TerminalReason::Exhausted),
        ClaimResult::Failed(TerminalReason::Rejected),
        ClaimResult::Conflict(conflict("x"), None),
    ];
    for (destination, kind) in destinations
        .iter()
        .flat_map(|to| kinds.map(|kind| (to, kind)))
    {
        let lane = Lane {
            destination: (*destination).to_owned(),
            kind: kind.to_owned(),
        };
        let claims = wait(subject.queue().claim(&lane, lease(1), 7)).unwrap();
        for (claimed, result) in claims.claimed.iter().zip(&results) {
            settle(subject, claimed.claim, 2, result.clone()).unwrap();
        }
    }
    for id in ["op_00", "op_14", "op_59"] {
        _ = decide(subject, id, 3, OperationEvent::Cancel);
    }
    let all = wait(subject.queue().page(OperationFilter::default(), None, 99)).unwrap();
    assert_eq!(all.len(), 60);
    let states: [&[&str]; 6] = [
        &[],
        &["failed"],
        &["failed", "conflict"],
        &["available", "running"],
        &["completed", "cancelled", "retryable"],
        &["lost"],
    ];
    let one_or_none = |words: &[&str]| -> Vec<Option<String>> {
        let words = words.iter().map(|word| Some((*word).to_owned()));
        std::iter::once(None).chain(words).collect()
    };
    let reasons = [
        None,
        Some(TerminalReason::Exhausted),
        Some(TerminalReason::Conflict),
        Some(TerminalReason::Cancelled),
    ];
    for states in states {
        for kind in one_or_none(&["mail", "lost"]) {
            for reason in reasons {
                for destination in one_or_none(&["a", "lost"]) {
                    for id_prefix in one_or_none(&["op_", "op_1", "op_59", "x"]) {
                        let filter = OperationFilter {
                            states: states.iter().map(|word| (*word).to_owned()).collect(),
                            kind: kind.clone(),
                            reason,
                            destination: destination.clone(),
                            id_prefix,
                        };
                        check_pages(subject, &filter, &all);
                    }
                }
            }
        }
    }
}

/// Reads a list in pages of four.
fn check_pages(subject: &Subject, filter: &OperationFilter, all: &[StoredOperation]) {
    let expected: Vec<&str> = all
        .iter()
        .filter(|operation| filter.matches(operation))
        .map(|operation| &*operation.id)
        .collect();
    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let page = wait(subject.queue().page(filter.clone(), before, 4)).unwrap();
        before = page.last().map(|operation| operation.number);
        let is_last = page.len() < 4;
        listed.extend(page.into_iter().map(|operation| operation.id));
        if is_last {
            break;
        }
    }
    assert_eq!(listed, expected, "{filter:?}");
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
