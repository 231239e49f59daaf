//! The right to make one attempt.

use std::fmt;

use policy::gate::{self, ResponseBody};
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;

use crate::call::Attempt;
use crate::limiter::Limiter;
use crate::registry::Place;

/// The right to make one attempt, of one gate or of several.
///
/// Bring it back with what happened, by [`settle`](Self::settle): that is how gates learn. One that
/// is dropped counts as abandoned: its place in flight is free again at once, whatever became of
/// the attempt, also when the caller panics or its task is cancelled.
///
/// It borrows its limiter, so that taking one costs no reference count. To keep it for longer, or
/// to move it into a task, make it [`into_owned`](Self::into_owned).
#[must_use = "a permit that is dropped counts as abandoned, and its token as used"]
pub struct Permit<'a> {
    home: Home<'a>,
    place: Place,
    /// `None` only while it is being brought back.
    permit: Option<gate::Permit>,
    /// Permits of further gates that the same ask was for.
    others: Others,
}

/// Boxed, because hardly any permit has others and every permit is moved about.
type Others = Option<Box<Vec<(Place, gate::Permit)>>>;

/// Where a permit belongs.
#[derive(Clone)]
enum Home<'a> {
    Borrowed(&'a Limiter),
    Owned(Limiter),
}

impl Home<'_> {
    #[inline(always)]
    fn limiter(&self) -> &Limiter {
        match self {
            Self::Borrowed(limiter) => limiter,
            Self::Owned(limiter) => limiter,
        }
    }
}

impl<'a> Permit<'a> {
    #[inline(always)]
    pub(crate) fn new(limiter: &'a Limiter, place: Place, permit: gate::Permit) -> Self {
        Self {
            home: Home::Borrowed(limiter),
            place,
            permit: Some(permit),
            others: None,
        }
    }

    /// Takes in the permit of a further gate.
    pub(crate) fn join(&mut self, mut other: Self) {
        let others = self.others.get_or_insert_default();
        if let Some(permit) = other.permit.take() {
            others.push((other.place, permit));
        }
        others.extend(other.others.take().into_iter().flat_map(|others| *others));
    }

    /// Says what came of the attempt, judged by its status and what the server said about pace.
    /// Returns the verdict; `None` for a 1xx, which changes nothing.
    #[inline(always)]
    pub fn settle(self, outcome: &Outcome) -> Option<Verdict> {
        let verdict = outcome.judge().verdict;
        self.settle_as(outcome, verdict);
        verdict
    }

    /// Says what came of the attempt, with a verdict of the caller's, such as from the body.
    #[inline(always)]
    pub fn settle_as(mut self, outcome: &Outcome, verdict: Option<Verdict>) {
        self.bring_back(|limiter, place, permit| limiter.settle(place, permit, outcome, verdict));
        // Nothing is left in it, and checking that again would take as long as a part of the settle.
        if let Home::Borrowed(_) = self.home {
            std::mem::forget(self);
        }
    }

    /// Says what came of the attempt at the head of a response whose body is still to come. The
    /// gate learns from it now, and the attempt counts against `max_in_flight` until the returned
    /// guard is dropped: keep it with the body.
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
        let mut first = InFlight::new(self.home.limiter(), self.place);
        if let Some(permit) = self.permit.take() {
            first.settle(permit, outcome, verdict);
        }
        while let Some((place, permit)) = self.others.as_mut().and_then(|others| others.pop()) {
            let mut next = InFlight::new(self.home.limiter(), place);
            next.settle(permit, outcome, verdict);
            first.others.push(next);
        }
        first
    }

    /// Gives it back as if it had never been asked for: nothing was sent, so other asks can use
    /// the tokens.
    pub fn give_back(mut self) {
        self.bring_back(Limiter::give_back);
    }

    /// Brings all it holds back by `way`; nothing the second time. Should that panic, for it calls
    /// a listener, the rest is brought back when `self` is dropped.
    #[inline(always)]
    fn bring_back(&mut self, way: impl Fn(&Limiter, Place, gate::Permit)) {
        if let Some(permit) = self.permit.take() {
            way(self.home.limiter(), self.place, permit);
        }
        if self.others.is_some() {
            self.bring_others_back(way);
        }
    }

    #[cold]
    fn bring_others_back(&mut self, way: impl Fn(&Limiter, Place, gate::Permit)) {
        while let Some((place, permit)) = self.others.as_mut().and_then(|others| others.pop()) {
            way(self.home.limiter(), place, permit);
        }
        self.others = None;
    }

    /// The others as a permit of their own, so that they are brought back whatever becomes of this
    /// one.
    #[inline(always)]
    fn split_off_others(&mut self) -> Option<Self> {
        let mut others = self.others.take()?;
        let (place, permit) = others.pop()?;
        Some(Self {
            home: self.home.clone(),
            place,
            permit: Some(permit),
            others: Some(others),
        })
    }

    /// The same permit without the borrow.
    pub fn into_owned(mut self) -> Permit<'static> {
        Permit {
            home: Home::Owned(self.home.limiter().clone()),
            place: self.place,
            permit: self.permit.take(),
            others: self.others.take(),
        }
    }

    /// Where the gate of its ask's first key is.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The attempt that is made under it, its number counted from 1: for callers that drive an item
    /// themselves, in place of [`Limiter::call`].
    pub fn attempt(&self, number: u32) -> Attempt {
        Attempt::start(number, self.home.limiter().clock())
    }

    /// Counts its attempt in the retry budget of its gate: a first attempt adds to it, a retry takes
    /// from it. The error says when a retry is possible; `None`: never.
    ///
    /// # Errors
    ///
    /// If the budget is used up. Then nothing was counted, and the permit should be given back.
    pub fn count_attempt(&self, is_retry: bool) -> Result<(), Option<Timestamp>> {
        let limiter = self.home.limiter();
        let now = limiter.clock().now();
        if is_retry {
            return limiter.withdraw(self.place, now);
        }
        limiter.deposit(self.place, now);
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
    place: Place,
    body: Option<ResponseBody>,
    /// Those of further gates that the same ask was for.
    others: Vec<Self>,
}

impl InFlight {
    fn new(limiter: &Limiter, place: Place) -> Self {
        Self {
            limiter: limiter.clone(),
            place,
            body: None,
            others: Vec::new(),
        }
    }

    fn settle(&mut self, permit: gate::Permit, outcome: &Outcome, verdict: Option<Verdict>) {
        let body = &mut self.body;
        self.limiter
            .settle_head(self.place, permit, outcome, verdict, body);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.limiter.finish(self.place, body);
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
        self.bring_back(Limiter::abandon);
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
