//! Where a hint was read, and the names of every header that can hold one.

use std::fmt;

/// Declares [`Source`] and its names from one list, so that they cannot drift apart.
macro_rules! sources {
    ($($variant:ident = $name:literal,)*) => {
        /// Where a hint was read: shown to people, so that every wait can be traced to its reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Source {
            $(
                #[doc = concat!("`", $name, "`.")]
                $variant,
            )*
            /// The answer's body.
            Body,
            /// Nowhere: the policy's own step, because the server named no wait.
            Assumed,
        }

        impl Source {
            /// Every header that can hold a hint.
            pub const HEADERS: &[Self] = &[$(Self::$variant),*];

            /// The header's name in lower case, `body` or `assumed`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Body => "body",
                    Self::Assumed => "assumed",
                }
            }
        }
    };
}

// Of several equally long waits, the one first in this list is named.
sources! {
    RetryAfter = "retry-after",
    RetryAfterMs = "retry-after-ms",
    XMsRetryAfterMs = "x-ms-retry-after-ms",
    XAmzRetryAfter = "x-amz-retry-after",
    XRatelimitLimit = "x-ratelimit-limit",
    XRatelimitRemaining = "x-ratelimit-remaining",
    XRatelimitReset = "x-ratelimit-reset",
    XRatelimitResetAfter = "x-ratelimit-reset-after",
    XRatelimitLimitRequests = "x-ratelimit-limit-requests",
    XRatelimitRemainingRequests = "x-ratelimit-remaining-requests",
    XRatelimitResetRequests = "x-ratelimit-reset-requests",
    XRatelimitLimitTokens = "x-ratelimit-limit-tokens",
    XRatelimitRemainingTokens = "x-ratelimit-remaining-tokens",
    XRatelimitResetTokens = "x-ratelimit-reset-tokens",
    XRateLimitLimit = "x-rate-limit-limit",
    XRateLimitRemaining = "x-rate-limit-remaining",
    XRateLimitReset = "x-rate-limit-reset",
    AnthropicRequestsLimit = "anthropic-ratelimit-requests-limit",
    AnthropicRequestsRemaining = "anthropic-ratelimit-requests-remaining",
    AnthropicRequestsReset = "anthropic-ratelimit-requests-reset",
    AnthropicTokensLimit = "anthropic-ratelimit-tokens-limit",
    AnthropicTokensRemaining = "anthropic-ratelimit-tokens-remaining",
    AnthropicTokensReset = "anthropic-ratelimit-tokens-reset",
    AnthropicInputTokensLimit = "anthropic-ratelimit-input-tokens-limit",
    AnthropicInputTokensRemaining = "anthropic-ratelimit-input-tokens-remaining",
    AnthropicInputTokensReset = "anthropic-ratelimit-input-tokens-reset",
    AnthropicOutputTokensLimit = "anthropic-ratelimit-output-tokens-limit",
    AnthropicOutputTokensRemaining = "anthropic-ratelimit-output-tokens-remaining",
    AnthropicOutputTokensReset = "anthropic-ratelimit-output-tokens-reset",
    Ratelimit = "ratelimit",
    RatelimitPolicy = "ratelimit-policy",
    RatelimitLimit = "ratelimit-limit",
    RatelimitRemaining = "ratelimit-remaining",
    RatelimitReset = "ratelimit-reset",
    AppRateLimit = "app-rate-limit",
    AppRateLimitCount = "app-rate-limit-count",
    XAppRateLimit = "x-app-rate-limit",
    XAppRateLimitCount = "x-app-rate-limit-count",
}

impl Source {
    /// The source that the header `name`, in any case, is. Runs for every header of every answer:
    /// nearly all names are dismissed by their first letters.
    pub fn of_header(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        let (first, third) = (bytes.first()?, bytes.get(2)?);
        let possible = matches!(
            (first.to_ascii_lowercase(), third.to_ascii_lowercase()),
            (b'r', b't') | (b'x', b'r' | b'm' | b'a') | (b'a', b't' | b'p')
        );
        if !possible {
            return None;
        }
        Self::HEADERS
            .iter()
            .copied()
            .find(|source| name.eq_ignore_ascii_case(source.as_str()))
    }

    /// Does this header name a wait by itself, whatever the status is?
    pub const fn names_wait(self) -> bool {
        matches!(
            self,
            Self::RetryAfter | Self::RetryAfterMs | Self::XMsRetryAfterMs | Self::XAmzRetryAfter
        )
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_is_found_by_its_name_in_any_case() {
        for &source in Source::HEADERS {
            let name = source.to_string();
            assert_eq!(name, name.to_lowercase());
            assert_eq!(Source::of_header(&name), Some(source));
            assert_eq!(Source::of_header(&name.to_uppercase()), Some(source));
        }
    }

    #[test]
    fn other_names_are_none() {
        for name in [
            "",
            "x",
            "x-",
            "date",
            "body",
            "assumed",
            "x-request-id",
            "retry-after-",
            "age",
        ] {
            assert_eq!(Source::of_header(name), None, "{name}");
        }
        assert_eq!(Source::Body.as_str(), "body");
        assert_eq!(Source::Assumed.as_str(), "assumed");
    }

    #[test]
    fn a_source_is_one_byte() {
        assert_eq!(size_of::<Option<Source>>(), 1);
    }
}
