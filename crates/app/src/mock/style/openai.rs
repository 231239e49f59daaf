//! OpenAI's API, as its clients use it: chat completions, also streamed, embeddings and models.
//!
//! Without a limit on cost, the headers about tokens, which clients read too, are those of requests
//! times a thousand.

mod chat;
mod embeddings;

use std::fmt;
use std::time::Duration;

use bytes::BytesMut;
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use sim::upstream::{LimitStatus, REQUEST_HEADERS, TOKEN_HEADERS};

use super::{has_no_body, set, set_text};
use crate::mock::body::MockBody;
use crate::mock::handle::{self, MockRequest, MockResponse, drain};
use crate::mock::model::{PlannedResponse, ResponseReason};
use crate::mock::state::MockState;

pub(super) async fn success(mut request: MockRequest<'_>) -> MockResponse {
    let method = request.head.method.clone();
    let path = request.head.uri.path().to_owned();
    let path = path.strip_prefix("/v1").unwrap_or(&path);
    match (&method, path) {
        (&Method::POST, "/chat/completions") => match read(&mut request).await {
            Ok(body) => chat::respond(&request, &body),
            Err(response) => response,
        },
        (&Method::POST, "/embeddings") => match read(&mut request).await {
            Ok(body) => embeddings::respond(&body),
            Err(response) => response,
        },
        (&Method::GET | &Method::HEAD, "/models") => models(),
        (&Method::GET | &Method::HEAD, path) if path.starts_with("/models/") => {
            model(&path["/models/".len()..])
        }
        (method, path) => {
            drain(&mut request.body).await;
            let message = format!("there is nothing at {method} {path}");
            error(404, &message, "invalid_request_error", None)
        }
    }
}

/// The tokens of a request, as many as its response will name, and its body.
pub(super) async fn cost(
    state: &MockState,
    head: &Parts,
    body: &mut Incoming,
) -> (u32, Option<Result<Value, MockResponse>>) {
    let path = head.uri.path();
    let tokens = match path.strip_prefix("/v1").unwrap_or(path) {
        "/chat/completions" => chat::tokens_of,
        "/embeddings" => embeddings::tokens_of,
        _ => return (1, None),
    };
    let read = read_json(body).await;
    let cost = match &read {
        Ok(body) => tokens(state, body).max(1),
        Err(_) => 1,
    };
    (u32::try_from(cost).unwrap_or(u32::MAX), Some(read))
}

/// The request's body, or the response to one that is no JSON object.
async fn read(request: &mut MockRequest<'_>) -> Result<Value, MockResponse> {
    match request.read.take() {
        Some(read) => read,
        None => read_json(&mut request.body).await,
    }
}

async fn read_json(body: &mut Incoming) -> Result<Value, MockResponse> {
    let mut text = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            text.extend_from_slice(data);
        }
        if text.len() > MAX_REQUEST {
            drain(body).await;
            let message = format!("the request is longer than {MAX_REQUEST} bytes");
            return Err(error(413, &message, "invalid_request_error", None));
        }
    }
    match serde_json::from_slice(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) | Err(_) => {
            let message = "the request is no JSON object";
            Err(error(400, message, "invalid_request_error", None))
        }
    }
}

/// Requests may contain pictures.
const MAX_REQUEST: usize = 16 << 20;

/// The model of requests that name none.
const MODEL: &str = "mock-model";

fn model_of(body: &Value) -> &str {
    body["model"].as_str().unwrap_or(MODEL)
}

/// An estimate: four bytes are about one token.
fn tokens(text: &str) -> u64 {
    text.len().div_ceil(4) as u64
}

fn models() -> MockResponse {
    let names = [MODEL, "mock-embedding"];
    let data: Vec<Value> = names.iter().map(|name| model_json(name)).collect();
    handle::json(200, &json!({ "object": "list", "data": data }))
}

fn model(name: &str) -> MockResponse {
    handle::json(200, &model_json(name))
}

fn model_json(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "mock" })
}

fn error(status: u16, message: &str, kind: &str, code: Option<&str>) -> MockResponse {
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    handle::json(status, &json!({ "error": error }))
}

pub(super) fn failure(request: &MockRequest<'_>) -> MockResponse {
    let planned = &request.planned;
    let status = planned.status;
    if has_no_body(status) {
        return handle::typed(status, "application/json", MockBody::empty());
    }
    match (planned.reason, status) {
        (ResponseReason::Cost(wait), _) => error(
            status,
            &cost_message(planned, wait),
            "tokens",
            Some("rate_limit_exceeded"),
        ),
        (ResponseReason::Rate | ResponseReason::Quota, _) | (_, 429) => error(
            status,
            &limit_message(planned),
            "requests",
            Some("rate_limit_exceeded"),
        ),
        (ResponseReason::Banned, _) => {
            let message = "This client is banned for a while.";
            error(status, message, "invalid_request_error", Some("banned"))
        }
        (_, 503) => {
            let message = "The model is overloaded with other requests.";
            error(status, message, "server_error", Some("overloaded"))
        }
        (_, 500..) => error(status, "The server failed.", "server_error", None),
        (_, 401) => {
            let (kind, code) = ("invalid_request_error", Some("invalid_api_key"));
            error(status, "The API key is wrong.", kind, code)
        }
        _ => error(
            status,
            "The request is refused.",
            "invalid_request_error",
            None,
        ),
    }
}

/// The message of a 429, which ends with the wait; clients read it.
fn limit_message(planned: &PlannedResponse) -> String {
    let wait = match (planned.retry_after, planned.limit) {
        (Some(seconds), _) => Some(Duration::from_secs(seconds)),
        (None, limit) => limit.map(|limit| limit.reset),
    };
    let limit = planned.limit.map_or_else(String::new, |status| {
        let used = status.limit.saturating_sub(status.remaining);
        format!(": Limit {}, Used {used}, Requested 1", status.limit)
    });
    match wait {
        Some(wait) => {
            let wait = OpenaiDuration(wait);
            format!("Rate limit reached for requests{limit}. Please try again in {wait}.")
        }
        None => format!("Rate limit reached for requests{limit}."),
    }
}

/// The same for the limit on tokens.
fn cost_message(planned: &PlannedResponse, wait: Duration) -> String {
    let limit = planned.tokens.map_or_else(String::new, |status| {
        let used = status.limit.saturating_sub(status.remaining);
        let (limit, requested) = (status.limit, planned.cost);
        format!(": Limit {limit}, Used {used}, Requested {requested}")
    });
    let wait = OpenaiDuration(wait);
    format!("Rate limit reached on tokens per min (TPM){limit}. Please try again in {wait}.")
}

pub(super) fn add_headers(planned: &PlannedResponse, headers: &mut HeaderMap) {
    set_text(headers, "openai-version", b"2020-10-01");
    let scaled = |limit: LimitStatus| LimitStatus {
        limit: limit.limit.saturating_mul(TOKENS_PER_REQUEST),
        remaining: limit.remaining.saturating_mul(TOKENS_PER_REQUEST),
        ..limit
    };
    let tokens = planned.tokens.or_else(|| planned.limit.map(scaled));
    if let Some(limit) = &planned.limit {
        add_limit(limit, REQUEST_HEADERS, headers);
    }
    if let Some(limit) = &tokens {
        add_limit(limit, TOKEN_HEADERS, headers);
    }
}

fn add_limit(limit: &LimitStatus, names: [&'static str; 3], headers: &mut HeaderMap) {
    let reset = OpenaiDuration(limit.reset).to_string();
    set(headers, names[0], limit.limit);
    set(headers, names[1], limit.remaining);
    set_text(headers, names[2], reset.as_bytes());
}

const TOKENS_PER_REQUEST: u64 = 1000;

/// A duration in OpenAI's format, `120ms`, `8.64s`, `6m0s`, `1h0m5s`, rounded up to milliseconds so
/// that it is never too short.
#[derive(Clone, Copy, Debug)]
struct OpenaiDuration(Duration);

impl fmt::Display for OpenaiDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_nanos().div_ceil(1_000_000);
        if (1..1000).contains(&millis) {
            return write!(f, "{millis}ms");
        }
        let (seconds, part) = (millis / 1000, millis % 1000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}", seconds % 60)?;
        if part > 0 {
            let digits = format!("{part:03}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_durations_like_openai() {
        let check = |millis: u64, text: &str| {
            assert_eq!(
                OpenaiDuration(Duration::from_millis(millis)).to_string(),
                text
            );
        };
        check(0, "0s");
        check(120, "120ms");
        check(8640, "8.64s");
        check(20_000, "20s");
        check(360_000, "6m0s");
        check(3_605_050, "1h0m5.05s");
        assert_eq!(OpenaiDuration(Duration::from_nanos(1)).to_string(), "1ms");
    }
}
