//! A store in one SQLite file, the only place that speaks SQL.
//!
//! One thread writes: it takes all that has gathered, puts it into one transaction and syncs once,
//! so a change is durable when its future is ready, and the cost of a sync is shared by all that
//! were saved while the last one was running. Every value has a column, so that
//! `sqlite3 tidegate.db 'select * from gates'` answers an operator's question; reading is possible
//! while the process runs.
//!
//! Operations are read by threads of their own, so that neither the writer nor an async caller waits
//! for a read.

mod database;
mod endpoints;
mod folder;
mod gates;
mod jobs;
mod operations;
mod problem;
mod reader;
mod schema;
mod settings;

#[cfg(unix)]
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction};

use crate::StoreState;
use crate::call::reply;
use crate::change::Change;
use crate::error::{OpenError, StoreError};
use crate::faulty::Faults;
use crate::operations::QueueFuture;
use crate::queue::Share;
use crate::record::StoredState;
use crate::save::SaveFuture;
use crate::seal::Keys;
use crate::writer::Writer;
use database::{BoxedCall, Counts, FunctionCall, SqliteDatabase, Work};
use problem::SqliteError;
use reader::Readers;

#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    keys: Keys,
    counts: Arc<Counts>,
    /// Before the writer, which has the lock of the folder.
    readers: Readers,
    writer: Writer<BoxedCall>,
}

impl Sqlite {
    pub(crate) fn open(folder: &Path, keys: Keys, faults: Faults) -> Result<Self, OpenError> {
        let (path, lock) = folder::prepare(folder)?;
        let io = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        let readers = Readers::start(&path, &keys, &faults).map_err(io)?;
        let database = SqliteDatabase::open(path.clone(), lock, keys.clone(), faults)?;
        let counts = Arc::clone(database.counts());
        let writer = Writer::start(database).map_err(io)?;
        Ok(Self {
            path,
            keys,
            counts,
            readers,
            writer,
        })
    }

    pub(crate) fn load(&self) -> Result<StoredState, StoreError> {
        // Changes that failed have reported it to their callers.
        let _ = self.flush().wait();
        let load = |connect: Connect| {
            let mut connection = connect(&self.path)?;
            read(&connection.transaction()?, &self.keys, &self.path)
        };
        let loaded = match load(connect) {
            Err(problem) if problem.is_full() => load(connect_alone),
            loaded => loaded,
        };
        loaded.map_err(|problem: SqliteError| problem.at(&self.path))
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

    /// Does `function` in the next transaction, with `bytes` to hold until then.
    fn call<T: Send + 'static>(
        &self,
        bytes: usize,
        share: Share,
        function: impl FnOnce(&mut Work<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> QueueFuture<T> {
        let (reply, future) = reply();
        let call = Box::new(FunctionCall::new(function, reply));
        if let Err((call, error)) = self.writer.queue().call(call, bytes + CALL_BYTES, share) {
            call.finish(Err(error));
        }
        future
    }
}

/// What a call takes besides its bodies and headers, roughly.
const CALL_BYTES: usize = 1024;

/// The file must exist: one that was removed meanwhile is not silently replaced by an empty one.
fn connect(path: &Path) -> Result<Connection, SqliteError> {
    open(path, false)
}

/// The same on a full disk, where no file can be made for the index of the log: it is kept in memory, and
/// nothing else can use the file until the connection is closed.
fn connect_alone(path: &Path) -> Result<Connection, SqliteError> {
    open(path, true)
}

/// One of both.
type Connect = fn(&Path) -> Result<Connection, SqliteError>;

fn open(path: &Path, is_alone: bool) -> Result<Connection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Before anything that reads.
    if is_alone {
        connection.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(()))?;
    }
    // Every commit is synced, not only every checkpoint; on macOS, down to the disk.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "fullfsync", true)?;
    // A plan does not depend on the values that are bound. Otherwise SQLite prepares a statement again
    // for every value, which takes longer than the statement itself.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// How long to wait for an operator's own transaction on the file.
const BUSY: Duration = Duration::from_secs(5);

fn apply(transaction: &Connection, keys: &Keys, change: &Change) -> Result<(), SqliteError> {
    let result = match change {
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
        Change::Rotated(rotated) => return settings::rotate(transaction, keys, rotated),
        Change::ForgetRotated { credential } => settings::forget_rotated(transaction, credential),
    };
    Ok(result?)
}

/// All of it, as of one moment.
fn read(
    transaction: &Transaction<'_>,
    keys: &Keys,
    path: &Path,
) -> Result<StoredState, SqliteError> {
    let (rotated, unreadable) = settings::rotated(transaction, keys)?;
    Ok(StoredState {
        gates: gates::read(transaction)?,
        endpoints: endpoints::read(transaction)?,
        protections: settings::protections(transaction)?,
        added: settings::added(transaction)?,
        removed: settings::removed(transaction)?,
        rotated,
        unreadable: unreadable
            .into_iter()
            .map(|problem| problem.at(path))
            .collect(),
    })
}

/// A limit as SQLite has it, where a negative one is none.
fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A length of time for a column. The longest is 292 years, which is never.
fn nanoseconds(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// The length of time of a column; what cannot be is none.
fn duration(nanoseconds: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}
