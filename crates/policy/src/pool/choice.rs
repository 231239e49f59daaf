//! The choice of an endpoint.

use std::fmt;

use super::EndpointId;
use crate::ladder::Disabled;
use crate::time::Timestamp;

/// The state of an endpoint's gate for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateState {
    /// When it would admit a request: at or before now means at once, [`Timestamp::MAX`] unknown.
    pub opens_at: Timestamp,
    /// Attempts in flight, including responses whose body is still being read; `None` if only the
    /// pool counts them.
    pub in_flight: Option<u32>,
}

impl From<Timestamp> for GateState {
    /// A gate with unknown load.
    #[inline]
    fn from(opens_at: Timestamp) -> Self {
        Self {
            opens_at,
            in_flight: None,
        }
    }
}

/// Which endpoint gets the next request.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// This endpoint, now.
    Send(Lease),
    /// No endpoint yet.
    Wait {
        /// The endpoint that will be usable first.
        endpoint: EndpointId,
        /// When; `None` if that depends on a response.
        until: Option<Timestamp>,
        /// Why not now; `None` if only its gate does not admit.
        reason: Option<Unusable>,
    },
    /// No endpoint until a person acts: there is none, or all are disabled.
    NoEndpoint,
}

/// Why an endpoint is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is disabled until a person enables it.
    Disabled(Disabled),
    /// It is paused.
    Paused {
        /// The end of the pause.
        until: Timestamp,
    },
    /// It is recovering, and its one request is in flight.
    Recovering,
}

impl Unusable {
    /// The name in the API and in logs.
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
            Self::Disabled(Disabled::QuotaExhausted) => "disabled: the quota is used up",
            Self::Disabled(Disabled::CredentialRejected) => "disabled: its credential is rejected",
            Self::Disabled(Disabled::Person) => "disabled by a person",
            Self::Paused { .. } => "paused after an error",
            Self::Recovering => "recovering: one request at a time, and one is in flight",
        })
    }
}

/// One request in flight at an endpoint. Return it with [`Pool::settle`](super::Pool::settle) or
/// [`Pool::abandon`](super::Pool::abandon).
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
