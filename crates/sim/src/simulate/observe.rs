//! Looking on while a scenario is played.

use policy::time::Timestamp;

use crate::client::{Attempt, FlightId, GateView};
use crate::measure::Class;

/// Looks at every event of a run. Looking changes nothing.
pub(crate) trait Observer {
    /// Something has just happened.
    fn look(&mut self, sight: &Sight<'_>);
}

/// One event, and how things stand right after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) now: Timestamp,
    /// Whose event it is, by number.
    pub(crate) client: usize,
    pub(crate) what: What<'a>,
    /// Does its backlog have anything?
    pub(crate) has_fresh: bool,
    /// The gate it sends through, if it has one.
    pub(crate) gate: Option<GateView<'a>>,
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// It was asked and sends nothing now.
    Waits {
        /// When it wants to be asked again; `None`: after an answer.
        until: Option<Timestamp>,
    },
    /// It was asked and a request has left.
    Sent {
        id: FlightId,
        /// What will become of it, which only an observer can know.
        class: Class,
        /// When that will be.
        ends: Timestamp,
    },
    /// A request of its has ended, and its controller has heard of it.
    Ended {
        id: FlightId,
        class: Class,
        attempt: &'a Attempt,
    },
}
