//! Changes of what is stored.

use policy::time::WallTime;

use crate::record::{AddedEndpoint, Protection, RotatedToken, StoredEndpoint, StoredGate};

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The record of a gate, in place of its last one.
    Gate(StoredGate),
    /// A gate is gone.
    ForgetGate {
        /// Its key.
        key: String,
    },
    /// Every gate that was last written before this time is gone: it has not been used for long.
    /// Without this the file would only grow.
    ForgetGatesBefore(WallTime),
    /// The state of an endpoint, in place of its last record.
    Endpoint(StoredEndpoint),
    /// The state of an endpoint is gone. Says nothing about whether there is such an endpoint.
    ForgetEndpoint {
        /// Its pool.
        pool: String,
        /// Its name there.
        name: String,
    },
    /// A person changed how the endpoints of a pool are protected; `None`: as configured.
    Protection {
        /// The pool.
        pool: String,
        /// All of it, in the place of what was changed before.
        protection: Option<Protection>,
    },
    /// A person added an endpoint, or changed one that was added. It comes after those added
    /// before, and is no longer removed.
    EndpointAdded(AddedEndpoint),
    /// A person removed an endpoint that the configuration has. It is no longer added.
    EndpointRemoved {
        /// Its pool.
        pool: String,
        /// Its name there.
        name: String,
    },
    /// A person took back what they changed: neither added nor removed. Also for an endpoint that
    /// was added and goes again, for there is nothing of the configuration's to remove.
    EndpointAsConfigured {
        /// Its pool.
        pool: String,
        /// Its name there.
        name: String,
    },
    /// An authorization server issued a new refresh token, in the place of the last one.
    Rotated(RotatedToken),
    /// The refresh token of a credential is not needed any more.
    ForgetRotated {
        /// The name of the credential.
        credential: String,
    },
}

/// What the newest record of replaces all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject<'a> {
    Gate(&'a str),
    Endpoint(&'a str, &'a str),
    Credential(&'a str),
}

impl Change {
    /// Whether it is about pools, which several machines may share.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_about_pools(&self) -> bool {
        match self {
            Self::Endpoint(_)
            | Self::ForgetEndpoint { .. }
            | Self::Protection { .. }
            | Self::EndpointAdded(_)
            | Self::EndpointRemoved { .. }
            | Self::EndpointAsConfigured { .. } => true,
            Self::Gate(_)
            | Self::ForgetGate { .. }
            | Self::ForgetGatesBefore(_)
            | Self::Rotated(_)
            | Self::ForgetRotated { .. } => false,
        }
    }

    /// Whose record this is. `None` for what is not a record of state: such changes are rare, and
    /// their order matters.
    pub(crate) fn subject(&self) -> Option<Subject<'_>> {
        match self {
            Self::Gate(gate) => Some(Subject::Gate(&gate.key)),
            Self::ForgetGate { key } => Some(Subject::Gate(key)),
            Self::Endpoint(endpoint) => Some(Subject::Endpoint(&endpoint.pool, &endpoint.name)),
            Self::ForgetEndpoint { pool, name } => Some(Subject::Endpoint(pool, name)),
            Self::Rotated(rotated) => Some(Subject::Credential(&rotated.credential)),
            Self::ForgetRotated { credential } => Some(Subject::Credential(credential)),
            Self::ForgetGatesBefore(_)
            | Self::Protection { .. }
            | Self::EndpointAdded(_)
            | Self::EndpointRemoved { .. }
            | Self::EndpointAsConfigured { .. } => None,
        }
    }
}
