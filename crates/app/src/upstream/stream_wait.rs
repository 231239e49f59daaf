//! Waiting for a stream of HTTP/2 when all are in use. That says nothing about the server: it is a wait of
//! the request like that at a gate, and ends with the time that the client is willing to wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::time::Timestamp;
use tidegate::Clock;
use tokio::time::{Instant, timeout};

use super::error::SendError;

/// How long the attempts of a request may wait for streams, and how long they have.
#[derive(Debug, Default)]
pub struct StreamWait<'a> {
    until: Option<(&'a Clock, Timestamp)>,
    nanoseconds: AtomicU64,
}

impl<'a> StreamWait<'a> {
    /// Until this time of this clock. By default each attempt waits as long as for a response.
    pub fn until(clock: &'a Clock, until: Timestamp) -> Self {
        Self {
            until: Some((clock, until)),
            ..Self::default()
        }
    }

    /// How long they have waited, all together.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// Waits until `freed` is ready, for at most `longest`.
    pub(super) async fn wait_for(
        &self,
        freed: impl Future<Output = ()>,
        longest: Duration,
    ) -> Result<(), SendError> {
        let left = match self.until {
            Some((clock, until)) => until.since(clock.now()),
            None => longest,
        };
        let began = Instant::now();
        let freed = timeout(left.min(longest), freed).await;
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(waited, Ordering::Relaxed);
        freed.map_err(|_| SendError::no_stream())
    }
}
