//! What a shard keeps beside gates whose keys are shared by a fleet.
//!
//! A limiter of a fleet shares every key, so a shard has members for all of its gates or none at all:
//! a local limiter checks one pointer. A member that has something to tell the store, or waits for
//! something, is *active*. Only active members are searched for calls that are due, so that a hundred
//! thousand unused keys cost nothing.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use policy::fleet::{Member, NodeId, SharedSettings};
use policy::hosts::Hosts;
use policy::time::Timestamp;

use super::slab::SlotIndex;
use crate::settings::HostSettings;
use crate::sync::{Mutex, lock};

/// One node of a fleet, and when it should call the store.
#[derive(Clone, Debug)]
pub(crate) struct FleetNode {
    pub(crate) node: NodeId,
    pub(crate) interval: Duration,
    pub(crate) lease: Duration,
    pub(crate) schedule: Arc<Schedule>,
}

impl FleetNode {
    /// After this long without a reply, an active member looks whether the store is silent.
    pub(crate) fn max_silence(&self) -> Duration {
        (3 * self.interval).max(Duration::from_millis(300))
    }

    fn shared(&self, host: &HostSettings) -> SharedSettings {
        SharedSettings::new(&host.gate, self.interval, self.lease)
    }
}

/// When the next call to the store is due. The lock is taken under that of a shard.
#[derive(Debug)]
pub(crate) struct Schedule(Mutex<NextCall>);

#[derive(Debug)]
struct NextCall {
    at: Timestamp,
    /// Of the task that makes the calls, while it waits.
    waker: Option<Waker>,
}

impl Schedule {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(NextCall {
            at: Timestamp::MAX,
            waker: None,
        }))
    }

    /// A call is due at `at`. Returns the waker of the task if it waits for a later time; call it after
    /// unlocking.
    pub(crate) fn due_at(&self, at: Timestamp) -> Option<Waker> {
        let mut next = lock(&self.0);
        if at >= next.at {
            return None;
        }
        next.at = at;
        next.waker.take()
    }

    /// Forgets what was due, because all members are about to be asked again.
    pub(crate) fn clear(&self) {
        lock(&self.0).at = Timestamp::MAX;
    }

    /// When the next call is due. `waker` is called as soon as that gets earlier.
    pub(crate) fn wait(&self, waker: &Waker) -> Timestamp {
        // Wakers run foreign code, so clone before locking and drop after unlocking.
        let waker = waker.clone();
        let mut next = lock(&self.0);
        let at = next.at;
        let replaced = next.waker.replace(waker);
        drop(next);
        drop(replaced);
        at
    }
}

/// The settings of a registry's gates.
#[derive(Clone, Debug)]
pub(crate) struct GateHosts {
    /// As each gate uses them. A shared gate does not learn a rate, its fleet does.
    pub(super) hosts: Arc<Hosts<HostSettings>>,
    /// For members; only in a fleet.
    pub(super) shared: Option<Arc<Hosts<SharedSettings>>>,
}

impl GateHosts {
    pub(super) fn new(hosts: &Arc<Hosts<HostSettings>>, fleet: Option<&FleetNode>) -> Self {
        let Some(fleet) = fleet else {
            return Self {
                hosts: Arc::clone(hosts),
                shared: None,
            };
        };
        let shared = hosts.map(|host| fleet.shared(host));
        let own = hosts.map(|host| HostSettings {
            gate: fleet.shared(host).gate,
            ..host.clone()
        });
        Self {
            hosts: Arc::new(own),
            shared: Some(Arc::new(shared)),
        }
    }
}

/// The members of a shard's gates.
#[derive(Debug)]
pub(crate) struct Members {
    pub(super) fleet: FleetNode,
    pub(super) settings: Arc<Hosts<SharedSettings>>,
    /// By the slots of their gates.
    pub(super) by_slot: Vec<Option<Box<SharedGate>>>,
    /// Those that may have a call to make, or a call out.
    pub(super) active: Vec<SlotIndex>,
    last_number: u64,
}

/// The member of one gate.
#[derive(Debug)]
pub(crate) struct SharedGate {
    pub(super) member: Member,
    /// Never reused in a shard: the reply to a call of a gate that was evicted meanwhile is dropped.
    pub(super) number: u64,
    pub(super) active_since: Option<Timestamp>,
    pub(super) is_out: bool,
}

impl Members {
    pub(super) fn new(fleet: FleetNode, settings: Arc<Hosts<SharedSettings>>) -> Self {
        Self {
            fleet,
            settings,
            by_slot: Vec::new(),
            active: Vec::new(),
            last_number: 0,
        }
    }

    /// Adds the member of a gate.
    pub(super) fn insert(&mut self, index: SlotIndex, member: Member) {
        self.remove(index);
        self.last_number += 1;
        let slot = index as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        self.by_slot[slot] = Some(Box::new(SharedGate {
            member,
            number: self.last_number,
            active_since: None,
            is_out: false,
        }));
    }

    pub(super) fn remove(&mut self, index: SlotIndex) {
        self.retire(index);
        if let Some(shared) = self.by_slot.get_mut(index as usize) {
            *shared = None;
        }
    }

    /// The member has something to say, or waits for something.
    pub(super) fn activate(&mut self, index: SlotIndex, now: Timestamp) {
        let shared = self.by_slot.get_mut(index as usize);
        if let Some(Some(shared)) = shared
            && shared.active_since.is_none()
        {
            shared.active_since = Some(now);
            self.active.push(index);
        }
    }

    /// The member has nothing to say until its gate is used again.
    pub(super) fn retire(&mut self, index: SlotIndex) {
        let shared = self.by_slot.get_mut(index as usize);
        if let Some(Some(shared)) = shared
            && shared.active_since.take().is_some()
        {
            self.active.retain(|active| *active != index);
        }
    }

    pub(super) fn get(&self, index: SlotIndex) -> Option<&SharedGate> {
        self.by_slot.get(index as usize)?.as_deref()
    }
}
