//! Clients of HTTP/2 that break its rules, frame by frame: the stream or the connection ends, nothing of
//! it reaches the upstream, and other clients are served as before.

use tidegate::Sort;

use crate::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, GO_AWAY, HEADERS, PING, PREFACE,
    RESET, Received, SETTINGS, WINDOW_UPDATE, block, head,
};
use crate::support::{Fixture, Raw, mock, pool, request, until};

/// What has to become of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The connection ends.
    Closed,
    /// The stream is reset, or the connection ends.
    Reset,
    /// The connection goes on, and serves a request on stream 101.
    Served,
}

use Expected::{Closed, Reset, Served};

/// A client that says the usual, and then something else.
type Case = (&'static str, Expected, fn(&mut FrameClient));

const WHOLE: u8 = END_HEADERS | END_STREAM;

/// A request that must never arrive.
fn evil() -> Vec<u8> {
    head("GET", "/api/evil", &[])
}

fn with(others: &[(&str, &str)]) -> Vec<u8> {
    head("GET", "/api/evil", others)
}

const CASES: &[Case] = &[
    ("data on stream 0", Closed, |client| {
        client.send(DATA, 0, 0, b"x")
    }),
    ("data on an idle stream", Closed, |client| {
        client.send(DATA, 0, 1, b"x")
    }),
    ("headers on stream 0", Closed, |client| {
        client.send(HEADERS, WHOLE, 0, &evil())
    }),
    ("headers on an even stream", Closed, |client| {
        client.send(HEADERS, WHOLE, 2, &evil())
    }),
    ("a stream number that falls", Closed, |client| {
        client.get(5, "/api/echo");
        client.send(HEADERS, WHOLE, 3, &evil());
    }),
    ("a frame above the largest size", Closed, |client| {
        client.send(DATA, 0, 1, &[0; 16_385]);
    }),
    ("settings of a wrong length", Closed, |client| {
        client.send(SETTINGS, 0, 0, &[0; 5])
    }),
    ("settings on a stream", Closed, |client| {
        client.send(SETTINGS, 0, 1, &[])
    }),
    ("an acknowledgement with settings", Closed, |client| {
        client.send(SETTINGS, ACK, 0, &[0; 6]);
    }),
    ("a window above the largest", Closed, |client| {
        client.send(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]);
    }),
    ("a largest frame below the least", Closed, |client| {
        client.send(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]);
    }),
    ("a ping of seven bytes", Closed, |client| {
        client.send(PING, 0, 0, &[0; 7])
    }),
    ("a ping on a stream", Closed, |client| {
        client.send(PING, 0, 1, &[0; 8])
    }),
    ("a window update of zero", Closed, |client| {
        client.send(WINDOW_UPDATE, 0, 0, &[0; 4]);
    }),
    ("window updates beyond the largest", Closed, |client| {
        client.send(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]);
    }),
    ("a window update of three bytes", Closed, |client| {
        client.send(WINDOW_UPDATE, 0, 0, &[0; 3]);
    }),
    ("a continuation of nothing", Closed, |client| {
        client.send(CONTINUATION, END_HEADERS, 1, &evil());
    }),
    (
        "another frame between headers and continuation",
        Closed,
        |client| {
            client.send(HEADERS, END_STREAM, 1, &evil());
            client.send(PING, 0, 0, &[0; 8]);
        },
    ),
    ("a continuation of another stream", Closed, |client| {
        client.send(HEADERS, END_STREAM, 1, &evil());
        client.send(CONTINUATION, END_HEADERS, 3, &evil());
    }),
    ("a reset of an idle stream", Closed, |client| {
        client.send(RESET, 0, 1, &[0; 4])
    }),
    ("a reset of three bytes", Closed, |client| {
        client.get(1, "/api/echo");
        client.send(RESET, 0, 1, &[0; 3]);
    }),
    ("a push promise", Closed, |client| {
        client.send(5, END_HEADERS, 1, &[0, 0, 0, 2])
    }),
    ("padding longer than the frame", Closed, |client| {
        client.send(HEADERS, WHOLE | 8, 1, &[200, 0]);
    }),
    ("an index beyond the header table", Closed, |client| {
        client.send(HEADERS, WHOLE, 1, &[0xff, 0xff, 0x7f]);
    }),
    ("headers that end in the middle", Closed, |client| {
        client.send(HEADERS, WHOLE, 1, &evil()[..20]);
    }),
    ("a header table above what is allowed", Closed, |client| {
        client.send(HEADERS, WHOLE, 1, &[0x3f, 0xff, 0xff, 0x7f]);
    }),
    ("a name in upper case", Reset, |client| {
        client.send(HEADERS, WHOLE, 1, &with(&[("X-Upper", "1")]));
    }),
    ("a line break in a value", Reset, |client| {
        client.send(HEADERS, WHOLE, 1, &with(&[("x-a", "1\r\nx-b: 2")]));
    }),
    ("a pseudo-header behind others", Reset, |client| {
        client.send(
            HEADERS,
            WHOLE,
            1,
            &with(&[("x-a", "1"), (":path", "/other")]),
        );
    }),
    ("two paths", Reset, |client| {
        client.send(HEADERS, WHOLE, 1, &with(&[(":path", "/other")]));
    }),
    ("an unknown pseudo-header", Reset, |client| {
        client.send(HEADERS, WHOLE, 1, &with(&[(":other", "x")]));
    }),
    ("no path", Reset, |client| {
        let fields = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "localhost"),
        ];
        client.send(HEADERS, WHOLE, 1, &block(&fields));
    }),
    ("a status in a request", Reset, |client| {
        client.send(HEADERS, WHOLE, 1, &with(&[(":status", "200")]));
    }),
    ("a header of a connection", Reset, |client| {
        client.send(
            HEADERS,
            WHOLE,
            1,
            &with(&[("transfer-encoding", "chunked")]),
        );
    }),
    ("a body shorter than its length", Reset, |client| {
        let fields = [("content-length", "5")];
        client.send(HEADERS, END_HEADERS, 1, &head("POST", "/api/evil", &fields));
        client.send(DATA, END_STREAM, 1, b"x");
    }),
    ("a body longer than its length", Reset, |client| {
        let fields = [("content-length", "1")];
        client.send(HEADERS, END_HEADERS, 1, &head("POST", "/api/evil", &fields));
        client.send(DATA, END_STREAM, 1, b"hello");
    }),
    ("data behind the end of a stream", Reset, |client| {
        client.get(1, "/api/echo");
        client.send(DATA, END_STREAM, 1, b"x");
    }),
    ("endless continuations", Closed, |client| {
        client.send(HEADERS, END_STREAM, 1, &evil());
        for _ in 0..2000 {
            client.send(CONTINUATION, 0, 1, &block(&[("x-more", "and more")]));
        }
    }),
    (
        "a flood of requests that are reset at once",
        Closed,
        |client| {
            for number in 0..5000 {
                let stream = 2 * number + 1;
                client.get(stream, "/api/slow?first=1s");
                client.send(RESET, 0, stream, &8_u32.to_be_bytes());
            }
        },
    ),
    ("a flood of settings", Served, |client| {
        for _ in 0..2000 {
            client.send(SETTINGS, 0, 0, &[]);
        }
    }),
    ("a flood of pings", Served, |client| {
        for _ in 0..2000 {
            client.send(PING, 0, 0, &[0; 8]);
        }
    }),
    ("a flood of empty data", Closed, |client| {
        client.send(
            HEADERS,
            END_HEADERS,
            1,
            &head("POST", "/api/slow?first=1h", &[]),
        );
        for _ in 0..200_000 {
            client.send(DATA, 0, 1, &[]);
        }
    }),
    ("frames of unknown kinds", Served, |client| {
        for kind in 20..40 {
            client.send(kind, 0xff, 1, b"something new");
        }
    }),
    ("unknown settings", Served, |client| {
        client.send(SETTINGS, 0, 0, &[0, 99, 1, 2, 3, 4])
    }),
];

/// What comes back that ends the stream or the connection, or answers stream 101.
fn outcome(client: &mut FrameClient) -> Expected {
    loop {
        let Some(received) = client.next() else {
            return Closed;
        };
        let Received { kind, stream, .. } = received;
        match (kind, stream) {
            (GO_AWAY, _) => return Closed,
            (RESET, _) => return Reset,
            (HEADERS, 101) => return Served,
            _ => {}
        }
    }
}

#[test]
fn clients_that_break_the_rules_end_only_themselves() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for (name, expected, break_rules) in CASES {
        let mut client = FrameClient::connect(gateway.address());
        break_rules(&mut client);
        if *expected == Served {
            client.get(101, "/api/echo");
        }
        let found = outcome(&mut client);
        let is_fine = found == *expected || (*expected == Reset && found == Closed);
        assert!(is_fine, "{name}: {found:?} instead of {expected:?}");
        gateway.works();
    }
    let log = mock.log();
    let evil = log.iter().filter(|entry| entry.path.starts_with("/evil"));
    assert_eq!(evil.count(), 0, "{log:?}");
}

#[test]
fn closes_a_connection_without_a_preface() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut wrong = PREFACE.to_vec();
    wrong[20] = b'X';
    let mut client = FrameClient::connect_with(gateway.address(), &wrong);
    client.send(SETTINGS, 0, 0, &[]);
    client.get(1, "/api/evil");
    while client.next().is_some() {}
    gateway.works();
    assert!(mock.log().iter().all(|entry| &*entry.path == "/echo"));
}

#[test]
fn joins_the_cookies_of_a_client_of_http2() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = FrameClient::connect(gateway.address());
    let cookies = [("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")];
    client.send(HEADERS, WHOLE, 1, &head("GET", "/api/echo", &cookies));
    let body = client.until(DATA).unwrap().payload;
    let echoed: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(echoed["headers"]["cookie"], "a=1; b=2; c=3");
}

#[test]
fn accepts_heads_as_long_as_over_http1() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for (pieces, expected) in [(3, "\"x-0\":"), (6, "\"headers_too_large\"")] {
        let mut client = FrameClient::connect(gateway.address());
        client.send(HEADERS, END_STREAM, 1, &head("GET", "/api/echo", &[]));
        let value = "x".repeat(13_000);
        for number in 0..pieces {
            let name = format!("x-{number}");
            client.send(CONTINUATION, 0, 1, &block(&[(&name, &value)]));
        }
        client.send(CONTINUATION, END_HEADERS, 1, &[]);
        let body = client.until(DATA).unwrap().payload;
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains(expected), "{body}");
    }
}

#[test]
fn a_body_that_breaks_off_ends_with_a_reset() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    for answer in [&answer[..], chunked] {
        let upstream = Raw::saying(answer);
        let gateway = Fixture::before(&upstream.url());
        let mut client = FrameClient::connect(gateway.address());
        client.get(1, "/api/x");
        loop {
            let received = client.next().unwrap();
            if received.stream == 1 && received.kind == RESET {
                break;
            }
            let ends = received.stream == 1 && received.flags & END_STREAM != 0;
            assert!(!ends, "{received:?}");
        }
    }
}

#[test]
fn sends_nothing_for_streams_that_were_reset_while_they_waited() {
    let mock = mock();
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 1000\nmax_in_flight = 1\n";
    let gateway = Fixture::new(&format!("{gate}{}", pool(&[("a", &mock.url())])));
    let mut first = gateway.connect();
    first.send(&request("GET", "/api/slow?first=1s", &[], ""));
    until("it is under way", || mock.stats().in_flight == 1);
    let waiting = || {
        let limiter = gateway.state.limiter();
        limiter.snapshot(Sort::default(), 0).totals.waiting
    };
    let mut client = FrameClient::connect(gateway.address());
    client.get(1, "/api/bytes/7");
    until("it is in line", || waiting() == 1);
    client.send(RESET, 0, 1, &8_u32.to_be_bytes());
    until("it has left the line", || waiting() == 0);
    assert_eq!(first.reply(false).unwrap().status, 200);
    gateway.works();
    let log = mock.log();
    let sent = log.iter().filter(|entry| entry.path.contains("bytes"));
    assert_eq!(sent.count(), 0);
}

#[test]
fn an_idle_client_that_answers_nothing_does_not_delay_a_drain() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = FrameClient::connect(gateway.address());
    client.get(1, "/api/echo");
    assert!(client.until(DATA).is_some());
    gateway.gateway.drain();
    until("all connections are closed", || gateway.gateway.is_done());
}
