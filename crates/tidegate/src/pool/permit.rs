//! The right to make one attempt at an endpoint.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use policy::outcome::{Outcome, Verdict};
use policy::pool::Lease;
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::{BodyGuard, Endpoint, Pool};
use crate::call::Attempt;
use crate::permit::{InFlight, Permit};

/// The right to make one attempt at an endpoint of a pool: a permit of its gate and a lease of the
/// endpoint. Both are returned together.
///
/// A dropped permit counts as abandoned, like a [`Permit`].
#[must_use = "a dropped permit counts as abandoned, and its token as used"]
pub struct PoolPermit<'a, E> {
    pool: &'a Pool<E>,
    endpoint: Arc<Endpoint<E>>,
    /// Returned in place: moving it costs more than much of the work with it.
    permit: Permit<'a>,
    /// `None` once both are returned.
    lease: Option<Lease>,
    is_credential_rejected: bool,
}

impl<'a, E> PoolPermit<'a, E> {
    #[inline(always)]
    pub(super) fn new(
        pool: &'a Pool<E>,
        endpoint: Arc<Endpoint<E>>,
        permit: Permit<'a>,
        lease: Lease,
    ) -> Self {
        Self {
            pool,
            endpoint,
            permit,
            lease: Some(lease),
            is_credential_rejected: false,
        }
    }

    pub(crate) fn permit(&self) -> &Permit<'a> {
        &self.permit
    }

    /// The epoch of the endpoint's ladder in which it was issued.
    pub(crate) fn epoch(&self) -> u32 {
        self.lease.as_ref().map_or(0, Lease::epoch)
    }

    /// The response rejects the credential of the endpoint, and a refresh did not help or is not
    /// possible: in a pool of two or more, settling it pauses the endpoint, and disables it after
    /// too many errors in a row. Not needed for a 402, or a 403 whose text says so.
    pub fn credential_rejected(mut self) -> Self {
        self.is_credential_rejected = true;
        self
    }

    /// Starts the attempt, see [`Permit::attempt`].
    pub fn attempt(&self, number: u32) -> Attempt {
        self.permit().attempt(number)
    }

    /// Counts the attempt in its gate's retry budget, see [`Permit::count_attempt`].
    ///
    /// # Errors
    ///
    /// If the budget is used up.
    pub fn count_attempt(&self, is_retry: bool) -> Result<(), Option<Timestamp>> {
        self.permit().count_attempt(is_retry)
    }

    /// The endpoint of the attempt.
    pub fn endpoint(&self) -> &Arc<Endpoint<E>> {
        &self.endpoint
    }

    /// Reports the outcome, classified by its status and hint.
    #[inline]
    pub fn settle(self, outcome: &Outcome) -> Option<Verdict> {
        self.settle_as(outcome, outcome.classify().verdict, "")
    }

    /// Reports the outcome with the caller's verdict. `text` is the start of an error message; the
    /// endpoint's protection matches it, and it is shown as the last error. Returns the verdict as of
    /// [`Permit::settle_as`].
    #[inline]
    pub fn settle_as(
        mut self,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        text: &str,
    ) -> Option<Verdict> {
        let strategy = self.strategy(verdict);
        let decisive = self.permit.settle_in_place(outcome, verdict);
        self.settle_lease(outcome, verdict, strategy, text);
        decisive
    }

    /// Reports the outcome at the head of a response whose body has not ended, see
    /// [`Permit::settle_head`].
    pub fn settle_head(
        mut self,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        text: &str,
    ) -> InFlight {
        let load = BodyGuard::new(&self.endpoint.load);
        let strategy = self.strategy(verdict);
        let in_flight = self.permit.settle_head_in_place(outcome, verdict);
        let in_flight = in_flight.with_load(load);
        self.settle_lease(outcome, verdict, strategy, text);
        in_flight
    }

    #[inline]
    fn settle_lease(
        &mut self,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        strategy: Option<Strategy>,
        text: &str,
    ) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let is_rejected = self.is_credential_rejected;
        if is_rejected || !self.endpoint.load.count_success(verdict) {
            self.pool
                .settle(lease, outcome, verdict, strategy, text, is_rejected);
        }
    }

    /// Only a throttled response depends on whether the gate is probing for its limit.
    #[inline]
    fn strategy(&self, verdict: Option<Verdict>) -> Option<Strategy> {
        let is_throttled = verdict == Some(Verdict::Throttled);
        let limiter = &self.pool.shared.limiter;
        is_throttled.then(|| limiter.strategy_at(self.permit.location()))
    }

    /// Returns the permit of an attempt that was dropped after `elapsed`, because another one of the
    /// same request was answered first.
    pub(crate) fn overtaken(mut self, elapsed: Duration) {
        self.permit.overtaken(elapsed);
        self.abandon_lease();
    }

    /// Returns the permit unused.
    pub fn give_back(mut self) {
        self.permit.give_back_in_place();
        self.abandon_lease();
    }

    fn abandon_lease(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.pool.abandon(lease);
        }
    }
}

impl<E> Drop for PoolPermit<'_, E> {
    #[inline]
    fn drop(&mut self) {
        if self.lease.is_some() {
            // First the gate, as when it is settled.
            self.permit.abandon_in_place();
            self.abandon_lease();
        }
    }
}

impl<E> fmt::Debug for PoolPermit<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolPermit")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
