//! Connections that anyone can open, and that have not shown yet that they are of use: without a
//! credential, or without a whole TLS handshake. Their number is bounded. If further ones had to wait,
//! those who open many and do nothing would keep all others out: the oldest is closed for the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All connections that can be closed for others, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ReplaceableConnections(Mutex<Entered>);

#[derive(Debug, Default)]
struct Entered {
    next: u64,
    connections: BTreeMap<u64, Arc<Notify>>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct ReplaceableConnection {
    number: u64,
    closed: Arc<Notify>,
    all: Arc<ReplaceableConnections>,
}

impl ReplaceableConnections {
    /// A new connection.
    pub(crate) fn add(all: &Arc<Self>) -> ReplaceableConnection {
        let closed = Arc::new(Notify::new());
        let mut entered = all.lock();
        let number = entered.next;
        entered.next += 1;
        entered.connections.insert(number, Arc::clone(&closed));
        ReplaceableConnection {
            number,
            closed,
            all: Arc::clone(all),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Closes the oldest, if there is one.
    pub(crate) fn close_oldest(&self) {
        if let Some((_, closed)) = self.lock().connections.pop_first() {
            closed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplaceableConnection {
    /// It is of use, and is not closed for others any more.
    pub(crate) fn leave(&self) {
        self.all.lock().connections.remove(&self.number);
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl Drop for ReplaceableConnection {
    fn drop(&mut self) {
        self.leave();
    }
}
