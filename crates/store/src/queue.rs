//! Changes that wait to be written.
//!
//! Whoever saves only locks, puts the change at the end and leaves. Whoever writes takes all that
//! has gathered, so that one commit is for many: the slower the disk, the more go together.
//!
//! The queue has a bound. A record whose gate or endpoint has one waiting takes its place, so a
//! disk that is stuck lets the queue grow to one record for each of them and no further; what has
//! no place any more is refused, and its owner told.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::StoreState;
use crate::change::Change;
use crate::error::StoreError;
use crate::saved::{Batch, Saved};

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
    /// Nobody writes any more.
    Ended,
}

impl Queue {
    /// Puts changes where they belong, all or none.
    pub(crate) fn save(&self, changes: Vec<Change>) -> Saved {
        if changes.is_empty() {
            return Saved::ready(Ok(()));
        }
        let rows = changes.len();
        let mut state = self.lock();
        if let Err(error) = self.check(&state, &changes) {
            state.lost += rows as u64;
            return Saved::ready(Err(error));
        }
        for change in changes {
            self.put(&mut state, change);
        }
        self.ready.notify_one();
        Saved::with(&state.batch)
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
    pub(crate) fn flush(&self) -> Saved {
        let state = self.lock();
        if state.phase == Phase::Ended {
            return Saved::ready(Err(StoreError::Stopped));
        }
        if !state.waiting.is_empty() {
            return Saved::with(&state.batch);
        }
        match &state.writing {
            Some(batch) => Saved::with(batch),
            None => Saved::ready(Ok(())),
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

    /// For the writer: it is gone. Whoever still waits hears of it.
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
