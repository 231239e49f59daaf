//! The clock of a tokio runtime, so that tests can pause it.

use std::task::Waker;
use std::time::Duration;

use ::tokio::runtime::Handle;
use ::tokio::task::AbortHandle;
use ::tokio::time::{Instant, sleep_until};
use policy::time::{Timestamp, WallTime};

use super::{after, system_wall};

pub(super) struct Tokio {
    runtime: Handle,
    origin: Instant,
    wall_origin: WallTime,
}

impl Tokio {
    pub(super) fn new() -> Self {
        Self {
            runtime: Handle::current(),
            origin: Instant::now(),
            wall_origin: system_wall(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    pub(super) fn wall(&self) -> WallTime {
        after(self.wall_origin, self.origin.elapsed())
    }

    pub(super) fn arm(&self, at: Timestamp, waker: Waker) -> AbortHandle {
        let wait = at.since(Timestamp::ZERO).min(MAX_SLEEP);
        let at = self.origin + wait;
        let task = self.runtime.spawn(async move {
            sleep_until(at).await;
            waker.wake();
        });
        task.abort_handle()
    }
}

/// Thirty years, the limit of tokio's timers.
const MAX_SLEEP: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
