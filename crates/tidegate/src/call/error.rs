//! The error of a failed call.

use std::error::Error;
use std::fmt;

use policy::item::TerminalReason;
use policy::outcome::Verdict;

use super::{BoxError, CallDecision, Trail, TrailStep};
use crate::permit::InFlight;

/// A call failed and will not be resent.
///
/// The message gives the reason in one line; [`trail`](Self::trail) has every decision that led to
/// it. [`last`](Self::last) has the value of the last attempt: when all attempts are used up,
/// callers usually want to see the server's response. If the last attempt ended with an error
/// instead, or the credential could not be refreshed, that error is the [source](Error::source).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use tidegate::{AttemptResult, Limiter, TerminalReason, Verdict};
///
/// let limiter = Limiter::new();
/// let call = limiter.call("api.example.com");
/// let error = call
///     .run(async |attempt| AttemptResult::new("no such item", attempt.status(404)))
///     .await
///     .unwrap_err();
/// assert_eq!(error.reason, TerminalReason::Rejected);
/// assert_eq!(error.verdict(), Some(Verdict::Rejected));
/// assert_eq!(error.into_last(), Some("no such item"));
/// # }
/// ```
#[non_exhaustive]
pub struct CallError<T> {
    /// The terminal reason.
    pub reason: TerminalReason,
    /// How many times the request was sent.
    pub sent: u32,
    /// The value of the last attempt; `None` if none was made, or it ended without one.
    pub last: Option<T>,
    /// Every decision about the call.
    pub trail: Trail,
    /// Counts the last attempt as in flight while its body is read, see
    /// [`AttemptResult::with_body`](super::AttemptResult::with_body).
    pub in_flight: Option<InFlight>,
    pub(super) verdict: Option<Verdict>,
    /// Boxed twice, because results with large errors are slow to pass on.
    pub(super) error: Option<Box<BoxError>>,
}

impl<T> CallError<T> {
    /// The value of the last attempt; `None` if none was made, or it ended without one.
    pub fn into_last(self) -> Option<T> {
        self.last
    }

    /// The verdict on the last attempt; `None` if none was made or its result is unknown.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// The error of the last attempt, by value.
    #[cfg(feature = "reqwest")]
    pub(crate) fn take_error(&mut self) -> Option<BoxError> {
        self.error.take().map(|error| *error)
    }

    /// Maps the value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> CallError<U> {
        CallError {
            reason: self.reason,
            sent: self.sent,
            last: self.last.map(map),
            trail: self.trail,
            in_flight: self.in_flight,
            verdict: self.verdict,
            error: self.error,
        }
    }

    /// Whether the same call could succeed later, unchanged. Not if the server rejected the request
    /// itself, or its response could not be used.
    pub fn may_succeed_later(&self) -> bool {
        match self.reason {
            TerminalReason::Exhausted
            | TerminalReason::Expired
            | TerminalReason::GaveUp
            | TerminalReason::BreakerOpen
            | TerminalReason::Cancelled
            | TerminalReason::Disabled
            | TerminalReason::QuotaExhausted => true,
            TerminalReason::Rejected
            | TerminalReason::AuthFailed
            | TerminalReason::Conflict
            | TerminalReason::Unusable => false,
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
            // Nothing is recorded of an attempt without a result.
            Some(step) if is_sent(&step.decision) => match self.error {
                Some(_) => f.write_str("; last: the attempt failed"),
                None => f.write_str("; last: no response before its time was up"),
            },
            Some(step) => write!(f, "; last: {}", step.decision),
            None => Ok(()),
        }
    }
}

/// Whether an attempt follows the decision.
fn is_sent(decision: &CallDecision) -> bool {
    matches!(
        decision,
        CallDecision::Admitted { .. } | CallDecision::Hedged { .. }
    )
}

// Not derived: the error is `Debug` even if the value is not.
impl<T> fmt::Debug for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallError")
            .field("reason", &self.reason)
            .field("sent", &self.sent)
            .field("verdict", &self.verdict)
            .field("error", &self.error)
            .field("trail", &self.trail)
            .finish_non_exhaustive()
    }
}

impl<T> Error for CallError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let error = self.error.as_deref()?;
        Some(error.as_ref())
    }
}
