//! Bodies: whole or in pieces, up and down, and what becomes of those that break off.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::support::{Fixture, Raw, mock, pause, pool, request, until};

#[test]
fn forwards_bodies_with_and_without_content_length() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    let reply = client.post("/api/echo", &[], &"x".repeat(100_000));
    assert_eq!(reply.json()["body_length"], 100_000);
    assert_eq!(reply.json()["headers"]["content-length"], "100000");
    client.send(&request(
        "POST",
        "/api/echo",
        &["transfer-encoding: chunked"],
        "",
    ));
    client.send("5\r\nhello\r\n6;name=value\r\n world\r\n0\r\n\r\n");
    let reply = client.reply(false).unwrap();
    assert_eq!(reply.json()["body_length"], 11);
    assert_eq!(reply.json()["headers"]["transfer-encoding"], "chunked");
    let reply = client.get("/api/bytes/100000");
    assert_eq!(reply.body.len(), 100_000);
    assert_eq!(reply.header("content-length"), Some("100000"));
    let reply = client.get("/api/slow?first=0s&n=3");
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    assert_eq!(reply.text(), "slow\nslow\nslow\n");
}

#[test]
fn forwards_trailers_both_ways() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    let headers = ["transfer-encoding: chunked", "trailer: x-sum"];
    client.send(&request("POST", "/api/echo", &headers, ""));
    client.send("5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n");
    let reply = client.reply(false).unwrap();
    assert_eq!(reply.json()["trailers"]["x-sum"], "42");
    let reply = client.get_with("/api/trailers", &["te: trailers"]);
    assert_eq!(reply.text(), "first\nsecond\n");
    assert_eq!(
        reply.trailers,
        [("x-mock-trailer".to_owned(), "behind".to_owned())]
    );
}

#[test]
fn sends_100_continue_only_after_admission() {
    let mock = mock();
    // One at once, and then one every second.
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 1\n";
    let gateway = Fixture::new(&format!("{gate}{}", pool(&[("a", &mock.url())])));
    gateway.works();
    let mut client = gateway.connect();
    let headers = ["expect: 100-continue", "content-length: 5"];
    let since = Instant::now();
    client.send(&request("POST", "/api/echo", &headers, ""));
    let reply = client.head().unwrap();
    assert_eq!(reply.status, 100);
    assert!(
        since.elapsed() > Duration::from_millis(500),
        "asked for at once"
    );
    client.send("hello");
    let reply = client.reply(false).unwrap();
    assert_eq!(
        (reply.status, reply.json()["body_length"].as_u64()),
        (200, Some(5))
    );
    assert!(reply.json()["headers"]["expect"].is_null());
    // A client that is refused gets no `100 Continue`.
    client.send(&request("POST", "/nope", &headers, ""));
    assert_eq!(client.head().unwrap().status, 404);
}

#[test]
fn streams_events_one_by_one() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let raw = Raw::start(move |_, mut client| {
        client.request();
        client.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        for n in 0..5 {
            client.send(&format!("data: {n}\n\n"));
            // The next one only when this one has arrived at the other end.
            wait.lock().unwrap().recv().unwrap();
        }
    });
    let gateway = Fixture::before(&raw.url());
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/events", &[], ""));
    assert_eq!(client.head().unwrap().status, 200);
    for n in 0..5 {
        let event = client.chunk().unwrap().unwrap();
        assert_eq!(event, format!("data: {n}\n\n").as_bytes());
        go_on.send(()).unwrap();
    }
    assert_eq!(client.chunk().unwrap(), None);
}

#[test]
fn forwards_a_request_body_while_it_arrives() {
    let (arrived, wait) = mpsc::channel();
    let arrived = std::sync::Mutex::new(arrived);
    let raw = Raw::start(move |_, mut client| {
        client.request_head();
        while let Some(piece) = client.chunk().unwrap() {
            arrived.lock().unwrap().send(piece).unwrap();
        }
        client.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let gateway = Fixture::with(&raw.url(), AT_ANY_RATE);
    let mut client = gateway.connect();
    client.send(&request(
        "POST",
        "/api/x",
        &["transfer-encoding: chunked"],
        "",
    ));
    for n in 0..5 {
        client.send(&format!("1\r\n{n}\r\n"));
        assert_eq!(wait.recv().unwrap(), n.to_string().as_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.reply(false).unwrap().status, 200);
}

/// A body is sent on with its first byte.
const AT_ANY_RATE: &str = "[http]\nmin_body_rate = \"0B/s\"\n";

/// One at a time, so that everyone else waits in line.
fn one_at_a_time(url: &str) -> Fixture {
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 10000\nmax_in_flight = 1\n";
    Fixture::new(&format!("{gate}{}", pool(&[("a", url)])))
}

/// How many wait in line.
fn waiting(gateway: &Fixture) -> u64 {
    let snapshot = gateway
        .state
        .limiter()
        .snapshot(tidegate::Sort::default(), 10);
    snapshot
        .gates
        .iter()
        .map(|gate| u64::from(gate.gate.waiting))
        .sum()
}

#[test]
fn leaves_the_line_when_the_client_disconnects() {
    let mock = mock();
    let gateway = one_at_a_time(&mock.url());
    let mut first = gateway.connect();
    first.send(&request("GET", "/api/slow?first=1h", &[], ""));
    until("the first is under way", || mock.stats().in_flight == 1);
    let get = request("GET", "/api/echo", &[], "");
    let post = request("POST", "/api/echo", &[], &"x".repeat(20_000));
    let pieces = request("POST", "/api/echo", &["transfer-encoding: chunked"], "");
    for text in [get, post, pieces + "5\r\nhello\r\n0\r\n\r\n"] {
        let mut second = gateway.connect();
        second.send(&text);
        until("it waits in line", || waiting(&gateway) == 1);
        drop(second);
        until("it has left the line", || waiting(&gateway) == 0);
    }
    drop(first);
    until("the first is cancelled", || mock.stats().in_flight == 0);
    gateway.works();
    assert_eq!(mock.stats().received, 2);
    let gone = "tidegate_requests_total{route=\"api\",outcome=\"cancelled\"} 4";
    let metrics = gateway.state.core().metrics().render();
    assert!(metrics.contains(gone), "{metrics}");
}

#[test]
fn cancels_the_attempt_when_the_client_disconnects() {
    let mock = mock();
    let gateway = one_at_a_time(&mock.url());
    for path in ["/api/slow?first=1h", "/api/sse?n=100000&every=10ms"] {
        let mut client = gateway.connect();
        client.send(&request("GET", path, &[], ""));
        until("it is under way", || mock.stats().in_flight == 1);
        drop(client);
        until("it is cancelled", || mock.stats().in_flight == 0);
    }
    let mut client = gateway.connect();
    client.send(&request("POST", "/api/slow?first=1h", &[], "hello"));
    until("it is under way", || mock.stats().in_flight == 1);
    drop(client);
    until("it is cancelled", || mock.stats().in_flight == 0);
    gateway.works();
}

#[test]
fn a_truncated_response_does_not_end_cleanly() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 10\r\n\r\nhello",
        b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{\"a\":",
    ] {
        let raw = Raw::saying(answer);
        let gateway = Fixture::before(&raw.url());
        let mut client = gateway.connect();
        client.send(&request("GET", "/api/x", &[], ""));
        let reply = client.reply(false);
        assert!(reply.is_err(), "{reply:?}");
    }
}

#[test]
fn a_truncated_response_of_unknown_length_resets_clients_of_http10() {
    let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    for (answer, is_whole) in [
        (&[&chunks[..], b"0\r\n\r\n"].concat()[..], true),
        (chunks, false),
    ] {
        let answer: &'static [u8] = answer.to_vec().leak();
        let raw = Raw::saying(answer);
        let gateway = Fixture::before(&raw.url());
        let mut client = gateway.connect();
        client.send("GET /api/x HTTP/1.0\r\nhost: localhost\r\n\r\n");
        let mut text = Vec::new();
        let read = client.stream().read_to_end(&mut text);
        assert_eq!(read.is_ok(), is_whole, "{read:?}");
        if is_whole {
            let text = String::from_utf8(text).unwrap();
            assert!(text.ends_with("\r\n\r\nhello"), "{text}");
            assert!(!text.contains("chunked"), "{text}");
        }
    }
}

#[test]
fn a_304_keeps_the_length_of_what_was_not_sent() {
    let raw = Raw::start(|_, mut client| {
        while client.request().is_some() {
            client.send("HTTP/1.1 304 Not Modified\r\netag: x\r\ncontent-length: 5\r\n\r\n");
        }
    });
    let gateway = Fixture::before(&raw.url());
    let mut client = gateway.connect();
    for _ in 0..2 {
        client.send(&request("GET", "/api/x", &[], ""));
        let head = client.head().unwrap();
        assert_eq!(
            (head.status, head.header("content-length")),
            (304, Some("5"))
        );
    }
}

#[test]
fn cuts_off_a_response_that_stalls() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"300ms\"\n");
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/slow?first=0s&n=2&every=1h", &[], ""));
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.chunk().unwrap().unwrap(), b"slow\n");
    assert!(client.chunk().is_err());
    until("the upstream has no request in flight", || {
        mock.stats().in_flight == 0
    });
}

#[test]
fn passes_on_an_error_whose_body_does_not_end() {
    let raw = Raw::start(|_, mut client| {
        client.request();
        client.send("HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..1000 {
            client.send("1\r\nx\r\n");
            pause(20);
        }
    });
    let gateway = Fixture::before(&raw.url());
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/x", &[], ""));
    let since = Instant::now();
    assert_eq!(client.head().unwrap().status, 404);
    assert!(since.elapsed() < Duration::from_secs(15));
    assert!(client.chunk().unwrap().is_some());
}

#[test]
fn refuses_a_body_over_the_limit_by_declared_and_by_actual_length() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nmax_body = \"1KiB\"\n");
    let mut client = gateway.connect();
    assert_eq!(client.post("/api/echo", &[], &"x".repeat(1024)).status, 200);
    let reply = client.post("/api/echo", &[], &"x".repeat(1025));
    reply.is_own(413, "body_too_large");
    assert_eq!(mock.stats().received, 1);
    let mut client = gateway.connect();
    client.send(&request(
        "POST",
        "/api/echo",
        &["transfer-encoding: chunked"],
        "",
    ));
    client.send(&format!(
        "400\r\n{}\r\n1\r\nx\r\n0\r\n\r\n",
        "x".repeat(1024)
    ));
    client.reply(false).unwrap().is_own(413, "body_too_large");
    // A body far too long: the client can still read the response before the connection closes.
    let mut client = gateway.connect();
    let reply = client.post("/api/echo", &[], &"x".repeat(300_000));
    reply.is_own(413, "body_too_large");
    gateway.works();
}

#[test]
fn a_client_that_still_sends_can_read_its_refusal() {
    let mock = mock();
    let clients = "[client.one]\ntoken = \"env:client-one\"\n[http]\nmax_body = \"16MiB\"\n";
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 0.001\n";
    let gateway = Fixture::new(&format!("{gate}{clients}{}", pool(&[("a", &mock.url())])));
    let token = "tidegate-token: value-of-client-one";
    assert_eq!(
        gateway.connect().get_with("/api/echo", &[token]).status,
        200
    );
    let body = "x".repeat(8 << 20);
    let pieces = format!("800000\r\n{body}\r\n0\r\n\r\n");
    for (path, headers, reason) in [
        ("/api/echo", &[][..], "no_token"),
        ("/nope/echo", &[token], "no_route"),
        (
            "/api/echo",
            &[token, "tidegate-max-wait: 1s"],
            "wait_too_long",
        ),
    ] {
        let mut client = gateway.connect();
        let reply = client.post(path, headers, &body);
        assert_eq!(reply.reason(), Some(reason));
        // The connection is as good as before.
        let headers = [headers, &["transfer-encoding: chunked"]].concat();
        client.send(&request("POST", path, &headers, ""));
        client.send(&pieces);
        assert_eq!(client.reply(false).unwrap().reason(), Some(reason));
    }
    assert_eq!(mock.stats().received, 1);
}

#[test]
fn refuses_a_request_whose_body_stalls() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"300ms\"\n");
    let mut client = gateway.connect();
    client.send(&request("POST", "/api/echo", &["content-length: 10"], ""));
    client.send("hello");
    client.reply(false).unwrap().is_own(408, "body_incomplete");
    let mut client = gateway.connect();
    client.send(&request(
        "POST",
        "/api/echo",
        &["transfer-encoding: chunked"],
        "",
    ));
    client.send("5\r\nhello\r\n");
    client.reply(false).unwrap().is_own(408, "body_incomplete");
    until("the upstream has no request in flight", || {
        mock.stats().in_flight == 0
    });
    gateway.works();
}

#[test]
fn requests_with_truncated_bodies_use_their_permits() {
    let mock = mock();
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 0.1\nmax_wait = \"0s\"\n\
                [http]\nmax_body = \"4B\"\nmin_body_rate = \"0B/s\"\n";
    let gateway = Fixture::new(&format!("{gate}{}", pool(&[("a", &mock.url())])));
    let mut client = gateway.connect();
    client.send(&request(
        "POST",
        "/api/echo",
        &["transfer-encoding: chunked"],
        "",
    ));
    client.send("1\r\nx\r\n");
    until("it has arrived", || mock.stats().received == 1);
    client.send("5\r\nhello\r\n0\r\n\r\n");
    let reply = client.reply(false).unwrap();
    reply.is_own(413, "body_too_large");
    assert_eq!(reply.attempts(), 1);
    gateway.get("/api/echo").is_own(429, "wait_too_long");
}

#[test]
fn times_out_a_response_that_does_not_begin() {
    let mock = mock();
    let times = "[http]\nfirst_byte_timeout = \"300ms\"\n[retry_budget]\nratio = 0\n";
    let gateway = Fixture::with(&mock.url(), times);
    let mut client = gateway.connect();
    client
        .post("/api/slow?first=1h", &[], "hello")
        .is_own(502, "unreachable");
    client.send(&request(
        "POST",
        "/api/slow?first=1h",
        &["transfer-encoding: chunked"],
        "",
    ));
    client.send("5\r\nhello\r\n0\r\n\r\n");
    client.reply(false).unwrap().is_own(502, "unreachable");
    // A client that still sends has time, however long that takes.
    client.send(&request("POST", "/api/echo", &["content-length: 10"], ""));
    for _ in 0..10 {
        client.send("x");
        pause(60);
    }
    assert_eq!(client.reply(false).unwrap().status, 200);
}

#[test]
fn drops_a_client_that_stops_reading() {
    let mock = mock();
    let times = "[http]\nidle_timeout = \"500ms\"\n";
    let gateway = Fixture::with(&mock.url(), times);
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/bytes/1000000000", &[], ""));
    assert_eq!(client.head().unwrap().status, 200);
    until("the upstream has no request in flight", || {
        mock.stats().in_flight == 0
    });
    // An upstream that stops reading is no better.
    let raw = Raw::start(|_, mut client| {
        client.request_head();
        pause(20_000);
    });
    let gateway = Fixture::with(&raw.url(), times);
    let mut client = gateway.connect();
    client.send(&request(
        "POST",
        "/api/x",
        &["content-length: 100000000"],
        "",
    ));
    let piece = vec![0; 1 << 16];
    let is_told = (0..1600).any(|_| client.stream().write_all(&piece).is_err());
    let reply = client.reply(false);
    assert!(is_told || reply.is_ok());
    if let Ok(reply) = reply {
        reply.is_own(502, "unreachable");
    }
}

/// The most that this process has had in memory, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Enough to show that bodies are not stored, and fast even without optimisation.
const LONG: u64 = 256 << 20;

#[test]
fn forwards_long_bodies_in_constant_memory() {
    crate::support::in_child("bodies::forwards_long_bodies_in_constant_memory", || {
        let mock = mock();
        let gateway = Fixture::before(&mock.url());
        gateway.works();
        let before = peak();
        let mut client = gateway.connect();
        client.send(&request("GET", &format!("/api/bytes/{LONG}"), &[], ""));
        assert_eq!(client.head().unwrap().status, 200);
        let mut piece = vec![0; 64 << 10];
        let mut left = usize::try_from(LONG).unwrap();
        while left > 0 {
            let read = client.read(&mut piece[..left.min(64 << 10)]);
            assert_ne!(read, 0);
            left -= read;
        }
        let length = format!("content-length: {LONG}");
        client.send(&request("POST", "/api/echo", &[&length], ""));
        for _ in 0..LONG / (64 << 10) {
            client.stream().write_all(&piece).unwrap();
        }
        let reply = client.reply(false).unwrap();
        assert_eq!(reply.json()["body_length"], LONG);
        let grown = peak() - before;
        assert!(grown < 30 << 10, "grew by {grown} KiB");
    });
}

#[test]
fn sends_the_rest_of_a_body_after_an_early_response() {
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let raw = Raw::start(move |_, mut client| {
        client.request_head();
        client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        count.store(client.rest().len(), Ordering::SeqCst);
    });
    let gateway = Fixture::with(&raw.url(), AT_ANY_RATE);
    let mut client = gateway.connect();
    let headers = ["content-length: 600000"];
    client.send(&request("POST", "/api/x", &headers, ""));
    assert_eq!(client.reply(false).unwrap().body, b"ok");
    for _ in 0..60 {
        client.send(&"x".repeat(10_000));
    }
    until("the server has the whole body", || {
        received.load(Ordering::SeqCst) == 600_000
    });
}
