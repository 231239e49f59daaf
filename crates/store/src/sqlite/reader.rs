//! Threads that read operations, each with a connection of its own: neither the writer nor an async
//! caller waits for a read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::connect;
use super::problem::SqliteError;
use crate::call::reply;
use crate::error::StoreError;
use crate::faulty::Faults;
use crate::operations::QueueFuture;
use crate::seal::Keys;
use crate::writer::join;

/// One thread may be busy with a long list while the other looks up single operations.
const THREADS: usize = 2;

/// At most this many reads wait.
const MAX_READS: usize = 1024;

pub(super) struct Readers {
    /// `None` at the end.
    reads: Option<SyncSender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

type Read = Box<dyn FnOnce(&mut Reader) + Send>;

impl Readers {
    pub(super) fn start(path: &Path, keys: &Keys, faults: &Faults) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(MAX_READS);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut readers = Self {
            reads: Some(sender),
            threads: Vec::new(),
        };
        for _ in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            let reader = Reader {
                path: path.to_owned(),
                connection: None,
                keys: keys.clone(),
                faults: faults.clone(),
            };
            let thread = thread::Builder::new()
                .name("tidegate-reader".to_owned())
                .spawn(move || read_all(&receiver, reader))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Reads on one of the threads, as of one moment.
    pub(super) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection, &Keys) -> Result<T, SqliteError> + Send + 'static,
    ) -> QueueFuture<T> {
        let (reply, future) = reply();
        let read: Read = Box::new(move |reader| reply.give(reader.read(read)));
        match self.reads.as_ref().map(|reads| reads.try_send(read)) {
            Some(Err(TrySendError::Full(_))) => {
                let error = StoreError::QueueFull { queued: MAX_READS };
                Box::pin(std::future::ready(Err(error)))
            }
            // A read that was not taken fails as it is dropped.
            Some(Err(TrySendError::Disconnected(_)) | Ok(())) | None => future,
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
            join(Some(thread));
        }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}

struct Reader {
    path: PathBuf,
    /// `None` before the first read, and after one that failed.
    connection: Option<Connection>,
    keys: Keys,
    faults: Faults,
}

impl Reader {
    fn read<T>(
        &mut self,
        read: impl FnOnce(&Connection, &Keys) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
        let result = self.try_read(read);
        if result.as_ref().is_err_and(SqliteError::is_serious) {
            self.connection = None;
        }
        result.map_err(|problem| problem.at(&self.path))
    }

    fn try_read<T>(
        &mut self,
        read: impl FnOnce(&Connection, &Keys) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        self.faults.next_call()?;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connection = connect(&self.path)?;
                connection.pragma_update(None, "query_only", true)?;
                connection.set_prepared_statement_cache_capacity(STATEMENTS);
                none.insert(connection)
            }
        };
        let transaction = connection.unchecked_transaction()?;
        let value = read(&transaction, &self.keys)?;
        transaction.commit()?;
        Ok(value)
    }
}

/// More than there are.
const STATEMENTS: usize = 64;

fn read_all(reads: &Mutex<Receiver<Read>>, mut reader: Reader) {
    loop {
        let read = reads.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match read {
            Ok(read) => read(&mut reader),
            Err(_) => return,
        }
    }
}
