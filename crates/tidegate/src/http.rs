//! Turns HTTP requests and responses into keys, outcomes and verdicts.
//!
//! Only heads are read. Reading a body is up to the code that wants its content; a limiter that
//! read it first would have to buffer it. Code that has the start of a body can pass it in, to get
//! the waits and codes that it contains.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Limiter, http};
//!
//! let limiter = Limiter::new();
//! let request = ::http::Request::get("https://api.example.com/items").body(()).unwrap();
//! let permit = limiter.try_acquire(&http::key(request.uri()).unwrap()).unwrap();
//! // … send it, and read the response's head:
//! let response = ::http::Response::builder().status(429).header("Retry-After", "7");
//! let response = response.body("never looked at").unwrap();
//! let outcome = http::outcome(&response, Duration::from_millis(80), limiter.clock().wall());
//! assert_eq!(outcome.hint.wait, Some(Duration::from_secs(7)));
//! permit.settle(&outcome);
//! ```
//!
//! Details:
//!
//! * Header values are bytes. A value that is not UTF-8 is read like any other.
//! * The method and an `Idempotency-Key` determine whether a request is safe to resend. Routes and
//!   callers that know more can say so in the [`ItemKind`].
//! * A client that follows redirects or retries by itself sends more than its gates know, and its
//!   error may be about the last send after the server acted on an earlier one. Disable both below
//!   a limiter.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use policy::classify;
use policy::hint::{self, Hint};
use policy::key::normalize;
use policy::outcome::Outcome;

pub use crate::failure::{failed, failure, never_sent};
pub use policy::classify::{Classification, Rule};
pub use policy::item::ItemKind;
pub use policy::key::KeyError;
pub use policy::time::WallTime;

/// The outcome of a response with this head. The body is not touched.
///
/// `latency` is the time from sending to the head. `wall` is the wall time of its arrival, used to
/// read dates if the server does not send its own.
pub fn outcome<B>(response: &Response<B>, latency: Duration, wall: WallTime) -> Outcome {
    Head::of(response).outcome(latency, wall)
}

/// Classifies a response, by `rules` first, then by the built-in rules.
///
/// `body` is its start, as far as it was read; it may be empty. `hint` is that of the response's
/// [`outcome`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::http::{self, WallTime};
/// use tidegate::Verdict;
///
/// let response = ::http::Response::builder().status(403).body(()).unwrap();
/// let outcome = http::outcome(&response, Duration::ZERO, WallTime::from_unix_millis(0));
/// let verdict = |body| http::classify(&response, &[], body, &outcome.hint).verdict;
/// assert_eq!(verdict(b""), Some(Verdict::Rejected));
/// assert_eq!(verdict(b"rate limit exceeded"), Some(Verdict::Throttled));
/// ```
pub fn classify<B>(
    response: &Response<B>,
    rules: &[Rule],
    body: &[u8],
    hint: &Hint,
) -> Classification {
    Head::of(response).with_body(body).classify(rules, hint)
}

/// The head of a response, for code without a [`Response`], and the start of its body if it was
/// read.
///
/// ```
/// use std::time::Duration;
/// use tidegate::http::{Head, WallTime};
///
/// let headers = ::http::HeaderMap::new();
/// let head = Head::new(::http::StatusCode::TOO_MANY_REQUESTS, &headers)
///     .with_body(br#"{"retry_after_ms":1500}"#);
/// let outcome = head.outcome(Duration::from_millis(80), WallTime::from_unix_millis(0));
/// assert_eq!(outcome.hint.wait, Some(Duration::from_millis(1500)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

impl<'a> Head<'a> {
    /// A head without a body.
    pub const fn new(status: StatusCode, headers: &'a HeaderMap) -> Self {
        Self {
            status,
            headers,
            body: &[],
        }
    }

    /// The head of `response`.
    pub fn of<B>(response: &'a Response<B>) -> Self {
        Self::new(response.status(), response.headers())
    }

    /// Adds the start of the body. Only the first 64 KiB are read.
    pub const fn with_body(self, body: &'a [u8]) -> Self {
        Self { body, ..self }
    }

    /// Its outcome, see [`outcome`].
    pub fn outcome(&self, latency: Duration, wall: WallTime) -> Outcome {
        let hint = hint::read(&self.as_read(), Some(wall));
        Outcome::status(self.status.as_u16(), latency).with_hint(hint)
    }

    /// Classifies it, see [`classify`](fn@classify).
    pub fn classify(&self, rules: &[Rule], hint: &Hint) -> Classification {
        classify::response(rules, &self.as_read(), hint)
    }

    fn as_read(&self) -> hint::Response<'a, Headers<'a>> {
        hint::Response {
            status: self.status.as_u16(),
            headers: Headers(self.headers),
            body: self.body,
        }
    }
}

/// Headers as an iterable that policies can read several times; the map's own iterator cannot be
/// copied.
#[derive(Clone, Copy)]
struct Headers<'a>(&'a HeaderMap);

/// A header's name and value.
type Field<'a> = (&'a str, &'a [u8]);

impl<'a> IntoIterator for Headers<'a> {
    type Item = Field<'a>;
    type IntoIter = std::iter::Map<
        http::header::Iter<'a, HeaderValue>,
        fn((&'a HeaderName, &'a HeaderValue)) -> Field<'a>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        let fields = self.0.iter();
        fields.map(|(name, value)| (name.as_str(), value.as_bytes()))
    }
}

/// The key of the gate for requests to `uri`: its host, and its port unless the scheme implies it.
/// Never user info, path or query.
///
/// # Errors
///
/// For a URI without a host, such as the `/path` form of HTTP/1 requests, and for invalid hosts and
/// ports. The error shows only the host.
///
/// ```
/// use tidegate::http::key;
///
/// let of = |uri: &'static str| key(&::http::Uri::from_static(uri)).ok();
/// assert_eq!(of("https://user:secret@API.example.com:443/a?b").unwrap(), "api.example.com");
/// assert_eq!(of("http://127.0.0.1:8080/").unwrap(), "127.0.0.1:8080");
/// assert_eq!(of("/items"), None);
/// ```
pub fn key(uri: &Uri) -> Result<String, KeyError> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    // Removed first, because without a scheme user info would be an error.
    let host_and_port = match authority.rsplit_once('@') {
        Some((_, host_and_port)) => host_and_port,
        None => authority,
    };
    match uri.scheme_str() {
        Some(scheme) => normalize(&format!("{scheme}://{host_and_port}")),
        None => normalize(host_and_port),
    }
}

/// Whether `request` is safe to resend, by its method and `Idempotency-Key`; without time bounds.
/// An empty key is ignored.
///
/// ```
/// use tidegate::http::item_kind;
///
/// let charge = ::http::Request::post("https://pay.example.com/charges");
/// let charge = charge.header("idempotency-key", "9f3c").body(()).unwrap();
/// assert!(item_kind(&charge).has_idempotency_key);
/// ```
pub fn item_kind<B>(request: &Request<B>) -> ItemKind {
    kind_of(request.method(), request.headers())
}

/// The same for requests of other types.
pub(crate) fn kind_of(method: &Method, headers: &HeaderMap) -> ItemKind {
    let key = headers.get("idempotency-key");
    ItemKind {
        has_idempotency_key: key.is_some_and(|key| !key.is_empty()),
        ..ItemKind::of(method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::classify::HeaderRule;
    use policy::hint::Source;
    use policy::item::Safety;
    use policy::outcome::{UpstreamResponse, Verdict};

    const WALL: WallTime = WallTime::from_unix_millis(1_767_225_600_000);

    fn response(status: u16, fields: &[(&str, &[u8])]) -> Response<Untouched> {
        let mut response = Response::builder().status(status);
        for &(name, value) in fields {
            response = response.header(name, value);
        }
        response.body(Untouched).unwrap()
    }

    /// A body without any methods.
    struct Untouched;

    fn outcome_of(status: u16, fields: &[(&str, &[u8])]) -> Outcome {
        outcome(&response(status, fields), Duration::from_millis(5), WALL)
    }

    #[test]
    fn outcome_has_status_latency_and_hint() {
        let outcome = outcome_of(429, &[("retry-after", b"30")]);
        assert_eq!(outcome.response, UpstreamResponse::Status(429));
        assert_eq!(outcome.latency, Duration::from_millis(5));
        assert_eq!(outcome.hint.wait, Some(Duration::from_secs(30)));
        assert_eq!(outcome.hint.source, Some(Source::RetryAfter));
    }

    #[test]
    fn uses_longest_of_several_retry_after_values() {
        let outcome = outcome_of(503, &[("retry-after", b"3"), ("retry-after", b"9")]);
        assert_eq!(outcome.hint.wait, Some(Duration::from_secs(9)));
    }

    #[test]
    fn reads_dates_relative_to_server_date_or_local_clock() {
        let until = b"Thu, 01 Jan 2026 00:00:10 GMT".as_slice();
        let ours = outcome_of(429, &[("retry-after", until)]);
        assert_eq!(ours.hint.wait, Some(Duration::from_secs(10)));
        let date = b"Thu, 01 Jan 2026 00:00:04 GMT".as_slice();
        let theirs = outcome_of(429, &[("retry-after", until), ("date", date)]);
        assert_eq!(theirs.hint.wait, Some(Duration::from_secs(6)));
    }

    #[test]
    fn ignores_header_values_that_are_not_text() {
        let fields: [(&str, &[u8]); 2] = [("x-name", b"\xff\xfe"), ("retry-after", b"2")];
        let outcome = outcome_of(429, &fields);
        assert_eq!(outcome.hint.wait, Some(Duration::from_secs(2)));
        assert_eq!(
            outcome_of(429, &[("retry-after", b"\xff2")]).hint.wait,
            None
        );
    }

    #[test]
    fn rules_match_first_and_on_non_text_headers() {
        let rule = Rule {
            statuses: vec![200],
            header: Some(HeaderRule {
                name: "X-State".to_owned(),
                matches: "busy".to_owned(),
            }),
            ..Rule::new(Verdict::Overloaded)
        };
        let response = response(200, &[("x-state", b"\xe9 busy")]);
        let hint = Hint::default();
        let verdict = |rules: &[Rule]| classify(&response, rules, b"", &hint).verdict;
        assert_eq!(verdict(&[]), Some(Verdict::Success));
        assert_eq!(verdict(&[rule]), Some(Verdict::Overloaded));
    }

    #[test]
    fn start_of_body_refines_the_verdict() {
        let response = response(429, &[]);
        let hint = Hint::default();
        let verdict = |body: &[u8]| classify(&response, &[], body, &hint).verdict;
        assert_eq!(verdict(b""), Some(Verdict::Throttled));
        let exhausted = br#"{"error":{"code":"insufficient_quota"}}"#;
        assert_eq!(verdict(exhausted), Some(Verdict::QuotaExhausted));
    }

    #[test]
    fn informational_response_has_no_verdict() {
        let response = response(101, &[]);
        assert_eq!(
            classify(&response, &[], b"", &Hint::default()).verdict,
            None
        );
    }

    #[test]
    fn key_is_host_and_port_only() {
        let of = |uri: &str| key(&uri.parse().unwrap());
        let keys = [
            ("https://API.Example.com/a?b=c", "api.example.com"),
            ("https://api.example.com.:443/", "api.example.com"),
            ("http://example.com:443/", "example.com:443"),
            ("http://u:p@example.com:8080/", "example.com:8080"),
            ("u:p@example.com:8443", "example.com:8443"),
            ("example.com:443", "example.com"),
            ("http://[2001:DB8:0::1]:80/", "[2001:db8::1]"),
        ];
        for (uri, expected) in keys {
            assert_eq!(of(uri).as_deref(), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn rejects_missing_host_and_bad_port_without_leaking_secrets() {
        let of = |uri: &str| key(&uri.parse().unwrap());
        assert!(of("/items?token=secret").is_err());
        assert!(of("*").is_err());
        let error = of("http://user:secret@example.com:99999/secret").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn item_kind_has_method_and_idempotency_key() {
        let kind = |method: &str, fields: &[(&str, &str)]| {
            let mut request = Request::builder().method(method);
            for &(name, value) in fields {
                request = request.header(name, value);
            }
            item_kind(&request.body(()).unwrap())
        };
        assert_eq!(kind("GET", &[]), ItemKind::of("GET"));
        assert_eq!(kind("PURGE", &[]).safety, Safety::Unsafe);
        assert!(kind("POST", &[("IDEMPOTENCY-KEY", "1")]).has_idempotency_key);
        assert!(!kind("POST", &[("Idempotency-Key", "")]).has_idempotency_key);
        assert!(!kind("POST", &[("X-Idempotency", "1")]).has_idempotency_key);
    }
}
