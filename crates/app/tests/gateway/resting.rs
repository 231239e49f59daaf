//! Connections between two requests: they take little memory, and behave as if nothing had changed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::memory::resident_kib;
use crate::support::{Fixture, in_child, mock, pause, request, until};

/// Longer than it takes to notice that a connection rests.
const REST: u64 = 1000;

#[test]
fn serves_requests_after_each_rest() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let (mut used, mut unused) = (gateway.connect(), gateway.connect());
    for _ in 0..2 {
        assert_eq!(used.post("/api/echo", &[], "body").status, 200);
        pause(REST);
    }
    // In pieces, and two at once.
    let text = request("POST", "/api/echo", &[], "body");
    for client in [&mut used, &mut unused] {
        client.send(&text[..3]);
        pause(100);
        client.send(&text[3..30]);
        pause(REST);
        client.send(&text[30..]);
        client.send(&text);
        for _ in 0..2 {
            assert_eq!(client.reply(false).unwrap().status, 200);
        }
        pause(REST);
        assert_eq!(client.get("/api/echo").status, 200);
    }
    // What is no HTTP is refused as on a new connection.
    pause(REST);
    used.send("no request\r\n\r\n");
    used.reply(false).unwrap().is_own(400, "bad_request");
    assert!(used.rest().is_empty());
}

#[test]
fn a_rest_does_not_extend_the_idle_timeout() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"1500ms\"\n");
    let (mut used, mut unused) = (gateway.connect(), gateway.connect());
    let (mut blank, mut half) = (gateway.connect(), gateway.connect());
    for client in [&mut used, &mut blank, &mut half] {
        assert_eq!(client.get("/api/echo").status, 200);
    }
    let since = Instant::now();
    // Empty lines may come before a request, and are none.
    for _ in 0..3 {
        pause(300);
        blank.send("\r\n");
    }
    half.send("GET /api/echo HTTP/1.1\r\nhost: loc");
    assert!(used.rest().is_empty());
    assert!(unused.rest().is_empty());
    blank.rest();
    let ended = since.elapsed();
    assert!(ended >= Duration::from_millis(1400), "{ended:?}");
    assert!(ended < Duration::from_secs(5), "{ended:?}");
    half.rest();
    gateway.works();
}

#[test]
fn a_long_request_is_no_rest() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    for _ in 0..2 {
        let reply = client.get("/api/slow?first=1s&n=3&every=500ms");
        assert_eq!(reply.text(), "slow\nslow\nslow\n");
    }
}

#[test]
fn drain_closes_resting_connections_at_once() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let (mut used, mut unused) = (gateway.connect(), gateway.connect());
    assert_eq!(used.get("/api/echo").status, 200);
    pause(REST);
    let since = Instant::now();
    gateway.gateway.drain();
    assert!(used.rest().is_empty());
    assert!(unused.rest().is_empty());
    until("all is done", || gateway.gateway.is_done());
    assert!(since.elapsed() < Duration::from_secs(5));
}

#[test]
fn closes_a_resting_connection_whose_client_leaves() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut left = gateway.connect();
    assert_eq!(left.get("/api/echo").status, 200);
    pause(REST);
    left.half_close();
    assert!(left.rest().is_empty());
    // A request before the end of the client's bytes is read.
    let mut last = gateway.connect();
    pause(REST);
    last.send(&request("GET", "/api/echo", &["connection: close"], ""));
    assert_eq!(last.reply(false).unwrap().status, 200);
    assert!(last.rest().is_empty());
}

#[test]
fn resting_connections_take_little_memory() {
    in_child("resting::resting_connections_take_little_memory", || {
        let mock = mock();
        let gateway = Fixture::before(&mock.url());
        let text = request("GET", "/api/echo", &[], "");
        let mut connections = Vec::new();
        let mut open = |count| {
            for _ in 0..count {
                let mut connection = TcpStream::connect(gateway.address()).unwrap();
                connection.write_all(text.as_bytes()).unwrap();
                assert!(connection.read(&mut [0; 4096]).unwrap() > 0);
                connections.push(connection);
            }
            pause(REST);
            resident_kib()
        };
        // What the first needed while they were served is used again for the others.
        let before = open(500);
        let mut after = before;
        for _ in 0..4 {
            after = open(500);
        }
        let each = after.saturating_sub(before) / 2000;
        assert!(each < 10, "{each} KiB for each connection");
    });
}
