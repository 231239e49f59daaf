//! The stored state of an item: durations instead of instants, because the clock does not survive
//! the process.

use std::time::Duration;

use super::{Item, ItemKind};
use crate::time::Timestamp;

/// The stored state of an item. Its kind is stored separately, with the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemRecord {
    /// How many times it was sent.
    pub sent: u32,
    /// How many of these count against `max_attempts`.
    pub attempts: u32,
    /// How many times a server named a wait, bounded by
    /// [`MAX_DIRECTED_WAITS`](super::MAX_DIRECTED_WAITS).
    pub directed_waits: u32,
    /// Whether the credential was refreshed and only 401s were answered since.
    pub refreshed: bool,
    /// Time until it may be sent again.
    pub next_in: Duration,
    /// Time until it expires, if it does.
    pub expires_in: Option<Duration>,
    /// Time until it gives up without a success at its gate, if it does.
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

    /// Restores a recorded item as of `now`. The caller subtracts the time that has passed from the
    /// record; otherwise the item only waits longer.
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
