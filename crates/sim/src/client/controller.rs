//! The seam between a client and whatever decides for it.

use std::fmt;

use policy::breaker::BreakerState;
use policy::gate::{Gate, GateSettings, Permit};
use policy::line::Tickets;
use policy::outcome::{Outcome, Verdict};
use policy::random::Random;
use policy::time::Timestamp;

/// Decides when a client sends. Everything that can be compared is one of these.
///
/// It sees only what a real sender would see: the time, whether there is anything to send, and
/// what came back. Whatever it has to remember of a request it keeps under the request's [`FlightId`],
/// for instance in [`Outstanding`].
pub trait Controller: fmt::Debug {
    /// May a request leave at `now`? If it may, it leaves at once and is kept under `id`, and
    /// the next question follows; `has_fresh` says whether the backlog has anything.
    fn next(&mut self, id: FlightId, has_fresh: bool, now: Timestamp, random: &mut Random) -> Next;

    /// What came of the request under `id`.
    fn answered(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        random: &mut Random,
    ) -> Afterwards;

    /// How it stands, for people to look at; looking changes nothing.
    fn standing(&self, now: Timestamp) -> Standing {
        let _ = now;
        Standing::default()
    }

    /// How often its breaker opened, if it has one.
    fn breaker_opened(&self) -> u64 {
        0
    }

    /// The gate behind it, if there is one.
    fn gate(&self) -> Option<GateView<'_>> {
        None
    }
}

/// A gate with what belongs to it, to look at.
#[derive(Clone, Copy, Debug)]
pub struct GateView<'a> {
    /// How it is set.
    pub settings: &'a GateSettings,
    /// The gate.
    pub gate: &'a Gate,
    /// Its line.
    pub tickets: &'a Tickets,
    /// The permits of what is under way.
    pub permits: &'a Outstanding<Permit>,
}

/// Names a request of a client while it is under way: a small number, used again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightId(pub usize);

/// What a controller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Something from the backlog leaves now; only if there is anything.
    SendFresh,
    /// Something that the controller kept leaves again now.
    SendAgain(Kept),
    /// Nothing leaves. Ask again at `until`, and in any case after an answer or an arrival.
    Wait {
        /// When; `None` if time alone does not help.
        until: Option<Timestamp>,
    },
}

/// What becomes of whatever was sent, now that an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// It is over: accepted, or given up.
    Over,
    /// It is still to be sent, like everything else in the backlog.
    BackToBacklog,
    /// The controller keeps it and sends it again itself.
    Kept(Kept),
}

impl Afterwards {
    /// For those who do not tell their requests apart: what was not accepted is still to be sent.
    pub fn until_accepted(attempt: &Attempt) -> Self {
        if attempt.is_accepted() {
            Self::Over
        } else {
            Self::BackToBacklog
        }
    }
}

/// Names something that a controller keeps, for as long as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept(pub usize);

/// An attempt that has ended, as policies hear of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// What came of it, with the hint of its headers.
    pub outcome: Outcome,
    /// The class of that.
    pub verdict: Option<Verdict>,
}

impl Attempt {
    /// Was it accepted?
    pub fn is_accepted(&self) -> bool {
        self.verdict == Some(Verdict::Success)
    }
}

/// How a controller stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Requests per second that it allows itself; `None` if it has no rate.
    pub rate: Option<f64>,
    /// The end of the hold or pause that is on.
    pub hold_until: Option<Timestamp>,
    /// Its breaker's state; `None` if it has none.
    pub breaker: Option<BreakerState>,
}

/// Something kept for every request that is under way.
#[derive(Clone, Debug)]
pub struct Outstanding<T>(Vec<Option<T>>);

impl<T> Outstanding<T> {
    /// Nothing is under way.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Keeps `what` for the request under `id`.
    pub fn put(&mut self, id: FlightId, what: T) {
        if self.0.len() <= id.0 {
            self.0.resize_with(id.0 + 1, || None);
        }
        self.0[id.0] = Some(what);
    }

    /// What is kept for the request under `id`.
    pub fn get(&self, id: FlightId) -> Option<&T> {
        self.0.get(id.0).and_then(Option::as_ref)
    }

    /// Takes out what was kept for the request under `id`.
    pub fn take(&mut self, id: FlightId) -> Option<T> {
        self.0.get_mut(id.0).and_then(Option::take)
    }
}

impl<T> Default for Outstanding<T> {
    fn default() -> Self {
        Self::new()
    }
}
