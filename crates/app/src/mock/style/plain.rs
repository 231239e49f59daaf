//! Like nobody in particular: short JSON, and words that say what happened.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use sim::upstream;

use super::{is_bare, set_text};
use crate::mock::body::MockBody;
use crate::mock::handle::{Answer, Call, json, typed};
use crate::mock::model::{Planned, Why};

pub(super) async fn content(mut call: Call<'_>) -> Answer {
    call.drain().await;
    let body = MockBody::whole(call.desk.ordinary.clone());
    typed(200, "application/json", body)
}

/// An ordinary body, of a given length if there is one.
pub(in crate::mock) fn body(size: Option<usize>) -> Bytes {
    size.map_or_else(|| Bytes::from_static(OK.as_bytes()), sized)
}

const OK: &str = "{\"ok\":true}";

/// JSON of exactly this length, but for a single byte, which is a number, and none.
fn sized(size: usize) -> Bytes {
    let mut text = match size {
        0 => String::new(),
        1 => "1".to_owned(),
        2..11 => "{}".to_owned(),
        11.. => OK.to_owned(),
    };
    let missing = size - text.len();
    text.extend(std::iter::repeat_n(' ', missing));
    text.into()
}

pub(super) fn without_content(call: &Call<'_>) -> Answer {
    let planned = &call.planned;
    if is_bare(planned.status) {
        return typed(planned.status, "application/json", MockBody::empty());
    }
    if planned.status < 300 {
        return typed(planned.status, "application/json", MockBody::whole(OK));
    }
    let mut answer = json(planned.status, &json!({ "error": words(planned) }));
    if (301..=308).contains(&planned.status) {
        let home = HeaderValue::from_static("/");
        answer.headers_mut().insert(http::header::LOCATION, home);
    }
    answer
}

/// What happened. Nothing in it tells when to come back: that is what headers are for.
fn words(planned: &Planned) -> String {
    match planned.why {
        Why::Rate => "too many requests: the rate limit is exceeded".to_owned(),
        Why::Quota => "too many requests: the quota of this window is used up".to_owned(),
        Why::Banned => "forbidden: this client is banned for a while".to_owned(),
        Why::QueueFull => "unavailable: everything is busy and the queue is full".to_owned(),
        Why::Away => "unavailable: the server is away".to_owned(),
        Why::Chance => "it failed by chance".to_owned(),
        Why::Served | Why::Scripted => reason(planned.status),
    }
}

fn reason(status: u16) -> String {
    let known = http::StatusCode::from_u16(status).ok();
    let known = known.and_then(|status| status.canonical_reason());
    known.map_or_else(|| format!("status {status}"), str::to_lowercase)
}

/// The headers of the simulator: how many are allowed and left, and the seconds until there are
/// more.
pub(super) fn tell(planned: &Planned, headers: &mut HeaderMap) {
    let response = upstream::UpstreamResponse {
        status: planned.status,
        retry_after: None,
        limit: planned.limit,
    };
    for (name, value) in response.headers().iter() {
        let name = match name {
            "x-ratelimit-limit" => "x-ratelimit-limit",
            "x-ratelimit-remaining" => "x-ratelimit-remaining",
            _ => "x-ratelimit-reset",
        };
        set_text(headers, name, value);
    }
}
