//! Wakers are the callers' code, and may do anything: use the limiter, be the last that holds
//! a future that waits at it, panic. They are called and dropped while no lock is held.

use std::sync::Arc;
use std::task::{Wake, Waker};

use tidegate::Limiter;

use crate::support::{Caller, KEY, limiter, load, ok, secs};

/// Uses the limiter when it is woken and when it is dropped.
struct Meddler(Limiter);

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        drop(self.0.try_acquire(KEY));
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        drop(self.0.try_acquire(KEY));
    }
}

fn meddler(limiter: &Limiter) -> Waker {
    Waker::from(Arc::new(Meddler(limiter.clone())))
}

#[test]
fn a_waker_may_use_the_limiter_when_it_is_woken() {
    let (clock, limiter) = limiter(&[("max_in_flight", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    clock.advance(secs(10));
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll_with(&meddler(&limiter)).is_pending());
    permit.settle(&ok());
    assert!(waits.poll().is_ready());
    assert_eq!(load(&limiter, KEY), (0, 0));
}

#[test]
fn a_waker_may_use_the_limiter_when_another_takes_its_place() {
    let (_, limiter) = limiter(&[]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll_with(&meddler(&limiter)).is_pending());
    assert!(waits.poll().is_pending());
    assert_eq!(load(&limiter, KEY), (1, 1));
    permit.settle(&ok());
}

#[test]
fn a_waker_may_use_the_limiter_when_its_future_is_dropped() {
    let (_, limiter) = limiter(&[]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll_with(&meddler(&limiter)).is_pending());
    drop(waits);
    assert_eq!(load(&limiter, KEY), (1, 0));
    permit.settle(&ok());
}
