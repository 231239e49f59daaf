//! The stream of a connection, lent to hyper and returned when hyper drops it.
//!
//! hyper does not give back what it reads from and writes to, but for an upgrade. A connection that
//! rests does without hyper's buffers, and has hyper made anew for the next request.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Where a stream is put when it is returned.
#[derive(Debug)]
pub(super) struct Lender<T>(Arc<Mutex<Option<T>>>);

/// A stream that returns to its lender when it is dropped, if the lender is still there.
#[derive(Debug)]
pub(super) struct LentStream<T> {
    /// `None` only while it is dropped.
    stream: Option<T>,
    lender: Weak<Mutex<Option<T>>>,
}

impl<T> Lender<T> {
    /// Lends a stream.
    pub(super) fn lend(stream: T) -> (Self, LentStream<T>) {
        let place = Arc::new(Mutex::new(None));
        let lent = LentStream {
            stream: Some(stream),
            lender: Arc::downgrade(&place),
        };
        (Self(place), lent)
    }

    /// The stream, if it was returned.
    pub(super) fn take_back(self) -> Option<T> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        place.take()
    }
}

impl<T> LentStream<T> {
    pub(super) fn get_ref(&self) -> &T {
        self.stream.as_ref().expect("it is there until the drop")
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.stream.as_mut().expect("it is there until the drop")
    }
}

impl<T> Drop for LentStream<T> {
    fn drop(&mut self) {
        if let Some(place) = self.lender.upgrade() {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            *place = self.stream.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_when_it_is_dropped() {
        let (lender, mut lent) = Lender::lend(1);
        *lent.get_mut() += 1;
        assert_eq!(*lent.get_ref(), 2);
        drop(lent);
        assert_eq!(lender.take_back(), Some(2));
    }

    #[test]
    fn is_dropped_without_its_lender() {
        let (lender, lent) = Lender::lend(Arc::new(()));
        let stream = Arc::clone(lent.get_ref());
        assert_eq!(lender.take_back(), None);
        drop(lent);
        assert_eq!(Arc::strong_count(&stream), 1);
    }
}
