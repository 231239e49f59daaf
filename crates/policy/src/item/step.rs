//! What follows an attempt of an item.

use std::fmt;
use std::time::Duration;

use crate::gate::Reason;
use crate::outcome::Verdict;
use crate::time::Timestamp;

/// What to do with an item next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is complete.
    Done,
    /// Resend it through its gate, at `at` and not before.
    SendAt {
        /// When.
        at: Timestamp,
        /// The delay from now; longer than until `at` if that saturated.
        delay: Duration,
        /// Where the delay comes from.
        source: DelaySource,
        /// Why it has to be resent.
        reason: ResendReason,
    },
    /// Refresh the credential, once for all items that use it, and report the result with
    /// [`Item::refreshed`](super::Item::refreshed).
    Refresh,
    /// A rule or a person has to reconcile it first. Resending it unchanged would conflict again,
    /// or undo another change.
    Conflict,
    /// It failed and will not be resent automatically.
    Failed(TerminalReason),
}

impl Step {
    /// The terminal reason, if it ended without success. A conflict has one too, for callers that
    /// cannot reconcile.
    pub fn terminal_reason(self) -> Option<TerminalReason> {
        match self {
            Self::Failed(reason) => Some(reason),
            Self::Conflict => Some(TerminalReason::Conflict),
            Self::Done | Self::SendAt { .. } | Self::Refresh => None,
        }
    }
}

/// Where the delay before the next send comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DelaySource {
    /// The backoff: no server named a wait.
    Backoff,
    /// A wait that the server named, in any form, plus jitter.
    RetryAfter,
    /// No delay: the credential was refreshed.
    Refresh,
    /// The gate said when to ask again.
    Gate,
    /// Another endpoint of its pool takes over as soon as its gate admits it.
    Failover,
    /// No delay: a conflict was resolved.
    Resolution,
}

impl DelaySource {
    /// The name in logs and replay.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::RetryAfter => "retry_after",
            Self::Refresh => "refresh",
            Self::Gate => "gate",
            Self::Failover => "failover",
            Self::Resolution => "resolution",
        }
    }
}

/// Why an item has to be resent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResendReason {
    /// It was sent, with this verdict.
    Verdict(Verdict),
    /// It was not sent, because its gate refused it.
    Refused(Reason),
}

impl ResendReason {
    /// The name in logs and replay.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verdict(verdict) => verdict.as_str(),
            Self::Refused(reason) => reason.as_str(),
        }
    }
}

/// Why an item will not be resent automatically. The reasons are distinct because each calls for a
/// different action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TerminalReason {
    /// All attempts are used up. An unsafe request has only one if the server may have acted on it
    /// and nothing makes resending safe.
    Exhausted,
    /// The server will never accept this request.
    Rejected,
    /// The credential is still rejected after a refresh, or could not be refreshed.
    AuthFailed,
    /// It conflicts with the server's state and was not reconciled.
    Conflict,
    /// A quota is used up.
    QuotaExhausted,
    /// It was not delivered in time.
    Expired,
    /// A person or caller cancelled it.
    Cancelled,
    /// Its destination is disabled.
    Disabled,
    /// Its gate has had no success for too long.
    GaveUp,
    /// Its gate's breaker stays open for longer than it can wait.
    BreakerOpen,
    /// Its response could not be used: the attempt ended with an error of the caller's own, such as a
    /// body that cannot be parsed, which says nothing about the server.
    Unusable,
}

impl TerminalReason {
    /// All reasons.
    pub const ALL: &'static [Self] = &[
        Self::Exhausted,
        Self::Rejected,
        Self::AuthFailed,
        Self::Conflict,
        Self::QuotaExhausted,
        Self::Expired,
        Self::Cancelled,
        Self::Disabled,
        Self::GaveUp,
        Self::BreakerOpen,
        Self::Unusable,
    ];

    /// The name in logs, records, the API and replay.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Rejected => "rejected",
            Self::AuthFailed => "auth_failed",
            Self::Conflict => "conflict",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Disabled => "disabled",
            Self::GaveUp => "gave_up",
            Self::BreakerOpen => "breaker_open",
            Self::Unusable => "unusable",
        }
    }

    /// The reason with this name, as stored in records.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == name)
    }
}

impl fmt::Display for TerminalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_reasons_parse_from_their_names() {
        for &reason in TerminalReason::ALL {
            assert_eq!(TerminalReason::named(reason.as_str()), Some(reason));
        }
        assert_eq!(TerminalReason::named("Exhausted"), None);
    }

    #[test]
    fn only_failed_steps_have_a_terminal_reason() {
        assert_eq!(Step::Done.terminal_reason(), None);
        assert_eq!(Step::Refresh.terminal_reason(), None);
        assert_eq!(
            Step::Conflict.terminal_reason(),
            Some(TerminalReason::Conflict)
        );
        let expired = TerminalReason::Expired;
        assert_eq!(Step::Failed(expired).terminal_reason(), Some(expired));
    }
}
