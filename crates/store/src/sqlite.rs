//! A store in one SQLite file, the only place that speaks SQL.
//!
//! One thread writes: it takes all that has gathered, puts it into one transaction and syncs once,
//! so a change is durable when its future is ready, and the cost of a sync is shared by all that
//! were saved while the last one was running. Every value has a column, so that
//! `sqlite3 tidegate.db 'select * from gates'` answers an operator's question; reading is possible
//! while the process runs.
//!
//! A write that failed is rolled back whole. The next one begins with a connection of its own, for
//! what is broken may be the file handle.

mod endpoints;
mod folder;
mod gates;
mod problem;
mod schema;
mod settings;
mod writer;

#[cfg(unix)]
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::StoreState;
use crate::change::Change;
use crate::error::{OpenError, StoreError};
use crate::faulty::Faults;
use crate::record::StoredState;
use crate::save::SaveFuture;
use problem::SqliteError;
use writer::Writer;

#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    writer: Writer,
}

impl Sqlite {
    pub(crate) fn open(folder: &Path, faults: Faults) -> Result<Self, OpenError> {
        let (path, lock) = folder::prepare(folder)?;
        let database = Database::open(path.clone(), lock, faults)?;
        let writer = Writer::start(database).map_err(|source| OpenError::Io {
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, writer })
    }

    pub(crate) fn load(&self) -> Result<StoredState, StoreError> {
        // Changes that failed have reported it to their callers.
        let _ = self.flush().wait();
        let load = || {
            let mut connection = connect(&self.path)?;
            read(&connection.transaction()?)
        };
        load().map_err(|problem: SqliteError| problem.at(&self.path))
    }

    pub(crate) fn save(&self, changes: Vec<Change>) -> SaveFuture {
        self.writer.queue().save(changes)
    }

    pub(crate) fn flush(&self) -> SaveFuture {
        self.writer.queue().flush()
    }

    pub(crate) fn state(&self) -> StoreState {
        self.writer.queue().state()
    }
}

/// The file, for the one thread that writes.
#[derive(Debug)]
struct Database {
    path: PathBuf,
    /// `None` after a write that failed.
    connection: Option<Connection>,
    faults: Faults,
    /// The folder is ours as long as this is; last, so that it is freed when all is written.
    _lock: File,
}

impl Database {
    fn open(path: PathBuf, lock: File, faults: Faults) -> Result<Self, OpenError> {
        let mut connection = connect(&path).map_err(|problem| problem.opening(&path))?;
        schema::prepare(&mut connection, &path)?;
        Ok(Self {
            path,
            connection: Some(connection),
            faults,
            _lock: lock,
        })
    }

    /// Makes all changes durable, or none.
    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.path).map_err(|problem| problem.at(&self.path))?,
        };
        write(&mut connection, changes, &self.faults).map_err(|problem| problem.at(&self.path))?;
        self.connection = Some(connection);
        Ok(())
    }
}

/// The file must exist: one that was removed meanwhile is not silently replaced by an empty one.
fn connect(path: &Path) -> Result<Connection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Every commit is synced, not only every checkpoint; on macOS, down to the disk.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "fullfsync", true)?;
    Ok(connection)
}

/// How long to wait for an operator's own transaction on the file.
const BUSY: Duration = Duration::from_secs(5);

fn write(
    connection: &mut Connection,
    changes: &[Change],
    faults: &Faults,
) -> Result<(), SqliteError> {
    faults.next_call()?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for change in changes {
        faults.next_call()?;
        apply(&transaction, change)?;
    }
    faults.next_call()?;
    transaction.commit()?;
    Ok(())
}

fn apply(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Gate(gate) => gates::write(transaction, gate),
        Change::ForgetGate { key } => gates::forget(transaction, key),
        Change::ForgetGatesBefore(at) => gates::forget_before(transaction, *at),
        Change::Endpoint(endpoint) => endpoints::write(transaction, endpoint),
        Change::ForgetEndpoint { pool, name } => endpoints::forget(transaction, pool, name),
        Change::Protection { pool, protection } => {
            settings::protect(transaction, pool, protection.as_ref())
        }
        Change::EndpointAdded(endpoint) => settings::add(transaction, endpoint),
        Change::EndpointRemoved { pool, name } => settings::remove(transaction, pool, name),
        Change::EndpointAsConfigured { pool, name } => {
            settings::as_configured(transaction, pool, name)
        }
        Change::Rotated(rotated) => settings::rotate(transaction, rotated),
        Change::ForgetRotated { credential } => settings::forget_rotated(transaction, credential),
    }
}

/// All of it, as of one moment.
fn read(transaction: &Transaction<'_>) -> Result<StoredState, SqliteError> {
    Ok(StoredState {
        gates: gates::read(transaction)?,
        endpoints: endpoints::read(transaction)?,
        protections: settings::protections(transaction)?,
        added: settings::added(transaction)?,
        removed: settings::removed(transaction)?,
        rotated: settings::rotated(transaction)?,
    })
}

/// A length of time for a column. The longest is 292 years, which is never.
fn nanoseconds(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// The length of time of a column; what cannot be is none.
fn duration(nanoseconds: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}
