//! Draining and reloading: no request in flight is lost.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Fixture, OPEN, Raw, mock, pool, request, scripted, until};

#[test]
fn drain_finishes_requests_in_flight_and_takes_no_more() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let (mut idle, mut silent) = (gateway.connect(), gateway.connect());
    assert_eq!(idle.get("/api/echo").status, 200);
    let mut busy = gateway.connect();
    busy.send(&request(
        "GET",
        "/api/slow?first=500ms&n=3&every=50ms",
        &[],
        "",
    ));
    until("it is under way", || mock.stats().in_flight == 1);
    gateway.gateway.drain();
    until("no connection is accepted", || {
        TcpStream::connect(gateway.address()).is_err()
    });
    let reply = busy.reply(false).unwrap();
    assert_eq!((reply.status, reply.text()), (200, "slow\nslow\nslow\n"));
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(busy.rest().is_empty());
    assert!(idle.rest().is_empty());
    assert!(silent.rest().is_empty());
    until("all is done", || gateway.gateway.is_done());
}

#[test]
fn refuses_or_closes_kept_connections_while_draining() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    // Two at once: the second is read after draining has begun.
    client.send(&request("GET", "/api/slow?first=300ms", &[], "").repeat(2));
    until("it is under way", || mock.stats().in_flight == 1);
    gateway.gateway.drain();
    assert_eq!(client.reply(false).unwrap().status, 200);
    match client.reply(false) {
        Ok(reply) => reply.is_own(503, "draining"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
    }
    assert_eq!(mock.stats().received, 1);
}

#[test]
fn reload_changes_pools_and_keeps_connections_and_requests() {
    let (old, new) = (mock(), mock());
    let one = format!("{OPEN}{}", pool(&[("a", &old.url())]));
    let gateway = Fixture::new(&one);
    let mut connection = gateway.connect();
    assert_eq!(connection.get("/api/echo").status, 200);
    let mut busy = gateway.connect();
    busy.send(&request(
        "GET",
        "/api/slow?first=500ms&n=2&every=100ms",
        &[],
        "",
    ));
    until("it is under way", || old.stats().in_flight == 1);
    // The pool changes, and another comes.
    let url = new.url();
    let other = format!("[pool.other]\nendpoints = [{{ name = \"o\", url = \"{url}\" }}]\n");
    gateway.reload(&format!("{OPEN}{}{other}", pool(&[("b", &url)])));
    let reply = connection.get("/api/echo");
    assert_eq!(reply.header("tidegate-endpoint"), Some("b"));
    assert_eq!(
        connection.get("/other/echo").header("tidegate-endpoint"),
        Some("o")
    );
    assert_eq!(busy.reply(false).unwrap().text(), "slow\nslow\n");
    assert_eq!(busy.get("/api/echo").header("tidegate-endpoint"), Some("b"));
    // And goes again.
    gateway.reload(&one);
    connection.get("/other/echo").is_own(404, "no_route");
    assert_eq!(
        connection.get("/api/echo").header("tidegate-endpoint"),
        Some("a")
    );
}

#[test]
fn reload_changes_hosts_and_clients() {
    let mock = mock();
    let open = format!("{OPEN}{}", pool(&[("a", &mock.url())]));
    let gateway = Fixture::new(&open);
    let mut client = gateway.connect();
    assert_eq!(client.get("/api/echo").status, 200);
    let closed = |token: &str| format!("{open}[client.one]\ntoken = \"env:{token}\"\n");
    gateway.reload(&closed("first-token"));
    client.get("/api/echo").is_own(401, "no_token");
    let with = |token: &str| format!("tidegate-token: value-of-{token}");
    assert_eq!(
        client.get_with("/api/echo", &[&with("first-token")]).status,
        200
    );
    gateway.reload(&closed("second-token"));
    client
        .get_with("/api/echo", &[&with("first-token")])
        .is_own(401, "no_token");
    assert_eq!(
        client
            .get_with("/api/echo", &[&with("second-token")])
            .status,
        200
    );
}

#[test]
fn reload_keeps_what_gates_and_endpoints_learned() {
    let mock = scripted("429:60,200");
    let settings = format!("{OPEN}{}", pool(&[("a", &mock.url())]));
    let gateway = Fixture::new(&settings);
    let header = ["tidegate-max-wait: 1s"];
    assert_eq!(gateway.connect().get_with("/api/x", &header).status, 429);
    gateway.reload(&settings);
    let reply = gateway.connect().get_with("/api/x", &header);
    reply.is_own(429, "wait_too_long");
    assert_eq!(mock.stats().received, 1);
}

#[test]
fn closes_a_silent_connection() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"300ms\"\n");
    let mut silent = gateway.connect();
    let mut slow = gateway.connect();
    slow.send("G");
    let mut slower = gateway.connect();
    slower.send("GET /api/echo HTTP/1.1\r\nhost: loc");
    let mut used = gateway.connect();
    assert_eq!(used.get("/api/echo").status, 200);
    let mut second = gateway.connect();
    second.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    for client in [&mut silent, &mut slow, &mut slower, &mut used, &mut second] {
        client.rest();
    }
    gateway.works();
}

#[test]
fn half_a_request_does_not_delay_the_end() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut first = gateway.connect();
    first.send("GET /api/echo HTTP/1.1\r\nhost: local");
    let mut second = gateway.connect();
    assert_eq!(second.get("/api/echo").status, 200);
    second.send("GET /api/echo HTTP/1.1\r\nhost: local");
    gateway.gateway.drain();
    until("all connections are closed", || gateway.gateway.is_done());
}

#[test]
fn reload_keeps_connections_to_upstreams() {
    let upstream = Raw::start(|_, mut client| {
        while client.request().is_some() {
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let settings = format!("{OPEN}{}", pool(&[("a", &upstream.url())]));
    let gateway = Fixture::new(&settings);
    let mut client = gateway.connect();
    assert_eq!(client.get("/api/x").status, 200);
    for idle in ["50s", "40s"] {
        gateway.reload(&format!("{settings}[http]\nidle_timeout = \"{idle}\"\n"));
        assert_eq!(client.get("/api/x").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn serves_ten_thousand_pools_with_servers_of_their_own() {
    let mock = mock();
    let mut settings = OPEN.to_owned();
    for number in 0..10_000 {
        // No other port is dialled.
        let url = match number {
            9_999 => mock.url(),
            _ => format!("http://127.0.0.1:{}", 10_000 + number),
        };
        settings.push_str(&format!(
            "[pool.p{number}]\nendpoints = [{{ name = \"a\", url = \"{url}\" }}]\n"
        ));
    }
    let (mut starts, mut reloads) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let begun = Instant::now();
        let gateway = Fixture::new(&settings);
        assert_eq!(gateway.get("/p9999/echo").status, 200);
        starts.push(begun.elapsed());
        let begun = Instant::now();
        gateway.reload(&settings);
        assert_eq!(gateway.get("/p9999/echo").status, 200);
        reloads.push(begun.elapsed());
    }
    // Two seconds with optimisation. What takes time in proportion to the square takes far more.
    let longest = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });
    for times in [&mut starts, &mut reloads] {
        times.sort_unstable();
        assert!(times[1] <= longest, "{times:?}");
    }
}
