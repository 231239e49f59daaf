//! Runs futures on a manual clock: when no task is ready, time jumps to the next alarm. Runs take
//! no real time and are repeatable.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::{GateOptions, GateSettings, ManualClock};

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs `future` to its end.
pub(crate) fn drive<T>(clock: &ManualClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    let started = clock.clock().now();
    loop {
        if flag.0.swap(false, Ordering::SeqCst)
            && let Poll::Ready(value) = future.as_mut().poll(&mut context)
        {
            return value;
        }
        if !flag.0.load(Ordering::SeqCst) {
            let next = clock.next_alarm().expect("a pending task has set an alarm");
            clock.advance_to(next);
        }
        let passed = clock.clock().now().since(started);
        assert!(passed < Duration::from_secs(86_400), "not done after a day");
    }
}

/// Gate settings from names and values.
pub(crate) fn gate(set: &[(&str, &str)]) -> GateSettings {
    let mut options = GateOptions::default();
    for (name, value) in set {
        options.set(name, value).expect("a valid setting");
    }
    options.build().expect("consistent settings")
}
