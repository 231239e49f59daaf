//! Emits events.

use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::{GateSnapshot, GateSummary};
use policy::time::Timestamp;

use super::Limiter;
use crate::ask::{Ask, Refusal};
use crate::event::Event;
use crate::permit::Permit;
use crate::registry::{GateLocation, Shard};

impl Limiter {
    /// Passes an event to the listener, if there is one.
    #[inline]
    pub(crate) fn emit(&self, at: Timestamp, event: &Event<'_>) {
        if let Some(listener) = &self.inner.listener {
            listener.on_event(at, event);
        }
    }

    /// Whether the listener wants every ask and response.
    #[inline]
    pub(super) fn wants_every_event(&self) -> bool {
        let listener = self.inner.listener.as_ref();
        listener.is_some_and(|listener| listener.wants_everything())
    }

    /// Whether an ask may be admitted without an event at a local gate.
    #[inline]
    pub(super) fn is_quick(&self) -> bool {
        self.inner.is_plain || self.inner.registry.fleet().is_none() && !self.wants_every_event()
    }

    /// The key of a gate, if there is a listener. Copied, because events are emitted after
    /// unlocking.
    pub(super) fn key_if_listening(&self, shard: &Shard, location: GateLocation) -> Option<String> {
        let has_listener = self.inner.listener.is_some();
        has_listener.then(|| shard.key(location.slot).to_owned())
    }

    pub(super) fn emit_decision(
        &self,
        key: &str,
        decision: &Result<Permit<'_>, Refusal>,
        now: Timestamp,
    ) {
        match decision {
            Ok(permit) => self.emit_for(key, now, |key| Event::Admitted {
                key,
                waited: Duration::ZERO,
                is_probe: permit.is_probe(),
            }),
            Err(refusal) => self.emit_refused(key, refusal, now),
        }
    }

    pub(super) fn emit_refused(&self, key: &str, refusal: &Refusal, now: Timestamp) {
        self.emit_for(key, now, |key| Event::Refused {
            key,
            reason: refusal.reason(),
            until: refusal.until(),
        });
    }

    /// Reports that every gate of the ask has admitted it.
    pub(super) fn emit_admitted(&self, ask: &Ask<'_>, waited: Duration, now: Timestamp) {
        for key in ask.keys() {
            self.emit_for(key, now, |key| Event::Admitted {
                key,
                waited,
                is_probe: false,
            });
        }
    }

    /// Reports an event for the gate of `key`, under the gate's own key.
    pub(super) fn emit_for<'k>(
        &self,
        key: &'k str,
        now: Timestamp,
        event: impl for<'e> FnOnce(&'e str) -> Event<'e>,
    ) {
        if self.wants_every_event() {
            let shared_key = self.shared_key(key);
            self.emit(now, &event(shared_key.as_deref().unwrap_or(key)));
        }
    }

    /// Reports the differences between two summaries of a gate.
    pub(super) fn emit_changes(
        &self,
        key: &str,
        before: &GateSummary,
        after: &GateSnapshot,
        now: Timestamp,
    ) {
        if before.rate.to_bits() != after.rate.to_bits() && self.wants_every_event() {
            let event = Event::RateChanged {
                key,
                from: before.rate,
                to: after.rate,
                why: after.why,
            };
            self.emit(now, &event);
        }
        if let Some((until, source)) = after.hold
            && before.hold != after.hold
        {
            self.emit(now, &Event::HoldStarted { key, until, source });
        }
        let refuses =
            |state: BreakerState| matches!(state, BreakerState::Open | BreakerState::Isolated);
        if refuses(after.breaker) && before.breaker != after.breaker {
            let until = after.breaker_until;
            self.emit(now, &Event::BreakerOpened { key, until });
        }
        if after.breaker == BreakerState::Closed && before.breaker != BreakerState::Closed {
            self.emit(now, &Event::BreakerClosed { key });
        }
    }
}
