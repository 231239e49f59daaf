//! Paths that every mock has: what a test of a client needs, and what the mock tells of itself.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use policy::{duration, setting};
use serde_json::{Map, Value, json};

use super::body::MockBody;
use super::desk::Desk;
use super::handle::{self, Answer, Call, typed};
use super::journal::LogEntry;

/// One of those paths, as a request asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `/echo`: what was received.
    Echo,
    /// `/bytes/N`: so many bytes.
    Bytes(u64),
    /// `/sse?n=5&every=100ms`: so many events, so far apart.
    Events { count: u64, every: Duration },
    /// `/status/CODE`: an answer of this status.
    Status(u16),
    /// `/slow?first=2s&n=1&every=0s`: the first byte after so long, then more.
    Slow {
        first: Duration,
        count: u64,
        every: Duration,
    },
    /// `/trailers`: a body in pieces with a header behind it.
    Trailers,
    /// One of them, with something that does not fit.
    Wrong(String),
}

impl Endpoint {
    pub(super) fn of(path: &str, query: Option<&str>) -> Option<Self> {
        let mut parts = path.split('/').skip(1);
        let (name, value) = (parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        let read = match (name, value) {
            ("echo", None) => Ok(Self::Echo),
            ("trailers", None) => Ok(Self::Trailers),
            ("bytes", Some(count)) => setting::whole(count, 0, MOST_BYTES)
                .map(Self::Bytes)
                .map_err(|expected| format!("expected {expected}, as in `/bytes/1024`")),
            ("status", Some(status)) => setting::whole(status, 200, 599)
                .map(Self::Status)
                .map_err(|expected| format!("expected {expected}, as in `/status/503`")),
            ("sse", None) => events(query.unwrap_or_default()),
            ("slow", None) => slow(query.unwrap_or_default()),
            _ => return None,
        };
        Some(read.unwrap_or_else(Self::Wrong))
    }

    pub(super) async fn answer(self, mut call: Call<'_>) -> Answer {
        let (length, trailers) = handle::drain(&mut call.body).await;
        let clock = call.desk.clock();
        match self {
            Self::Echo => echo(&call, length, trailers.as_ref()),
            Self::Bytes(count) => typed(200, "application/octet-stream", MockBody::filler(count)),
            Self::Status(status) => of_status(status),
            Self::Events { count, every } => {
                let events = (0..count).map(|n| format!("id: {n}\ndata: {{\"n\":{n}}}\n\n").into());
                typed(200, EVENT_STREAM, MockBody::pieces(clock, every, events))
            }
            Self::Slow {
                first,
                count,
                every,
            } => {
                clock.sleep_until(clock.now() + first).await;
                let pieces = (0..count).map(|_| Bytes::from_static(b"slow\n"));
                typed(200, TEXT, MockBody::pieces(clock, every, pieces))
            }
            Self::Trailers => with_trailers(&call),
            Self::Wrong(expected) => handle::json(400, &json!({ "error": expected })),
        }
    }
}

pub(super) const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A pebibyte: nobody reads it to its end, and counting it does not overflow.
const MOST_BYTES: u64 = 1 << 50;

fn events(query: &str) -> Result<Endpoint, String> {
    Ok(Endpoint::Events {
        count: count(query, 5)?,
        every: time(query, "every", Duration::from_millis(100))?,
    })
}

fn slow(query: &str) -> Result<Endpoint, String> {
    Ok(Endpoint::Slow {
        first: time(query, "first", Duration::from_secs(1))?,
        count: count(query, 1)?,
        every: time(query, "every", Duration::ZERO)?,
    })
}

fn count(query: &str, usual: u64) -> Result<u64, String> {
    parameter(query, "n").map_or(Ok(usual), |text| {
        setting::whole(text, 0, 1_000_000_000)
            .map_err(|expected| format!("`n` is `{text}`, expected {expected}"))
    })
}

fn time(query: &str, name: &str, usual: Duration) -> Result<Duration, String> {
    parameter(query, name).map_or(Ok(usual), |text| {
        duration::parse(text)
            .map_err(|expected| format!("`{name}` is `{text}`, expected {expected}"))
    })
}

/// A parameter as it stands: none of ours needs escapes.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn echo(call: &Call<'_>, length: u64, trailers: Option<&HeaderMap>) -> Answer {
    let head = &call.head;
    handle::json(
        200,
        &json!({
            "method": head.method.as_str(),
            "path": head.uri.path(),
            "query": head.uri.query(),
            "version": format!("{:?}", head.version),
            "headers": headers_json(&head.headers),
            "trailers": trailers.map(headers_json),
            "body_length": length,
            "client": call.peer.address.to_string(),
        }),
    )
}

/// Values by name; several of one name are a list.
fn headers_json(headers: &HeaderMap) -> Value {
    let mut map = Map::new();
    for name in headers.keys() {
        let values = headers.get_all(name).iter();
        let mut values: Vec<Value> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into())
            .collect();
        let value = match values.len() {
            1 => values.remove(0),
            _ => Value::Array(values),
        };
        map.insert(name.as_str().to_owned(), value);
    }
    Value::Object(map)
}

/// Statuses without content have none.
fn of_status(status: u16) -> Answer {
    if matches!(status, 204 | 205 | 304) {
        let mut answer = typed(status, "application/json", MockBody::empty());
        answer.headers_mut().clear();
        return answer;
    }
    handle::json(status, &json!({ "status": status }))
}

fn with_trailers(call: &Call<'_>) -> Answer {
    let pieces = ["first\n", "second\n"].map(|piece| Bytes::from_static(piece.as_bytes()));
    let body = MockBody::pieces(call.desk.clock(), Duration::ZERO, pieces.into_iter());
    let name = HeaderName::from_static("x-mock-trailer");
    let trailers = HeaderMap::from_iter([(name, HeaderValue::from_static("behind"))]);
    let mut answer = typed(200, TEXT, body.with_trailers(trailers));
    let announced = HeaderValue::from_static("x-mock-trailer");
    answer
        .headers_mut()
        .insert(http::header::TRAILER, announced);
    answer
}

/// What a mock tells of itself, or does to itself.
pub(super) fn about(desk: &Desk, method: &Method, name: &str) -> Answer {
    match (name, method) {
        ("stats", &Method::GET | &Method::HEAD) => handle::json(200, &json!(desk.stats())),
        ("log", &Method::GET | &Method::HEAD) => handle::json(200, &log(desk)),
        ("reset", &Method::POST) => {
            desk.reset();
            handle::json(200, &json!({ "ok": true }))
        }
        ("stats" | "log" | "reset", _) => handle::json(405, &json!({ "error": ABOUT })),
        _ => handle::json(404, &json!({ "error": ABOUT })),
    }
}

const ABOUT: &str = "expected `GET /_mock/stats`, `GET /_mock/log` or `POST /_mock/reset`";

fn log(desk: &Desk) -> Value {
    let (entries, forgotten) = desk.log();
    let requests: Vec<Value> = entries.iter().map(entry_json).collect();
    json!({ "forgotten": forgotten, "requests": requests })
}

fn entry_json(entry: &LogEntry) -> Value {
    // Whole microseconds: beyond that, digits are noise.
    let millis = |time: Duration| time.as_micros() as f64 / 1000.0;
    json!({
        "at_ms": millis(entry.at),
        "client": entry.client,
        "method": entry.method.as_str(),
        "path": entry.path,
        "status": entry.status,
        "took_ms": entry.took.map(millis),
        "early": entry.is_early,
    })
}
