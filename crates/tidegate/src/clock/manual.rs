//! A clock for tests: time advances only when the test says so.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use policy::time::{Timestamp, WallTime};

use super::alarms::{AlarmKey, Alarms};
use super::{Clock, TasksRun, after};
use crate::sync::{Mutex, lock};
use crate::waking::wake;

/// A clock that the test advances. Advancing it wakes everything that waits on its [`Clock`], in
/// time order, each at exactly its own time.
///
/// Its wall time starts at 2026-01-01T00:00:00Z in every run.
#[derive(Clone)]
pub struct ManualClock(Arc<Manual>);

impl ManualClock {
    /// Creates a clock at its origin.
    pub fn new() -> Self {
        Self(Arc::new(Manual {
            state: Mutex::new(State {
                now: Timestamp::ZERO,
                advance: None,
                alarms: Alarms::new(),
            }),
        }))
    }

    /// The clock to pass to the code under test.
    pub fn clock(&self) -> Clock {
        Clock::manual(Arc::clone(&self.0))
    }

    /// Advances time. Asks in line are admitted at their own times, however far that is. Woken tasks
    /// run when their executor schedules them, and see the new time.
    pub fn advance(&self, by: Duration) {
        let target = self.0.now() + by;
        self.advance_to(target);
    }

    /// Advances time to `target`. Time never goes back.
    pub fn advance_to(&self, target: Timestamp) {
        {
            let mut state = lock(&self.0.state);
            state.advance = Some(TasksRun {
                last: state.now,
                next: target.max(state.now),
            });
        }
        while let Some(waker) = self.0.step(target) {
            wake(waker);
        }
        lock(&self.0.state).advance = None;
    }

    /// When the next alarm is due: how far a test can advance without skipping one.
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
    /// The advance in progress, from when to when: tasks do not run in between.
    advance: Option<TasksRun>,
    alarms: Alarms,
}

impl Manual {
    pub(super) fn now(&self) -> Timestamp {
        lock(&self.state).now
    }

    pub(super) fn advance(&self) -> Option<TasksRun> {
        lock(&self.state).advance
    }

    pub(super) fn wall(&self) -> WallTime {
        const ORIGIN: WallTime = WallTime::from_unix_millis(1_767_225_600_000);
        after(ORIGIN, self.now().since(Timestamp::ZERO))
    }

    pub(super) fn arm(&self, at: Timestamp, waker: Waker) -> AlarmKey {
        lock(&self.state).alarms.insert(at, waker)
    }

    /// Fires alarms that were already due when set.
    pub(super) fn catch_up(&self) {
        while let Some(waker) = self.step(Timestamp::ZERO) {
            wake(waker);
        }
    }

    pub(super) fn disarm(&self, key: AlarmKey) {
        let waker = lock(&self.state).alarms.remove(key);
        drop(waker);
    }

    /// Advances to the next alarm and removes it, or to `target` if no alarm is due before that.
    /// Never goes back.
    fn step(&self, target: Timestamp) -> Option<Waker> {
        let mut state = lock(&self.state);
        let target = target.max(state.now);
        let next = state.alarms.next_at().unwrap_or(target);
        state.now = state.now.max(next.min(target));
        let now = state.now;
        state.alarms.pop_due(now)
    }
}
