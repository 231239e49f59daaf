//! What becomes of an item after an attempt.

use std::fmt;
use std::time::Duration;

use crate::gate::Reason;
use crate::outcome::Verdict;
use crate::time::Timestamp;

/// What to do with an item now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing more: it was answered.
    Done,
    /// Send it again, at `at` and not before: at its gate, as every attempt.
    SendAt {
        /// When.
        at: Timestamp,
        /// How long that is from now; longer than until `at` if that was cut to the end of time.
        delay: Duration,
        /// Where the delay comes from.
        source: DelaySource,
        /// Why it has to be sent again.
        reason: ResendReason,
    },
    /// Refresh the credential, once for all items that use it, and say how that went with
    /// [`Item::refreshed`](super::Item::refreshed).
    Refresh,
    /// A rule or a person has to reconcile first. Sending it again as it is would only conflict
    /// again, or undo another change.
    Conflict,
    /// Nothing more: it will not be sent again by itself.
    Failed(TerminalReason),
}

impl Step {
    /// Why it is over, if it is over without success; a conflict is, for callers that
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
    /// Our own step: no server named it, it is assumed.
    Backoff,
    /// The server named it, in whatever dialect; jitter was added, nothing taken away.
    RetryAfter,
    /// There is none: the credential is new.
    Refresh,
    /// The gate said when it may be worth asking again.
    Gate,
    /// Another endpoint of its pool takes it, as soon as that one's gate admits it.
    Failover,
}

impl DelaySource {
    /// The word for it in logs and replay.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::RetryAfter => "retry_after",
            Self::Refresh => "refresh",
            Self::Gate => "gate",
            Self::Failover => "failover",
        }
    }
}

/// Why an item has to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendReason {
    /// It was sent, and that came of it.
    Verdict(Verdict),
    /// It was not even sent: its gate refused it.
    Refused(Reason),
}

impl ResendReason {
    /// The word for it in logs and replay.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verdict(verdict) => verdict.as_str(),
            Self::Refused(reason) => reason.as_str(),
        }
    }
}

/// Why something will not be sent again by itself. They stay apart everywhere, because different
/// things have to be done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TerminalReason {
    /// All sends it may have are used up. An unsafe request may have one, if the server can have
    /// acted on it and nothing makes a second harmless.
    Exhausted,
    /// The server will not take this request, however often it comes.
    Rejected,
    /// The credential was refreshed and is still not accepted, or could not be refreshed.
    AuthFailed,
    /// It contradicts what the server has, and they were not reconciled.
    Conflict,
    /// An allowance is used up.
    QuotaExhausted,
    /// It was not delivered in the time it had.
    Expired,
    /// A person or a caller took it back.
    Cancelled,
    /// What it was meant for is switched off.
    Disabled,
    /// Its gate has had no success for too long.
    GaveUp,
    /// Its gate's breaker is open for longer than it can wait.
    BreakerOpen,
}

impl TerminalReason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
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
    ];

    /// The word for it in logs, records, the API and replay.
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
        }
    }

    /// The reason with this name, as records keep it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
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
        for reason in TerminalReason::ALL {
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
