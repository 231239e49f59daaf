//! Servers of HTTP/2 that break its rules, frame by frame, or allow little: the client gets an error or
//! sees that its response broke off, and the next request is served.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, PING, RESET, SETTINGS,
    WINDOW_UPDATE, block, frame, read_frame,
};
use crate::support::{Fixture, OPEN, pause, pool, request, until};
use crate::tls::{listen, trusting};

/// What the client has to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// 502.
    Unreachable,
    /// A response that breaks off.
    Truncated,
    /// 200.
    Served,
}

use Expected::{Served, Truncated, Unreachable};

/// What the server answers to the first request, and then closes the connection if it is `true`.
type Case = (&'static str, Expected, fn(u32) -> Vec<u8>, bool);

const WHOLE: u8 = END_HEADERS | END_STREAM;

/// The head of a response, to which a body belongs.
fn ok(id: u32, others: &[(&str, &str)]) -> Vec<u8> {
    let fields = [&[(":status", "200")], others].concat();
    frame(HEADERS, END_HEADERS, id, &block(&fields))
}

/// The beginning of a response.
fn begun(id: u32) -> Vec<u8> {
    [ok(id, &[]), frame(DATA, 0, id, b"some of it")].concat()
}

fn only(id: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, WHOLE, id, &block(fields))
}

fn going(last: u32, reason: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), reason.to_be_bytes()].concat();
    frame(GO_AWAY, 0, 0, &payload)
}

fn reset(id: u32, reason: u32) -> Vec<u8> {
    frame(RESET, 0, id, &reason.to_be_bytes())
}

const CASES: &[Case] = &[
    (
        "a whole response",
        Served,
        |id| only(id, &[(":status", "200")]),
        false,
    ),
    (
        "a head of 40 KiB",
        Served,
        |id| {
            let value = "x".repeat(13_000);
            let first = block(&[(":status", "200"), ("x-a", &value)]);
            let more = frame(CONTINUATION, 0, id, &block(&[("x-b", &value)]));
            let last = frame(CONTINUATION, END_HEADERS, id, &block(&[("x-c", &value)]));
            [frame(HEADERS, END_STREAM, id, &first), more, last].concat()
        },
        false,
    ),
    (
        "a reset without an error in a body",
        Truncated,
        |id| [begun(id), reset(id, 0)].concat(),
        false,
    ),
    (
        "a reset that cancels in a body",
        Truncated,
        |id| [begun(id), reset(id, 8)].concat(),
        false,
    ),
    (
        "a reset with an error in a body",
        Truncated,
        |id| [begun(id), reset(id, 2)].concat(),
        false,
    ),
    (
        "going away in a body",
        Truncated,
        |id| [begun(id), going(id, 0)].concat(),
        true,
    ),
    (
        "going away with an error in a body",
        Truncated,
        |id| [begun(id), going(id, 2)].concat(),
        true,
    ),
    ("a connection that ends in a body", Truncated, begun, true),
    (
        // It is sent once more, on a new connection.
        "going away without having seen it, on an open connection",
        Served,
        |_| going(0, 0),
        false,
    ),
    (
        "going away before a whole response, on an open connection",
        Served,
        |id| [going(id, 0), only(id, &[(":status", "200")])].concat(),
        false,
    ),
    (
        "a reset without an error behind a whole body",
        Served,
        |id| {
            let body = frame(DATA, END_STREAM, id, b"all of it");
            [ok(id, &[]), body, reset(id, 0)].concat()
        },
        false,
    ),
    (
        "a body shorter than its length",
        Truncated,
        |id| {
            let head = ok(id, &[("content-length", "9")]);
            [head, frame(DATA, END_STREAM, id, b"x")].concat()
        },
        false,
    ),
    (
        "a body longer than its length",
        Truncated,
        |id| {
            let head = ok(id, &[("content-length", "1")]);
            [head, frame(DATA, END_STREAM, id, b"hello")].concat()
        },
        false,
    ),
    (
        "a protocol error in a body",
        Truncated,
        |id| [begun(id), frame(PING, 0, 0, &[0; 7])].concat(),
        false,
    ),
    (
        "no status",
        Unreachable,
        |id| only(id, &[("x-a", "1")]),
        false,
    ),
    (
        "a status that is no number",
        Unreachable,
        |id| only(id, &[(":status", "2x0")]),
        false,
    ),
    (
        "a name in upper case",
        Unreachable,
        |id| only(id, &[(":status", "200"), ("X-Upper", "1")]),
        false,
    ),
    (
        "a pseudo-header behind others",
        Unreachable,
        |id| only(id, &[("x-a", "1"), (":status", "200")]),
        false,
    ),
    (
        "a request for a response",
        Unreachable,
        |id| only(id, &[(":method", "GET"), (":path", "/")]),
        false,
    ),
    (
        "headers that end in the middle",
        Unreachable,
        |id| frame(HEADERS, WHOLE, id, &[0, 9, b'x']),
        false,
    ),
    (
        "an index beyond the header table",
        Unreachable,
        |id| frame(HEADERS, WHOLE, id, &[0xff, 0xff, 0x7f]),
        false,
    ),
    (
        "data before headers",
        Unreachable,
        |id| frame(DATA, END_STREAM, id, b"x"),
        false,
    ),
    (
        "headers of a stream that was not opened",
        Unreachable,
        |id| only(id + 100, &[(":status", "200")]),
        false,
    ),
    (
        "data on stream 0",
        Unreachable,
        |_| frame(DATA, 0, 0, b"x"),
        false,
    ),
    (
        "a frame above the largest size",
        Unreachable,
        |id| frame(DATA, 0, id, &[0; 20_000]),
        false,
    ),
    (
        "settings of a wrong length",
        Unreachable,
        |_| frame(SETTINGS, 0, 0, &[0; 5]),
        false,
    ),
    (
        "window updates beyond the largest",
        Unreachable,
        |_| frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        false,
    ),
    (
        "a window update of zero",
        Unreachable,
        |id| frame(WINDOW_UPDATE, 0, id, &[0; 4]),
        false,
    ),
    (
        "a push that was not allowed",
        Unreachable,
        |id| {
            let promise = [&2_u32.to_be_bytes()[..], &block(&[(":method", "GET")])].concat();
            frame(5, END_HEADERS, id, &promise)
        },
        false,
    ),
    (
        "a continuation of nothing",
        Unreachable,
        |id| frame(CONTINUATION, END_HEADERS, id, &[]),
        false,
    ),
    (
        "endless continuations",
        Unreachable,
        |id| {
            let more = frame(CONTINUATION, 0, id, &block(&[("x-more", "and more")]));
            [
                frame(HEADERS, 0, id, &block(&[(":status", "200")])),
                more.repeat(3000),
            ]
            .concat()
        },
        false,
    ),
    (
        "a head far too long",
        Unreachable,
        |id| {
            let value = "x".repeat(16_000);
            let fields = [(":status", "200"), ("x-a", &value)];
            let more = frame(CONTINUATION, 0, id, &block(&[("x-b", &value)]));
            let last = frame(CONTINUATION, END_HEADERS, id, &[]);
            let first = frame(HEADERS, END_STREAM, id, &block(&fields));
            [first, more.repeat(20), last].concat()
        },
        false,
    ),
    (
        "a reset with an error",
        Unreachable,
        |id| reset(id, 2),
        false,
    ),
    (
        "going away after having seen it",
        Unreachable,
        |id| going(id, 2),
        true,
    ),
    ("a connection that ends", Unreachable, |_| Vec::new(), true),
    (
        "what is not HTTP/2",
        Unreachable,
        |_| b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec(),
        false,
    ),
    (
        "informational responses before one",
        Served,
        |id| {
            let early = frame(HEADERS, END_HEADERS, id, &block(&[(":status", "103")]));
            [early.repeat(3), only(id, &[(":status", "200")])].concat()
        },
        false,
    ),
    (
        "a flood of pings before a response",
        Served,
        |id| {
            [
                frame(PING, 0, 0, &[0; 8]).repeat(500),
                only(id, &[(":status", "200")]),
            ]
            .concat()
        },
        false,
    ),
    (
        "frames of unknown kinds before a response",
        Served,
        |id| {
            [
                frame(77, 0xff, id, b"new").repeat(20),
                only(id, &[(":status", "200")]),
            ]
            .concat()
        },
        false,
    ),
];

/// Answers the first request over all connections by `answer`, and every other with 200.
async fn serve(
    mut stream: TlsStream<TcpStream>,
    seen: Arc<AtomicUsize>,
    answer: fn(u32) -> Vec<u8>,
    closes: bool,
) {
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).await.is_err() {
        return;
    }
    _ = stream.write_all(&frame(SETTINGS, 0, 0, &[])).await;
    loop {
        let Some((kind, flags, id)) = read_frame(&mut stream).await else {
            return;
        };
        let is_first = kind == HEADERS && seen.fetch_add(1, Ordering::SeqCst) == 0;
        let bytes = match kind {
            SETTINGS if flags == 0 => frame(SETTINGS, 1, 0, &[]),
            HEADERS if is_first => answer(id),
            HEADERS => only(id, &[(":status", "200")]),
            _ => continue,
        };
        _ = stream.write_all(&bytes).await;
        _ = stream.flush().await;
        if is_first && closes {
            _ = stream.shutdown().await;
            return;
        }
    }
}

#[test]
fn servers_that_break_the_rules_fail_only_their_request() {
    let name = "http2_servers::servers_that_break_the_rules_fail_only_their_request";
    trusting(name, |folder| {
        for (name, expected, answer, closes) in CASES {
            let seen = Arc::new(AtomicUsize::new(0));
            let url = listen(folder, "localhost", &["h2"], move |_, stream| {
                serve(stream, Arc::clone(&seen), *answer, *closes)
            });
            let gateway = Fixture::with(&url, "[http]\nfirst_byte_timeout = \"2s\"\n");
            let mut client = gateway.connect();
            // Not sent again, so that the first answer is what the client sees.
            client.send(&request("POST", "/api/x", &[], "hello"));
            let found = match client.reply(false) {
                Ok(reply) if reply.status == 200 => Served,
                Ok(reply) if reply.status == 502 => Unreachable,
                Ok(reply) => panic!("{name}: {reply:?}"),
                Err(_) => Truncated,
            };
            assert_eq!(found, *expected, "{name}");
            // A breaker may have to close first.
            let next = gateway.get("/api/x");
            assert_eq!(next.status, 200, "{name}: {next:?}");
        }
    });
}

/// A server that allows so many streams. `/long` has no end; `/slow` takes a while.
async fn ordinary(stream: TlsStream<TcpStream>, streams: u32) {
    let service = service_fn(|request: http::Request<Incoming>| async move {
        let path = request.uri().path().to_owned();
        _ = request.into_body().collect().await;
        if path == "/long" {
            return Ok::<_, Infallible>(http::Response::new(Endless.boxed()));
        }
        if path == "/slow" {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let body = Full::new(Bytes::from("ok")).boxed();
        Ok(http::Response::new(body))
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(streams);
    _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// A body without an end.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 << 10])))))
    }
}

#[test]
fn clients_that_do_not_read_hold_up_only_themselves() {
    let name = "http2_servers::clients_that_do_not_read_hold_up_only_themselves";
    trusting(name, |folder| {
        let url = listen(folder, "localhost", &["h2"], |_, stream| {
            ordinary(stream, 200)
        });
        let gateway = Fixture::before(&url);
        let mut stalled: Vec<_> = (0..40).map(|_| gateway.connect()).collect();
        for client in &mut stalled {
            client.send(&request("GET", "/api/long", &[], ""));
            assert_eq!(client.head().unwrap().status, 200);
        }
        // Until every buffer is full.
        pause(1000);
        for _ in 0..20 {
            assert_eq!(gateway.get("/api/x").body, b"ok");
        }
    });
}

#[test]
fn opens_further_connections_past_the_streams_that_a_server_allows() {
    let name = "http2_servers::opens_further_connections_past_the_streams_that_a_server_allows";
    trusting(name, |folder| {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let url = listen(folder, "localhost", &["h2"], move |_, stream| {
            count.fetch_add(1, Ordering::SeqCst);
            ordinary(stream, 1)
        });
        let gateway = Fixture::with(&url, "[http]\nfirst_byte_timeout = \"5s\"\n");
        // More than the connections of both workers together, so that some wait for a stream.
        let mut clients: Vec<_> = (0..60).map(|_| gateway.connect()).collect();
        for client in &mut clients {
            client.send(&request("GET", "/api/slow", &[], ""));
        }
        for client in &mut clients {
            let reply = client.reply(false).unwrap();
            assert_eq!((reply.status, reply.attempts()), (200, 1), "{reply:?}");
        }
        let made = made.load(Ordering::SeqCst);
        assert!((2..=32).contains(&made), "{made}");
        until("the streams are free", || {
            gateway.get("/api/x").status == 200
        });
    });
}

#[test]
fn refuses_with_in_flight_when_no_stream_becomes_free() {
    let name = "http2_servers::refuses_with_in_flight_when_no_stream_becomes_free";
    trusting(name, |folder| {
        let url = listen(folder, "localhost", &["h2"], |_, stream| {
            ordinary(stream, 1)
        });
        let times = "consecutive_failures = 1\n[http]\nfirst_byte_timeout = \"500ms\"\n";
        let gateway = Fixture::new(&format!("{}{times}{}", OPEN, pool(&[("a", &url)])));
        let mut stalled: Vec<_> = (0..32).map(|_| gateway.connect()).collect();
        for client in &mut stalled {
            client.send(&request("GET", "/api/long", &[], ""));
            assert_eq!(client.head().unwrap().status, 200);
        }
        let reply = gateway.get("/api/x");
        reply.is_own(503, "in_flight");
        drop(stalled);
        // It says nothing about the server: the breaker is closed.
        until("a stream is free", || gateway.get("/api/x").status == 200);
    });
}

#[test]
fn waits_for_a_stream_no_longer_than_the_client() {
    let name = "http2_servers::waits_for_a_stream_no_longer_than_the_client";
    trusting(name, |folder| {
        let url = listen(folder, "localhost", &["h2"], |_, stream| {
            ordinary(stream, 1)
        });
        let gateway = Fixture::before(&url);
        let mut stalled: Vec<_> = (0..32).map(|_| gateway.connect()).collect();
        for client in &mut stalled {
            client.send(&request("GET", "/api/long", &[], ""));
            assert_eq!(client.head().unwrap().status, 200);
        }
        let mut client = gateway.connect();
        let reply = client.get_with("/api/x", &["tidegate-max-wait: 300ms"]);
        reply.is_own(503, "in_flight");
        let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
        assert!(waited >= 250, "{reply:?}");
        // One that gets a stream in time has waited as well, and the server was not slow.
        client.send(&request("GET", "/api/x", &[], ""));
        pause(3000);
        drop(stalled);
        let reply = client.reply(false).unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
        assert!(waited >= 2900, "{reply:?}");
        let metrics = gateway.state.core().metrics().render();
        let latency = metrics.lines().find_map(|line| {
            line.strip_prefix("tidegate_gate_latency_seconds_sum{key=\"api/a\"} ")
        });
        let latency: f64 = latency.unwrap().parse().unwrap();
        assert!(latency < 2.9, "{latency}");
    });
}

/// A server that allows a stream until it `raises` that to a hundred. Then it responds; to what came
/// before it never does.
async fn raising(stream: TlsStream<TcpStream>, mut raises: watch::Receiver<bool>) {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let allow = |streams| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, streams]);
    let mut preface = [0; 24];
    if reading.read_exact(&mut preface).await.is_err() {
        return;
    }
    _ = writing.write_all(&allow(1)).await;
    let writing = Arc::new(tokio::sync::Mutex::new(writing));
    let raising = {
        let (writing, mut raises) = (Arc::clone(&writing), raises.clone());
        tokio::spawn(async move {
            if raises.wait_for(|raises| *raises).await.is_ok() {
                _ = writing.lock().await.write_all(&allow(100)).await;
            }
        })
    };
    while let Some((kind, flags, id)) = read_frame(&mut reading).await {
        let bytes = match kind {
            SETTINGS if flags == 0 => frame(SETTINGS, 1, 0, &[]),
            HEADERS if *raises.borrow_and_update() => only(id, &[(":status", "200")]),
            _ => continue,
        };
        _ = writing.lock().await.write_all(&bytes).await;
    }
    raising.abort();
}

#[test]
fn sends_what_waits_when_the_server_allows_more_streams() {
    let name = "http2_servers::sends_what_waits_when_the_server_allows_more_streams";
    trusting(name, |folder| {
        let (raise, raises) = watch::channel(false);
        let url = listen(folder, "localhost", &["h2"], move |_, stream| {
            raising(stream, raises.clone())
        });
        let gateway = Fixture::before(&url);
        let mut clients: Vec<_> = (0..40).map(|_| gateway.connect()).collect();
        for client in &mut clients {
            client.send(&request("GET", "/api/x", &[], ""));
        }
        pause(1000);
        raise.send_replace(true);
        // Of 40, two workers sent 32.
        let served = || {
            let metrics = gateway.state.core().metrics().render();
            let mut lines = metrics.lines();
            lines.any(|line| line.contains("\"success\"") && line.ends_with(" 8"))
        };
        until("those that waited are served", served);
    });
}
