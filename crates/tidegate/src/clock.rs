//! Monotonic time, wall time and waiting.
//!
//! All three come from one [`Clock`], so that a test controls them together: a fake clock with real
//! sleeps leads to tests that hang or pass by accident. Everything in this crate waits with
//! [`Clock::sleep_until`] or the alarms behind it, on absolute times.
//!
//! | clock | now | woken by |
//! |---|---|---|
//! | [`Clock::system`] | the CPU's time-stamp counter if it is steady, else the system's monotonic clock | one thread for the whole process, started by the first alarm |
//! | [`ManualClock`] | set by the test | the call that advances it |
//! | `Clock::tokio` (feature `tokio`) | the runtime's clock, which tests can pause | a task of the runtime |
//! | [`Clock::custom`] | a [`TimeSource`] of the program | the same |
//!
//! The system clock does not use a runtime's timers. Waiting therefore works under every executor
//! and across several, survives the shutdown of a runtime, and ends within about 100 µs of its
//! time, where timer wheels tick once per millisecond.
//!
//! This is the only place that converts between monotonic and wall time.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
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

/// Reads the time and waits for it. Cheap to clone; clones share one clock.
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
    Custom(Arc<dyn TimeSource>),
}

/// A program's own time and timers, for [`Clock::custom`]: those of a browser, an embedded system or
/// a simulator.
pub trait TimeSource: Send + Sync + 'static {
    /// The time since some fixed origin. It never goes back.
    fn now(&self) -> Timestamp;

    /// The wall time. There is no default, because where a program needs a clock of its own,
    /// [`SystemTime::now`](std::time::SystemTime::now) may panic, as it does in WebAssembly.
    fn wall(&self) -> WallTime;

    /// Calls `waker` once, at `at` or slightly later, unless the returned guard is dropped first. It
    /// must not call it before returning: the caller holds a lock that the waker needs.
    fn wake_at(&self, at: Timestamp, waker: Waker) -> WakeGuard;
}

/// Cancels a wake-up when it is dropped.
pub type WakeGuard = Box<dyn Any + Send + Sync>;

impl Clock {
    /// The system's clock. A read takes about ten nanoseconds. The first alarm (the first wait, or
    /// the first gate of a limiter) starts a thread, which all clocks of the process share and which
    /// ends with the last of them.
    ///
    /// In WebAssembly there is no thread: alarms fire only when a gate is used, and outside of WASI the
    /// wall time panics. Use [`Clock::custom`] with the time and the timers of the host there.
    pub fn system() -> Self {
        Self(Source::System(System::shared()))
    }

    /// A clock with the time and the timers of `source`.
    pub fn custom(source: impl TimeSource) -> Self {
        Self(Source::Custom(Arc::new(source)))
    }

    /// The clock of the current tokio runtime. It is paused while the runtime's time is, as in
    /// `#[tokio::test(start_paused = true)]`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one without timers, like every tokio timer.
    #[cfg(feature = "tokio")]
    pub fn tokio() -> Self {
        Self(Source::Tokio(Arc::new(tokio::Tokio::new())))
    }

    fn manual(manual: Arc<Manual>) -> Self {
        Self(Source::Manual(manual))
    }

    /// The current time, relative to this clock's origin.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System(system) => system.now(),
            Source::Manual(manual) => manual.now(),
            #[cfg(feature = "tokio")]
            Source::Tokio(tokio) => tokio.now(),
            Source::Custom(source) => source.now(),
        }
    }

    /// The current wall time.
    pub fn wall(&self) -> WallTime {
        match &self.0 {
            Source::System(_) => system_wall(),
            Source::Manual(manual) => manual.wall(),
            #[cfg(feature = "tokio")]
            Source::Tokio(tokio) => tokio.wall(),
            Source::Custom(source) => source.wall(),
        }
    }

    /// The wall time at `at`, in the past or future.
    pub fn wall_at(&self, at: Timestamp) -> WallTime {
        let (now, wall) = (self.now(), self.wall());
        if at >= now {
            after(wall, at.since(now))
        } else {
            before(wall, now.since(at))
        }
    }

    /// Waits until `at`. Ready at once if that has passed.
    pub fn sleep_until(&self, at: Timestamp) -> Sleep {
        Sleep {
            clock: self.clone(),
            at,
            alarm: None,
        }
    }

    /// The output of `future`; `None` if it is not ready by `at`, when it is dropped. Sets no alarm
    /// if the future is ready at once or there is no bound.
    pub(crate) async fn bounded<F: Future>(
        &self,
        at: Option<Timestamp>,
        future: F,
    ) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut sleep = pin!(at.map(|at| self.sleep_until(at)));
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            match sleep.as_mut().as_pin_mut() {
                Some(sleep) => sleep.poll(context).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Calls `waker` once, at `at` or slightly later, unless the alarm is dropped first. It never
    /// calls it before returning, because the caller may hold a lock that the waker needs. If `at`
    /// may have passed already, call [`Clock::catch_up`] after releasing the lock.
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
            Source::Custom(source) => Armed::Custom(source.wake_at(at, waker)),
        })
    }

    /// Fires alarms that were already due when set. A manual clock fires them only here, and so does
    /// the system's clock where there are no threads; other clocks fire them by themselves.
    pub(crate) fn catch_up(&self) {
        match &self.0 {
            Source::Manual(manual) => manual.catch_up(),
            Source::System(system) => system.catch_up(),
            #[cfg(feature = "tokio")]
            Source::Tokio(_) => {}
            Source::Custom(_) => {}
        }
    }

    /// When tasks could last run and can run next: now, except while a manual clock is advanced.
    pub(crate) fn tasks_run(&self, now: Timestamp) -> TasksRun {
        let advance = match &self.0 {
            Source::Manual(manual) => manual.advance(),
            _ => None,
        };
        advance.unwrap_or(TasksRun {
            last: now,
            next: now,
        })
    }
}

/// When tasks could last run, and can run next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TasksRun {
    pub(crate) last: Timestamp,
    pub(crate) next: Timestamp,
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
            Source::Custom(_) => "Clock::custom",
        })
    }
}

/// Waits for a time, see [`Clock::sleep_until`]. Dropping it cancels the wait.
#[derive(Debug)]
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    clock: Clock,
    at: Timestamp,
    /// The alarm and the waker it was set with.
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
            // A manual clock may have advanced meanwhile, and would not fire the alarm.
            self.clock.catch_up();
        }
        Poll::Pending
    }
}

/// A pending wakeup. Dropping it cancels the wakeup.
#[must_use = "a dropped alarm never fires"]
pub(crate) struct Alarm(Armed);

enum Armed {
    System(Arc<System>, AlarmKey),
    Manual(Arc<Manual>, AlarmKey),
    #[cfg(feature = "tokio")]
    Tokio(::tokio::task::AbortHandle),
    Custom(#[expect(dead_code, reason = "dropping it cancels")] WakeGuard),
}

impl Drop for Alarm {
    fn drop(&mut self) {
        match &self.0 {
            Armed::System(system, key) => system.disarm(*key),
            Armed::Manual(manual, key) => manual.disarm(*key),
            #[cfg(feature = "tokio")]
            Armed::Tokio(task) => task.abort(),
            Armed::Custom(_) => {}
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
