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
    /// Is it a 2xx or 3xx?
    pub fn is_accepted(&self) -> bool {
        (200..400).contains(&self.status)
    }

    /// Its headers as text.
    ///
    /// ```
    /// use sim::upstream::UpstreamResponse;
    ///
    /// let response = UpstreamResponse { status: 429, retry_after: Some(7), limit: None };
    /// let headers = response.headers();
    /// let headers: Vec<(&str, &[u8])> = headers.iter().collect();
    /// assert_eq!(headers, [("retry-after", &b"7"[..])]);
    /// ```
    pub fn headers(&self) -> ResponseHeaders {
        let mut headers = ResponseHeaders::default();
        if let Some(seconds) = self.retry_after {
            headers.push("retry-after", Digits::whole(seconds));
        }
        if let Some(status) = &self.limit {
            headers.push("x-ratelimit-limit", Digits::whole(status.limit));
            headers.push("x-ratelimit-remaining", Digits::whole(status.remaining));
            headers.push("x-ratelimit-reset", Digits::seconds(status.reset));
        }
        headers
    }
}

/// Up to four headers without heap allocation: every simulated response has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseHeaders {
    headers: [(&'static str, Digits); 4],
    len: usize,
}

impl ResponseHeaders {
    /// Names and values, as readers of hints take them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.headers[..self.len]
            .iter()
            .map(|(name, digits)| (*name, digits.as_bytes()))
    }

    fn push(&mut self, name: &'static str, digits: Digits) {
        self.headers[self.len] = (name, digits);
        self.len += 1;
    }
}

/// A number as text, right-aligned.
#[derive(Clone, Copy, Debug)]
struct Digits {
    bytes: [u8; Self::MAX],
    start: usize,
}

impl Digits {
    /// The longest whole number, a point and milliseconds.
    const MAX: usize = 24;

    fn whole(number: u64) -> Self {
        let mut digits = Self::default();
        digits.prepend(number);
        digits
    }

    /// Seconds, rounded up to milliseconds: a client that comes back early is refused.
    fn seconds(length: Duration) -> Self {
        let millis = length.as_nanos().div_ceil(1_000_000);
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        let (whole, part) = (millis / 1000, millis % 1000);
        let mut digits = Self::default();
        if part > 0 {
            // The leading one keeps the zeros and is replaced by the point.
            digits.prepend(1000 + part);
            digits.bytes[digits.start] = b'.';
        }
        digits.prepend(whole);
        digits
    }

    fn prepend(&mut self, mut number: u64) {
        loop {
            self.start -= 1;
            self.bytes[self.start] = b"0123456789"[(number % 10) as usize];
            number /= 10;
            if number == 0 {
                break;
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl Default for Digits {
    fn default() -> Self {
        Self {
            bytes: [b' '; Self::MAX],
            start: Self::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::hint::{self, Response};

    use super::*;

    #[test]
    fn formats_numbers_and_seconds() {
        let check = |digits: Digits, text: &str| assert_eq!(digits.as_bytes(), text.as_bytes());
        check(Digits::whole(0), "0");
        check(Digits::whole(u64::MAX), "18446744073709551615");
        check(Digits::seconds(Duration::from_secs(7)), "7");
        check(Digits::seconds(Duration::from_millis(20)), "0.020");
        check(Digits::seconds(Duration::from_nanos(1_999_000_001)), "2");
        check(Digits::seconds(Duration::MAX), "18446744073709551.615");
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
        };
        let headers = response.headers();
        let response = Response {
            status: 200,
            headers: headers.iter(),
            body: b"",
        };
        let hint = hint::read(&response, None);
        assert_eq!((hint.limit, hint.remaining), (Some(300), Some(0)));
        assert_eq!(hint.reset, Some(Duration::from_millis(1250)));
        assert_eq!(hint.wait, hint.reset);
    }
}
