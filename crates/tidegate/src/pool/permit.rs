//! The right to make one attempt at an endpoint.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use policy::outcome::{Outcome, Verdict};
use policy::pool::Lease;
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::{Endpoint, Pool};
use crate::call::Attempt;
use crate::permit::{InFlight, LoadGuard, Permit};

/// The right to make one attempt at an endpoint of a pool: a permit of its gate and a lease of the
/// endpoint. Both are returned together.
///
/// A dropped permit counts as abandoned, like a [`Permit`].
#[must_use = "a dropped permit counts as abandoned, and its token as used"]
pub struct PoolPermit<'a, E> {
    pool: &'a Pool<E>,
    endpoint: Arc<Endpoint<E>>,
    /// `None` only while they are being returned.
    permit_and_lease: Option<(Permit<'a>, Lease)>,
    is_credential_rejected: bool,
}

impl<'a, E> PoolPermit<'a, E> {
    pub(super) fn new(
        pool: &'a Pool<E>,
        endpoint: Arc<Endpoint<E>>,
        permit: Permit<'a>,
        lease: Lease,
    ) -> Self {
        Self {
            pool,
            endpoint,
            permit_and_lease: Some((permit, lease)),
            is_credential_rejected: false,
        }
    }

    pub(crate) fn permit(&self) -> &Permit<'a> {
        let (permit, _) = self
            .permit_and_lease
            .as_ref()
            .expect("it has not been returned");
        permit
    }

    /// The epoch of the endpoint's ladder in which it was issued.
    pub(crate) fn epoch(&self) -> u32 {
        let lease = self.permit_and_lease.as_ref();
        lease.map_or(0, |(_, lease)| lease.epoch())
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
    pub fn settle(self, outcome: &Outcome) -> Option<Verdict> {
        self.settle_as(outcome, outcome.classify().verdict, "")
    }

    /// Reports the outcome with the caller's verdict. `text` is the start of an error message; the
    /// endpoint's protection matches it, and it is shown as the last error. Returns the verdict as of
    /// [`Permit::settle_as`].
    pub fn settle_as(
        mut self,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        text: &str,
    ) -> Option<Verdict> {
        let (permit, lease) = self.permit_and_lease.take()?;
        let strategy = self.strategy(&permit, verdict);
        let decisive = permit.settle_as(outcome, verdict);
        let rejected = self.is_credential_rejected;
        self.pool
            .settle(lease, outcome, verdict, strategy, text, rejected);
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
        let (permit, lease) = self
            .permit_and_lease
            .take()
            .expect("it has not been returned");
        let load = LoadGuard::new(&self.endpoint.bodies);
        let strategy = self.strategy(&permit, verdict);
        let in_flight = permit.settle_head(outcome, verdict).with_load(load);
        let rejected = self.is_credential_rejected;
        self.pool
            .settle(lease, outcome, verdict, strategy, text, rejected);
        in_flight
    }

    /// Only a throttled response depends on whether the gate is probing for its limit.
    fn strategy(&self, permit: &Permit<'_>, verdict: Option<Verdict>) -> Option<Strategy> {
        let is_throttled = verdict == Some(Verdict::Throttled);
        is_throttled.then(|| self.pool.shared.limiter.strategy_at(permit.location()))
    }

    /// Returns the permit of an attempt that was dropped after `elapsed`, because another one of the
    /// same request was answered first.
    pub(crate) fn overtaken(mut self, elapsed: Duration) {
        if let Some((permit, lease)) = self.permit_and_lease.take() {
            permit.overtaken(elapsed);
            self.pool.abandon(lease);
        }
    }

    /// Returns the permit unused.
    pub fn give_back(mut self) {
        if let Some((permit, lease)) = self.permit_and_lease.take() {
            permit.give_back();
            self.pool.abandon(lease);
        }
    }
}

impl<E> Drop for PoolPermit<'_, E> {
    fn drop(&mut self) {
        if let Some((permit, lease)) = self.permit_and_lease.take() {
            drop(permit);
            self.pool.abandon(lease);
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
