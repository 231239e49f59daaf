//! Operations, jobs, and what is shared about pools, in a Postgres database of several machines: the only place
//! besides `sqlite` that speaks SQL.
//!
//! One thread writes: it takes all calls that have gathered and makes them in one transaction, as the
//! one for SQLite does, so that the cost of a commit is shared. Another thread reads, and exchanges
//! messages with the other nodes.
//!
//! Every value has a column, in tables of the schema `tidegate`, so that
//! `select state, count(*) from tidegate.operations group by 1` answers an operator's question.

mod address;
mod call;
mod connection;
mod database;
mod jobs;
mod notifications;
mod operations;
mod pools;
mod problem;
mod reader;
mod schema;
mod text;
mod tls;

#[cfg(test)]
mod tests;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use policy::time::WallTime;

pub use address::{AddressError, DatabaseAddress};
pub(crate) use notifications::PoolListener;

use crate::StoreState;
use crate::change::Change;
use crate::error::OpenError;
use crate::faulty::Faults;
use crate::operations::QueueFuture;
use crate::record::SharedPools;
use crate::save::SaveFuture;
use crate::seal::Keys;
use crate::writer::Writer;
use call::Call;
use database::{Counts, Identity, PostgresDatabase};
use notifications::Notifications;
use reader::Reader;

#[derive(Debug)]
pub(crate) struct Postgres {
    counts: Arc<Counts>,
    notifications: Arc<Notifications>,
    reader: Reader,
    writer: Writer<Call>,
    session: u64,
}

impl Postgres {
    pub(crate) fn open(
        address: DatabaseAddress,
        keys: Keys,
        faults: Faults,
        node: u64,
        now: impl Fn() -> WallTime + Send,
    ) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            path: address.to_string().into(),
            source,
        };
        let identity = Identity::new(node);
        let notifications = Arc::new(Notifications::default());
        let open = || {
            let (address, keys, faults) = (address.clone(), keys.clone(), faults.clone());
            PostgresDatabase::open(
                address,
                keys,
                faults,
                identity,
                Arc::clone(&notifications),
                now,
            )
        };
        // On a thread of its own, because the caller may be a task of another runtime.
        let opened = thread::scope(|scope| scope.spawn(open).join());
        let database = opened.map_err(|_| io(io::Error::other("a thread has panicked")))??;
        let counts = Arc::clone(database.counts());
        let reader = Reader::start(&address, keys, faults, identity, Arc::clone(&notifications))
            .map_err(io)?;
        let writer = Writer::start(database).map_err(io)?;
        Ok(Self {
            counts,
            notifications,
            reader,
            writer,
            session: identity.session,
        })
    }

    /// Queues changes of what is shared about pools.
    pub(crate) fn save(&self, changes: Vec<Change>) -> SaveFuture {
        self.writer.queue().save(changes)
    }

    pub(crate) fn flush(&self) -> SaveFuture {
        self.writer.queue().flush()
    }

    /// What is shared about pools.
    pub(crate) fn pools(&self) -> QueueFuture<SharedPools> {
        let session = self.session;
        self.reader
            .read(async move |connection, _| pools::read(&connection, session).await)
    }

    /// Calls `listener` whenever another node may have changed something about pools.
    pub(crate) fn listen_to_pools(&self, listener: PoolListener) {
        self.notifications.set_pool_listener(listener);
    }

    pub(crate) fn state(&self) -> StoreState {
        self.writer.queue().state()
    }
}

/// The number of the node with this data folder, which is made at its first start.
pub(crate) fn node(folder: &Path) -> Result<u64, OpenError> {
    let path = folder.join("node");
    let number = || match fs::read_to_string(&path) {
        Ok(text) => u64::from_str_radix(text.trim(), 16).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let number = RandomState::new().hash_one(0);
            fs::write(&path, format!("{number:016x}\n"))?;
            Ok(number)
        }
        Err(error) => Err(error),
    };
    number().map_err(|source| OpenError::Io {
        path: path.clone(),
        source,
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
