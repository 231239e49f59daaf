//! Changes and calls that wait to be written.
//!
//! Saving only locks the queue and appends. The writer takes everything at once, so that one commit
//! is for many changes: the slower the disk, the more share a commit.
//!
//! The queue has a bound. A record whose gate or endpoint has one waiting takes its place, so a
//! disk that is stuck lets the queue grow to one record for each of them and no further; what does
//! not fit is refused. Calls have bodies, so they are bounded by their bytes as well.

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

/// At most this many calls wait.
pub(crate) const MAX_CALLS: usize = 8192;

/// At most this many bytes of calls wait, but one call always may.
pub(crate) const MAX_CALL_BYTES: usize = 256 << 20;

/// `C` is a call: work that is more than a change of a record.
#[derive(Debug)]
pub(crate) struct Queue<C> {
    state: Mutex<State<C>>,
    /// Something waits, or the end has come.
    ready: Condvar,
    hasher: RandomState,
}

#[derive(Debug)]
struct State<C> {
    waiting: Vec<Change>,
    calls: Vec<C>,
    call_bytes: usize,
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

/// What the writer takes: all that has waited.
#[derive(Debug)]
pub(crate) struct Taken<C> {
    pub(crate) changes: Vec<Change>,
    pub(crate) calls: Vec<C>,
}

/// The results of what was taken.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) changes: Result<(), StoreError>,
    /// Why the store is degraded, if it is.
    pub(crate) degraded: Option<StoreError>,
    /// Changes and calls that are durable.
    pub(crate) written: usize,
    /// Changes and calls that failed.
    pub(crate) lost: usize,
}

/// How much of the queue a call may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// New work is refused first, at half of the bounds.
    Half,
    /// What ends work that was accepted may fill all of it.
    Whole,
}

impl<C> Queue<C> {
    /// Puts a call of `bytes` at the end, or gives it back.
    pub(crate) fn call(&self, call: C, bytes: usize, share: Share) -> Result<(), (C, StoreError)> {
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err((call, StoreError::Stopped));
        }
        let part = match share {
            Share::Half => 2,
            Share::Whole => 1,
        };
        let queued = state.calls.len();
        let is_full =
            queued >= MAX_CALLS / part || state.call_bytes + bytes > MAX_CALL_BYTES / part;
        if is_full && queued > 0 {
            state.lost += 1;
            return Err((call, StoreError::QueueFull { queued }));
        }
        state.calls.push(call);
        state.call_bytes += bytes;
        self.ready.notify_one();
        Ok(())
    }

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

    fn check(&self, state: &State<C>, changes: &[Change]) -> Result<(), StoreError> {
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

    fn put(&self, state: &mut State<C>, change: Change) {
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
    fn place_of(&self, state: &State<C>, change: &Change) -> Option<usize> {
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
        if !state.is_empty() {
            return SaveFuture::with(&state.batch);
        }
        match &state.writing {
            Some(batch) => SaveFuture::with(batch),
            None => SaveFuture::ready(Ok(())),
        }
    }

    pub(crate) fn state(&self) -> StoreState {
        let state = self.lock();
        let queued = state.waiting.len() + state.calls.len();
        let full = (state.waiting.len() >= MAX_QUEUED).then_some(StoreError::QueueFull { queued });
        StoreState {
            degraded: state.degraded.clone().or(full),
            queued,
            written: state.written,
            lost: state.lost,
        }
    }

    /// For the writer: all that waits, as soon as something does; `None` at the end.
    pub(crate) fn take(&self) -> Option<Taken<C>> {
        let mut state = self.lock();
        while state.is_empty() {
            if state.phase != Phase::Running {
                return None;
            }
            let waited = self.ready.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.places.clear();
        state.writing = Some(std::mem::take(&mut state.batch));
        state.call_bytes = 0;
        Some(Taken {
            changes: std::mem::take(&mut state.waiting),
            calls: std::mem::take(&mut state.calls),
        })
    }

    /// For the writer: gives the results of what was taken.
    pub(crate) fn finish(&self, finished: Finished) {
        let mut state = self.lock();
        state.written += finished.written as u64;
        state.lost += finished.lost as u64;
        state.degraded = finished.degraded;
        let batch = state.writing.take();
        drop(state);
        if let Some(batch) = batch {
            batch.finish(finished.changes);
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
        state.lost += (state.waiting.len() + state.calls.len()) as u64;
        let waiting = std::mem::take(&mut state.waiting);
        let calls = std::mem::take(&mut state.calls);
        state.places.clear();
        let batches = [state.writing.take(), Some(std::mem::take(&mut state.batch))];
        if batches[0].is_some() || !waiting.is_empty() || !calls.is_empty() {
            state.degraded = Some(StoreError::Stopped);
        }
        drop(state);
        // They fail as they are dropped.
        drop(calls);
        for batch in batches.into_iter().flatten() {
            batch.finish(Err(StoreError::Stopped));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> State<C> {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.calls.is_empty()
    }
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            ready: Condvar::default(),
            hasher: RandomState::default(),
        }
    }
}

impl<C> Default for State<C> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            calls: Vec::new(),
            call_bytes: 0,
            places: HashMap::new(),
            batch: Arc::default(),
            writing: None,
            phase: Phase::default(),
            degraded: None,
            written: 0,
            lost: 0,
        }
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

    fn queue() -> Queue<u8> {
        Queue::default()
    }

    fn finish(queue: &Queue<u8>, rows: usize, changes: Result<(), StoreError>) {
        let (written, lost) = if changes.is_ok() {
            (rows, 0)
        } else {
            (0, rows)
        };
        queue.finish(Finished {
            degraded: changes.clone().err(),
            changes,
            written,
            lost,
        });
    }

    #[test]
    fn a_newer_record_replaces_one_that_waits() {
        let queue = queue();
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
        assert_eq!(queue.take().unwrap().changes, expected);
    }

    #[test]
    fn changes_that_are_no_records_stay_in_order() {
        let queue = queue();
        queue.save(vec![removed("llm", "a"), removed("llm", "a")]);
        assert_eq!(queue.take().unwrap().changes.len(), 2);
    }

    #[test]
    fn no_record_moves_before_what_forgets_it() {
        let queue = queue();
        let record = || Change::Gate(gate("a", 1.0, 1));
        let before = Change::ForgetGatesBefore(WallTime::from_unix_millis(9));
        queue.save(vec![record(), before.clone(), record(), record()]);
        assert_eq!(queue.take().unwrap().changes, [record(), before, record()]);
    }

    #[test]
    fn a_full_queue_refuses_new_keys_and_takes_newer_records() {
        let queue = queue();
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

        let taken = queue.take().unwrap().changes;
        assert_eq!(taken.len(), MAX_QUEUED);
        assert_eq!(taken[7], newer());
        assert!(is_pending(&mut queue.save(vec![new()])));
        finish(&queue, taken.len(), Ok(()));
        assert_eq!(saved.wait(), Ok(()));
        assert_eq!(queue.state().degraded, None);
    }

    #[test]
    fn a_flush_is_ready_with_what_came_before_it() {
        let queue = queue();
        assert_eq!(queue.flush().wait(), Ok(()));
        queue.save(vec![removed("llm", "a")]);
        let mut waiting = queue.flush();
        let taken = queue.take().unwrap().changes;
        let mut written = queue.flush();
        queue.save(vec![removed("llm", "b")]);
        let mut later = queue.flush();
        assert!(is_pending(&mut waiting) && is_pending(&mut written));
        finish(&queue, taken.len(), Ok(()));
        assert_eq!((waiting.wait(), written.wait()), (Ok(()), Ok(())));
        assert!(is_pending(&mut later));
        let taken = queue.take().unwrap().changes;
        finish(&queue, taken.len(), Err(StoreError::Stopped));
        assert_eq!(later.wait(), Err(StoreError::Stopped));
    }

    #[test]
    fn takes_queued_changes_before_the_end() {
        let queue = queue();
        queue.save(vec![removed("llm", "a")]);
        queue.end();
        assert_eq!(
            queue.save(vec![removed("llm", "b")]).wait(),
            Err(StoreError::Stopped)
        );
        let taken = queue.take().unwrap().changes;
        finish(&queue, taken.len(), Ok(()));
        assert!(queue.take().is_none());
        queue.ended();
        assert_eq!(queue.state().degraded, None);
        assert_eq!(queue.flush().wait(), Err(StoreError::Stopped));
    }

    #[test]
    fn refuses_new_calls_before_those_that_end_work() {
        let queue = queue();
        let call = |bytes, share| queue.call(0, bytes, share).map_err(|(_, error)| error);
        for queued in 0..MAX_CALLS {
            let share = if queued < MAX_CALLS / 2 {
                Share::Half
            } else {
                Share::Whole
            };
            call(1, share).unwrap();
        }
        let full = StoreError::QueueFull { queued: MAX_CALLS };
        assert_eq!(call(1, Share::Whole), Err(full));
        assert_eq!(queue.take().unwrap().calls.len(), MAX_CALLS);
        assert_eq!(queue.state().lost, 1);

        // One call always fits.
        call(2 * MAX_CALL_BYTES, Share::Half).unwrap();
        let full = StoreError::QueueFull { queued: 1 };
        assert_eq!(call(1, Share::Half), Err(full.clone()));
        assert_eq!(call(1, Share::Whole), Err(full));
        queue.take().unwrap();
        call(MAX_CALL_BYTES / 2, Share::Half).unwrap();
        call(1, Share::Half).unwrap_err();
        call(1, Share::Whole).unwrap();
        assert_eq!(queue.state().queued, 2);
    }

    #[test]
    fn futures_fail_when_the_writer_has_ended() {
        let queue = queue();
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
