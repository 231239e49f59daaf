//! Writes what gates and endpoints learn, so that it survives restarts.
//!
//! A hold, a breaker and a pause are written as soon as they begin or end. Rates move with every
//! response, so they are looked at every few seconds, and written where a restart would make a
//! difference. One thread does all of it, behind the traffic: no request waits for the disk.
//!
//! When the store fails, traffic continues. What was lost is written again once a write succeeds,
//! because everything is in memory.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::time::WallTime;
use store::{Change, SaveFuture, StoreError, StoredState};
use tidegate::Timestamp;

use super::State;
use super::pending::{Pending, PendingKeys};
use super::watermark::{EndpointName, Watermarks, WriteThreshold};
use crate::redact::Text;

/// What has to be written, and what was.
#[derive(Debug, Default)]
pub(super) struct Persistence {
    pending: Arc<Pending>,
    watermarks: Mutex<Watermarks>,
}

impl Persistence {
    /// While this is held the thread writes neither the endpoint nor its gate, so that a change of a
    /// person is not followed by an older record.
    pub(super) fn lock_endpoint(&self, pool: &str, name: &str, gate: &str) -> RowLock<'_> {
        let endpoint = (pool.to_owned(), name.to_owned());
        self.watermarks().lock_endpoint(endpoint.clone());
        let mut lock = self.lock_gate(gate);
        lock.endpoint = Some(endpoint);
        lock
    }

    /// While this is held the thread does not write the gate.
    pub(super) fn lock_gate(&self, key: &str) -> RowLock<'_> {
        self.watermarks().lock_gate(key.to_owned());
        RowLock {
            persistence: self,
            endpoint: None,
            gate: key.to_owned(),
        }
    }

    pub(super) fn watermarks(&self) -> MutexGuard<'_, Watermarks> {
        self.watermarks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows that only the holder writes.
#[derive(Debug)]
pub(super) struct RowLock<'a> {
    persistence: &'a Persistence,
    endpoint: Option<EndpointName>,
    gate: String,
}

impl Drop for RowLock<'_> {
    fn drop(&mut self) {
        let mut watermarks = self.persistence.watermarks();
        watermarks.unlock_gate(&self.gate);
        // What happened meanwhile was left out.
        self.persistence.pending.gate(&self.gate);
        if let Some(endpoint) = &self.endpoint {
            watermarks.unlock_endpoint(endpoint);
            self.persistence.pending.pool(&endpoint.0);
        }
    }
}

/// How much waits to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistState {
    /// Gates and pools that have changed and are not written yet, at most
    /// [`PersistState::MAX_PENDING`].
    pub pending: usize,
    /// How often there were more, so that all of them had to be looked at.
    pub overflows: u64,
}

impl PersistState {
    /// Gates and pools that are remembered one by one.
    pub const MAX_PENDING: usize = Pending::MAX;
}

impl State {
    /// How much waits to be written.
    pub fn persist_state(&self) -> PersistState {
        let (pending, overflows) = self.persistence.pending.count();
        PersistState { pending, overflows }
    }

    pub(super) fn is_isolated(&self, key: &str) -> bool {
        let record = self.limiter().record(key);
        record.is_some_and(|record| record.breaker.state == BreakerState::Isolated)
    }

    /// Restores the gates that were stored, and drops from the store what belongs to endpoints that
    /// do not exist any more. Pools come first, because gates have their settings.
    pub(super) fn restore_gates(&self, stored: &StoredState) {
        let live = self.live_endpoints();
        // An added endpoint that is left out because its secret is missing may be restored later.
        let is_added = |pool: &str, name: &str| {
            let mut added = stored.added.iter();
            added.any(|added| added.pool == pool && added.name == name)
        };
        let mut watermarks = self.persistence.watermarks();
        let mut gone = Vec::new();
        for endpoint in &stored.endpoints {
            let (pool, name) = (endpoint.pool.clone(), endpoint.name.clone());
            if live.contains(policy::key::endpoint_key(&pool, &name).as_str()) {
                watermarks.insert_endpoint(endpoint);
            } else if !is_added(&pool, &name) && !self.store.shares_operations() {
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
                let max_hold = self.limiter().settings(key).gate.max_hold();
                let record = gate.record_at(self.limiter().clock().wall(), max_hold);
                if self.limiter().restore(key, &record) {
                    watermarks.insert_gate(gate);
                    continue;
                }
            }
            let key = gate.key.clone();
            gone.push(Change::ForgetGate { key });
        }
        for part in gone.chunks(BATCH_ROWS) {
            self.store.save_all(part.iter().cloned());
        }
    }

    fn live_endpoints(&self) -> HashSet<Arc<str>> {
        let configuration = self.configuration();
        let endpoints = configuration.pools().flat_map(|(_, pool)| pool.endpoints());
        endpoints
            .map(|endpoint| Arc::clone(endpoint.key()))
            .collect()
    }

    fn save_gates<'k>(&self, keys: impl Iterator<Item = &'k str>) -> SaveFuture {
        let mut watermarks = self.persistence.watermarks();
        let changes = watermarks.gate_changes(self.limiter(), keys);
        self.store.save_all(changes)
    }

    fn save_pools<'p>(&self, pools: impl Iterator<Item = &'p str>) -> SaveFuture {
        let configuration = self.configuration();
        let mut watermarks = self.persistence.watermarks();
        let changes = watermarks.pool_changes(&configuration, self.limiter(), pools);
        self.store.save_all(changes)
    }

    /// Writes every endpoint that has changed.
    fn save_endpoints(&self) -> SaveFuture {
        let configuration = self.configuration();
        let mut watermarks = self.persistence.watermarks();
        let pools = configuration.pools().map(|(name, _)| name);
        let mut changes = watermarks.pool_changes(&configuration, self.limiter(), pools);
        let removed = watermarks.removed_endpoints(&configuration);
        // Other servers may have endpoints that this one has not, while a configuration is rolled out.
        if !self.store.shares_operations() {
            changes.extend(removed);
        }
        self.store.save_all(changes)
    }

    /// The keys of gates that have to be written. Their records are read again then.
    fn gates_to_save(&self, threshold: WriteThreshold) -> Vec<String> {
        let records = self.limiter().records();
        let count = records.len();
        let at = self.limiter().clock().wall();
        let mut changed = Vec::new();
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            // A few at a time, because a person may wait for the lock.
            let watermarks = self.persistence.watermarks();
            let part = records.by_ref().take(BATCH_ROWS);
            changed.extend(
                part.filter(|(key, record)| watermarks.has_changed(key, record, threshold, at)),
            );
        }
        let mut keys: Vec<String> = changed.into_iter().map(|(key, _)| key).collect();
        let evicted = self
            .persistence
            .watermarks()
            .evicted(self.limiter(), count, &keys);
        keys.extend(evicted);
        keys
    }
}

/// Rows that are written together. A commit of so many takes some ten milliseconds, which is what a
/// hold that comes meanwhile waits for its turn; fewer would spend more on commits than on rows.
const BATCH_ROWS: usize = 1024;

/// The thread that writes. Dropping this writes the rest as [`Persister::finish`] does, but does not
/// wait for a stuck disk indefinitely.
#[derive(Debug)]
pub struct Persister {
    pending: Arc<Pending>,
}

impl Persister {
    /// Writes from now on what happens to the gates and endpoints of `state`, and logs when the
    /// store fails and when it works again.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had.
    pub fn start(state: &Arc<State>) -> io::Result<Self> {
        let pending = Arc::clone(&state.persistence.pending);
        let mut thread = PersistThread {
            state: Arc::clone(state),
            lost: state.store.state().lost,
            is_degraded: false,
        };
        std::thread::Builder::new()
            .name("tidegate-persist".to_owned())
            .spawn(move || {
                let done = Done(Arc::clone(&thread.state.persistence.pending));
                thread.run();
                // The store is free before the end is signalled.
                drop(thread);
                drop(done);
            })?;
        state.core.events().add(Arc::clone(&pending) as _);
        Ok(Self { pending })
    }

    /// Writes all that is not written yet, and ends when the store has it or has failed.
    pub async fn finish(&self) {
        self.pending.end();
        while !self.pending.is_done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Persister {
    fn drop(&mut self) {
        self.pending.end();
        self.pending.wait_until_done(DROP_TIMEOUT);
    }
}

/// How long dropping waits: the rest is mostly written within milliseconds.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// Signals the end of the thread, also if it panics.
struct Done(Arc<Pending>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// What the thread works with.
struct PersistThread {
    state: Arc<State>,
    /// Rows that the store had lost at the last check.
    lost: u64,
    is_degraded: bool,
}

/// Between two scans of all gates. A rate that was learned in the last few seconds is learned again
/// in as many. A scan of 100 000 gates takes a tenth of a second of one core, so more often would
/// be noticeable.
const SCAN_EVERY: Duration = Duration::from_secs(5);

/// Between two checks of the store, each a lock and a comparison.
const CHECK_STORE_EVERY: Duration = Duration::from_secs(1);

/// Before what was lost is written again: soon enough for a hold, and no load for a failing disk.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl PersistThread {
    fn run(&mut self) {
        let mut scan_at = self.now() + SCAN_EVERY;
        loop {
            let clock = self.state.limiter().clock();
            let until = scan_at.min(self.now() + CHECK_STORE_EVERY);
            let (keys, is_running) = self.state.persistence.pending.wait(clock, until);
            if !is_running {
                break;
            }
            self.write(&keys);
            if keys.is_all || self.now() >= scan_at {
                // The store counts what was lost.
                _ = self.scan(WriteThreshold::Noticeable);
                scan_at = self.now() + SCAN_EVERY;
            }
            if self.check_store() {
                scan_at = scan_at.min(self.now() + RETRY_AFTER);
            }
        }
        // What is being written may still fail, and is then written once more.
        _ = self.state.store.flush().wait();
        self.check_store();
        if self.scan(WriteThreshold::Any).is_err() {
            // The last chance.
            self.check_store();
            _ = self.scan(WriteThreshold::Any);
        }
        _ = self.state.store.flush().wait();
        self.check_store();
    }

    /// Hands pending keys to the store without waiting for the disk, so that what follows is part
    /// of the next commit and not of the one after; the queue of the store is bounded.
    fn write(&self, keys: &PendingKeys) {
        let pools = keys.pools.iter().map(|name| &**name);
        let gates = keys.gates.iter().map(|key| &**key);
        drop(self.state.save_pools(pools));
        drop(self.state.save_gates(gates));
    }

    /// Looks at everything and writes what has changed.
    fn scan(&self, threshold: WriteThreshold) -> Result<(), StoreError> {
        let mut has_written = self.write_endpoints()? | self.write_tokens()?;
        let changed = self.state.gates_to_save(threshold);
        for part in changed.chunks(BATCH_ROWS) {
            self.state
                .save_gates(part.iter().map(String::as_str))
                .wait()?;
            has_written = true;
            // Pending keys do not wait for the rest.
            let pending = &self.state.persistence.pending;
            let keys = pending.take();
            if keys.is_all {
                pending.all();
            }
            self.write(&keys);
        }
        if !has_written && self.is_degraded {
            self.probe_store()?;
        }
        Ok(())
    }

    fn write_endpoints(&self) -> Result<bool, StoreError> {
        let before = self.state.store.own_state().written;
        self.state.save_endpoints().wait()?;
        Ok(self.state.store.own_state().written > before)
    }

    /// Stores refresh tokens that could not be stored when they were issued.
    fn write_tokens(&self) -> Result<bool, StoreError> {
        let configuration = self.state.configuration();
        let mut has_written = false;
        for token in configuration.credentials() {
            if let Some(change) = token.unsaved() {
                self.state.store.save(change.clone()).wait()?;
                if let Change::Rotated(rotated) = &change {
                    token.mark_saved(rotated);
                }
                has_written = true;
            }
        }
        Ok(has_written)
    }

    /// A store works again when a write has succeeded. If there is nothing to write, this is a
    /// write that changes nothing.
    fn probe_store(&self) -> Result<(), StoreError> {
        let before_all = WallTime::from_unix_millis(i64::MIN);
        let change = Change::ForgetGatesBefore(before_all);
        self.state.store.save(change).wait()
    }

    /// Logs when the store begins to fail and when it works again. `true` if something was lost and
    /// has to be written again.
    fn check_store(&mut self) -> bool {
        let own = self.state.store.own_state();
        let state = self.state.store.state();
        let has_lost = own.lost > self.lost;
        if has_lost {
            self.lost = own.lost;
            self.state.persistence.watermarks().invalidate_all();
        }
        match (&state.degraded, self.is_degraded) {
            (Some(problem), false) => {
                let problem = problem.to_string();
                let problem = Text::new(&problem);
                self.state.log().store_degraded(problem);
            }
            (None, true) => self.state.log().store_recovered(),
            (Some(_), true) | (None, false) => {}
        }
        self.is_degraded = state.degraded.is_some();
        has_lost || own.degraded.is_some()
    }

    fn now(&self) -> Timestamp {
        self.state.limiter().clock().now()
    }
}

#[cfg(test)]
mod tests {
    use store::Store;
    use tidegate::Clock;

    use super::*;
    use crate::core::Core;
    use crate::log::Log;
    use crate::settings::{Process, Settings, Sources};

    fn state() -> Arc<State> {
        let text = "[pool.p]\nendpoints = [\
            { name = \"a\", url = \"http://127.0.0.1:9\" }, { name = \"b\", url = \"http://127.0.0.1:9\" }]";
        let sources = Sources {
            file: Some(("test.toml".to_owned(), text.into())),
            flags: Vec::new(),
        };
        let settings = Arc::new(Settings::load(&sources, &Process).unwrap());
        let core = Core::new(&settings, Log::silent(), Clock::system(), 1);
        State::restore(core, settings, Store::memory()).unwrap().0
    }

    #[test]
    fn does_not_write_a_locked_row() {
        let state = state();
        let save = || {
            let saved = state.save_pools(["p"].into_iter());
            saved.wait().unwrap();
            let stored = state.store.load().unwrap().endpoints.into_iter();
            stored.map(|endpoint| endpoint.name).collect::<Vec<_>>()
        };
        let row = state.persistence.lock_endpoint("p", "a", "p/a");
        assert_eq!(save(), ["b"]);
        drop(row);
        assert_eq!(state.persist_state().pending, 2);
        assert_eq!(save(), ["a", "b"]);
    }

    #[test]
    fn does_not_write_a_locked_gate() {
        let state = state();
        let key = "a.example.com";
        state.limiter().isolate(key).unwrap();
        let save = || {
            state.save_gates([key].into_iter()).wait().unwrap();
            state.store.load().unwrap().gates.len()
        };
        let row = state.persistence.lock_gate(key);
        assert_eq!(save(), 0);
        drop(row);
        assert_eq!(state.persist_state().pending, 1);
        assert_eq!(save(), 1);
        // A gate that was stored, and that there is no room for.
        drop(state.persistence.lock_gate("b.example.com"));
        let change = state
            .persistence
            .watermarks()
            .gate_changes(state.limiter(), ["b.example.com"].into_iter());
        assert!(matches!(&*change, [Change::ForgetGate { .. }]));
    }

    #[test]
    fn writes_only_changes_until_a_write_fails() {
        let state = state();
        state.limiter().isolate("a.example.com").unwrap();
        let keys = state.gates_to_save(WriteThreshold::Noticeable);
        assert_eq!(keys, ["a.example.com"]);
        let save = |keys: &[String]| state.save_gates(keys.iter().map(String::as_str));
        save(&keys).wait().unwrap();
        assert_eq!(state.gates_to_save(WriteThreshold::Any), [""; 0]);
        state.persistence.watermarks().invalidate_all();
        assert_eq!(state.gates_to_save(WriteThreshold::Noticeable), keys);
        save(&keys).wait().unwrap();
        state.limiter().release("a.example.com");
        assert_eq!(state.gates_to_save(WriteThreshold::Noticeable), keys);
    }
}
