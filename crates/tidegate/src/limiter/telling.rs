//! From what was done to the events that say so.

use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::{self, GateSnapshot};
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;

use super::Shared;
use crate::ask::Refusal;
use crate::event::Event;
use crate::permit::Permit;
use crate::registry::{Place, Shard};

impl Shared {
    /// Passes an event on, if anyone listens.
    #[inline]
    pub(crate) fn tell(&self, at: Timestamp, event: &Event<'_>) {
        if let Some(listener) = &self.listener {
            listener.on_event(at, event);
        }
    }

    /// The key of a gate, if anyone would hear of it. A copy, for it is told after unlocking.
    pub(super) fn key_if_heard(&self, shard: &Shard, place: Place) -> Option<String> {
        let is_heard = self.listener.is_some();
        is_heard.then(|| shard.key(place.slot).to_owned())
    }

    #[cold]
    pub(super) fn tell_answer(
        &self,
        key: &str,
        answer: &Result<Permit<'_>, Refusal>,
        now: Timestamp,
    ) {
        let event = match answer {
            Ok(permit) => Event::Admitted {
                key,
                waited: Duration::ZERO,
                is_probe: permit.is_probe(),
            },
            Err(refusal) => self.refused(key, refusal),
        };
        self.tell(now, &event);
    }

    pub(super) fn refused<'a>(&self, key: &'a str, refusal: &Refusal) -> Event<'a> {
        Event::Refused {
            key,
            reason: refusal.reason(),
            until: refusal.until(),
        }
    }

    /// What [`Shared::settle`] does, and then what it changed.
    #[cold]
    pub(super) fn settle_and_tell(
        &self,
        place: Place,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        let mut shard = self.registry.lock(place.shard);
        let key = shard.key(place.slot).to_owned();
        let before = shard.look(place.slot, now);
        shard.settle(place.slot, permit, outcome, verdict, now);
        let after = shard.look(place.slot, now);
        self.unlock(shard, place, now);
        let event = Event::Settled {
            key: &key,
            verdict,
            latency: outcome.latency,
        };
        self.tell(now, &event);
        self.tell_change(&key, &before, &after, now);
    }

    /// What differs between two looks at a gate.
    pub(super) fn tell_change(
        &self,
        key: &str,
        before: &GateSnapshot,
        after: &GateSnapshot,
        now: Timestamp,
    ) {
        if before.rate.to_bits() != after.rate.to_bits() {
            let event = Event::RateChanged {
                key,
                from: before.rate,
                to: after.rate,
                why: after.why,
            };
            self.tell(now, &event);
        }
        if let Some((until, source)) = after.hold
            && before.hold != after.hold
        {
            self.tell(now, &Event::HoldStarted { key, until, source });
        }
        let is_shut =
            |state: BreakerState| matches!(state, BreakerState::Open | BreakerState::Isolated);
        if is_shut(after.breaker) && before.breaker != after.breaker {
            let until = after.breaker_until;
            self.tell(now, &Event::BreakerOpened { key, until });
        }
        if after.breaker == BreakerState::Closed && before.breaker != BreakerState::Closed {
            self.tell(now, &Event::BreakerClosed { key });
        }
    }
}
