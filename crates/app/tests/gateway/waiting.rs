//! How long callers wait, for what, and the response when that is too long.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Fixture, Raw, mock, pause, pool, request, scripted, until};

/// A gateway whose gate has these settings.
fn gated(gate: &str, url: &str) -> Fixture {
    Fixture::new(&format!("[gate]\n{gate}\n{}", pool(&[("a", url)])))
}

/// One request at once, then one every two seconds.
const SLOW: &str = "strategy = \"fixed\"\ninitial_rate = 0.5";

#[test]
fn refuses_at_once_when_deadline_precedes_turn() {
    let mock = mock();
    let gateway = gated("strategy = \"fixed\"\ninitial_rate = 0.05", &mock.url());
    gateway.works();
    for header in ["tidegate-max-wait: 2s", "Prefer: wait=2"] {
        let reply = gateway.connect().get_with("/api/echo", &[header]);
        reply.is_own(429, "wait_too_long");
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((2..=20).contains(&wait), "{wait}");
        assert_eq!(reply.attempts(), 0);
        let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
        assert!(waited < 2000, "it was made to wait");
    }
    assert_eq!(mock.stats().received, 1);
}

#[test]
fn waits_in_line_and_reports_the_wait() {
    let mock = mock();
    let gateway = gated(SLOW, &mock.url());
    let first = gateway.get("/api/echo");
    let unhindered: u64 = first.header("tidegate-wait-ms").unwrap().parse().unwrap();
    let since = Instant::now();
    let reply = gateway
        .connect()
        .get_with("/api/echo", &["tidegate-max-wait: 20s"]);
    assert_eq!(reply.status, 200);
    let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
    assert!(waited > 1000 && waited > unhindered, "{waited}");
    assert!(since.elapsed() >= Duration::from_millis(waited - 1));
}

#[test]
fn refuses_an_unreadable_max_wait() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for header in [
        "tidegate-max-wait: soon",
        "tidegate-max-wait: 5",
        "tidegate-max-wait: -5s",
        "tidegate-max-wait: ",
    ] {
        gateway
            .connect()
            .get_with("/api/echo", &[header])
            .is_own(400, "bad_wait");
    }
    // What is only preferred may be anything.
    let reply = gateway
        .connect()
        .get_with("/api/echo", &["prefer: wait=soon"]);
    assert_eq!(reply.status, 200);
    assert_eq!(mock.stats().received, 1);
}

#[test]
fn serves_zero_max_wait_when_no_wait_is_needed() {
    let mock = mock();
    let gateway = gated(SLOW, &mock.url());
    let mut client = gateway.connect();
    let header = ["tidegate-max-wait: 0s"];
    assert_eq!(client.get_with("/api/echo", &header).status, 200);
    client
        .get_with("/api/echo", &header)
        .is_own(429, "wait_too_long");
}

#[test]
fn a_hint_holds_all_requests_of_the_gate() {
    let mock = scripted("429:2,200");
    let gateway = gated("strategy = \"fixed\"\ninitial_rate = 100", &mock.url());
    let since = Instant::now();
    let callers: Vec<_> = (0..6)
        .map(|number| {
            let mut client = gateway.connect();
            let first = number == 0;
            if first {
                client.send(&request("GET", "/api/x", &[], ""));
                until("it is refused", || mock.stats().refused == 1);
                // Its answer may still be on its way.
                pause(50);
            }
            thread::spawn(move || {
                if !first {
                    client.send(&request("GET", "/api/x", &[], ""));
                }
                client.reply(false).unwrap()
            })
        })
        .collect();
    for caller in callers {
        let reply = caller.join().unwrap();
        assert_eq!(reply.status, 200);
    }
    assert!(since.elapsed() >= Duration::from_secs(2));
    let stats = mock.stats();
    assert_eq!((stats.received, stats.early), (7, 0));
}

#[test]
fn refuses_at_once_with_the_real_wait_when_it_is_hours() {
    let mock = scripted("429:86400,200");
    let gateway = gated("strategy = \"fixed\"\ninitial_rate = 100", &mock.url());
    let reply = gateway.get("/api/x");
    // The upstream's own answer says the same.
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (429, Some("86400"))
    );
    for _ in 0..3 {
        let reply = gateway
            .connect()
            .get_with("/api/x", &["tidegate-max-wait: 1h"]);
        reply.is_own(429, "wait_too_long");
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((86_000..=86_400).contains(&wait), "{wait}");
    }
    assert_eq!(mock.stats().received, 1);
}

const BREAKS: &str = "strategy = \"fixed\"\ninitial_rate = 1000\nconsecutive_failures = 3\n\
                      half_open_probes = 1\n";

#[test]
fn refuses_at_once_when_the_breaker_opens_past_the_deadline() {
    let mock = scripted("500");
    let gate = format!("{BREAKS}open_first = \"30s\"\nopen_for = \"30s\"");
    let gateway = gated(&gate, &mock.url());
    let mut client = gateway.connect();
    for _ in 0..3 {
        client.post("/api/x", &[], "x");
    }
    let reply = client.get_with("/api/x", &["tidegate-max-wait: 1s"]);
    reply.is_own(503, "breaker_open");
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((20..=30).contains(&wait), "{wait}");
    assert_eq!(mock.stats().received, 3);
    assert!(gateway.logged().contains("breaker_opened"));
}

#[test]
fn waits_for_an_open_breaker_within_the_deadline() {
    let mock = scripted("500*3,200");
    let gate = format!("{BREAKS}open_first = \"1s\"\nopen_for = \"1s\"");
    let gateway = gated(&gate, &mock.url());
    let mut client = gateway.connect();
    for _ in 0..3 {
        client.post("/api/x", &[], "x");
    }
    let reply = client.get("/api/x");
    assert_eq!((reply.status, reply.attempts()), (200, 1));
    let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
    assert!(waited > 500, "{waited}");
}

#[test]
fn refuses_with_queue_full_when_the_line_is_full() {
    let mock = mock();
    let gate = "strategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1\nmax_waiting = 2";
    let gateway = gated(gate, &mock.url());
    let mut clients: Vec<_> = (0..3).map(|_| gateway.connect()).collect();
    clients[0].send(&request("GET", "/api/slow?first=1h", &[], ""));
    until("it is under way", || mock.stats().in_flight == 1);
    for client in &mut clients[1..] {
        client.send(&request("GET", "/api/echo", &[], ""));
    }
    let in_line = || {
        let snapshot = gateway
            .state
            .limiter()
            .snapshot(tidegate::Sort::default(), 1);
        snapshot.gates.first().map_or(0, |gate| gate.gate.waiting)
    };
    until("two wait", || in_line() == 2);
    gateway.get("/api/echo").is_own(429, "queue_full");
    drop(clients.remove(0));
    for mut client in clients {
        assert_eq!(client.reply(false).unwrap().status, 200);
    }
}

#[test]
fn never_exceeds_max_in_flight() {
    let mock = mock();
    let gate = "strategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 3";
    let gateway = gated(gate, &mock.url());
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let mut client = gateway.connect();
            thread::spawn(move || client.get("/api/slow?first=30ms").status)
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.join().unwrap(), 200);
    }
    let stats = mock.stats();
    assert_eq!(stats.received, 20);
    // A place is free when the body has been read, a moment before the mock notices.
    assert!(stats.max_in_flight <= 6, "{stats:?}");
}

#[test]
fn refuses_with_in_flight_when_no_place_is_free_before_the_deadline() {
    let mock = mock();
    let gate = "strategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1";
    let gateway = gated(gate, &mock.url());
    let mut first = gateway.connect();
    first.send(&request("GET", "/api/slow?first=1h", &[], ""));
    until("it is under way", || mock.stats().in_flight == 1);
    let since = Instant::now();
    let reply = gateway
        .connect()
        .get_with("/api/echo", &["tidegate-max-wait: 300ms"]);
    reply.is_own(503, "in_flight");
    assert!(since.elapsed() >= Duration::from_millis(300));
    let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
    assert!(waited >= 290, "{waited}");
}

#[test]
fn refuses_with_in_flight_while_a_recovering_endpoint_is_busy() {
    let upstream = Raw::start(|number, mut client| {
        while client.request().is_some() {
            match number {
                0 => {
                    client.send("HTTP/1.1 503 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                }
                // The one request that is let through gets no response.
                _ => continue,
            }
            return;
        }
    });
    let protection = "[pool.api.protection]\nenabled = true\npauses = [\"1s\"]\n";
    let gateway = Fixture::with(&upstream.url(), protection);
    assert_eq!(gateway.connect().post("/api/x", &[], "x").status, 503);
    let mut first = gateway.connect();
    first.send(&request("GET", "/api/x", &[], ""));
    until("the pause is over", || upstream.connections() == 2);
    let wait = ["tidegate-max-wait: 300ms"];
    let reply = gateway.connect().get_with("/api/x", &wait);
    reply.is_own(503, "in_flight");
    assert!(!reply.text().contains("a person"), "{}", reply.text());
    let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
    assert!(waited >= 100, "{waited}");
}

#[test]
fn reports_the_wait_of_a_request_whose_body_fails_in_line() {
    let mock = mock();
    let gate = "strategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1\n\
                [http]\nmin_body_rate = \"0B/s\"";
    let gateway = gated(gate, &mock.url());
    let mut first = gateway.connect();
    first.send(&request("GET", "/api/slow?first=1h", &[], ""));
    until("it is under way", || mock.stats().in_flight == 1);
    let mut client = gateway.connect();
    let encoding = ["transfer-encoding: chunked"];
    client.send(&request("POST", "/api/echo", &encoding, ""));
    client.send("1\r\nx\r\n");
    pause(200);
    client.send("no size\r\n");
    let reply = client.reply(false).unwrap();
    reply.is_own(400, "bad_request");
    let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
    assert!(waited >= 100, "{waited}");
}

#[test]
fn a_streaming_response_is_in_flight_until_its_body_ends() {
    let mock = mock();
    let gate = "strategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1";
    let gateway = gated(gate, &mock.url());
    let mut first = gateway.connect();
    first.send(&request("GET", "/api/slow?first=0s&n=2&every=1h", &[], ""));
    assert_eq!(first.head().unwrap().status, 200);
    let short = &["tidegate-max-wait: 300ms"];
    let reply = gateway.connect().get_with("/api/echo", short);
    reply.is_own(503, "in_flight");
    let mut second = gateway.connect();
    second.send(&request("GET", "/api/echo", &[], ""));
    drop(first);
    assert_eq!(second.reply(false).unwrap().status, 200);
}

#[test]
fn passes_on_a_response_whose_retry_would_miss_the_deadline() {
    let raw = Raw::saying(b"HTTP/1.1 503 X\r\nretry-after: 30\r\ncontent-length: 4\r\n\r\nbusy");
    let gateway = Fixture::with(&raw.url(), "");
    let since = Instant::now();
    let reply = gateway
        .connect()
        .get_with("/api/x", &["tidegate-max-wait: 2s"]);
    assert_eq!(
        (reply.status, reply.text(), reply.attempts()),
        (503, "busy", 1)
    );
    assert_eq!(reply.header("retry-after"), Some("30"));
    assert!(since.elapsed() < Duration::from_secs(10));
}
