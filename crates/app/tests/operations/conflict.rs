//! Conflicts: what the server has is fetched, and the merge rule of the type applied.

use policy::operation::MAX_MERGES;
use store::operations::StoredConflict;

use super::support::{QUICK, Received, Running, Upstream};
use app::state::OperationRequest;

const BASE: &str = r#"{"name":"Ann","city":"Rome"}"#;
const OURS: &str = r#"{"name":"Anna","city":"Rome"}"#;
const THEIRS: &str = r#"{"name":"Ann","city":"Oslo"}"#;

/// A server whose document has version 2, for a client that knows version 1: it answers changes
/// with 412 unless they match version 2, and GET with `theirs`.
fn upstream(theirs: &'static str) -> Upstream {
    Upstream::new(move |_, request| {
        let etag = "etag: \"2\"\r\n".to_owned();
        match request.header("if-match").as_deref() {
            _ if is_get(request) => (200, etag, theirs.to_owned()),
            Some("\"2\"") => (200, etag, String::new()),
            _ => (412, String::new(), String::new()),
        }
    })
}

fn is_get(request: &Received) -> bool {
    request.head.starts_with("GET /doc ")
}

fn running(rule: &str) -> Running {
    Running::new(&format!("{QUICK}[operation.default]\nmerge = \"{rule}\"\n"))
}

/// An edit of version 1.
fn edit(upstream: &Upstream, method: &str) -> OperationRequest {
    let headers = [
        ("if-match", "\"1\""),
        ("content-type", "application/json"),
        ("x-team", "blue"),
    ];
    OperationRequest {
        method: method.to_owned(),
        url: upstream.url("/doc"),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        body: OURS.into(),
        base: Some(BASE.into()),
        resource: Some(upstream.url("/doc")),
        ..OperationRequest::default()
    }
}

fn accept(running: &Running, request: OperationRequest) -> String {
    running.accept(request).unwrap().operation.id
}

fn conflict(running: &Running, id: &str) -> StoredConflict {
    let number = running.get(id).number;
    let conflict = running.wait(running.state.operations().conflict(number));
    conflict.unwrap().unwrap()
}

/// All requests but the GETs.
fn sent(upstream: &Upstream) -> Vec<Received> {
    let received = upstream.received().into_iter();
    received.filter(|request| !is_get(request)).collect()
}

#[test]
fn fetches_what_the_server_has_and_waits_for_a_person() {
    let upstream = upstream(THEIRS);
    let running = running("none");
    let id = accept(&running, edit(&upstream, "PUT"));
    running.until(&id, "conflict");
    let conflict = conflict(&running, &id);
    assert_eq!(conflict.theirs.as_deref(), Some(THEIRS.as_bytes()));
    assert_eq!(conflict.etag.as_deref(), Some("\"2\""));
    let received = upstream.received();
    assert_eq!(received.len(), 2);
    let get = &received[1];
    assert_eq!(get.header("x-team").as_deref(), Some("blue"));
    for name in [
        "if-match",
        "idempotency-key",
        "content-type",
        "content-length",
    ] {
        assert_eq!(get.header(name), None, "{name}");
    }
}

#[test]
fn stores_a_conflict_without_theirs_when_they_cannot_be_fetched() {
    let upstream = Upstream::new(|_, request| match is_get(request) {
        true => (500, "etag: \"of the error\"\r\n".to_owned(), String::new()),
        false => (409, "etag: \"7\"\r\n".to_owned(), String::new()),
    });
    let running = running("json");
    let id = accept(&running, edit(&upstream, "PUT"));
    running.until(&id, "conflict");
    let found = conflict(&running, &id);
    assert_eq!((found.theirs, found.etag.as_deref()), (None, Some("\"7\"")));
    // A document that is longer than a body may be is not stored either.
    let long = self::upstream(THEIRS);
    let running = Running::new(&format!("{QUICK}[operation.default]\nmax_body = \"27B\"\n"));
    let request = OperationRequest {
        body: b"{}".to_vec(),
        base: None,
        ..edit(&long, "PUT")
    };
    let id = accept(&running, request);
    running.until(&id, "conflict");
    assert_eq!(conflict(&running, &id).theirs, None);
}

#[test]
fn sends_ours_over_the_version_that_the_server_has() {
    let upstream = upstream(THEIRS);
    let running = running("ours");
    let id = accept(&running, edit(&upstream, "PUT"));
    let operation = running.until(&id, "completed");
    assert_eq!(operation.merges, 1);
    let sent = sent(&upstream);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].header("if-match").as_deref(), Some("\"2\""));
    assert_eq!(sent[1].body, OURS);
    let keys = sent
        .iter()
        .map(|one| one.header("idempotency-key").unwrap());
    assert_eq!(keys.collect::<Vec<_>>(), [id.clone(), id]);
}

#[test]
fn completes_without_sending_when_theirs_stay() {
    let upstream = upstream(THEIRS);
    let running = running("theirs");
    let id = accept(&running, edit(&upstream, "PUT"));
    running.until(&id, "completed");
    assert_eq!(sent(&upstream).len(), 1);
}

#[test]
fn sends_the_merge_of_both_sides_under_another_key() {
    let upstream = upstream(THEIRS);
    let running = running("json");
    let id = accept(&running, edit(&upstream, "PUT"));
    let operation = running.until(&id, "completed");
    let sent = sent(&upstream);
    assert_eq!(sent[1].body, r#"{"city":"Oslo","name":"Anna"}"#);
    assert_eq!(sent[1].header("if-match").as_deref(), Some("\"2\""));
    let keys: Vec<_> = sent
        .iter()
        .map(|one| one.header("idempotency-key"))
        .collect();
    assert_eq!(keys[0], Some(id));
    assert_eq!(keys[1], Some(operation.idempotency_key));
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn waits_for_a_person_when_both_sides_changed_one_value() {
    let upstream = upstream(r#"{"name":"Anne","city":"Rome"}"#);
    let running = running("json");
    let id = accept(&running, edit(&upstream, "PUT"));
    running.until(&id, "conflict");
    assert_eq!(sent(&upstream).len(), 1);
}

#[test]
fn merges_three_times_and_then_waits_for_a_person() {
    let upstream = Upstream::new(|number, request| match is_get(request) {
        true => (200, format!("etag: \"{number}\"\r\n"), THEIRS.to_owned()),
        false => (412, String::new(), String::new()),
    });
    let running = running("ours");
    let id = accept(&running, edit(&upstream, "PUT"));
    // Each round is a conflict for a moment.
    let operation = loop {
        let operation = running.until(&id, "conflict");
        if operation.merges == MAX_MERGES {
            break operation;
        }
    };
    assert_eq!(sent(&upstream).len(), 4);
    assert_eq!(
        operation.counters.sent, 1,
        "a merge starts with all attempts"
    );
}

#[test]
fn completes_without_sending_what_the_server_already_has() {
    let gone = Upstream::new(|_, request| match is_get(request) {
        true => (404, String::new(), String::new()),
        false => (409, String::new(), String::new()),
    });
    let same = upstream(r#"{"city": "Rome", "name": "Anna"}"#);
    let running = running("none");
    for (upstream, method) in [(&gone, "DELETE"), (&same, "POST")] {
        let id = accept(&running, edit(upstream, method));
        running.until(&id, "completed");
        assert_eq!(sent(upstream).len(), 1);
    }
    // What was changed is gone: only a person can decide.
    let id = accept(&running, edit(&gone, "PUT"));
    running.until(&id, "conflict");
}
