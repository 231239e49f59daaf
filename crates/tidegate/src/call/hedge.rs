//! Attempts under way, and races between two of them.
//!
//! [`policy::hedge`] and the gate decide whether a second attempt may be made; here it is made. The
//! attempt that ends the race continues as the call's attempt, and the other is dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use policy::hedge::{Hedge, ends_race};
use policy::item::TerminalReason;
use policy::outcome::Verdict;
use policy::time::Timestamp;

use super::state::{AnyPermit, CallState, PermitSource};
use super::{Attempt, AttemptResult, Call, CallDecision, IntoAttemptResult};
use crate::credential::Refresh;
use crate::pool::Endpoint;

/// The result of an attempt, without a value if it ended without one. `Err` if the result is unknown
/// and the call is over.
pub(super) type AttemptEnd<T> = Result<AttemptResult<Option<T>>, TerminalReason>;

/// An attempt under way.
pub(super) struct Running<'a, E> {
    pub(super) permit: AnyPermit<'a, E>,
    /// Its endpoint, in a pool.
    pub(super) endpoint: Option<Arc<Endpoint<E>>>,
    /// The generation of the credential that it uses.
    pub(super) used: Option<u64>,
    pub(super) started: Timestamp,
    timeout_at: Option<Timestamp>,
    /// When the call's time is up.
    deadline: Option<Timestamp>,
}

impl<E> Running<'_, E> {
    /// When it is dropped if it has not ended.
    pub(super) fn bound(&self) -> Option<Timestamp> {
        self.deadline.into_iter().chain(self.timeout_at).min()
    }

    /// Whether the attempt's own time is up before that of the call.
    pub(super) fn is_bound_by_timeout(&self) -> bool {
        self.bound() == self.timeout_at
    }
}

impl<'a, E> CallState<'a, E> {
    /// Starts the next attempt.
    pub(super) fn start<P>(
        &self,
        permit: AnyPermit<'a, E>,
        call: &Call<'_, P>,
        deadline: Option<Timestamp>,
    ) -> (Attempt, Running<'a, E>) {
        let endpoint = permit.endpoint().cloned();
        let own = endpoint
            .as_deref()
            .and_then(|endpoint| self.credential_of(endpoint));
        let used = own.or(call.credential).map(Refresh::generation);
        let mut this = Attempt::start(self.sent() + 1, self.limiter.clock());
        let started = this.started;
        let running = Running {
            permit,
            endpoint,
            used,
            started,
            timeout_at: call.attempt_timeout.map(|timeout| started + timeout),
            deadline,
        };
        this.deadline = running.bound();
        (this, running)
    }

    /// Makes an attempt, and a second one if the first is not answered soon. Returns the one whose
    /// result counts.
    pub(super) async fn race<P, R, F>(
        &mut self,
        hedge: Hedge,
        call: &Call<'_, P>,
        this: Attempt,
        first: Running<'a, E>,
        attempt: &mut impl FnMut(Attempt, Option<Arc<Endpoint<E>>>) -> F,
    ) -> (Running<'a, E>, AttemptEnd<R::Value>)
    where
        R: IntoAttemptResult,
        F: Future<Output = R>,
    {
        let clock = self.limiter.clock();
        let sending = attempt(this, first.endpoint.clone());
        let mut sending = Box::pin(clock.bounded(first.bound(), sending));
        let after = self.limiter.hedge_after(&self.key_of(&first), hedge);
        let early = match after.map(|after| first.started + after) {
            Some(at) => clock.bounded(Some(at), sending.as_mut()).await,
            None => Some(sending.as_mut().await),
        };
        if let Some(ended) = early {
            let ended = self.ended(ended, &first);
            return (first, ended);
        }
        let Some((this, second)) = self.start_second(&first, call) else {
            let ended = self.ended(sending.await, &first);
            return (first, ended);
        };
        let sending_too = attempt(this, second.endpoint.clone());
        let mut sending_too = Box::pin(clock.bounded(second.bound(), sending_too));
        let (is_first, ended) = poll_fn(|context| {
            if let Poll::Ready(ended) = sending.as_mut().poll(context) {
                return Poll::Ready((true, ended));
            }
            let ended = sending_too.as_mut().poll(context);
            ended.map(|ended| (false, ended))
        })
        .await;
        let (done, other, sending) = match is_first {
            true => (first, second, sending_too),
            false => (second, first, sending),
        };
        match self.ended(ended, &done) {
            Ok(result) if is_undecided(&result) => {
                let is_last = result.is_last;
                self.settle_beside(done, result);
                let ended = self.ended(sending.await, &other);
                self.count_if_won(is_first, &other, &ended);
                let ended = ended.map(|result| if is_last { result.last() } else { result });
                (other, ended)
            }
            ended => {
                drop(sending);
                self.count_if_won(!is_first, &done, &ended);
                self.drop_other(other, &ended);
                (done, ended)
            }
        }
    }

    /// Starts the second attempt, if it may be made now.
    fn start_second<P>(
        &mut self,
        first: &Running<'a, E>,
        call: &Call<'_, P>,
    ) -> Option<(Attempt, Running<'a, E>)> {
        let permit = match (&self.source, &first.endpoint) {
            (PermitSource::Limiter(limiter), _) => {
                AnyPermit::Gate(limiter.acquire_hedge(self.ask)?)
            }
            (PermitSource::Pool(pool), Some(endpoint)) => {
                let first = (endpoint.id, first.permit.permit().location());
                AnyPermit::Pool(pool.acquire_hedge(&self.ask, first, &self.rejected)?)
            }
            (PermitSource::Pool(_), None) => return None,
        };
        self.item.hedged();
        let (this, second) = self.start(permit, call, first.deadline);
        let (key, now) = (self.key_of(&second), second.started);
        let after = now.since(first.started);
        self.limiter.count_hedge(&key, after, now);
        self.note(now, CallDecision::Hedged { key, after });
        Some((this, second))
    }

    /// Settles an attempt that failed while the other goes on.
    fn settle_beside<T>(&mut self, failed: Running<'a, E>, result: AttemptResult<Option<T>>) {
        let Some(outcome) = &result.outcome else {
            return;
        };
        let (verdict, _) = failed.permit.settle(&result, outcome, false);
        let decision = CallDecision::Settled {
            response: outcome.response,
            verdict,
            latency: outcome.latency,
        };
        self.note(self.limiter.clock().now(), decision);
    }

    /// Returns the permit of the attempt that was dropped.
    fn drop_other<T>(&mut self, other: Running<'a, E>, ended: &AttemptEnd<T>) {
        if ended.is_err() {
            // The call is over for another reason than a response.
            return;
        }
        let now = self.limiter.clock().now();
        let after = now.since(other.started);
        let key = self.key_of(&other);
        other.permit.overtaken(after);
        self.note(now, CallDecision::Overtaken { key, after });
    }

    /// Counts the result if it is that of a second attempt and a success.
    fn count_if_won<T>(&self, is_second: bool, running: &Running<'a, E>, ended: &AttemptEnd<T>) {
        let is_success = |result: &AttemptResult<Option<T>>| {
            result.outcome.is_some() && matches!(result.verdict, None | Some(Verdict::Success))
        };
        if is_second && ended.as_ref().is_ok_and(is_success) {
            let now = self.limiter.clock().now();
            self.limiter.count_hedge_won(&self.key_of(running), now);
        }
    }

    /// The key of the gate of an attempt.
    fn key_of(&self, running: &Running<'a, E>) -> Arc<str> {
        match &running.endpoint {
            Some(endpoint) => Arc::clone(endpoint.key()),
            None => self.ask.key.into(),
        }
    }
}

/// Whether the other attempt may still succeed after this result.
fn is_undecided<T>(result: &AttemptResult<T>) -> bool {
    result.outcome.is_some() && !ends_race(result.verdict)
}
