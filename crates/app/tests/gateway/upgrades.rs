//! Requests that ask for another protocol, such as WebSocket.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use crate::support::{Client, Fixture, OPEN, Raw, pool, request, until};

const ASKS: [&str; 5] = [
    "connection: keep-alive, Upgrade, x-local",
    "upgrade: websocket",
    "x-local: 1",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version: 13",
];

const SWITCHES: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                        Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Answers 101 and a greeting, and sends back what it gets, in capitals.
fn talk(client: &mut Client) {
    client.send(&format!("{SWITCHES}hello"));
    let mut bytes = [0; 1024];
    loop {
        match client.stream().read(&mut bytes) {
            Ok(length) if length > 0 => client.send_bytes(&bytes[..length].to_ascii_uppercase()),
            _ => return,
        }
    }
}

fn in_flight(gateway: &Fixture) -> u64 {
    let snapshot = gateway
        .state
        .limiter()
        .snapshot(tidegate::Sort::default(), 0);
    snapshot.totals.in_flight
}

fn read(client: &mut Client, length: usize) -> String {
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < length {
        match client.read(&mut bytes[read..]) {
            0 => break,
            more => read += more,
        }
    }
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// Asks for another protocol; the head of the response.
fn upgrade(gateway: &Fixture) -> (Client, crate::wire::Reply) {
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/chat", &ASKS, ""));
    let head = client.head().unwrap();
    (client, head)
}

#[test]
fn passes_bytes_both_ways_in_flight_to_the_end() {
    let seen = Arc::new(Mutex::new(String::new()));
    let head = Arc::clone(&seen);
    let upstream = Raw::start(move |_, mut client| {
        *head.lock().unwrap() = client.request_head().unwrap().to_ascii_lowercase();
        talk(&mut client);
    });
    let gateway = Fixture::before(&upstream.url());
    let (mut client, reply) = upgrade(&gateway);
    assert_eq!((reply.status, reply.attempts()), (101, 1));
    assert_eq!(reply.header("upgrade"), Some("websocket"));
    assert_eq!(reply.header("connection"), Some("upgrade"));
    let accept = reply.header("sec-websocket-accept");
    assert_eq!(accept, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    reply.is_marked();
    let request = seen.lock().unwrap().clone();
    for line in [
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-version: 13\r\n",
    ] {
        assert_eq!(request.matches(line).count(), 1, "{request}");
    }
    assert!(!request.contains("x-local"), "{request}");
    // What came behind the head, and then both ways.
    assert_eq!(read(&mut client, 5), "hello");
    for words in ["HTTP/1.1 400 x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        client.send(words);
        assert_eq!(read(&mut client, words.len()), words.to_uppercase());
        assert_eq!(in_flight(&gateway), 1);
    }
    // Much more than fits into buffers.
    let much = "abcdefgh".repeat(1 << 16);
    let mut writer = client.stream().try_clone().unwrap();
    let sent = much.clone();
    let writing = std::thread::spawn(move || writer.write_all(sent.as_bytes()));
    assert_eq!(read(&mut client, much.len()), much.to_uppercase());
    writing.join().unwrap().unwrap();
    drop(client);
    until("it is not in flight any more", || in_flight(&gateway) == 0);
    assert_eq!(upstream.connections(), 1);
    let metrics = gateway.state.core().metrics().render();
    assert!(
        metrics.contains("tidegate_requests_total{route=\"api\",outcome=\"success\"} 1"),
        "{metrics}"
    );
}

#[test]
fn closes_the_client_when_the_upstream_closes() {
    let upstream = Raw::start(|_, mut client| {
        if client.request_head().is_some() {
            client.send(&format!("{SWITCHES}bye"));
        }
    });
    let gateway = Fixture::before(&upstream.url());
    let (mut client, _) = upgrade(&gateway);
    assert_eq!(client.rest(), b"bye");
    drop(client);
    until("it is not in flight any more", || in_flight(&gateway) == 0);
}

#[test]
fn ends_a_tunnel_that_is_silent_for_too_long() {
    let upstream = Raw::start(|_, mut client| {
        if client.request_head().is_some() {
            talk(&mut client);
        }
    });
    let endpoint = pool(&[("a", &upstream.url())]);
    let gateway = Fixture::new(&format!("{OPEN}{endpoint}idle_timeout = \"200ms\"\n"));
    let (mut client, _) = upgrade(&gateway);
    assert_eq!(client.rest(), b"hello");
    until("it is not in flight any more", || in_flight(&gateway) == 0);
}

#[test]
fn a_refused_upgrade_is_a_response_like_all() {
    let upstream = Raw::start(|_, mut client| {
        if client.request_head().is_some() {
            client.send("HTTP/1.1 426 Upgrade Required\r\nupgrade: other\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\nno");
            client.rest();
        }
    });
    let gateway = Fixture::before(&upstream.url());
    let mut client = gateway.connect();
    for _ in 0..2 {
        let reply = client.get_with("/api/chat", &ASKS);
        assert_eq!((reply.status, reply.text()), (426, "no"));
        assert_eq!(reply.header("upgrade"), None);
        assert_eq!(reply.attempts(), 1);
    }
}

#[test]
fn is_sent_again_before_a_101_and_never_after() {
    let upstream = Raw::start(|number, mut client| {
        if client.request_head().is_none() {
            return;
        }
        match number {
            0 => client.send("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"),
            // Breaks off at once behind it.
            _ => client.send(SWITCHES),
        }
    });
    let gateway = Fixture::before(&upstream.url());
    let (mut client, reply) = upgrade(&gateway);
    assert_eq!((reply.status, reply.attempts()), (101, 2));
    assert_eq!(client.rest(), b"");
    drop(client);
    until("it is not in flight any more", || in_flight(&gateway) == 0);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn asks_that_cannot_be_passed_on_are_requests_like_all() {
    let upstream = Raw::start(|_, mut client| {
        while let Some(head) = client.request() {
            let asks = head.to_ascii_lowercase().contains("upgrade");
            let body = if asks { "asks" } else { "none" };
            client.send(&format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{body}"
            ));
        }
    });
    let gateway = Fixture::before(&upstream.url());
    let mut client = gateway.connect();
    for (headers, body) in [
        (
            &[
                "connection: upgrade, http2-settings",
                "upgrade: h2c",
                "http2-settings: AAMAAABk",
            ][..],
            "",
        ),
        (&["upgrade: websocket"], ""),
        (&["connection: upgrade", "upgrade: websocket"], "body"),
        (
            &[
                "connection: upgrade",
                "upgrade: websocket",
                "prefer: wait=1",
            ],
            "body",
        ),
    ] {
        let reply = client.post("/api/chat", headers, body);
        assert_eq!((reply.status, reply.text()), (200, "none"), "{headers:?}");
    }
    let asked = client.get_with("/api/chat", &["connection: upgrade", "upgrade: websocket"]);
    assert_eq!(asked.text(), "asks");
}

#[test]
fn a_101_that_names_no_protocol_or_was_not_asked_for_is_a_failure() {
    let upstream = Raw::saying(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    for headers in [&ASKS[..], &[]] {
        let gateway = Fixture::before(&upstream.url());
        let reply = gateway.connect().get_with("/api/chat", headers);
        reply.is_own(502, "unreachable");
    }
}

#[test]
fn a_drain_waits_for_tunnels() {
    let upstream = Raw::start(|_, mut client| {
        if client.request_head().is_some() {
            talk(&mut client);
        }
    });
    let gateway = Fixture::before(&upstream.url());
    let (mut client, _) = upgrade(&gateway);
    assert_eq!(read(&mut client, 5), "hello");
    gateway.gateway.drain();
    client.send("still");
    assert_eq!(read(&mut client, 5), "STILL");
    assert!(!gateway.gateway.is_done());
    drop(client);
    until("all connections are closed", || gateway.gateway.is_done());
}
