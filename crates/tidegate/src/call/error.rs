//! The end of a call that is not good.

use std::fmt;

use policy::item::TerminalReason;

use super::{CallDecision, Trail, TrailStep};
use crate::permit::InFlight;

/// Something will not be sent again by itself.
///
/// The message says why in one line; [`trail`](Self::trail) has everything that led there. What the
/// last attempt came to is in [`last`](Self::last): when all attempts are used up, the server's own
/// answer is usually what the caller wants to see.
pub struct CallError<T> {
    /// Why.
    pub reason: TerminalReason,
    /// How often it was sent.
    pub sent: u32,
    /// The value of the last attempt; `None` if none was made.
    pub last: Option<T>,
    /// Every decision about the call.
    pub trail: Trail,
    /// Keeps the last attempt in flight while its body is read, see
    /// [`AttemptResult::with_body`](super::AttemptResult::with_body).
    pub in_flight: Option<InFlight>,
}

impl<T> CallError<T> {
    /// Could the same call succeed later, as it is? Not if the server said what is wrong with it.
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

// Not derived: a value need not be `Debug` for its error to be one.
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
