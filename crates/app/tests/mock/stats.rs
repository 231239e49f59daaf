//! `/_mock/stats`, `/_mock/log` and `/_mock/reset`.

use std::time::Duration;

use app::mock::{MockSettings, Script, Style};
use http::Method;

use crate::support::{Fixture, limited};

#[test]
fn stats_count_responses_but_not_requests_for_stats() {
    let fixture = Fixture::new(MockSettings {
        script: Some(Script::parse("200,500,200").unwrap()),
        ..limited(Style::Plain, &["3/1m"])
    });
    assert_eq!(fixture.statuses(5), [200, 500, 200, 429, 429]);
    let shown = fixture.get("/_mock/stats").json();
    assert_eq!(
        ["received", "accepted", "refused", "failed", "in_flight"].map(|name| &shown[name]),
        [5, 2, 2, 1, 0]
    );
    assert_eq!(
        shown["statuses"],
        serde_json::json!({ "200": 2, "429": 2, "500": 1 })
    );
    let stats = fixture.mock.stats();
    assert_eq!(
        (stats.received, stats.max_in_flight, stats.connections),
        (5, 1, 2)
    );
}

#[test]
fn requests_before_the_end_of_a_retry_after_are_early() {
    let mut settings = limited(Style::Plain, &["1/10s"]);
    settings.upstream.as_mut().unwrap().retry_after = true;
    let fixture = Fixture::new(settings);
    let early = || fixture.mock.stats().early;
    assert_eq!(fixture.statuses(2), [200, 429]);
    // An immediate request may have been sent before the response arrived.
    assert_eq!(fixture.statuses(1), [429]);
    assert_eq!(early(), 0);
    fixture.advance(5000);
    assert_eq!(fixture.statuses(1), [429]);
    assert_eq!(early(), 1);
    fixture.advance(4999);
    assert_eq!(fixture.statuses(1), [429]);
    assert_eq!(early(), 2);
    // The last Retry-After was one second, rounded up.
    fixture.advance(1000);
    assert_eq!(fixture.statuses(1), [200]);
    assert_eq!(early(), 2);
}

#[test]
fn log_lists_requests_in_order_of_arrival() {
    let fixture = Fixture::new(MockSettings::default());
    let mut client = fixture.connect();
    client.get("/a?secret=1");
    fixture.advance(1500);
    client.post("/b", "hi");
    client.get("/status/404");
    let log = fixture.mock.log();
    let seen = log.iter();
    let seen: Vec<_> = seen
        .map(|entry| (entry.at, entry.method.clone(), &*entry.path, entry.status))
        .collect();
    let at = Duration::from_millis;
    assert_eq!(
        seen,
        [
            (at(0), Method::GET, "/a", Some(200)),
            (at(1500), Method::POST, "/b", Some(200)),
            (at(1500), Method::GET, "/status/404", Some(404)),
        ]
    );
    let shown = client.get("/_mock/log").json();
    assert_eq!(shown["forgotten"], 0);
    assert_eq!(shown["requests"][1]["at_ms"], 1500.0);
    assert_eq!(shown["requests"][1]["path"], "/b");
}

#[test]
fn log_drops_the_oldest_requests() {
    let fixture = Fixture::new(MockSettings::default());
    let mut client = fixture.connect();
    let many = "GET /x HTTP/1.1\r\nhost: mock\r\n\r\n".repeat(100);
    for _ in 0..101 {
        client.send(&many);
        for _ in 0..100 {
            client.reply(false).unwrap();
        }
    }
    client.get("/last");
    let log = fixture.mock.log();
    assert_eq!((log.len(), &*log[9_999].path), (10_000, "/last"));
    assert_eq!(log[9_999].status, Some(200));
    assert_eq!(client.get("/_mock/log").json()["forgotten"], 101);
    assert_eq!(fixture.mock.stats().received, 10_101);
}

#[test]
fn reset_restores_limits_counts_log_and_time() {
    let fixture = Fixture::of(Style::Plain, &["1/1h"]);
    fixture.advance(5000);
    assert_eq!(fixture.statuses(2), [200, 429]);
    let mut client = fixture.connect();
    assert_eq!(client.get("/_mock/reset").status, 405);
    assert_eq!(client.post("/_mock/reset", "").status, 200);
    assert_eq!(fixture.mock.log(), []);
    assert_eq!(client.get("/").status, 200);
    let stats = fixture.mock.stats();
    assert_eq!((stats.received, stats.accepted, stats.uptime_ms), (1, 1, 0));
    fixture.mock.reset();
    assert_eq!(fixture.mock.stats().received, 0);
}

#[test]
fn requests_in_flight_during_a_reset_are_not_counted() {
    let fixture = Fixture::scripted("200@1h");
    let mut client = fixture.connect();
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    fixture.wait_until(|mock| mock.stats().received == 1);
    fixture.mock.reset();
    assert_eq!(fixture.mock.stats().in_flight, 1);
    drop(client);
    fixture.wait_until(|mock| mock.stats().in_flight == 0);
    let stats = fixture.mock.stats();
    assert_eq!((stats.received, stats.failed), (0, 0));
}

#[test]
fn clients_that_disconnect_before_the_response_are_counted() {
    let fixture = Fixture::scripted("200@1h");
    let mut client = fixture.connect();
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    fixture.wait_until(|mock| mock.stats().received == 1);
    drop(client);
    fixture.wait_until(|mock| mock.stats().abandoned == 1);
    let stats = fixture.mock.stats();
    assert_eq!((stats.failed, stats.accepted), (1, 0));
}

#[test]
fn unknown_control_paths_list_the_known_ones() {
    let fixture = Fixture::of(Style::Github, &["1/1h"]);
    let reply = fixture.get("/_mock/nothing");
    assert_eq!(reply.status, 404);
    assert!(reply.text().contains("/_mock/stats"));
    assert_eq!(fixture.mock.stats().received, 0);
}
