//! The database, for the one thread that writes: one transaction for everything that waits.
//!
//! Calls of a kind share statements: all settled claims of a transaction are read by one, and all
//! claims of a lane take their operations by one, which passes over rows that other nodes hold
//! (`FOR UPDATE SKIP LOCKED`). If the transaction fails, every call is made in one of its own, so that
//! a call fails only for what is wrong with itself.
//!
//! Without a connection every call fails until there is one again. Attempts to connect are spread, so
//! that a fleet does not come back all at once. Whether a transaction was committed whose connection
//! broke meanwhile is not known: its calls have failed, and what they may have claimed is in no
//! heartbeat, so it is taken back when its lease ends.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::operation::OperationState;
use policy::time::WallTime;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::address::DatabaseAddress;
use super::call::Call;
use super::connection::Connection;
use super::notifications::Notifications;
use super::problem::PostgresError;
use super::{jobs, operations, pools, schema};
use crate::change::Change;
use crate::error::{OpenError, StoreError};
use crate::faulty::Faults;
use crate::jobs::JobTotals;
use crate::operations::{Lane, OperationCounts};
use crate::queue::{Finished, Taken};
use crate::seal::Keys;
use crate::writer::Database;

#[derive(Debug)]
pub(super) struct PostgresDatabase {
    runtime: Runtime,
    link: Link,
}

/// What a process is to the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    /// The data folder, over all restarts.
    pub(super) node: i64,
    /// This opening of the store. Positive, as a number of the database.
    pub(super) session: u64,
}

impl Identity {
    pub(super) fn new(node: u64) -> Self {
        Self {
            node: (node >> 1).cast_signed(),
            session: random() >> 1,
        }
    }
}

/// The connection, and what makes the next one.
#[derive(Debug)]
struct Link {
    address: DatabaseAddress,
    faults: Faults,
    keys: Keys,
    identity: Identity,
    /// `None` after it broke.
    connection: Option<Connection>,
    outage: Option<Outage>,
    counts: Arc<Counts>,
    notifications: Arc<Notifications>,
}

/// How many operations and jobs there are, as of the last commit.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<KnownCounts>);

#[derive(Debug, Default)]
struct KnownCounts {
    operations: OperationCounts,
    jobs: JobTotals,
    /// When they were last read from the database, which has those of all nodes.
    read_at: Option<Instant>,
}

/// How often the counts of other nodes are read.
const READ_COUNTS: Duration = Duration::from_secs(1);

impl Counts {
    pub(super) fn operations(&self) -> OperationCounts {
        self.lock().operations
    }

    pub(super) fn jobs(&self) -> JobTotals {
        self.lock().jobs
    }

    fn lock(&self) -> MutexGuard<'_, KnownCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since a connection could not be made.
#[derive(Debug)]
struct Outage {
    failures: u32,
    next_attempt: Instant,
    error: StoreError,
}

/// The wait after the first failure, which doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(4);

impl Outage {
    fn after(last: Option<Self>, error: StoreError) -> Self {
        let failures = last.map_or(0, |last| last.failures.saturating_add(1));
        let doubled = FIRST_WAIT.saturating_mul(1 << failures.min(8));
        let share = 0.5 + (random() % 1024) as f64 / 1024.0;
        let wait = doubled.min(LONGEST_WAIT).mul_f64(share);
        Self {
            failures,
            next_attempt: Instant::now() + wait,
            error,
        }
    }
}

/// Random bits.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

impl PostgresDatabase {
    pub(super) fn open(
        address: DatabaseAddress,
        keys: Keys,
        faults: Faults,
        identity: Identity,
        notifications: Arc<Notifications>,
        now: impl Fn() -> WallTime,
    ) -> Result<Self, OpenError> {
        let runtime = runtime().map_err(|source| OpenError::Io {
            path: address.to_string().into(),
            source,
        })?;
        let connection = runtime.block_on(async {
            let connecting = Connection::open(&address, &faults, |_| {}).await;
            let connection = connecting.map_err(|problem| problem.opening(&address))?;
            schema::prepare(&connection, &address, now).await?;
            only_node(&connection, &address, identity).await?;
            Ok::<_, OpenError>(connection)
        })?;
        let mut link = Link {
            address,
            faults,
            keys,
            identity,
            connection: Some(connection),
            outage: None,
            counts: Arc::default(),
            notifications,
        };
        let counted = runtime.block_on(link.transact(&[], &mut []));
        counted.map_err(|problem| problem.opening(&link.address))?;
        Ok(Self { runtime, link })
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.link.counts
    }
}

/// Makes sure that no other process has this node's number, as one with a copy of its folder would.
/// The connection of a process that has just ended may be there for a moment.
async fn only_node(
    connection: &Connection,
    address: &DatabaseAddress,
    identity: Identity,
) -> Result<(), OpenError> {
    for _ in 0..LOCK_ATTEMPTS {
        let locked = lock_node(connection, identity).await;
        if locked.map_err(|problem| problem.opening(address))? {
            return Ok(());
        }
        sleep(LOCK_WAIT).await;
    }
    Err(OpenError::Database {
        server: address.to_string(),
        reason: "another server with the number of this node is connected to it".to_owned(),
        hint: "the data folder was copied: delete the file `node` in the copy",
    })
}

const LOCK_ATTEMPTS: u32 = 25;
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// Locks the number of this node for as long as the connection lasts; whether that was possible.
async fn lock_node(connection: &Connection, identity: Identity) -> Result<bool, PostgresError> {
    let sql = "SELECT pg_try_advisory_lock($1)";
    let rows = connection.query(sql, &[&identity.node]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// A runtime for the one thread that it is used on.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl Database for PostgresDatabase {
    type Call = Call;
    type Done = (Call, Result<(), StoreError>);

    fn write(&mut self, taken: Taken<Call>) -> (Finished, Vec<Self::Done>) {
        let Taken { changes, mut calls } = taken;
        let written = self.link.write(&changes, &mut calls);
        let Written {
            results,
            changed,
            degraded,
        } = self.runtime.block_on(written);
        let is_lost = |(call, result): &(&Call, &Result<(), StoreError>)| {
            result.is_err() || call.has_failed()
        };
        let mut lost = calls.iter().zip(&results).filter(is_lost).count();
        if changed.is_err() {
            lost += changes.len();
        }
        let finished = Finished {
            changes: changed,
            written: calls.len() + changes.len() - lost,
            lost,
            degraded,
        };
        (finished, calls.into_iter().zip(results).collect())
    }

    fn reply((call, result): Self::Done) {
        call.finish(result);
    }
}

impl Link {
    async fn write(&mut self, changes: &[Change], calls: &mut [Call]) -> Written {
        match self.transact(changes, calls).await {
            Ok(()) => Written {
                results: vec![Ok(()); calls.len()],
                changed: Ok(()),
                degraded: None,
            },
            Err(problem)
                if calls.len() + usize::from(!changes.is_empty()) > 1
                    && self.connection.is_some() =>
            {
                drop(problem);
                self.write_each(changes, calls).await
            }
            Err(problem) => {
                let is_serious = problem.is_serious();
                let error = problem.at(&self.address);
                Written {
                    results: vec![Err(error.clone()); calls.len()],
                    degraded: is_serious.then(|| error.clone()),
                    changed: match changes.is_empty() {
                        true => Ok(()),
                        false => Err(error),
                    },
                }
            }
        }
    }

    async fn write_each(&mut self, changes: &[Change], calls: &mut [Call]) -> Written {
        let mut degraded = None;
        let mut note = |problem: PostgresError, address: &DatabaseAddress| {
            let is_serious = problem.is_serious();
            let error = problem.at(address);
            if is_serious && degraded.is_none() {
                degraded = Some(error.clone());
            }
            error
        };
        let changed = match changes.is_empty() {
            true => Ok(()),
            false => self.transact(changes, &mut []).await,
        };
        let changed = changed.map_err(|problem| note(problem, &self.address));
        let mut results = Vec::new();
        for call in calls {
            let result = self.transact(&[], std::slice::from_mut(call)).await;
            results.push(result.map_err(|problem| note(problem, &self.address)));
        }
        Written {
            results,
            changed,
            degraded,
        }
    }

    /// Makes all changes and calls in one transaction.
    async fn transact(
        &mut self,
        changes: &[Change],
        calls: &mut [Call],
    ) -> Result<(), PostgresError> {
        self.begin().await?;
        let Some(connection) = self.connection.take() else {
            return Err(PostgresError::Silent);
        };
        let reads_all = calls.iter().any(|call| matches!(call, Call::Recover(_)));
        let longest = if reads_all { RECOVERY } else { TRANSACTION };
        let mut making = Box::pin(self.make(&connection, changes, calls));
        let made = match timeout(longest, &mut making).await {
            Ok(made) => made,
            // If it was this process that stood still, the answer has been here for a while.
            Err(_) => {
                let made = timeout(STANDSTILL, &mut making).await;
                made.unwrap_or(Err(PostgresError::Silent))
            }
        };
        drop(making);
        let is_usable = match &made {
            Ok(_) => true,
            Err(problem) if problem.breaks_connection() => false,
            Err(_) => connection.batch("ROLLBACK").await.is_ok(),
        };
        if is_usable {
            self.connection = Some(connection);
        }
        let done = made?;
        let mut counts = self.counts.lock();
        match done.counts {
            Some(all) => {
                counts.operations = all;
                counts.read_at = Some(Instant::now());
            }
            None => done.deltas.add_to(&mut counts.operations),
        }
        if let Some(jobs) = done.jobs {
            counts.jobs = jobs;
        }
        drop(counts);
        self.notifications.announce(done.ready);
        if !changes.is_empty() {
            self.notifications.announce_pools();
        }
        if done.announces_jobs {
            self.notifications.announce_jobs();
        }
        Ok(())
    }

    /// Begins a transaction. A connection that turns out to be broken is replaced once: nothing was
    /// done on it yet.
    async fn begin(&mut self) -> Result<(), PostgresError> {
        if let Some(connection) = &self.connection {
            match timeout(TRANSACTION, connection.batch("BEGIN")).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(problem)) if !problem.breaks_connection() => return Err(problem),
                Ok(Err(_)) => self.connection = None,
                Err(_) => {
                    self.connection = None;
                    return Err(PostgresError::Silent);
                }
            }
        }
        let connection = self.connect().await?;
        connection.batch("BEGIN").await?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&mut self) -> Result<Connection, PostgresError> {
        if let Some(outage) = &self.outage
            && Instant::now() < outage.next_attempt
        {
            return Err(outage.error.clone().into());
        }
        match Connection::open(&self.address, &self.faults, |_| {}).await {
            Ok(connection) => {
                self.outage = None;
                // The last connection may still have it.
                lock_node(&connection, self.identity).await?;
                Ok(connection)
            }
            Err(problem) => {
                let error = problem.at(&self.address);
                self.outage = Some(Outage::after(self.outage.take(), error.clone()));
                Err(error.into())
            }
        }
    }

    async fn make(
        &self,
        connection: &Connection,
        changes: &[Change],
        calls: &mut [Call],
    ) -> Result<Done, PostgresError> {
        for change in changes {
            pools::write(connection, self.identity.session, change).await?;
        }
        let mut work = Work {
            connection,
            address: &self.address,
            keys: &self.keys,
            node: self.identity.node,
            session: self.identity.session,
            deltas: Deltas::default(),
            ready: BTreeMap::new(),
            changes_jobs: false,
            announces_jobs: false,
        };
        operations::make(&mut work, calls).await?;
        let node = work.node;
        operations::add_counts(connection, node, work.deltas).await?;
        let read_at = self.counts.lock().read_at;
        let counts = match read_at {
            Some(at) if at.elapsed() < READ_COUNTS => None,
            _ => Some(operations::counts(connection).await?),
        };
        let jobs = match counts.is_some() || work.changes_jobs {
            true => Some(jobs::totals(connection).await?),
            false => None,
        };
        connection.batch("COMMIT").await?;
        Ok(Done {
            counts,
            jobs,
            announces_jobs: work.announces_jobs,
            deltas: work.deltas,
            ready: work.ready,
        })
    }
}

/// How long a transaction may take. One that waits for a server that has gone is not finished sooner
/// by waiting longer.
const TRANSACTION: Duration = Duration::from_secs(10);

/// How long it takes to read an answer that has arrived.
const STANDSTILL: Duration = Duration::from_millis(200);

/// The same at the start, when all that is pending is read: ten million operations take some seconds.
const RECOVERY: Duration = Duration::from_secs(120);

/// The results of what was taken.
struct Written {
    /// Of every call.
    results: Vec<Result<(), StoreError>>,
    /// Of all changes.
    changed: Result<(), StoreError>,
    /// Why the store is degraded, if it is.
    degraded: Option<StoreError>,
}

/// What a transaction has done besides its calls.
struct Done {
    counts: Option<OperationCounts>,
    jobs: Option<JobTotals>,
    announces_jobs: bool,
    deltas: Deltas,
    ready: BTreeMap<Lane, WallTime>,
}

/// What calls work with.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) connection: &'a Connection,
    pub(super) address: &'a DatabaseAddress,
    pub(super) keys: &'a Keys,
    pub(super) node: i64,
    /// Names the leases of this process.
    pub(super) session: u64,
    pub(super) deltas: Deltas,
    /// Lanes in which something is due that was not before, for the other nodes.
    pub(super) ready: BTreeMap<Lane, WallTime>,
    /// Whether jobs have changed their status.
    pub(super) changes_jobs: bool,
    /// Whether other nodes should look for jobs.
    pub(super) announces_jobs: bool,
}

impl Work<'_> {
    /// An error of one call.
    pub(super) fn error(&self, problem: PostgresError) -> StoreError {
        problem.at(self.address)
    }
}

/// By how much the number of operations in each state has changed, in the order of
/// [`OperationCounts::all`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deltas(pub(super) [i64; 7]);

impl Deltas {
    pub(super) fn moved(&mut self, from: OperationState, to: OperationState) {
        self.change(from, -1);
        self.change(to, 1);
    }

    pub(super) fn change(&mut self, state: OperationState, by: i64) {
        let counts = OperationCounts::default().all();
        let place = counts.iter().position(|(word, _)| *word == state.as_str());
        if let Some(place) = place {
            self.0[place] += by;
        }
    }

    fn add_to(self, counts: &mut OperationCounts) {
        for (delta, count) in self.0.into_iter().zip(fields(counts)) {
            *count = count.saturating_add_signed(delta);
        }
    }
}

/// The counts in the order of [`OperationCounts::all`].
pub(super) fn fields(counts: &mut OperationCounts) -> [&mut u64; 7] {
    let OperationCounts {
        available,
        running,
        retryable,
        completed,
        failed,
        conflict,
        cancelled,
    } = counts;
    [
        available, running, retryable, completed, failed, conflict, cancelled,
    ]
}
