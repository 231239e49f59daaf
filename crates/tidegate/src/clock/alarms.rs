//! Wakers in the order of time.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What can be done with alarms; numbers are times and which of the alarms set so far.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Remove(prop::sample::Index),
        PopDue(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..20_u64).prop_map(Step::Insert),
            1 => any::<prop::sample::Index>().prop_map(Step::Remove),
            2 => (0..20_u64).prop_map(Step::PopDue),
        ]
    }

    proptest! {
        #[test]
        fn alarms_ring_in_order_once_and_not_early(steps in prop::collection::vec(step(), 0..80)) {
            let mut alarms = Alarms::new();
            // Those that are set, in the order they were, with their times.
            let mut set: Vec<(u64, AlarmKey)> = Vec::new();
            let mut gone: Vec<AlarmKey> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(at) => {
                        let key = alarms.insert(Timestamp::from_secs(at), Waker::noop().clone());
                        set.push((at, key));
                    }
                    Step::Remove(index) if !set.is_empty() => {
                        let (_, key) = set.remove(index.index(set.len()));
                        prop_assert!(alarms.remove(key).is_some());
                        gone.push(key);
                    }
                    Step::Remove(index) if !gone.is_empty() => {
                        let key = gone[index.index(gone.len())];
                        prop_assert!(alarms.remove(key).is_none(), "not once more");
                    }
                    Step::Remove(_) => {}
                    Step::PopDue(now) => {
                        let due = set.iter().filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at);
                        let due = due.copied();
                        let rang = alarms.pop_due(Timestamp::from_secs(now)).is_some();
                        prop_assert_eq!(rang, due.is_some());
                        if let Some((_, key)) = due {
                            set.retain(|(_, known)| *known != key);
                            gone.push(key);
                        }
                    }
                }
                let next = set.iter().map(|(at, _)| Timestamp::from_secs(*at)).min();
                prop_assert_eq!(alarms.next_at(), next);
                prop_assert_eq!(alarms.by_time.len(), set.len());
            }
        }
    }
}
