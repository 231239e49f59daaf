//! Alarms, ordered by time.
//!
//! A map instead of a heap, because most alarms are cancelled before they fire, and a heap would
//! hold them until they are due.

use std::collections::BTreeMap;
use std::task::Waker;

use policy::time::Timestamp;

/// Identifies an alarm in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlarmKey {
    at: Timestamp,
    /// Orders alarms with equal times by when they were set.
    number: u64,
}

/// Pending alarms.
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

    /// Cancels an alarm. The caller drops the waker, without holding a lock.
    pub(super) fn remove(&mut self, key: AlarmKey) -> Option<Waker> {
        self.by_time.remove(&key)
    }

    /// When the next alarm fires.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.by_time.first_key_value().map(|(key, _)| key.at)
    }

    /// Removes and returns the next alarm if it is due. One at the end of time never is: it would be
    /// due again as often as it is set.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Waker> {
        let first = self.by_time.first_entry()?;
        let at = first.key().at;
        (at <= now && at < Timestamp::MAX).then(|| first.remove())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Operations on alarms. Numbers are times, or indexes into the alarms set so far.
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
        fn alarms_fire_once_in_order_and_not_early(steps in prop::collection::vec(step(), 0..80)) {
            let mut alarms = Alarms::new();
            // Pending alarms in insertion order, with their times.
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
