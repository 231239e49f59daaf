//! Connections to one target that a worker has open and nobody uses.
//!
//! The one that was used last is taken first, so that those which are not needed grow old and are
//! closed. A connection over HTTP/2 carries many requests at once and stays.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::time::Instant;

use super::connect::{Connection, One};
use super::replay::RequestBody;

/// Connections to one target that one worker has open.
#[derive(Debug, Default)]
pub(super) struct Lane {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Option<http2::SendRequest<RequestBody>>>,
}

#[derive(Debug)]
struct Idle {
    one: One,
    since: Instant,
}

/// More than a gate lets out at once by default; what is beyond is closed.
const MOST_IDLE: usize = 256;

impl Lane {
    /// A connection that can be used now.
    pub(super) async fn take(&self, idle_timeout: Duration) -> Option<Connection> {
        if let Some(sender) = self.shared() {
            return Some(Connection::Two(sender));
        }
        loop {
            let mut idle = lock(&self.idle).pop()?;
            if idle.since.elapsed() >= idle_timeout {
                // Those below have lain there for longer still.
                lock(&self.idle).clear();
                return None;
            }
            // It may need a moment to see that its last answer is over, or that it was closed.
            if idle.one.sender.ready().await.is_ok() {
                return Some(Connection::One(idle.one));
            }
        }
    }

    /// A connection whose last answer is over.
    pub(super) fn put(&self, connection: Connection) {
        match connection {
            Connection::One(one) => {
                let mut idle = lock(&self.idle);
                if idle.len() < MOST_IDLE && !one.sender.is_closed() {
                    let since = Instant::now();
                    idle.push(Idle { one, since });
                }
            }
            Connection::Two(_) => {}
        }
    }

    /// A connection that many can use at once.
    pub(super) fn share(&self, sender: http2::SendRequest<RequestBody>) {
        *lock(&self.shared) = Some(sender);
    }

    /// Closes what nobody has used for a while, and forgets what was closed by the other side.
    pub(super) fn close_idle(&self, idle_timeout: Duration) {
        let is_fine =
            |idle: &Idle| !idle.one.sender.is_closed() && idle.since.elapsed() < idle_timeout;
        lock(&self.idle).retain(is_fine);
    }

    fn shared(&self) -> Option<http2::SendRequest<RequestBody>> {
        let mut shared = lock(&self.shared);
        if shared.as_ref().is_some_and(http2::SendRequest::is_closed) {
            *shared = None;
        }
        shared.clone()
    }
}

/// Nothing that can panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
