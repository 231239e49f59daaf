//! Calling wakers.
//!
//! A waker is foreign code, and it is called by the thread that happens to settle, to drop
//! a permit or to move time on. One that panics is no matter of theirs, must not end the thread of
//! the system's clock, and must not keep those behind it from being woken. So its panic ends here;
//! the panic hook has reported it by then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

pub(crate) fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        wake(waker);
    }
}
