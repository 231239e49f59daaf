//! Responses of upstreams and their headers.

use std::time::Duration;

/// The response of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamResponse {
    /// The status code.
    pub status: u16,
    /// `Retry-After`, in whole seconds.
    pub retry_after: Option<u64>,
    /// The `X-RateLimit-…` headers.
    pub limit: Option<LimitStatus>,
    /// The `X-RateLimit-…-Tokens` headers; those of `limit` then end in `-Requests`.
    pub tokens: Option<LimitStatus>,
}

/// The state of an upstream's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// Requests that the limit allows.
    pub limit: u64,
    /// Requests that are left after this one.
    pub remaining: u64,
    /// Until more are available.
    pub reset: Duration,
}

impl UpstreamResponse {
    /// Whether it is a 2xx or 3xx.
    pub fn is_accepted(&self) -> bool {
        (200..400).contains(&self.status)
    }

    /// Its headers as text.
    ///
    /// ```
    /// use sim::upstream::UpstreamResponse;
    ///
    /// let response = UpstreamResponse { status: 429, retry_after: Some(7), limit: None, tokens: None };
    /// assert_eq!(response.headers(), [("retry-after", "7".to_owned())]);
    /// ```
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some(seconds) = self.retry_after {
            headers.push(("retry-after", seconds.to_string()));
        }
        let mut add = |names: [&'static str; 3], status: &LimitStatus| {
            headers.push((names[0], status.limit.to_string()));
            headers.push((names[1], status.remaining.to_string()));
            headers.push((names[2], seconds(status.reset)));
        };
        match (&self.limit, &self.tokens) {
            (Some(limit), None) => add(LIMIT, limit),
            (Some(limit), Some(tokens)) => {
                add(REQUEST_HEADERS, limit);
                add(TOKEN_HEADERS, tokens);
            }
            (None, Some(tokens)) => add(TOKEN_HEADERS, tokens),
            (None, None) => {}
        }
        headers
    }
}

const LIMIT: [&str; 3] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// The headers about a limit on requests, where there is one on tokens too: limit, remaining, reset.
pub const REQUEST_HEADERS: [&str; 3] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

/// The same about tokens.
pub const TOKEN_HEADERS: [&str; 3] = [
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];

/// Seconds, rounded up to milliseconds: a client that comes back early is refused.
fn seconds(length: Duration) -> String {
    let millis = length.as_nanos().div_ceil(1_000_000);
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    match (millis / 1000, millis % 1000) {
        (whole, 0) => whole.to_string(),
        (whole, part) => format!("{whole}.{part:03}"),
    }
}

#[cfg(test)]
mod tests {
    use policy::hint::{self, Response};

    use super::*;

    #[test]
    fn formats_seconds_rounded_up_to_milliseconds() {
        let check = |length: Duration, text: &str| assert_eq!(seconds(length), text);
        check(Duration::ZERO, "0");
        check(Duration::from_secs(7), "7");
        check(Duration::from_millis(20), "0.020");
        check(Duration::from_nanos(1_999_000_001), "2");
        check(Duration::MAX, "18446744073709551.615");
    }

    #[test]
    fn hint_reader_reads_the_headers() {
        let response = UpstreamResponse {
            status: 200,
            retry_after: None,
            limit: Some(LimitStatus {
                limit: 300,
                remaining: 0,
                reset: Duration::from_millis(1250),
            }),
            tokens: None,
        };
        let headers = response.headers();
        let response = Response {
            status: 200,
            headers: headers
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
            body: b"",
        };
        let hint = hint::read(&response, None);
        assert_eq!((hint.limit, hint.remaining), (Some(300), Some(0)));
        assert_eq!(hint.reset, Some(Duration::from_millis(1250)));
        assert_eq!(hint.wait, hint.reset);
    }
}
