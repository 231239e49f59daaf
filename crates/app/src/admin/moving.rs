//! Moves the operations of a data folder into the database that is configured, or back.

use store::StoreError;
use store::operations::{OperationQueue, move_all};
use tidegate::Clock;

use super::client::FolderError;
use crate::settings::Settings;
use crate::state::open_store;

/// Where operations are moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveTarget {
    /// The database of `storage.operations`.
    Database,
    /// The data folder.
    Folder,
}

/// Why operations were not moved, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The settings name no database.
    #[error("`storage.operations` names no database, expected the address of one")]
    NoDatabase,
    /// The folder or the database cannot be used.
    #[error(transparent)]
    Open(#[from] FolderError),
    /// Servers deliver operations at this moment.
    #[error("{0} operations are being sent by servers, expected none")]
    Running(u64),
    /// It was interrupted half-way.
    #[error("not all operations were moved; moving them again goes on")]
    Store(#[from] StoreError),
}

/// Moves all operations, and returns how many. No server may use the folder or the database.
///
/// # Errors
///
/// If something runs or fails. Every operation is then in one of both places, or in both: moving them
/// again goes on.
pub async fn move_operations(settings: &Settings, to: MoveTarget) -> Result<usize, MoveError> {
    if settings.storage.operations.is_none() {
        return Err(MoveError::NoDatabase);
    }
    let store = open_store(settings).map_err(|error| {
        let folder = settings.server.data.display().to_string();
        FolderError::of(error, folder)
    })?;
    let now = Clock::system().wall();
    let (folder, database) = (store.own_operations(), store.operations());
    for queue in [&folder, &database] {
        // The process that was sending them has ended.
        queue.recover(now).await?;
        // Those of servers that were killed are taken back, too, once their leases have ended.
        queue.sweep(now, 1000).await?;
        check_idle(&**queue)?;
    }
    let (from, to) = match to {
        MoveTarget::Database => (folder, database),
        MoveTarget::Folder => (database, folder),
    };
    Ok(move_all(&*from, &*to, now, BATCH).await?)
}

/// So many are moved in one transaction.
const BATCH: usize = 200;

fn check_idle(queue: &dyn OperationQueue) -> Result<(), MoveError> {
    match queue.counts().running {
        0 => Ok(()),
        running => Err(MoveError::Running(running)),
    }
}
