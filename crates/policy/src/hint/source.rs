//! Where a hint was read, and the names of all headers that can hold one.

use std::fmt;

use super::Scope;

/// Declares [`Source`] and [`Family`] from two lists.
///
/// A family is the three headers about one limit. An entry has the text before and after `limit`,
/// `remaining` and `reset` in their names, the sources of these three, what the limit counts, and
/// its period if the names give one.
macro_rules! sources {
    (
        { $($single:ident = $name:literal,)* }
        { $($family:ident = $before:literal $after:literal
            [$limit:ident $remaining:ident $reset:ident] $scope:ident $period:ident;)* }
    ) => {
        /// Where a hint was read, so that every wait can be traced. If several waits are equally
        /// long, the source that comes first here is reported.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Source {
            $(
                #[doc = concat!("`", $name, "`.")]
                $single,
            )*
            $(
                #[doc = concat!("`", $before, "limit", $after, "`.")]
                $limit,
                #[doc = concat!("`", $before, "remaining", $after, "`.")]
                $remaining,
                #[doc = concat!("`", $before, "reset", $after, "`.")]
                $reset,
            )*
            /// The response's body.
            Body,
            /// None: the policy's own step, because the server named no wait.
            Assumed,
            /// None: a window has accepted as many requests as those before.
            Counted,
        }

        impl Source {
            /// All headers that can hold a hint.
            pub const HEADERS: &[Self] =
                &[$(Self::$single,)* $(Self::$limit, Self::$remaining, Self::$reset,)*];

            /// The header's name in lower case, `body`, `assumed` or `counted`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$single => $name,)*
                    $(
                        Self::$limit => concat!($before, "limit", $after),
                        Self::$remaining => concat!($before, "remaining", $after),
                        Self::$reset => concat!($before, "reset", $after),
                    )*
                    Self::Body => "body",
                    Self::Assumed => "assumed",
                    Self::Counted => "counted",
                }
            }

            /// The family of the header, and what it says about its limit.
            pub(super) const fn family(self) -> Option<(Family, Field)> {
                match self {
                    $(
                        Self::$limit => Some((Family::$family, Field::Limit)),
                        Self::$remaining => Some((Family::$family, Field::Remaining)),
                        Self::$reset => Some((Family::$family, Field::Reset)),
                    )*
                    _ => None,
                }
            }
        }

        /// Headers about one limit: the limit, the remaining count and the reset.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Family {
            $($family,)*
        }

        impl Family {
            /// What the limit counts, if the name says so.
            pub(super) fn scope(self) -> Option<Scope> {
                match self {
                    $(Self::$family => $scope,)*
                }
            }

            /// The period in milliseconds, if the name gives one.
            pub(super) fn period(self) -> Option<u64> {
                match self {
                    $(Self::$family => $period,)*
                }
            }
        }
    };
}

/// What a header of a family says about its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Limit,
    Remaining,
    Reset,
}

const ANY: Option<Scope> = None;
const REQUESTS: Option<Scope> = Some(Scope::Requests);
const TOKENS: Option<Scope> = Some(Scope::Tokens);

const UNNAMED: Option<u64> = None;
const SECOND: Option<u64> = Some(1000);
const MINUTE: Option<u64> = Some(60_000);
const HOUR: Option<u64> = Some(3_600_000);
const DAY: Option<u64> = Some(86_400_000);
const MONTH: Option<u64> = Some(30 * 86_400_000);

sources! {
    {
        RetryAfter = "retry-after",
        RetryAfterMs = "retry-after-ms",
        XMsRetryAfterMs = "x-ms-retry-after-ms",
        XAmzRetryAfter = "x-amz-retry-after",
        Ratelimit = "ratelimit",
        RatelimitPolicy = "ratelimit-policy",
        AppRateLimit = "app-rate-limit",
        AppRateLimitCount = "app-rate-limit-count",
        XAppRateLimit = "x-app-rate-limit",
        XAppRateLimitCount = "x-app-rate-limit-count",
        XRatelimitResetAfter = "x-ratelimit-reset-after",
    }
    {
        XRatelimit = "x-ratelimit-" "" [XRatelimitLimit XRatelimitRemaining XRatelimitReset] ANY UNNAMED;
        // OpenAI, Azure, Groq.
        XRatelimitRequests = "x-ratelimit-" "-requests" [XRatelimitLimitRequests XRatelimitRemainingRequests XRatelimitResetRequests] REQUESTS UNNAMED;
        XRatelimitTokens = "x-ratelimit-" "-tokens" [XRatelimitLimitTokens XRatelimitRemainingTokens XRatelimitResetTokens] TOKENS UNNAMED;
        XRateLimit = "x-rate-limit-" "" [XRateLimitLimit XRateLimitRemaining XRateLimitReset] ANY UNNAMED;
        AnthropicRequests = "anthropic-ratelimit-requests-" "" [AnthropicRequestsLimit AnthropicRequestsRemaining AnthropicRequestsReset] REQUESTS UNNAMED;
        AnthropicTokens = "anthropic-ratelimit-tokens-" "" [AnthropicTokensLimit AnthropicTokensRemaining AnthropicTokensReset] TOKENS UNNAMED;
        AnthropicInputTokens = "anthropic-ratelimit-input-tokens-" "" [AnthropicInputTokensLimit AnthropicInputTokensRemaining AnthropicInputTokensReset] TOKENS UNNAMED;
        AnthropicOutputTokens = "anthropic-ratelimit-output-tokens-" "" [AnthropicOutputTokensLimit AnthropicOutputTokensRemaining AnthropicOutputTokensReset] TOKENS UNNAMED;
        // The older IETF draft.
        Ratelimit = "ratelimit-" "" [RatelimitLimit RatelimitRemaining RatelimitReset] ANY UNNAMED;
        // Cerebras; Mistral, whose requests are `req`.
        RequestsSecond = "x-ratelimit-" "-requests-second" [LimitRequestsSecond RemainingRequestsSecond ResetRequestsSecond] REQUESTS SECOND;
        RequestsMinute = "x-ratelimit-" "-requests-minute" [LimitRequestsMinute RemainingRequestsMinute ResetRequestsMinute] REQUESTS MINUTE;
        RequestsHour = "x-ratelimit-" "-requests-hour" [LimitRequestsHour RemainingRequestsHour ResetRequestsHour] REQUESTS HOUR;
        RequestsDay = "x-ratelimit-" "-requests-day" [LimitRequestsDay RemainingRequestsDay ResetRequestsDay] REQUESTS DAY;
        RequestsMonth = "x-ratelimit-" "-requests-month" [LimitRequestsMonth RemainingRequestsMonth ResetRequestsMonth] REQUESTS MONTH;
        ReqSecond = "x-ratelimit-" "-req-second" [LimitReqSecond RemainingReqSecond ResetReqSecond] REQUESTS SECOND;
        ReqMinute = "x-ratelimit-" "-req-minute" [LimitReqMinute RemainingReqMinute ResetReqMinute] REQUESTS MINUTE;
        ReqDay = "x-ratelimit-" "-req-day" [LimitReqDay RemainingReqDay ResetReqDay] REQUESTS DAY;
        ReqMonth = "x-ratelimit-" "-req-month" [LimitReqMonth RemainingReqMonth ResetReqMonth] REQUESTS MONTH;
        TokensSecond = "x-ratelimit-" "-tokens-second" [LimitTokensSecond RemainingTokensSecond ResetTokensSecond] TOKENS SECOND;
        TokensMinute = "x-ratelimit-" "-tokens-minute" [LimitTokensMinute RemainingTokensMinute ResetTokensMinute] TOKENS MINUTE;
        TokensHour = "x-ratelimit-" "-tokens-hour" [LimitTokensHour RemainingTokensHour ResetTokensHour] TOKENS HOUR;
        TokensDay = "x-ratelimit-" "-tokens-day" [LimitTokensDay RemainingTokensDay ResetTokensDay] TOKENS DAY;
        TokensMonth = "x-ratelimit-" "-tokens-month" [LimitTokensMonth RemainingTokensMonth ResetTokensMonth] TOKENS MONTH;
        // Mistral's older names; they count tokens.
        BySize = "ratelimitbysize-" "" [BySizeLimit BySizeRemaining BySizeReset] TOKENS UNNAMED;
        BySizeMinute = "x-ratelimitbysize-" "-minute" [BySizeMinuteLimit BySizeMinuteRemaining BySizeMinuteReset] TOKENS MINUTE;
        BySizeMonth = "x-ratelimitbysize-" "-month" [BySizeMonthLimit BySizeMonthRemaining BySizeMonthReset] TOKENS MONTH;
        // Fireworks.
        TokensPrompt = "x-ratelimit-" "-tokens-prompt" [LimitTokensPrompt RemainingTokensPrompt ResetTokensPrompt] TOKENS UNNAMED;
        TokensGenerated = "x-ratelimit-" "-tokens-generated" [LimitTokensGenerated RemainingTokensGenerated ResetTokensGenerated] TOKENS UNNAMED;
        // Kong and products based on it.
        Second = "x-ratelimit-" "-second" [LimitSecond RemainingSecond ResetSecond] ANY SECOND;
        Minute = "x-ratelimit-" "-minute" [LimitMinute RemainingMinute ResetMinute] ANY MINUTE;
        Hour = "x-ratelimit-" "-hour" [LimitHour RemainingHour ResetHour] ANY HOUR;
        Day = "x-ratelimit-" "-day" [LimitDay RemainingDay ResetDay] ANY DAY;
        Month = "x-ratelimit-" "-month" [LimitMonth RemainingMonth ResetMonth] ANY MONTH;
    }
}

impl Source {
    /// The source for the header `name`, in any case. Runs for every header of every response;
    /// nearly all names are rejected by their first letters.
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

    /// Whether this header names a wait by itself, whatever the status.
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
    fn finds_every_header_by_its_name_in_any_case() {
        for &source in Source::HEADERS {
            let name = source.to_string();
            assert_eq!(name, name.to_lowercase());
            assert_eq!(Source::of_header(&name), Some(source));
            assert_eq!(Source::of_header(&name.to_uppercase()), Some(source));
        }
    }

    #[test]
    fn finds_nothing_for_other_names() {
        for name in [
            "",
            "x",
            "x-",
            "date",
            "body",
            "assumed",
            "counted",
            "x-request-id",
            "retry-after-",
            "age",
            "x-ratelimit-remaining-tokens-",
        ] {
            assert_eq!(Source::of_header(name), None, "{name}");
        }
        assert_eq!(Source::Body.as_str(), "body");
        assert_eq!(Source::Assumed.as_str(), "assumed");
        assert_eq!(Source::Counted.as_str(), "counted");
    }

    #[test]
    fn a_source_is_one_byte() {
        assert_eq!(size_of::<Option<Source>>(), 1);
    }
}
