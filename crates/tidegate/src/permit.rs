//! The right to make one attempt.

use std::fmt;
use std::time::Duration;

use policy::gate::{self, ResponseBody};
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;

use crate::call::Attempt;
use crate::limiter::Limiter;
use crate::pool::BodyGuard;
use crate::registry::GateLocation;

/// The right to make one attempt, issued by one gate or several.
///
/// Report the outcome with [`settle`](Self::settle); this is how gates learn. A dropped permit
/// counts as abandoned and is no longer in flight, also when the caller panics or its task is
/// cancelled.
///
/// It borrows its limiter, so acquiring one does not touch a reference count. To store it or move
/// it into a task, use [`into_owned`](Self::into_owned).
#[must_use = "a dropped permit counts as abandoned, and its token as used"]
pub struct Permit<'a> {
    limiter: LimiterRef<'a>,
    location: GateLocation,
    /// `None` only while it is being returned.
    permit: Option<gate::Permit>,
    /// Permits of the ask's other gates.
    others: Others,
}

/// Boxed, because few permits have others, and every permit is moved several times.
type Others = Option<Box<Vec<(GateLocation, gate::Permit)>>>;

/// The limiter of a permit.
#[derive(Clone)]
enum LimiterRef<'a> {
    Borrowed(&'a Limiter),
    Owned(Limiter),
}

impl LimiterRef<'_> {
    #[inline(always)]
    fn get(&self) -> &Limiter {
        match self {
            Self::Borrowed(limiter) => limiter,
            Self::Owned(limiter) => limiter,
        }
    }
}

impl<'a> Permit<'a> {
    #[inline(always)]
    pub(crate) fn new(limiter: &'a Limiter, location: GateLocation, permit: gate::Permit) -> Self {
        Self {
            limiter: LimiterRef::Borrowed(limiter),
            location,
            permit: Some(permit),
            others: None,
        }
    }

    /// Adds the permit of another gate.
    pub(crate) fn join(&mut self, mut other: Self) {
        let others = self.others.get_or_insert_default();
        if let Some(permit) = other.permit.take() {
            others.push((other.location, permit));
        }
        others.extend(other.others.take().into_iter().flat_map(|others| *others));
    }

    /// Reports the outcome, classified by its status and hint. Returns the verdict as of
    /// [`settle_as`](Self::settle_as), or `None` for a 1xx, which changes nothing.
    #[inline(always)]
    pub fn settle(self, outcome: &Outcome) -> Option<Verdict> {
        self.settle_as(outcome, outcome.classify().verdict)
    }

    /// Reports the outcome with the caller's verdict, for example one from the body. Returns the
    /// verdict that decides whether to send again: the given one, but
    /// [`Throttled`](Verdict::Throttled) for a 403 that its gate takes for a ban.
    #[inline(always)]
    pub fn settle_as(mut self, outcome: &Outcome, verdict: Option<Verdict>) -> Option<Verdict> {
        // The lines of `settle_in_place`: a call of it is not inlined as far, and costs a tenth more.
        let mut decisive = verdict;
        self.return_with(|limiter, location, permit| {
            let settled = limiter.settle(location, permit, outcome, verdict);
            if settled != verdict {
                decisive = settled;
            }
        });
        // Already empty: checking that again in `drop` is a measurable part of the cost of
        // settling.
        if let LimiterRef::Borrowed(_) = self.limiter {
            std::mem::forget(self);
        }
        decisive
    }

    /// [`settle_as`](Self::settle_as) for owners that would have to move it first. Nothing is left
    /// to return.
    #[inline(always)]
    pub(crate) fn settle_in_place(
        &mut self,
        outcome: &Outcome,
        verdict: Option<Verdict>,
    ) -> Option<Verdict> {
        let mut decisive = verdict;
        self.return_with(|limiter, location, permit| {
            let settled = limiter.settle(location, permit, outcome, verdict);
            if settled != verdict {
                decisive = settled;
            }
        });
        decisive
    }

    /// Reports the outcome at the head of a response whose body has not been read yet. The gate
    /// learns from it now, and the attempt counts against `max_in_flight` until the returned guard
    /// is dropped. Store the guard with the body.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::{Limiter, Outcome};
    /// let limiter = Limiter::new();
    /// let permit = limiter.try_acquire("api.example.com")?;
    /// let outcome = Outcome::status(200, Duration::from_millis(80));
    /// let in_flight = permit.settle_head(&outcome, outcome.classify().verdict);
    /// // … read the body …
    /// assert_eq!(limiter.gate("api.example.com").unwrap().gate.in_flight, 1);
    /// drop(in_flight);
    /// assert_eq!(limiter.gate("api.example.com").unwrap().gate.in_flight, 0);
    /// # Ok::<(), tidegate::Refusal>(())
    /// ```
    pub fn settle_head(mut self, outcome: &Outcome, verdict: Option<Verdict>) -> InFlight {
        self.settle_head_in_place(outcome, verdict)
    }

    /// [`settle_head`](Self::settle_head) for owners that would have to move it first.
    pub(crate) fn settle_head_in_place(
        &mut self,
        outcome: &Outcome,
        verdict: Option<Verdict>,
    ) -> InFlight {
        let mut first = InFlight::new(self.limiter.get(), self.location);
        if let Some(permit) = self.permit.take() {
            first.settle(permit, outcome, verdict);
        }
        while let Some((location, permit)) = self.others.as_mut().and_then(|others| others.pop()) {
            let mut next = InFlight::new(self.limiter.get(), location);
            next.settle(permit, outcome, verdict);
            next.other = first.other.take();
            first.other = Some(Box::new(next));
        }
        first
    }

    /// Returns the permit of an attempt that was dropped after `elapsed`, because another one of the
    /// same request was answered first.
    pub(crate) fn overtaken(&mut self, elapsed: Duration) {
        self.return_with(|limiter, location, permit| limiter.overtake(location, permit, elapsed));
    }

    /// Returns the permit unused: nothing was sent, so its tokens go to other asks.
    pub fn give_back(mut self) {
        self.give_back_in_place();
    }

    /// [`give_back`](Self::give_back) for owners that would have to move it first.
    pub(crate) fn give_back_in_place(&mut self) {
        self.return_with(Limiter::give_back);
    }

    /// Returns the permit of an attempt with an unknown outcome, as dropping it does.
    #[inline(always)]
    pub(crate) fn abandon_in_place(&mut self) {
        let _others = self.split_off_others();
        self.return_with(Limiter::abandon);
    }

    /// Calls `settle` for every gate's permit. If it panics (it calls a listener), the rest is
    /// settled when `self` is dropped.
    #[inline(always)]
    fn return_with(&mut self, mut settle: impl FnMut(&Limiter, GateLocation, gate::Permit)) {
        if let Some(permit) = self.permit.take() {
            settle(self.limiter.get(), self.location, permit);
        }
        if self.others.is_some() {
            self.return_others(settle);
        }
    }

    #[cold]
    fn return_others(&mut self, mut settle: impl FnMut(&Limiter, GateLocation, gate::Permit)) {
        while let Some((location, permit)) = self.others.as_mut().and_then(|others| others.pop()) {
            settle(self.limiter.get(), location, permit);
        }
        self.others = None;
    }

    /// The other gates' permits as a separate permit, which is dropped even if settling this one
    /// panics.
    #[inline(always)]
    fn split_off_others(&mut self) -> Option<Self> {
        let mut others = self.others.take()?;
        let (location, permit) = others.pop()?;
        Some(Self {
            limiter: self.limiter.clone(),
            location,
            permit: Some(permit),
            others: Some(others),
        })
    }

    /// Converts it into a permit that owns its limiter.
    pub fn into_owned(mut self) -> Permit<'static> {
        Permit {
            limiter: LimiterRef::Owned(self.limiter.get().clone()),
            location: self.location,
            permit: self.permit.take(),
            others: self.others.take(),
        }
    }

    /// The location of the gate of the ask's first key.
    pub(crate) fn location(&self) -> GateLocation {
        self.location
    }

    /// Starts the attempt, with its number counted from 1. For callers that drive an item
    /// themselves instead of using [`Limiter::call`].
    pub fn attempt(&self, number: u32) -> Attempt {
        Attempt::start(number, self.limiter.get().clock())
    }

    /// Counts the attempt in its gate's retry budget: a first attempt adds to it, a retry takes
    /// from it. The error says when a retry is possible, or `None` if never.
    ///
    /// # Errors
    ///
    /// If the budget is used up. Nothing was counted, and the permit should be given back.
    pub fn count_attempt(&self, is_retry: bool) -> Result<(), Option<Timestamp>> {
        let limiter = self.limiter.get();
        let now = limiter.clock().now();
        if is_retry {
            return limiter.withdraw(self.location, now);
        }
        limiter.deposit(self.location, now);
        Ok(())
    }

    /// When the permit was issued, on the limiter's clock.
    pub fn admitted_at(&self) -> Timestamp {
        let permit = self.permit.as_ref();
        permit.map_or(Timestamp::ZERO, gate::Permit::admitted_at)
    }

    /// Whether the attempt probes if the upstream has recovered.
    pub fn is_probe(&self) -> bool {
        self.permit.as_ref().is_some_and(gate::Permit::is_probe)
    }
}

/// An attempt whose response body has not ended: it counts against `max_in_flight` until this is
/// dropped. Created by [`Permit::settle_head`].
#[must_use = "dropping it ends the attempt, even if its body is still being read"]
pub struct InFlight {
    limiter: Limiter,
    location: GateLocation,
    body: Option<ResponseBody>,
    /// The same for another gate of the ask, which may have another.
    other: Option<Box<Self>>,
    /// Counts it as load of its pool's endpoint, if it has one.
    load: Option<BodyGuard>,
}

impl InFlight {
    fn new(limiter: &Limiter, location: GateLocation) -> Self {
        Self {
            limiter: limiter.clone(),
            location,
            body: None,
            other: None,
            load: None,
        }
    }

    /// The verdict that decides whether to send again, see [`Permit::settle_as`].
    pub fn verdict(&self) -> Option<Verdict> {
        let own = self.body.as_ref().and_then(ResponseBody::verdict);
        match self.other.as_ref().and_then(|other| other.verdict()) {
            Some(Verdict::Throttled) => Some(Verdict::Throttled),
            _ => own,
        }
    }

    /// Corrects the cost of the ask to the actual one, if only the body gives it, such as the tokens of
    /// a language model. If the head gives it, set [`Outcome::used`] instead.
    pub fn correct_cost(&self, used: u32) {
        if let Some(body) = &self.body {
            self.limiter.correct_cost(self.location, body, used);
        }
        if let Some(other) = &self.other {
            other.correct_cost(used);
        }
    }

    /// Counts it as load of an endpoint as well.
    pub(crate) fn with_load(mut self, load: BodyGuard) -> Self {
        self.load = Some(load);
        self
    }

    fn settle(&mut self, permit: gate::Permit, outcome: &Outcome, verdict: Option<Verdict>) {
        let body = &mut self.body;
        self.limiter
            .settle_head(self.location, permit, outcome, verdict, body);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.limiter.finish(self.location, body);
        }
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").finish_non_exhaustive()
    }
}

impl Drop for Permit<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let _others = self.split_off_others();
        self.return_with(Limiter::abandon);
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("admitted_at", &self.admitted_at())
            .field("is_probe", &self.is_probe())
            .finish_non_exhaustive()
    }
}
