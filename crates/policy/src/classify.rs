//! Classifies responses. The first match wins:
//!
//! 1. a [`Rule`] of the route;
//! 2. a structured code in a JSON body. In a 2xx or 3xx only at the position of an error: inside
//!    the outermost object's `error`, `errors` or `fault`, or as its `error`, `code` or
//!    `error_code`; everything else is content. In other responses under any key that holds codes;
//! 3. on 429 and 403, words that name billing or a used-up quota;
//! 4. the status, for 2xx, 3xx, 401, 408, 409, 412, 429, 5xx and above. A 503
//!    is throttling if it has a hint (a wait, or nothing remaining), else overload;
//! 5. on any other 4xx the hint's headers (a wait by `Retry-After` or a similar header, nothing
//!    remaining), then the words of throttling;
//! 6. otherwise the request was rejected.
//!
//! Only whole words match, and never digits: a number in a text is not a status.

mod because;
mod code;
mod rule;
mod words;

pub use self::because::Because;
pub use self::rule::{HeaderRule, Rule};
use self::words::{ALLOWANCE, CREDENTIAL, THROTTLING};
use crate::hint::{Hint, Response};
use crate::outcome::{Failure, Verdict};
use crate::text;

/// A verdict and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// The class; `None` for a 1xx, which changes nothing.
    pub verdict: Option<Verdict>,
    /// What decided the verdict.
    pub because: Because,
}

/// Classifies a response: by the route's `rules` first, then by the built-in rules.
///
/// ```
/// # mod tidegate {
/// #     pub use tidegate_policy::{classify, hint, outcome::Verdict};
/// # }
/// use tidegate::hint::{self, Response};
/// use tidegate::{Verdict, classify};
///
/// let headers: [(&str, &[u8]); 0] = [];
/// let response = Response { status: 403, headers, body: b"quota exceeded" };
/// let found = classify::response(&[], &response, &hint::read(&response, None));
/// assert_eq!(found.verdict, Some(Verdict::Throttled));
/// assert_eq!(found.because.to_string(), "text `quota exceeded`");
/// ```
pub fn response<'a, H>(rules: &[Rule], response: &Response<'a, H>, hint: &Hint) -> Classification
where
    H: IntoIterator<Item = (&'a str, &'a [u8])> + Clone,
{
    if let Some(index) = rules.iter().position(|rule| rule.holds(response)) {
        return classified(rules[index].verdict, Because::Rule(index + 1));
    }
    let (status, body) = (response.status, response.read_body());
    let because = Because::Status(status);
    match status {
        0..200 => Classification {
            verdict: None,
            because,
        },
        200..400 => {
            let body = body.get(..MAX_SUCCESS_BODY).unwrap_or(body);
            by_code(body, Position::Error).unwrap_or_else(|| classified(Verdict::Success, because))
        }
        _ => by_code(body, Position::Anywhere)
            .or_else(|| by_quota(status, body))
            .or_else(|| by_status(status, hint))
            .or_else(|| by_headers(hint))
            .or_else(|| by_text(body))
            .unwrap_or_else(|| classified(Verdict::Rejected, because)),
    }
}

/// Classifies a response by status and hint only: like [`response`] without rules, headers and
/// body.
#[inline]
pub fn status(status: u16, hint: &Hint) -> Classification {
    match status {
        200..400 => classified(Verdict::Success, Because::Status(status)),
        _ => other_status(status, hint),
    }
}

fn other_status(status: u16, hint: &Hint) -> Classification {
    let because = Because::Status(status);
    if status < 200 {
        return Classification {
            verdict: None,
            because,
        };
    }
    by_status(status, hint)
        .or_else(|| by_headers(hint))
        .unwrap_or_else(|| classified(Verdict::Rejected, because))
}

/// Whether a response with this verdict rejects the credential or the account of the request, not
/// the request itself: a 401, a 402, or a 403 whose `body` says so. Another endpoint with another
/// credential may accept the same request.
///
/// ```
/// # mod tidegate {
/// #     pub use tidegate_policy::{classify, outcome::Verdict};
/// # }
/// use tidegate::Verdict;
/// use tidegate::classify::rejects_credential;
///
/// assert!(rejects_credential(401, Some(Verdict::Unauthorized), b""));
/// assert!(rejects_credential(403, Some(Verdict::Rejected), b"Invalid API key"));
/// assert!(!rejects_credential(403, Some(Verdict::Rejected), b"not your file"));
/// ```
pub fn rejects_credential(status: u16, verdict: Option<Verdict>, body: &[u8]) -> bool {
    match (verdict, status) {
        (Some(Verdict::Unauthorized), _) | (Some(Verdict::Rejected), 402) => true,
        (Some(Verdict::Rejected), 403) => text::first_of(body, CREDENTIAL).is_some(),
        _ => false,
    }
}

/// Classifies an attempt without a response.
pub const fn failure(failure: Failure) -> Classification {
    classified(Verdict::Unreachable, Because::Failure(failure))
}

/// Nearly all responses are successes, and error objects inside them are short.
const MAX_SUCCESS_BODY: usize = 8 * 1024;

/// Where a code counts in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Only where an error is reported.
    Error,
    /// Under any key that holds codes.
    Anywhere,
}

const fn classified(verdict: Verdict, because: Because) -> Classification {
    Classification {
        verdict: Some(verdict),
        because,
    }
}

fn by_code(body: &[u8], position: Position) -> Option<Classification> {
    let (code, verdict) = code::find(body, position)?;
    Some(classified(verdict, Because::Code(code)))
}

fn by_quota(status: u16, body: &[u8]) -> Option<Classification> {
    if !matches!(status, 403 | 429) {
        return None;
    }
    let words = text::first_of(body, ALLOWANCE)?;
    Some(classified(Verdict::QuotaExhausted, Because::Text(words)))
}

fn by_status(status: u16, hint: &Hint) -> Option<Classification> {
    let verdict = match status {
        401 => Verdict::Unauthorized,
        408 => Verdict::Overloaded,
        409 | 412 => Verdict::Conflict,
        429 => Verdict::Throttled,
        503 if hint.wait.is_some() || hint.remaining == Some(0) => {
            let because = match hint.source {
                Some(source) => Because::StatusWithHint(status, source),
                None => Because::NothingRemaining(None),
            };
            return Some(classified(Verdict::Throttled, because));
        }
        500.. => Verdict::Overloaded,
        _ => return None,
    };
    Some(classified(verdict, Because::Status(status)))
}

fn by_headers(hint: &Hint) -> Option<Classification> {
    let named = hint.source.filter(|source| source.names_wait());
    let because = match (named, hint.remaining) {
        (Some(source), _) if hint.wait.is_some() => Because::Header(source),
        (_, Some(0)) => Because::NothingRemaining(hint.source),
        _ => return None,
    };
    Some(classified(Verdict::Throttled, because))
}

fn by_text(body: &[u8]) -> Option<Classification> {
    let words = text::first_of(body, THROTTLING)?;
    Some(classified(Verdict::Throttled, Because::Text(words)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint;

    fn check(status: u16, headers: &[(&str, &str)], body: &str, verdict: Verdict, because: &str) {
        let found = classify(&[], status, headers, body);
        assert_eq!(found.verdict, Some(verdict), "{status} {headers:?} {body}");
        assert_eq!(found.because.to_string(), because);
    }

    fn classify(
        rules: &[Rule],
        status: u16,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Classification {
        let response = Response {
            status,
            headers: headers
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
            body: body.as_bytes(),
        };
        super::response(rules, &response, &hint::read(&response, None))
    }

    #[test]
    fn classifies_by_status() {
        for (status, verdict) in [
            (200, Verdict::Success),
            (204, Verdict::Success),
            (304, Verdict::Success),
            (400, Verdict::Rejected),
            (401, Verdict::Unauthorized),
            (402, Verdict::Rejected),
            (403, Verdict::Rejected),
            (404, Verdict::Rejected),
            (408, Verdict::Overloaded),
            (409, Verdict::Conflict),
            (410, Verdict::Rejected),
            (412, Verdict::Conflict),
            (413, Verdict::Rejected),
            (418, Verdict::Rejected),
            (426, Verdict::Rejected),
            (429, Verdict::Throttled),
            (499, Verdict::Rejected),
            (500, Verdict::Overloaded),
            (501, Verdict::Overloaded),
            (502, Verdict::Overloaded),
            (503, Verdict::Overloaded),
            (504, Verdict::Overloaded),
            (529, Verdict::Overloaded),
            (999, Verdict::Overloaded),
            (u16::MAX, Verdict::Overloaded),
        ] {
            check(status, &[], "", verdict, &format!("status {status}"));
        }
    }

    #[test]
    fn informational_responses_have_no_verdict() {
        for status in [0, 100, 101, 199] {
            let found = classify(&[], status, &[("retry-after", "5")], "rate limit");
            assert_eq!(found.verdict, None);
        }
    }

    #[test]
    fn classifies_503_with_hint_as_throttled() {
        let verdict = Verdict::Throttled;
        check(
            503,
            &[("Retry-After", "30")],
            "",
            verdict,
            "status 503 with `retry-after`",
        );
        check(
            503,
            &[("Retry-After", "0")],
            "",
            verdict,
            "status 503 with `retry-after`",
        );
        check(
            503,
            &[("x-ratelimit-remaining", "0")],
            "",
            verdict,
            "status 503 with `x-ratelimit-remaining`",
        );
        check(
            503,
            &[],
            "try again in 5s",
            verdict,
            "status 503 with a wait in the body",
        );
        let overloaded = Verdict::Overloaded;
        check(
            503,
            &[("x-ratelimit-remaining", "1")],
            "",
            overloaded,
            "status 503",
        );
        check(503, &[("Retry-After", "-1")], "", overloaded, "status 503");
        check(500, &[("Retry-After", "30")], "", overloaded, "status 500");
    }

    #[test]
    fn hint_headers_make_other_4xx_throttled() {
        let verdict = Verdict::Throttled;
        check(
            403,
            &[("Retry-After", "60")],
            "",
            verdict,
            "header `retry-after`",
        );
        check(
            400,
            &[("retry-after-ms", "60")],
            "",
            verdict,
            "header `retry-after-ms`",
        );
        check(
            403,
            &[("X-RateLimit-Remaining", "0")],
            "",
            verdict,
            "nothing remaining (`x-ratelimit-remaining`)",
        );
        check(
            404,
            &[("Retry-After", "soon")],
            "",
            Verdict::Rejected,
            "status 404",
        );
        check(
            404,
            &[("X-RateLimit-Remaining", "1")],
            "",
            Verdict::Rejected,
            "status 404",
        );
        check(
            404,
            &[],
            r#"{"retry_after":5}"#,
            Verdict::Rejected,
            "status 404",
        );
        check(
            401,
            &[("Retry-After", "60")],
            "",
            Verdict::Unauthorized,
            "status 401",
        );
    }

    #[test]
    fn accepts_hint_without_source() {
        let response = Response {
            status: 503,
            headers: [],
            body: b"",
        };
        let hint = Hint {
            remaining: Some(0),
            ..Hint::default()
        };
        let found = super::response(&[], &response, &hint);
        assert_eq!(found.verdict, Some(Verdict::Throttled));
        assert_eq!(found.because.to_string(), "nothing remaining");
    }

    #[test]
    fn status_alone_is_judged_like_an_empty_response() {
        let hints = [
            &[] as &[(&str, &[u8])],
            &[("retry-after", b"5")],
            &[("x-ratelimit-remaining", b"0")],
            &[("x-ratelimit-remaining", b"3"), ("retry-after", b"1")],
        ];
        for headers in hints {
            for code in (0..=999).chain([u16::MAX]) {
                let told = Response {
                    status: code,
                    headers: headers.iter().copied(),
                    body: b"",
                };
                let hint = hint::read(&told, None);
                let bare = Response {
                    status: code,
                    headers: [],
                    body: b"",
                };
                assert_eq!(
                    status(code, &hint),
                    response(&[], &bare, &hint),
                    "{code} {hint:?}"
                );
            }
        }
    }

    #[test]
    fn body_text_makes_other_4xx_throttled() {
        for (body, words) in [
            ("quota exceeded", "quota exceeded"),
            ("API Rate-Limit reached", "rate limit"),
            ("You are being rate limited.", "rate limited"),
            ("TOO MANY REQUESTS", "too many requests"),
            ("Please slow down!", "slow down"),
            (r#"{"message":"API rate limit exceeded"}"#, "rate limit"),
        ] {
            check(
                403,
                &[],
                body,
                Verdict::Throttled,
                &format!("text `{words}`"),
            );
        }
        for body in [
            "id 15042991",
            "took 429ms",
            "HTTP 429",
            "corporate limit",
            "separate limits",
        ] {
            check(403, &[], body, Verdict::Rejected, "status 403");
        }
    }

    #[test]
    fn quota_words_count_on_429_and_403() {
        let exhausted = Verdict::QuotaExhausted;
        for status in [429, 403] {
            for (body, words) in [
                (
                    "You exceeded your current quota",
                    "exceeded your current quota",
                ),
                ("Daily Limit Exceeded", "daily limit"),
                ("Billing is disabled", "billing"),
                ("rate limit: monthly quota used", "monthly quota"),
            ] {
                check(status, &[], body, exhausted, &format!("text `{words}`"));
            }
        }
        check(
            429,
            &[],
            "see https://e.com/billing",
            Verdict::Throttled,
            "status 429",
        );
        check(400, &[], "daily limit", Verdict::Rejected, "status 400");
        check(500, &[], "billing", Verdict::Overloaded, "status 500");
    }

    #[test]
    fn codes_take_precedence_over_words_and_status() {
        let quota = r#"{"error":{"code":"insufficient_quota"}}"#;
        for status in [200, 302, 400, 401, 429, 500] {
            let because = "body code `insufficient_quota`";
            check(status, &[], quota, Verdict::QuotaExhausted, because);
        }
        check(
            429,
            &[],
            r#"{"error":{"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota"}}"#,
            Verdict::Throttled,
            "body code `RESOURCE_EXHAUSTED`",
        );
        check(
            409,
            &[],
            r#"{"code":"CONCURRENT_REQUEST"}"#,
            Verdict::Overloaded,
            "body code `concurrent_request`",
        );
        check(
            503,
            &[("retry-after", "3")],
            r#"{"error":{"type":"overloaded_error"}}"#,
            Verdict::Overloaded,
            "body code `overloaded_error`",
        );
    }

    #[test]
    fn ignores_content_of_successes() {
        for body in [
            "rate limit exceeded",
            r#"{"status":"throttled","type":"rate_limited"}"#,
            r#"{"items":[{"code":"rate_limited"}]}"#,
        ] {
            check(
                200,
                &[("retry-after", "5")],
                body,
                Verdict::Success,
                "status 200",
            );
        }
        let late = format!(
            r#"{{"data":"{}","error":"ratelimited"}}"#,
            "x".repeat(MAX_SUCCESS_BODY)
        );
        check(200, &[], &late, Verdict::Success, "status 200");
    }

    #[test]
    fn rules_take_precedence() {
        let rules = [
            Rule {
                statuses: vec![404],
                ..Rule::new(Verdict::Success)
            },
            Rule {
                text: Some("banned".into()),
                ..Rule::new(Verdict::QuotaExhausted)
            },
        ];
        let found = classify(&rules, 200, &[], "you are banned");
        assert_eq!(found.verdict, Some(Verdict::QuotaExhausted));
        assert_eq!(found.because.to_string(), "rule 2");
        let found = classify(&rules, 404, &[("retry-after", "5")], "banned");
        assert_eq!(found.verdict, Some(Verdict::Success));
        assert_eq!(found.because.to_string(), "rule 1");
        let found = classify(&rules, 429, &[], "");
        assert_eq!(found.because, Because::Status(429));
    }

    #[test]
    fn failures_are_unreachable() {
        for (kind, because) in [
            (Failure::Connect, "connect failed"),
            (Failure::Dns, "name not resolved"),
            (Failure::Tls, "TLS handshake failed"),
            (Failure::Reset, "connection reset"),
            (Failure::Timeout, "timeout"),
            (Failure::RefusedStream, "stream refused"),
        ] {
            let found = failure(kind);
            assert_eq!(found.verdict, Some(Verdict::Unreachable));
            assert_eq!(found.because.to_string(), because);
        }
    }
}
