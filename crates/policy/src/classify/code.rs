//! Codes that APIs put into JSON bodies, and what each means.
//!
//! The list is closed, and each entry has an API that sends it. Codes that only repeat their status
//! ("service_unavailable" on a 503) are left out: the status with the hint says more. If APIs use
//! one code for different things, the milder verdict is used, because `QuotaExhausted` stops a gate
//! until a person resets it.

use super::Position;
use crate::json::{self, Entry, Value};
use crate::outcome::Verdict;
use crate::text::same_name;

/// The most severe code in `body` and its verdict: quota before throttling before overload, then
/// the first. Bodies often have several, such as a general `status` next to the specific `reason`.
pub(super) fn find(body: &[u8], position: Position) -> Option<(&'static str, Verdict)> {
    json::entries(body)
        .filter(|entry| stands_at(entry, position))
        .filter_map(|entry| known(code_of(&entry)?))
        .min_by_key(|(_, verdict)| match verdict {
            Verdict::QuotaExhausted => 0,
            Verdict::Throttled => 1,
            _ => 2,
        })
}

/// Whether any code in `body` is `code`. For rules, so at any position.
pub(super) fn contains(body: &[u8], code: &str) -> bool {
    json::entries(body)
        .filter(|entry| stands_at(entry, Position::Anywhere))
        .any(|entry| {
            matches!(entry.value, Value::String(written)
                if written.eq_ignore_ascii_case(code.as_bytes())
                    || same_name(last_segment(written), code))
        })
}

fn stands_at(entry: &Entry<'_>, position: Position) -> bool {
    let keys = match position {
        Position::Error if !entry.in_error => {
            if entry.depth != 1 {
                return false;
            }
            ERROR_KEYS
        }
        Position::Error | Position::Anywhere => KEYS,
    };
    keys.iter().any(|key| same_name(entry.key, key))
}

/// Keys whose values are codes. `__type` (AWS) is the same name as `type`.
const KEYS: &[&str] = &[
    "code",
    "type",
    "status",
    "reason",
    "error",
    "error_code",
    "error_type",
    "name",
];

/// Keys that report an error by themselves. In a success, a top-level `status` or `type` describes
/// the resource.
const ERROR_KEYS: &[&str] = &["error", "error_code", "code"];

/// The value of `entry` without its prefix, if it can be a code.
fn code_of<'a>(entry: &Entry<'a>) -> Option<&'a [u8]> {
    match entry.value {
        Value::String(text) => Some(last_segment(text)).filter(|code| code.len() <= MAX_CODE),
        Value::Number(_) => None,
    }
}

/// Longer than every code of the list, with separators to spare.
const MAX_CODE: usize = 64;

/// `ThrottlingException` of `com.amazonaws.dynamodb.v20120810#ThrottlingException`, `rateLimited`
/// of `urn:ietf:params:acme:error:rateLimited`, `rate-limited` of `https://e.org/rate-limited`.
fn last_segment(code: &[u8]) -> &[u8] {
    let mut parts = code.rsplit(|byte| matches!(byte, b'#' | b'/' | b':'));
    parts.next().unwrap_or_default()
}

fn known(code: &[u8]) -> Option<(&'static str, Verdict)> {
    CODES.iter().find_map(|(verdict, codes)| {
        let code = codes.iter().find(|known| same_name(code, known))?;
        Some((*code, *verdict))
    })
}

/// Compared ignoring case, `_`, `-` and spaces.
const CODES: &[(Verdict, &[&str])] = &[
    (
        Verdict::QuotaExhausted,
        &[
            // OpenAI.
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "usage_limit_reached",
            // Moonshot.
            "exceeded_current_quota_error",
            // Anthropic.
            "billing_error",
            // Google: `error.errors[].reason`, and `reason` of `google.rpc.ErrorInfo`.
            "dailyLimitExceeded",
            "dailyLimitExceededUnreg",
            "BILLING_DISABLED",
            // Resend.
            "daily_quota_exceeded",
            "monthly_quota_exceeded",
            // Services that sell credits.
            "insufficient_credits",
            "quota_exhausted",
        ],
    ),
    (
        Verdict::Throttled,
        &[
            // OpenAI; Google's ErrorInfo and `rateLimitExceeded`; GitLab.
            "rate_limit_exceeded",
            // Notion, GitHub's and Square's `RATE_LIMITED`, Slack's `ratelimited`, ACME.
            "rate_limited",
            // Stripe, HubSpot.
            "rate_limit",
            // Anthropic.
            "rate_limit_error",
            // Airtable, PayPal.
            "rate_limit_reached",
            // Moonshot.
            "rate_limit_reached_error",
            // Dropbox, DigitalOcean, Microsoft Graph, Docker Hub's `TOOMANYREQUESTS`, Twitch.
            "too_many_requests",
            // gRPC and with it all of Google.
            "RESOURCE_EXHAUSTED",
            // Google. Some of its APIs use `quotaExceeded` per minute, some per day.
            "userRateLimitExceeded",
            "quotaExceeded",
            // Shopify's GraphQL.
            "throttled",
            // Alibaba Cloud, older AWS.
            "Throttling",
            "Throttling.User",
            // AWS: what its own clients treat as throttling.
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "BandwidthLimitExceeded",
            "SlowDown",
            "PriorRequestNotComplete",
            "EC2ThrottledException",
            "TransactionInProgressException",
            // Azure, OneDrive, SharePoint.
            "SubscriptionRequestsThrottled",
            "ApplicationThrottled",
            "activityLimitReached",
            // Okta.
            "E0000047",
        ],
    ),
    (
        Verdict::Overloaded,
        &[
            // Anthropic.
            "overloaded_error",
            // Moonshot.
            "engine_overloaded_error",
            // OpenAI.
            "server_is_overloaded",
            "server_overloaded",
            // Stripe: the same key, or the same object, is in use.
            "idempotency_key_in_use",
            "lock_timeout",
            // Resend.
            "concurrent_idempotent_requests",
            // Many APIs with idempotency keys.
            "concurrent_request",
            "request_in_progress",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, anywhere: Option<&str>, at_error: Option<&str>) {
        let code = |position| find(body.as_bytes(), position).map(|(code, _)| code);
        assert_eq!(code(Position::Anywhere), anywhere, "{body}");
        assert_eq!(code(Position::Error), at_error, "{body}");
    }

    #[test]
    fn finds_every_code_as_written() {
        for (verdict, codes) in CODES {
            for code in *codes {
                assert!(code.len() <= MAX_CODE);
                let body = format!(r#"{{"error":{{"code":"{code}"}}}}"#);
                assert_eq!(
                    find(body.as_bytes(), Position::Error),
                    Some((*code, *verdict))
                );
            }
        }
    }

    #[test]
    fn ignores_spelling_and_prefixes() {
        let limited = Some("rate_limited");
        check(r#"{"error":"ratelimited"}"#, limited, limited);
        check(r#"{"errors":[{"type":"RATE_LIMITED"}]}"#, limited, limited);
        check(
            r#"{"type":"urn:ietf:params:acme:error:rateLimited"}"#,
            limited,
            None,
        );
        check(
            r#"{"type":"https://example.org/rate-limited"}"#,
            limited,
            None,
        );
        check(
            r#"{"__type":"com.amazonaws.dynamodb#ThrottlingException"}"#,
            Some("ThrottlingException"),
            None,
        );
    }

    #[test]
    fn successes_are_classified_by_error_positions_only() {
        check(r#"{"status":"throttled"}"#, Some("throttled"), None);
        check(
            r#"{"data":[{"type":"rate_limited"}]}"#,
            Some("rate_limited"),
            None,
        );
        check(
            r#"{"data":{"error":{"code":"rate_limited"}}}"#,
            Some("rate_limited"),
            None,
        );
        check(
            r#"{"error_code":"rate_limited"}"#,
            Some("rate_limited"),
            Some("rate_limited"),
        );
        check(
            r#"{"errors":[{"message":"x","extensions":{"code":"THROTTLED"}}]}"#,
            Some("throttled"),
            Some("throttled"),
        );
    }

    #[test]
    fn most_severe_code_wins() {
        check(
            r#"{"error":{"status":"RESOURCE_EXHAUSTED","errors":[{"reason":"dailyLimitExceeded"}]}}"#,
            Some("dailyLimitExceeded"),
            Some("dailyLimitExceeded"),
        );
        check(
            r#"{"code":"overloaded_error","type":"rate_limit_error"}"#,
            Some("rate_limit_error"),
            Some("overloaded_error"),
        );
    }

    #[test]
    fn ignores_values_that_are_not_codes() {
        for body in [
            "",
            "rate_limited",
            r#"{"code":429}"#,
            r#"{"message":"rate_limited"}"#,
            r#"{"code":"insufficient_funds"}"#,
            r#"{"code":"rate_limited and more"}"#,
            r#"{"code":""}"#,
        ] {
            check(body, None, None);
        }
        let long = format!(r#"{{"code":"{}rate_limited"}}"#, "_".repeat(MAX_CODE));
        check(&long, None, None);
    }

    #[test]
    fn rules_match_any_code() {
        let body = br#"{"error":{"type":"urn:x:Card_Declined","status":"a:b"}}"#;
        assert!(contains(body, "card_declined"));
        assert!(contains(body, "A:B"));
        assert!(!contains(body, "card"));
        assert!(!contains(b"card_declined", "card_declined"));
    }
}
