//! Looking on: gates, trails of requests, and events as they happen.

use std::io::{BufRead, BufReader, Write};

use app::core::EventKinds;
use serde_json::{Value, json};

use crate::support::{Running, TWO, ask, connect, read_head, upstream};

/// A pool with one endpoint at an upstream that answers like this.
fn pool_at(statuses: &'static [u16]) -> String {
    let address = upstream(statuses);
    format!("[pool.llm]\nendpoints = [{{ name = \"a\", url = \"http://{address}\" }}]\n")
}

#[test]
fn shows_every_field_of_a_gate() {
    let (running, _folder) = Running::new(&pool_at(&[200]));
    let gateway = &running.gateway;
    assert_eq!(ask(gateway.address(), "GET", "/llm/x", &[], "").status, 200);
    let seen = running.get("/api/v1/gates?sort=key&limit=10");
    let fields =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(
        fields(&seen["totals"]),
        [
            "denied",
            "evicted",
            "gates",
            "half_open",
            "held",
            "in_flight",
            "isolated",
            "open",
            "requests",
            "retries",
            "throttled",
            "waiting"
        ]
    );
    let gate = &seen["gates"][0];
    assert_eq!(
        fields(gate),
        [
            "accepted_per_second",
            "breaker",
            "ceiling",
            "consecutive_failures",
            "cost",
            "counts",
            "error_rate",
            "failed_per_second",
            "hold",
            "in_flight",
            "key",
            "latency_ms",
            "phase",
            "rate_per_second",
            "refused_per_second",
            "strategy",
            "tokens",
            "waiting",
            "why",
            "window"
        ]
    );
    assert_eq!(fields(&gate["latency_ms"]), ["ewma", "p95"]);
    assert_eq!(
        gate["breaker"],
        json!({ "state": "closed", "until_ms": null, "since_ms": null, "reason": null })
    );
    assert_eq!(
        fields(&gate["counts"]),
        ["admitted", "failed", "success", "throttled"]
    );
    assert_eq!(gate["counts"]["success"], 1);
    let why = gate["why"].as_str().unwrap();
    assert!(why.starts_with("searching from "), "{why}");
    assert!(
        why.ends_with("/s upwards: nothing was refused yet"),
        "{why}"
    );
    assert_eq!(fields(&gate["window"]), ["failed", "total"]);
    assert_eq!(
        (&gate["key"], &gate["hold"]),
        (&json!("llm/a"), &Value::Null)
    );
    assert_eq!(
        (&seen["totals"]["requests"], &seen["totals"]["gates"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn isolates_releases_and_resets_a_gate_by_either_spelling() {
    let (running, _folder) = Running::new(TWO);
    let state = |path: &str| {
        let answer = running.ask("POST", path, None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()["breaker"]["state"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(state("/api/v1/gates/llm/a/isolate"), "isolated");
    assert_eq!(state("/api/v1/gates/llm%2Fa/release"), "closed");
    assert_eq!(state("/api/v1/gates/llm%2Fa/isolate"), "isolated");
    assert_eq!(state("/api/v1/gates/llm/a/reset"), "closed");
    assert_eq!(
        state("/api/v1/gates/api.example.com:8080/isolate"),
        "isolated"
    );
    for path in ["/api/v1/gates/llm/a", "/api/v1/gates/llm%2Fa"] {
        let gate = running.get(path);
        assert_eq!(gate["key"], "llm/a");
        assert_eq!(gate["why"], "starting at 2/s: nothing was answered yet");
    }
    assert_eq!(running.get("/api/v1/gates")["totals"]["open"], 1);
    for path in [
        "/api/v1/gates/llm/c/isolate",
        "/api/v1/gates/Api.Example.com/isolate",
        "/api/v1/gates/other.example.com/reset",
        "/api/v1/gates/other.example.com/release",
    ] {
        let answer = running.ask("POST", path, None);
        assert_eq!(answer.problem(), (404, "not_found".to_owned()), "{path}");
    }
    let answer = running.ask("GET", "/api/v1/gates/llm/aa", None).json();
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("did you mean `llm/a`?"), "{detail}");
}

#[test]
fn explains_a_request_step_by_step() {
    let (running, _folder) = Running::new(&pool_at(&[500, 200]));
    let gateway = &running.gateway;
    let answer = ask(gateway.address(), "GET", "/llm/x", &[], "");
    let id = answer.header("tidegate-request-id").unwrap();
    let explained = running.get(&format!("/api/v1/explain/{id}"));
    assert_eq!(
        (&explained["id"], &explained["method"]),
        (&json!(id), &json!("GET"))
    );
    assert_eq!(
        (&explained["route"], &explained["status"]),
        (&json!("llm"), &json!(200))
    );
    assert_eq!(
        (&explained["attempts"], &explained["outcome"]),
        (&json!(2), &json!("success"))
    );
    assert!(explained["waited_ms"].as_f64().unwrap() > 0.0);
    let steps = explained["steps"].as_array().unwrap();
    let kinds: Vec<&str> = steps
        .iter()
        .map(|step| step["kind"].as_str().unwrap())
        .filter(|kind| *kind != "waiting")
        .collect();
    assert_eq!(
        kinds,
        ["admitted", "answered", "scheduled", "admitted", "answered"]
    );
    let first = steps
        .iter()
        .find(|step| step["kind"] == "answered")
        .unwrap();
    assert_eq!(
        (&first["status"], &first["verdict"]),
        (&json!(500), &json!("overloaded"))
    );
    let unknown = running.ask("GET", "/api/v1/explain/000000000000000000000000", None);
    assert_eq!(unknown.problem(), (404, "not_found".to_owned()));
    let detail = unknown.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("the last 10000 requests"), "{detail}");
}

#[test]
fn streams_events_as_they_happen() {
    let (running, _folder) = Running::new(TWO);
    let mut stream = connect(running.address());
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        running.address(),
        running.token.expose()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let (status, headers) = read_head(&mut reader);
    assert_eq!(status, 200);
    let kind = headers.iter().find(|(name, _)| name == "content-type");
    assert_eq!(kind.unwrap().1, "text/event-stream");
    let mut lines = reader.lines().map(Result::unwrap);
    // It has begun; events from now on are sent.
    lines.find(|line| line == "event: hello").unwrap();
    running.state.limiter().isolate("llm/a").unwrap();
    let pool = "/api/v1/pools/llm/endpoints/b";
    running.ask("PATCH", pool, Some(r#"{"enabled":false}"#));
    let mut next = || {
        let event = lines.find(|line| line.starts_with("event: ")).unwrap();
        let data = lines.next().unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (event["event: ".len()..].to_owned(), data)
    };
    let (event, data) = next();
    assert_eq!(
        (&*event, &data["change"], &data["text"]),
        (
            "gate_overridden",
            &json!("isolate"),
            &json!("llm/a isolated by a person")
        )
    );
    let (event, data) = next();
    assert_eq!((&*event, &data["key"]), ("breaker_opened", &json!("llm/a")));
    assert!(data["at_ms"].as_i64().unwrap() > 1_600_000_000_000);
    assert_eq!(data["until_ms"], Value::Null);
    let (event, data) = next();
    assert_eq!(event, "endpoint_disabled");
    assert_eq!(
        (&data["pool"], &data["endpoint"], &data["reason"]),
        (&json!("llm"), &json!("b"), &json!("person"))
    );
    // An open event stream does not keep a server from ending.
    drop(running);
    let rest: Vec<String> = lines.collect();
    assert_eq!(
        rest.iter().filter(|line| line.starts_with("event")).count(),
        0
    );
}

#[test]
fn refuses_more_than_the_maximum_of_event_streams() {
    let (running, _folder) = Running::new(TWO);
    let hub = running.state.core().events();
    let all: Vec<_> = std::iter::from_fn(|| hub.subscribe(EventKinds::Changes)).collect();
    assert_eq!(all.len(), 128);
    let answer = running.ask("GET", "/api/v1/events", None);
    assert_eq!(answer.problem(), (503, "too_many_streams".to_owned()));
}
