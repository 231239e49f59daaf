//! Where requests are taken in: time, model and journal under one lock, shared by all threads.
//!
//! The lock is held for well below a microsecond and never while anything waits. Reading the clock
//! under it keeps times in the order in which the model is asked.

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
use super::journal::{End, Journal, LogEntry, MockStats};
use super::model::{Fate, Model};
use super::style::plain_body;

/// All that the threads of a mock share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) settings: MockSettings,
    /// What is answered where a style has nothing better: made once, sent often.
    pub(super) ordinary: Bytes,
    state: Mutex<State>,
    in_flight: AtomicU64,
    max_in_flight: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// When it began, on the clock.
    origin: Timestamp,
    /// How often it began anew: what is under way from before counts no more.
    generation: u64,
    model: Model,
    journal: Journal,
    clients: BTreeMap<IpAddr, usize>,
    /// By client: what was said about when to come back.
    holds: Vec<Hold>,
}

/// A wait that was asked for by `Retry-After`.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    from: Timestamp,
    until: Timestamp,
}

impl Desk {
    pub(super) fn new(settings: MockSettings) -> Arc<Self> {
        let state = State {
            origin: settings.clock.now(),
            generation: 0,
            model: Model::new(&settings),
            journal: Journal::default(),
            clients: BTreeMap::new(),
            holds: vec![Hold::default()],
        };
        Arc::new(Self {
            ordinary: plain_body(settings.body_size),
            settings,
            state: Mutex::new(state),
            in_flight: AtomicU64::new(0),
            max_in_flight: AtomicU64::new(0),
        })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.settings.clock
    }

    /// Notes a connection and gives the number of the client at this address.
    pub(super) fn connected(&self, address: IpAddr) -> usize {
        let mut state = self.lock();
        state.journal.connected();
        state.client(address)
    }

    /// Takes in a request and decides what becomes of it.
    pub(super) fn arrive(
        self: &Arc<Self>,
        client: usize,
        method: &Method,
        path: &str,
    ) -> (Ticket, Fate) {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.max_in_flight.fetch_max(in_flight, Ordering::Relaxed);
        let path = shortened(path).into();
        let mut state = self.lock();
        let now = state.now(self.clock());
        let fate = state.model.receive(client, now);
        let is_early = state.is_early(client, now);
        if let Fate::Answered(planned) = &fate
            && let Some(seconds) = planned.retry_after
        {
            state.hold(client, planned.at, Duration::from_secs(seconds));
        }
        let number = state.journal.arrived(LogEntry {
            at: now.since(Timestamp::ZERO),
            client,
            method: method.clone(),
            path,
            status: None,
            took: None,
            is_early,
        });
        let ticket = Ticket {
            desk: Arc::clone(self),
            number,
            generation: state.generation,
            is_open: true,
        };
        (ticket, fate)
    }

    /// Waits until the mock's own time is `at`; at once if it has come, without any timer.
    pub(super) async fn sleep_until(&self, ticket: &Ticket, at: Timestamp) {
        let at = {
            let state = self.lock();
            if state.generation != ticket.generation {
                return;
            }
            state.origin + at.since(Timestamp::ZERO)
        };
        if self.clock().now() < at {
            self.clock().sleep_until(at).await;
        }
    }

    /// What is left of the quota.
    pub(super) fn quota(&self) -> Option<LimitStatus> {
        let mut state = self.lock();
        let now = state.now(self.clock());
        state.model.quota(now)
    }

    /// What was seen so far.
    pub(super) fn stats(&self) -> MockStats {
        let state = self.lock();
        let uptime = state.now(self.clock()).since(Timestamp::ZERO);
        MockStats {
            in_flight: self.in_flight.load(Ordering::Relaxed),
            max_in_flight: self.max_in_flight.load(Ordering::Relaxed),
            bans: state.model.bans(),
            max_queue: state.model.max_queue(),
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            ..state.journal.counts()
        }
    }

    /// The last requests, and how many there were before them.
    pub(super) fn log(&self) -> (Vec<LogEntry>, u64) {
        self.lock().journal.log()
    }

    /// Begins anew: limits, script, counts, log and time.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        state.origin = self.clock().now();
        state.generation += 1;
        state.model = Model::new(&self.settings);
        state.journal = Journal::default();
        state.holds.fill(Hold::default());
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        self.max_in_flight.store(in_flight, Ordering::Relaxed);
    }

    /// Poison is ignored: nothing that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time since the beginning.
    fn now(&self, clock: &Clock) -> Timestamp {
        Timestamp::ZERO + clock.now().since(self.origin)
    }

    /// The number of a client; all that are too many are the first.
    fn client(&mut self, address: IpAddr) -> usize {
        let next = self.clients.len();
        if next >= MOST_CLIENTS {
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
            .is_some_and(|hold| hold.from + UNDER_WAY <= now && now < hold.until)
    }

    /// Notes that an answer which leaves at `sent` asks the client to wait.
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

/// Addresses that are told apart.
const MOST_CLIENTS: usize = 10_000;

/// What arrives so soon after a `Retry-After` was sent may have left before that arrived: a busy
/// machine takes some milliseconds from one process to the other.
const UNDER_WAY: Duration = Duration::from_millis(10);

/// Longer paths are of no use in a log.
const LONGEST_PATH: usize = 200;

fn shortened(path: &str) -> &str {
    &path[..path.floor_char_boundary(LONGEST_PATH)]
}

/// A request that is under way, until its answer is sent to the end.
#[derive(Debug)]
pub(super) struct Ticket {
    desk: Arc<Desk>,
    number: u64,
    generation: u64,
    /// Is it still to be answered?
    is_open: bool,
}

impl Ticket {
    /// Its number, from 0.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn end(&mut self, end: End) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let mut state = self.desk.lock();
        if state.generation == self.generation {
            let now = state.now(self.desk.clock());
            state.journal.ended(self.number, end, now);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(End::Abandoned);
        self.desk.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
