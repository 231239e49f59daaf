//! Scripted responses.

use std::io::Read;
use std::thread;
use std::time::Duration;

use app::mock::{MockSettings, Script, Style};

use crate::support::{Fixture, limited};

#[test]
fn responses_are_in_order_and_the_last_repeats() {
    let fixture = Fixture::scripted("200,503*2,404,200");
    assert_eq!(fixture.statuses(6), [200, 503, 503, 404, 200, 200]);
}

#[test]
fn a_script_may_start_over() {
    let fixture = Fixture::scripted("200,503,repeat");
    assert_eq!(fixture.statuses(5), [200, 503, 200, 503, 200]);
}

#[test]
fn a_response_may_have_a_retry_after() {
    let fixture = Fixture::scripted("429:3,200");
    let reply = fixture.get("/");
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (429, Some("3"))
    );
    assert_eq!(fixture.get("/").header("retry-after"), None);
}

#[test]
fn a_response_may_have_its_own_latency() {
    let fixture = Fixture::scripted("200@2500ms");
    thread::scope(|scope| {
        let slow = scope.spawn(|| fixture.get("/").status);
        fixture.wait_until(|mock| mock.stats().received == 1);
        fixture.advance(2500);
        assert_eq!(slow.join().unwrap(), 200);
    });
    let took = fixture.mock.log()[0].took;
    assert_eq!(took, Some(Duration::from_millis(2500)));
}

#[test]
fn refused_requests_do_not_advance_the_script() {
    let fixture = Fixture::new(MockSettings {
        script: Some(Script::parse("404,200").unwrap()),
        ..limited(Style::Plain, &["1/10s"])
    });
    assert_eq!(fixture.statuses(3), [404, 429, 429]);
    fixture.advance(10_000);
    assert_eq!(fixture.statuses(1), [200]);
}

#[test]
fn statuses_without_a_body_have_none() {
    let fixture = Fixture::scripted("204,304,201,302");
    for status in [204, 304] {
        let reply = fixture.get("/");
        assert_eq!((reply.status, reply.text()), (status, ""));
    }
    assert_eq!(fixture.get("/").text(), r#"{"ok":true}"#);
    assert_eq!(fixture.get("/").header("location"), Some("/"));
}

#[test]
fn reset_resets_the_connection() {
    let fixture = Fixture::scripted("reset,200");
    let mut client = fixture.connect();
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    let error = client.stream().read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(fixture.statuses(1), [200]);
    let stats = fixture.mock.stats();
    assert_eq!((stats.failed, stats.accepted, stats.abandoned), (1, 1, 0));
}

#[test]
fn silent_lasts_until_the_client_disconnects() {
    let fixture = Fixture::scripted("silent,200");
    let mut client = fixture.connect();
    client.send("POST / HTTP/1.1\r\nhost: mock\r\ncontent-length: 2\r\n\r\nhi");
    fixture.wait_until(|mock| mock.stats().failed == 1);
    fixture.clock.advance(Duration::from_secs(86_400));
    assert_eq!(fixture.mock.stats().in_flight, 1);
    drop(client);
    fixture.wait_until(|mock| mock.stats().in_flight == 0);
    assert_eq!(fixture.statuses(1), [200]);
}

#[test]
fn cut_ends_the_body_in_the_middle() {
    let fixture = Fixture::scripted("cut,200");
    let mut client = fixture.connect();
    client.send("GET /bytes/1000 HTTP/1.1\r\nhost: mock\r\n\r\n");
    let head = client.reply_head().unwrap();
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("1000"))
    );
    let mut body = Vec::new();
    client.rest(&mut body).unwrap();
    assert_eq!(body.len(), 500);
    assert_eq!(fixture.mock.stats().failed, 1);
    assert_eq!(fixture.statuses(1), [200]);
}
