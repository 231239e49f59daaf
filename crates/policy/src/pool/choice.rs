//! The choice of an endpoint.

use std::fmt;

use super::EndpointId;
use crate::ladder::Disabled;
use crate::time::Timestamp;

/// What the gate of an endpoint says about the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateState {
    /// When it would let a request leave: at or before now is at once, [`Timestamp::MAX`] unknown.
    pub opens_at: Timestamp,
    /// Attempts in flight, responses whose body is still being read included.
    pub in_flight: u32,
}

impl From<Timestamp> for GateState {
    /// A gate whose load is not known.
    fn from(opens_at: Timestamp) -> Self {
        Self {
            opens_at,
            in_flight: 0,
        }
    }
}

/// Which endpoint gets the next request.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one, now.
    Send(Lease),
    /// None yet.
    Wait {
        /// The endpoint that will be first.
        endpoint: EndpointId,
        /// When; `None` if that depends on a response.
        until: Option<Timestamp>,
        /// Why not now; `None` if only its gate does not admit.
        reason: Option<Unusable>,
    },
    /// None until a person acts: there is no endpoint, or all are disabled.
    NoEndpoint,
}

/// Why an endpoint cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Until a person enables it.
    Disabled(Disabled),
    /// Paused.
    Paused {
        /// The end of the pause.
        until: Timestamp,
    },
    /// It is recovering, and its one request is in flight.
    Recovering,
}

impl Unusable {
    /// The word for it in the API and in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled(_) => "disabled",
            Self::Paused { .. } => "paused",
            Self::Recovering => "recovering",
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled(Disabled::Errors(_)) => "disabled after too many errors in a row",
            Self::Disabled(Disabled::QuotaExhausted) => "disabled: an allowance is used up",
            Self::Disabled(Disabled::Person) => "disabled by a person",
            Self::Paused { .. } => "paused after an error",
            Self::Recovering => "recovering: one request at a time, and one is in flight",
        })
    }
}

/// One request in flight through an endpoint. Return it with
/// [`Pool::settle`](super::Pool::settle) or [`Pool::abandon`](super::Pool::abandon).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is not returned counts as a request in flight"]
pub struct Lease {
    pub(super) endpoint: EndpointId,
    pub(super) epoch: u32,
}

impl Lease {
    /// The endpoint it is for.
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// The epoch of its ladder when it was granted.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}
