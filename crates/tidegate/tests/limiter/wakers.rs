//! Wakers are foreign code and may do anything: use the limiter, hold the last reference to a
//! waiting future, panic. They are called and dropped with no lock held.

use std::sync::Arc;
use std::task::{Wake, Waker};

use tidegate::Limiter;

use crate::support::{Caller, KEY, limiter, load, ok, secs};

/// Uses the limiter when woken and when dropped.
struct ReentrantWaker(Limiter);

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        drop(self.0.try_acquire(KEY));
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        drop(self.0.try_acquire(KEY));
    }
}

fn reentrant_waker(limiter: &Limiter) -> Waker {
    Waker::from(Arc::new(ReentrantWaker(limiter.clone())))
}

#[test]
fn waker_uses_the_limiter_when_woken() {
    let (clock, limiter) = limiter(&[("max_in_flight", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    clock.advance(secs(10));
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll_with(&reentrant_waker(&limiter)).is_pending());
    permit.settle(&ok());
    assert!(waits.poll().is_ready());
    assert_eq!(load(&limiter, KEY), (0, 0));
}

#[test]
fn waker_uses_the_limiter_when_replaced() {
    let (_, limiter) = limiter(&[]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll_with(&reentrant_waker(&limiter)).is_pending());
    assert!(waits.poll().is_pending());
    assert_eq!(load(&limiter, KEY), (1, 1));
    permit.settle(&ok());
}

#[test]
fn waker_uses_the_limiter_when_its_future_is_dropped() {
    let (_, limiter) = limiter(&[]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll_with(&reentrant_waker(&limiter)).is_pending());
    drop(waits);
    assert_eq!(load(&limiter, KEY), (1, 0));
    permit.settle(&ok());
}
