//! Time: what it is now, on the wall too, and waiting for it.
//!
//! The three come from one [`Clock`], so that a test that moves one moves all: a clock that is
//! faked while the sleep is real makes tests that hang or lie. Everything in this crate waits by
//! [`Clock::sleep_until`] or by the same alarms below it, on absolute times.
//!
//! | clock | now | who wakes |
//! |---|---|---|
//! | [`Clock::system`] | the CPU's counter where it is steady, else the system's monotonic clock | a thread of its own, started by the first alarm |
//! | [`ManualClock`] | what the test says | the call that moves it |
//! | `Clock::tokio` (feature `tokio`) | the runtime's, which tests may pause | a task of the runtime |
//!
//! The system clock does not use a runtime's timers. Waiting works under every executor and
//! across several, a runtime that shuts down takes no timer with it, and a wait ends within
//! some 100 µs of its time where timer wheels have a tick of a millisecond.
//!
//! This is the only place that relates monotonic time to the calendar.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::time::{Timestamp, WallTime};

mod alarms;
mod manual;
mod system;
#[cfg(feature = "tokio")]
mod tokio;

pub use manual::ManualClock;

use alarms::AlarmKey;
use manual::Manual;
use system::System;

/// What time it is, and waiting for it. Cheap to clone; clones are the same clock.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Clock, ManualClock};
///
/// let manual = ManualClock::new();
/// let clock = manual.clock();
/// let before = clock.now();
/// manual.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System(Arc<System>),
    Manual(Arc<Manual>),
    #[cfg(feature = "tokio")]
    Tokio(Arc<tokio::Tokio>),
}

impl Clock {
    /// The machine's clock. One read takes some ten nanoseconds. The first alarm, which is the
    /// first wait or the first gate of a limiter, starts a thread that ends with the last clone.
    pub fn system() -> Self {
        Self(Source::System(System::new()))
    }

    /// The clock of the tokio runtime this is called in: paused when the runtime's time is, as in
    /// `#[tokio::test(start_paused = true)]`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one without timers, as everything of tokio's time does.
    #[cfg(feature = "tokio")]
    pub fn tokio() -> Self {
        Self(Source::Tokio(Arc::new(tokio::Tokio::new())))
    }

    fn manual(manual: Arc<Manual>) -> Self {
        Self(Source::Manual(manual))
    }

    /// What time it is, from an origin that this clock chose.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System(system) => system.now(),
            Source::Manual(manual) => manual.now(),
            #[cfg(feature = "tokio")]
            Source::Tokio(tokio) => tokio.now(),
        }
    }

    /// What the calendar says now.
    pub fn wall(&self) -> WallTime {
        match &self.0 {
            Source::System(_) => system_wall(),
            Source::Manual(manual) => manual.wall(),
            #[cfg(feature = "tokio")]
            Source::Tokio(tokio) => tokio.wall(),
        }
    }

    /// What the calendar will say, or said, at `at`.
    pub fn wall_at(&self, at: Timestamp) -> WallTime {
        let (now, wall) = (self.now(), self.wall());
        if at >= now {
            after(wall, at.since(now))
        } else {
            before(wall, now.since(at))
        }
    }

    /// Waits until `at`; at once if it has come.
    pub fn sleep_until(&self, at: Timestamp) -> Sleep {
        Sleep {
            clock: self.clone(),
            at,
            alarm: None,
        }
    }

    /// Calls `waker` once, at `at` or a little later, but never before this returns: the caller may
    /// hold a lock that the waker needs. Does not call it if the alarm is dropped before. If `at` may
    /// have passed already, call [`Clock::catch_up`] when the lock is free.
    pub(crate) fn alarm(&self, at: Timestamp, waker: Waker) -> Alarm {
        Alarm(match &self.0 {
            Source::System(system) => {
                let key = system.arm(at, waker);
                Armed::System(Arc::clone(system), key)
            }
            Source::Manual(manual) => {
                let key = manual.arm(at, waker);
                Armed::Manual(Arc::clone(manual), key)
            }
            #[cfg(feature = "tokio")]
            Source::Tokio(tokio) => Armed::Tokio(tokio.arm(at, waker)),
        })
    }

    /// Rings what was set for a time that had come already: a clock that is moved by hand does so
    /// only when told, the others do it by themselves.
    pub(crate) fn catch_up(&self) {
        if let Source::Manual(manual) = &self.0 {
            manual.catch_up();
        }
    }
}

impl Default for Clock {
    /// [`Clock::system`].
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Source::System(_) => "Clock::system",
            Source::Manual(_) => "ManualClock",
            #[cfg(feature = "tokio")]
            Source::Tokio(_) => "Clock::tokio",
        })
    }
}

/// Waits for a time, see [`Clock::sleep_until`]. Dropping it forgets the wait.
#[derive(Debug)]
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    clock: Clock,
    at: Timestamp,
    /// The alarm, and whom it wakes.
    alarm: Option<(Alarm, Waker)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            self.alarm = None;
            return Poll::Ready(());
        }
        let waker = context.waker();
        let is_set = self
            .alarm
            .as_ref()
            .is_some_and(|(_, woken)| woken.will_wake(waker));
        if !is_set {
            let alarm = self.clock.alarm(self.at, waker.clone());
            self.alarm = Some((alarm, waker.clone()));
            // Time may have been moved by hand meanwhile, and then no alarm is due.
            self.clock.catch_up();
        }
        Poll::Pending
    }
}

/// Something that will be called at a time, unless this is dropped first.
#[must_use = "an alarm that is dropped does not ring"]
pub(crate) struct Alarm(Armed);

enum Armed {
    System(Arc<System>, AlarmKey),
    Manual(Arc<Manual>, AlarmKey),
    #[cfg(feature = "tokio")]
    Tokio(::tokio::task::AbortHandle),
}

impl Drop for Alarm {
    fn drop(&mut self) {
        match &self.0 {
            Armed::System(system, key) => system.disarm(*key),
            Armed::Manual(manual, key) => manual.disarm(*key),
            #[cfg(feature = "tokio")]
            Armed::Tokio(task) => task.abort(),
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarm")
    }
}

fn system_wall() -> WallTime {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    WallTime::from_unix_millis(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    })
}

fn after(wall: WallTime, wait: Duration) -> WallTime {
    let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    WallTime::from_unix_millis(wall.as_unix_millis().saturating_add(millis))
}

fn before(wall: WallTime, passed: Duration) -> WallTime {
    let millis = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
    WallTime::from_unix_millis(wall.as_unix_millis().saturating_sub(millis))
}
