//! Runs a future on the current thread, for callers without an executor.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// The output of `future`. Parks the thread while it waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // Returns at once if the waker was called since the poll.
        thread::park();
    }
}

/// Continues a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn returns_when_another_thread_wakes_the_future() {
        let time = ManualClock::new();
        let clock = time.clock();
        let wake_at = clock.now() + Duration::from_secs(60);
        let waiting = thread::spawn(move || block_on(clock.sleep_until(wake_at)));
        while time.next_alarm().is_none() {
            thread::yield_now();
        }
        time.advance(Duration::from_secs(60));
        waiting.join().unwrap();
    }
}
