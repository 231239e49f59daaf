//! What went wrong with the server of a fleet.

use std::fmt;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use thiserror::Error;

use super::{FleetServer, GatesAddress};
use crate::error::OpenError;

/// Why a call to the server of a fleet failed. Later calls may pass.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FleetError {
    /// It cannot be reached, or does not answer in time.
    #[error("`{server}` cannot be reached: {reason}")]
    Unreachable {
        /// Its address, without the password.
        server: String,
        /// What was found.
        reason: String,
    },
    /// It refuses the call.
    #[error("`{server}` refuses: {reason}")]
    Refused {
        /// Its address, without the password.
        server: String,
        /// What it said.
        reason: String,
    },
    /// Nodes of a later version have written there.
    #[error(
        "the fleet has version {found}, expected at most {}",
        FleetServer::SCHEMA
    )]
    Newer {
        /// The version it has.
        found: u32,
    },
    /// Nodes with other settings are present.
    #[error(
        "{nodes} nodes in the namespace `{namespace}` have other settings: {theirs}; these are {ours}"
    )]
    OtherSettings {
        /// The fleet.
        namespace: String,
        /// What the others have.
        theirs: String,
        /// What this node has.
        ours: String,
        /// How many others are present.
        nodes: u32,
    },
    /// It answers what the scripts of this version do not.
    #[error("`{server}` answers what cannot be read")]
    Unreadable {
        /// Its address, without the password.
        server: String,
    },
    /// The call lay too long in the server, which changed nothing.
    #[error("the call was too old when `{server}` read it")]
    Stale {
        /// Its address, without the password.
        server: String,
    },
}

/// Why a fleet cannot be entered.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct FleetOpenError {
    /// What is wrong, and what to do.
    pub error: OpenError,
    /// Whether the server cannot be reached at present, which may pass by itself.
    pub is_unreachable: bool,
}

impl FleetError {
    pub(super) fn of(error: &RedisError, address: &GatesAddress) -> Self {
        let (server, reason) = (address.to_string(), error.to_string());
        match breaks_connection(error) {
            true => Self::Unreachable { server, reason },
            false => Self::Refused { server, reason },
        }
    }

    /// As the error of the first connection.
    pub(super) fn opening(self, address: &GatesAddress) -> OpenError {
        let hint = match &self {
            Self::Unreachable { .. } | Self::Stale { .. } | Self::Unreadable { .. } => UNREACHABLE,
            Self::Refused { .. } => {
                "the user must be allowed to run scripts on keys and channels that begin with `tg:`"
            }
            Self::Newer { .. } => {
                "it was made by a later tidegate: use that one, or another `storage.namespace`"
            }
            Self::OtherSettings { .. } => {
                "give all nodes the same settings of gates, or this fleet another `storage.namespace`"
            }
        };
        failed(address, self, hint)
    }
}

/// Is the connection of no use any more?
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    is_unreachable(error) || error.is_unrecoverable_error()
}

/// Can the server not be reached at present?
pub(super) fn is_unreachable(error: &RedisError) -> bool {
    let elsewhere = matches!(
        error.kind(),
        // A server that was demoted, or is not ready yet: another one may answer at this address.
        ErrorKind::Server(
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading
        )
    );
    error.is_io_error() || error.is_timeout() || elsewhere
}

/// The error of the first connection.
pub(super) fn opening(error: &RedisError, address: &GatesAddress) -> OpenError {
    let code = error.code();
    let hint = match error.kind() {
        ErrorKind::AuthenticationFailed => PASSWORD,
        _ if matches!(code, Some("WRONGPASS" | "NOAUTH")) => PASSWORD,
        ErrorKind::RESP3NotSupported => OLD,
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            "the user must be allowed to run scripts on keys and channels that begin with `tg:`"
        }
        ErrorKind::Server(_) => "see the log of the server",
        _ if address.uses_tls() => {
            "check host and port in `storage.gates`, and whether the server has a certificate for that host"
        }
        _ => UNREACHABLE,
    };
    failed(address, error, hint)
}

pub(super) fn silent(address: &GatesAddress) -> OpenError {
    failed(address, "it does not answer", UNREACHABLE)
}

pub(super) fn too_old(address: &GatesAddress, (major, minor): (u32, u32)) -> OpenError {
    let reason = format!("it has version {major}.{minor}, expected 7.0 or later");
    failed(address, reason, OLD)
}

pub(super) fn cluster(address: &GatesAddress) -> OpenError {
    let reason = "it is a node of a Redis Cluster, expected one server";
    let hint = "use a server that is not in cluster mode, with replicas if need be";
    failed(address, reason, hint)
}

fn failed(address: &GatesAddress, reason: impl fmt::Display, hint: &'static str) -> OpenError {
    OpenError::Database {
        server: address.to_string(),
        reason: reason.to_string(),
        hint,
    }
}

const UNREACHABLE: &str =
    "check host and port in `storage.gates`, and whether the server is running";
const PASSWORD: &str = "check the user and the password in `storage.gates`";
const OLD: &str = "use Redis 7.0 or later, or Valkey";
