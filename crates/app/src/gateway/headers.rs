//! Which headers pass from one side to the other.
//!
//! What belongs to one connection stays there: the fixed set, and what `Connection` names. A caller
//! can not use that to have headers removed that matter: those are put on after it. Headers that are
//! ours, and those by which proxies vouch for a caller, are not taken from callers.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::exchange::fields::{is_not_callers, is_of_connection};

/// Takes away what is not for the endpoint. `Host` stays, because each attempt replaces it.
pub(super) fn clean_request(headers: &mut HeaderMap) {
    let mut has_te = false;
    let dropped = dropped(headers, |name| {
        has_te |= name == header::TE;
        // The body is asked for when there is a permit for it, and sent without asking again.
        name == header::EXPECT || is_of_connection(name) || is_not_callers(name)
    });
    let is_trailers = |name: &str| name.eq_ignore_ascii_case("trailers");
    let wants_trailers = has_te
        && headers
            .get(header::TE)
            .is_some_and(|value| words(value).any(is_trailers));
    remove(headers, dropped);
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Joins the cookies that a client of HTTP/2 sent one by one, as HTTP/1 has to (RFC 9113, section
/// 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (cookies.next(), cookies.next()) else {
        return;
    };
    let mut joined = first.as_bytes().to_vec();
    for cookie in [second].into_iter().chain(cookies) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_maybe_shared(Bytes::from(joined)) {
        headers.insert(header::COOKIE, joined);
    }
}

/// Takes away what is not for the caller.
pub(super) fn clean_response(headers: &mut HeaderMap) {
    let dropped = dropped(headers, |name| {
        is_of_connection(name) || name.as_str().starts_with("tidegate-")
    });
    remove(headers, dropped);
}

/// The headers that are dropped, and those that `Connection` names.
fn dropped(
    headers: &HeaderMap,
    mut is_dropped: impl FnMut(&HeaderName) -> bool,
) -> Vec<HeaderName> {
    // Most messages have none, and need no memory here.
    let mut dropped = Vec::new();
    let mut has_connection = false;
    for name in headers.keys() {
        if is_dropped(name) {
            has_connection |= name == header::CONNECTION;
            dropped.push(name.clone());
        }
    }
    if has_connection {
        for value in headers.get_all(header::CONNECTION) {
            // What most clients send names a header that is dropped in any case.
            if !value.as_bytes().eq_ignore_ascii_case(b"keep-alive") {
                dropped.extend(named_by_connection(value));
            }
        }
    }
    dropped
}

fn remove(headers: &mut HeaderMap, dropped: Vec<HeaderName>) {
    for name in dropped {
        headers.remove(name);
    }
}

/// What `Connection` names, but for headers that frame the message or say for whom it is.
fn named_by_connection(value: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let named = words(value).filter_map(|name| name.parse().ok());
    named.filter(|name| !KEPT.contains(name))
}

/// What must stay whatever `Connection` says.
const KEPT: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::HOST,
    HeaderName::from_static("idempotency-key"),
];

pub(super) fn words(value: &HeaderValue) -> impl Iterator<Item = &str> {
    let words = value.as_bytes().split(|byte| *byte == b',');
    // Each by itself: one that cannot be read does not hide the others.
    words
        .filter_map(|word| std::str::from_utf8(word).ok())
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(clean: impl Fn(&mut HeaderMap), fields: &[(&str, &str)]) -> Vec<String> {
        let mut headers: HeaderMap = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        clean(&mut headers);
        let mut left: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        left.sort();
        left
    }

    #[test]
    fn removes_connection_headers() {
        let fields = [
            ("connection", "close, X-Local"),
            ("x-local", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip, trailers"),
            ("host", "localhost:7070"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
        ];
        assert_eq!(
            left(clean_request, &fields),
            ["accept: */*", "host: localhost:7070", "te: trailers"]
        );
        assert_eq!(
            left(
                clean_response,
                &[("connection", "x-a"), ("x-a", "1"), ("retry-after", "3")]
            ),
            ["retry-after: 3"]
        );
    }

    #[test]
    fn one_unreadable_name_in_connection_hides_no_others() {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(b"\xff, x-local").unwrap();
        headers.insert(header::CONNECTION, value);
        headers.insert("x-local", HeaderValue::from_static("1"));
        clean_request(&mut headers);
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn removes_headers_that_only_proxies_may_set() {
        let fields = [
            ("tidegate-token", "secret"),
            ("Tidegate-Max-Wait", "5s"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("idempotency-key", "k"),
            ("traceparent", "t"),
        ];
        assert_eq!(
            left(clean_request, &fields),
            ["idempotency-key: k", "traceparent: t"]
        );
        assert_eq!(
            left(clean_response, &[("tidegate-reason", "x"), ("date", "d")]),
            ["date: d"]
        );
    }

    #[test]
    fn connection_cannot_name_essential_headers_away() {
        let fields = [
            ("connection", "authorization, Content-Length"),
            ("authorization", "a"),
            ("content-length", "3"),
        ];
        assert_eq!(
            left(clean_request, &fields),
            ["authorization: a", "content-length: 3"]
        );
    }
}
