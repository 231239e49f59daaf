//! The right to make one attempt.

use std::fmt;

use policy::gate::{self, ResponseBody};
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;

use crate::call::Attempt;
use crate::limiter::Limiter;
use crate::registry::GateLocation;

/// The right to make one attempt, of one gate or of several.
///
/// Report the outcome with [`settle`](Self::settle): that is how gates learn. A permit that is
/// dropped counts as abandoned and is no longer in flight, also when the caller panics or its task is
/// cancelled.
///
/// It borrows its limiter, so that acquiring costs no reference count. To store it or to move it
/// into a task, use [`into_owned`](Self::into_owned).
#[must_use = "a permit that is dropped counts as abandoned, and its token as used"]
pub struct Permit<'a> {
    limiter: LimiterRef<'a>,
    location: GateLocation,
    /// `None` only while it is being returned.
    permit: Option<gate::Permit>,
    /// Permits of further gates that the same ask was for.
    others: Others,
}

/// Boxed, because hardly any permit has others and every permit is moved about.
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

    /// Adds the permit of a further gate.
    pub(crate) fn join(&mut self, mut other: Self) {
        let others = self.others.get_or_insert_default();
        if let Some(permit) = other.permit.take() {
            others.push((other.location, permit));
        }
        others.extend(other.others.take().into_iter().flat_map(|others| *others));
    }

    /// Reports the outcome of the attempt, classified by its status and hint. Returns the verdict; `None` for a 1xx, which changes nothing.
    #[inline(always)]
    pub fn settle(self, outcome: &Outcome) -> Option<Verdict> {
        let verdict = outcome.judge().verdict;
        self.settle_as(outcome, verdict);
        verdict
    }

    /// Reports the outcome of the attempt with a verdict of the caller, such as one from the body.
    #[inline(always)]
    pub fn settle_as(mut self, outcome: &Outcome, verdict: Option<Verdict>) {
        self.return_with(|limiter, location, permit| {
            limiter.settle(location, permit, outcome, verdict)
        });
        // Empty now: checking that again in `drop` would cost a part of the settle.
        if let LimiterRef::Borrowed(_) = self.limiter {
            std::mem::forget(self);
        }
    }

    /// Reports the outcome at the head of a response whose body is still to come. The gate learns
    /// from it now, and the attempt counts against `max_in_flight` until the returned guard is
    /// dropped: store it with the body.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::{Limiter, Outcome};
    /// let limiter = Limiter::new();
    /// let permit = limiter.try_acquire("api.example.com")?;
    /// let outcome = Outcome::status(200, Duration::from_millis(80));
    /// let in_flight = permit.settle_head(&outcome, outcome.judge().verdict);
    /// // … read the body …
    /// assert_eq!(limiter.gate("api.example.com").unwrap().gate.in_flight, 1);
    /// drop(in_flight);
    /// assert_eq!(limiter.gate("api.example.com").unwrap().gate.in_flight, 0);
    /// # Ok::<(), tidegate::Refusal>(())
    /// ```
    pub fn settle_head(mut self, outcome: &Outcome, verdict: Option<Verdict>) -> InFlight {
        let mut first = InFlight::new(self.limiter.get(), self.location);
        if let Some(permit) = self.permit.take() {
            first.settle(permit, outcome, verdict);
        }
        while let Some((location, permit)) = self.others.as_mut().and_then(|others| others.pop()) {
            let mut next = InFlight::new(self.limiter.get(), location);
            next.settle(permit, outcome, verdict);
            first.others.push(next);
        }
        first
    }

    /// Returns it unused: nothing was sent, so other asks can use the tokens.
    pub fn give_back(mut self) {
        self.return_with(Limiter::give_back);
    }

    /// Calls `settle` for every permit in it. If that panics, because it calls a listener, the rest
    /// is settled when `self` is dropped.
    #[inline(always)]
    fn return_with(&mut self, settle: impl Fn(&Limiter, GateLocation, gate::Permit)) {
        if let Some(permit) = self.permit.take() {
            settle(self.limiter.get(), self.location, permit);
        }
        if self.others.is_some() {
            self.return_others(settle);
        }
    }

    #[cold]
    fn return_others(&mut self, settle: impl Fn(&Limiter, GateLocation, gate::Permit)) {
        while let Some((location, permit)) = self.others.as_mut().and_then(|others| others.pop()) {
            settle(self.limiter.get(), location, permit);
        }
        self.others = None;
    }

    /// The others as a permit of their own, which is dropped even if settling this one panics.
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

    /// The same permit without the borrow.
    pub fn into_owned(mut self) -> Permit<'static> {
        Permit {
            limiter: LimiterRef::Owned(self.limiter.get().clone()),
            location: self.location,
            permit: self.permit.take(),
            others: self.others.take(),
        }
    }

    /// The location of the gate of its ask's first key.
    pub(crate) fn location(&self) -> GateLocation {
        self.location
    }

    /// The attempt that is made under it, its number counted from 1: for callers that drive an item
    /// themselves instead of using [`Limiter::call`].
    pub fn attempt(&self, number: u32) -> Attempt {
        Attempt::start(number, self.limiter.get().clock())
    }

    /// Counts its attempt in the retry budget of its gate: a first attempt adds to it, a retry takes
    /// from it. The error says when a retry is possible; `None`: never.
    ///
    /// # Errors
    ///
    /// If the budget is used up. Then nothing was counted, and the permit should be given back.
    pub fn count_attempt(&self, is_retry: bool) -> Result<(), Option<Timestamp>> {
        let limiter = self.limiter.get();
        let now = limiter.clock().now();
        if is_retry {
            return limiter.withdraw(self.location, now);
        }
        limiter.deposit(self.location, now);
        Ok(())
    }

    /// When it was given out, on the limiter's clock.
    pub fn admitted_at(&self) -> Timestamp {
        let permit = self.permit.as_ref();
        permit.map_or(Timestamp::ZERO, gate::Permit::admitted_at)
    }

    /// Is this attempt one of the few that find out whether the upstream works again?
    pub fn is_probe(&self) -> bool {
        self.permit.as_ref().is_some_and(gate::Permit::is_probe)
    }
}

/// An attempt whose response's body is still to come: it counts against `max_in_flight` until this
/// is dropped. Made by [`Permit::settle_head`].
#[must_use = "dropped, it says that the body has ended"]
pub struct InFlight {
    limiter: Limiter,
    location: GateLocation,
    body: Option<ResponseBody>,
    /// Those of further gates that the same ask was for.
    others: Vec<Self>,
}

impl InFlight {
    fn new(limiter: &Limiter, location: GateLocation) -> Self {
        Self {
            limiter: limiter.clone(),
            location,
            body: None,
            others: Vec::new(),
        }
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
