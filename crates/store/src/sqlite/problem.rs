//! What went wrong with the file, before it is known which file that is.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::error::{OpenError, StoreError};

#[derive(Debug)]
pub(super) enum SqliteError {
    /// SQLite says so.
    Sql(rusqlite::Error),
    /// A row says what nothing here can have written.
    Row { table: &'static str, reason: String },
    /// Known already.
    Known(StoreError),
}

impl SqliteError {
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
            Self::Sql(error) => error,
        };
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
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
