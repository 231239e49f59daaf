//! What has to be written soon: which gates and pools something happened to.
//!
//! The limiter tells of every event while somebody waits for an answer. So what is heard here is a
//! word in a set and no more: events of ordinary traffic are let go at once, and a gate that is
//! noted already costs a look. What the gate is like is read later, by whoever writes.
//!
//! The set has a bound. Beyond it nothing is lost: then all gates and pools are looked at.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::event::{Event, Listener};
use tidegate::{Clock, Timestamp};

/// What has to be written soon.
#[derive(Debug, Default)]
pub(super) struct Noted {
    state: Mutex<State>,
    /// Something was noted, or the end has come.
    has_come: Condvar,
    /// All is written.
    has_ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    notes: Notes,
    times_full: u64,
    is_over: bool,
    is_done: bool,
}

/// What was noted since the last look.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Keys of gates.
    pub(super) gates: HashSet<Box<str>>,
    /// Names of pools that have an endpoint to write.
    pub(super) pools: HashSet<Box<str>>,
    /// There were too many: all may have changed.
    pub(super) is_all: bool,
}

impl Notes {
    fn len(&self) -> usize {
        self.gates.len() + self.pools.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_all
    }
}

impl Noted {
    /// So many are noted one by one, some 200 KB of words. When more than that change between two
    /// writes, looking at all of them is no more work than looking at each.
    pub(super) const MOST: usize = 4096;

    /// The gate of this key.
    pub(super) fn gate(&self, key: &str) {
        self.note(key, |notes| &mut notes.gates);
    }

    /// An endpoint of this pool.
    pub(super) fn pool(&self, name: &str) {
        self.note(name, |notes| &mut notes.pools);
    }

    /// Everything may have changed.
    pub(super) fn all(&self) {
        self.lock().notes.is_all = true;
        self.has_come.notify_one();
    }

    /// What is left is to be written, and then it is over.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.has_come.notify_one();
    }

    /// Nobody writes any more.
    pub(super) fn done(&self) {
        self.lock().is_done = true;
        self.has_ended.notify_all();
    }

    /// Does nobody write any more?
    pub(super) fn is_done(&self) -> bool {
        self.lock().is_done
    }

    /// Waits until nobody writes any more, at most for so long.
    pub(super) fn wait_until_done(&self, at_most: Duration) {
        let state = self.lock();
        // Whether that was enough makes no difference to who leaves.
        _ = self
            .has_ended
            .wait_timeout_while(state, at_most, |state| !state.is_done);
    }

    /// How many are noted now, and how often there were too many.
    pub(super) fn count(&self) -> (usize, u64) {
        let state = self.lock();
        (state.notes.len(), state.times_full)
    }

    /// Waits until something is noted, it is `until`, or the end has come. `false` at the end.
    pub(super) fn wait(&self, clock: &Clock, until: Timestamp) -> (Notes, bool) {
        let mut state = self.lock();
        while state.notes.is_empty() && !state.is_over {
            let left = until.since(clock.now());
            if left.is_zero() {
                break;
            }
            let waited = self.has_come.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        (std::mem::take(&mut state.notes), !state.is_over)
    }

    /// What was noted, without waiting.
    pub(super) fn take(&self) -> Notes {
        std::mem::take(&mut self.lock().notes)
    }

    fn note(&self, word: &str, of: fn(&mut Notes) -> &mut HashSet<Box<str>>) {
        let mut state = self.lock();
        let is_full = state.notes.len() >= Self::MOST;
        let set = of(&mut state.notes);
        if set.contains(word) {
            return;
        }
        if is_full {
            state.times_full += u64::from(!state.notes.is_all);
            state.notes.is_all = true;
        } else {
            set.insert(word.into());
        }
        drop(state);
        self.has_come.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Noted {
    fn on_event(&self, _: Timestamp, event: &Event<'_>) {
        match *event {
            Event::HoldStarted { key, .. }
            | Event::BreakerOpened { key, .. }
            | Event::BreakerClosed { key } => self.gate(key),
            Event::EndpointPaused { pool, .. }
            | Event::EndpointDisabled { pool, .. }
            | Event::EndpointEnabled { pool, .. } => self.pool(pool),
            // Ordinary traffic, and rates: these are looked at every few seconds.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_twice_waits_once() {
        let noted = Noted::default();
        for _ in 0..3 {
            noted.gate("a");
            noted.pool("a");
        }
        assert_eq!(noted.count(), (2, 0));
        let notes = noted.take();
        assert_eq!((notes.gates.len(), notes.pools.len()), (1, 1));
        assert_eq!(noted.count(), (0, 0));
    }

    #[test]
    fn of_too_many_all_are_meant() {
        let noted = Noted::default();
        for number in 0..Noted::MOST + 9 {
            noted.gate(&number.to_string());
        }
        assert_eq!(noted.count(), (Noted::MOST, 1));
        assert!(noted.take().is_all);
        assert!(noted.take().is_empty());
    }

    #[test]
    fn ordinary_traffic_is_let_go() {
        let noted = Noted::default();
        let event = Event::Admitted {
            key: "a",
            waited: Duration::ZERO,
            is_probe: false,
        };
        noted.on_event(Timestamp::ZERO, &event);
        noted.on_event(Timestamp::ZERO, &Event::Abandoned { key: "a" });
        assert_eq!(noted.count(), (0, 0));
        noted.on_event(Timestamp::ZERO, &Event::BreakerClosed { key: "a" });
        assert_eq!(noted.count(), (1, 0));
    }

    #[test]
    fn the_end_is_told_with_what_was_noted() {
        let noted = Noted::default();
        noted.gate("a");
        noted.end();
        let (notes, goes_on) = noted.wait(&Clock::system(), Timestamp::MAX);
        assert_eq!((notes.gates.len(), goes_on), (1, false));
    }
}
