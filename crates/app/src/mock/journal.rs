//! What a mock has seen: counts, and the last requests one by one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use http::Method;
use policy::time::Timestamp;
use serde::Serialize;

/// What came to a mock, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MockStats {
    /// Requests that arrived.
    pub received: u64,
    /// Answered with 2xx or 3xx.
    pub accepted: u64,
    /// Answered with 429, 403 or 503.
    pub refused: u64,
    /// Everything else that is over: other statuses, connections reset, silence, and clients that
    /// went away before their answer.
    pub failed: u64,
    /// Of those failed: clients that went away.
    pub abandoned: u64,
    /// Requests that arrived before a `Retry-After` that was sent to their client had ended.
    pub early: u64,
    /// Requests whose answers are not sent to the end.
    pub in_flight: u64,
    /// The most of those at any time.
    pub max_in_flight: u64,
    /// How often a client was banned.
    pub bans: u64,
    /// The most that ever waited for a slot; `None` without slots.
    pub max_queue: Option<u64>,
    /// Connections that were accepted.
    pub connections: u64,
    /// Since the start, or since it began anew.
    pub uptime_ms: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it arrived, from the start on.
    pub at: Duration,
    /// Who sent it: clients are numbered by address, from 0.
    pub client: usize,
    /// `GET` and so on.
    pub method: Method,
    /// Its path, without the query, shortened.
    pub path: Box<str>,
    /// What it was answered; `None` if it was not, or not yet.
    pub status: Option<u16>,
    /// From arriving to answering.
    pub took: Option<Duration>,
    /// Did it arrive before a `Retry-After` had ended?
    pub is_early: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With an answer of this status.
    Answered(u16),
    /// By the mock, without an answer.
    Unanswered,
    /// By the client.
    Abandoned,
}

/// Counts and log.
#[derive(Debug, Default)]
pub(super) struct Journal {
    counts: MockStats,
    log: VecDeque<LogEntry>,
    /// How many requests were forgotten.
    forgotten: u64,
}

impl Journal {
    /// Notes a request and gives its number.
    pub(super) fn arrived(&mut self, entry: LogEntry) -> u64 {
        self.counts.received += 1;
        self.counts.early += u64::from(entry.is_early);
        if self.log.len() >= MOST_ENTRIES {
            self.log.pop_front();
            self.forgotten += 1;
        }
        self.log.push_back(entry);
        self.counts.received - 1
    }

    pub(super) fn ended(&mut self, number: u64, end: End, at: Timestamp) {
        let counts = &mut self.counts;
        match end {
            End::Answered(200..400) => counts.accepted += 1,
            End::Answered(429 | 403 | 503) => counts.refused += 1,
            End::Answered(_) | End::Unanswered => counts.failed += 1,
            End::Abandoned => {
                counts.failed += 1;
                counts.abandoned += 1;
            }
        }
        let End::Answered(status) = end else {
            return;
        };
        *counts.statuses.entry(status).or_default() += 1;
        let place = number.checked_sub(self.forgotten);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(entry) = place.and_then(|place| self.log.get_mut(place)) {
            entry.status = Some(status);
            entry.took = Some(at.since(Timestamp::ZERO + entry.at));
        }
    }

    pub(super) fn connected(&mut self) {
        self.counts.connections += 1;
    }

    pub(super) fn counts(&self) -> MockStats {
        self.counts.clone()
    }

    /// The last requests, and how many there were before them.
    pub(super) fn log(&self) -> (Vec<LogEntry>, u64) {
        (self.log.iter().cloned().collect(), self.forgotten)
    }
}

/// Enough for a test or a look at a benchmark, and a few megabytes at most.
const MOST_ENTRIES: usize = 10_000;
