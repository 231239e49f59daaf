//! Permits for second attempts, see [`policy::hedge`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::gate;
use policy::hedge::Hedge;
use policy::time::Timestamp;

use super::Limiter;
use crate::ask::Ask;
use crate::event::Event;
use crate::permit::Permit;
use crate::registry::GateLocation;

impl Limiter {
    /// How long after the first attempt at the gate of `key` a second one is made; `None` if that is
    /// not known yet.
    pub(crate) fn hedge_after(&self, key: &str, hedge: Hedge) -> Option<Duration> {
        let (mut shard, location) = self.known_gate(key)?;
        shard.with_gate(location.slot, |gate, _, _| gate.hedge_after(hedge))
    }

    /// Whether the gate of `key` allows a second attempt now, if it has a permit for it. A new gate
    /// does.
    pub(crate) fn allows_hedge(&self, key: &str) -> bool {
        let now = self.inner.clock.now();
        self.known_gate(key).is_none_or(|(mut shard, location)| {
            let now = shard.time_at(location.slot, now);
            shard.with_gate(location.slot, |gate, _, _| gate.allows_hedge(now))
        })
    }

    /// A permit for a second attempt, from all gates of the ask, if they allow it now and the retry
    /// budget pays for it. Counts no refusal.
    pub(crate) fn acquire_hedge(&self, ask: Ask<'_>) -> Option<Permit<'_>> {
        let is_allowed = ask.keys().all(|key| self.allows_hedge(key)) && self.peek(ask).is_ok();
        let permit = is_allowed.then(|| self.try_acquire(ask).ok())??;
        match self.pay_for_hedge(permit.location()) {
            true => Some(permit),
            false => {
                permit.give_back();
                None
            }
        }
    }

    /// Takes a second attempt from what requests have added to a gate's retry budget.
    pub(crate) fn pay_for_hedge(&self, location: GateLocation) -> bool {
        let (now, settings) = (self.inner.clock.now(), &self.inner.budget_settings);
        let mut shard = self.inner.registry.lock(location.shard);
        let budget = shard.retry_budget(location.slot, settings, now);
        budget.withdraw_paid(settings, now)
    }

    /// Counts a second attempt that is about to be made at the gate of `key`.
    pub(crate) fn count_hedge(&self, key: &str, after: Duration, now: Timestamp) {
        self.inner.hedges.fetch_add(1, Ordering::Relaxed);
        self.emit(now, &Event::Hedged { key, after });
    }

    /// Counts a second attempt that succeeded first.
    pub(crate) fn count_hedge_won(&self, key: &str, now: Timestamp) {
        self.inner.hedges_won.fetch_add(1, Ordering::Relaxed);
        self.emit(now, &Event::HedgeWon { key });
    }

    /// Returns the permit of an attempt that was dropped after `elapsed`, because another one of the
    /// same request was answered first.
    pub(crate) fn overtake(&self, location: GateLocation, permit: gate::Permit, elapsed: Duration) {
        self.abandon_as(location, |shard, now| {
            shard.with_gate(location.slot, |gate, settings, _| {
                gate.overtake(settings, permit, elapsed, now);
            });
        });
    }
}
