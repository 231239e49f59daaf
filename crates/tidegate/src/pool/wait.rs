//! Waits for an endpoint: for its gate, for the end of a pause, or for a change.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use policy::pool::{self, Choice, EndpointId, Unusable};
use policy::time::Timestamp;

use super::{Endpoint, Pool, PoolPermit, PoolRefusal, PoolState};
use crate::ask::{Ask, Refusal};
use crate::permit::Permit;
use crate::sync::lock;

/// What an ask has to wait for.
struct WaitConditions<E> {
    /// Endpoints that only lack their gate's permit.
    usable: Vec<Arc<Endpoint<E>>>,
    /// The end of the earliest pause.
    pause_ends: Option<Timestamp>,
    /// The pool's change counter when this was read.
    changes: u64,
}

/// When an ask started to wait, and for what.
pub(crate) type Delay = (Timestamp, PoolRefusal);

/// How a wait ended.
enum WaitEnd<'a> {
    /// The gate of the usable endpoint with this index admitted the ask.
    Admitted(usize, Permit<'a>),
    /// All gates refused.
    Refused(Refusal),
    /// A pause ended or the pool changed: choose again.
    Changed,
    /// The deadline passed.
    Late,
}

impl<E> Pool<E> {
    /// A permit of an endpoint, at once or after waiting; `delayed` gets the first delay. Prefers
    /// an endpoint other than `failed_at` if one is ready.
    pub(crate) async fn acquire_noting<'a>(
        &'a self,
        ask: Ask<'_>,
        failed_at: Option<EndpointId>,
        delayed: &mut Option<Delay>,
    ) -> Result<PoolPermit<'a, E>, PoolRefusal> {
        if failed_at.is_some()
            && let ChooseResult::Send(permit) = self.try_choose(&ask, failed_at)
        {
            return Ok(permit);
        }
        match self.try_choose(&ask, None) {
            ChooseResult::Send(permit) => Ok(permit),
            ChooseResult::NoEndpoint => Err(PoolRefusal::NoEndpoint),
            // Boxed, so that callers that need not wait have a small future.
            ChooseResult::Wait(waits) => Box::pin(self.wait(ask, waits, delayed)).await,
        }
    }

    async fn wait<'a>(
        &'a self,
        ask: Ask<'_>,
        mut waits: WaitConditions<E>,
        delayed: &mut Option<Delay>,
    ) -> Result<PoolPermit<'a, E>, PoolRefusal> {
        let deadline = self.deadline(&ask).ok_or(PoolRefusal::NoEndpoint)?;
        loop {
            let until = waits.pause_ends;
            if waits.usable.is_empty() && until.is_some_and(|until| until > deadline) {
                return Err(PoolRefusal::Paused { until });
            }
            match self.wait_once(&ask, &waits, deadline, delayed).await {
                WaitEnd::Admitted(endpoint, permit) => {
                    if let Some(permit) = self.claim(&waits.usable[endpoint], permit) {
                        return Ok(permit);
                    }
                }
                WaitEnd::Refused(refusal) => return Err(PoolRefusal::Gate(refusal)),
                WaitEnd::Late => return Err(PoolRefusal::Paused { until }),
                WaitEnd::Changed => {}
            }
            waits = match self.try_choose(&ask, None) {
                ChooseResult::Send(permit) => return Ok(permit),
                ChooseResult::Wait(waits) => waits,
                ChooseResult::NoEndpoint => return Err(PoolRefusal::NoEndpoint),
            };
        }
    }

    /// The ask's deadline. Endpoints of a pool are interchangeable, so the settings of the first
    /// one's gate apply to all. `None` if there is no endpoint.
    fn deadline(&self, ask: &Ask<'_>) -> Option<Timestamp> {
        let state = lock(&self.state);
        let key = Arc::clone(&state.endpoints.values().next()?.key);
        drop(state);
        let limiter = &self.limiter;
        let now = limiter.clock().now();
        Some(limiter.with_settings(&key, |settings| ask.at_gate(settings, now).deadline))
    }

    /// When another usable endpoint's gate would admit a request that failed at `failed`; `None` if
    /// there is none or the time is unknown.
    pub fn other_endpoint_ready_at(&self, failed: &Endpoint<E>) -> Option<Timestamp> {
        self.ready_at_other_than(failed.id)
    }

    pub(crate) fn ready_at_other_than(&self, from: EndpointId) -> Option<Timestamp> {
        let now = self.limiter.clock().now();
        let others: Vec<Arc<Endpoint<E>>> = {
            let state = lock(&self.state);
            let is_usable =
                |id: EndpointId| state.pool.unusable(&state.protection, id, now).is_none();
            let all = state.endpoints.iter();
            let others = all.filter(|(id, _)| **id != from && is_usable(**id));
            others.map(|(_, endpoint)| Arc::clone(endpoint)).collect()
        };
        let opens = |endpoint: &Arc<Endpoint<E>>| {
            let peeked = self.limiter.peek(Ask::new(&endpoint.key));
            peeked.map_or_else(|refusal| refusal.until(), |()| Some(now))
        };
        others.iter().filter_map(opens).min()
    }

    /// Chooses an endpoint that may send now, or returns what to wait for.
    fn try_choose(&self, ask: &Ask<'_>, except: Option<EndpointId>) -> ChooseResult<'_, E> {
        loop {
            let now = self.limiter.clock().now();
            let mut state = lock(&self.state);
            let PoolState {
                pool,
                protection,
                endpoints,
                ..
            } = &mut *state;
            let gate_of = |endpoint: &pool::Endpoint| match endpoints.get(&endpoint.id()) {
                Some(known) if except != Some(endpoint.id()) => {
                    let ask = ask.alone_at(&known.key);
                    self.limiter.gate_state(&ask, now)
                }
                _ => Timestamp::MAX.into(),
            };
            let lease = match pool.choose(protection, now, gate_of) {
                Choice::NoEndpoint => return ChooseResult::NoEndpoint,
                Choice::Wait { .. } => return ChooseResult::Wait(state.waits(now)),
                Choice::Send(lease) => lease,
            };
            let endpoint = state.endpoints.get(&lease.endpoint()).cloned();
            drop(state);
            let permit = endpoint.and_then(|endpoint| {
                let permit = self.limiter.try_acquire_one(&endpoint.key, ask.cost);
                permit.ok().map(|permit| (endpoint, permit))
            });
            match permit {
                Some((endpoint, permit)) => {
                    return ChooseResult::Send(PoolPermit::new(self, endpoint, permit, lease));
                }
                // Another ask took the gate's permit first.
                None => self.abandon(lease),
            }
        }
    }

    /// Turns a gate's permit into a pool permit, if its endpoint is still usable.
    fn claim<'a>(
        &'a self,
        endpoint: &Arc<Endpoint<E>>,
        permit: Permit<'a>,
    ) -> Option<PoolPermit<'a, E>> {
        let now = self.limiter.clock().now();
        let mut state = lock(&self.state);
        let PoolState {
            pool, protection, ..
        } = &mut *state;
        let only = |candidate: &pool::Endpoint| {
            if candidate.id() == endpoint.id {
                now
            } else {
                Timestamp::MAX
            }
        };
        let choice = pool.choose(protection, now, only);
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

    /// The refusal for an ask that does not wait: the earliest of everything it could wait for.
    fn delay(&self, ask: &Ask<'_>, waits: &WaitConditions<E>) -> PoolRefusal {
        let gates = waits.usable.iter().filter_map(|endpoint| {
            let key = &endpoint.key;
            let also = &[];
            self.limiter.peek(Ask { key, also, ..*ask }).err()
        });
        let pause = PoolRefusal::Paused {
            until: waits.pause_ends,
        };
        // If both ends are unknown, prefer the gate: a pause without an end may be none at all.
        let all = gates.map(PoolRefusal::Gate).chain([pause]);
        all.min_by_key(|refusal| refusal.until().unwrap_or(Timestamp::MAX))
            .unwrap_or(pause)
    }

    /// Waits for whichever condition comes first.
    async fn wait_once<'a>(
        &'a self,
        ask: &Ask<'_>,
        waits: &WaitConditions<E>,
        deadline: Timestamp,
        delayed: &mut Option<Delay>,
    ) -> WaitEnd<'a> {
        let limiter = &self.limiter;
        // Computed before the ask joins the lines itself.
        let delay = (limiter.clock().now(), self.delay(ask, waits));
        let keys = waits.usable.iter().map(|endpoint| &*endpoint.key);
        let mut any = pin!(limiter.wait_for_any(keys, ask.until(deadline)));
        let pause_ends = waits.pause_ends.filter(|until| *until <= deadline);
        let mut sleep = pin!(limiter.clock().sleep_until(pause_ends.unwrap_or(deadline)));
        let mut asks = !waits.usable.is_empty();
        let mut waiter = self.waiters.waiter();
        poll_fn(|context| {
            waiter.set_waker(context.waker());
            if lock(&self.state).changes != waits.changes {
                return Poll::Ready(WaitEnd::Changed);
            }
            if asks && let Poll::Ready(answer) = any.as_mut().poll(context) {
                match answer {
                    Ok((endpoint, permit)) => {
                        return Poll::Ready(WaitEnd::Admitted(endpoint, permit));
                    }
                    Err(refusal) if pause_ends.is_none() => {
                        return Poll::Ready(WaitEnd::Refused(refusal));
                    }
                    // The end of a pause may still help.
                    Err(_) => asks = false,
                }
            }
            let ended = if pause_ends.is_some() {
                WaitEnd::Changed
            } else {
                WaitEnd::Late
            };
            let slept = sleep.as_mut().poll(context);
            if slept.is_pending() {
                delayed.get_or_insert(delay);
            }
            slept.map(|()| ended)
        })
        .await
    }
}

/// The result of choosing an endpoint.
enum ChooseResult<'a, E> {
    Send(PoolPermit<'a, E>),
    Wait(WaitConditions<E>),
    NoEndpoint,
}

impl<E> PoolState<E> {
    fn waits(&self, now: Timestamp) -> WaitConditions<E> {
        let mut waits = WaitConditions {
            usable: Vec::new(),
            pause_ends: None,
            changes: self.changes,
        };
        for (id, endpoint) in &self.endpoints {
            match self.pool.unusable(&self.protection, *id, now) {
                None => waits.usable.push(Arc::clone(endpoint)),
                Some(Unusable::Paused { until }) => {
                    let first = waits.pause_ends.map_or(until, |first| first.min(until));
                    waits.pause_ends = Some(first);
                }
                Some(Unusable::Disabled(_) | Unusable::Recovering) => {}
            }
        }
        waits
    }
}
