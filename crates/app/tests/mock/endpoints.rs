//! Paths that every mock has.

use std::io::Write;
use std::thread;
use std::time::Duration;

use app::mock::{MockSettings, Style};
use serde_json::json;

use crate::support::{Fixture, limited};

fn open() -> Fixture {
    Fixture::new(MockSettings::default())
}

#[test]
fn echo_shows_what_was_received() {
    let fixture = open();
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
fn bodies_in_pieces_and_trailers_are_read() {
    let fixture = open();
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
fn trailers_are_sent_to_who_takes_them() {
    let fixture = open();
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
fn bytes_are_as_many_as_asked_for() {
    let fixture = open();
    for count in [0, 1, 65_536, 65_537, 1_000_000] {
        let reply = fixture.get(&format!("/bytes/{count}"));
        assert_eq!(reply.body.len(), count);
        assert_eq!(reply.header("content-length"), Some(&*count.to_string()));
    }
}

#[test]
fn head_has_everything_but_the_body() {
    let fixture = open();
    let mut client = fixture.connect();
    let reply = client.head("/bytes/1000000");
    assert_eq!(
        (reply.status, reply.header("content-length")),
        (200, Some("1000000"))
    );
    let plain = client.head("/");
    assert_eq!(plain.header("content-length"), Some("11"));
    // The connection is as good as before.
    assert_eq!(client.get("/").text(), r#"{"ok":true}"#);
}

#[test]
fn long_bodies_pass_in_pieces() {
    let fixture = open();
    let mut client = fixture.connect();
    // More than anybody would keep: 64 MiB up, and a tebibyte down of which nobody reads on.
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
fn events_come_one_by_one() {
    let fixture = open();
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
        // The next waits for its time, which is what makes it a stream.
        if n < 2 {
            assert_eq!(fixture.mock.stats().in_flight, 1);
            fixture.advance(100);
        }
    }
    assert_eq!(client.chunk().unwrap(), None);
}

#[test]
fn slow_keeps_one_waiting_for_the_first_byte() {
    let fixture = open();
    thread::scope(|scope| {
        let slow = scope.spawn(|| fixture.get("/slow?first=2s&n=2").body);
        // It may not have begun to wait yet, so time passes until it has waited.
        while !slow.is_finished() {
            fixture.advance(2000);
            thread::yield_now();
        }
        assert_eq!(slow.join().unwrap(), b"slow\nslow\n");
    });
    assert!(fixture.mock.log()[0].took.unwrap() >= Duration::from_secs(2));
}

#[test]
fn statuses_are_as_asked_for() {
    let fixture = open();
    for status in [200, 204, 304, 404, 429, 500, 503, 599] {
        assert_eq!(fixture.get(&format!("/status/{status}")).status, status);
    }
    let stats = fixture.mock.stats();
    assert_eq!((stats.accepted, stats.refused, stats.failed), (3, 2, 3));
}

#[test]
fn what_does_not_fit_is_told() {
    let fixture = open();
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
fn they_are_limited_like_everything_else() {
    let fixture = Fixture::new(limited(Style::Openai, &["2/1m"]));
    assert_eq!(fixture.get("/echo").status, 200);
    assert_eq!(fixture.get("/bytes/3").text(), "xxx");
    assert_eq!(fixture.get("/echo").status, 429);
}
