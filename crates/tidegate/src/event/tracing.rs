//! Events for the crate `tracing`.

use policy::time::Timestamp;
use tracing::{Level, enabled, info, trace, warn};

use super::{Event, EventListener};

/// Emits every event with the crate `tracing`, with the target `tidegate` and the event's name as
/// message.
///
/// | level | events |
/// |---|---|
/// | warn | a hold, an open or closed breaker, a paused or disabled endpoint, a failed call, an override |
/// | info | a retry, a second attempt beside the first, a refreshed credential, an endpoint that recovered, the end of a durable operation |
/// | trace | every ask, permit and response, and changed rates |
///
/// Events at the level trace are only built while a subscriber wants them.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::event::TracingListener;
///
/// let limiter = Limiter::builder().listener(TracingListener).build();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingListener;

impl EventListener for TracingListener {
    fn on_event(&self, _at: Timestamp, event: &Event<'_>) {
        let name = event.name();
        match *event {
            Event::HoldStarted { key, until, source } => {
                warn!(target: TARGET, key, ?until, ?source, "{name}");
            }
            Event::BreakerOpened { key, until } => warn!(target: TARGET, key, ?until, "{name}"),
            Event::BreakerClosed { key } => warn!(target: TARGET, key, "{name}"),
            Event::GateOverridden { key, change } => {
                warn!(target: TARGET, key, ?change, "{name}");
            }
            Event::Failed { key, sent, reason } => {
                warn!(target: TARGET, key, sent, reason = reason.as_str(), "{name}");
            }
            Event::EndpointPaused {
                pool,
                endpoint,
                errors,
                ..
            } => warn!(target: TARGET, pool, endpoint, errors, "{name}"),
            Event::EndpointDisabled {
                pool,
                endpoint,
                why,
            } => warn!(target: TARGET, pool, endpoint, ?why, "{name}"),
            Event::OperationEnded { id, kind, sent, .. } => {
                info!(target: TARGET, id, kind, sent, "{name}");
            }
            Event::RetryScheduled {
                key,
                sent,
                delay,
                reason,
            } => info!(target: TARGET, key, sent, ?delay, reason = reason.as_str(), "{name}"),
            Event::Hedged { key, after } => info!(target: TARGET, key, ?after, "{name}"),
            Event::HedgeWon { key } => info!(target: TARGET, key, "{name}"),
            Event::Refreshed {
                credential,
                succeeded,
            } => info!(target: TARGET, credential, succeeded, "{name}"),
            Event::EndpointEnabled { pool, endpoint } => {
                info!(target: TARGET, pool, endpoint, "{name}");
            }
            Event::Waiting { key, reason, until } => {
                trace!(target: TARGET, key, reason = reason.as_str(), ?until, "{name}");
            }
            Event::Admitted {
                key,
                waited,
                is_probe,
            } => trace!(target: TARGET, key, ?waited, is_probe, "{name}"),
            Event::Refused { key, reason, until } => {
                trace!(target: TARGET, key, reason = reason.as_str(), ?until, "{name}");
            }
            Event::Settled {
                key,
                verdict,
                latency,
            } => trace!(target: TARGET, key, ?verdict, ?latency, "{name}"),
            Event::Abandoned { key } => trace!(target: TARGET, key, "{name}"),
            Event::RateChanged { key, from, to, .. } => {
                trace!(target: TARGET, key, from, to, "{name}");
            }
        }
    }

    fn wants_everything(&self) -> bool {
        enabled!(target: TARGET, Level::TRACE)
    }
}

const TARGET: &str = "tidegate";

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use policy::outcome::Outcome;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Metadata, Subscriber};

    use super::*;
    use crate::clock::ManualClock;
    use crate::limiter::Limiter;

    /// Collects level and message of events up to a level.
    struct Collector(Level, Arc<Mutex<Vec<String>>>);

    impl Subscriber for Collector {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == TARGET && *metadata.level() <= self.0
        }

        fn event(&self, event: &tracing::Event<'_>) {
            let mut text = event.metadata().level().to_string();
            event.record(&mut Message(&mut text));
            self.1.lock().unwrap().push(text);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    struct Message<'a>(&'a mut String);

    impl Visit for Message<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.push_str(&format!(" {value:?}"));
            }
        }
    }

    /// What a throttled attempt emits, up to this level.
    fn emitted(level: Level) -> Vec<String> {
        let texts = Arc::default();
        tracing::subscriber::with_default(Collector(level, Arc::clone(&texts)), || {
            let clock = ManualClock::new().clock();
            let limiter = Limiter::builder().clock(clock).listener(TracingListener);
            let permit = limiter
                .build()
                .try_acquire("api.example.com")
                .unwrap()
                .into_owned();
            let wait = Some(Duration::from_secs(7));
            permit.settle(&Outcome::throttled(Duration::from_millis(40), wait));
        });
        let texts = texts.lock().unwrap();
        texts.clone()
    }

    #[test]
    fn each_event_has_its_level_and_its_name() {
        let texts = Arc::default();
        let collector = Collector(Level::TRACE, Arc::clone(&texts));
        tracing::subscriber::with_default(collector, || {
            for event in super::super::tests::one_of_each() {
                TracingListener.on_event(Timestamp::ZERO, &event);
            }
        });
        let expected = "TRACE waiting, TRACE admitted, TRACE refused, TRACE settled, \
            TRACE abandoned, TRACE rate_changed, WARN hold_started, WARN breaker_opened, \
            WARN breaker_closed, WARN gate_overridden, INFO retry_scheduled, INFO hedged, \
            INFO hedge_won, WARN failed, INFO refreshed, WARN endpoint_paused, \
            WARN endpoint_disabled, INFO endpoint_enabled, INFO operation_ended";
        assert_eq!(texts.lock().unwrap().join(", "), expected);
    }

    #[test]
    fn levels_follow_what_happened_and_single_asks_need_trace() {
        assert_eq!(emitted(Level::INFO), ["WARN hold_started"]);
        let all = emitted(Level::TRACE);
        assert!(all.contains(&"TRACE admitted".to_owned()), "{all:?}");
        assert!(all.contains(&"TRACE settled".to_owned()), "{all:?}");
        assert!(all.contains(&"WARN hold_started".to_owned()), "{all:?}");
    }
}
