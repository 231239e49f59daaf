//! Gates and pools that have to be written soon.
//!
//! The limiter reports events while requests wait. So an event costs a lookup in a set and no more:
//! events of ordinary traffic are ignored, and only keys are remembered. The thread that writes
//! reads the records later.
//!
//! The set is bounded. When it is full nothing is lost: then all gates and pools are looked at.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::event::{Event, EventListener};
use tidegate::{Clock, Timestamp};

/// What has to be written soon.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<PendingState>,
    /// Signalled when a key is added, and at the end.
    added: Condvar,
    /// Signalled when everything is written.
    done: Condvar,
}

#[derive(Debug, Default)]
struct PendingState {
    keys: PendingKeys,
    overflows: u64,
    is_ending: bool,
    is_done: bool,
}

/// Keys since the last look.
#[derive(Debug, Default)]
pub(super) struct PendingKeys {
    /// Keys of gates.
    pub(super) gates: HashSet<Box<str>>,
    /// Names of pools that have an endpoint to write.
    pub(super) pools: HashSet<Box<str>>,
    /// There were too many: any may have changed.
    pub(super) is_all: bool,
}

impl PendingKeys {
    fn len(&self) -> usize {
        self.gates.len() + self.pools.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_all
    }
}

impl Pending {
    /// Keys that are remembered one by one, some 200 KB. When more change between two writes,
    /// looking at all gates is no more work than looking at each of these.
    pub(super) const MAX: usize = 4096;

    /// The gate of this key.
    pub(super) fn gate(&self, key: &str) {
        self.insert(key, |keys| &mut keys.gates);
    }

    /// An endpoint of this pool.
    pub(super) fn pool(&self, name: &str) {
        self.insert(name, |keys| &mut keys.pools);
    }

    /// Everything may have changed.
    pub(super) fn all(&self) {
        self.lock().keys.is_all = true;
        self.added.notify_one();
    }

    /// Asks the thread to write the rest and end.
    pub(super) fn end(&self) {
        self.lock().is_ending = true;
        self.added.notify_one();
    }

    /// The thread has ended.
    pub(super) fn done(&self) {
        self.lock().is_done = true;
        self.done.notify_all();
    }

    /// Has the thread ended?
    pub(super) fn is_done(&self) -> bool {
        self.lock().is_done
    }

    /// Waits until the thread has ended, for at most this long.
    pub(super) fn wait_until_done(&self, at_most: Duration) {
        let state = self.lock();
        // The caller continues either way.
        _ = self
            .done
            .wait_timeout_while(state, at_most, |state| !state.is_done);
    }

    /// How many keys there are, and how often there were too many.
    pub(super) fn count(&self) -> (usize, u64) {
        let state = self.lock();
        (state.keys.len(), state.overflows)
    }

    /// Waits until there is a key, until `until`, or for the end; `false` at the end.
    pub(super) fn wait(&self, clock: &Clock, until: Timestamp) -> (PendingKeys, bool) {
        let mut state = self.lock();
        while state.keys.is_empty() && !state.is_ending {
            let left = until.since(clock.now());
            if left.is_zero() {
                break;
            }
            let waited = self.added.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        (std::mem::take(&mut state.keys), !state.is_ending)
    }

    /// The keys there are, without waiting.
    pub(super) fn take(&self) -> PendingKeys {
        std::mem::take(&mut self.lock().keys)
    }

    fn insert(&self, key: &str, of: fn(&mut PendingKeys) -> &mut HashSet<Box<str>>) {
        let mut state = self.lock();
        let is_full = state.keys.len() >= Self::MAX;
        let set = of(&mut state.keys);
        if set.contains(key) {
            return;
        }
        if is_full {
            state.overflows += u64::from(!state.keys.is_all);
            state.keys.is_all = true;
        } else {
            set.insert(key.into());
        }
        drop(state);
        self.added.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventListener for Pending {
    fn on_event(&self, _: Timestamp, event: &Event<'_>) {
        match *event {
            Event::HoldStarted { key, .. }
            | Event::BreakerOpened { key, .. }
            | Event::BreakerClosed { key } => self.gate(key),
            Event::EndpointPaused { pool, .. }
            | Event::EndpointDisabled { pool, .. }
            | Event::EndpointEnabled { pool, .. } => self.pool(pool),
            // Ordinary traffic, and rates, which are looked at every few seconds.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_key_once() {
        let pending = Pending::default();
        for _ in 0..3 {
            pending.gate("a");
            pending.pool("a");
        }
        assert_eq!(pending.count(), (2, 0));
        let keys = pending.take();
        assert_eq!((keys.gates.len(), keys.pools.len()), (1, 1));
        assert_eq!(pending.count(), (0, 0));
    }

    #[test]
    fn overflow_means_all() {
        let pending = Pending::default();
        for number in 0..Pending::MAX + 9 {
            pending.gate(&number.to_string());
        }
        assert_eq!(pending.count(), (Pending::MAX, 1));
        assert!(pending.take().is_all);
        assert!(pending.take().is_empty());
    }

    #[test]
    fn ignores_ordinary_traffic() {
        let pending = Pending::default();
        let event = Event::Admitted {
            key: "a",
            waited: Duration::ZERO,
            is_probe: false,
        };
        pending.on_event(Timestamp::ZERO, &event);
        pending.on_event(Timestamp::ZERO, &Event::Abandoned { key: "a" });
        assert_eq!(pending.count(), (0, 0));
        pending.on_event(Timestamp::ZERO, &Event::BreakerClosed { key: "a" });
        assert_eq!(pending.count(), (1, 0));
    }

    #[test]
    fn returns_pending_keys_at_the_end() {
        let pending = Pending::default();
        pending.gate("a");
        pending.end();
        let (keys, is_running) = pending.wait(&Clock::system(), Timestamp::MAX);
        assert_eq!((keys.gates.len(), is_running), (1, false));
    }
}
