//! What must survive a restart: in memory, or in one SQLite file.
//!
//! A gate that learned its rate, an endpoint that is paused, what a person changed at run time.
//! [`Store::load`] reads all of it at start; afterwards every change is passed to [`Store::save`],
//! which never waits: it puts the change in a queue and gives back a [`SaveFuture`], ready when the
//! change is durable. Callers that need durability await it, the others drop it.
//!
//! Records hold lengths of time and no instants, next to the calendar's time at which they were
//! written. What has passed since then is taken off when they are read again: [`age`].
//!
//! Operations are requests that were accepted for durable delivery. They are too many to be loaded:
//! [`Store::operations`] is a queue of them ([`operations`]).
//!
//! Jobs are fetches that run in the server: [`Store::jobs`].
//!
//! Secrets are stored where there is no other place for them: in the requests and responses of
//! operations, in the requests of jobs, and as refresh tokens that a server issued in place of configured ones
//! ([`RotatedToken`]). With [`Keys`] they are encrypted. A header of an endpoint is a [`Reference`] to
//! a secret.
//!
//! ```
//! use policy::time::WallTime;
//! use store::{Change, StoredEndpoint, Store};
//!
//! let store = Store::memory();
//! let endpoint = StoredEndpoint {
//!     pool: "llm".to_owned(),
//!     name: "a".to_owned(),
//!     record: Default::default(),
//!     at: WallTime::from_unix_millis(1_700_000_000_000),
//! };
//! store.save(Change::Endpoint(endpoint.clone())).wait()?;
//! assert_eq!(store.load()?.endpoints, [endpoint]);
//! # Ok::<(), store::StoreError>(())
//! ```

pub mod age;
mod call;
mod change;
mod error;
#[cfg(any(test, feature = "faults"))]
pub mod faulty;
#[cfg(not(any(test, feature = "faults")))]
#[expect(unreachable_pub, reason = "public with the feature `faults`")]
mod faulty;
pub mod jobs;
mod memory;
pub mod operations;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(all(feature = "postgres", unix, any(test, feature = "faults")))]
pub mod private_postgres;
#[cfg(all(feature = "redis", unix, any(test, feature = "faults")))]
pub mod private_redis;
mod queue;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod save;
mod seal;
mod sqlite;
mod writer;

#[cfg(test)]
mod conformance;

use std::path::Path;
use std::sync::Arc;

pub use change::Change;
pub use error::{OpenError, StoreError};
#[cfg(feature = "postgres")]
pub use postgres::{AddressError, DatabaseAddress};
pub use queue::MAX_QUEUED;
pub use record::{
    AddedEndpoint, InvalidReference, Protection, Reference, RemovedEndpoint, RotatedToken,
    SharedEndpoint, SharedPools, StoredEndpoint, StoredGate, StoredState,
};
#[cfg(feature = "redis")]
pub use redis::{
    FleetError, FleetMember, FleetMessage, FleetOpenError, FleetServer, GatesAddress,
    GatesAddressError, KeyCall, Membership, NodeShare, SyncReply,
};
pub use save::SaveFuture;
pub use seal::{KeyError, Keys};

use jobs::{JobFiles, JobStore};
use memory::Memory;
use operations::OperationQueue;
use policy::time::WallTime;
#[cfg(feature = "postgres")]
use postgres::Postgres;
use sqlite::Sqlite;

/// A store. Cheap to clone; all clones are one store.
///
/// When the last clone goes, what is still queued is written first. That may take as long as the
/// disk takes; callers that must not block await [`Store::flush`] first.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
    /// Where operations and jobs are instead, and what is stored about pools, if other machines share them.
    #[cfg(feature = "postgres")]
    shared: Option<Arc<Postgres>>,
}

#[derive(Clone, Debug)]
enum Backend {
    Memory(Arc<Memory>),
    Sqlite(Arc<Sqlite>),
}

/// How a store is doing, for metrics and for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// Why changes are being lost: the last write failed, or the queue is full. `None` once a
    /// write has succeeded again.
    pub degraded: Option<StoreError>,
    /// Changes, at most [`MAX_QUEUED`], and calls about operations and jobs that wait to be written.
    pub queued: usize,
    /// Changes and calls written since the start.
    pub written: u64,
    /// Changes and calls lost since the start: refused by a full queue, or part of a write that
    /// failed. Their callers have got an error.
    pub lost: u64,
}

impl StoreState {
    fn and(self, other: Self) -> Self {
        Self {
            degraded: self.degraded.or(other.degraded),
            queued: self.queued + other.queued,
            written: self.written + other.written,
            lost: self.lost + other.lost,
        }
    }
}

impl Store {
    /// A store with the same behaviour whose contents end with the process.
    pub fn memory() -> Self {
        Self::of_memory(Memory::default())
    }

    /// The store in `folder/tidegate.db`. What is missing is created, readable by its owner only.
    /// Blocks as long as the disk takes.
    ///
    /// One process at a time has a folder; a second one gets an error. A file that cannot be used is
    /// left as it is, whatever is wrong with it.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        Self::open_encrypted(folder, Keys::none())
    }

    /// [`Store::open`], with keys for what is encrypted: requests, responses and conflicts of
    /// operations, requests of jobs, and refresh tokens. What was stored without a key stays readable.
    pub fn open_encrypted(folder: &Path, keys: Keys) -> Result<Self, OpenError> {
        Sqlite::open(folder, keys, faulty::Faults::none()).map(Self::of_sqlite)
    }

    /// [`Store::open`], with faults to come.
    #[cfg(any(test, feature = "faults"))]
    pub fn open_faulty(folder: &Path, faults: faulty::Faults) -> Result<Self, OpenError> {
        Sqlite::open(folder, Keys::none(), faults).map(Self::of_sqlite)
    }

    /// [`Store::memory`], with faults to come.
    #[cfg(any(test, feature = "faults"))]
    pub fn memory_faulty(faults: faulty::Faults) -> Self {
        Self::of_memory(Memory::with(faults))
    }

    /// [`Store::open_encrypted`], with operations, jobs, states of endpoints and run-time changes of pools in
    /// a database that several machines share. Everything else stays in the folder, which also names this machine to the others. `now` is the time of
    /// this machine, which must be that of the database within seconds.
    #[cfg(feature = "postgres")]
    pub fn open_shared(
        folder: &Path,
        keys: Keys,
        address: DatabaseAddress,
        now: impl Fn() -> WallTime + Send,
    ) -> Result<Self, OpenError> {
        Self::open_shared_faulty(folder, keys, address, now, faulty::Faults::none())
    }

    #[cfg(feature = "postgres")]
    fn open_shared_faulty(
        folder: &Path,
        keys: Keys,
        address: DatabaseAddress,
        now: impl Fn() -> WallTime + Send,
        faults: faulty::Faults,
    ) -> Result<Self, OpenError> {
        let mut store = Self::open_encrypted(folder, keys.clone())?;
        let node = postgres::node(folder)?;
        let shared = Postgres::open(address, keys, faults, node, now)?;
        store.shared = Some(Arc::new(shared));
        Ok(store)
    }

    fn of_memory(memory: Memory) -> Self {
        Self::of(Backend::Memory(Arc::new(memory)))
    }

    fn of_sqlite(sqlite: Sqlite) -> Self {
        Self::of(Backend::Sqlite(Arc::new(sqlite)))
    }

    fn of(backend: Backend) -> Self {
        Self {
            backend,
            #[cfg(feature = "postgres")]
            shared: None,
        }
    }

    /// The queue of operations in this store.
    pub fn operations(&self) -> Arc<dyn OperationQueue> {
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            return Arc::clone(shared) as _;
        }
        self.own_operations()
    }

    /// Whether other machines use the same queue of operations.
    pub fn shares_operations(&self) -> bool {
        #[cfg(feature = "postgres")]
        if self.shared.is_some() {
            return true;
        }
        false
    }

    /// The queue of operations in the folder, which is another one if they are shared.
    pub fn own_operations(&self) -> Arc<dyn OperationQueue> {
        match &self.backend {
            Backend::Memory(memory) => Arc::clone(memory) as _,
            Backend::Sqlite(sqlite) => Arc::clone(sqlite) as _,
        }
    }

    /// The jobs in this store.
    pub fn jobs(&self) -> Arc<dyn JobStore> {
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            return Arc::clone(shared) as _;
        }
        self.own_jobs()
    }

    /// Files of jobs that other machines share; `None` if each has its own.
    pub fn job_files(&self) -> Option<Arc<dyn JobFiles>> {
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            return Some(Arc::clone(shared) as _);
        }
        None
    }

    /// The jobs in the folder, which are others if they are shared.
    pub fn own_jobs(&self) -> Arc<dyn JobStore> {
        match &self.backend {
            Backend::Memory(memory) => Arc::clone(memory) as _,
            Backend::Sqlite(sqlite) => Arc::clone(sqlite) as _,
        }
    }

    /// Everything that is stored, as it was written. Waits for changes that are queued, and blocks
    /// as long as the disk takes: it is meant for the start.
    ///
    /// What is shared is as of the time of this machine that `now` returns.
    pub fn load_at(&self, now: impl FnOnce() -> WallTime) -> Result<StoredState, StoreError> {
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            let mut stored = self.load()?;
            let pools = operations::wait(shared.pools())?;
            let now = now();
            let endpoints = pools.endpoints.iter();
            stored.endpoints = endpoints.map(|it| it.stored_at(now)).collect();
            stored.protections = pools.protections;
            stored.added = pools.added;
            stored.removed = pools.removed;
            return Ok(stored);
        }
        drop(now);
        self.load()
    }

    /// Everything that is stored in the folder, as it was written.
    pub fn load(&self) -> Result<StoredState, StoreError> {
        match &self.backend {
            Backend::Memory(memory) => memory.load(),
            Backend::Sqlite(sqlite) => sqlite.load(),
        }
    }

    /// What other machines share about pools; `None` if they share nothing.
    pub fn shared_pools(&self) -> Option<operations::QueueFuture<SharedPools>> {
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            return Some(shared.pools());
        }
        None
    }

    /// Calls `listener` whenever another machine may have changed something about pools.
    pub fn listen_to_pools(&self, listener: Box<dyn Fn() + Send + Sync>) {
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            return shared.listen_to_pools(listener);
        }
        drop(listener);
    }

    /// Queues a change. Does not wait for the disk.
    ///
    /// Changes are written in the order in which they were saved. Of several records of one gate
    /// or endpoint that wait together, only the last is written. A change that failed is not tried
    /// again: callers that need it save it again, and records of gates are saved again anyway.
    pub fn save(&self, change: Change) -> SaveFuture {
        self.save_all([change])
    }

    /// Queues several changes that are written together: after a crash all of them are there, or
    /// none. More than [`MAX_QUEUED`] at once are refused. What is shared and what is not are written
    /// apart: the future is ready when both are.
    pub fn save_all(&self, changes: impl IntoIterator<Item = Change>) -> SaveFuture {
        let changes: Vec<Change> = changes.into_iter().collect();
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            let (pools, own): (Vec<Change>, Vec<Change>) =
                changes.into_iter().partition(Change::is_about_pools);
            let saved = shared.save(pools);
            return saved.and(self.save_own(own));
        }
        self.save_own(changes)
    }

    fn save_own(&self, changes: Vec<Change>) -> SaveFuture {
        match &self.backend {
            Backend::Memory(memory) => memory.save(changes),
            Backend::Sqlite(sqlite) => sqlite.save(changes),
        }
    }

    /// Ready when everything saved before has been written or has failed. Its result is that of
    /// what was still under way.
    pub fn flush(&self) -> SaveFuture {
        let own = match &self.backend {
            Backend::Memory(_) => SaveFuture::ready(Ok(())),
            Backend::Sqlite(sqlite) => sqlite.flush(),
        };
        #[cfg(feature = "postgres")]
        if let Some(shared) = &self.shared {
            return shared.flush().and(own);
        }
        own
    }

    /// How it is doing, with the database that is shared.
    pub fn state(&self) -> StoreState {
        let own = self.own_state();
        match self.shared_state() {
            Some(shared) => own.and(shared),
            None => own,
        }
    }

    /// How the database is doing that is shared; `None` without one.
    pub fn shared_state(&self) -> Option<StoreState> {
        #[cfg(feature = "postgres")]
        let shared = self.shared.as_ref().map(|shared| shared.state());
        #[cfg(not(feature = "postgres"))]
        let shared = None;
        shared
    }

    /// How it is doing without what is shared.
    pub fn own_state(&self) -> StoreState {
        match &self.backend {
            Backend::Memory(memory) => memory.state(),
            Backend::Sqlite(sqlite) => sqlite.state(),
        }
    }

    /// Are changes being lost?
    pub fn is_degraded(&self) -> bool {
        self.state().degraded.is_some()
    }
}
