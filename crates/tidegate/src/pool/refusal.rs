//! Why no endpoint of a pool could be used in time.

use std::fmt;

use policy::gate::Reason;
use policy::time::Timestamp;

use crate::ask::Refusal;

/// No endpoint could be used in time. Nothing was sent and no token was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolRefusal {
    /// The pool has no endpoint, or all are disabled: a person has to enable one.
    #[error("no endpoint: all are disabled, or there is none")]
    NoEndpoint,
    /// Every endpoint that is not disabled is paused or recovering.
    #[error("every endpoint is paused")]
    Paused {
        /// When the first pause ends; `None` if that depends on a response.
        until: Option<Timestamp>,
    },
    /// The gates of all usable endpoints refused; this is the refusal with the earliest retry time.
    #[error(transparent)]
    Gate(Refusal),
}

impl PoolRefusal {
    /// The reason, without the time.
    pub fn reason(&self) -> RefusalReason {
        match self {
            Self::NoEndpoint => RefusalReason::NoEndpoint,
            Self::Paused { .. } => RefusalReason::Paused,
            Self::Gate(refusal) => RefusalReason::Gate(refusal.reason()),
        }
    }

    /// When asking again may help, if known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::NoEndpoint => None,
            Self::Paused { until } => *until,
            Self::Gate(refusal) => refusal.until(),
        }
    }
}

/// Why a gate or pool makes a call wait or refuses it.
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
    /// The name in logs, metrics and the API.
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
