//! Calls wakers and contains their panics.
//!
//! A waker is foreign code, called by whichever thread settles, drops a permit or advances time. A
//! panic in it must not unwind into that thread, end the system clock's thread, or stop later
//! wakers from being called. It is caught here; the panic hook has already reported it.

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
