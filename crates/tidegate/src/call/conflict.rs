//! Resolving conflicts: 409 and 412.
//!
//! A request that conflicts with the state at the server is never resent unchanged: it would conflict
//! again, or undo another change. Only the program can decide, so it is asked.

use std::pin::Pin;

use policy::item::{Step, TerminalReason};
use policy::time::Timestamp;

use super::OnConflict;
use super::state::CallState;

/// What to do after a conflict, see [`Call::on_conflict`](super::Call::on_conflict).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// The next attempt sends something else: resend at once.
    Resend,
    /// The state at the server is as good: complete with the value of the attempt.
    Discard,
    /// It cannot be resolved: fail as `conflict`.
    Fail,
}

/// Resolves to the decision.
pub type ResolutionFuture<'a> = Pin<Box<dyn Future<Output = Resolution> + Send + 'a>>;

/// How many conflicts of one call may be resolved. More mean that others change the same thing all the
/// time, and a person has to look.
pub const MAX_RESOLUTIONS: u32 = 3;

impl<'a, E> CallState<'a, E> {
    /// Has a conflict resolved, and returns what follows.
    pub(super) async fn resolve_conflict(
        &mut self,
        resolve: OnConflict<'a>,
        deadline: Option<Timestamp>,
    ) -> Step {
        if self.conflicts == MAX_RESOLUTIONS {
            return Step::Conflict;
        }
        self.conflicts += 1;
        let clock = self.limiter.clock();
        match clock.bounded(deadline, resolve(self.conflicts)).await {
            Some(Resolution::Resend) => self.item.resolved(clock.now()),
            Some(Resolution::Discard) => Step::Done,
            Some(Resolution::Fail) => Step::Conflict,
            None => Step::Failed(TerminalReason::Expired),
        }
    }
}
