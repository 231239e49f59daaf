//! Paths that every mock has.

use std::io::Write;
use std::thread;
use std::time::Duration;

use app::mock::{MockSettings, Style};
use serde_json::json;

use crate::support::{Fixture, limited};

fn unlimited() -> Fixture {
    Fixture::new(MockSettings::default())
}

#[test]
fn echo_returns_the_request() {
    let fixture = unlimited();
    let mut client = fixture.connect();
    client.send(
        "PUT /echo?a=1 HTTP/1.1\r\nhost: mock\r\nx-one: 1\r\nx-two: a\r\nx-two: b\r\n\
         content-length: 5\r\n\r\nhello",
    );
    let reply = client.reply(false).unwrap();
    assert_eq!(
        reply.json(),
        json!({
            "method": "PUT",
            "path": "/echo",
            "query": "a=1",
            "version": "HTTP/1.1",
            "headers": {
                "host": "mock",
                "x-one": "1",
                "x-two": ["a", "b"],
                "content-length": "5",
            },
            "trailers": null,
            "body_length": 5,
            "client": "127.0.0.1",
        })
    );
}

#[test]
fn chunked_bodies_and_trailers_are_read() {
    let fixture = unlimited();
    let mut client = fixture.connect();
    client.send(
        "POST /echo HTTP/1.1\r\nhost: mock\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
         3\r\nabc\r\n5\r\ndefgh\r\n0\r\nx-sum: 8\r\n\r\n",
    );
    let echo = client.reply(false).unwrap().json();
    assert_eq!(
        (&echo["body_length"], &echo["trailers"]),
        (&json!(8), &json!({ "x-sum": "8" }))
    );
}

#[test]
fn trailers_are_sent_if_the_client_accepts_them() {
    let fixture = unlimited();
    let mut client = fixture.connect();
    client.send("GET /trailers HTTP/1.1\r\nhost: mock\r\nte: trailers\r\n\r\n");
    let reply = client.reply(false).unwrap();
    assert_eq!(reply.text(), "first\nsecond\n");
    assert_eq!(
        reply.trailers,
        [("x-mock-trailer".to_owned(), "behind".to_owned())]
    );
}

#[test]
fn bytes_returns_the_requested_length() {
    let fixture = unlimited();
    for count in [0, 1, 65_536, 65_537, 1_000_000] {
        let reply = fixture.get(&format!("/bytes/{count}"));
        assert_eq!(reply.body.len(), count);
        assert_eq!(reply.header("content-length"), Some(&*count.to_string()));
    }
}

#[test]
fn head_returns_headers_without_a_body() {
    let fixture = unlimited();
    let mut client = fixture.connect();
    let reply = client.head("/bytes/1000000");
    assert_eq!(
        (reply.status, reply.header("content-length")),
        (200, Some("1000000"))
    );
    let plain = client.head("/");
    assert_eq!(plain.header("content-length"), Some("11"));
    // The connection can be reused.
    assert_eq!(client.get("/").text(), r#"{"ok":true}"#);
}

#[test]
fn long_bodies_are_streamed() {
    let fixture = unlimited();
    let mut client = fixture.connect();
    // 64 MiB up, and a tebibyte down that is not read.
    let length = 64 << 20;
    client.send(&format!(
        "POST /echo HTTP/1.1\r\nhost: mock\r\ncontent-length: {length}\r\n\r\n"
    ));
    let piece = vec![0; 1 << 20];
    for _ in 0..64 {
        client.stream().write_all(&piece).unwrap();
    }
    assert_eq!(client.reply(false).unwrap().json()["body_length"], length);

    client.send("GET /bytes/1099511627776 HTTP/1.1\r\nhost: mock\r\n\r\n");
    let head = client.reply_head().unwrap();
    assert_eq!(head.header("content-length"), Some("1099511627776"));
    assert_eq!(fixture.mock.stats().in_flight, 1);
    drop(client);
    fixture.wait_until(|mock| mock.stats().in_flight == 0);
}

#[test]
fn events_are_sent_at_their_interval() {
    let fixture = unlimited();
    let mut client = fixture.connect();
    client.send("GET /sse?n=3&every=100ms HTTP/1.1\r\nhost: mock\r\n\r\n");
    let head = client.reply_head().unwrap();
    assert_eq!(
        head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    for n in 0..3 {
        let event = client.chunk().unwrap().unwrap();
        assert_eq!(
            event,
            format!("id: {n}\ndata: {{\"n\":{n}}}\n\n").into_bytes()
        );
        // The next is sent only after the interval.
        if n < 2 {
            assert_eq!(fixture.mock.stats().in_flight, 1);
            fixture.advance(100);
        }
    }
    assert_eq!(client.chunk().unwrap(), None);
}

#[test]
fn slow_delays_the_first_byte() {
    let fixture = unlimited();
    thread::scope(|scope| {
        let slow = scope.spawn(|| fixture.get("/slow?first=2s&n=2").body);
        // The request may arrive after the first advance, so time passes until it has ended.
        while !slow.is_finished() {
            fixture.advance(2000);
            thread::yield_now();
        }
        assert_eq!(slow.join().unwrap(), b"slow\nslow\n");
    });
    assert!(fixture.mock.log()[0].took.unwrap() >= Duration::from_secs(2));
}

#[test]
fn status_returns_the_requested_status() {
    let fixture = unlimited();
    for status in [200, 204, 304, 404, 429, 500, 503, 599] {
        assert_eq!(fixture.get(&format!("/status/{status}")).status, status);
    }
    let stats = fixture.mock.stats();
    assert_eq!((stats.accepted, stats.refused, stats.failed), (3, 2, 3));
}

#[test]
fn invalid_parameters_get_400_with_what_was_expected() {
    let fixture = unlimited();
    for path in [
        "/bytes/x",
        "/bytes/-1",
        "/status/99",
        "/sse?n=x",
        "/sse?every=5",
        "/slow?first=x",
    ] {
        let reply = fixture.get(path);
        assert_eq!(reply.status, 400, "{path}");
        assert!(
            reply.text().contains("expected"),
            "{path}: {}",
            reply.text()
        );
    }
}

#[test]
fn endpoints_are_limited() {
    let fixture = Fixture::new(limited(Style::Openai, &["2/1m"]));
    assert_eq!(fixture.get("/echo").status, 200);
    assert_eq!(fixture.get("/bytes/3").text(), "xxx");
    assert_eq!(fixture.get("/echo").status, 429);
}
