//! What waits to be exported as spans: a bounded queue that never makes a request wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{FinishedAttempt, FinishedRequest, FinishedWork};

/// What is exported as spans.
#[derive(Debug)]
pub(crate) enum Finished {
    /// A request of the data plane, with its attempts.
    Request(Box<FinishedRequest>),
    /// An attempt of an operation or of a fetch.
    Attempt(FinishedAttempt),
    /// An operation or a URL.
    Work(FinishedWork),
}

/// What waits for the exporter.
#[derive(Debug)]
pub(crate) struct SpanQueue {
    /// The share of traces that begin here and are exported.
    pub(crate) sample: f64,
    waiting: Mutex<VecDeque<Finished>>,
    dropped: AtomicU64,
    /// Exports that the collector did not accept, of spans and of metrics.
    failures: [AtomicU64; 2],
    /// A batch is full.
    is_full: Notify,
}

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Spans of requests, operations and fetches, and of their attempts.
    Spans,
    /// What is counted and measured.
    Metrics,
}

impl Signal {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Spans, Self::Metrics];

    /// The word for it in logs and metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Spans => "spans",
            Self::Metrics => "metrics",
        }
    }
}

impl SpanQueue {
    /// How many may wait. With a collector that does not respond this is a few seconds of a busy
    /// server, and at most some 20 MB.
    pub(crate) const MAX_QUEUED: usize = 4096;

    /// How many are exported at once.
    pub(crate) const MAX_BATCH: usize = 512;

    pub(crate) fn new(sample: f64) -> Self {
        Self {
            sample,
            waiting: Mutex::default(),
            dropped: AtomicU64::new(0),
            failures: Default::default(),
            is_full: Notify::new(),
        }
    }

    /// Takes what has ended, or drops it if there is no room.
    pub(crate) fn push(&self, finished: Finished) {
        let mut waiting = self.lock();
        if waiting.len() >= Self::MAX_QUEUED {
            drop(waiting);
            self.count_dropped(1);
            return;
        }
        waiting.push_back(finished);
        let is_full = waiting.len() == Self::MAX_BATCH;
        drop(waiting);
        if is_full {
            self.is_full.notify_one();
        }
    }

    /// The next to export.
    pub(crate) fn take_batch(&self) -> Vec<Finished> {
        let mut waiting = self.lock();
        let count = waiting.len().min(Self::MAX_BATCH);
        waiting.drain(..count).collect()
    }

    /// Whether a whole batch waits.
    pub(crate) fn has_batch(&self) -> bool {
        self.lock().len() >= Self::MAX_BATCH
    }

    /// Waits until a batch is full.
    pub(crate) async fn filled(&self) {
        self.is_full.notified().await;
    }

    /// How many have no spans at the collector.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn count_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// How many exports the collector did not accept.
    pub(crate) fn failures(&self, signal: Signal) -> u64 {
        self.failures[signal as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count_failure(&self, signal: Signal) {
        self.failures[signal as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Finished>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
