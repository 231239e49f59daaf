//! The file, for the one thread that writes: one transaction for everything that waits, with a
//! savepoint for each call.
//!
//! A call that fails, such as by a row that cannot be read, goes back to its savepoint: nothing of it
//! is left, and the calls around it are committed. Only what fails the transaction itself, such as a
//! disk that is full, fails all of them. The next transaction then begins with a new connection, for
//! what is broken may be the file handle.

use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, Params, TransactionBehavior};

use super::problem::SqliteError;
use super::{Connect, apply, connect, connect_alone, folder, jobs, operations, schema};
use crate::call::Reply;
use crate::change::Change;
use crate::error::{OpenError, StoreError};
use crate::faulty::Faults;
use crate::jobs::JobTotals;
use crate::operations::OperationCounts;
use crate::queue::{Finished, Taken};
use crate::seal::Keys;
use crate::writer::Database;

#[derive(Debug)]
pub(super) struct SqliteDatabase {
    path: PathBuf,
    /// `None` after a write that failed, and if the disk was full at the start.
    connection: Option<Connection>,
    faults: Faults,
    keys: Keys,
    session: u64,
    counts: Arc<Counts>,
    /// The folder is ours as long as this is; last, so that it is freed when all is written.
    _lock: File,
}

/// How many operations and jobs there are, as of the last commit.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<(OperationCounts, JobTotals)>);

impl Counts {
    pub(super) fn operations(&self) -> OperationCounts {
        self.lock().0
    }

    pub(super) fn jobs(&self) -> JobTotals {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (OperationCounts, JobTotals)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SqliteDatabase {
    pub(super) fn open(
        path: PathBuf,
        mut lock: File,
        keys: Keys,
        faults: Faults,
    ) -> Result<Self, OpenError> {
        let (connection, counts) = match prepare(connect, &path) {
            // What is stored is read all the same, and the first write makes another connection.
            Err(OpenError::Store(StoreError::DiskFull { .. })) => {
                (None, prepare(connect_alone, &path)?.1)
            }
            prepared => prepared.map(|(connection, counts)| (Some(connection), counts))?,
        };
        folder::note_database(&mut lock);
        Ok(Self {
            path,
            connection,
            faults,
            keys,
            // Random, and positive as a number of SQLite.
            session: RandomState::new().hash_one(0) >> 1,
            counts: Arc::new(Counts(Mutex::new(counts))),
            _lock: lock,
        })
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Makes the disk of this connection full at `pages`.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: i64) {
        let connection = self.connection.as_ref().unwrap();
        let set = connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
        set.unwrap();
    }

    fn transact(
        &mut self,
        changes: &[Change],
        calls: &mut [BoxedCall],
    ) -> Result<Results, SqliteError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connection = connect(&self.path)?;
                prepare_for_writing(&connection)?;
                none.insert(connection)
            }
        };
        self.faults.next_call()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (counts, jobs) = *self.counts.lock();
        let mut work = Work {
            connection: &transaction,
            keys: &self.keys,
            faults: &self.faults,
            session: self.session,
            counts,
            jobs,
        };
        let changes = match changes {
            [] => Ok(()),
            changes => work.savepoint(|work| work.change(changes))?,
        };
        let calls: Result<Vec<_>, SqliteError> = calls
            .iter_mut()
            .map(|call| work.savepoint(|work| call.run(work)))
            .collect();
        let results = Results {
            changes,
            calls: calls?,
        };
        if results
            .calls
            .iter()
            .chain([&results.changes])
            .all(Result::is_err)
        {
            return Ok(results);
        }
        self.faults.next_call()?;
        let counts = (work.counts, work.jobs);
        transaction.commit()?;
        *self.counts.lock() = counts;
        Ok(results)
    }
}

impl Database for SqliteDatabase {
    type Call = BoxedCall;
    type Done = FinishedCall;

    fn write(&mut self, taken: Taken<BoxedCall>) -> (Finished, Vec<FinishedCall>) {
        let Taken { changes, mut calls } = taken;
        let results = self.transact(&changes, &mut calls);
        let mut degraded = None;
        let mut at_path = |result: Result<(), SqliteError>| {
            result.map_err(|problem| {
                let is_serious = problem.is_serious();
                let error = problem.at(&self.path);
                if is_serious && degraded.is_none() {
                    degraded = Some(error.clone());
                }
                error
            })
        };
        let (changed, results): (_, Vec<_>) = match results {
            Ok(results) => {
                let changed = at_path(results.changes);
                (changed, results.calls.into_iter().map(at_path).collect())
            }
            Err(problem) => {
                let error = at_path(Err(problem));
                (error.clone(), vec![error; calls.len()])
            }
        };
        let lost = results.iter().filter(|result| result.is_err()).count();
        let written = calls.len() - lost;
        let finished = Finished {
            written: written + if changed.is_ok() { changes.len() } else { 0 },
            lost: lost + if changed.is_ok() { 0 } else { changes.len() },
            changes: changed,
            degraded,
        };
        if finished.degraded.is_some() {
            self.connection = None;
        }
        (finished, calls.into_iter().zip(results).collect())
    }

    fn reply((call, result): FinishedCall) {
        call.finish(result);
    }
}

/// The result of each part of a transaction, if that was committed.
struct Results {
    changes: Result<(), SqliteError>,
    calls: Vec<Result<(), SqliteError>>,
}

/// A connection to the file, with all its tables, and how much is in it.
fn prepare(
    connect: Connect,
    path: &Path,
) -> Result<(Connection, (OperationCounts, JobTotals)), OpenError> {
    let opening = |problem: SqliteError| problem.opening(path);
    let mut connection = connect(path).map_err(opening)?;
    schema::prepare(&mut connection, path)?;
    let operations = operations::count(&connection).map_err(opening)?;
    let jobs = jobs::count(&connection).map_err(opening)?;
    prepare_for_writing(&connection).map_err(opening)?;
    Ok((connection, (operations, jobs)))
}

fn prepare_for_writing(connection: &Connection) -> Result<(), SqliteError> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(())
}

/// More than there are.
const STATEMENTS: usize = 128;

/// Enough for the indexes of ids and keys of a million operations.
const CACHE_KIB: i64 = 32 << 10;

/// The log is copied into the file when it has 32 MiB: pages that changed often meanwhile, as those
/// of indexes do, are copied once.
const CHECKPOINT_PAGES: i64 = 8192;

/// What a call works with.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) connection: &'a Connection,
    pub(super) keys: &'a Keys,
    /// Names the leases of this process.
    pub(super) session: u64,
    /// As they will be after the commit.
    pub(super) counts: OperationCounts,
    /// As they will be after the commit.
    pub(super) jobs: JobTotals,
    faults: &'a Faults,
}

impl Work<'_> {
    /// Writes by a statement, and returns how many rows it has changed.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, SqliteError> {
        self.faults.next_call()?;
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    fn change(&self, changes: &[Change]) -> Result<(), SqliteError> {
        for change in changes {
            self.faults.next_call()?;
            apply(self.connection, self.keys, change)?;
        }
        Ok(())
    }

    /// Does all of something or nothing. The outer error is one that has ended the transaction.
    fn savepoint(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), SqliteError>,
    ) -> Result<Result<(), SqliteError>, SqliteError> {
        self.control("SAVEPOINT call")?;
        let counts = (self.counts, self.jobs);
        let result = run(self);
        match &result {
            Ok(()) => {}
            Err(_) if self.connection.is_autocommit() => return result.map(Ok),
            Err(_) => {
                (self.counts, self.jobs) = counts;
                self.control("ROLLBACK TO call")?;
            }
        }
        self.control("RELEASE call")?;
        Ok(result)
    }

    fn control(&self, sql: &str) -> Result<(), SqliteError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// A call, whatever its result.
pub(super) trait Call: Send {
    /// Does the work.
    fn run(&mut self, work: &mut Work<'_>) -> Result<(), SqliteError>;

    /// Gives its result to the caller: the value of the work, if that is durable.
    fn finish(self: Box<Self>, result: Result<(), StoreError>);
}

pub(super) type BoxedCall = Box<dyn Call>;

pub(super) type FinishedCall = (BoxedCall, Result<(), StoreError>);

impl fmt::Debug for dyn Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

/// A call that a function does.
pub(super) struct FunctionCall<T, F> {
    function: Option<F>,
    value: Option<T>,
    reply: Reply<T>,
}

impl<T, F> FunctionCall<T, F> {
    pub(super) fn new(function: F, reply: Reply<T>) -> Self {
        Self {
            function: Some(function),
            value: None,
            reply,
        }
    }
}

impl<T, F> Call for FunctionCall<T, F>
where
    T: Send,
    F: FnOnce(&mut Work<'_>) -> Result<T, SqliteError> + Send,
{
    fn run(&mut self, work: &mut Work<'_>) -> Result<(), SqliteError> {
        if let Some(function) = self.function.take() {
            self.value = Some(function(work)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, result: Result<(), StoreError>) {
        let value = self.value.ok_or(StoreError::Stopped);
        self.reply.give(result.and(value));
    }
}
