//! Any sequence of calls on a database, compared with memory.

#[cfg(feature = "postgres")]
use std::rc::Rc;
use std::time::Duration;

use policy::item::TerminalReason;
use policy::operation::{OperationEvent, Resolution};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
#[cfg(feature = "postgres")]
use proptest::test_runner::TestRunner;

use super::Subject;
use super::operations::{at, attempt, conflict, contents, operation, request, settlement};
use crate::StoreError;
use crate::operations::{
    ClaimId, ClaimResult, Counters, Decision, Lane, Lease, NewOperation, RequestChange,
    RuleDecision, Settlement, StoredResponse, wait,
};
#[cfg(feature = "postgres")]
use crate::private_postgres::PrivatePostgres;

proptest! {
    // Every call of every case is synced.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_sequence_of_calls_is_what_it_means(steps in vec(step(), 1..60)) {
        check(Subject::sqlite(), steps)?;
    }
}

#[cfg(feature = "postgres")]
#[test]
fn any_sequence_of_calls_is_what_it_means_in_postgres() {
    let server = Rc::new(PrivatePostgres::start());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(20));
    let checked = runner.run(&vec(step(), 1..60), |steps| {
        check(Subject::postgres_on(Rc::clone(&server)), steps)
    });
    checked.unwrap();
}

fn check(mut subject: Subject, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Subject::memory();
    let (mut claims, mut model_claims) = (Vec::new(), Vec::new());
    for step in steps {
        let expected = make(&mut model, &step, &mut model_claims);
        let result = make(&mut subject, &step, &mut claims);
        prop_assert_eq!(&result, &expected, "{:?}", step);
        prop_assert_eq!(&claims, &model_claims);
    }
    let expected = contents(model.store());
    prop_assert_eq!(&contents(subject.store()), &expected);
    subject.restart();
    prop_assert_eq!(contents(subject.store()), expected);
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Insert(NewOperation),
    Claim(Lane, i64, usize),
    /// The n-th claim so far, settled or not.
    Settle(usize, Settlement),
    /// The claims from the n-th on.
    Heartbeat(usize, i64),
    Decide(Decision),
    Sweep(i64, usize),
    Recover(i64),
    Report(u64, Option<NewOperation>),
    Restart,
}

/// Makes a call; its result as text, and whether it failed.
fn make(
    subject: &mut Subject,
    step: &Step,
    claims: &mut Vec<ClaimId>,
) -> Result<String, StoreError> {
    let queue = subject.queue();
    let lease = |now| Lease {
        now: at(now),
        until: at(now + 30),
    };
    Ok(match step.clone() {
        Step::Insert(operation) => format!("{:?}", wait(queue.insert(operation))?),
        Step::Claim(lane, now, limit) => {
            let claimed = wait(queue.claim(&lane, lease(now), limit))?;
            claims.extend(claimed.claimed.iter().map(|claimed| claimed.claim));
            let requests = claimed.claimed.iter().map(|claimed| &claimed.request.body);
            format!("{claimed:?} {:?}", requests.collect::<Vec<_>>())
        }
        Step::Settle(number, settlement) => {
            let Some(&claim) = claims.get(number % claims.len().max(1)) else {
                return Ok(String::new());
            };
            format!("{:?}", wait(queue.settle(claim, settlement))?)
        }
        Step::Heartbeat(number, now) => {
            let first = number % claims.len().max(1);
            let kept = claims.get(first..).unwrap_or_default().to_vec();
            format!("{:?}", wait(queue.heartbeat(kept, lease(now)))?)
        }
        Step::Decide(decision) => format!("{:?}", wait(queue.decide(decision))?),
        Step::Sweep(now, limit) => format!("{:?}", wait(queue.sweep(at(now), limit))?),
        Step::Recover(now) => format!("{:?}", wait(queue.recover(at(now)))?),
        Step::Report(number, report) => format!("{:?}", wait(queue.report(number, report))?),
        Step::Restart => {
            drop(queue);
            subject.restart();
            String::new()
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => new_operation().prop_map(Step::Insert),
        8 => (lane(), now(), 0..4_usize).prop_map(|(lane, now, limit)| Step::Claim(lane, now, limit)),
        8 => (any::<usize>(), any_settlement())
            .prop_map(|(number, settlement)| Step::Settle(number, settlement)),
        1 => (any::<usize>(), now()).prop_map(|(number, now)| Step::Heartbeat(number, now)),
        5 => decision().prop_map(Step::Decide),
        2 => (now(), 0..4_usize).prop_map(|(now, limit)| Step::Sweep(now, limit)),
        1 => now().prop_map(Step::Recover),
        1 => (1..9_u64, option::of(new_operation()))
            .prop_map(|(number, report)| Step::Report(number, report)),
        1 => Just(Step::Restart),
    ]
}

/// Mostly close to each other, so that much is due and some has expired; now and then the clock is
/// far off.
fn now() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..100_i64, 1 => 0..1000_i64]
}

/// Few names, so that operations meet.
fn id() -> impl Strategy<Value = String> {
    "[a-h]"
}

fn lane() -> impl Strategy<Value = Lane> {
    ("[xy]", "[kl]").prop_map(|(destination, kind)| Lane { destination, kind })
}

fn new_operation() -> impl Strategy<Value = NewOperation> {
    let order_key = option::of("[pq]");
    let times = (now(), 0..200_i64, 0..200_u64);
    (
        id(),
        id(),
        lane(),
        -1..2_i32,
        order_key,
        times,
        any::<(bool, bool, bool)>(),
    )
        .prop_map(
            |(id, key, lane, priority, order_key, (accepted, lifetime, retain), flags)| {
                NewOperation {
                    kind: lane.kind,
                    destination: lane.destination,
                    idempotency_key: key,
                    fingerprint: vec![flags.0.into()],
                    client: if flags.1 {
                        "app1".to_owned()
                    } else {
                        String::new()
                    },
                    order_key,
                    priority,
                    accepted_at: at(accepted),
                    expires_at: at(accepted + lifetime),
                    retain: Duration::from_secs(retain),
                    is_reported: flags.2,
                    ..operation(&id)
                }
            },
        )
}

fn any_settlement() -> impl Strategy<Value = Settlement> {
    let response = StoredResponse {
        status: 200,
        headers: vec![("a".to_owned(), vec![255])],
        body: b"fine".to_vec(),
    };
    let result = prop_oneof![
        2 => Just(ClaimResult::Completed(None)),
        1 => Just(ClaimResult::Completed(Some(response))),
        4 => now().prop_map(|now| ClaimResult::Retry(at(now))),
        2 => select(TerminalReason::ALL).prop_map(ClaimResult::Failed),
        3 => ("[a-c]", rule_decision())
            .prop_map(|(theirs, rule)| ClaimResult::Conflict(conflict(&theirs), rule)),
        1 => Just(ClaimResult::Released),
    ];
    (
        now(),
        result,
        any::<(u32, bool)>(),
        vec(now().prop_map(attempt), 0..3),
    )
        .prop_map(|(now, result, (count, refreshed), attempts)| Settlement {
            counters: Counters {
                sent: count,
                attempts: count / 2,
                directed_waits: count / 3,
                refreshed,
            },
            attempts,
            ..settlement(now, result)
        })
}

fn rule_decision() -> impl Strategy<Value = Option<RuleDecision>> {
    prop_oneof![
        Just(None),
        Just(Some(RuleDecision::Complete)),
        request_change().prop_map(|change| Some(RuleDecision::Send(change))),
    ]
}

fn request_change() -> impl Strategy<Value = RequestChange> {
    id().prop_map(|id| RequestChange {
        request: request(&id),
        idempotency_key: id,
    })
}

fn decision() -> impl Strategy<Value = Decision> {
    let event = select(vec![
        OperationEvent::Merge,
        OperationEvent::Retry,
        OperationEvent::Cancel,
        OperationEvent::Resolve(Resolution::Resend),
        OperationEvent::Resolve(Resolution::Discard),
        OperationEvent::Resolve(Resolution::Replace),
        OperationEvent::Complete,
    ]);
    (id(), now(), event, option::of(request_change())).prop_map(|(id, now, event, request)| {
        Decision {
            id,
            now: at(now),
            event,
            request,
        }
    })
}
