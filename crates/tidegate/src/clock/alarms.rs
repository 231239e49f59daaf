//! Who is to be woken when: a list in the order of time.
//!
//! A map from time to waker instead of a heap, because most alarms are taken back before they
//! ring, and a heap would carry them until their time has come.

use std::collections::BTreeMap;
use std::task::Waker;

use policy::time::Timestamp;

/// Names an alarm in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlarmKey {
    at: Timestamp,
    /// Tells alarms of the same time apart, the earlier set first.
    number: u64,
}

/// Alarms that have not rung yet.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    by_time: BTreeMap<AlarmKey, Waker>,
    set: u64,
}

impl Alarms {
    pub(super) const fn new() -> Self {
        Self {
            by_time: BTreeMap::new(),
            set: 0,
        }
    }

    pub(super) fn insert(&mut self, at: Timestamp, waker: Waker) -> AlarmKey {
        let key = AlarmKey {
            at,
            number: self.set,
        };
        self.set += 1;
        self.by_time.insert(key, waker);
        key
    }

    /// Takes an alarm back; its waker is for the caller to drop, outside of any lock.
    pub(super) fn remove(&mut self, key: AlarmKey) -> Option<Waker> {
        self.by_time.remove(&key)
    }

    /// When the next one rings.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.by_time.first_key_value().map(|(key, _)| key.at)
    }

    /// Takes out the next one if its time has come.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Waker> {
        let first = self.by_time.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }
}
