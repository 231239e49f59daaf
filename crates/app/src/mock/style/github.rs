//! Like GitHub's API.
//!
//! A window is the primary limit: 403 when it is used up, with nothing remaining. A bucket is a
//! secondary limit: 429, or 403 for a client that is banned. Every answer tells of the primary
//! limit, with the second since 1970 at which it is whole again.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use sim::upstream::LimitStatus;

use super::{is_bare, set};
use crate::mock::body::MockBody;
use crate::mock::desk::Desk;
use crate::mock::handle::{self, Answer, Call};
use crate::mock::model::{Planned, Why};

/// Asking for this takes nothing from the limit.
pub(super) const RATE_LIMIT: &str = "/rate_limit";

pub(super) fn rate_limit(desk: &Desk) -> Answer {
    let quota = desk.quota().unwrap_or(WITHOUT_LIMIT);
    let core = limit_json(desk, &quota);
    let value = json!({ "resources": { "core": core }, "rate": core });
    let mut answer = json(200, &value);
    set_limit_headers(desk, &quota, answer.headers_mut());
    answer
}

/// What is told where there is no limit.
const WITHOUT_LIMIT: LimitStatus = LimitStatus {
    limit: 5000,
    remaining: 5000,
    reset: Duration::ZERO,
};

fn limit_json(desk: &Desk, limit: &LimitStatus) -> Value {
    json!({
        "limit": limit.limit,
        "remaining": limit.remaining,
        "used": limit.limit.saturating_sub(limit.remaining),
        "reset": reset(desk, limit),
    })
}

/// The second at which there is more, rounded up: who comes early is refused.
fn reset(desk: &Desk, limit: &LimitStatus) -> i64 {
    let clock = desk.clock();
    let millis = clock.wall_at(clock.now() + limit.reset).as_unix_millis();
    millis.saturating_add(999).div_euclid(1000)
}

pub(super) async fn content(mut call: Call<'_>) -> Answer {
    call.drain().await;
    let path = call.head.uri.path();
    let mut parts = path.split('/').skip(1);
    let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
    let value = match parts {
        [Some("user"), None, ..] => user("mock"),
        [Some("users"), Some(name), None, ..] => user(name),
        [Some("repos"), Some(owner), Some(name), None] => repository(owner, name),
        [Some("repos"), Some(_), Some(_), Some(_)] => json!([]),
        _ => json!({ "id": call.number, "path": path }),
    };
    padded(&call, value)
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

fn padded(call: &Call<'_>, value: Value) -> Answer {
    let mut text = value.to_string();
    let size = call.desk.settings.body_size.unwrap_or_default();
    let missing = size.saturating_sub(text.len());
    text.extend(std::iter::repeat_n(' ', missing));
    handle::typed(200, JSON, MockBody::whole(text))
}

const JSON: &str = "application/json; charset=utf-8";

fn json(status: u16, value: &Value) -> Answer {
    handle::typed(status, JSON, MockBody::whole(value.to_string()))
}

pub(super) fn without_content(call: &Call<'_>) -> Answer {
    let planned = &call.planned;
    if is_bare(planned.status) {
        return handle::typed(planned.status, JSON, MockBody::empty());
    }
    let (status, message) = refusal(call);
    let about = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api";
    let value = match status {
        403 | 429 => json!({ "message": message, "documentation_url": about }),
        _ => json!({ "message": message }),
    };
    json(status, &value)
}

/// Clients look for `rate limit exceeded` and `secondary rate limit`.
fn refusal(call: &Call<'_>) -> (u16, String) {
    let planned = &call.planned;
    let address = call.peer.address;
    match planned.why {
        Why::Quota => (403, format!("API rate limit exceeded for {address}.")),
        Why::Rate | Why::Banned => {
            let message = "This client went over a secondary rate limit and has to slow down.";
            (planned.status, message.to_owned())
        }
        Why::QueueFull | Why::Away => (planned.status, "Unavailable".to_owned()),
        Why::Chance => (planned.status, "Server Error".to_owned()),
        Why::Served | Why::Scripted => {
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

pub(super) fn tell(desk: &Desk, planned: &Planned, headers: &mut HeaderMap) {
    let media_type = HeaderValue::from_static("github.v3; format=json");
    set(headers, "x-github-media-type", media_type);
    if let Some(quota) = &planned.quota {
        set_limit_headers(desk, quota, headers);
    }
}

fn set_limit_headers(desk: &Desk, limit: &LimitStatus, headers: &mut HeaderMap) {
    let used = limit.limit.saturating_sub(limit.remaining);
    set(headers, "x-ratelimit-limit", limit.limit);
    set(headers, "x-ratelimit-remaining", limit.remaining);
    set(headers, "x-ratelimit-used", used);
    set(headers, "x-ratelimit-reset", reset(desk, limit));
    set(
        headers,
        "x-ratelimit-resource",
        HeaderValue::from_static("core"),
    );
}
