//! Connections that have shown no credential yet. There is room for so many connections, and whoever can
//! connect could take it all: when it is used up, the oldest of these makes room for the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All connections without a credential, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Entered>);

#[derive(Debug, Default)]
struct Entered {
    next: u64,
    connections: BTreeMap<u64, Arc<Notify>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Stranger {
    number: u64,
    closed: Arc<Notify>,
    strangers: Arc<Strangers>,
}

impl Strangers {
    /// A new connection.
    pub(super) fn enter(strangers: &Arc<Self>) -> Stranger {
        let closed = Arc::new(Notify::new());
        let mut entered = strangers.lock();
        let number = entered.next;
        entered.next += 1;
        entered.connections.insert(number, Arc::clone(&closed));
        Stranger {
            number,
            closed,
            strangers: Arc::clone(strangers),
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

impl Stranger {
    /// It has shown a credential, and stays.
    pub(super) fn is_known(&self) {
        self.strangers.lock().connections.remove(&self.number);
    }

    /// Waits until it is closed.
    pub(super) async fn is_closed(&self) {
        self.closed.notified().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.is_known();
    }
}
