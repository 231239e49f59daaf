//! The counts of a mock, and a log of its last requests.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use http::Method;
use policy::time::Timestamp;
use serde::Serialize;

/// The counts of a mock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MockStats {
    /// Requests received.
    pub received: u64,
    /// Responses with 2xx or 3xx.
    pub accepted: u64,
    /// Responses with 429, 403 or 503.
    pub refused: u64,
    /// All others that ended: other statuses, resets, requests without a response, and clients that
    /// disconnected before their response.
    pub failed: u64,
    /// Of those failed: clients that disconnected.
    pub abandoned: u64,
    /// Requests received before the end of a `Retry-After` that was sent to their client.
    pub early: u64,
    /// Requests whose responses are not sent completely.
    pub in_flight: u64,
    /// The highest `in_flight` so far.
    pub max_in_flight: u64,
    /// How often a client was banned.
    pub bans: u64,
    /// The longest queue for slots so far; `None` without slots.
    pub max_queue: Option<u64>,
    /// Connections accepted.
    pub connections: u64,
    /// Time since the start or the last reset.
    pub uptime_ms: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
}

/// A request in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it arrived, from the start or the last reset.
    pub at: Duration,
    /// The number of its client, from 0; a client is an address.
    pub client: usize,
    /// Its method.
    pub method: Method,
    /// Its path without the query, cut at 200 bytes.
    pub path: Box<str>,
    /// The status of its response; `None` if there is none, or not yet.
    pub status: Option<u16>,
    /// From its arrival to the start of its response.
    pub took: Option<Duration>,
    /// Whether it arrived before the end of a `Retry-After`.
    pub is_early: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestEnd {
    /// With a response of this status.
    Response(u16),
    /// Without a complete response, as the model or the script decided.
    NoResponse,
    /// The client disconnected.
    Abandoned,
}

/// Counts, and the last [`MAX_ENTRIES`] requests.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    stats: MockStats,
    entries: VecDeque<LogEntry>,
    /// How many entries were dropped.
    dropped: u64,
}

impl RequestLog {
    /// Adds a request and returns its number.
    pub(super) fn receive(&mut self, entry: LogEntry) -> u64 {
        self.stats.received += 1;
        self.stats.early += u64::from(entry.is_early);
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(entry);
        self.stats.received - 1
    }

    pub(super) fn end(&mut self, number: u64, end: RequestEnd, at: Timestamp) {
        let stats = &mut self.stats;
        match end {
            RequestEnd::Response(200..400) => stats.accepted += 1,
            RequestEnd::Response(429 | 403 | 503) => stats.refused += 1,
            RequestEnd::Response(_) | RequestEnd::NoResponse => stats.failed += 1,
            RequestEnd::Abandoned => {
                stats.failed += 1;
                stats.abandoned += 1;
            }
        }
        let RequestEnd::Response(status) = end else {
            return;
        };
        *stats.statuses.entry(status).or_default() += 1;
        let index = number.checked_sub(self.dropped);
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            entry.status = Some(status);
            entry.took = Some(at.since(Timestamp::ZERO + entry.at));
        }
    }

    pub(super) fn connect(&mut self) {
        self.stats.connections += 1;
    }

    pub(super) fn stats(&self) -> MockStats {
        self.stats.clone()
    }

    /// The last requests, and how many earlier ones were dropped.
    pub(super) fn entries(&self) -> (Vec<LogEntry>, u64) {
        (self.entries.iter().cloned().collect(), self.dropped)
    }
}

/// A few megabytes at most.
const MAX_ENTRIES: usize = 10_000;
