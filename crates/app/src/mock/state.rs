//! The state that all threads of a mock share: model, counts and log under one lock.
//!
//! The lock is held for less than a microsecond and never across an await. The clock is read under
//! it, because the model needs times that never decrease.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use policy::time::Timestamp;
use sim::upstream::LimitStatus;
use tidegate::Clock;

use super::MockSettings;
use super::model::{Decision, Model};
use super::stats::{LogEntry, MockStats, RequestEnd, RequestLog};
use super::style::plain_body;

#[derive(Debug)]
pub(super) struct MockState {
    pub(super) settings: MockSettings,
    /// The body of ordinary plain responses, built once.
    pub(super) plain_body: Bytes,
    locked: Mutex<Locked>,
    in_flight: AtomicU64,
    max_in_flight: AtomicU64,
}

#[derive(Debug)]
struct Locked {
    /// When it was started or reset, on the clock.
    origin: Timestamp,
    /// The number of resets: requests from before a reset are not counted after it.
    generation: u64,
    model: Model,
    log: RequestLog,
    clients: BTreeMap<IpAddr, usize>,
    /// By client.
    holds: Vec<Hold>,
}

/// A wait that a `Retry-After` asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    from: Timestamp,
    until: Timestamp,
}

impl MockState {
    pub(super) fn new(settings: MockSettings) -> Arc<Self> {
        let locked = Locked {
            origin: settings.clock.now(),
            generation: 0,
            model: Model::new(&settings),
            log: RequestLog::default(),
            clients: BTreeMap::new(),
            holds: vec![Hold::default()],
        };
        Arc::new(Self {
            plain_body: plain_body(settings.body_size),
            settings,
            locked: Mutex::new(locked),
            in_flight: AtomicU64::new(0),
            max_in_flight: AtomicU64::new(0),
        })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.settings.clock
    }

    /// Counts a connection and returns the number of the client at this address.
    pub(super) fn connect(&self, address: IpAddr) -> usize {
        let mut state = self.lock();
        state.log.connect();
        state.client(address)
    }

    /// Counts a request with this cost and decides about it.
    pub(super) fn receive(
        self: &Arc<Self>,
        client: usize,
        cost: u32,
        method: &Method,
        path: &str,
    ) -> (RequestGuard, Decision) {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.max_in_flight.fetch_max(in_flight, Ordering::Relaxed);
        let path = shortened(path).into();
        let mut state = self.lock();
        let now = state.now(self.clock());
        let decision = state.model.receive(client, cost, now);
        let is_early = state.is_early(client, now);
        if let Decision::Respond(planned) = &decision
            && let Some(seconds) = planned.retry_after
        {
            state.hold(client, planned.at, Duration::from_secs(seconds));
        }
        let number = state.log.receive(LogEntry {
            at: now.since(Timestamp::ZERO),
            client,
            method: method.clone(),
            path,
            status: None,
            took: None,
            is_early,
        });
        let guard = RequestGuard {
            state: Arc::clone(self),
            number,
            generation: state.generation,
            has_ended: false,
        };
        (guard, decision)
    }

    /// Waits until `at`, a time since the start; returns without a timer if it has passed, or if the
    /// mock was reset since.
    pub(super) async fn sleep_until(&self, guard: &RequestGuard, at: Timestamp) {
        let at = {
            let state = self.lock();
            if state.generation != guard.generation {
                return;
            }
            state.origin + at.since(Timestamp::ZERO)
        };
        if self.clock().now() < at {
            self.clock().sleep_until(at).await;
        }
    }

    /// The present state of the quota.
    pub(super) fn quota(&self) -> Option<LimitStatus> {
        let mut state = self.lock();
        let now = state.now(self.clock());
        state.model.quota(now)
    }

    /// The counts so far.
    pub(super) fn stats(&self) -> MockStats {
        let state = self.lock();
        let uptime = state.now(self.clock()).since(Timestamp::ZERO);
        MockStats {
            in_flight: self.in_flight.load(Ordering::Relaxed),
            max_in_flight: self.max_in_flight.load(Ordering::Relaxed),
            bans: state.model.bans(),
            max_queue: state.model.max_queue(),
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            ..state.log.stats()
        }
    }

    /// The last requests, and how many earlier ones were dropped.
    pub(super) fn log(&self) -> (Vec<LogEntry>, u64) {
        self.lock().log.entries()
    }

    /// Resets limits, script, counts, log and time.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        state.origin = self.clock().now();
        state.generation += 1;
        state.model = Model::new(&self.settings);
        state.log = RequestLog::default();
        state.holds.fill(Hold::default());
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        self.max_in_flight.store(in_flight, Ordering::Relaxed);
    }

    /// Poison is ignored: nothing that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locked {
    /// The time since the start or the last reset.
    fn now(&self, clock: &Clock) -> Timestamp {
        Timestamp::ZERO + clock.now().since(self.origin)
    }

    /// The number of a client; 0 for those past [`MAX_CLIENTS`].
    fn client(&mut self, address: IpAddr) -> usize {
        let next = self.clients.len();
        if next >= MAX_CLIENTS {
            return self.clients.get(&address).copied().unwrap_or_default();
        }
        let client = *self.clients.entry(address).or_insert(next);
        if self.holds.len() <= client {
            self.holds.resize(client + 1, Hold::default());
        }
        client
    }

    fn is_early(&self, client: usize, now: Timestamp) -> bool {
        self.holds
            .get(client)
            .is_some_and(|hold| hold.from + TRANSIT <= now && now < hold.until)
    }

    /// Records that a response sent at `sent` asks the client to wait.
    fn hold(&mut self, client: usize, sent: Timestamp, wait: Duration) {
        let Some(hold) = self.holds.get_mut(client) else {
            return;
        };
        if hold.until <= sent {
            hold.from = sent;
        }
        hold.until = hold.until.max(sent + wait);
    }
}

/// How many addresses are counted separately.
const MAX_CLIENTS: usize = 10_000;

/// A request that arrives this soon after a `Retry-After` was sent may have been sent before that
/// arrived: on a busy machine, the way between two processes takes some milliseconds.
const TRANSIT: Duration = Duration::from_millis(10);

/// Longer paths are cut in the log.
const MAX_PATH: usize = 200;

fn shortened(path: &str) -> &str {
    &path[..path.floor_char_boundary(MAX_PATH)]
}

/// A request in flight, until its response is sent. Dropped before [`end`](Self::end), it counts as
/// abandoned.
#[derive(Debug)]
pub(super) struct RequestGuard {
    state: Arc<MockState>,
    number: u64,
    generation: u64,
    has_ended: bool,
}

impl RequestGuard {
    /// Its number, counted from 0.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Counts how the request ended; only the first call counts.
    pub(super) fn end(&mut self, end: RequestEnd) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let mut state = self.state.lock();
        if state.generation == self.generation {
            let now = state.now(self.state.clock());
            state.log.end(self.number, end, now);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.end(RequestEnd::Abandoned);
        self.state.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
