//! Evicts gates and applies new settings to them.

use std::sync::Arc;
use std::task::Waker;

use policy::time::Timestamp;

use super::Shard;
use crate::registry::hash::KeyHash;
use crate::registry::members::GateHosts;
use crate::registry::slab::SlotIndex;
use crate::registry::text::Text;

impl Shard {
    /// Evicts idle gates among the next `max_slots` slots.
    pub(in crate::registry) fn evict_idle(
        &mut self,
        hasher: &KeyHash,
        max_slots: usize,
        now: Timestamp,
    ) -> Swept {
        let mut evicted = 0;
        for _ in 0..max_slots {
            let Some((index, slot)) = self.slab.next(self.eviction_cursor) else {
                self.eviction_cursor = 0;
                return Swept {
                    evicted,
                    finished: true,
                };
            };
            self.eviction_cursor = index + 1;
            let settings = &self.hosts.get(slot.settings).gate;
            if slot.gate.is_idle(settings, now) && !self.is_kept_by_fleet(index, now) {
                self.remove(hasher, index);
                evicted += 1;
            }
        }
        Swept {
            evicted,
            finished: false,
        }
    }

    /// The least recently used evictable gate among the `max_slots` slots after the cursor or, if
    /// none of those is evictable, among all slots.
    pub(in crate::registry) fn least_recently_used(
        &self,
        max_slots: usize,
        now: Timestamp,
    ) -> Option<(Timestamp, SlotIndex)> {
        let mut best: Option<(Timestamp, SlotIndex)> = None;
        let mut from = self.eviction_cursor;
        for looked in 0..self.slab.len() {
            if looked >= max_slots && best.is_some() {
                break;
            }
            let next = self.slab.next(from).or_else(|| self.slab.next(0));
            let Some((index, slot)) = next else { break };
            from = index + 1;
            let used = slot.gate.last_activity();
            let is_evictable = slot.gate.is_evictable(now) && !self.is_kept_by_fleet(index, now);
            if is_evictable && best.is_none_or(|(oldest, _)| used < oldest) {
                best = Some((used, index));
            }
        }
        best
    }

    /// Evicts a gate, if it is still evictable.
    pub(in crate::registry) fn evict(
        &mut self,
        hasher: &KeyHash,
        index: SlotIndex,
        now: Timestamp,
    ) -> bool {
        let slot = self.slab.get(index);
        let is_evictable = slot.is_some_and(|slot| slot.gate.is_evictable(now))
            && !self.is_kept_by_fleet(index, now);
        if is_evictable {
            self.remove(hasher, index);
        }
        is_evictable
    }

    fn remove(&mut self, hasher: &KeyHash, index: SlotIndex) {
        let Some(slot) = self.slab.remove(index) else {
            return;
        };
        let hash = hasher.hash(self.text.get(slot.key));
        self.table.remove(hash, index);
        self.retry_budgets.remove(&index);
        if let Some(members) = &mut self.members {
            members.remove(index);
        }
        self.text.remove(slot.key);
        self.counts.evicted += 1;
        let results = slot.gate.results();
        for (total, count) in self.counts.evicted_results.iter_mut().zip(results) {
            *total += u64::from(count);
        }
        if self.text.has_many_holes() {
            self.pack();
        }
    }

    /// Compacts the keys.
    fn pack(&mut self) {
        let mut packed = Text::default();
        let mut from = 0;
        while let Some((index, slot)) = self.slab.next(from) {
            let text = packed.insert(self.text.get(slot.key));
            if let (Some(text), Some(slot)) = (text, self.slab.get_mut(index)) {
                slot.key = text;
            }
            from = index + 1;
        }
        self.text = packed;
    }

    /// Applies new settings to every gate and serves the lines.
    pub(in crate::registry) fn adopt(
        &mut self,
        hosts: &GateHosts,
        now: Timestamp,
        wakers: &mut Vec<Waker>,
    ) {
        let before = Arc::clone(&self.hosts);
        self.set_hosts(hosts);
        let hosts = &hosts.hosts;
        let mut from = 0;
        while let Some((index, slot)) = self.slab.next(from) {
            from = index + 1;
            let (old, new) = (slot.settings, hosts.index_for(self.text.get(slot.key)));
            let Some(slot) = self.slab.get_mut(index) else {
                continue;
            };
            slot.settings = new;
            let (old, new) = (&before.get(old).gate, &hosts.get(new).gate);
            if old != new {
                slot.gate.adopt(old, new, now);
            }
        }
        let waited_for: Vec<SlotIndex> = self.due_at.keys().copied().collect();
        for index in waited_for {
            self.serve(index, now, wakers);
        }
    }
}

impl Shard {
    /// Replaces settings whose indexes have not changed.
    pub(in crate::registry) fn set_hosts(&mut self, hosts: &GateHosts) {
        self.hosts = Arc::clone(&hosts.hosts);
        if let Some((members, shared)) = self.members.as_mut().zip(hosts.shared.as_ref()) {
            members.settings = Arc::clone(shared);
        }
    }

    /// Applies the current settings of its key to a gate.
    pub(in crate::registry) fn adopt_one(
        &mut self,
        index: SlotIndex,
        now: Timestamp,
        wakers: &mut Vec<Waker>,
    ) {
        let new = self.hosts.index_for(self.key(index));
        let Some(slot) = self.slab.get_mut(index) else {
            return;
        };
        let old = std::mem::replace(&mut slot.settings, new);
        let (old, new) = (&self.hosts.get(old).gate, &self.hosts.get(new).gate);
        if old != new {
            slot.gate.adopt(old, new, now);
        }
        if slot.gate.is_waited_for() {
            self.serve(index, now, wakers);
        }
    }
}

/// The result of one search for idle gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::registry) struct Swept {
    pub(in crate::registry) evicted: usize,
    pub(in crate::registry) finished: bool,
}
