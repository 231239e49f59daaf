//! What is sent again, when, and with what.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use crate::support::{
    Fixture, OPEN, Raw, closed_port, mock, pause, pool, request, scripted, until,
};

/// An upstream that answers with these statuses and keeps what it got.
fn keeping(statuses: &'static [u16]) -> (Raw, Arc<Mutex<Vec<String>>>) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&got);
    let raw = Raw::start(move |_, mut client| {
        while let Some(text) = client.request() {
            let mut got = got.lock().unwrap();
            let status = statuses[got.len().min(statuses.len() - 1)];
            got.push(text);
            client.send(&format!(
                "HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok"
            ));
        }
    });
    (raw, bodies)
}

#[test]
fn logs_each_retry_and_the_exhausted_request() {
    let (raw, _) = keeping(&[500]);
    assert_logs_exhausted(&raw.url(), 500);
    assert_logs_exhausted(&format!("http://{}", closed_port()), 502);
}

fn assert_logs_exhausted(upstream: &str, status: u16) {
    let gateway = Fixture::before(upstream);
    let reply = gateway.get("/api/echo");
    assert_eq!((reply.status, reply.attempts()), (status, 4));
    let log = gateway.logged();
    let id = reply.header("tidegate-request-id").unwrap();
    let of = |event: &str| {
        let begin = format!("\"event\":\"{event}\",\"request_id\":\"{id}\",");
        log.lines().filter(|line| line.contains(&begin)).count()
    };
    assert_eq!(
        (of("retry_scheduled"), of("request_exhausted")),
        (3, 1),
        "{log}"
    );
    let expected = format!("\"key\":\"api\",\"attempts\":4,\"trace_id\":\"{id:0>32}\"");
    assert!(log.contains(&expected), "{log}");
}

#[test]
fn resends_a_post_with_idempotency_key_and_whole_body() {
    let (raw, got) = keeping(&[503, 503, 200]);
    let gateway = Fixture::before(&raw.url());
    let body = "0123456789".repeat(5000);
    let reply = gateway
        .connect()
        .post("/api/x", &["idempotency-key: k1"], &body);
    assert_eq!((reply.status, reply.attempts()), (200, 3));
    let got = got.lock().unwrap();
    assert_eq!(got.len(), 3);
    for text in &*got {
        assert!(text.ends_with(&body));
        assert!(text.contains("idempotency-key: k1\r\n"));
    }
    assert_eq!(got[0], got[2]);
}

#[test]
fn resends_a_chunked_body_with_its_trailers() {
    let mock = scripted("503,503,200");
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    let headers = [
        "transfer-encoding: chunked",
        "trailer: x-sum",
        "idempotency-key: k",
    ];
    client.send(&request("POST", "/api/echo", &headers, ""));
    client.send("5\r\nhello\r\n6\r\n world\r\n0\r\nx-sum: 42\r\n\r\n");
    let reply = client.reply(false).unwrap();
    assert_eq!((reply.status, reply.attempts()), (200, 3));
    assert_eq!(reply.json()["body_length"], 11);
    assert_eq!(reply.json()["trailers"]["x-sum"], "42");
}

#[test]
fn sends_a_post_without_idempotency_key_once() {
    let mock = scripted("503,200");
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.connect().post("/api/x", &[], "hello");
    assert_eq!(
        (reply.status, reply.attempts(), reply.reason()),
        (503, 1, None)
    );
    // An empty key is none.
    let mock = scripted("503,200");
    let gateway = Fixture::before(&mock.url());
    let reply = gateway
        .connect()
        .post("/api/x", &["idempotency-key: "], "hello");
    assert_eq!((reply.status, reply.attempts()), (503, 1));
}

#[test]
fn resends_a_throttled_post() {
    let mock = scripted("429,200");
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.connect().post("/api/echo", &[], "hello");
    assert_eq!((reply.status, reply.attempts()), (200, 2));
    assert_eq!(reply.json()["body_length"], 5);
}

#[test]
fn retry_unsafe_resends_posts() {
    let mock = scripted("503,200");
    let gateway = Fixture::with(&mock.url(), "retry_unsafe = true\n");
    let reply = gateway.connect().post("/api/x", &[], "hello");
    assert_eq!((reply.status, reply.attempts()), (200, 2));
}

#[test]
fn resends_a_post_whose_connection_failed() {
    let mock = mock();
    let dead = format!("http://{}", closed_port());
    let settings = pool(&[("a", &dead), ("b", &mock.url())]);
    let gateway = Fixture::new(&format!("{OPEN}{settings}balance = \"first\"\n"));
    let reply = gateway.connect().post("/api/echo", &[], "hello");
    assert_eq!((reply.status, reply.attempts()), (200, 2));
    assert_eq!(reply.json()["body_length"], 5);
    assert_eq!(reply.header("tidegate-endpoint"), Some("b"));
}

#[test]
fn does_not_resend_a_post_whose_connection_broke() {
    let mock = scripted("reset,200");
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.connect().post("/api/x", &[], "hello");
    reply.is_own(502, "unreachable");
    assert_eq!(reply.attempts(), 1);
    assert_eq!(mock.stats().received, 1);
    let mock = scripted("reset,200");
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.get("/api/x");
    assert_eq!((reply.status, reply.attempts()), (200, 2));
}

#[test]
fn sends_a_body_beyond_the_replay_buffer_once() {
    let mock = scripted("503,503,503,200");
    let gateway = Fixture::with(&mock.url(), "[http]\nreplay_buffer = \"1KiB\"\n");
    let mut client = gateway.connect();
    let key = ["idempotency-key: k"];
    let reply = client.post("/api/x", &key, &"x".repeat(1025));
    assert_eq!(
        (reply.status, reply.attempts(), reply.reason()),
        (503, 1, None)
    );
    let reply = client.post("/api/x", &key, &"x".repeat(1024));
    assert_eq!((reply.status, reply.attempts()), (200, 3));
}

#[test]
fn resending_on_a_fresh_connection_is_no_attempt() {
    // Answers once per connection and closes it later, without having said so.
    let raw = Raw::start(|_, mut client| {
        client.request();
        client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        // Until the other request is on its way, on whatever connection.
        client.request_head();
    });
    let gateway = Fixture::before(&raw.url());
    let mut client = gateway.connect();
    for connections in 1..6 {
        let reply = client.get("/api/x");
        assert_eq!((reply.status, reply.attempts()), (200, 1), "{connections}");
    }
    assert!(raw.connections() >= 5);
}

#[test]
fn resends_an_unwritten_post_on_another_connection() {
    let raw = Raw::start(|_, mut client| {
        client.request();
        client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let gateway = Fixture::before(&raw.url());
    let mut client = gateway.connect();
    for number in 1..6 {
        let reply = client.post("/api/x", &[], "hello");
        assert_eq!((reply.status, reply.attempts()), (200, 1));
        until("the connection is closed", || raw.connections() == number);
        pause(20);
    }
}

#[test]
fn resends_after_an_early_response_that_left_the_body_unread() {
    // Answers without reading the body, and leaves the connection open.
    let raw = Raw::start(|number, mut client| {
        if number == 0 {
            client.request_head();
            client.send("HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\nno");
            pause(30_000);
        } else {
            let text = client.request().unwrap();
            let length = text.split("\r\n\r\n").nth(1).unwrap().len();
            client.send(&format!(
                "HTTP/1.1 200 X\r\nx-got: {length}\r\ncontent-length: 0\r\n\r\n"
            ));
        }
    });
    let gateway = Fixture::with(&raw.url(), "[http]\nmin_body_rate = \"0B/s\"\n");
    let mut client = gateway.connect();
    let headers = ["idempotency-key: k", "content-length: 600000"];
    client.send(&request("POST", "/api/x", &headers, ""));
    for _ in 0..60 {
        client.send(&"x".repeat(10_000));
        pause(5);
    }
    let reply = client.reply(false).unwrap();
    assert_eq!((reply.status, reply.attempts()), (200, 2));
    assert_eq!(reply.header("x-got"), Some("600000"));
}

#[test]
fn passes_on_401_without_a_credential() {
    let mock = scripted("401,200");
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.get("/api/x");
    assert_eq!(
        (reply.status, reply.attempts(), reply.reason()),
        (401, 1, None)
    );
}

#[test]
fn sends_once_on_final_statuses() {
    for status in ["400", "403", "404", "409", "412", "422"] {
        let mock = scripted(&format!("{status},200"));
        let gateway = Fixture::before(&mock.url());
        let reply = gateway.get("/api/x");
        assert_eq!(
            (reply.status.to_string().as_str(), reply.attempts()),
            (status, 1)
        );
    }
}

#[test]
fn resends_on_temporary_statuses() {
    for status in ["408", "429", "500", "502", "503", "504", "529"] {
        let mock = scripted(&format!("{status},200"));
        let gateway = Fixture::before(&mock.url());
        let reply = gateway.get("/api/x");
        assert_eq!((reply.status, reply.attempts()), (200, 2), "{status}");
    }
    // With a time to come back the server says that it did nothing.
    let mock = scripted("503:1,200");
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.connect().post("/api/x", &[], "hello");
    assert_eq!((reply.status, reply.attempts()), (200, 2));
    assert_eq!(mock.stats().early, 0);
}

/// Answers the first request on each connection, all of them together, and closes the connection
/// without a response at the second. Counts those second requests.
fn closing_at_second_request(together: usize) -> (Raw, Arc<AtomicUsize>) {
    let unanswered = Arc::new(AtomicUsize::new(0));
    let (count, barrier) = (Arc::clone(&unanswered), Barrier::new(together));
    let raw = Raw::start(move |number, mut client| {
        client.request();
        if number < together {
            barrier.wait();
        }
        client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        if client.request().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (raw, unanswered)
}

#[test]
fn resends_once_on_a_fresh_connection_when_a_reused_one_is_dead() {
    let (raw, unanswered) = closing_at_second_request(8);
    let gateway = Fixture::before(&raw.url());
    let mut clients: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send(&request("GET", "/api/x", &[], ""));
    }
    for client in &mut clients {
        assert_eq!(client.reply(false).unwrap().status, 200);
    }
    let reply = clients[0].get("/api/x");
    assert_eq!((reply.status, reply.attempts()), (200, 1));
    // Several idle connections are left, all of them as dead: only one was tried.
    assert_eq!(unanswered.load(Ordering::SeqCst), 1);
    assert_eq!(raw.connections(), 9);
}

#[test]
fn uses_no_connection_that_the_server_closed_with_its_response() {
    // A POST must not be resent, so each needs a connection that is open.
    for (between, length) in [(0, 2), (5, 2), (0, 300_000), (5, 300_000)] {
        let raw = Raw::start(move |_, mut client| {
            client.request();
            client.send(&format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"
            ));
            pause(between);
            client.send(&"x".repeat(length));
        });
        let gateway = Fixture::before(&raw.url());
        let mut client = gateway.connect();
        for number in 0..20 {
            let reply = client.post("/api/x", &[], "hello");
            assert_eq!((number, reply.status), (number, 200), "{between} {length}");
            // The close follows within microseconds.
            pause(2);
        }
    }
}

#[test]
fn never_resends_a_second_time_under_one_permit() {
    // From its second request on the server closes every connection without a response.
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let raw = Raw::start(move |_, mut client| {
        while client.request().is_some() && count.fetch_add(1, Ordering::SeqCst) == 0 {
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let gateway = Fixture::before(&raw.url());
    let mut client = gateway.connect();
    assert_eq!(client.get("/api/x").status, 200);
    let reply = client.get_with("/api/x", &["tidegate-max-wait: 10ms"]);
    reply.is_own(502, "unreachable");
    // One attempt is at most two copies: on the reused connection, and on the fresh one.
    assert_eq!(
        received.load(Ordering::SeqCst),
        1 + 1 + reply.attempts() as usize
    );
}

#[test]
fn does_not_resend_after_the_first_byte_of_a_response() {
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let raw = Raw::start(move |_, mut client| {
        while client.request().is_some() {
            if count.fetch_add(1, Ordering::SeqCst) > 0 {
                return client.send("HTTP/1.1 2");
            }
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let gateway = Fixture::before(&raw.url());
    let mut client = gateway.connect();
    assert_eq!(client.get("/api/x").status, 200);
    let reply = client.get_with("/api/x", &["tidegate-max-wait: 10ms"]);
    reply.is_own(502, "unreachable");
    assert_eq!((reply.attempts(), received.load(Ordering::SeqCst)), (1, 2));
}

#[test]
fn bodies_are_sent_once_while_the_memory_for_replays_is_used_up() {
    let attempts = AtomicUsize::new(0);
    let upstream = Raw::start(move |_, mut client| {
        while let Some(text) = client.request() {
            if text.starts_with("PUT /hold") {
                client.rest();
                return;
            }
            let status = match attempts.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => 503,
                _ => 200,
            };
            client.send(&format!(
                "HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok"
            ));
        }
    });
    let gateway = Fixture::with(&upstream.url(), "[http]\nreplay_memory = \"59990B\"\n");
    let kept = || {
        let metrics = gateway.state.core().metrics().render();
        let mut lines = metrics.lines();
        let line = lines.find_map(|line| line.strip_prefix("tidegate_replay_bytes "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let body = "x".repeat(60_000);
    let mut holding = gateway.connect();
    holding.send(&request("PUT", "/api/hold", &[], &body));
    until("it is kept", || kept() == 60_000);
    let put = || gateway.connect().ask("PUT", "/api/x", &[], &body[..10_000]);
    let once = put();
    assert_eq!((once.status, once.attempts()), (503, 1), "{once:?}");
    drop(holding);
    until("nothing is kept", || kept() == 0);
    let again = put();
    assert_eq!((again.status, again.attempts()), (200, 2), "{again:?}");
}
