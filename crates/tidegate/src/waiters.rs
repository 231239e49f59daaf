//! Wakers that wait for a change of something shared: an endpoint of a pool, a credential.
//!
//! A place here belongs to the future that waits. Polled again it replaces its waker, and dropped
//! it takes that along, so there are never more wakers than futures that wait, whatever they are
//! polled for and however they end.
//!
//! The lock is one of its own and not that of what is waited for, so that a place can leave by
//! itself. No change is missed if both sides keep their order: a waiter takes a place first
//! and looks then; a change is made first and wakes then.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::sync::{Mutex, lock};
use crate::waking::wake_all;

#[derive(Default)]
pub(crate) struct Waiters(Mutex<Wakers>);

#[derive(Default)]
struct Wakers {
    /// The number of the next place. Never used twice: 2^64 are not reached.
    next: u64,
    by_place: BTreeMap<u64, Waker>,
}

impl Waiters {
    /// A place for one future. It costs nothing until a waker is kept there.
    pub(crate) fn place(&self) -> WaitersPlace<'_> {
        WaitersPlace {
            waiters: self,
            number: None,
        }
    }

    /// Wakes all futures. Those that still have to wait register again.
    pub(crate) fn wake_all(&self) {
        let woken = std::mem::take(&mut lock(&self.0).by_place);
        wake_all(woken.into_values().collect());
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).by_place.len()
    }
}

/// The place of one future that waits.
pub(crate) struct WaitersPlace<'a> {
    waiters: &'a Waiters,
    /// `None` until a waker was first kept.
    number: Option<u64>,
}

impl WaitersPlace<'_> {
    /// Keeps `waker` for the next change, in place of the one before. Look for that change after
    /// this, not before.
    pub(crate) fn keep(&mut self, waker: &Waker) {
        // Wakers run foreign code: cloned before the lock, dropped after it.
        let waker = waker.clone();
        let mut wakers = lock(&self.waiters.0);
        let number = *self.number.get_or_insert_with(|| {
            wakers.next += 1;
            wakers.next
        });
        let replaced = wakers.by_place.insert(number, waker);
        drop(wakers);
        drop(replaced);
    }
}

impl Drop for WaitersPlace<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let removed = lock(&self.waiters.0).by_place.remove(&number);
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
    fn a_place_holds_one_waker_the_last() {
        let waiters = Waiters::default();
        let ((first, first_waker), (second, second_waker)) = (counted(), counted());
        let mut place = waiters.place();
        place.keep(&first_waker);
        place.keep(&first_waker);
        place.keep(&second_waker);
        assert_eq!(waiters.len(), 1);
        drop(first_waker);
        assert_eq!(Arc::strong_count(&first), 1, "the only reference");
        waiters.wake_all();
        assert_eq!((woken(&first), woken(&second)), (0, 1));
    }

    #[test]
    fn dropped_place_drops_its_waker() {
        let waiters = Waiters::default();
        let (count, waker) = counted();
        let mut leaves = waiters.place();
        let mut stays = waiters.place();
        leaves.keep(&waker);
        stays.keep(&waker);
        drop(leaves);
        assert_eq!(waiters.len(), 1);
        waiters.wake_all();
        assert_eq!(woken(&count), 1);
    }

    #[test]
    fn woken_place_is_woken_again_only_if_kept() {
        let waiters = Waiters::default();
        let (count, waker) = counted();
        let mut place = waiters.place();
        place.keep(&waker);
        waiters.wake_all();
        waiters.wake_all();
        assert_eq!((woken(&count), waiters.len()), (1, 0));
        place.keep(&waker);
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
        let (mut first, mut second) = (waiters.place(), waiters.place());
        first.keep(&Waker::from(Arc::new(Panics)));
        second.keep(&waker);
        waiters.wake_all();
        assert_eq!(woken(&count), 1);
    }
}
