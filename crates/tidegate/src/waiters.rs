//! Wakers of futures that wait for shared state to change: a pool's endpoints or a credential.
//!
//! Each waiting future has a [`Waiter`]. Polling it again replaces its waker and dropping it
//! removes its waker, so there are never more wakers than waiting futures.
//!
//! The lock is separate from that of the shared state, so that a waiter can be dropped at any time.
//! No change is missed if both sides keep this order: a waiter sets its waker before it reads the
//! state, and a writer changes the state before it wakes.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::sync::{Mutex, lock};
use crate::waking::wake_all;

#[derive(Default)]
pub(crate) struct Waiters(Mutex<Wakers>);

#[derive(Default)]
struct Wakers {
    /// The number of the last waiter. Never reused: 2^64 is out of reach.
    next: u64,
    by_number: BTreeMap<u64, Waker>,
}

impl Waiters {
    /// A waiter for one future. It costs nothing until it has a waker.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        Waiter {
            waiters: self,
            number: None,
        }
    }

    /// Wakes all futures. Those that have to wait longer set their waker again.
    pub(crate) fn wake_all(&self) {
        let woken = std::mem::take(&mut lock(&self.0).by_number);
        wake_all(woken.into_values().collect());
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).by_number.len()
    }
}

/// A waiting future.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    /// `None` until it first has a waker.
    number: Option<u64>,
}

impl Waiter<'_> {
    /// Sets the waker for the next change, replacing the previous one. Check for a change after
    /// this call, not before.
    pub(crate) fn set_waker(&mut self, waker: &Waker) {
        // Wakers run foreign code, so clone before locking and drop after unlocking.
        let waker = waker.clone();
        let mut wakers = lock(&self.waiters.0);
        let number = *self.number.get_or_insert_with(|| {
            wakers.next += 1;
            wakers.next
        });
        let replaced = wakers.by_number.insert(number, waker);
        drop(wakers);
        drop(replaced);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let removed = lock(&self.waiters.0).by_number.remove(&number);
            drop(removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    fn woken(count: &Count) -> u32 {
        count.0.load(Ordering::SeqCst)
    }

    #[test]
    fn wakes_only_the_last_waker_of_a_waiter() {
        let waiters = Waiters::default();
        let ((first, first_waker), (second, second_waker)) = (counted(), counted());
        let mut waiter = waiters.waiter();
        waiter.set_waker(&first_waker);
        waiter.set_waker(&first_waker);
        waiter.set_waker(&second_waker);
        assert_eq!(waiters.len(), 1);
        drop(first_waker);
        assert_eq!(Arc::strong_count(&first), 1, "the only reference");
        waiters.wake_all();
        assert_eq!((woken(&first), woken(&second)), (0, 1));
    }

    #[test]
    fn dropped_waiter_drops_its_waker() {
        let waiters = Waiters::default();
        let (count, waker) = counted();
        let mut leaves = waiters.waiter();
        let mut stays = waiters.waiter();
        leaves.set_waker(&waker);
        stays.set_waker(&waker);
        drop(leaves);
        assert_eq!(waiters.len(), 1);
        waiters.wake_all();
        assert_eq!(woken(&count), 1);
    }

    #[test]
    fn woken_waiter_is_woken_again_only_if_set_again() {
        let waiters = Waiters::default();
        let (count, waker) = counted();
        let mut waiter = waiters.waiter();
        waiter.set_waker(&waker);
        waiters.wake_all();
        waiters.wake_all();
        assert_eq!((woken(&count), waiters.len()), (1, 0));
        waiter.set_waker(&waker);
        waiters.wake_all();
        assert_eq!(woken(&count), 2);
    }

    #[test]
    fn panicking_waker_does_not_stop_later_wakers() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("a waker of a test");
            }
        }
        let waiters = Waiters::default();
        let (count, waker) = counted();
        let (mut first, mut second) = (waiters.waiter(), waiters.waiter());
        first.set_waker(&Waker::from(Arc::new(Panics)));
        second.set_waker(&waker);
        waiters.wake_all();
        assert_eq!(woken(&count), 1);
    }
}
