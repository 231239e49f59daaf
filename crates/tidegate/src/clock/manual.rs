//! A clock for tests: time moves only when the test moves it.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use policy::time::{Timestamp, WallTime};

use super::alarms::{AlarmKey, Alarms};
use super::{Clock, after};
use crate::sync::{Mutex, lock};
use crate::waking::wake;

/// A clock that is moved by hand. What waits on its [`Clock`] is woken by the call that moves
/// it, in the order of their times, each at exactly its own.
///
/// It begins at an arbitrary moment of the calendar, 2026-01-01T00:00:00Z, which is the same in
/// every run.
#[derive(Clone)]
pub struct ManualClock(Arc<Manual>);

impl ManualClock {
    /// A clock at its origin.
    pub fn new() -> Self {
        Self(Arc::new(Manual {
            state: Mutex::new(State {
                now: Timestamp::ZERO,
                alarms: Alarms::new(),
            }),
        }))
    }

    /// The clock to hand to whatever is tested.
    pub fn clock(&self) -> Clock {
        Clock::manual(Arc::clone(&self.0))
    }

    /// Moves time on. Tasks that are woken run when their executor lets them; what they do then,
    /// they do at the new time.
    pub fn advance(&self, by: Duration) {
        let target = self.0.now() + by;
        self.advance_to(target);
    }

    /// Moves time on to `target`; it never goes back.
    pub fn advance_to(&self, target: Timestamp) {
        while let Some(waker) = self.0.step(target) {
            wake(waker);
        }
    }

    /// When the next alarm is due, if there is one: as far as a test may jump
    /// without missing anything.
    pub fn next_alarm(&self) -> Option<Timestamp> {
        lock(&self.0.state).alarms.next_at()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.0.now()).finish()
    }
}

pub(super) struct Manual {
    state: Mutex<State>,
}

struct State {
    now: Timestamp,
    alarms: Alarms,
}

impl Manual {
    pub(super) fn now(&self) -> Timestamp {
        lock(&self.state).now
    }

    pub(super) fn wall(&self) -> WallTime {
        const ORIGIN: WallTime = WallTime::from_unix_millis(1_767_225_600_000);
        after(ORIGIN, self.now().since(Timestamp::ZERO))
    }

    pub(super) fn arm(&self, at: Timestamp, waker: Waker) -> AlarmKey {
        lock(&self.state).alarms.insert(at, waker)
    }

    /// Rings what was set for a time that had come already.
    pub(super) fn catch_up(&self) {
        while let Some(waker) = self.step(Timestamp::ZERO) {
            wake(waker);
        }
    }

    pub(super) fn disarm(&self, key: AlarmKey) {
        let waker = lock(&self.state).alarms.remove(key);
        drop(waker);
    }

    /// Moves to the next alarm and takes it out, or to `target` if there is none before. Never
    /// back.
    fn step(&self, target: Timestamp) -> Option<Waker> {
        let mut state = lock(&self.state);
        let target = target.max(state.now);
        let next = state.alarms.next_at().unwrap_or(target);
        state.now = state.now.max(next.min(target));
        let now = state.now;
        state.alarms.pop_due(now)
    }
}
