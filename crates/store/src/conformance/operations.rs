//! The behaviours of a queue of operations, for every kind of store.

mod claims;
mod decisions;
mod inserts;
mod lists;
mod moves;
mod order;
mod times;

use std::sync::Arc;
use std::time::Duration;

use policy::item::TerminalReason;
use policy::operation::{
    IllegalTransition, MAX_MERGES, OperationEvent, OperationState, Resolution,
};
use policy::time::WallTime;

use super::{Subject, shared_suite, suite};
use crate::Store;
use crate::operations::{
    AttemptRecord, ClaimId, ClaimResult, Claimed, Claims, Counters, Decision, DecisionError,
    Inserted, Lane, Lease, MAX_ATTEMPT_RECORDS, NewOperation, OperationFilter, OperationQueue,
    RequestChange, RuleDecision, Settlement, StoredConflict, StoredOperation, StoredRequest,
    StoredResponse, Swept, wait,
};

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
