//! Waiting for a permit: the futures behind [`Limiter::acquire`](super::Limiter::acquire).
//!
//! All waiting happens in the lines of [`policy::line`]. The future holds a seat, is woken once
//! when the seat is filled, and collects the result. It has no timer of its own; the gate does.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use policy::gate::Reason;
use policy::time::Timestamp;

use super::Limiter;
use crate::ask::{Ask, Refusal};
use crate::event::Event;
use crate::permit::Permit;
use crate::registry::{AskResult, GateLocation, SeatId, SeatTaken};

impl Limiter {
    /// Waits at one gate.
    pub(crate) fn wait<K: Deref<Target = str>>(&self, key: K, ask: Ask<'_>) -> Wait<'_, K> {
        Wait {
            limiter: self,
            key,
            ask: ask.without_keys(),
            asked_at: None,
            delayed: None,
            seat: None,
            is_alone: true,
        }
    }

    /// Waits at every gate of the ask, and stores the first delay in `delayed`.
    pub(crate) async fn acquire_noting<'a>(
        &'a self,
        ask: Ask<'_>,
        delayed: &mut Option<Delay>,
    ) -> Result<Permit<'a>, Refusal> {
        if !ask.also.is_empty() {
            // Boxed, because it is rare and would enlarge every other future.
            return Box::pin(self.wait_for_all(ask, delayed)).await;
        }
        let mut wait = self.wait(ask.key, ask);
        let answer = (&mut wait).await;
        *delayed = wait.delayed;
        answer
    }

    /// Waits until every gate of the ask grants a permit at the same time.
    ///
    /// At first it holds nothing while waiting: a permit of one gate held while waiting for another
    /// would take tokens from asks that could use them. It waits at one gate at a time, the one
    /// that delays it. Once admitted there, it takes permits from all others at once, or gives
    /// everything back and waits at the next gate that refuses.
    ///
    /// If many asks wait for several gates, this alone could starve them all: each gets a token of
    /// one gate while another has the token of the other, and both give them back. After [`TURNS`]
    /// delays an ask therefore holds its permits while it waits.
    async fn wait_for_all<'a>(
        &'a self,
        ask: Ask<'_>,
        delayed: &mut Option<Delay>,
    ) -> Result<Permit<'a>, Refusal> {
        let ask = self.with_deadline(ask);
        let asked_at = self.inner.clock.now();
        let mut keeper = ask.key;
        for _ in 0..TURNS {
            let mut permit = self.wait_for_one(keeper, &ask, delayed).await?;
            let now = self.inner.clock.now();
            let others = ask.keys().filter(|key| *key != keeper);
            match self.take_all(others, ask.cost, now) {
                Ok(others) => {
                    if let Some(others) = others {
                        permit.join(others);
                    }
                    self.emit_admitted(&ask, now.since(asked_at), now);
                    return Ok(permit);
                }
                Err((key, _)) => {
                    permit.give_back();
                    keeper = key;
                }
            }
        }
        let permit = self.wait_in_order(&ask, delayed).await?;
        let now = self.inner.clock.now();
        self.emit_admitted(&ask, now.since(asked_at), now);
        Ok(permit)
    }

    /// Waits at one gate after another while holding permits. The gates are taken in key order, the
    /// same for all asks, so there is no deadlock.
    async fn wait_in_order<'a>(
        &'a self,
        ask: &Ask<'_>,
        delayed: &mut Option<Delay>,
    ) -> Result<Permit<'a>, Refusal> {
        let mut keys: Vec<&str> = ask.keys().collect();
        keys.sort_unstable();
        let mut all = Unused(None);
        for key in keys {
            let permit = self.wait_for_one(key, ask, delayed).await?;
            all.0 = Some(match all.0.take() {
                Some(mut first) => {
                    first.join(permit);
                    first
                }
                None => permit,
            });
        }
        Ok(all.0.take().expect("an ask has at least one key"))
    }

    /// Waits at one gate of several. The event is emitted once all gates have admitted the ask.
    async fn wait_for_one<'a>(
        &'a self,
        key: &str,
        ask: &Ask<'_>,
        delayed: &mut Option<Delay>,
    ) -> Result<Permit<'a>, Refusal> {
        let mut wait = self.wait(key, *ask);
        wait.is_alone = false;
        let answer = (&mut wait).await;
        *delayed = delayed.or(wait.delayed);
        answer
    }

    /// Waits at several gates at once for the first that admits the ask.
    pub(super) fn wait_for_any<'a, 'k>(
        &'a self,
        keys: impl Iterator<Item = &'k str>,
        ask: Ask<'_>,
    ) -> WaitAny<'a, 'k> {
        let waits = keys.map(|key| Some(self.wait(key, ask)));
        WaitAny {
            waits: waits.collect(),
            refusal: None,
            limiter: self,
        }
    }

    /// The ask with one fixed deadline, for waiting at more than one gate.
    fn with_deadline<'k>(&self, ask: Ask<'k>) -> Ask<'k> {
        let now = self.inner.clock.now();
        ask.until(self.deadline(ask.key, &ask, now))
    }
}

/// A wait: its start, its reason, and its end as estimated at the start.
pub(crate) type Delay = (Timestamp, Reason, Option<Timestamp>);

/// Two for each gate of an ask for two gates: enough unless other asks wait for both.
const TURNS: usize = 4;

/// A permit not used yet. Dropping it gives it back with its tokens.
struct Unused<'a>(Option<Permit<'a>>);

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.give_back();
        }
    }
}

/// Waits for a permit of the gate of a key, which it borrows or owns.
pub(crate) struct Wait<'a, K> {
    limiter: &'a Limiter,
    key: K,
    /// The ask, without its keys.
    ask: Ask<'static>,
    /// When it was first polled.
    asked_at: Option<Timestamp>,
    /// The delay when it last joined a line.
    delayed: Option<Delay>,
    seat: Option<(GateLocation, SeatId)>,
    /// Its permit is the whole ask, so it emits the event.
    is_alone: bool,
}

impl<'a, K: Deref<Target = str> + Unpin> Future for Wait<'a, K> {
    type Output = Result<Permit<'a>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some((location, seat)) = this.seat {
            // Declared before the lock guard, so that the waker is dropped after unlocking.
            let mut unneeded = None;
            let mut shard = this.limiter.inner.registry.lock(location.shard);
            match shard.collect(seat, context.waker(), &mut unneeded) {
                Ok(None) => return Poll::Pending,
                Ok(Some(asked)) => {
                    drop(shard);
                    this.seat = None;
                    return Poll::Ready(this.collected(location, asked));
                }
                // It did not collect its permit in time, so it asks again.
                Err(SeatTaken) => this.seat = None,
            }
        }
        this.ask(context)
    }
}

impl<'a, K: Deref<Target = str>> Wait<'a, K> {
    /// The delay when it last joined a line; `None` if it did not have to.
    pub(crate) fn delayed(&self) -> Option<Delay> {
        self.delayed
    }

    fn ask(&mut self, context: &Context<'_>) -> Poll<Result<Permit<'a>, Refusal>> {
        let limiter = self.limiter;
        let now = limiter.inner.clock.now();
        let ask = self.ask.alone_at(&self.key);
        let is_new = self.asked_at.is_none();
        let asked_at = *self.asked_at.get_or_insert(now);
        let (mut shard, location) = match limiter.gate_of(ask.key, now) {
            Ok(found) => found,
            Err(refusal) => {
                limiter.emit_refused(ask.key, &refusal, now);
                return Poll::Ready(Err(refusal));
            }
        };
        if is_new {
            shard.counts.requests += 1;
        }
        let asked = limiter.at_gate(shard, location, now, |shard, now| {
            shard.acquire(location.slot, &ask, asked_at, context.waker(), now)
        });
        let AskResult::Waiting {
            seat,
            until,
            reason,
        } = asked
        else {
            return Poll::Ready(self.collected(location, asked));
        };
        self.seat = Some((location, seat));
        self.delayed = Some((now, reason, until));
        limiter.emit_for(ask.key, now, |key| Event::Waiting { key, reason, until });
        Poll::Pending
    }

    fn collected(&self, location: GateLocation, asked: AskResult) -> Result<Permit<'a>, Refusal> {
        let limiter = self.limiter;
        let now = limiter.inner.clock.now();
        let waited = now.since(self.asked_at.unwrap_or(now));
        match asked {
            AskResult::Admitted(permit) => {
                // Built first, so that it is given back if the listener panics.
                let permit = Permit::new(limiter, location, permit);
                limiter.count_wait(location, waited);
                if self.is_alone {
                    limiter.emit_for(&self.key, now, |key| Event::Admitted {
                        key,
                        waited,
                        is_probe: permit.is_probe(),
                    });
                }
                Ok(permit)
            }
            AskResult::Refused(refusal) => {
                limiter.emit_refused(&self.key, &refusal, now);
                Err(refusal)
            }
            AskResult::Waiting { reason, until, .. } => Err(Refusal::new(reason, until, now)),
        }
    }
}

impl<K> Drop for Wait<'_, K> {
    /// Leaves the line, or returns the permit that was not collected.
    fn drop(&mut self) {
        let Some((location, seat)) = self.seat.take() else {
            return;
        };
        let now = self.limiter.inner.clock.now();
        // Declared before the lock guard, so that the waker is dropped after unlocking.
        let mut unneeded = None;
        let shard = self.limiter.inner.registry.lock(location.shard);
        self.limiter.at_gate(shard, location, now, |shard, now| {
            shard.cancel(seat, &mut unneeded, now);
        });
    }
}

/// Waits for a permit from any of several gates.
pub(super) struct WaitAny<'a, 'k> {
    /// One per key; `None` after a refusal.
    waits: Vec<Option<Wait<'a, &'k str>>>,
    /// The refusal with the earliest retry time so far.
    refusal: Option<Refusal>,
    limiter: &'a Limiter,
}

impl<'a> Future for WaitAny<'a, '_> {
    type Output = Result<(usize, Permit<'a>), Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let until = |refusal: &Refusal| refusal.until().unwrap_or(Timestamp::MAX);
        for (index, slot) in this.waits.iter_mut().enumerate() {
            let Some(wait) = slot else { continue };
            match Pin::new(wait).poll(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(permit)) => {
                    // Leaves the other lines and returns their uncollected permits.
                    this.waits.clear();
                    return Poll::Ready(Ok((index, permit)));
                }
                Poll::Ready(Err(refusal)) => {
                    *slot = None;
                    let is_first = this
                        .refusal
                        .is_none_or(|first| until(&refusal) < until(&first));
                    if is_first {
                        this.refusal = Some(refusal);
                    }
                }
            }
        }
        if this.waits.iter().any(Option::is_some) {
            return Poll::Pending;
        }
        let no_gate = || Refusal::new(Reason::Deadline, None, this.limiter.inner.clock.now());
        Poll::Ready(Err(this.refusal.unwrap_or_else(no_gate)))
    }
}
