//! No particular API: short JSON, and errors in words.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use sim::upstream;

use super::{has_no_body, set_text};
use crate::mock::body::MockBody;
use crate::mock::handle::{MockRequest, MockResponse, drain, json, typed};
use crate::mock::model::{PlannedResponse, ResponseReason};

pub(super) async fn success(mut request: MockRequest<'_>) -> MockResponse {
    drain(&mut request.body).await;
    if request.state.settings.limits_cost() {
        let usage = json!({ "total_tokens": request.planned.cost });
        return json(200, &json!({ "ok": true, "usage": usage }));
    }
    let body = MockBody::whole(request.state.plain_body.clone());
    typed(200, "application/json", body)
}

/// What a request costs by its query, `cost=800`; 1 if that says nothing.
pub(super) fn cost(query: Option<&str>) -> u32 {
    let mut pairs = query.unwrap_or_default().split('&');
    let cost = pairs.find_map(|pair| pair.strip_prefix("cost="));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
}

/// The body of a 200, of this length if one is given.
pub(in crate::mock) fn body(size: Option<usize>) -> Bytes {
    size.map_or_else(|| Bytes::from_static(OK.as_bytes()), sized)
}

const OK: &str = "{\"ok\":true}";

/// JSON of exactly this length: an object, a number for a single byte, empty for none.
fn sized(size: usize) -> Bytes {
    let mut text = match size {
        0 => String::new(),
        1 => "1".to_owned(),
        2..11 => "{}".to_owned(),
        11.. => OK.to_owned(),
    };
    let padding = size - text.len();
    text.extend(std::iter::repeat_n(' ', padding));
    text.into()
}

pub(super) fn failure(request: &MockRequest<'_>) -> MockResponse {
    let planned = &request.planned;
    if has_no_body(planned.status) {
        return typed(planned.status, "application/json", MockBody::empty());
    }
    if planned.status < 300 {
        return typed(planned.status, "application/json", MockBody::whole(OK));
    }
    let mut response = json(planned.status, &json!({ "error": message(planned) }));
    if (301..=308).contains(&planned.status) {
        let target = HeaderValue::from_static("/");
        response
            .headers_mut()
            .insert(http::header::LOCATION, target);
    }
    response
}

/// The error. It names no wait: that is what headers are for.
fn message(planned: &PlannedResponse) -> String {
    match planned.reason {
        ResponseReason::Rate => "too many requests: the rate limit is exceeded".to_owned(),
        ResponseReason::Quota => {
            "too many requests: the quota of this window is used up".to_owned()
        }
        ResponseReason::Cost(_) => "too many tokens: the limit on cost is used up".to_owned(),
        ResponseReason::Banned => "forbidden: this client is banned for a while".to_owned(),
        ResponseReason::QueueFull => {
            "unavailable: everything is busy and the queue is full".to_owned()
        }
        ResponseReason::Outage => "unavailable: the server is away".to_owned(),
        ResponseReason::RandomFailure => "random failure".to_owned(),
        ResponseReason::Success | ResponseReason::Script => status_text(planned.status),
    }
}

fn status_text(status: u16) -> String {
    let known = http::StatusCode::from_u16(status).ok();
    let known = known.and_then(|status| status.canonical_reason());
    known.map_or_else(|| format!("status {status}"), str::to_lowercase)
}

/// The same headers as in the simulator: limit, remaining, and seconds until the reset.
pub(super) fn add_headers(planned: &PlannedResponse, headers: &mut HeaderMap) {
    let response = upstream::UpstreamResponse {
        status: planned.status,
        retry_after: None,
        limit: planned.limit,
        tokens: planned.tokens,
    };
    for (name, value) in response.headers() {
        set_text(headers, name, value.as_bytes());
    }
}
