//! `Prefer: respond-async` on the data plane: 202, then the state, then the upstream's response.

use std::net::TcpListener;

use super::support::{Running, Upstream, post};
use super::wire::Reply;

fn settings(upstream: &Upstream, more: &str) -> String {
    let url = upstream.url("/v1");
    format!(
        "[backoff.standard]\nbase = \"20ms\"\nmax = \"40ms\"\n\
         [pool.llm]\nendpoints = [{{ name = \"a\", url = \"{url}\" }}]\n{more}"
    )
}

/// Reads the state at `location` until the operation has ended.
fn until_ended(running: &Running, location: &str, head: &str) -> Reply {
    loop {
        let reply = running.send("GET", location, head, "");
        let is_state = reply.header("content-type") == Some("application/json");
        if reply.status != 202 || !is_state {
            return reply;
        }
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{reply:?}");
        running.pause();
    }
}

#[test]
fn becomes_an_operation_whose_response_is_read_later() {
    let upstream = Upstream::new(|number, _| match number {
        1 => (503, String::new(), String::new()),
        _ => (201, "x-model: m-7\r\n".to_owned(), "made".to_owned()),
    });
    let running = Running::new(&settings(&upstream, ""));
    let head = "prefer: respond-async\r\nidempotency-key: k-1\r\nx-team: blue\r\n";
    let accepted = running.send("POST", "/llm/chat?stream=no", head, "hello");
    assert_eq!(accepted.status, 202, "{accepted:?}");
    assert_eq!(accepted.header("preference-applied"), Some("respond-async"));
    assert_eq!(accepted.header("tidegate-attempts"), Some("0"));
    let location = accepted.header("location").unwrap();
    let id = accepted.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(location, format!("/.tidegate/operations/{id}"));

    let reply = until_ended(&running, location, "");
    assert_eq!((reply.status, reply.text()), (201, "made"));
    assert_eq!(reply.header("x-model"), Some("m-7"));

    let received = upstream.received();
    assert_eq!(received.len(), 2);
    assert!(
        received[1]
            .head
            .starts_with("POST /v1/chat?stream=no HTTP/1.1\r\n")
    );
    assert_eq!(
        received[1].header("idempotency-key").as_deref(),
        Some("k-1")
    );
    assert_eq!(received[1].header("x-team").as_deref(), Some("blue"));
    assert_eq!(received[1].header("prefer"), None);
    assert_eq!(received[1].body, "hello");

    let again = running.send("POST", "/llm/chat?stream=no", head, "hello");
    assert_eq!(again.json()["id"], id, "the same key is the same operation");
    let other = running.send("POST", "/llm/chat?stream=no", head, "bye");
    assert_eq!(other.status, 422);
    assert_eq!(
        other.header("tidegate-reason"),
        Some("idempotency_key_reused")
    );
}

#[test]
fn shows_why_an_operation_failed() {
    let upstream = Upstream::statuses(&[404]);
    let running = Running::new(&settings(&upstream, ""));
    let accepted = running.send("POST", "/llm/x", "prefer: respond-async\r\n", "");
    let reply = until_ended(&running, accepted.header("location").unwrap(), "");
    assert_eq!(reply.status, 502);
    assert_eq!(reply.header("tidegate-reason"), Some("rejected"));
    assert_eq!(reply.json()["state"], "failed");
}

#[test]
fn only_its_own_client_reads_an_operation() {
    let upstream = Upstream::statuses(&[200]);
    let clients = "[client.one]\ntoken = \"file:TOKEN1\"\n[client.two]\ntoken = \"file:TOKEN2\"\n";
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = ("a-token-of-sixteen", "b-token-of-sixteen");
    let mut clients = clients.to_owned();
    for (name, token) in [("TOKEN1", one), ("TOKEN2", two)] {
        let path = folder.path().join(name);
        std::fs::write(&path, token).unwrap();
        clients = clients.replace(name, path.to_str().unwrap());
    }
    let running = Running::new(&settings(&upstream, &clients));
    let head = |token: &str| format!("tidegate-token: {token}\r\nprefer: respond-async\r\n");
    let accepted = running.send("POST", "/llm/x", &head(one), "");
    let location = accepted.header("location").unwrap();
    assert_eq!(until_ended(&running, location, &head(one)).status, 200);
    assert_eq!(running.send("GET", location, &head(two), "").status, 404);
    assert_eq!(running.send("GET", location, "", "").status, 401);
    assert_eq!(running.send("DELETE", location, &head(one), "").status, 404);
    // An operation of the admin API belongs to no client.
    let id = running.post(&upstream.url("/"));
    let path = format!("/.tidegate/operations/{id}");
    assert_eq!(running.send("GET", &path, &head(one), "").status, 404);
}

#[test]
fn cost_counts_at_the_gate_and_is_not_sent() {
    let upstream = Upstream::new(|_, _| {
        let usage = r#"{"usage":{"total_tokens":300}}"#;
        let head = "content-type: application/json\r\n";
        (200, head.to_owned(), usage.to_owned())
    });
    let running = Running::new(&settings(&upstream, ""));
    let head = "prefer: respond-async\r\ntidegate-cost: 200\r\n";
    for _ in 0..3 {
        let accepted = running.send("POST", "/llm/x", head, "");
        assert_eq!(accepted.status, 202);
        let location = accepted.header("location").unwrap();
        assert_eq!(until_ended(&running, location, "").status, 200);
    }
    let mut given = post(&upstream.url("/"));
    given.headers = vec![("Tidegate-Cost".to_owned(), "50".to_owned())];
    let id = running.accept(given.clone()).unwrap().operation.id;
    running.until(&id, "completed");
    given.headers[0].1 = "none".to_owned();
    let refused = running.accept(given).unwrap_err().to_string();
    assert_eq!(refused, "a value is invalid");
    let sent = upstream.received();
    assert!(
        sent.iter()
            .all(|request| request.header("tidegate-cost").is_none())
    );
    let limiter = running.state.limiter();
    let key = limiter.gate("llm/a").unwrap();
    let mean = key.gate.cost.expect("requests have a cost").mean;
    assert!((mean - 300.0).abs() < 1.0, "{mean}");
}

#[test]
fn a_body_over_the_bound_is_refused() {
    let upstream = Upstream::statuses(&[200]);
    let running = Running::new(&settings(
        &upstream,
        "[operation.default]\nmax_body = \"1KiB\"\n",
    ));
    let body = "x".repeat(2000);
    let refused = running.send("POST", "/llm/x", "prefer: respond-async\r\n", &body);
    assert_eq!(refused.status, 413);
    assert_eq!(running.state.operations().counts(), Default::default());
}

#[test]
fn refuses_operations_over_the_bound_until_there_is_room() {
    // Nothing listens there, so the first two stay.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let upstream = Upstream::statuses(&[200]);
    let running = Running::new(&settings(&upstream, "[storage]\nmax_operations = 2\n"));
    let ids = [1, 2].map(|_| running.post(&format!("http://{closed}/")));
    let respond_async = || running.send("POST", "/llm/x", "prefer: respond-async\r\n", "x");
    let refused = respond_async();
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("tidegate-reason"), Some("queue_full"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(running.state.operations().counts().unresolved(), 2);

    running.cancel(&ids[0]);
    assert_eq!(respond_async().status, 202);
}
