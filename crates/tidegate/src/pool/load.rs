//! The load of an endpoint, and successes that are returned without the pool's lock.
//!
//! Nearly every response is a success of an endpoint without errors. It changes nothing but the
//! number of requests in flight and that of successes, so it is only counted here, and the pool adds
//! it up when it locks its state for another reason. So a request takes the lock of its pool once,
//! to choose an endpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::outcome::Verdict;

use crate::sync::{AtomicBool, AtomicU32};

/// Shared by the pool, the permits of one endpoint and the bodies that are being read from it.
///
/// Nothing else is published with these values, so all accesses are relaxed. A thread that has seen
/// an error being settled sees that the endpoint is not clear any more.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Successes that the pool has not counted yet.
    returned: AtomicU32,
    /// Responses whose bodies are being read.
    bodies: AtomicU32,
    /// Whether the ladder is clear, so that a success changes nothing but counts.
    is_clear: AtomicBool,
}

impl Load {
    /// Counts a plain success. Returns `false` if the pool has to do so.
    #[inline]
    pub(super) fn count_success(&self, verdict: Option<Verdict>) -> bool {
        let is_plain = verdict == Some(Verdict::Success) && self.is_clear.load(Ordering::Relaxed);
        if is_plain {
            self.returned.fetch_add(1, Ordering::Relaxed);
        }
        is_plain
    }

    /// The load of the endpoint if the pool counts `leased` attempts: those in flight and the bodies
    /// that are being read.
    #[inline]
    pub(super) fn in_flight(&self, leased: u32) -> u32 {
        let bodies = self.bodies.load(Ordering::Relaxed);
        self.attempts(leased).saturating_add(bodies)
    }

    /// The attempts in flight if the pool counts `leased`.
    #[inline]
    pub(super) fn attempts(&self, leased: u32) -> u32 {
        leased.saturating_sub(self.returned.load(Ordering::Relaxed))
    }

    /// Whether so many successes were returned that it is time to count them.
    #[inline]
    pub(super) fn has_many_returned(&self) -> bool {
        self.returned.load(Ordering::Relaxed) >= MANY_RETURNED
    }

    /// The successes to count. Call it with the pool's lock.
    pub(super) fn take_returned(&self) -> u32 {
        self.returned.swap(0, Ordering::Relaxed)
    }

    /// Says whether the ladder is clear. Call it with the pool's lock, after every change.
    pub(super) fn set_clear(&self, is_clear: bool) {
        self.is_clear.store(is_clear, Ordering::Relaxed);
    }
}

/// Counts one response whose body is being read.
pub(crate) struct BodyGuard(Arc<Load>);

impl BodyGuard {
    pub(super) fn new(load: &Arc<Load>) -> Self {
        load.bodies.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }
}

impl Drop for BodyGuard {
    fn drop(&mut self) {
        self.0.bodies.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Often enough that the counters are far from their ends, and seldom enough to cost nothing.
const MANY_RETURNED: u32 = 1024;
