//! The result of a call that another thread makes, as a future.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::StoreError;
use crate::operations::QueueFuture;

/// A result that is to come, and where it is given.
pub(crate) fn reply<T: Send + 'static>() -> (Reply<T>, QueueFuture<T>) {
    let shared = Arc::new(Mutex::new(State::default()));
    let reply = Reply(Arc::clone(&shared));
    (reply, Box::pin(CallFuture(shared)))
}

/// Gives the result. Dropped without one, the call has failed: its thread is gone.
#[derive(Debug)]
pub(crate) struct Reply<T>(Shared<T>);

type Shared<T> = Arc<Mutex<State<T>>>;

#[derive(Debug)]
struct State<T> {
    result: Option<Result<T, StoreError>>,
    is_given: bool,
    waker: Option<Waker>,
}

impl<T> Reply<T> {
    pub(crate) fn give(self, result: Result<T, StoreError>) {
        self.put(result);
    }

    /// Only the first result counts.
    fn put(&self, result: Result<T, StoreError>) {
        let mut state = lock(&self.0);
        if state.is_given {
            return;
        }
        state.is_given = true;
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            // A waker that panics must not end the thread that serves all others.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.put(Err(StoreError::Stopped));
    }
}

struct CallFuture<T>(Shared<T>);

impl<T> Future for CallFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0);
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        let old = state.waker.replace(context.waker().clone());
        drop(state);
        // A waker may run any code when it is dropped, so not under the lock.
        drop(old);
        Poll::Pending
    }
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self {
            result: None,
            is_given: false,
            waker: None,
        }
    }
}

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, State<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::wait;
    use std::thread;

    #[test]
    fn a_result_is_given_before_or_after_it_is_awaited() {
        let (reply, future) = reply();
        reply.give(Ok(7));
        assert_eq!(wait(future), Ok(7));
        let (reply, future) = super::reply();
        let waiting = thread::spawn(|| wait(future));
        reply.give(Ok(8));
        assert_eq!(waiting.join().unwrap(), Ok(8));
    }

    #[test]
    fn a_call_whose_thread_is_gone_has_failed() {
        let (reply, future) = reply::<()>();
        drop(reply);
        assert_eq!(wait(future), Err(StoreError::Stopped));
    }

    #[test]
    fn a_dropped_future_takes_no_result() {
        let (reply, future) = reply();
        drop(future);
        reply.give(Ok(1));
    }
}
