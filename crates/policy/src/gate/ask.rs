//! Asks, decisions and permits.

use std::fmt;
use std::num::NonZeroU32;

use crate::breaker::Probe;
use crate::line::{Class, Ticket};
use crate::outcome::Verdict;
use crate::time::Timestamp;

/// A request for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The number of tokens; zero counts as one.
    pub cost: u32,
    /// How long the caller waits; at or before now means not at all.
    pub deadline: Timestamp,
    /// Its priority when several asks wait.
    pub class: Class,
    /// Wait for an open breaker too, if the deadline allows, instead of being refused.
    pub waits_for_breaker: bool,
}

impl Ask {
    /// An interactive ask for one token that may wait until `deadline`, but not for a breaker.
    pub fn until(deadline: Timestamp) -> Self {
        Self {
            cost: 1,
            deadline,
            class: Class::Interactive,
            waits_for_breaker: false,
        }
    }

    #[inline]
    pub(super) fn cost(&self) -> u32 {
        self.cost.max(1)
    }
}

/// The decision on an ask.
#[derive(Debug)]
pub enum Decision {
    /// Send now, and return the permit.
    Admit(Permit),
    /// Wait in line.
    Wait {
        /// The place in line.
        ticket: Ticket,
        /// When this ask would leave in the current state, behind the line; `None` if that depends
        /// on outstanding responses.
        until: Option<Timestamp>,
        /// Why it waits.
        reason: Reason,
    },
    /// Do not send.
    Refuse {
        /// Why not.
        reason: Reason,
        /// When asking again may help, if known.
        until: Option<Timestamp>,
    },
}

/// Why an ask waits or is refused: a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No token yet: the gate's rate or a known limit.
    Rate,
    /// A hold, named by the server or assumed.
    Hold,
    /// The breaker is not Closed and no probe is free.
    BreakerOpen,
    /// The maximum number of attempts is in flight.
    InFlight,
    /// The maximum number of asks is waiting.
    QueueFull,
    /// It could not leave before its deadline.
    Deadline,
    /// There are as many gates as allowed, and none can be evicted.
    TooManyGates,
    /// It is a retry, and the retry budget of its key is used up. Decided by calls, not by gates.
    RetryBudget,
}

impl Reason {
    /// The name in replay, logs, headers and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Hold => "hold",
            Self::BreakerOpen => "breaker_open",
            Self::InFlight => "in_flight",
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
            Self::TooManyGates => "too_many_gates",
            Self::RetryBudget => "retry_budget",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The right to make one attempt: 24 bytes. Return it with [`Gate::settle`](super::Gate::settle),
/// with [`Gate::settle_head`](super::Gate::settle_head) if the response body has not ended, with
/// [`Gate::give_back`](super::Gate::give_back) if it was not used, or with
/// [`Gate::abandon`](super::Gate::abandon) if that is unknown.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is not settled stays in flight"]
pub struct Permit {
    pub(super) admitted_at: Timestamp,
    pub(super) epoch: u32,
    /// Its number at its gate, counted from 1, modulo 2^32.
    pub(super) number: u32,
    /// Never zero, so that an `Option` of a permit is no larger.
    pub(super) cost: NonZeroU32,
    pub(super) probe: Option<Probe>,
}

impl Permit {
    /// When it was issued.
    pub fn admitted_at(&self) -> Timestamp {
        self.admitted_at
    }

    /// The gate's epoch when it was issued.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Its number at its gate.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether the attempt probes if the upstream has recovered.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// A response whose body has not ended: its attempt is in flight until
/// [`Gate::finish`](super::Gate::finish) takes this.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an attempt whose body is not finished stays in flight"]
pub struct ResponseBody {
    pub(super) number: u32,
    pub(super) cost: NonZeroU32,
    pub(super) verdict: Option<Verdict>,
}

impl ResponseBody {
    /// The verdict for the item, as of [`Gate::settle`](super::Gate::settle).
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }
}
