//! A number that only grows.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts. Relaxed: a sum needs no order, and nothing is read by means of it.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn increment(&self) {
        self.add(1);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
