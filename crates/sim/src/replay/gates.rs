//! Gates by key, with eviction.
//!
//! Whether a gate is evictable only changes by an event at it, except that a hold ends by itself.
//! So every gate is filed after each event, as evictable or under the end of its hold, and eviction
//! never searches all gates.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;

use policy::gate::{Gate, GateSettings};
use policy::time::Timestamp;

/// Identifies a gate while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GateId(usize);

impl GateId {
    /// A small number, reused after the gate is evicted.
    pub(super) fn index(self) -> usize {
        self.0
    }
}

#[derive(Debug, Default)]
pub(super) struct Gates {
    slots: Vec<Slot>,
    free: Vec<GateId>,
    by_key: HashMap<Box<str>, GateId>,
    /// Evictable gates, least recently used first.
    evictable: BTreeMap<u64, GateId>,
    /// Gates that may become evictable when their hold ends.
    held: BTreeSet<(Timestamp, GateId)>,
    /// The number of uses so far, which orders them even at equal times.
    uses: u64,
}

#[derive(Debug)]
struct Slot {
    key: Box<str>,
    gate: Gate,
    used: u64,
    filed: Filed,
}

/// Where a gate is filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filed {
    /// Nowhere: it needs another event before it may be evicted.
    Nowhere,
    /// In `evictable`, under the number of its last use.
    Evictable(u64),
    /// In `held`, under the end of its hold.
    Held(Timestamp),
}

impl Gates {
    /// The gate of `key`, created if it does not exist, after evicting idle gates. `None` if there
    /// are `max_gates` and none is evictable.
    pub(super) fn enter(
        &mut self,
        settings: &GateSettings,
        key: &str,
        now: Timestamp,
    ) -> Option<GateId> {
        self.end_holds(now);
        self.evict_idle(settings, now);
        if let Some(&id) = self.by_key.get(key) {
            return Some(id);
        }
        if self.by_key.len() >= settings.max_gates() {
            let (_, id) = self.evictable.pop_first()?;
            self.remove(id);
        }
        Some(self.insert(key, Gate::new(settings, now)))
    }

    pub(super) fn get(&self, id: GateId) -> &Gate {
        &self.slots[id.0].gate
    }

    pub(super) fn get_mut(&mut self, id: GateId) -> &mut Gate {
        &mut self.slots[id.0].gate
    }

    /// Records a use of the gate, by an ask or a result.
    pub(super) fn used(&mut self, id: GateId) {
        self.uses += 1;
        self.slots[id.0].used = self.uses;
    }

    /// Files the gate again after an event at it.
    pub(super) fn file(&mut self, id: GateId, now: Timestamp) {
        let slot = &mut self.slots[id.0];
        let filed = Filed::of(&slot.gate, slot.used, now);
        let before = mem::replace(&mut slot.filed, filed);
        if before == filed {
            return;
        }
        match before {
            Filed::Nowhere => {}
            Filed::Evictable(used) => _ = self.evictable.remove(&used),
            Filed::Held(until) => _ = self.held.remove(&(until, id)),
        }
        match filed {
            Filed::Nowhere => {}
            Filed::Evictable(used) => _ = self.evictable.insert(used, id),
            Filed::Held(until) => _ = self.held.insert((until, id)),
        }
    }

    fn end_holds(&mut self, now: Timestamp) {
        while let Some(&(until, id)) = self.held.first()
            && until <= now
        {
            self.file(id, now);
        }
    }

    fn evict_idle(&mut self, settings: &GateSettings, now: Timestamp) {
        while let Some(first) = self.evictable.first_entry() {
            let id = *first.get();
            if !self.slots[id.0].gate.is_idle(settings, now) {
                break;
            }
            first.remove();
            self.remove(id);
        }
    }

    fn insert(&mut self, key: &str, gate: Gate) -> GateId {
        let slot = Slot {
            key: key.into(),
            gate,
            used: self.uses,
            filed: Filed::Nowhere,
        };
        let id = if let Some(id) = self.free.pop() {
            self.slots[id.0] = slot;
            id
        } else {
            self.slots.push(slot);
            GateId(self.slots.len() - 1)
        };
        self.by_key.insert(key.into(), id);
        id
    }

    /// Removes a gate that is no longer filed.
    fn remove(&mut self, id: GateId) {
        let key = mem::take(&mut self.slots[id.0].key);
        self.by_key.remove(&key);
        self.free.push(id);
    }
}

impl Filed {
    fn of(gate: &Gate, used: u64, now: Timestamp) -> Self {
        if gate.is_evictable(now) {
            return Self::Evictable(used);
        }
        match gate.hold_until(now) {
            Some(until) if until > now => Self::Held(until),
            _ => Self::Nowhere,
        }
    }
}
