//! Keeps over restarts what gates and endpoints are like.
//!
//! A hold, a breaker and a pause are written as soon as they begin or end; a person's override is
//! durable when it is answered. Rates move with every answer, so these are looked at every few
//! seconds, and written where a restart would make a difference. One thread does all of it, behind
//! the traffic: whoever is sent through a gate never waits for the disk.
//!
//! When the store fails, traffic goes on. What was lost is written again once a write succeeds,
//! for what is in memory is all of it.

mod mark;
mod noted;
mod written;

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::time::WallTime;
use store::{Change, KeptGate, Saved, StoreError, Stored};
use tidegate::{Refusal, Timestamp};

use super::Engine;
use crate::log::Line;
use crate::redact::Text;
use mark::Care;
use noted::{Noted, Notes};
pub(super) use written::fit_to_store;
use written::{Place, Written};

/// What has to be written, and what was.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    noted: Arc<Noted>,
    written: Mutex<Written>,
}

impl Keeper {
    /// While this is held nobody else writes the endpoint, so that what a person changed about it
    /// is not overtaken by how it was before.
    pub(super) fn take_in_hand(&self, pool: &str, name: &str) -> InHand<'_> {
        let place = (pool.to_owned(), name.to_owned());
        self.written().take_in_hand(place.clone());
        InHand {
            keeper: self,
            place,
        }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An endpoint that its holder writes.
#[derive(Debug)]
pub(super) struct InHand<'a> {
    keeper: &'a Keeper,
    place: Place,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.keeper.written().let_go(&self.place);
        // What happened meanwhile was left out.
        self.keeper.noted.pool(&self.place.0);
        let key = policy::key::endpoint_key(&self.place.0, &self.place.1);
        self.keeper.noted.gate(&key);
    }
}

/// How the keeping is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepState {
    /// Gates and pools that something happened to and that are not written yet, at most
    /// [`KeepState::MOST_NOTED`].
    pub noted: usize,
    /// How often there were more, so that all of them had to be looked at.
    pub times_full: u64,
}

impl KeepState {
    /// So many are noted one by one.
    pub const MOST_NOTED: usize = Noted::MOST;
}

impl Engine {
    /// How the keeping is doing.
    pub fn keep_state(&self) -> KeepState {
        let (noted, times_full) = self.keeper.noted.count();
        KeepState { noted, times_full }
    }

    /// A person makes a gate as new, and it is kept. `false` if there is no such gate.
    pub async fn reset_gate(&self, key: &str) -> bool {
        let is_known = self.limiter.reset(key);
        self.keep_gate(key).await;
        is_known
    }

    /// A person ends hold, open breaker and isolation of a gate, and that is kept. `false` if there
    /// is no such gate.
    pub async fn release_gate(&self, key: &str) -> bool {
        let is_known = self.limiter.release(key);
        self.keep_gate(key).await;
        is_known
    }

    /// A person closes a gate to everyone, and it is kept.
    ///
    /// # Errors
    ///
    /// If there is no room for another gate.
    pub async fn isolate_gate(&self, key: &str) -> Result<(), Refusal> {
        self.limiter.isolate(key)?;
        self.keep_gate(key).await;
        Ok(())
    }

    /// Writes a gate that a person changed. If that fails it stays changed: an override in an
    /// emergency is worth more than its record, which is tried again.
    async fn keep_gate(&self, key: &str) {
        // Several hosts may share a gate, which then has a key of its own.
        if let Some(gate) = self.limiter.gate(key) {
            _ = self.save_gates([gate.key.as_str()].into_iter()).await;
        }
    }

    /// The record of a gate as it is after its release, to be stored together with another change.
    pub(super) fn released_gate(&self, key: &str) -> Option<Change> {
        let mut record = self.limiter.record(key)?;
        record.hold = None;
        record.hold_source = None;
        record.breaker.state = BreakerState::Closed;
        record.breaker.open_for = Duration::ZERO;
        let at = self.limiter.clock().wall();
        let key = key.to_owned();
        Some(Change::Gate(KeptGate { key, record, at }))
    }

    /// Takes up the gates that were stored, and drops from the store what belongs to endpoints that
    /// are not there any more. The endpoints have to be served by now: gates have their settings.
    pub(super) fn take_up(&self, stored: &Stored) {
        let live = self.live_endpoints();
        // One that was added and is left out for want of a secret may come back.
        let is_added = |pool: &str, name: &str| {
            let mut added = stored.added.iter();
            added.any(|added| added.pool == pool && added.name == name)
        };
        let mut written = self.keeper.written();
        let mut gone = Vec::new();
        for endpoint in &stored.endpoints {
            let (pool, name) = (endpoint.pool.clone(), endpoint.name.clone());
            if live.contains(policy::key::endpoint_key(&pool, &name).as_str()) {
                written.know_endpoint(endpoint);
            } else if !is_added(&pool, &name) {
                gone.push(Change::ForgetEndpoint { pool, name });
            }
        }
        for gate in &stored.gates {
            let key = gate.key.as_str();
            let endpoint = key.split_once('/');
            if endpoint.is_some() && !live.contains(key) {
                if endpoint.is_some_and(|(pool, name)| is_added(pool, name)) {
                    continue;
                }
            } else {
                let max_hold = self.limiter.settings(key).gate.max_hold();
                let record = gate.record_at(self.limiter.clock().wall(), max_hold);
                if self.limiter.restore(key, &record) {
                    written.know_gate(gate);
                    continue;
                }
            }
            let key = gate.key.clone();
            gone.push(Change::ForgetGate { key });
        }
        for part in gone.chunks(ROWS) {
            self.store.save_all(part.iter().cloned());
        }
    }

    fn live_endpoints(&self) -> HashSet<Arc<str>> {
        let served = self.served();
        let endpoints = served
            .routes()
            .flat_map(|(_, route)| route.pool.endpoints());
        endpoints
            .map(|endpoint| Arc::clone(endpoint.key()))
            .collect()
    }

    fn save_gates<'k>(&self, keys: impl Iterator<Item = &'k str>) -> Saved {
        let mut written = self.keeper.written();
        let changes = written.gate_changes(&self.limiter, keys);
        self.store.save_all(changes)
    }

    fn save_pools<'p>(&self, pools: impl Iterator<Item = &'p str>) -> Saved {
        let served = self.served();
        let mut written = self.keeper.written();
        let changes = written.pool_changes(&served, &self.limiter, pools);
        self.store.save_all(changes)
    }

    /// Writes what is news about any endpoint.
    fn save_endpoints(&self) -> Saved {
        let served = self.served();
        let mut written = self.keeper.written();
        let pools = served.routes().map(|(name, _)| name);
        let mut changes = written.pool_changes(&served, &self.limiter, pools);
        changes.extend(written.endpoints_gone(&served));
        self.store.save_all(changes)
    }

    /// The keys of gates that are worth a write. What they are like is read again when it is
    /// written.
    fn gates_to_save(&self, care: Care) -> Vec<String> {
        let records = self.limiter.records();
        let count = records.len();
        let at = self.limiter.clock().wall();
        let mut news = Vec::new();
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            // A few at a time, for a person may wait for the lock.
            let written = self.keeper.written();
            let part = records.by_ref().take(ROWS);
            news.extend(part.filter(|(key, record)| written.is_news(key, record, care, at)));
        }
        let mut keys: Vec<String> = news.into_iter().map(|(key, _)| key).collect();
        let gone = self.keeper.written().gone(&self.limiter, count, &keys);
        keys.extend(gone);
        keys
    }
}

/// Rows that are written together. A commit of so many takes some ten milliseconds, which is what a
/// hold that comes meanwhile waits for its turn; fewer would spend more on commits than on rows.
const ROWS: usize = 1024;

/// The thread that writes. Dropping this writes what is left as [`Keeping::finish`] does, but does
/// not wait for a stuck disk for ever.
#[derive(Debug)]
pub struct Keeping {
    noted: Arc<Noted>,
}

impl Keeping {
    /// Writes from now on what happens to the gates and endpoints of `engine`, and logs when the
    /// store fails and when it works again.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had.
    pub fn start(engine: &Arc<Engine>) -> io::Result<Self> {
        let noted = Arc::clone(&engine.keeper.noted);
        let mut rounds = Rounds {
            engine: Arc::clone(engine),
            lost: engine.store.state().lost,
            is_degraded: false,
        };
        std::thread::Builder::new()
            .name("tidegate-keep".to_owned())
            .spawn(move || {
                let done = Done(Arc::clone(&rounds.engine.keeper.noted));
                rounds.run();
                // Whoever waits for the end may want the store for themselves.
                drop(rounds);
                drop(done);
            })?;
        engine.hub.add(Arc::clone(&noted) as _);
        Ok(Self { noted })
    }

    /// Writes all that is not written yet, and ends when the store has it or has failed.
    pub async fn finish(&self) {
        self.noted.end();
        while !self.noted.is_done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.noted.end();
        self.noted.wait_until_done(PATIENCE);
    }
}

/// How long who leaves without waiting for the end waits all the same: what is left is mostly
/// written within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells of the end of the thread, also if it panics.
struct Done(Arc<Noted>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// What the thread does.
struct Rounds {
    engine: Arc<Engine>,
    /// Rows that the store has lost so far, as far as that was dealt with.
    lost: u64,
    is_degraded: bool,
}

/// Between two looks at all gates. A rate that was learned in the last few seconds is learned again
/// in as many. A look at 100 000 gates takes a tenth of a second of one core, so that more often
/// would be noticed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Between two looks at how the store is doing, which are a lock and a comparison.
const JUDGE_EVERY: Duration = Duration::from_secs(1);

/// Before what was lost is written again. A disk that fails is not hurried, and a hold that was
/// lost is not without its record for long.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Rounds {
    fn run(&mut self) {
        let mut look_at = self.now() + LOOK_EVERY;
        loop {
            let clock = self.engine.limiter.clock();
            let until = look_at.min(self.now() + JUDGE_EVERY);
            let (notes, goes_on) = self.engine.keeper.noted.wait(clock, until);
            if !goes_on {
                break;
            }
            self.write(&notes);
            if notes.is_all || self.now() >= look_at {
                // What was lost is seen by the store's own count.
                _ = self.look(Care::Noticeable);
                look_at = self.now() + LOOK_EVERY;
            }
            if self.judge_store() {
                look_at = look_at.min(self.now() + TRY_AGAIN_AFTER);
            }
        }
        // What is on its way may fail yet, and then it is written once more.
        _ = self.engine.store.flush().wait();
        self.judge_store();
        if self.look(Care::Everything).is_err() {
            // There is no later any more.
            self.judge_store();
            _ = self.look(Care::Everything);
        }
        _ = self.engine.store.flush().wait();
        self.judge_store();
    }

    /// Hands on what was noted. The disk is not waited for, so that what comes next is part of its
    /// next commit and not of the one after; the queue of the store has the bound.
    fn write(&self, notes: &Notes) {
        let pools = notes.pools.iter().map(|name| &**name);
        let gates = notes.gates.iter().map(|key| &**key);
        drop(self.engine.save_pools(pools));
        drop(self.engine.save_gates(gates));
    }

    /// Looks at everything and writes what is news.
    fn look(&self, care: Care) -> Result<(), StoreError> {
        let mut has_written = self.write_endpoints()? | self.write_tokens()?;
        let keys = self.engine.gates_to_save(care);
        for part in keys.chunks(ROWS) {
            self.engine
                .save_gates(part.iter().map(String::as_str))
                .wait()?;
            has_written = true;
            // What is urgent does not wait for the rest.
            let noted = &self.engine.keeper.noted;
            let notes = noted.take();
            if notes.is_all {
                noted.all();
            }
            self.write(&notes);
        }
        if !has_written && self.is_degraded {
            self.ask_store()?;
        }
        Ok(())
    }

    fn write_endpoints(&self) -> Result<bool, StoreError> {
        let before = self.engine.store.state().written;
        self.engine.save_endpoints().wait()?;
        Ok(self.engine.store.state().written > before)
    }

    /// Stores refresh tokens that could not be stored when they were issued.
    fn write_tokens(&self) -> Result<bool, StoreError> {
        let served = self.engine.served();
        let mut has_written = false;
        for token in served.tokens().values() {
            if let Some(change) = token.unsaved() {
                self.engine.store.save(change.clone()).wait()?;
                if let Change::Rotated(rotated) = &change {
                    token.mark_saved(rotated);
                }
                has_written = true;
            }
        }
        Ok(has_written)
    }

    /// A store is said to work when a write has succeeded. If there is nothing at all to write,
    /// this is a write that changes nothing.
    fn ask_store(&self) -> Result<(), StoreError> {
        let before_all = WallTime::from_unix_millis(i64::MIN);
        let change = Change::ForgetGatesBefore(before_all);
        self.engine.store.save(change).wait()
    }

    /// Says when the store begins to fail and when it works again. `true` if something was lost
    /// that has to be written again.
    fn judge_store(&mut self) -> bool {
        let state = self.engine.store.state();
        let has_lost = state.lost > self.lost;
        if has_lost {
            self.lost = state.lost;
            self.engine.keeper.written().doubt_all();
        }
        match (&state.degraded, self.is_degraded) {
            (Some(problem), false) => {
                let problem = problem.to_string();
                let problem = Text::new(&problem);
                self.engine.log.write(&Line::StoreDegraded { problem });
            }
            (None, true) => self.engine.log.write(&Line::StoreRecovered),
            (Some(_), true) | (None, false) => {}
        }
        self.is_degraded = state.degraded.is_some();
        has_lost || self.is_degraded
    }

    fn now(&self) -> Timestamp {
        self.engine.limiter.clock().now()
    }
}

#[cfg(test)]
mod tests {
    use store::Store;
    use tidegate::Clock;

    use super::*;
    use crate::log::Log;
    use crate::settings::{Process, Settings, Sources};

    fn engine() -> Arc<Engine> {
        let text = "[pool.p]\nendpoints = [\
            { name = \"a\", url = \"http://127.0.0.1:9\" }, { name = \"b\", url = \"http://127.0.0.1:9\" }]";
        let sources = Sources {
            file: Some(("test.toml".to_owned(), text.into())),
            flags: Vec::new(),
        };
        let settings = Arc::new(Settings::load(&sources, &Process).unwrap());
        Engine::new(settings, Store::memory(), Log::silent(), Clock::system(), 1)
    }

    #[test]
    fn an_endpoint_in_hand_is_left_to_its_holder() {
        let engine = engine();
        let save = || {
            let saved = engine.save_pools(["p"].into_iter());
            saved.wait().unwrap();
            let stored = engine.store.load().unwrap().endpoints.into_iter();
            stored.map(|endpoint| endpoint.name).collect::<Vec<_>>()
        };
        let in_hand = engine.keeper.take_in_hand("p", "a");
        assert_eq!(save(), ["b"]);
        drop(in_hand);
        assert_eq!(engine.keep_state().noted, 2);
        assert_eq!(save(), ["a", "b"]);
    }

    #[test]
    fn what_did_not_change_is_not_written_again_unless_a_write_failed() {
        let engine = engine();
        engine.limiter.isolate("a.example.com").unwrap();
        let keys = engine.gates_to_save(Care::Noticeable);
        assert_eq!(keys, ["a.example.com"]);
        let save = |keys: &[String]| engine.save_gates(keys.iter().map(String::as_str));
        save(&keys).wait().unwrap();
        assert_eq!(engine.gates_to_save(Care::Everything), [""; 0]);
        engine.keeper.written().doubt_all();
        assert_eq!(engine.gates_to_save(Care::Noticeable), keys);
        save(&keys).wait().unwrap();
        engine.limiter.release("a.example.com");
        assert_eq!(engine.gates_to_save(Care::Noticeable), keys);
    }
}
