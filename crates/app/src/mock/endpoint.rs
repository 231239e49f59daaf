//! Paths that every mock has: responses for tests of clients, and the mock's own state.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use policy::{duration, setting};
use serde_json::{Map, Value, json};

use super::body::MockBody;
use super::handle::{self, MockRequest, MockResponse, typed};
use super::state::MockState;
use super::stats::LogEntry;
use super::style::has_no_body;

/// A path for tests of clients, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `/echo`: the request as JSON.
    Echo,
    /// `/bytes/N`: N bytes.
    Bytes(u64),
    /// `/sse?n=5&every=100ms`: server-sent events.
    Events { count: u64, every: Duration },
    /// `/status/CODE`: a response with this status.
    Status(u16),
    /// `/slow?first=2s&n=1&every=0s`: the first byte after a delay, then more pieces.
    Slow {
        first: Duration,
        count: u64,
        every: Duration,
    },
    /// `/trailers`: a chunked body and a trailer.
    Trailers,
    /// A parameter is invalid; what was expected.
    Invalid(String),
}

impl Endpoint {
    /// `None` if the path is none of these.
    pub(super) fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        let mut parts = path.split('/').skip(1);
        let (name, value) = (parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        let read = match (name, value) {
            ("echo", None) => Ok(Self::Echo),
            ("trailers", None) => Ok(Self::Trailers),
            ("bytes", Some(count)) => setting::whole(count, 0, MAX_BYTES)
                .map(Self::Bytes)
                .map_err(|expected| format!("expected {expected}, as in `/bytes/1024`")),
            ("status", Some(status)) => setting::whole(status, 200, 599)
                .map(Self::Status)
                .map_err(|expected| format!("expected {expected}, as in `/status/503`")),
            ("sse", None) => events(query.unwrap_or_default()),
            ("slow", None) => slow(query.unwrap_or_default()),
            _ => return None,
        };
        Some(read.unwrap_or_else(Self::Invalid))
    }

    pub(super) async fn respond(self, mut request: MockRequest<'_>) -> MockResponse {
        let (length, trailers) = handle::drain(&mut request.body).await;
        let clock = request.state.clock();
        match self {
            Self::Echo => echo(&request, length, trailers.as_ref()),
            Self::Bytes(count) => typed(200, "application/octet-stream", MockBody::filler(count)),
            Self::Status(status) => status_response(status),
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
            Self::Trailers => with_trailers(&request),
            Self::Invalid(expected) => handle::json(400, &json!({ "error": expected })),
        }
    }
}

pub(super) const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A pebibyte: more than any client reads, and far from overflow.
const MAX_BYTES: u64 = 1 << 50;

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

fn count(query: &str, default: u64) -> Result<u64, String> {
    parameter(query, "n").map_or(Ok(default), |text| {
        setting::whole(text, 0, 1_000_000_000)
            .map_err(|expected| format!("`n` is `{text}`, expected {expected}"))
    })
}

fn time(query: &str, name: &str, default: Duration) -> Result<Duration, String> {
    parameter(query, name).map_or(Ok(default), |text| {
        duration::parse(text)
            .map_err(|expected| format!("`{name}` is `{text}`, expected {expected}"))
    })
}

/// The raw value of a parameter; none of ours needs percent-decoding.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn echo(request: &MockRequest<'_>, length: u64, trailers: Option<&HeaderMap>) -> MockResponse {
    let head = &request.head;
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
            "client": request.connection.address.to_string(),
        }),
    )
}

/// Values by name; a repeated header is a list.
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

fn status_response(status: u16) -> MockResponse {
    if has_no_body(status) {
        let mut response = typed(status, "application/json", MockBody::empty());
        response.headers_mut().clear();
        return response;
    }
    handle::json(status, &json!({ "status": status }))
}

fn with_trailers(request: &MockRequest<'_>) -> MockResponse {
    let pieces = ["first\n", "second\n"].map(|piece| Bytes::from_static(piece.as_bytes()));
    let body = MockBody::pieces(request.state.clock(), Duration::ZERO, pieces.into_iter());
    let name = HeaderName::from_static("x-mock-trailer");
    let trailers = HeaderMap::from_iter([(name, HeaderValue::from_static("behind"))]);
    let mut response = typed(200, TEXT, body.with_trailers(trailers));
    let announced = HeaderValue::from_static("x-mock-trailer");
    response
        .headers_mut()
        .insert(http::header::TRAILER, announced);
    response
}

/// The response at `/_mock/NAME`.
pub(super) fn control(state: &MockState, method: &Method, name: &str) -> MockResponse {
    match (name, method) {
        ("stats", &Method::GET | &Method::HEAD) => handle::json(200, &json!(state.stats())),
        ("log", &Method::GET | &Method::HEAD) => handle::json(200, &log(state)),
        ("reset", &Method::POST) => {
            state.reset();
            handle::json(200, &json!({ "ok": true }))
        }
        ("stats" | "log" | "reset", _) => handle::json(405, &json!({ "error": EXPECTED_CONTROL })),
        _ => handle::json(404, &json!({ "error": EXPECTED_CONTROL })),
    }
}

const EXPECTED_CONTROL: &str =
    "expected `GET /_mock/stats`, `GET /_mock/log` or `POST /_mock/reset`";

fn log(state: &MockState) -> Value {
    let (entries, dropped) = state.log();
    let requests: Vec<Value> = entries.iter().map(entry_json).collect();
    json!({ "forgotten": dropped, "requests": requests })
}

fn entry_json(entry: &LogEntry) -> Value {
    // With microseconds; finer digits are noise.
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
