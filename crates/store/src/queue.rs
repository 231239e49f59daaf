//! Changes that wait to be written.
//!
//! Saving only locks the queue and appends. The writer takes everything at once, so that one commit
//! is for many changes: the slower the disk, the more share a commit.
//!
//! The queue has a bound. A record whose gate or endpoint has one waiting takes its place, so a
//! disk that is stuck lets the queue grow to one record for each of them and no further; what does
//! not fit is refused.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::StoreState;
use crate::change::Change;
use crate::error::StoreError;
use crate::save::{Batch, SaveFuture};

/// At most this many rows wait. More than the 100 000 gates that a limiter has at most by default,
/// each of which is there once; some 40 MB with keys of ordinary length.
pub const MAX_QUEUED: usize = 131_072;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Something waits, or the end has come.
    ready: Condvar,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Change>,
    /// Where the record of a subject waits, by its hash. Two that share a hash share this place in
    /// turn, and at worst wait in two rows.
    places: HashMap<u64, usize>,
    /// What waits will be written with this.
    batch: Arc<Batch>,
    /// What is being written at the moment.
    writing: Option<Arc<Batch>>,
    phase: Phase,
    degraded: Option<StoreError>,
    written: u64,
    lost: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Running,
    /// What waits is written, and then it ends.
    Ending,
    /// The writer has ended.
    Ended,
}

impl Queue {
    /// Puts changes where they belong, all or none.
    pub(crate) fn save(&self, changes: Vec<Change>) -> SaveFuture {
        if changes.is_empty() {
            return SaveFuture::ready(Ok(()));
        }
        let rows = changes.len();
        let mut state = self.lock();
        if let Err(error) = self.check(&state, &changes) {
            state.lost += rows as u64;
            return SaveFuture::ready(Err(error));
        }
        for change in changes {
            self.put(&mut state, change);
        }
        self.ready.notify_one();
        SaveFuture::with(&state.batch)
    }

    fn check(&self, state: &State, changes: &[Change]) -> Result<(), StoreError> {
        if state.phase != Phase::Running {
            return Err(StoreError::Stopped);
        }
        let queued = state.waiting.len();
        if queued + changes.len() <= MAX_QUEUED {
            return Ok(());
        }
        let is_new = |change: &&Change| self.place_of(state, change).is_none();
        let new = changes.iter().filter(is_new).count();
        if queued + new <= MAX_QUEUED {
            return Ok(());
        }
        Err(StoreError::QueueFull { queued })
    }

    fn put(&self, state: &mut State, change: Change) {
        if let Some(place) = self.place_of(state, &change) {
            state.waiting[place] = change;
            return;
        }
        if let Some(subject) = change.subject() {
            let hash = self.hasher.hash_one(subject);
            state.places.insert(hash, state.waiting.len());
        }
        if matches!(change, Change::ForgetGatesBefore(_)) {
            // A record that comes later must not move before it.
            state.places.clear();
        }
        state.waiting.push(change);
    }

    /// Where an older record of the same subject waits.
    fn place_of(&self, state: &State, change: &Change) -> Option<usize> {
        let subject = change.subject()?;
        let place = *state.places.get(&self.hasher.hash_one(subject))?;
        (state.waiting[place].subject() == Some(subject)).then_some(place)
    }

    /// Ready when all that was saved before has been written or has failed.
    pub(crate) fn flush(&self) -> SaveFuture {
        let state = self.lock();
        if state.phase == Phase::Ended {
            return SaveFuture::ready(Err(StoreError::Stopped));
        }
        if !state.waiting.is_empty() {
            return SaveFuture::with(&state.batch);
        }
        match &state.writing {
            Some(batch) => SaveFuture::with(batch),
            None => SaveFuture::ready(Ok(())),
        }
    }

    pub(crate) fn state(&self) -> StoreState {
        let state = self.lock();
        let queued = state.waiting.len();
        let full = (queued >= MAX_QUEUED).then_some(StoreError::QueueFull { queued });
        StoreState {
            degraded: state.degraded.clone().or(full),
            queued,
            written: state.written,
            lost: state.lost,
        }
    }

    /// For the writer: all that waits, as soon as something does; `None` at the end.
    pub(crate) fn take(&self) -> Option<Vec<Change>> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.phase != Phase::Running {
                return None;
            }
            let waited = self.ready.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.places.clear();
        state.writing = Some(std::mem::take(&mut state.batch));
        Some(std::mem::take(&mut state.waiting))
    }

    /// For the writer: what became of what was taken.
    pub(crate) fn finish(&self, rows: usize, result: Result<(), StoreError>) {
        let mut state = self.lock();
        match &result {
            Ok(()) => state.written += rows as u64,
            Err(_) => state.lost += rows as u64,
        }
        state.degraded = result.clone().err();
        let batch = state.writing.take();
        drop(state);
        if let Some(batch) = batch {
            batch.finish(result);
        }
    }

    /// No more is taken; what waits is still written.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Running {
            state.phase = Phase::Ending;
        }
        self.ready.notify_one();
    }

    /// For the writer: it has ended. Futures that still wait fail.
    pub(crate) fn ended(&self) {
        let mut state = self.lock();
        state.phase = Phase::Ended;
        state.lost += state.waiting.len() as u64;
        let waiting = std::mem::take(&mut state.waiting);
        state.places.clear();
        let batches = [state.writing.take(), Some(std::mem::take(&mut state.batch))];
        if batches[0].is_some() || !waiting.is_empty() {
            state.degraded = Some(StoreError::Stopped);
        }
        drop(state);
        for batch in batches.into_iter().flatten() {
            batch.finish(Err(StoreError::Stopped));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{forget_gate, gate, removed, state};
    use policy::time::WallTime;
    use std::task::{Context, Poll};

    fn is_pending(saved: &mut SaveFuture) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(saved).poll(&mut context) == Poll::Pending
    }

    #[test]
    fn a_newer_record_replaces_one_that_waits() {
        let queue = Queue::default();
        queue.save(vec![Change::Gate(gate("a", 1.0, 1))]);
        queue.save(vec![Change::Gate(gate("b", 1.0, 1))]);
        queue.save(vec![Change::Endpoint(state("llm", "a", 1, 1))]);
        queue.save(vec![Change::Gate(gate("a", 2.0, 2))]);
        queue.save(vec![Change::Endpoint(state("llm", "a", 2, 2))]);
        queue.save(vec![forget_gate("b")]);
        let expected = [
            Change::Gate(gate("a", 2.0, 2)),
            forget_gate("b"),
            Change::Endpoint(state("llm", "a", 2, 2)),
        ];
        assert_eq!(queue.take().unwrap(), expected);
    }

    #[test]
    fn changes_that_are_no_records_stay_in_order() {
        let queue = Queue::default();
        queue.save(vec![removed("llm", "a"), removed("llm", "a")]);
        assert_eq!(queue.take().unwrap().len(), 2);
    }

    #[test]
    fn no_record_moves_before_what_forgets_it() {
        let queue = Queue::default();
        let record = || Change::Gate(gate("a", 1.0, 1));
        let before = Change::ForgetGatesBefore(WallTime::from_unix_millis(9));
        queue.save(vec![record(), before.clone(), record(), record()]);
        assert_eq!(queue.take().unwrap(), [record(), before, record()]);
    }

    #[test]
    fn a_full_queue_refuses_new_keys_and_takes_newer_records() {
        let queue = Queue::default();
        let gates = (0..MAX_QUEUED).map(|number| Change::Gate(gate(&number.to_string(), 1.0, 1)));
        let mut saved = queue.save(gates.collect());
        assert!(is_pending(&mut saved));
        let full = StoreError::QueueFull { queued: MAX_QUEUED };
        let new = || Change::Gate(gate("new", 1.0, 1));
        let newer = || Change::Gate(gate("7", 2.0, 2));
        assert_eq!(queue.save(vec![new()]).wait(), Err(full.clone()));
        // All or none.
        assert_eq!(queue.save(vec![newer(), new()]).wait(), Err(full.clone()));
        let state = queue.state();
        assert_eq!(state.degraded, Some(full));
        assert_eq!((state.queued, state.lost), (MAX_QUEUED, 3));
        assert!(is_pending(&mut queue.save(vec![newer()])));

        let taken = queue.take().unwrap();
        assert_eq!(taken.len(), MAX_QUEUED);
        assert_eq!(taken[7], newer());
        assert!(is_pending(&mut queue.save(vec![new()])));
        queue.finish(taken.len(), Ok(()));
        assert_eq!(saved.wait(), Ok(()));
        assert_eq!(queue.state().degraded, None);
    }

    #[test]
    fn a_flush_is_ready_with_what_came_before_it() {
        let queue = Queue::default();
        assert_eq!(queue.flush().wait(), Ok(()));
        queue.save(vec![removed("llm", "a")]);
        let mut waiting = queue.flush();
        let taken = queue.take().unwrap();
        let mut written = queue.flush();
        queue.save(vec![removed("llm", "b")]);
        let mut later = queue.flush();
        assert!(is_pending(&mut waiting) && is_pending(&mut written));
        queue.finish(taken.len(), Ok(()));
        assert_eq!((waiting.wait(), written.wait()), (Ok(()), Ok(())));
        assert!(is_pending(&mut later));
        let taken = queue.take().unwrap();
        queue.finish(taken.len(), Err(StoreError::Stopped));
        assert_eq!(later.wait(), Err(StoreError::Stopped));
    }

    #[test]
    fn takes_queued_changes_before_the_end() {
        let queue = Queue::default();
        queue.save(vec![removed("llm", "a")]);
        queue.end();
        assert_eq!(
            queue.save(vec![removed("llm", "b")]).wait(),
            Err(StoreError::Stopped)
        );
        let taken = queue.take().unwrap();
        queue.finish(taken.len(), Ok(()));
        assert_eq!(queue.take(), None);
        queue.ended();
        assert_eq!(queue.state().degraded, None);
        assert_eq!(queue.flush().wait(), Err(StoreError::Stopped));
    }

    #[test]
    fn futures_fail_when_the_writer_has_ended() {
        let queue = Queue::default();
        let taken = queue.save(vec![removed("llm", "a")]);
        queue.take().unwrap();
        let waiting = queue.save(vec![removed("llm", "b")]);
        queue.ended();
        assert_eq!(taken.wait(), Err(StoreError::Stopped));
        assert_eq!(waiting.wait(), Err(StoreError::Stopped));
        assert_eq!(queue.state().degraded, Some(StoreError::Stopped));
        assert_eq!(queue.state().queued, 0);
    }
}
