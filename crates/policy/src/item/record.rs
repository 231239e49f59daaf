//! What outlives a process of an item: lengths of time, never instants, for the clock they were
//! read from is gone by then.

use std::time::Duration;

use super::{Item, ItemKind};
use crate::time::Timestamp;

/// The state of an item as it is stored. Its kind is stored beside it, with the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemRecord {
    /// How often it was sent.
    pub sent: u32,
    /// How many of these count against `max_attempts`.
    pub attempts: u32,
    /// How often a server has named a wait; [`MAX_DIRECTED_WAITS`](super::MAX_DIRECTED_WAITS) is
    /// the bound.
    pub directed_waits: u32,
    /// Was the credential refreshed, and nothing but 401 answered since?
    pub refreshed: bool,
    /// Time until it may be sent again.
    pub next_in: Duration,
    /// Time until it expires, if it ever does.
    pub expires_in: Option<Duration>,
    /// Time until it is given up without a success at its gate, if it ever is.
    pub gives_up_in: Option<Duration>,
}

impl Item {
    /// Its record as of `now`.
    pub fn record(&self, now: Timestamp) -> ItemRecord {
        let until = |at: Timestamp| (at < Timestamp::MAX).then(|| at.since(now));
        ItemRecord {
            sent: self.sent,
            attempts: self.attempts,
            directed_waits: self.directed_waits,
            refreshed: self.refreshed,
            next_in: self.next_at.since(now),
            expires_in: until(self.expires_at),
            gives_up_in: until(self.gives_up_at),
        }
    }

    /// The item that was recorded, as of `now`. Time in between is for the caller to take
    /// off the record; what is left on it only makes the item wait longer.
    pub fn restore(kind: ItemKind, record: &ItemRecord, now: Timestamp) -> Self {
        let after = |wait: Option<Duration>| wait.map_or(Timestamp::MAX, |wait| now + wait);
        Self {
            kind,
            sent: record.sent,
            attempts: record.attempts,
            directed_waits: record.directed_waits,
            refreshed: record.refreshed,
            next_at: now + record.next_in,
            expires_at: after(record.expires_in),
            gives_up_at: after(record.gives_up_in),
        }
    }
}
