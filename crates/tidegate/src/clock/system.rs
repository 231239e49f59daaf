//! The system's clock, and the thread that fires its alarms.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use policy::time::Timestamp;

use super::alarms::{AlarmKey, Alarms};
use crate::waking::wake;

/// A monotonic clock with alarms.
pub(super) struct System {
    counter: Counter,
    thread: Arc<AlarmThread>,
    has_thread: bool,
}

/// In WebAssembly there are no threads: alarms fire when [`System::catch_up`] is called.
const HAS_THREAD: bool = !cfg!(target_family = "wasm");

impl System {
    pub(super) fn new(has_thread: bool) -> Arc<Self> {
        let counter = Counter::new();
        let thread = AlarmThread {
            counter: counter.clone(),
            state: Mutex::new(AlarmState::NEW),
            changed: Condvar::new(),
        };
        Arc::new(Self {
            counter,
            thread: Arc::new(thread),
            has_thread,
        })
    }

    /// The one clock of the process, as long as anything uses it.
    pub(super) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<System>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(system) = shared.upgrade() {
            return system;
        }
        let system = Self::new(HAS_THREAD);
        *shared = Arc::downgrade(&system);
        system
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        self.counter.now()
    }

    pub(super) fn arm(&self, at: Timestamp, waker: Waker) -> AlarmKey {
        let at = next_tick(at);
        let mut state = self.thread.lock();
        let is_next = state.alarms.next_at().is_none_or(|next| at < next);
        let key = state.alarms.insert(at, waker);
        if !state.started && self.has_thread {
            state.started = true;
            AlarmThread::start(&self.thread);
        } else if is_next && state.is_waiting {
            self.thread.changed.notify_one();
        }
        key
    }

    /// Fires alarms that are due, if there is no thread that does.
    pub(super) fn catch_up(&self) {
        if self.has_thread {
            return;
        }
        loop {
            let waker = self.thread.lock().alarms.pop_due(self.now());
            match waker {
                Some(waker) => wake(waker),
                None => return,
            }
        }
    }

    pub(super) fn disarm(&self, key: AlarmKey) {
        let waker = self.thread.lock().alarms.remove(key);
        // Dropped without the lock: it may be the last reference to a task.
        drop(waker);
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.thread.lock().stopped = true;
        self.thread.changed.notify_one();
    }
}

/// The tick at which an alarm for `at` fires. At thousands of permits per second, one alarm each
/// would wake two threads per request. With ticks, all asks due within a millisecond leave
/// together, which a gate's burst allows for.
fn next_tick(at: Timestamp) -> Timestamp {
    let tick = at.as_nanos().div_ceil(TICK);
    tick.checked_mul(TICK).map_or(at, Timestamp::from_nanos)
}

/// In nanoseconds. The timer granularity of async runtimes, and half of the slack that a burst
/// covers.
const TICK: u64 = 1_000_000;

/// Reads the CPU's time-stamp counter if it is steady: 10 ns instead of 25 ns for a system call,
/// twice per request.
#[derive(Clone)]
struct Counter {
    clock: quanta::Clock,
    origin: u64,
}

impl Counter {
    fn new() -> Self {
        let clock = quanta::Clock::new();
        let origin = clock.raw();
        Self { clock, origin }
    }

    #[inline]
    fn now(&self) -> Timestamp {
        let passed = self.clock.delta_as_nanos(self.origin, self.clock.raw());
        Timestamp::from_nanos(passed)
    }
}

/// State shared between the clock and its thread. The thread must not own the clock, or it would
/// keep it alive.
struct AlarmThread {
    counter: Counter,
    state: Mutex<AlarmState>,
    changed: Condvar,
}

struct AlarmState {
    alarms: Alarms,
    started: bool,
    stopped: bool,
    /// The thread is waiting and has to be woken for an earlier alarm.
    is_waiting: bool,
}

impl AlarmState {
    const NEW: Self = Self {
        alarms: Alarms::new(),
        started: false,
        stopped: false,
        is_waiting: false,
    };
}

impl AlarmThread {
    fn start(thread: &Arc<Self>) {
        let thread = Arc::clone(thread);
        thread::Builder::new()
            .name("tidegate-clock".to_owned())
            .spawn(move || thread.fire_alarms())
            .expect("the system can start one more thread");
    }

    /// Fires alarms until the clock is dropped.
    fn fire_alarms(&self) {
        let mut state = self.lock();
        while !state.stopped {
            let now = self.counter.now();
            if let Some(waker) = state.alarms.pop_due(now) {
                drop(state);
                wake(waker);
                state = self.lock();
                continue;
            }
            let wait = state.alarms.next_at().map(|at| at.since(now));
            state.is_waiting = true;
            state = self.wait(state, wait);
            state.is_waiting = false;
        }
    }

    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, AlarmState>,
        wait: Option<Duration>,
    ) -> MutexGuard<'a, AlarmState> {
        match wait {
            Some(wait) => {
                let result = self.changed.wait_timeout(state, wait);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let result = self.changed.wait(state);
                result.unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, AlarmState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[test]
    fn dropping_the_clock_ends_its_thread() {
        let system = System::new(HAS_THREAD);
        let far = system.now() + Duration::from_secs(3600);
        let alarm = system.arm(far, Waker::noop().clone());
        let thread = Arc::downgrade(&system.thread);
        assert!(system.thread.lock().started);
        system.disarm(alarm);
        drop(system);
        // The thread holds the only other reference.
        while thread.strong_count() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn alarms_fire_on_the_next_tick_and_not_early() {
        let check = |at, tick| {
            let at = Timestamp::from_nanos(at);
            assert_eq!(next_tick(at), Timestamp::from_nanos(tick));
        };
        check(0, 0);
        check(1, TICK);
        check(TICK, TICK);
        check(TICK + 1, 2 * TICK);
        // There is no tick after the end of time.
        check(u64::MAX, u64::MAX);
    }

    #[test]
    fn without_a_thread_a_due_alarm_fires_when_it_catches_up() {
        struct Count(AtomicU32);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let system = System::new(false);
        let count = Arc::new(Count(AtomicU32::new(0)));
        let fired = || count.0.load(Ordering::Relaxed);
        let [soon, far] = [1, 3_600_000].map(|millis| {
            let at = system.now() + Duration::from_millis(millis);
            system.arm(at, Waker::from(Arc::clone(&count)));
            next_tick(at)
        });
        assert!(!system.thread.lock().started);
        while system.now() < soon {
            thread::yield_now();
        }
        assert_eq!(fired(), 0);
        system.catch_up();
        assert_eq!(fired(), 1);
        assert_eq!(system.thread.lock().alarms.next_at(), Some(far));
    }

    #[test]
    fn clock_without_alarms_has_no_thread() {
        let system = System::new(HAS_THREAD);
        assert!(!system.thread.lock().started);
    }
}
