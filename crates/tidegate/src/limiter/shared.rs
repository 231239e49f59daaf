//! Gates that are shared by a fleet, for the task that makes the calls to its store.
//!
//! The gates say which calls are due and take the replies; the task does the IO. It is never on the
//! path of a request: an ask that needs a slot waits in line, and the call that brings one is made
//! meanwhile, for all keys at once.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use policy::fleet::{Call, Claim, FleetSettings, NodeId, Notice, Reply};
use policy::time::Timestamp;

use super::Limiter;
use crate::registry::{DueCall, FleetNode, GateLocation, SlotIndex};
use crate::waking::wake_all;

/// The gates of a limiter that is a node of a fleet; see [`fleet`](crate::fleet).
#[derive(Clone)]
pub struct SharedGates {
    limiter: Limiter,
    fleet: FleetNode,
}

/// What a gate says to the store. It ends with [`SharedGates::replied`] or [`SharedGates::unanswered`];
/// until then the gate makes no other call.
#[derive(Debug)]
#[must_use = "a gate whose call never ends makes no other call"]
pub struct SharedCall {
    /// The key of the gate.
    pub key: String,
    /// What all nodes agree on for this key.
    pub settings: FleetSettings,
    /// What it says.
    pub call: Call,
    number: u64,
}

/// How many gates use the store, and how many of them do without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStatus {
    /// Gates that were used lately.
    pub active: usize,
    /// Those among them whose store is silent, so that they continue with their last share.
    pub degraded: usize,
}

impl Limiter {
    /// Its gates as those of a fleet; `None` if it was not built [for one](super::LimiterBuilder::fleet).
    pub fn shared_gates(&self) -> Option<SharedGates> {
        let fleet = self.inner.registry.fleet()?.clone();
        let limiter = self.clone();
        Some(SharedGates { limiter, fleet })
    }
}

impl SharedGates {
    /// Waits until calls are due, and takes at most `max` of them. Calls that are due soon after are
    /// taken along, so that a node makes few calls for many keys. Nothing is taken if the future is
    /// dropped.
    pub async fn calls(&self, max: usize) -> Vec<SharedCall> {
        loop {
            self.wait().await;
            let calls = self.take_calls(max);
            if !calls.is_empty() {
                return calls;
            }
        }
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.fleet.node
    }

    /// The store has answered a call.
    pub fn replied(&self, call: SharedCall, reply: &Reply) {
        self.end(call, Some(reply));
    }

    /// The store has not answered a call, or too late.
    pub fn unanswered(&self, call: SharedCall) {
        self.end(call, None);
    }

    /// The store has published something about a key.
    pub fn noticed(&self, key: &str, notice: &Notice) {
        self.at_key(key, |shard, slot, now| shard.notice(slot, notice, now));
    }

    /// Applies the passing of time while the store is silent; call it every interval.
    pub fn tick(&self) -> FleetStatus {
        let mut status = FleetStatus::default();
        for number in 0..self.limiter.inner.registry.shards() {
            let mut wakers = Vec::new();
            let now = self.limiter.inner.clock.now();
            let mut shard = self.limiter.inner.registry.lock(number);
            let (active, degraded) = shard.tick(now, &mut wakers);
            self.limiter.set_alarm(number, &mut shard);
            drop(shard);
            self.limiter.inner.clock.catch_up();
            wake_all(wakers);
            status.active += active;
            status.degraded += degraded;
        }
        status
    }

    /// What this node knows of its keys, for a restart: of those whose store answered within `age`.
    pub fn claims(&self, age: Duration) -> Vec<(String, Claim)> {
        let mut claims = Vec::new();
        for number in 0..self.limiter.inner.registry.shards() {
            let now = self.limiter.inner.clock.now();
            let shard = self.limiter.inner.registry.lock(number);
            shard.claims(age, now, |key, claim| claims.push((key.to_owned(), claim)));
        }
        claims
    }

    /// Continues with what this node knew of a key before a restart: with its share, degraded, until
    /// the store answers. Call it before the first ask. Returns `false` if there is no room for the
    /// gate.
    pub fn restore(&self, key: &str, claim: &Claim) -> bool {
        let now = self.limiter.inner.clock.now();
        let found = self.limiter.gate_of(key, now);
        found.is_ok_and(|(mut shard, location)| {
            shard.restore_claim(location.slot, claim, now);
            true
        })
    }

    /// Waits until a call may be due.
    async fn wait(&self) {
        let clock = &self.limiter.inner.clock;
        let mut sleep: Option<(Timestamp, crate::clock::Sleep)> = None;
        poll_fn(|context| {
            let at = self.fleet.schedule.wait(context.waker());
            if at <= clock.now() {
                return Poll::Ready(());
            }
            if at == Timestamp::MAX {
                return Poll::Pending;
            }
            let is_set = sleep.as_ref().is_some_and(|(set, _)| *set == at);
            if !is_set {
                sleep = Some((at, clock.sleep_until(at)));
            }
            match &mut sleep {
                Some((_, sleep)) => Pin::new(sleep).poll(context),
                None => Poll::Pending,
            }
        })
        .await;
    }

    fn take_calls(&self, max: usize) -> Vec<SharedCall> {
        let registry = &self.limiter.inner.registry;
        self.fleet.schedule.clear();
        let now = self.limiter.inner.clock.now();
        let mut due: Vec<(Timestamp, u32, SlotIndex)> = Vec::new();
        for number in 0..registry.shards() {
            registry
                .lock(number)
                .calls_due(now, |at, slot| due.push((at, number, slot)));
        }
        due.sort_unstable();
        let is_any_due = due.first().is_some_and(|(at, ..)| *at <= now);
        let soon = now + self.fleet.interval / GATHERED;
        let taken = match is_any_due {
            true => due.partition_point(|(at, ..)| *at <= soon).min(max),
            false => 0,
        };
        if let Some((next, ..)) = due.get(taken) {
            // No other task waits, so there is no waker to call.
            _ = self.fleet.schedule.due_at(*next);
        }
        let calls = due[..taken].iter().filter_map(|(_, shard, slot)| {
            let call = registry.lock(*shard).take_call(*slot, now)?;
            Some(SharedCall::from(call))
        });
        calls.collect()
    }

    fn end(&self, call: SharedCall, reply: Option<&Reply>) {
        self.at_key(&call.key, |shard, slot, now| {
            shard.end_call(slot, (&call.call, call.number), reply, now);
        });
    }

    /// Changes a gate, lets its line leave, and reports a hold or breaker that other nodes began.
    fn at_key(
        &self,
        key: &str,
        change: impl FnOnce(&mut crate::registry::Shard, SlotIndex, Timestamp),
    ) {
        let limiter = &self.limiter;
        let now = limiter.inner.clock.now();
        let Some((shard, location)) = limiter.inner.registry.find(key) else {
            return;
        };
        let GateLocation { slot, .. } = location;
        let (before, after) = limiter.at_gate(shard, location, now, |shard, now| {
            let before = shard.summary(slot, now);
            change(shard, slot, now);
            let after = shard.summary(slot, now);
            let is_same = before.same_hold_and_breaker(&after);
            (before, (!is_same).then(|| shard.look(slot, now)))
        });
        if let Some(after) = after {
            limiter.emit_changes(key, &before, &after, now);
        }
    }
}

impl From<DueCall> for SharedCall {
    fn from(due: DueCall) -> Self {
        Self {
            key: due.key,
            settings: due.settings,
            call: due.call,
            number: due.number,
        }
    }
}

impl fmt::Debug for SharedGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGates")
            .field("node", &self.fleet.node)
            .finish_non_exhaustive()
    }
}

/// With any call go those that are due within this part of an interval. So the calls about many keys
/// gather in at most so many groups.
const GATHERED: u32 = 5;
