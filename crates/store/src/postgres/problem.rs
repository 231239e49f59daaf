//! What went wrong with the database, before it is known which database that is.

use std::error::Error;

use tokio_postgres::error::SqlState;

use super::address::DatabaseAddress;
use crate::error::{OpenError, StoreError};
use crate::operations::SealError;
use crate::seal::Place;

#[derive(Debug)]
pub(super) enum PostgresError {
    /// The server or the connection says so.
    Sql(tokio_postgres::Error),
    /// The server did not answer in time.
    Silent,
    /// The file of `sslrootcert` cannot be used.
    Roots(std::io::Error),
    /// A row says what nothing here can have written.
    Row { table: &'static str, reason: String },
    /// A value cannot be opened, or sealed.
    Sealed {
        table: &'static str,
        row: String,
        reason: SealError,
    },
    /// Known already.
    Known(StoreError),
}

impl PostgresError {
    pub(super) fn sealed(place: Place<'_>, reason: SealError) -> Self {
        Self::Sealed {
            table: place.table,
            row: place.row.to_owned(),
            reason,
        }
    }

    /// Is the connection of no use any more?
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            Self::Sql(error) => match error.as_db_error() {
                // Class 57P: the server is shutting down, or starting.
                Some(problem) => problem.code().code().starts_with("57P"),
                None => true,
            },
            Self::Silent | Self::Roots(_) => true,
            Self::Row { .. } | Self::Sealed { .. } | Self::Known(_) => false,
        }
    }

    /// Is something wrong with the database, and not only with one row or one call?
    pub(super) fn is_serious(&self) -> bool {
        match self {
            Self::Sql(error) => match error.code() {
                // A constraint or a value that was refused, a deadlock.
                Some(code) => !["22", "23", "40"].contains(&&code.code()[..2]),
                None => true,
            },
            Self::Silent | Self::Roots(_) => true,
            Self::Row { .. } | Self::Sealed { .. } => false,
            Self::Known(error) => !matches!(error, StoreError::SameId { .. }),
        }
    }

    /// As the error of a read or a write.
    pub(super) fn at(self, address: &DatabaseAddress) -> StoreError {
        let server = address.to_string();
        let breaks_connection = self.breaks_connection();
        let reason = match self {
            Self::Known(error) => return error,
            Self::Row { table, reason } => {
                return StoreError::Unreadable {
                    path: server.into(),
                    table,
                    reason,
                };
            }
            Self::Sealed { table, row, reason } => {
                return StoreError::Sealed {
                    path: server.into(),
                    table,
                    row,
                    reason,
                };
            }
            Self::Silent => "it does not answer".to_owned(),
            Self::Roots(error) => format!("the file of `sslrootcert` cannot be used: {error}"),
            Self::Sql(error) => describe(&error),
        };
        match breaks_connection {
            true => StoreError::Unreachable { server, reason },
            false => StoreError::Failed {
                path: server.into(),
                reason,
            },
        }
    }

    /// As the error of the first connection.
    pub(super) fn opening(self, address: &DatabaseAddress) -> OpenError {
        let hint = match &self {
            Self::Sql(error) => match error.code() {
                Some(code) if *code == SqlState::INVALID_PASSWORD => {
                    "check the user and the password in `storage.operations`"
                }
                Some(code) if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                    "check the user in `storage.operations`, and whether the server lets it in (pg_hba.conf)"
                }
                Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
                    "create the database, or check its name in `storage.operations`"
                }
                Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
                    "the user must be allowed to create the schema `tidegate`, or own it"
                }
                Some(_) => "see the log of the server",
                None if address.uses_tls() => {
                    "check host and port in `storage.operations`, and whether the server has a certificate for that \
                     host; on a network that you trust, add `?sslmode=disable`"
                }
                None => {
                    "check host and port in `storage.operations`, and whether the server is running"
                }
            },
            Self::Silent => {
                "check host and port in `storage.operations`, and whether the server is running"
            }
            Self::Roots(_) => "`sslrootcert` names a file with certificates in PEM form",
            Self::Row { .. } | Self::Sealed { .. } | Self::Known(_) => {
                "see the table that is named"
            }
        };
        let reason = match &self {
            Self::Sql(error) => describe(error),
            Self::Silent => "it does not answer".to_owned(),
            Self::Roots(error) => error.to_string(),
            Self::Row { .. } | Self::Sealed { .. } | Self::Known(_) => {
                return OpenError::Store(self.at(address));
            }
        };
        OpenError::Database {
            server: address.to_string(),
            reason,
            hint,
        }
    }
}

/// What the server said, or what the connection met.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(problem) = error.as_db_error() {
        return format!("{} ({})", problem.message(), problem.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for PostgresError {
    fn from(error: StoreError) -> Self {
        Self::Known(error)
    }
}
