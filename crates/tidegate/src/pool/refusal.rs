//! What it means when no endpoint of a pool can be used in time.

use std::fmt;

use policy::gate::Reason;
use policy::time::Timestamp;

use crate::ask::Refusal;

/// No endpoint could be used in time. Nothing was sent and nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    /// There is none, or all are disabled: a person has to enable one.
    #[error("no endpoint: all are disabled, or there is none")]
    NoEndpoint,
    /// Every endpoint that is not disabled is paused or recovering.
    #[error("every endpoint is paused")]
    Paused {
        /// When the first pause ends; `None` if that depends on an answer still to come.
        until: Option<Timestamp>,
    },
    /// The gates of the endpoints that can be used refused; this is the one to ask again first.
    #[error(transparent)]
    Gate(Refusal),
}

impl PoolRefusal {
    /// Why, without the time.
    pub fn reason(&self) -> RefusalReason {
        match self {
            Self::NoEndpoint => RefusalReason::NoEndpoint,
            Self::Paused { .. } => RefusalReason::Paused,
            Self::Gate(refusal) => RefusalReason::Gate(refusal.reason()),
        }
    }

    /// When asking again may help, if that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::NoEndpoint => None,
            Self::Paused { until } => *until,
            Self::Gate(refusal) => refusal.until(),
        }
    }
}

/// Why a gate or a pool makes a call wait, or refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The gate's own reason.
    Gate(Reason),
    /// Every endpoint of the pool that is not disabled is paused or recovering.
    Paused,
    /// The pool has no endpoint, or all are disabled.
    NoEndpoint,
}

impl RefusalReason {
    /// The word for it in logs, metrics and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gate(reason) => reason.as_str(),
            Self::Paused => "paused",
            Self::NoEndpoint => "no_endpoint",
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
