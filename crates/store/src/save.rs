//! A change that is being written, as a future.
//!
//! Everything that is written together shares one [`Batch`], so a change costs no more than a
//! counter, and one whose future is dropped leaves nothing behind. No runtime is needed: a batch has
//! wakers for futures that are polled and a condition variable for threads that block.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::StoreError;

/// Ready when a change is durable, or has failed.
///
/// Dropping it changes nothing: the change is written all the same.
#[derive(Debug)]
pub struct SaveFuture {
    batch: Arc<Batch>,
    /// Where the waker is stored, once there is one.
    place: Option<u64>,
    /// What was saved elsewhere along with it.
    other: Option<Box<Self>>,
}

impl SaveFuture {
    /// Blocks until the change is durable, or has failed.
    pub fn wait(mut self) -> Result<(), StoreError> {
        let other = self.other.take();
        self.batch.wait()?;
        other.map_or(Ok(()), |other| other.wait())
    }

    /// Ready when both are durable, or one has failed.
    #[cfg(feature = "postgres")]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.other = Some(Box::new(other));
        self
    }

    pub(crate) fn ready(result: Result<(), StoreError>) -> Self {
        let batch = Batch::default();
        batch.finish(result);
        Self::with(&Arc::new(batch))
    }

    pub(crate) fn with(batch: &Arc<Batch>) -> Self {
        Self {
            batch: Arc::clone(batch),
            place: None,
            other: None,
        }
    }
}

impl Future for SaveFuture {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = this.batch.lock();
        if let Some(result) = &state.result {
            let result = result.clone();
            drop(state);
            return match (result, &mut this.other) {
                (Ok(()), Some(other)) => Pin::new(&mut **other).poll(context),
                (result, _) => Poll::Ready(result),
            };
        }
        let place = *this.place.get_or_insert_with(|| state.next_place());
        let old = state.wakers.insert(place, context.waker().clone());
        drop(state);
        // A waker may run whatever code when it goes, so not under the lock.
        drop(old);
        Poll::Pending
    }
}

impl Drop for SaveFuture {
    fn drop(&mut self) {
        let waker = self
            .place
            .and_then(|place| self.batch.lock().wakers.remove(&place));
        drop(waker);
    }
}

/// Changes that are written together, and the futures that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<(), StoreError>>,
    wakers: BTreeMap<u64, Waker>,
    places: u64,
}

impl State {
    fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }
}

impl Batch {
    /// Completes every future. Only the first result counts.
    pub(crate) fn finish(&self, result: Result<(), StoreError>) {
        let mut state = self.lock();
        if state.result.is_some() {
            return;
        }
        state.result = Some(result);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.finished.notify_all();
        for waker in wakers.into_values() {
            // A waker that panics must not keep the others from being woken.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    fn wait(&self) -> Result<(), StoreError> {
        let mut state = self.lock();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            let waited = self.finished.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }

    fn poll(saved: &mut SaveFuture, waker: &Waker) -> Poll<Result<(), StoreError>> {
        Pin::new(saved).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn wakes_every_future_once() {
        let batch = Arc::new(Batch::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut all = [SaveFuture::with(&batch), SaveFuture::with(&batch)];
        for saved in &mut all {
            assert!(poll(saved, &waker).is_pending());
            assert!(poll(saved, &waker).is_pending());
        }
        batch.finish(Err(StoreError::Stopped));
        batch.finish(Ok(()));
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        for saved in &mut all {
            assert_eq!(poll(saved, &waker), Poll::Ready(Err(StoreError::Stopped)));
        }
    }

    #[test]
    fn a_dropped_future_leaves_no_waker() {
        let batch = Arc::new(Batch::default());
        let count = Arc::new(Count::default());
        let mut saved = SaveFuture::with(&batch);
        assert!(poll(&mut saved, &Waker::from(Arc::clone(&count))).is_pending());
        drop(saved);
        assert_eq!(Arc::strong_count(&count), 1);
        batch.finish(Ok(()));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn wakes_the_others_when_a_waker_panics() {
        let batch = Arc::new(Batch::default());
        let count = Arc::new(Count::default());
        let (mut first, mut second) = (SaveFuture::with(&batch), SaveFuture::with(&batch));
        assert!(poll(&mut first, &Waker::from(Arc::new(Panics))).is_pending());
        assert!(poll(&mut second, &Waker::from(Arc::clone(&count))).is_pending());
        batch.finish(Ok(()));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn blocking_ends_with_the_batch() {
        let batch = Arc::new(Batch::default());
        let saved = SaveFuture::with(&batch);
        let waiting = thread::spawn(|| saved.wait());
        batch.finish(Ok(()));
        assert_eq!(waiting.join().unwrap(), Ok(()));
        assert_eq!(SaveFuture::ready(Ok(())).wait(), Ok(()));
    }
}
