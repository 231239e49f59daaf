//! Waiting for a permit: the futures behind [`Limiter::acquire`](super::Limiter::acquire).
//!
//! All waiting happens in the lines of [`policy::line`]. The future holds a seat, is woken once
//! when the seat is filled, and collects the result. It has no timer of its own; the gate does.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

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
        // Most asks end here, without a wait.
        if self.is_quick() {
            let now = self.inner.clock.now();
            if let Some((mut shard, location)) = self.inner.registry.find(ask.key)
                && let Some(permit) = shard.acquire_at_once(location.slot, ask.cost, now)
            {
                drop(shard);
                return Ok(Permit::new(self, location, permit));
            }
        }
        let mut wait = self.wait(ask.key, ask);
        let decision = (&mut wait).await;
        *delayed = wait.delayed;
        decision
    }

    /// Waits until every gate of the ask grants a permit at the same time.
    ///
    /// It holds nothing while it waits in line: a permit of one gate held while waiting for another
    /// would take tokens and places in flight from asks that could use them. It waits for its turn at
    /// one gate after the other, the slowest last, and gives up each turn but the last. Then it asks
    /// the faster gates again, in front of their lines, so that asks for several gates do not starve.
    /// Until the next turn there it holds the permit of the slowest gate, which is a moment.
    async fn wait_for_all<'a>(
        &'a self,
        ask: Ask<'_>,
        delayed: &mut Option<Delay>,
    ) -> Result<Permit<'a>, Refusal> {
        let ask = self.with_deadline(ask);
        let asked_at = self.inner.clock.now();
        let keys = self.slowest_first(&ask)?;
        for key in keys[1..].iter().rev() {
            let now = self.inner.clock.now();
            if self.peek_one(key, &ask, now).is_err() {
                self.wait_for_one(key, &ask, delayed).await?.give_back();
            }
        }
        let mut asked = ask;
        loop {
            let first = self.wait_for_one(keys[0], &asked, delayed).await?;
            asked = ask.in_front();
            match self.join_others(first, &keys[1..], &asked, delayed).await {
                Ok(permit) => {
                    let now = self.inner.clock.now();
                    self.emit_admitted(&ask, now.since(asked_at), now);
                    return Ok(permit);
                }
                // It is held, open or full. Nothing is held until it admits.
                Err(key) => self.wait_for_one(key, &asked, delayed).await?.give_back(),
            }
        }
    }

    /// The keys of an ask by the rates of their gates; in the same order for all asks.
    fn slowest_first<'k>(&self, ask: &Ask<'k>) -> Result<Vec<&'k str>, Refusal> {
        let keys = ask.keys().map(|key| Ok((self.rate(key)?, key)));
        let mut keys: Vec<(f64, &str)> = keys.collect::<Result<_, Refusal>>()?;
        keys.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(other.1)));
        Ok(keys.into_iter().map(|(_, key)| key).collect())
    }

    /// Adds permits of further gates to the first, or gives all back and returns the gate whose turn
    /// is not soon.
    async fn join_others<'a, 'k>(
        &'a self,
        first: Permit<'a>,
        others: &[&'k str],
        ask: &Ask<'_>,
        delayed: &mut Option<Delay>,
    ) -> Result<Permit<'a>, &'k str> {
        let mut all = Unused(Some(first));
        for key in others {
            let now = self.inner.clock.now();
            let permit = match self.acquire_or_refusal(key, ask, now) {
                Ok(permit) => permit,
                Err(refusal) => {
                    let until = soon(&refusal, now).ok_or(*key)?;
                    let wait = self.wait_for_one(key, ask, delayed);
                    match self.inner.clock.bounded(Some(until), wait).await {
                        Some(Ok(permit)) => permit,
                        Some(Err(_)) | None => return Err(key),
                    }
                }
            };
            if let Some(all) = &mut all.0 {
                all.join(permit);
            }
        }
        Ok(all.0.take().expect("it has the first permit"))
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
        let decision = (&mut wait).await;
        *delayed = delayed.or(wait.delayed);
        decision
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

/// Until when to wait in front of the line of a gate that refused, while permits of other gates are
/// held; `None` if its turn is not soon.
fn soon(refusal: &Refusal, now: Timestamp) -> Option<Timestamp> {
    let is_brief = matches!(refusal.reason(), Reason::Rate | Reason::InFlight);
    let next = refusal.until().unwrap_or(now).since(now);
    // A few others may be in front as well.
    is_brief.then(|| now + MIN_HOLD.max(next.saturating_mul(4)))
}

const MIN_HOLD: Duration = Duration::from_secs(1);

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
                    let now = this.limiter.inner.clock.now();
                    return Poll::Ready(this.collected(location, asked, now));
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
            return Poll::Ready(self.collected(location, asked, now));
        };
        self.seat = Some((location, seat));
        self.delayed = Some((now, reason, until));
        limiter.emit_for(ask.key, now, |key| Event::Waiting { key, reason, until });
        Poll::Pending
    }

    fn collected(
        &self,
        location: GateLocation,
        asked: AskResult,
        now: Timestamp,
    ) -> Result<Permit<'a>, Refusal> {
        let limiter = self.limiter;
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
