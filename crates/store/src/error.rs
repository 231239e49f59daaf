//! What can go wrong with a store, by what can be done about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::operations::SealError;

/// Why a folder could not be used. Nothing in it was changed or deleted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the folder.
    #[error(
        "the folder `{}` is used by another tidegate{}\nhint: stop that one, or give this one \
         another folder: `server.data`",
        .folder.display(), process_of(*.process)
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Whose it is, if that can be told.
        process: Option<u32>,
    },
    /// The file was written by a later version.
    #[error(
        "the file `{}` has version {found}, expected at most {known}\nhint: it was written by a \
         later tidegate: use that one, or another folder: `server.data`",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: i64,
        /// The latest version that is known here.
        known: i64,
    },
    /// The file belongs to some other program.
    #[error(
        "the file `{}` is a database of another program\nhint: give tidegate a folder of its \
         own: `server.data`",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged, or no database at all.
    #[error(
        "the file `{}` is damaged: {reason}\nhint: put back a copy of it, or move it away \
         together with its `-wal` and `-shm` files to begin with an empty one",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The server could not be used: it cannot be reached, or refuses.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    #[error("`{server}` cannot be used: {reason}\nhint: {hint}")]
    Database {
        /// Its address, without the password.
        server: String,
        /// What was found.
        reason: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The tables in the database were written by a later version.
    #[cfg(feature = "postgres")]
    #[error(
        "the schema `tidegate` in `{server}` has version {found}, expected at most {known}\nhint: it \
         was written by a later tidegate: use that one, or another database: `storage.operations`"
    )]
    NewerSchema {
        /// The address of the database.
        server: String,
        /// The version it has.
        found: i64,
        /// The latest version that is known here.
        known: i64,
    },
    /// The schema belongs to some other program.
    #[cfg(feature = "postgres")]
    #[error(
        "the schema `tidegate` in `{server}` is of another program\nhint: give tidegate a database \
         of its own: `storage.operations`"
    )]
    ForeignSchema {
        /// The address of the database.
        server: String,
    },
    /// The folder or a file in it could not be created, read or locked.
    #[error("`{}` cannot be used\nhint: it must be there or creatable, and writable", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file could not be used for another reason, such as a disk that is full or broken.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn process_of(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" (process {process})"))
}

/// Why something could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Too many changes wait for the disk already. Later ones may pass.
    #[error(
        "{queued} changes wait to be written, which is the most\nhint: the disk is too slow, or stuck"
    )]
    QueueFull {
        /// How many wait.
        queued: usize,
    },
    /// The disk is full. Later changes may pass.
    #[error("`{}` cannot be written: the disk is full", .path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "the file `{}` is damaged: {reason}\nhint: put back a copy of it, or move it away \
         together with its `-wal` and `-shm` files to begin with an empty one",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A row says what nothing here can have written.
    #[error("`{}`, table `{table}`: {reason}\nhint: correct or delete that row", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// What was found.
        reason: String,
    },
    /// A value of this row is encrypted and cannot be read, or cannot be encrypted. Others can.
    #[error("`{}`, table `{table}`, row `{row}`: {reason}", .path.display())]
    Sealed {
        /// The file.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// The number or name of the row.
        row: String,
        /// What is wrong.
        reason: SealError,
    },
    /// The database cannot be reached. Later calls may pass.
    #[error("`{server}` cannot be reached: {reason}")]
    Unreachable {
        /// Its address, without the password.
        server: String,
        /// What was found.
        reason: String,
    },
    /// Another operation with this id is stored. Nothing was changed.
    #[error("there is another operation `{id}`")]
    SameId {
        /// The id.
        id: String,
    },
    /// The disk or the system refused. Later changes may pass.
    #[error("`{}` cannot be used: {reason}", .path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The thread that writes is gone. No later change will pass.
    #[error("nothing is written any more: the writer has stopped\nhint: restart tidegate")]
    Stopped,
}
