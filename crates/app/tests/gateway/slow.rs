//! Clients that send or read slowly, or not at all: they cost little and delay no other client.

use std::time::Duration;

use tidegate::Sort;

use crate::frames::{FrameClient, PING, SETTINGS};
use crate::memory::resident;
use crate::support::{Client, Fixture, Raw, in_child, mock, pause, pool, request, until};

/// A gateway with two places in flight.
fn with_two_places(url: &str, settings: &str) -> Fixture {
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 2\n";
    Fixture::new(&format!("{gate}{}{settings}", pool(&[("a", url)])))
}

/// Begins to send a body of a thousand bytes.
fn begin_upload(gateway: &Fixture, headers: &[&str]) -> Client {
    let mut client = gateway.connect();
    let headers = [headers, &["content-length: 1000"]].concat();
    client.send(&request("POST", "/api/echo", &headers, ""));
    client
}

/// Sends a byte ever so often, until there is a response.
fn drip(mut client: Client) -> crate::support::Reply {
    let stream = client.stream();
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    for _ in 0..150 {
        client.send("x");
        if let Ok(reply) = client.reply(false) {
            return reply;
        }
    }
    panic!("no response came");
}

#[test]
fn uploads_that_drip_take_no_place_in_flight() {
    let mock = mock();
    let gateway = with_two_places(&mock.url(), "");
    let mut slow: Vec<_> = (0..4).map(|_| begin_upload(&gateway, &[])).collect();
    for _ in 0..3 {
        for client in &mut slow {
            client.send("x");
        }
        let reply = gateway
            .connect()
            .get_with("/api/echo", &["tidegate-max-wait: 1s"]);
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    assert_eq!(mock.stats().received, 3);
    // One that sends the rest is served.
    let mut client = slow.pop().unwrap();
    client.send(&"x".repeat(997));
    assert_eq!(client.reply(false).unwrap().json()["body_length"], 1000);
}

#[test]
fn uploads_that_were_asked_for_and_do_not_come_hold_a_place_for_a_second() {
    let mock = mock();
    let gateway = with_two_places(&mock.url(), "");
    let expect = ["expect: 100-continue"];
    let slow: Vec<_> = (0..4).map(|_| begin_upload(&gateway, &expect)).collect();
    until("all are in line", || {
        let totals = gateway.state.limiter().snapshot(Sort::default(), 0).totals;
        totals.in_flight + totals.waiting == 4
    });
    let reply = gateway
        .connect()
        .get_with("/api/echo", &["tidegate-max-wait: 8s"]);
    assert_eq!(reply.status, 200, "{reply:?}");
    for mut client in slow {
        assert_eq!(client.head().unwrap().status, 100);
        client.reply(false).unwrap().is_own(408, "body_incomplete");
    }
}

#[test]
fn ends_uploads_below_the_lowest_rate() {
    let mock = mock();
    let times = "[http]\nidle_timeout = \"2s\"\n";
    let gateway = with_two_places(&mock.url(), times);
    let reply = drip(begin_upload(&gateway, &[]));
    reply.is_own(408, "body_incomplete");
    assert_eq!(mock.stats().received, 0);
    // With a permit, too.
    let mut client = begin_upload(&gateway, &["expect: 100-continue"]);
    assert_eq!(client.head().unwrap().status, 100);
    drip(client).is_own(408, "body_incomplete");
    until("no request is in flight", || mock.stats().in_flight == 0);
    gateway.works();
}

#[test]
fn sends_an_upload_on_that_holds_the_lowest_rate() {
    let upstream = Raw::start(|_, mut client| {
        client.request_head();
        while client.chunk().is_ok_and(|chunk| chunk.is_some()) {}
        client.send("HTTP/1.1 204 x\r\n\r\n");
    });
    let gateway = Fixture::before(&upstream.url());
    let mut client = gateway.connect();
    let encoding = ["transfer-encoding: chunked"];
    client.send(&request("POST", "/api/x", &encoding, ""));
    client.send(&format!("800\r\n{}\r\n", "x".repeat(2048)));
    until("the server is connected", || upstream.connections() == 1);
    client.send("0\r\n\r\n");
    assert_eq!(client.reply(false).unwrap().status, 204);
}

#[test]
fn sends_nothing_for_clients_that_left_with_an_unread_body() {
    let long = "content-length: 10000000";
    for (headers, body) in [
        (&["expect: 100-continue", "content-length: 5"][..], 0),
        // Enough to get in line, and more than is read there.
        (&[long], 200_000),
        (&["expect: 100-continue", long], 100_000),
    ] {
        let mock = mock();
        let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1\n";
        let gateway = Fixture::new(&format!("{gate}{}", pool(&[("a", &mock.url())])));
        let mut first = gateway.connect();
        first.send(&request("GET", "/api/slow?first=3s", &[], ""));
        until("it is under way", || mock.stats().in_flight == 1);
        let mut client = gateway.connect();
        client.send(&request("POST", "/api/echo", headers, ""));
        client.send(&"x".repeat(body));
        pause(1500);
        drop(client);
        assert_eq!(first.reply(false).unwrap().status, 200);
        // Its turn would be now.
        gateway.works();
        let log = mock.log();
        let paths: Vec<&str> = log.iter().map(|entry| &*entry.path).collect();
        let posts = log.iter().filter(|entry| entry.method == "POST");
        assert_eq!(posts.count(), 0, "{headers:?}: {paths:?}");
    }
}

#[test]
fn sends_nothing_for_clients_that_left_behind_pipelined_requests() {
    let mock = mock();
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1\n";
    let gateway = Fixture::new(&format!("{gate}{}", pool(&[("a", &mock.url())])));
    let mut first = gateway.connect();
    first.send(&request("GET", "/api/slow?first=1s", &[], ""));
    until("it is under way", || mock.stats().in_flight == 1);
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/bytes/7", &[], "").repeat(2));
    until("it is in line", || waiting(&gateway) == 1);
    drop(client);
    assert_eq!(first.reply(false).unwrap().status, 200);
    // Its turn would be now.
    gateway.works();
    let log = mock.log();
    let sent = log.iter().filter(|entry| entry.path.contains("bytes/7"));
    assert_eq!(sent.count(), 0);
}

/// How many requests are in line.
fn waiting(gateway: &Fixture) -> u64 {
    let limiter = gateway.state.limiter();
    limiter.snapshot(Sort::default(), 0).totals.waiting
}

#[test]
fn uploads_in_tiny_pieces_take_little_memory() {
    in_child("slow::uploads_in_tiny_pieces_take_little_memory", || {
        let mock = mock();
        let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1\n";
        let gateway = Fixture::new(&format!("{gate}{}", pool(&[("a", &mock.url())])));
        let mut first = gateway.connect();
        first.send(&request("GET", "/api/slow?first=1h", &[], ""));
        until("it is under way", || mock.stats().in_flight == 1);
        let before = resident();
        let mut clients: Vec<_> = (0..20)
            .map(|_| {
                let mut client = gateway.connect();
                client.stream().set_nodelay(true).unwrap();
                let length = ["content-length: 1000000"];
                client.send(&request("POST", "/api/echo", &length, ""));
                client
            })
            .collect();
        for _ in 0..1500 {
            for client in &mut clients {
                client.send("sixteen bytes ..");
            }
            // So that each is read alone.
            pause(1);
        }
        until("all wait in line", || waiting(&gateway) == 20);
        let taken = resident() - before;
        assert!(taken < 40, "{taken} MiB for half a MiB of bodies");
    });
}

#[test]
fn clients_that_do_not_read_take_little_memory() {
    in_child("slow::clients_that_do_not_read_take_little_memory", || {
        // In pieces as short as a network delivers them.
        let upstream = Raw::start(|_, mut client| {
            client.request();
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n");
            let piece = [b'x'; 1400];
            while std::io::Write::write_all(client.stream(), &piece).is_ok() {}
        });
        let gateway = Fixture::before(&upstream.url());
        gateway.get("/nope");
        let before = resident();
        let clients: Vec<_> = (0..COUNT)
            .map(|_| {
                let mut client = gateway.connect();
                client.send(&request("GET", "/api/x", &[], ""));
                client
            })
            .collect();
        until("all are served", || upstream.connections() == COUNT);
        // Until every buffer is full.
        pause(3000);
        let each = ((resident() - before) << 10) / COUNT as u64;
        // Each has a thread of the upstream here as well.
        assert!(each < 128, "{each} KiB");
        drop(clients);
    });
}

const COUNT: usize = 100;

#[test]
fn closes_idle_clients_of_http2_that_answer_pings() {
    let mock = mock();
    let times = "[http]\nidle_timeout = \"300ms\"\n";
    let gateway = Fixture::with(&mock.url(), times);
    let mut client = FrameClient::connect(gateway.address());
    client.get(1, "/api/echo");
    assert!(client.until(SETTINGS).is_some());
    client.send(PING, 0, 0, &[7; 8]);
    client.wait_for_end();
}

#[test]
fn ends_responses_over_http2_whose_clients_do_not_read() {
    let mock = mock();
    let times = "[http]\nidle_timeout = \"500ms\"\n";
    let gateway = Fixture::with(&mock.url(), times);
    let mut client = FrameClient::connect(gateway.address());
    for stream in [1, 3, 5] {
        client.get(stream, "/api/bytes/1000000000");
    }
    until("all are under way", || mock.stats().in_flight == 3);
    // The window of the connection is used up, and pings are answered.
    client.send(PING, 0, 0, &[7; 8]);
    until("none is in flight", || mock.stats().in_flight == 0);
    let gates = gateway.state.limiter();
    until("no place is taken", || {
        gates.snapshot(Sort::default(), 0).totals.in_flight == 0
    });
    // It would be kept for ever otherwise, with what was sent and not read.
    client.wait_for_end();
}

#[test]
fn request_trailers_lose_what_is_not_the_clients() {
    let upstream = Raw::start(|_, mut client| {
        client.request_head();
        while client.chunk().is_ok_and(|chunk| chunk.is_some()) {}
        let mut trailers = String::new();
        while !trailers.ends_with("\r\n\r\n") {
            let mut byte = [0];
            if client.read(&mut byte) == 0 {
                break;
            }
            trailers.push(byte[0].into());
        }
        client.send(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{trailers}",
            trailers.len()
        ));
    });
    let gateway = Fixture::before(&upstream.url());
    let mut client = gateway.connect();
    let names = [
        "x-sum",
        "x-forwarded-for",
        "forwarded",
        "tidegate-cost",
        "connection",
        "te",
    ];
    let announced = format!("trailer: {}", names.join(", "));
    let headers = ["transfer-encoding: chunked", &announced];
    client.send(&request("POST", "/api/x", &headers, ""));
    let fields: String = names.iter().map(|name| format!("{name}: 1\r\n")).collect();
    client.send(&format!("2\r\nhi\r\n0\r\n{fields}\r\n"));
    assert_eq!(client.reply(false).unwrap().text(), "x-sum: 1\r\n\r\n");
}
