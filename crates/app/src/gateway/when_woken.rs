//! A future that is polled only when it was woken.
//!
//! A task that waits for several futures polls all of them whenever it is woken by one. For a
//! connection that is woken for every request, futures that wait for something rare would take a
//! part of each request's time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only when it was woken. It has to stay in the task that polls it first.
pub(super) struct WhenWoken<F> {
    future: Pin<Box<F>>,
    signal: Option<Arc<Signal>>,
}

/// Wakes the task, and notes that the future is to be polled.
struct Signal {
    is_woken: AtomicBool,
    task: Waker,
}

impl<F: Future> WhenWoken<F> {
    pub(super) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            signal: None,
        }
    }
}

impl<F: Future> Future for WhenWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let signal = self.signal.get_or_insert_with(|| {
            Arc::new(Signal {
                is_woken: AtomicBool::new(true),
                task: context.waker().clone(),
            })
        });
        if !signal.is_woken.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        // Before the poll: what wakes it during the poll must not be lost.
        signal.is_woken.swap(false, Ordering::AcqRel);
        let waker = Waker::from(Arc::clone(signal));
        let mut context = Context::from_waker(&waker);
        self.future.as_mut().poll(&mut context)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct CountedWakes(AtomicUsize);

    impl Wake for CountedWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn polls_once_and_then_only_after_a_wake() {
        let polls = AtomicUsize::new(0);
        let inner = Mutex::new(None::<Waker>);
        let mut future = WhenWoken::new(std::future::poll_fn(|context| {
            *inner.lock().unwrap() = Some(context.waker().clone());
            match polls.fetch_add(1, Ordering::Relaxed) {
                2 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }));
        let wakes = Arc::new(CountedWakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        for round in 1..=3 {
            let polled = Pin::new(&mut future).poll(&mut context);
            assert_eq!(polled.is_ready(), round == 3);
            if round < 3 {
                assert!(Pin::new(&mut future).poll(&mut context).is_pending());
            }
            assert_eq!(polls.load(Ordering::Relaxed), round);
            inner.lock().unwrap().take().unwrap().wake();
            assert_eq!(wakes.0.load(Ordering::Relaxed), round);
        }
    }
}
