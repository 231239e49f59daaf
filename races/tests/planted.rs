//! Data races on purpose. ThreadSanitizer must report each of them, or it would report nothing
//! elsewhere either: `scripts/check-races` runs them first, one at a time, and fails if one passes.

mod unprotected;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use unprotected::{Unprotected, limiter_of};

/// Lets two threads take what `protect` gives each of them, by its number, and then write to the same
/// memory. They meet in between, so that neither has given it back when the other begins.
fn write_on_two_threads<P>(protect: impl Fn(usize) -> P + Sync) {
    let counter = Unprotected::new(0_usize);
    let barrier = Barrier::new(2);
    let write = |number| {
        let _protected = protect(number);
        barrier.wait();
        (0..1000).for_each(|_| counter.change(|count| *count += 1));
    };
    thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(1));
    });
}

#[test]
fn two_threads_write_without_a_lock() {
    write_on_two_threads(|_| ());
}

#[test]
fn two_threads_write_under_different_locks() {
    let locks = [Mutex::new(()), Mutex::new(())];
    write_on_two_threads(|number| locks[number].lock());
}

/// What `ordering.rs` checks, with a gate that has two places instead of one.
#[test]
fn two_threads_write_with_a_permit_each() {
    let limiter = limiter_of(2);
    write_on_two_threads(|_| limiter.acquire_blocking("api.example.com"));
}

#[test]
fn relaxed_flag_hands_a_value_over() {
    let value = Unprotected::new(0_usize);
    let (is_ready, is_read) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            value.change(|value| *value = 1);
            // `Release` would make it correct.
            is_ready.store(true, Ordering::Relaxed);
            // The end of a thread is ordered before what its owner does next, which would hide it.
            wait_for(&is_read);
        });
        wait_for(&is_ready);
        value.change(|value| *value += 1);
        is_read.store(true, Ordering::Relaxed);
    });
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
}
