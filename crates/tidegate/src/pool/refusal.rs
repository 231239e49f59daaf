//! What it means when no endpoint of a pool can be used in time.

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
    /// The word for it in logs, headers and the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NoEndpoint => "no_endpoint",
            Self::Paused { .. } => "paused",
            Self::Gate(refusal) => refusal.reason().as_str(),
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
