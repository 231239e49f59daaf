//! Waits for an endpoint: for its gate, for the end of a pause, or for a change.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use policy::pool::{Choice, EndpointId, Lease, Unusable};
use policy::time::Timestamp;

use super::{Endpoint, Pool, PoolPermit, PoolRefusal, PoolState, count_returned, gate_state};
use crate::ask::{Ask, Refusal};
use crate::limiter::{Limiter, Wait};
use crate::permit::Permit;
use crate::registry::GateLocation;
use crate::sync::lock;
use crate::waiters::Waiter;

/// What an ask has to wait for.
pub(super) struct WaitConditions<E> {
    /// Endpoints that only lack their gate's permit.
    usable: Vec<Arc<Endpoint<E>>>,
    /// The end of the earliest pause.
    pause_ends: Option<Timestamp>,
    /// The pool's change counter when this was read.
    changes: u64,
}

/// When an ask started to wait, and for what.
pub(crate) type Delay = (Timestamp, PoolRefusal);

/// Which endpoints an ask may get.
#[derive(Clone, Copy, Default)]
pub(crate) struct Selection<'s> {
    /// This one, if it is ready.
    pub(crate) first: Option<EndpointId>,
    /// Another than this one, if one is ready.
    pub(crate) avoid: Option<EndpointId>,
    /// None of these.
    pub(crate) excluded: &'s [EndpointId],
}

impl Selection<'_> {
    #[inline]
    fn allows(&self, id: EndpointId) -> bool {
        self.excluded.is_empty() || !self.excluded.contains(&id)
    }
}

/// How a wait ended.
enum WaitEnd<'a, E> {
    /// The gate of this endpoint admitted the ask.
    Admitted(Arc<Endpoint<E>>, Permit<'a>),
    /// All gates refused.
    Refused(Refusal),
    /// A pause ended or the pool changed: choose again.
    Changed,
    /// The deadline passed.
    Late,
}

impl<E> Pool<E> {
    /// A permit of an endpoint, at once or after waiting; `delayed` gets the first delay.
    pub(crate) async fn acquire_noting<'a>(
        &'a self,
        ask: Ask<'_>,
        selection: Selection<'_>,
        delayed: &mut Option<Delay>,
    ) -> Result<PoolPermit<'a, E>, PoolRefusal> {
        if let Some(first) = selection.first
            && let ChooseResult::Send(permit) = self.try_choose(&ask, |id| id == first)
        {
            return Ok(permit);
        }
        let is_other = |id| Some(id) != selection.avoid && selection.allows(id);
        if selection.avoid.is_some()
            && let ChooseResult::Send(permit) = self.try_choose(&ask, is_other)
        {
            return Ok(permit);
        }
        match self.try_choose(&ask, |id| selection.allows(id)) {
            ChooseResult::Send(permit) => Ok(permit),
            ChooseResult::NoEndpoint => Err(PoolRefusal::NoEndpoint),
            // Boxed, so that callers that need not wait have a small future.
            ChooseResult::Wait(waits) => Box::pin(self.wait(ask, selection, waits, delayed)).await,
        }
    }

    /// A permit for a second attempt, at an endpoint other than `first` if one is ready, if its gate
    /// allows it now and the retry budget of the first attempt's gate pays for it: that of a new
    /// endpoint has nothing yet.
    pub(crate) fn acquire_hedge(
        &self,
        ask: &Ask<'_>,
        (first, payer): (EndpointId, GateLocation),
        excluded: &[EndpointId],
    ) -> Option<PoolPermit<'_, E>> {
        let mut denied = excluded.to_vec();
        for endpoint in self.endpoints() {
            if !self.shared.limiter.allows_hedge(&endpoint.key) {
                denied.push(endpoint.id);
            }
        }
        let is_allowed = |id| !denied.contains(&id);
        let others = self.try_choose(ask, |id| id != first && is_allowed(id));
        let chosen = match others {
            ChooseResult::Send(permit) => permit,
            ChooseResult::Wait(_) | ChooseResult::NoEndpoint => {
                match self.try_choose(ask, is_allowed) {
                    ChooseResult::Send(permit) => permit,
                    ChooseResult::Wait(_) | ChooseResult::NoEndpoint => return None,
                }
            }
        };
        match self.shared.limiter.pay_for_hedge(payer) {
            true => Some(chosen),
            false => {
                chosen.give_back();
                None
            }
        }
    }

    pub(super) async fn wait<'a>(
        &'a self,
        ask: Ask<'_>,
        selection: Selection<'_>,
        mut waits: WaitConditions<E>,
        delayed: &mut Option<Delay>,
    ) -> Result<PoolPermit<'a, E>, PoolRefusal> {
        let deadline = self.deadline(&ask).ok_or(PoolRefusal::NoEndpoint)?;
        let ask = ask.until(deadline);
        let mut lines = Lines(Vec::new());
        let mut waiter = self.shared.waiters.waiter();
        loop {
            let until = waits.pause_ends;
            if waits.usable.is_empty() && until.is_some_and(|until| until > deadline) {
                return Err(PoolRefusal::Paused { until });
            }
            lines.update(&self.shared.limiter, &ask, &waits.usable);
            let end = self.wait_once(&mut lines, &waits, deadline, &mut waiter, delayed);
            match end.await {
                WaitEnd::Admitted(endpoint, permit) => {
                    if let Some(permit) = self.claim(&endpoint, permit) {
                        return Ok(permit);
                    }
                }
                WaitEnd::Refused(refusal) => return Err(PoolRefusal::Gate(refusal)),
                WaitEnd::Late => return Err(PoolRefusal::Paused { until }),
                WaitEnd::Changed => {}
            }
            waits = match self.try_choose(&ask, |id| selection.allows(id)) {
                ChooseResult::Send(permit) => return Ok(permit),
                ChooseResult::Wait(waits) => waits,
                ChooseResult::NoEndpoint => return Err(PoolRefusal::NoEndpoint),
            };
        }
    }

    /// The ask's deadline. Endpoints of a pool are interchangeable, so the settings of the first
    /// one's gate apply to all. `None` if there is no endpoint.
    fn deadline(&self, ask: &Ask<'_>) -> Option<Timestamp> {
        let state = lock(&self.shared.state);
        let first = state.pool.endpoints().first()?;
        let key = Arc::clone(&first.data().endpoint.key);
        drop(state);
        let now = self.shared.limiter.clock().now();
        Some(self.shared.limiter.deadline(&key, ask, now))
    }

    /// When another usable endpoint's gate would admit a request that failed at `failed`; `None` if
    /// there is none or the time is unknown.
    pub fn other_endpoint_ready_at(&self, failed: &Endpoint<E>) -> Option<Timestamp> {
        self.ready_at_other_than(failed.id, &[])
    }

    pub(crate) fn ready_at_other_than(
        &self,
        from: EndpointId,
        excluded: &[EndpointId],
    ) -> Option<Timestamp> {
        let now = self.shared.limiter.clock().now();
        let is_other = |id| id != from && !excluded.contains(&id);
        let others = lock(&self.shared.state).waits(now, is_other)?.usable;
        let opens = |endpoint: &Arc<Endpoint<E>>| {
            let peeked = self.shared.limiter.peek(Ask::new(&endpoint.key));
            peeked.map_or_else(|refusal| refusal.until(), |()| Some(now))
        };
        others.iter().filter_map(opens).min()
    }

    /// When an endpoint that is not excluded may be ready: now if that is unknown. `None` if all
    /// others are disabled.
    pub(crate) fn other_left(&self, excluded: &[EndpointId]) -> Option<Timestamp> {
        let now = self.shared.limiter.clock().now();
        let waits = lock(&self.shared.state).waits(now, |id| !excluded.contains(&id))?;
        let opens = |endpoint: &Arc<Endpoint<E>>| {
            let peeked = self.shared.limiter.peek(Ask::new(&endpoint.key));
            peeked.map_or_else(|refusal| refusal.until(), |()| Some(now))
        };
        let first = waits.usable.iter().filter_map(opens).min();
        Some(
            first
                .into_iter()
                .chain(waits.pause_ends)
                .min()
                .unwrap_or(now),
        )
    }

    /// Chooses an endpoint that is allowed and may send now, or returns what to wait for.
    #[inline(always)]
    pub(super) fn try_choose(
        &self,
        ask: &Ask<'_>,
        allows: impl Fn(EndpointId) -> bool,
    ) -> ChooseResult<'_, E> {
        // One time for all rounds: each marks a gate as not ready now, so there is an end.
        let now = self.shared.limiter.clock().now();
        loop {
            let mut state = lock(&self.shared.state);
            let PoolState {
                pool, protection, ..
            } = &mut *state;
            let choice = pool.choose(protection, now, |endpoint| match allows(endpoint.id()) {
                true => gate_state(endpoint),
                false => Timestamp::MAX.into(),
            });
            let lease = match choice {
                Choice::NoEndpoint => return ChooseResult::NoEndpoint,
                Choice::Wait { .. } => {
                    let waits = state.waits(now, &allows);
                    return waits.map_or(ChooseResult::NoEndpoint, ChooseResult::Wait);
                }
                Choice::Send(lease) => lease,
            };
            let chosen = pool.get(lease.endpoint()).expect("it was just chosen");
            let endpoint = Arc::clone(&chosen.data().endpoint);
            if endpoint.load.has_many_returned() {
                count_returned(pool, endpoint.id);
            }
            drop(state);
            let (key, location) = (&endpoint.key, &endpoint.location);
            let limiter = &self.shared.limiter;
            match limiter.acquire_or_until(key, location, ask, now) {
                Ok(permit) => {
                    return ChooseResult::Send(PoolPermit::new(self, endpoint, permit, lease));
                }
                Err(until) => self.refused(lease, until, now),
            }
        }
    }

    /// Returns a lease whose gate would not admit it before `until`, and remembers that.
    fn refused(&self, lease: Lease, until: Timestamp, now: Timestamp) {
        if let Some(member) = lock(&self.shared.state).pool.data_mut(lease.endpoint()) {
            member.not_before = until.clamp(now + MIN_NOT_READY, now + MAX_NOT_READY);
        }
        self.abandon(lease);
    }

    /// Turns a gate's permit into a pool permit, if its endpoint is still usable.
    fn claim<'a>(
        &'a self,
        endpoint: &Arc<Endpoint<E>>,
        permit: Permit<'a>,
    ) -> Option<PoolPermit<'a, E>> {
        let now = self.shared.limiter.clock().now();
        let mut state = lock(&self.shared.state);
        let PoolState {
            pool, protection, ..
        } = &mut *state;
        let choice = pool.choose(protection, now, |candidate| {
            if candidate.id() == endpoint.id {
                now
            } else {
                Timestamp::MAX
            }
        });
        drop(state);
        match choice {
            Choice::Send(lease) => {
                let endpoint = Arc::clone(endpoint);
                Some(PoolPermit::new(self, endpoint, permit, lease))
            }
            Choice::Wait { .. } | Choice::NoEndpoint => {
                permit.give_back();
                None
            }
        }
    }

    /// Waits for whichever condition comes first.
    async fn wait_once<'a>(
        &'a self,
        lines: &mut Lines<'a, E>,
        waits: &WaitConditions<E>,
        deadline: Timestamp,
        waiter: &mut Waiter<'_>,
        delayed: &mut Option<Delay>,
    ) -> WaitEnd<'a, E> {
        let clock = self.shared.limiter.clock();
        let pause_ends = waits.pause_ends.filter(|until| *until <= deadline);
        // Gates end the wait in their lines by themselves.
        let needs_timer = pause_ends.is_some() || waits.usable.is_empty();
        let timer = clock.sleep_until(pause_ends.unwrap_or(deadline));
        let mut timer = pin!(needs_timer.then_some(timer));
        poll_fn(|context| {
            waiter.set_waker(context.waker());
            if lock(&self.shared.state).changes != waits.changes {
                return Poll::Ready(WaitEnd::Changed);
            }
            match lines.poll(context) {
                Poll::Ready(Ok((endpoint, permit))) => {
                    return Poll::Ready(WaitEnd::Admitted(endpoint, permit));
                }
                // Otherwise the end of a pause may still help.
                Poll::Ready(Err(Some(refusal))) if pause_ends.is_none() => {
                    return Poll::Ready(WaitEnd::Refused(refusal));
                }
                Poll::Ready(Err(_)) | Poll::Pending => {}
            }
            let timer = timer.as_mut().as_pin_mut();
            if timer.is_some_and(|timer| timer.poll(context).is_ready()) {
                return Poll::Ready(match pause_ends {
                    Some(_) => WaitEnd::Changed,
                    None => WaitEnd::Late,
                });
            }
            delayed.get_or_insert_with(|| (clock.now(), lines.delay(waits.pause_ends)));
            Poll::Pending
        })
        .await
    }
}

/// The places of an ask in the lines of usable endpoints.
struct Lines<'a, E>(Vec<Place<'a, E>>);

struct Place<'a, E> {
    endpoint: Arc<Endpoint<E>>,
    wait: Wait<'a, Arc<str>>,
    refusal: Option<Refusal>,
}

impl<'a, E> Lines<'a, E> {
    /// Joins the lines of `usable` endpoints and leaves all others. Places in lines that it is in
    /// already are kept; gates that refused are asked again.
    fn update(&mut self, limiter: &'a Limiter, ask: &Ask<'_>, usable: &[Arc<Endpoint<E>>]) {
        let mut before = std::mem::take(&mut self.0);
        self.0.extend(usable.iter().map(|endpoint| {
            let known = before
                .iter()
                .position(|place| place.endpoint.id == endpoint.id && place.refusal.is_none());
            let wait = match known {
                Some(index) => before.swap_remove(index).wait,
                None => limiter.wait(Arc::clone(&endpoint.key), *ask),
            };
            Place {
                endpoint: Arc::clone(endpoint),
                wait,
                refusal: None,
            }
        }));
    }

    /// The first permit, or the refusal with the earliest retry time if all gates refused; `None`
    /// if there is no line.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<AdmittedAt<'a, E>, Option<Refusal>>> {
        for (index, place) in self.0.iter_mut().enumerate() {
            if place.refusal.is_some() {
                continue;
            }
            match Pin::new(&mut place.wait).poll(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(permit)) => {
                    let place = self.0.remove(index);
                    return Poll::Ready(Ok((place.endpoint, permit)));
                }
                Poll::Ready(Err(refusal)) => place.refusal = Some(refusal),
            }
        }
        if self.0.iter().any(|place| place.refusal.is_none()) {
            return Poll::Pending;
        }
        let refusals = self.0.iter().filter_map(|place| place.refusal);
        Poll::Ready(Err(
            refusals.min_by_key(|refusal| refusal.until().unwrap_or(Timestamp::MAX))
        ))
    }

    /// Why the ask has to wait: the earliest of everything it waits for.
    fn delay(&self, pause_ends: Option<Timestamp>) -> PoolRefusal {
        let gates = self.0.iter().filter_map(|place| {
            let waiting = place.wait.delayed();
            let waiting = waiting.map(|(at, reason, until)| Refusal::new(reason, until, at));
            place.refusal.or(waiting)
        });
        let pause = PoolRefusal::Paused { until: pause_ends };
        // If both ends are unknown, prefer the gate: a pause without an end may be none at all.
        let all = gates.map(PoolRefusal::Gate).chain([pause]);
        all.min_by_key(|refusal| refusal.until().unwrap_or(Timestamp::MAX))
            .unwrap_or(pause)
    }
}

/// A permit, and the endpoint whose gate issued it.
type AdmittedAt<'a, E> = (Arc<Endpoint<E>>, Permit<'a>);

/// The result of choosing an endpoint.
pub(super) enum ChooseResult<'a, E> {
    Send(PoolPermit<'a, E>),
    Wait(WaitConditions<E>),
    NoEndpoint,
}

impl<E> PoolState<E> {
    /// What to wait for; `None` if all endpoints that are allowed are disabled.
    fn waits(
        &self,
        now: Timestamp,
        allows: impl Fn(EndpointId) -> bool,
    ) -> Option<WaitConditions<E>> {
        let mut has_enabled = false;
        let mut waits = WaitConditions {
            usable: Vec::new(),
            pause_ends: None,
            changes: self.changes,
        };
        let allowed = self.pool.endpoints().iter();
        for endpoint in allowed.filter(|endpoint| allows(endpoint.id())) {
            has_enabled |= endpoint.ladder().is_enabled();
            match self.pool.unusable(&self.protection, endpoint.id(), now) {
                None => waits.usable.push(Arc::clone(&endpoint.data().endpoint)),
                Some(Unusable::Paused { until }) => {
                    let first = waits.pause_ends.map_or(until, |first| first.min(until));
                    waits.pause_ends = Some(first);
                }
                Some(Unusable::Disabled(_) | Unusable::Recovering) => {}
            }
        }
        has_enabled.then_some(waits)
    }
}

/// Later than now, so that choosing again in the same instant skips the endpoint.
const MIN_NOT_READY: Duration = Duration::from_nanos(1);

/// A gate may admit sooner than it said: a permit is given back, a body ends, a person releases it.
const MAX_NOT_READY: Duration = Duration::from_millis(10);
