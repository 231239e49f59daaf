//! Which limit of a language model a refusal names: requests or tokens.
//!
//! OpenAI names it in `type` and as "tokens per min (TPM)", Azure as "token rate limit", Anthropic as
//! "input tokens per minute", Gemini as `…InputTokensPerModelPerMinute`, Bedrock as "too many
//! tokens". "Too many requests" alone names nothing: it is the text of the status.

use super::Exceeded;
use crate::json::{self, Value};

/// `None` if `body` names neither limit, or both.
pub(super) fn read(body: &[u8]) -> Option<Exceeded> {
    let by_type = json::entries(body).find_map(|entry| match entry.value {
        Value::String(b"tokens") if entry.key == b"type" => Some(Exceeded::Tokens),
        Value::String(b"requests") if entry.key == b"type" => Some(Exceeded::Requests),
        _ => None,
    });
    by_type.or_else(|| match (names(body, TOKENS), names(body, REQUESTS)) {
        (true, false) => Some(Exceeded::Tokens),
        (false, true) => Some(Exceeded::Requests),
        _ => None,
    })
}

/// In lower case, without spaces, `_` and `-`.
const TOKENS: &[&str] = &[
    "tokensper",
    "tokenrate",
    "(tpm)",
    "toomanytokens",
    "requesttokens",
    "tokencount",
];

const REQUESTS: &[&str] = &[
    "requestsper",
    "(rpm)",
    "callrate",
    "numberofrequestshas",
    "tierrequests",
];

/// Whether any of `phrases` occurs in `text`, in any case and whatever separates its words: the same
/// name is a sentence, `snake_case` and `CamelCase` in different bodies.
fn names(text: &[u8], phrases: &[&str]) -> bool {
    let letters = text
        .iter()
        .filter(|byte| !matches!(byte, b' ' | b'_' | b'-'))
        .map(u8::to_ascii_lowercase);
    let mut matched = [0; MAX_PHRASES];
    letters.into_iter().any(|letter| {
        phrases.iter().zip(&mut matched).any(|(phrase, matched)| {
            let phrase = phrase.as_bytes();
            // A mismatch starts the phrase anew, which is exact unless a text repeats its beginning.
            *matched = match () {
                () if phrase.get(*matched) == Some(&letter) => *matched + 1,
                () => usize::from(phrase.first() == Some(&letter)),
            };
            *matched == phrase.len()
        })
    })
}

const MAX_PHRASES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Option<Exceeded>) {
        assert_eq!(read(body.as_bytes()), expected, "{body}");
    }

    #[test]
    fn reads_which_limit_a_refusal_names() {
        let tokens = Some(Exceeded::Tokens);
        let requests = Some(Exceeded::Requests);
        check(
            r#"{"error":{"message":"Rate limit reached for gpt-4 on tokens per min (TPM): Limit 10000, Used 9700, Requested 800.","type":"tokens","code":"rate_limit_exceeded"}}"#,
            tokens,
        );
        check(
            "Rate limit reached on requests per min (RPM): Limit 3",
            requests,
        );
        check(
            "have exceeded token rate limit of your current OpenAI S0 pricing tier",
            tokens,
        );
        check(
            "have exceeded call rate limit of your current tier",
            requests,
        );
        check(
            "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
            tokens,
        );
        check(
            "Number of request tokens has exceeded your per-minute rate limit",
            tokens,
        );
        check(
            "Number of requests has exceeded your per-minute rate limit",
            requests,
        );
        check(
            r#"{"quotaId":"GenerateContentInputTokensPerModelPerMinute-FreeTier"}"#,
            tokens,
        );
        check(
            r#"{"quotaMetric":"x/generate_content_free_tier_input_token_count"}"#,
            tokens,
        );
        check(
            r#"{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}"#,
            requests,
        );
        check("Too many tokens, please wait before trying again.", tokens);
    }

    #[test]
    fn reads_none_if_neither_or_both_are_named() {
        check("", None);
        check("Too Many Requests", None);
        check(
            r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#,
            None,
        );
        check(
            "limits: 60 requests per minute and 40000 tokens per minute",
            None,
        );
        check("tokens tokens tokens, tpm rpm", None);
    }
}
