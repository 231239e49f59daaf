//! The error of a failed call.

use std::fmt;

use policy::item::TerminalReason;

use super::{CallDecision, Trail, TrailStep};
use crate::permit::InFlight;

/// A call failed and will not be resent.
///
/// The message gives the reason in one line; [`trail`](Self::trail) has every decision that led to
/// it. [`last`](Self::last) has the value of the last attempt: when all attempts are used up,
/// callers usually want to see the server's response.
pub struct CallError<T> {
    /// The terminal reason.
    pub reason: TerminalReason,
    /// How many times the request was sent.
    pub sent: u32,
    /// The value of the last attempt; `None` if none was made.
    pub last: Option<T>,
    /// Every decision about the call.
    pub trail: Trail,
    /// Counts the last attempt as in flight while its body is read, see
    /// [`AttemptResult::with_body`](super::AttemptResult::with_body).
    pub in_flight: Option<InFlight>,
}

impl<T> CallError<T> {
    /// Whether the same call could succeed later, unchanged. Not if the server rejected the request
    /// itself.
    pub fn may_succeed_later(&self) -> bool {
        match self.reason {
            TerminalReason::Exhausted
            | TerminalReason::Expired
            | TerminalReason::GaveUp
            | TerminalReason::BreakerOpen
            | TerminalReason::Cancelled
            | TerminalReason::Disabled
            | TerminalReason::QuotaExhausted => true,
            TerminalReason::Rejected | TerminalReason::AuthFailed | TerminalReason::Conflict => {
                false
            }
        }
    }
}

impl<T> fmt::Display for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, sent) = (self.reason, self.sent);
        match sent {
            0 => write!(f, "{reason}: never sent")?,
            1 => write!(f, "{reason} after 1 attempt")?,
            _ => write!(f, "{reason} after {sent} attempts")?,
        }
        let is_cause = |step: &&TrailStep| !matches!(step.decision, CallDecision::Over { .. });
        match self.trail.steps().iter().rev().find(is_cause) {
            Some(step) => write!(f, "; last: {}", step.decision),
            None => Ok(()),
        }
    }
}

// Not derived: the error is `Debug` even if the value is not.
impl<T> fmt::Debug for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallError")
            .field("reason", &self.reason)
            .field("sent", &self.sent)
            .field("trail", &self.trail)
            .finish_non_exhaustive()
    }
}

impl<T> std::error::Error for CallError<T> {}
