//! `CONNECT`: bytes pass both ways, and a tunnel is one permit from its beginning to its end.

use std::io::Write;

use crate::forward::gateway;
use crate::frames::{DATA, END_HEADERS, FrameClient, HEADERS, block};
use crate::support::{Client, Fixture, Raw, Reply, closed_port, until};

/// A server that greets, and then sends back what it gets, until its client sends no more.
fn greeter() -> Raw {
    Raw::start(|_, mut client| {
        client.send("hello");
        let mut bytes = [0; 64];
        loop {
            let read = client.read(&mut bytes);
            if read == 0 {
                break;
            }
            client.send_bytes(&bytes[..read]);
        }
        client.send("bye");
    })
}

fn target(server: &Raw) -> String {
    server.url().trim_start_matches("http://").to_owned()
}

/// A tunnel to `server`, with these bytes right behind the head.
fn open(gateway: &Fixture, server: &Raw, early: &str) -> Client {
    let target = target(server);
    let mut client = gateway.connect();
    client.send(&format!(
        "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n{early}"
    ));
    let reply = client.head().unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.is_marked();
    assert_eq!(reply.header("tidegate-endpoint"), Some(target.as_str()));
    for name in ["content-length", "transfer-encoding"] {
        assert_eq!(reply.header(name), None, "{reply:?}");
    }
    client
}

/// Asks for a tunnel, and waits for it only a moment.
fn ask(gateway: &Fixture, target: &str) -> Client {
    let mut client = gateway.connect();
    let wait = "tidegate-max-wait: 300ms";
    client.send(&format!(
        "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{wait}\r\n\r\n"
    ));
    client
}

fn refused(gateway: &Fixture, target: &str) -> Reply {
    ask(gateway, target).reply(false).unwrap()
}

fn read(client: &mut Client, length: usize) -> String {
    let mut text = Vec::new();
    while text.len() < length {
        let mut bytes = [0; 64];
        let read = client.read(&mut bytes);
        assert!(read > 0, "it ended after {text:?}");
        text.extend_from_slice(&bytes[..read]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn passes_bytes_both_ways_until_one_side_ends() {
    let (server, gateway) = (greeter(), gateway(""));
    let mut client = open(&gateway, &server, "early");
    // In whichever order the server was faster.
    let mut seen = read(&mut client, 10);
    seen = seen.replace("hello", "");
    assert_eq!(seen, "early");
    client.send("more");
    assert_eq!(read(&mut client, 4), "more");
    // A side that sends no more can still be answered.
    client.half_close();
    assert_eq!(client.rest(), b"bye");
    let metrics = gateway.state.core().metrics().render();
    let line = "tidegate_requests_total{route=\"_connect\",outcome=\"success\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn bytes_are_not_looked_at() {
    // What hyper would refuse, and what the gateway would take for a response of hyper's own.
    let bytes = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let server = Raw::start(move |_, mut client| {
        let mut request = [0; 64];
        assert!(client.read(&mut request) > 0);
        client.send(bytes);
        assert!(client.read(&mut request) > 0);
        client.send(bytes);
    });
    let gateway = gateway("");
    let mut client = open(&gateway, &server, "");
    for _ in 0..2 {
        client.send("POST x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n");
        assert_eq!(read(&mut client, bytes.len()), bytes);
    }
    assert_eq!(client.rest(), b"");
}

#[test]
fn long_streams_pass_whole() {
    let length = 20_000_000_usize;
    let server = Raw::start(move |_, mut client| {
        let mut left = length;
        let mut bytes = vec![0; 1 << 16];
        while left > 0 {
            left -= client.read(&mut bytes);
        }
        client.send_bytes(&vec![b'y'; length]);
    });
    let gateway = gateway("");
    let mut client = open(&gateway, &server, "");
    client.send_bytes(&vec![b'x'; length]);
    let received = client.rest();
    assert_eq!(received.len(), length);
    assert!(received.iter().all(|byte| *byte == b'y'));
}

#[test]
fn a_tunnel_is_in_flight_to_its_end() {
    let server = greeter();
    let gateway = gateway("[gate.'127.0.0.1']\nmax_in_flight = 1\n");
    let target = target(&server);
    let mut client = open(&gateway, &server, "");
    assert_eq!(read(&mut client, 5), "hello");
    refused(&gateway, &target).is_own(503, "in_flight");
    client.half_close();
    assert_eq!(client.rest(), b"bye");
    let status = || ask(&gateway, &target).head().unwrap().status;
    until("the place is free", || status() == 200);
}

#[test]
fn tunnels_are_paced_like_requests() {
    let server = greeter();
    let gateway = gateway("[gate.'127.0.0.1']\nlimits = ['1/1h']\n");
    let _first = open(&gateway, &server, "");
    refused(&gateway, &target(&server)).is_own(429, "wait_too_long");
}

#[test]
fn connections_that_cannot_be_made_open_the_breaker() {
    let gateway = gateway(
        "[gate.'127.0.0.1']\nconsecutive_failures = 4\nopen_first = '1h'\nopen_for = '1h'\n",
    );
    let target = closed_port().to_string();
    let mut client = gateway.connect();
    client.send(&format!(
        "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n"
    ));
    let reply = client.reply(false).unwrap();
    reply.is_own(502, "unreachable");
    assert_eq!(reply.attempts(), 4);
    refused(&gateway, &target).is_own(503, "breaker_open");
}

#[test]
fn a_silent_tunnel_ends() {
    let server = Raw::start(|_, mut client| drop(client.rest()));
    let gateway = gateway("[http]\nidle_timeout = '300ms'\n");
    let mut client = open(&gateway, &server, "");
    assert_eq!(client.rest(), b"");
    // It was in flight, and is no more.
    let busy = || gateway.state.core().metrics().render();
    let none = format!("tidegate_gate_in_flight{{key=\"{}\"}} 0", target(&server));
    until("nothing is in flight", || busy().contains(&none));
}

#[test]
fn draining_waits_for_tunnels() {
    let (server, gateway) = (greeter(), gateway(""));
    let mut client = open(&gateway, &server, "");
    assert_eq!(read(&mut client, 5), "hello");
    gateway.gateway.drain();
    client.send("still here");
    assert_eq!(read(&mut client, 10), "still here");
    assert!(!gateway.gateway.is_done());
    client.half_close();
    assert_eq!(client.rest(), b"bye");
    drop(client);
    until("all connections are closed", || gateway.gateway.is_done());
}

#[test]
fn a_client_that_leaves_ends_its_tunnel() {
    let server = Raw::start(
        |_, mut client| {
            while client.stream().write_all(b"x").is_ok() {}
        },
    );
    let gateway = gateway("");
    let client = open(&gateway, &server, "");
    let none = format!("tidegate_gate_in_flight{{key=\"{}\"}} 0", target(&server));
    let metrics = || gateway.state.core().metrics().render();
    assert!(!metrics().contains(&none));
    drop(client);
    until("nothing is in flight", || metrics().contains(&none));
}

#[test]
fn works_over_http2() {
    let server = greeter();
    let gateway = gateway("");
    let authority = target(&server);
    let mut client = FrameClient::connect(gateway.address());
    let head = block(&[(":method", "CONNECT"), (":authority", &authority)]);
    client.send(HEADERS, END_HEADERS, 1, &head);
    assert_eq!(client.until(HEADERS).unwrap().stream, 1);
    assert_eq!(client.until(DATA).unwrap().payload, b"hello");
    client.send(DATA, 0, 1, b"over frames");
    assert_eq!(client.until(DATA).unwrap().payload, b"over frames");
}
