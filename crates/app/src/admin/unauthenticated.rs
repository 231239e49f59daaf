//! Connections that have shown no credential yet. The number of connections is bounded, and any local
//! program can open them: when all are in use, the oldest of these is closed for the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All connections without a credential, the oldest first.
#[derive(Debug, Default)]
pub(super) struct UnauthenticatedConnections(Mutex<Entered>);

#[derive(Debug, Default)]
struct Entered {
    next: u64,
    connections: BTreeMap<u64, Arc<Notify>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct UnauthenticatedConnection {
    number: u64,
    closed: Arc<Notify>,
    unauthenticated: Arc<UnauthenticatedConnections>,
}

impl UnauthenticatedConnections {
    /// A new connection.
    pub(super) fn add(unauthenticated: &Arc<Self>) -> UnauthenticatedConnection {
        let closed = Arc::new(Notify::new());
        let mut entered = unauthenticated.lock();
        let number = entered.next;
        entered.next += 1;
        entered.connections.insert(number, Arc::clone(&closed));
        UnauthenticatedConnection {
            number,
            closed,
            unauthenticated: Arc::clone(unauthenticated),
        }
    }

    /// Closes the oldest, if there is one.
    pub(super) fn close_oldest(&self) {
        if let Some((_, closed)) = self.lock().connections.pop_first() {
            closed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnauthenticatedConnection {
    /// It has shown a credential, and is not closed for others any more.
    pub(super) fn leave(&self) {
        self.unauthenticated.lock().connections.remove(&self.number);
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl Drop for UnauthenticatedConnection {
    fn drop(&mut self) {
        self.leave();
    }
}
