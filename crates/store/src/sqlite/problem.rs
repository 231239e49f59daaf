//! What went wrong with the file, before it is known which file that is.

use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

use crate::error::{OpenError, StoreError};
use crate::operations::SealError;
use crate::seal::Place;

#[derive(Debug)]
pub(super) enum SqliteError {
    /// SQLite says so.
    Sql(rusqlite::Error),
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

impl SqliteError {
    pub(super) fn sealed(place: Place<'_>, reason: SealError) -> Self {
        Self::Sealed {
            table: place.table,
            row: place.row.to_owned(),
            reason,
        }
    }

    /// Is something wrong with the store, and not only with one row or one call?
    pub(super) fn is_serious(&self) -> bool {
        match self {
            Self::Sql(error) => {
                // Without a code it is a value that is not what its column should have.
                let code = error.sqlite_error_code();
                code.is_some_and(|code| code != ErrorCode::ConstraintViolation)
            }
            Self::Row { .. } | Self::Sealed { .. } => false,
            Self::Known(error) => !matches!(error, StoreError::SameId { .. }),
        }
    }

    /// Is there no space left on the disk?
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Sql(error) => is_full(error),
            Self::Known(error) => matches!(error, StoreError::DiskFull { .. }),
            Self::Row { .. } | Self::Sealed { .. } => false,
        }
    }

    /// As the error of a read or a write.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        let error = match self {
            Self::Known(error) => return error,
            Self::Row { table, reason } => {
                return StoreError::Unreadable {
                    path,
                    table,
                    reason,
                };
            }
            Self::Sealed { table, row, reason } => {
                return StoreError::Sealed {
                    path,
                    table,
                    row,
                    reason,
                };
            }
            Self::Sql(error) => error,
        };
        if is_full(&error) {
            return StoreError::DiskFull { path };
        }
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Damaged { path, reason }
            }
            _ => StoreError::Failed { path, reason },
        }
    }

    /// As the error of opening the file.
    pub(super) fn opening(self, path: &Path) -> OpenError {
        match self.at(path) {
            StoreError::Damaged { path, reason } => OpenError::Damaged { path, reason },
            error => OpenError::Store(error),
        }
    }
}

/// Of the file, or of the index of its log, for which SQLite has a code of its own.
fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| {
        error.code == ErrorCode::DiskFull || error.extended_code == SQLITE_IOERR_SHMSIZE
    })
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for SqliteError {
    fn from(error: StoreError) -> Self {
        Self::Known(error)
    }
}
