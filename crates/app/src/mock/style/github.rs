//! GitHub's API.
//!
//! A window is the primary limit, refused with 403. A bucket is a secondary limit, refused with 429,
//! or 403 for a banned client. Every response carries the primary limit, with its reset in Unix
//! seconds.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use sim::upstream::LimitStatus;

use super::{has_no_body, set};
use crate::mock::body::MockBody;
use crate::mock::handle::{self, MockRequest, MockResponse};
use crate::mock::model::{PlannedResponse, ResponseReason};
use crate::mock::state::MockState;

/// A request for this path is not limited.
pub(super) const RATE_LIMIT: &str = "/rate_limit";

pub(super) fn rate_limit(state: &MockState) -> MockResponse {
    let quota = state.quota().unwrap_or(NO_LIMIT);
    let core = limit_json(state, &quota);
    let value = json!({ "resources": { "core": core }, "rate": core });
    let mut response = json(200, &value);
    set_limit_headers(state, &quota, response.headers_mut());
    response
}

/// Shown if there is no limit.
const NO_LIMIT: LimitStatus = LimitStatus {
    limit: 5000,
    remaining: 5000,
    reset: Duration::ZERO,
};

fn limit_json(state: &MockState, limit: &LimitStatus) -> Value {
    json!({
        "limit": limit.limit,
        "remaining": limit.remaining,
        "used": limit.limit.saturating_sub(limit.remaining),
        "reset": reset(state, limit),
    })
}

/// The reset in Unix seconds, rounded up so that it is never too early.
fn reset(state: &MockState, limit: &LimitStatus) -> i64 {
    let clock = state.clock();
    let millis = clock.wall_at(clock.now() + limit.reset).as_unix_millis();
    millis.saturating_add(999).div_euclid(1000)
}

pub(super) async fn success(mut request: MockRequest<'_>) -> MockResponse {
    handle::drain(&mut request.body).await;
    let path = request.head.uri.path();
    let mut parts = path.split('/').skip(1);
    let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
    let value = match parts {
        [Some("user"), None, ..] => user("mock"),
        [Some("users"), Some(name), None, ..] => user(name),
        [Some("repos"), Some(owner), Some(name), None] => repository(owner, name),
        [Some("repos"), Some(_), Some(_), Some(_)] => json!([]),
        _ => json!({ "id": request.number, "path": path }),
    };
    padded(&request, value)
}

fn user(login: &str) -> Value {
    json!({ "login": login, "id": 1, "type": "User" })
}

fn repository(owner: &str, name: &str) -> Value {
    json!({
        "id": 1,
        "name": name,
        "full_name": format!("{owner}/{name}"),
        "private": false,
        "owner": user(owner),
        "default_branch": "main",
    })
}

fn padded(request: &MockRequest<'_>, value: Value) -> MockResponse {
    let mut text = value.to_string();
    let size = request.state.settings.body_size.unwrap_or_default();
    let padding = size.saturating_sub(text.len());
    text.extend(std::iter::repeat_n(' ', padding));
    handle::typed(200, JSON, MockBody::whole(text))
}

const JSON: &str = "application/json; charset=utf-8";

fn json(status: u16, value: &Value) -> MockResponse {
    handle::typed(status, JSON, MockBody::whole(value.to_string()))
}

pub(super) fn failure(request: &MockRequest<'_>) -> MockResponse {
    let planned = &request.planned;
    if has_no_body(planned.status) {
        return handle::typed(planned.status, JSON, MockBody::empty());
    }
    let (status, message) = status_and_message(request);
    let documentation =
        "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api";
    let value = match status {
        403 | 429 => json!({ "message": message, "documentation_url": documentation }),
        _ => json!({ "message": message }),
    };
    json(status, &value)
}

/// Status and message; clients look for `rate limit exceeded` and `secondary rate limit`.
fn status_and_message(request: &MockRequest<'_>) -> (u16, String) {
    let planned = &request.planned;
    let address = request.connection.address;
    match planned.reason {
        ResponseReason::Quota => (403, format!("API rate limit exceeded for {address}.")),
        ResponseReason::Rate | ResponseReason::Cost(_) | ResponseReason::Banned => {
            let message = "This client went over a secondary rate limit and has to slow down.";
            (planned.status, message.to_owned())
        }
        ResponseReason::QueueFull | ResponseReason::Outage => {
            (planned.status, "Unavailable".to_owned())
        }
        ResponseReason::RandomFailure => (planned.status, "Server Error".to_owned()),
        ResponseReason::Success | ResponseReason::Script => {
            let message = match planned.status {
                403 | 429 => "This client went over a secondary rate limit and has to slow down.",
                404 => "Not Found",
                401 => "Bad credentials",
                500..=599 => "Server Error",
                _ => "Mocked",
            };
            (planned.status, message.to_owned())
        }
    }
}

pub(super) fn add_headers(state: &MockState, planned: &PlannedResponse, headers: &mut HeaderMap) {
    let media_type = HeaderValue::from_static("github.v3; format=json");
    set(headers, "x-github-media-type", media_type);
    if let Some(quota) = &planned.quota {
        set_limit_headers(state, quota, headers);
    }
}

fn set_limit_headers(state: &MockState, limit: &LimitStatus, headers: &mut HeaderMap) {
    let used = limit.limit.saturating_sub(limit.remaining);
    set(headers, "x-ratelimit-limit", limit.limit);
    set(headers, "x-ratelimit-remaining", limit.remaining);
    set(headers, "x-ratelimit-used", used);
    set(headers, "x-ratelimit-reset", reset(state, limit));
    set(
        headers,
        "x-ratelimit-resource",
        HeaderValue::from_static("core"),
    );
}
