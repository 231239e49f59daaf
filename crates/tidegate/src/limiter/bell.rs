//! What the clock calls: gates where someone is due, and the next round of eviction.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use policy::time::Timestamp;

use super::Shared;
use crate::registry::{Shard, Slice};
use crate::sync::lock;
use crate::waking::wake_all;

/// Rings when a gate or a seat of a shard has to be looked at.
struct Bell {
    limiter: Weak<Shared>,
    shard: u32,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if let Some(limiter) = self.limiter.upgrade() {
            limiter.ring(self.shard);
        }
    }
}

/// Rings when it is time to look for idle gates.
struct Round {
    limiter: Weak<Shared>,
}

impl Wake for Round {
    fn wake(self: Arc<Self>) {
        if let Some(limiter) = self.limiter.upgrade() {
            limiter.go_round();
        }
    }
}

impl Shared {
    /// Sets the alarm of a shard for the first gate or seat that is due. One that rings too early does no
    /// harm, so it is set anew only if it would ring too late.
    pub(super) fn set_alarm(&self, number: u32, shard: &mut Shard) {
        let Some(at) = shard.next_due() else {
            shard.alarm = None;
            return;
        };
        if shard.alarm.as_ref().is_some_and(|(set, _)| *set <= at) {
            return;
        }
        let bell = shard.bell.get_or_insert_with(|| {
            Waker::from(Arc::new(Bell {
                limiter: Weak::clone(&self.me),
                shard: number,
            }))
        });
        shard.alarm = Some((at, self.clock.alarm(at, bell.clone())));
    }

    fn ring(&self, number: u32) {
        let now = self.clock.now();
        let mut wakers = Vec::new();
        let mut shard = self.registry.lock(number);
        shard.alarm = None;
        shard.serve_due(now, &mut wakers);
        self.set_alarm(number, &mut shard);
        drop(shard);
        wake_all(wakers);
    }

    /// Looks at some gates for idle ones, in the shard whose turn it is.
    pub(super) fn evict_slice(&self) -> Slice {
        self.registry.evict_slice(self.clock.now())
    }

    /// Sees to it that idle gates are looked for as long as there are gates, every `round_after`.
    ///
    /// Call it when there is a new one, not before: a round that ends in between would see none
    /// and be the last.
    pub(super) fn begin_rounds(&self, round_after: Duration, now: Timestamp) {
        let mut round = lock(&self.round);
        if round.is_none() {
            let bell = Waker::from(Arc::new(Round {
                limiter: Weak::clone(&self.me),
            }));
            *round = Some(self.clock.alarm(now + round_after, bell));
        }
    }

    fn go_round(&self) {
        while !self.evict_slice().shard_finished {}
        let now = self.clock.now();
        *lock(&self.round) = None;
        if self.registry.len() > 0 {
            self.begin_rounds(self.round_after(), now);
        }
    }

    /// Every shard has its turn twice in `idle_after`. Locks the settings, so call it without the
    /// lock of a shard.
    pub(super) fn round_after(&self) -> Duration {
        let idle_after = lock(&self.hosts).default_value().gate.idle_after();
        (idle_after / (2 * self.registry.shards())).max(Duration::from_millis(10))
    }
}
