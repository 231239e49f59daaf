//! Wakeups by the clock: gates with a due waiter, and the next eviction pass.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use policy::time::Timestamp;

use super::{Inner, Limiter};
use crate::registry::{Shard, Slice};
use crate::sync::lock;
use crate::waking::wake_all;

/// Woken when a gate or seat of a shard is due.
struct ShardDue {
    limiter: Weak<Inner>,
    shard: u32,
}

impl Wake for ShardDue {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.limiter.upgrade() {
            Limiter { inner }.serve_due(self.shard);
        }
    }
}

/// Woken when the next eviction pass is due.
struct EvictionDue {
    limiter: Weak<Inner>,
}

impl Wake for EvictionDue {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.limiter.upgrade() {
            Limiter { inner }.evict_shard();
        }
    }
}

impl Limiter {
    /// Sets a shard's alarm for the first gate or seat that is due. An early alarm is harmless, so
    /// an existing one is only replaced if it would be late.
    pub(super) fn set_alarm(&self, number: u32, shard: &mut Shard) {
        let Some(at) = shard.next_due() else {
            shard.alarm = None;
            return;
        };
        if shard.alarm.as_ref().is_some_and(|(set, _)| *set <= at) {
            return;
        }
        let waker = shard.wakeup.get_or_insert_with(|| {
            Waker::from(Arc::new(ShardDue {
                limiter: Arc::downgrade(&self.inner),
                shard: number,
            }))
        });
        shard.alarm = Some((at, self.inner.clock.alarm(at, waker.clone())));
    }

    fn serve_due(&self, number: u32) {
        let now = self.inner.clock.now();
        let mut wakers = Vec::new();
        let mut shard = self.inner.registry.lock(number);
        shard.alarm = None;
        shard.serve_due(now, self.inner.clock.tasks_run(now), &mut wakers);
        self.set_alarm(number, &mut shard);
        drop(shard);
        wake_all(wakers);
    }

    /// Evicts idle gates among the next slice of slots.
    pub(super) fn evict_slice(&self) -> Slice {
        self.inner.registry.evict_slice(self.inner.clock.now())
    }

    /// Sets the alarm for the next eviction pass, if it is not set.
    ///
    /// Call it after inserting a gate, not before: a pass that finds no gate sets no alarm.
    pub(super) fn schedule_eviction(&self, after: Duration, now: Timestamp) {
        let mut alarm = lock(&self.inner.eviction_alarm);
        if alarm.is_none() {
            let waker = Waker::from(Arc::new(EvictionDue {
                limiter: Arc::downgrade(&self.inner),
            }));
            *alarm = Some(self.inner.clock.alarm(now + after, waker));
        }
    }

    /// Evicts idle gates of the next shard, or of all shards if tasks could not run for several
    /// intervals.
    fn evict_shard(&self) {
        let (now, interval) = (self.inner.clock.now(), self.eviction_interval());
        let tasks = self.inner.clock.tasks_run(now);
        let is_end_of_advance = now == tasks.next && now.since(tasks.last) > interval;
        let shards = match is_end_of_advance {
            // Twice, because a sweep goes on where the last one of that shard ended.
            true => 2 * self.inner.registry.shards(),
            false => 1,
        };
        for _ in 0..shards {
            while !self.evict_slice().shard_finished {}
        }
        *lock(&self.inner.eviction_alarm) = None;
        if self.inner.registry.len() > 0 {
            // Not for every interval of a long advance.
            self.schedule_eviction(interval.max(tasks.next.since(now)), now);
        }
    }

    /// Searches every shard twice per `idle_after`. Locks the settings, so call it without holding
    /// a shard's lock.
    pub(super) fn eviction_interval(&self) -> Duration {
        let idle_after = lock(&self.inner.hosts).default_value().gate.idle_after();
        (idle_after / (2 * self.inner.registry.shards())).max(Duration::from_millis(10))
    }
}
