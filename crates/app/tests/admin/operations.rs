//! Operations: what is accepted, listed, shown and decided.

use std::time::Duration;

use app::state::BulkRequest;
use policy::item::TerminalReason;
use policy::operation::OperationEvent;
use serde_json::{Value, json};
use store::Store;
use store::faulty::Faults;
use store::operations::{
    AttemptRecord, ClaimResult, Counters, Lane, Lease, NewOperation, OperationFilter, Settlement,
    StoredConflict, StoredRequest, wait,
};

use crate::support::{Answer, Running, TWO, ask};

const OPERATIONS: &str = "/api/v1/operations";

/// Types, and a credential by name.
const TYPES: &str = r#"
[operation.small]
max_body = "10B"
[operation.large]
max_body = "3MiB"
[credential.crm]
"#;

fn running() -> (Running, tempfile::TempDir) {
    Running::new(&format!("{TWO}{TYPES}"))
}

impl Running {
    fn post(&self, path: &str, body: &Value) -> Answer {
        let path = format!("{OPERATIONS}{path}");
        self.ask("POST", &path, Some(&body.to_string()))
    }

    /// The id of a new operation.
    pub(crate) fn accept(&self, body: &Value) -> String {
        let answer = self.post("", body);
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    fn show(&self, id: &str) -> Value {
        self.get(&format!("{OPERATIONS}/{id}"))
    }

    fn list(&self, query: &str) -> Vec<String> {
        let list = self.get(&format!("{OPERATIONS}?{query}"));
        let operations = list["operations"].as_array().unwrap().iter();
        operations
            .map(|operation| operation["id"].as_str().unwrap().to_owned())
            .collect()
    }

    fn request(&self, id: &str) -> StoredRequest {
        let queue = self.state.operations();
        let operation = wait(queue.get(id)).unwrap().unwrap();
        wait(queue.request(operation.number)).unwrap().unwrap()
    }

    /// Claims the oldest operation for `b.example.com`, makes one attempt and settles.
    fn settle(&self, result: ClaimResult) {
        let queue = self.state.operations();
        let now = self.state.clock().wall();
        let lane = Lane {
            destination: "b.example.com".to_owned(),
            kind: "default".to_owned(),
        };
        let until = now + Duration::from_secs(60);
        let claims = wait(queue.claim(&lane, Lease { now, until }, 1)).unwrap();
        let attempt = AttemptRecord {
            at: now,
            phase: "answered".to_owned(),
            status: Some(503),
            latency: Duration::from_millis(20),
            waited: Duration::from_millis(5),
            reason: "overloaded".to_owned(),
        };
        let settlement = Settlement {
            now,
            result,
            counters: Counters {
                sent: 1,
                attempts: 1,
                ..Counters::default()
            },
            attempts: vec![attempt],
        };
        let settled = wait(queue.settle(claims.claimed[0].claim, settlement)).unwrap();
        assert!(settled.is_some());
    }

    fn conflict(&self, theirs: &str) {
        let conflict = StoredConflict {
            theirs: Some(theirs.as_bytes().to_vec()),
            etag: Some("\"7\"".to_owned()),
            fetched_at: self.state.clock().wall(),
        };
        self.settle(ClaimResult::Conflict(conflict, None));
    }
}

fn put() -> Value {
    json!({ "method": "PUT", "url": "https://b.example.com/orders/1", "body": { "ours": 1 } })
}

#[test]
fn accepts_an_operation_and_names_its_place() {
    let (running, _folder) = running();
    let answer = running.post("", &put());
    assert_eq!(answer.status, 202, "{}", answer.body);
    let body = answer.json();
    let id = body["id"].as_str().unwrap();
    assert!(id.starts_with("op_"), "{id}");
    assert_eq!(body, json!({ "id": id, "state": "available" }));
    let location = format!("{OPERATIONS}/{id}");
    assert_eq!(answer.header("location"), Some(&*location));
    let shown = running.show(id);
    for (field, expected) in [
        ("type", json!("default")),
        ("state", json!("available")),
        ("reason", Value::Null),
        ("key", json!("b.example.com")),
        ("summary", json!("PUT https://b.example.com/…")),
        ("replay_safe", json!(true)),
        ("sent", json!(0)),
        ("attempts", json!([])),
        ("conflict", Value::Null),
        ("ended_at_ms", Value::Null),
    ] {
        assert_eq!(shown[field], expected, "{field}");
    }
    assert_eq!(shown["next_at_ms"], shown["accepted_at_ms"]);
}

#[test]
fn stores_every_field_of_an_operation() {
    let (running, _folder) = running();
    // Numbers and the order of keys stay as they were written.
    let base = r#"{"b":1.0,"a":12345678901234567890123}"#;
    let operation = json!({
        "type": "large",
        "method": "post",
        "url": "/llm/orders?a=b",
        "headers": { "X-One": "1", "x-two": ["a", "b"], "content-type": "text/plain" },
        "body": "as it is",
        "idempotency_key": "k",
        "credential": "crm",
        "backoff": "aggressive",
        "expires_after": "90s",
        "order_key": "customer 7",
        "priority": -5,
        "base": "BASE",
        "resource": "https://b.example.com/orders/1",
    });
    let operation = operation.to_string().replace("\"BASE\"", base);
    let answer = running.ask("POST", OPERATIONS, Some(&operation));
    assert_eq!(answer.status, 202, "{}", answer.body);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let shown = running.show(&id);
    for (field, expected) in [
        ("type", json!("large")),
        ("key", json!("/llm")),
        ("summary", json!("POST /llm/…")),
        ("credential", json!("crm")),
        ("backoff", json!("aggressive")),
        ("order_key", json!("customer 7")),
        ("priority", json!(-5)),
    ] {
        assert_eq!(shown[field], expected, "{field}");
    }
    let time = shown["expires_at_ms"].as_i64().unwrap() - shown["accepted_at_ms"].as_i64().unwrap();
    assert_eq!(time, 90_000);
    let request = running.request(&id);
    assert_eq!(request.url, "/llm/orders?a=b");
    assert_eq!(request.body, b"as it is");
    assert_eq!(request.base.as_deref(), Some(base.as_bytes()));
    let resource = request.resource.as_deref();
    assert_eq!(resource, Some("https://b.example.com/orders/1"));
    let headers: Vec<&str> = request.headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(headers, ["x-one", "content-type", "x-two", "x-two"]);
}

#[test]
fn sends_strings_as_they_are_and_other_values_as_json() {
    let (running, _folder) = running();
    for (body, expected) in [
        (json!("a"), "a"),
        (json!(""), ""),
        (json!(null), ""),
        (json!(7), "7"),
        (json!([1, "x"]), r#"[1,"x"]"#),
    ] {
        let mut operation = put();
        operation["body"] = body;
        let id = running.accept(&operation);
        assert_eq!(running.request(&id).body, expected.as_bytes());
    }
}

#[test]
fn returns_the_same_operation_for_the_same_key() {
    let (running, _folder) = running();
    let mut keyed = put();
    keyed["idempotency_key"] = json!("k");
    let id = running.accept(&keyed);
    assert_eq!(running.accept(&keyed), id);
    // As a header of the call.
    let token = format!("Authorization: Bearer {}", running.token.expose());
    let json = "Content-Type: application/json";
    let post = |key: &str, body: &Value| {
        let headers = [&*token, json, key];
        ask(
            running.address(),
            "POST",
            OPERATIONS,
            &headers,
            &body.to_string(),
        )
    };
    let answer = post("Idempotency-Key: k", &put());
    assert_eq!((answer.status, &answer.json()["id"]), (202, &json!(id)));
    let answer = post("Idempotency-Key: other", &keyed);
    assert_eq!(answer.problem(), (422, "invalid".into()));
    keyed["body"] = json!("other");
    let answer = running.post("", &keyed);
    assert_eq!(answer.problem(), (422, "idempotency_key_reused".into()));
    assert_eq!(running.list("").len(), 1);
}

#[test]
fn reports_everything_invalid_about_an_operation() {
    let (running, _folder) = running();
    let answer = running.post(
        "",
        &json!({
            "type": "x",
            "url": "ftp://b.example.com/",
            "headers": { "Host": "a", "x-number": 1, "connection": "close" },
            "credential": "x",
            "backoff": 1,
            "expires_after": "30",
            "order_key": "",
            "priority": 101,
            "resource": "/llm/x",
            "idempotency_key": 7,
            "bodi": "",
        }),
    );
    assert_eq!(answer.problem(), (422, "invalid".into()));
    let answer = answer.json();
    let mut fields: Vec<&str> = answer["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["field"].as_str().unwrap())
        .collect();
    fields.sort_unstable();
    let expected = [
        "backoff",
        "bodi",
        "credential",
        "expires_after",
        "headers.Host",
        "headers.connection",
        "headers.x-number",
        "idempotency_key",
        "method",
        "order_key",
        "priority",
        "resource",
        "type",
        "url",
    ];
    assert_eq!(fields, expected);
    assert!(running.list("").is_empty());
}

#[test]
fn refuses_addresses_and_bodies_that_are_not_allowed() {
    let (running, _folder) = running();
    let at = |url: &str| json!({ "method": "PUT", "url": url });
    for url in [
        "http://10.0.0.1/",
        "http://[::1]:80/",
        "http://169.254.169.254/",
    ] {
        let answer = running.post("", &at(url));
        assert_eq!(
            answer.problem(),
            (403, "address_not_allowed".into()),
            "{url}"
        );
    }
    let mut resource = put();
    resource["resource"] = json!("http://127.0.0.1/");
    let answer = running.post("", &resource);
    assert_eq!(answer.problem(), (403, "address_not_allowed".into()));

    let sized = |kind: &str, body: Value| {
        let mut operation = put();
        operation["type"] = json!(kind);
        operation["body"] = body;
        running.post("", &operation)
    };
    assert_eq!(sized("small", json!("0123456789")).status, 202);
    let too_long = (413, "body_too_large".into());
    assert_eq!(sized("small", json!("0123456789a")).problem(), too_long);
    let mut base = put();
    base["type"] = json!("small");
    base["base"] = json!("0123456789a");
    base["body"] = Value::Null;
    assert_eq!(running.post("", &base).problem(), too_long);
    // Every character takes six bytes as JSON.
    let control = |count| json!("\u{1}".repeat(count));
    assert_eq!(sized("large", control(3 << 20)).status, 202);
    assert_eq!(sized("large", control((3 << 20) + 1)).problem(), too_long);
    assert_eq!(sized("default", control((1 << 20) + 1)).problem(), too_long);
    assert_eq!(running.list("").len(), 2);
}

#[test]
fn accepts_nothing_that_it_cannot_store() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Faults::from(3);
    let store = Store::memory_faulty(faults.clone());
    let running = Running::with_store(TWO, folder.path(), store);
    let id = running.accept(&put());
    let unavailable = (503, "store_unavailable".to_owned());
    let answer = running.post("", &put());
    assert_eq!(answer.problem(), unavailable);
    assert!(answer.header("retry-after").is_some());
    let answer = running.post(&format!("/{id}/cancel"), &json!({}));
    assert_eq!(answer.problem(), unavailable);
    faults.heal();
    assert_eq!(running.list(""), [id]);
}

#[test]
fn accepts_nothing_while_it_is_stopping() {
    let (running, _folder) = running();
    let id = running.accept(&put());
    running.admin().drain();
    assert_eq!(running.post("", &put()).problem(), (503, "draining".into()));
    assert_eq!(running.list(""), [id]);
}

#[test]
fn lists_pages_by_filter_while_others_arrive() {
    let (running, _folder) = running();
    let ids: Vec<String> = (0..5).map(|_| running.accept(&put())).collect();
    let first = running.get(&format!("{OPERATIONS}?limit=2"));
    assert_eq!(first["operations"][0]["id"], json!(ids[4]));
    assert_eq!(first["operations"][0]["attempts"], Value::Null);
    running.accept(&put());
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(
        running.list(&format!("limit=2&cursor={cursor}")),
        [&*ids[2], &*ids[1]]
    );
    running.settle(ClaimResult::Failed(TerminalReason::Rejected));
    assert_eq!(running.list("state=failed&reason=rejected"), [&*ids[0]]);
    assert!(running.list("state=failed&reason=exhausted").is_empty());
    assert_eq!(
        running
            .list("state=available&type=default&key=b.example.com")
            .len(),
        5
    );
    assert!(running.list("type=small").is_empty());
    assert!(running.list("key=a.example.com").is_empty());
    assert_eq!(running.list("state=failed,available").len(), 6);
    assert_eq!(running.list("state=failed,conflict"), [&*ids[0]]);
    assert_eq!(running.list(&format!("id={}", ids[3])), [&*ids[3]]);
    assert_eq!(running.list("id=op_").len(), 6);
    assert!(running.list("id=op_x").is_empty());
    // White space, and a control character that counts as such, are text like any other.
    for query in ["id=%C2%85", "type=%20", "key=+"] {
        assert!(running.list(query).is_empty());
    }
    let counts = json!({
        "available": 5, "running": 0, "retryable": 0, "completed": 0, "failed": 1,
        "conflict": 0, "cancelled": 0,
    });
    for query in ["", "state=completed"] {
        let list = running.get(&format!("{OPERATIONS}?{query}"));
        assert_eq!(list["counts"], counts);
    }
    for (query, expected) in [
        ("state=x", "`state` is `x`, expected one of `available`"),
        ("state=failed,", "`state` is `failed,`, expected one of"),
        ("id=", "`id` is ``, expected a name"),
        ("reason=x", "`reason` is `x`, expected one of `exhausted`"),
        (
            "cursor=x",
            "`cursor` is `x`, expected `next_cursor` of the page before",
        ),
        (
            "limit=0",
            "`limit` is `0`, expected a whole number from 1 to 1000",
        ),
        ("type=", "`type` is ``, expected a name"),
        ("page=1", "there is no parameter `page`"),
    ] {
        let answer = running.ask("GET", &format!("{OPERATIONS}?{query}"), None);
        assert_eq!(answer.problem(), (400, "bad_request".into()));
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
}

#[test]
fn shows_attempts_and_the_end() {
    let (running, _folder) = running();
    let id = running.accept(&put());
    running.settle(ClaimResult::Failed(TerminalReason::Exhausted));
    let shown = running.show(&id);
    let attempt = &shown["attempts"][0];
    assert_eq!(
        (&shown["state"], &shown["reason"]),
        (&json!("failed"), &json!("exhausted"))
    );
    assert_eq!(shown["next_at_ms"], Value::Null);
    assert_eq!(shown["expires_at_ms"], Value::Null);
    assert_eq!(shown["ended_at_ms"], attempt["at_ms"]);
    assert_eq!(attempt["status"], 503);
    assert_eq!(attempt["phase"], "answered");
    assert_eq!(attempt["reason"], "overloaded");
    assert_eq!(
        (&attempt["latency_ms"], &attempt["wait_ms"]),
        (&json!(20.0), &json!(5.0))
    );
    assert_eq!(
        (&shown["counted"], &shown["max_attempts"]),
        (&json!(1), &json!(5))
    );
    let delays =
        json!({ "backoff": "standard", "estimate_ms": 31_000, "min_ms": 7500, "max_ms": 22_500 });
    assert_eq!(shown["delays"], delays);
    assert_eq!(shown["waiting_for"], Value::Null);
    let own = json!({ "method": "PUT", "url": "https://b.example.com/", "backoff": "background" });
    let own = running.show(&running.accept(&own));
    assert_eq!(own["max_attempts"], 7);
    assert_eq!(own["delays"]["backoff"], "background");
}

#[test]
fn says_what_an_operation_waits_for() {
    let (running, _folder) = running();
    let waiting = |id: &str| running.show(id)["waiting_for"].clone();
    let id = running.accept(&put());
    assert_eq!(waiting(&id), Value::Null);
    // Its own delay.
    let next = running.state.clock().wall() + Duration::from_secs(60);
    running.settle(ClaimResult::Retry(next));
    let key = "b.example.com";
    let backoff = json!({ "reason": "backoff", "key": key, "until_ms": next.as_unix_millis() });
    assert_eq!(waiting(&id), backoff);
    // A gate that opens later, and one that a person has to open.
    running.ask("POST", "/api/v1/gates/b.example.com/isolate", None);
    let isolated = json!({ "reason": "isolated", "key": key, "until_ms": null });
    assert_eq!(waiting(&id), isolated);
    let listed = running.get(&format!("{OPERATIONS}?state=retryable"));
    assert_eq!(listed["operations"][0]["waiting_for"], isolated);
    running.ask("POST", "/api/v1/gates/b.example.com/release", None);
    assert_eq!(waiting(&id), backoff);
    // An older one with the same order key.
    let ordered = json!({ "method": "PUT", "url": "https://c.example.com/", "order_key": "k" });
    running.accept(&ordered);
    let second = running.accept(&ordered);
    let order = json!({ "reason": "order", "key": "c.example.com", "until_ms": null });
    assert_eq!(waiting(&second), order);
    // A pool without an endpoint that may be used.
    let pooled = running.accept(&json!({ "method": "PUT", "url": "/llm/orders" }));
    assert_eq!(waiting(&pooled), Value::Null);
    let switch = |name: &str| {
        let path = format!("/api/v1/pools/llm/endpoints/{name}");
        running.ask("PATCH", &path, Some(r#"{"enabled":false}"#));
    };
    switch("a");
    assert_eq!(waiting(&pooled), Value::Null);
    running.ask("POST", "/api/v1/gates/llm%2Fb/isolate", None);
    assert_eq!(
        waiting(&pooled),
        json!({ "reason": "isolated", "key": "llm/b", "until_ms": null })
    );
    switch("b");
    let disabled = json!({ "reason": "disabled", "key": "/llm", "until_ms": null });
    assert_eq!(waiting(&pooled), disabled);
    for name in ["a", "b"] {
        let path = format!("/api/v1/pools/llm/endpoints/{name}");
        running.ask("DELETE", &path, None);
    }
    assert_eq!(waiting(&pooled)["reason"], "no_endpoint");
}

#[test]
fn changes_operations_that_are_named() {
    let (running, _folder) = running();
    let failed: Vec<String> = (0..2)
        .map(|_| {
            let id = running.accept(&put());
            running.settle(ClaimResult::Failed(TerminalReason::Exhausted));
            id
        })
        .collect();
    let waiting = running.accept(&put());
    let ids = json!([failed[0], waiting, failed[1], "op_unknown"]);
    let bulk = |action: &str, body: Value| {
        let answer = running.post(&format!("/{action}"), &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let left_out = |reason: &str| json!({ "reason": reason, "count": 1 });
    let dry = bulk(
        "retry",
        json!({ "filter": { "ids": ids }, "dry_run": true }),
    );
    assert_eq!(
        (&dry["matched"], &dry["will"], &dry["changed"]),
        (&json!(4), &json!(2), &json!(0))
    );
    assert_eq!(
        dry["left_out"],
        json!([left_out("state"), left_out("not_found")])
    );
    assert_eq!(dry["sample"][0]["id"], json!(failed[0]));
    let done = bulk("retry", json!({ "filter": { "ids": ids } }));
    assert_eq!((&done["will"], &done["changed"]), (&json!(2), &json!(2)));
    assert_eq!(done["sample"][0]["state"], "available");
    // Without a state, and with a filter that only one of them matches.
    let small = json!({ "method": "PUT", "url": "https://b.example.com/", "type": "small" });
    let small = running.accept(&small);
    let filter = json!({ "ids": [small, waiting], "type": "small" });
    let done = bulk("cancel", json!({ "filter": filter }));
    assert_eq!(
        (&done["changed"], &done["left_out"]),
        (&json!(1), &json!([left_out("state")]))
    );
    let prefix = json!({ "state": "available", "id": waiting });
    let done = bulk("cancel", json!({ "filter": prefix }));
    assert_eq!((&done["matched"], &done["changed"]), (&json!(1), &json!(1)));
}

#[test]
fn leaves_operations_out_that_are_not_replay_safe() {
    let (running, _folder) = running();
    let now = running.state.clock().wall();
    let new = NewOperation {
        id: "op_unsafe".to_owned(),
        kind: "default".to_owned(),
        destination: "b.example.com".to_owned(),
        request: StoredRequest::default(),
        summary: "POST https://b.example.com".to_owned(),
        idempotency_key: String::new(),
        client: String::new(),
        fingerprint: Vec::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: None,
        accepted_at: now,
        expires_at: now + Duration::from_secs(60),
        retain: Duration::from_secs(60),
        is_reported: false,
    };
    wait(running.state.operations().insert(new)).unwrap();
    running.settle(ClaimResult::Failed(TerminalReason::Exhausted));
    let retry = |body: Value| running.post("/retry", &body).json();
    let result = retry(json!({ "filter": {} }));
    assert_eq!(result["sample"][0]["replay_safe"], false);
    assert_eq!(
        (&result["matched"], &result["changed"]),
        (&json!(1), &json!(0))
    );
    let expected = json!([{ "reason": "not_replay_safe", "count": 1 }]);
    assert_eq!(result["left_out"], expected);
    let result = retry(json!({ "filter": {}, "include_unsafe": true, "dry_run": true }));
    assert_eq!(
        (&result["will"], &result["left_out"]),
        (&json!(1), &json!([]))
    );
    let result = retry(json!({ "filter": {}, "include_unsafe": true }));
    assert_eq!(result["changed"], 1);
}

#[test]
fn retries_and_cancels_where_that_is_possible() {
    let (running, _folder) = running();
    let id = running.accept(&put());
    let decide = |action: &str| running.ask("POST", &format!("{OPERATIONS}/{id}/{action}"), None);
    let refused = decide("retry");
    assert_eq!(refused.problem(), (409, "wrong_state".into()));
    assert_eq!(
        refused.json()["detail"],
        "cannot retry an operation that is available"
    );
    let cancelled = decide("cancel");
    assert_eq!(
        (cancelled.status, &cancelled.json()["state"]),
        (200, &json!("cancelled"))
    );
    assert_eq!(decide("cancel").problem(), (409, "wrong_state".into()));
    let retried = decide("retry");
    assert_eq!(
        (retried.status, &retried.json()["state"]),
        (200, &json!("available"))
    );
    let unknown = running.ask("POST", &format!("{OPERATIONS}/op_x/retry"), None);
    assert_eq!(unknown.problem(), (404, "not_found".into()));
    assert!(unknown.body.contains("`op_x`"), "{}", unknown.body);
}

#[test]
fn shows_the_documents_of_a_conflict_only() {
    let (running, _folder) = running();
    let mut operation = put();
    operation["base"] = json!("no JSON");
    let id = running.accept(&operation);
    let path = format!("{OPERATIONS}/{id}/conflict");
    let none = running.ask("GET", &path, None);
    assert_eq!(none.problem(), (404, "not_found".into()));
    assert_eq!(
        none.json()["detail"],
        "the operation is in no conflict: it is available"
    );
    running.conflict(r#"{"theirs":1e400}"#);
    let shown = running.show(&id);
    assert_eq!(
        (&shown["state"], &shown["reason"]),
        (&json!("conflict"), &json!("conflict"))
    );
    assert_eq!(shown["conflict"], json!({ "rounds": 0 }));
    let body = running.ask("GET", &path, None).body;
    assert!(
        body.contains(r#""base":"no JSON","ours":{"ours":1},"theirs":{"theirs":1e400}"#),
        "{body}"
    );
    assert!(body.contains("fetched_ms"), "{body}");
}

#[test]
fn resolves_conflicts() {
    let (running, _folder) = running();
    let mut operation = put();
    operation["headers"] = json!({ "if-match": "\"1\"" });
    let id = running.accept(&operation);
    let resolve = |body: Value| running.post(&format!("/{id}/resolve"), &body);
    let key = || {
        let found = wait(running.state.operations().get(&id)).unwrap();
        found.unwrap().idempotency_key
    };
    let state = |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["state"].clone()
    };
    let early = resolve(json!({ "action": "resend" }));
    assert_eq!(early.problem(), (409, "wrong_state".into()));
    assert_eq!(
        early.json()["detail"],
        "cannot resolve an operation that is available"
    );

    running.conflict("{}");
    for (wrong, expected) in [
        (json!({}), "`action`: is missing"),
        (json!({ "action": "merge" }), "`action` is `merge`"),
        (json!({ "action": "replace" }), "`body`: is missing"),
        (
            json!({ "action": "resend", "body": 1 }),
            "`body`: is used by `replace` only",
        ),
    ] {
        let answer = resolve(wrong);
        assert_eq!(answer.problem(), (422, "invalid".into()));
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
    let long = "x".repeat((1 << 20) + 1);
    let answer = resolve(json!({ "action": "replace", "body": long }));
    assert_eq!(answer.problem(), (413, "body_too_large".into()));

    assert_eq!(state(resolve(json!({ "action": "resend" }))), "available");
    let request = running.request(&id);
    let expected = [("content-type", "application/json"), ("if-match", "\"7\"")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    assert_eq!(request.headers, expected);
    assert_eq!(request.body, br#"{"ours":1}"#);
    assert_eq!(key(), id);

    running.conflict("{}");
    let replaced = resolve(json!({ "action": "replace", "body": { "merged": 1 } }));
    assert_eq!(state(replaced), "available");
    assert_eq!(running.request(&id).body, br#"{"merged":1}"#);
    assert_ne!(key(), id);

    running.conflict("{}");
    let retry = running.post(&format!("/{id}/retry"), &json!({}));
    assert_eq!(retry.problem(), (409, "wrong_state".into()));
    assert_eq!(state(resolve(json!({ "action": "discard" }))), "cancelled");
}

#[test]
fn changes_every_operation_that_a_filter_matches() {
    let (running, _folder) = running();
    for _ in 0..3 {
        running.accept(&put());
        running.settle(ClaimResult::Failed(TerminalReason::Exhausted));
    }
    running.accept(&put());
    running.settle(ClaimResult::Failed(TerminalReason::Rejected));
    running.accept(&put());
    running.conflict("{}");
    let bulk = |action: &str, body: Value| {
        let answer = running.post(&format!("/{action}"), &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let bulk = |action: &str, body: Value| {
        let mut result = bulk(action, body);
        let sample = result["sample"].take();
        assert_eq!(sample.as_array().unwrap().len() as u64, result["matched"]);
        result
    };
    let result = |matched: u64, changed: u64, dry_run: bool| {
        json!({
            "matched": matched, "will": matched, "changed": changed, "left_out": [],
            "sample": null, "dry_run": dry_run, "next_cursor": null,
        })
    };
    let exhausted = json!({ "reason": "exhausted" });
    let dry = json!({ "filter": exhausted, "dry_run": true });
    assert_eq!(bulk("retry", dry), result(3, 0, true));
    assert_eq!(running.list("state=failed").len(), 4);
    let all = bulk("retry", json!({ "filter": exhausted }));
    assert_eq!(all, result(3, 3, false));
    assert_eq!(bulk("retry", json!({ "filter": {} })), result(1, 1, false));
    assert_eq!(running.list("state=available").len(), 4);
    // A conflict is resolved, not retried.
    assert_eq!(running.list("state=conflict").len(), 1);
    let conflicts = json!({ "filter": { "state": "conflict" } });
    assert_eq!(
        running.post("/retry", &conflicts).problem(),
        (422, "invalid".into())
    );
    let everything = running.post("/cancel", &json!({ "filter": {} }));
    assert_eq!(everything.problem(), (422, "invalid".into()));
    assert!(
        everything.body.contains("`filter.state`: is missing"),
        "{}",
        everything.body
    );
    let key =
        json!({ "filter": { "state": "available", "key": "b.example.com", "type": "default" } });
    assert_eq!(bulk("cancel", key), result(4, 4, false));
    for wrong in [
        json!({}),
        json!({ "filter": 1 }),
        json!({ "filter": { "states": "failed" } }),
        json!({ "filter": {}, "dry_run": 1 }),
        json!({ "filter": {}, "include_unsafe": "yes" }),
        json!({ "filter": { "ids": [] } }),
        json!({ "filter": { "ids": [7] } }),
        json!({ "filter": { "ids": [""] } }),
        json!({ "filter": { "ids": vec!["op_x"; 1001] } }),
        json!({ "filter": { "id": "" } }),
        json!({ "filter": {}, "cursor": "x" }),
    ] {
        assert_eq!(
            running.post("/retry", &wrong).problem(),
            (422, "invalid".into()),
            "{wrong}"
        );
    }
}

#[test]
fn changes_no_more_operations_than_a_limit() {
    let (running, _folder) = running();
    let ids: Vec<String> = (0..3).map(|_| running.accept(&put())).collect();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.build().unwrap();
    let cancel = |before| {
        let available = vec!["available".to_owned()];
        let request = BulkRequest {
            ids: None,
            filter: OperationFilter {
                states: available.clone(),
                ..OperationFilter::default()
            },
            states: available,
            event: OperationEvent::Cancel,
            includes_unsafe: false,
            is_dry_run: false,
            before,
            limit: 2,
        };
        let decided = running.state.decide_operations(&request);
        runtime.block_on(decided).unwrap()
    };
    let first = cancel(None);
    assert_eq!((first.matched, first.changed), (2, 2));
    assert_eq!(running.list("state=available"), [&*ids[0]]);
    let rest = cancel(first.before);
    assert_eq!((rest.matched, rest.changed, rest.before), (1, 1, None));
}
