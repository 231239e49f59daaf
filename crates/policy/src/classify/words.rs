//! Words in bodies that decide where neither code nor status does.
//!
//! Whole words in any case; inflected forms are listed separately, see [`crate::text`].

/// Words about billing, or about a quota that does not reset within minutes.
pub(super) const ALLOWANCE: &[&str] = &[
    // OpenAI and Google, and APIs that copied the sentence.
    "exceeded your current quota",
    "insufficient quota",
    "billing",
    "daily limit",
    "daily quota",
    "daily request limit",
    "monthly limit",
    "monthly quota",
    "monthly usage limit",
    // Anthropic.
    "credit balance is too low",
    "insufficient credits",
    "out of credits",
    "spending limit",
    "spend limit",
    "quota exhausted",
];

/// Words by which a 403 says that the credential or the account is rejected, not the request.
/// Words about permissions are missing: another credential may lack them too.
pub(super) const CREDENTIAL: &[&str] = &[
    "api key",
    "api keys",
    "apikey",
    "access key",
    "access token",
    "invalid token",
    "expired token",
    "token expired",
    "token has expired",
    "authentication",
    "unauthenticated",
    "not authenticated",
    "credential",
    "credentials",
    // AWS.
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
    "expiredtoken",
    "invalidclienttokenid",
    // Accounts that were closed or not paid for.
    "account suspended",
    "account is suspended",
    "account has been suspended",
    "account disabled",
    "account is disabled",
    "account has been disabled",
    "account deactivated",
    "account is not active",
    "payment required",
    "payment method",
    "past due",
];

/// Words that ask for a slower pace.
pub(super) const THROTTLING: &[&str] = &[
    "rate limit",
    "rate limits",
    "rate limited",
    "rate limiting",
    "ratelimit",
    "ratelimited",
    "too many requests",
    "toomanyrequests",
    "quota exceeded",
    "exceeded your quota",
    "request limit exceeded",
    "resource exhausted",
    "slow down",
    "throttled",
    "throttling",
    // GitHub's secondary limits, in an older wording.
    "abuse detection",
];
