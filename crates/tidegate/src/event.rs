//! Typed events, the only source for logs, metrics and consoles.
//!
//! A limiter has at most one [`EventListener`], set when it is built; a pair of listeners is one, too.
//! Without a listener no event is built. Events borrow their data, so a listener pays only for what
//! it copies.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsListener;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingListener;
use policy::gate::{GateOverride, Reason};
use policy::hint::Source;
use policy::item::{ResendReason, TerminalReason};
use policy::ladder::Disabled;
use policy::operation::OperationState;
use policy::outcome::Verdict;
use policy::rate::Why;
use policy::time::Timestamp;

/// Receives events.
///
/// Called by the task that asks, settles or retries, with no lock held. Slow work belongs behind a
/// channel. A panic propagates to that task, and its permits are given back.
pub trait EventListener: Send + Sync + 'static {
    /// Called with every event and its time on the limiter's clock.
    fn on_event(&self, at: Timestamp, event: &Event<'_>);

    /// Whether to receive events for every single ask and response. If `false`, `Waiting`,
    /// `Admitted`, `Refused`, `Settled`, `Abandoned` and `RateChanged` are skipped, and asks and
    /// responses that change nothing else cost the same as without a listener. The answer may
    /// change over time.
    fn wants_everything(&self) -> bool {
        true
    }
}

impl<F: Fn(Timestamp, &Event<'_>) + Send + Sync + 'static> EventListener for F {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        self(at, event);
    }
}

/// Both listeners, one after the other. Events of single asks go only to one that wants them.
impl<A: EventListener, B: EventListener> EventListener for (A, B) {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        if !event.is_of_single_ask() || self.0.wants_everything() {
            self.0.on_event(at, event);
        }
        if !event.is_of_single_ask() || self.1.wants_everything() {
            self.1.on_event(at, event);
        }
    }

    fn wants_everything(&self) -> bool {
        self.0.wants_everything() || self.1.wants_everything()
    }
}

/// Something that happened at a gate, call or pool.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An ask joined a line.
    Waiting {
        /// The gate.
        key: &'a str,
        /// Why it waits.
        reason: Reason,
        /// When it would leave in the current state, if known.
        until: Option<Timestamp>,
    },
    /// An ask got its permit.
    Admitted {
        /// The gate.
        key: &'a str,
        /// How long it waited.
        waited: Duration,
        /// Whether it probes if the upstream has recovered.
        is_probe: bool,
    },
    /// An ask was refused, at once or after waiting.
    Refused {
        /// The gate.
        key: &'a str,
        /// Why.
        reason: Reason,
        /// When asking again may help, if known.
        until: Option<Timestamp>,
    },
    /// An attempt was settled.
    Settled {
        /// The gate.
        key: &'a str,
        /// The class of its outcome; `None` for a 1xx.
        verdict: Option<Verdict>,
        /// From sending to the head of the response, or to the failure.
        latency: Duration,
    },
    /// A permit was dropped without an outcome.
    Abandoned {
        /// The gate.
        key: &'a str,
    },
    /// A gate's rate changed.
    RateChanged {
        /// The gate.
        key: &'a str,
        /// The previous rate per second.
        from: f64,
        /// The new rate per second.
        to: f64,
        /// Why.
        why: Why,
    },
    /// A hold started or was extended.
    HoldStarted {
        /// The gate.
        key: &'a str,
        /// When it ends.
        until: Timestamp,
        /// Which hint it comes from.
        source: Source,
    },
    /// A breaker opened.
    BreakerOpened {
        /// The gate.
        key: &'a str,
        /// When it half-opens; `None` if it is Isolated, by a person or a used-up quota.
        until: Option<Timestamp>,
    },
    /// A breaker closed.
    BreakerClosed {
        /// The gate.
        key: &'a str,
    },
    /// A person overrode a gate.
    GateOverridden {
        /// The gate.
        key: &'a str,
        /// How.
        change: GateOverride,
    },
    /// A request will be resent.
    RetryScheduled {
        /// The gate or pool.
        key: &'a str,
        /// How many times it was sent so far; zero if its gate has not admitted it yet.
        sent: u32,
        /// The delay from now.
        delay: Duration,
        /// Why.
        reason: ResendReason,
    },
    /// A request was sent a second time because the first attempt had not been answered, see
    /// [`Call::hedge`](crate::Call::hedge).
    Hedged {
        /// The gate of the second attempt.
        key: &'a str,
        /// How long after the first.
        after: Duration,
    },
    /// The second attempt of a request succeeded first.
    HedgeWon {
        /// Its gate.
        key: &'a str,
    },
    /// A call failed and will not be resent. Emitted once per call.
    Failed {
        /// The gate or pool.
        key: &'a str,
        /// How many times it was sent.
        sent: u32,
        /// Why.
        reason: TerminalReason,
    },
    /// A credential was refreshed, or the refresh failed.
    Refreshed {
        /// Its name.
        credential: &'a str,
        /// Whether the refresh succeeded.
        succeeded: bool,
    },
    /// An endpoint was paused.
    EndpointPaused {
        /// Its pool.
        pool: &'a str,
        /// Its name.
        endpoint: &'a str,
        /// When the pause ends.
        until: Timestamp,
        /// Consecutive errors so far.
        errors: u32,
        /// Which hint the pause comes from; `assumed` for a step of the ladder.
        source: Source,
    },
    /// An endpoint was disabled until a person enables it.
    EndpointDisabled {
        /// Its pool.
        pool: &'a str,
        /// Its name.
        endpoint: &'a str,
        /// Why.
        why: Disabled,
    },
    /// An endpoint recovered, or a person enabled it.
    EndpointEnabled {
        /// Its pool.
        pool: &'a str,
        /// Its name.
        endpoint: &'a str,
    },
    /// A durable operation reached a final state, or one that it does not leave by itself. Emitted
    /// by the server only; the library has no operations.
    #[doc(hidden)]
    OperationEnded {
        /// Its id.
        id: &'a str,
        /// Its type.
        kind: &'a str,
        /// Where it was sent.
        destination: &'a str,
        /// Its state, with the reason.
        state: OperationState,
        /// How many times it was sent.
        sent: u32,
    },
}

impl Event<'_> {
    /// Whether only listeners that want everything get it.
    fn is_of_single_ask(&self) -> bool {
        matches!(
            self,
            Self::Waiting { .. }
                | Self::Admitted { .. }
                | Self::Refused { .. }
                | Self::Settled { .. }
                | Self::Abandoned { .. }
                | Self::RateChanged { .. }
        )
    }

    /// The event's name in logs and streams.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Admitted { .. } => "admitted",
            Self::Refused { .. } => "refused",
            Self::Settled { .. } => "settled",
            Self::Abandoned { .. } => "abandoned",
            Self::RateChanged { .. } => "rate_changed",
            Self::HoldStarted { .. } => "hold_started",
            Self::BreakerOpened { .. } => "breaker_opened",
            Self::BreakerClosed { .. } => "breaker_closed",
            Self::GateOverridden { .. } => "gate_overridden",
            Self::RetryScheduled { .. } => "retry_scheduled",
            Self::Hedged { .. } => "hedged",
            Self::HedgeWon { .. } => "hedge_won",
            Self::Failed { .. } => "failed",
            Self::Refreshed { .. } => "refreshed",
            Self::EndpointPaused { .. } => "endpoint_paused",
            Self::EndpointDisabled { .. } => "endpoint_disabled",
            Self::EndpointEnabled { .. } => "endpoint_enabled",
            Self::OperationEnded { .. } => "operation_ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use policy::outcome::Outcome;

    use super::*;
    use crate::clock::ManualClock;
    use crate::limiter::Limiter;

    /// One event of each kind, in the order of their definition.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(super) fn one_of_each() -> Vec<Event<'static>> {
        let (key, pool, endpoint) = ("api.example.com", "llm", "a");
        let (until, reason) = (Timestamp::from_secs(1), Reason::Rate);
        let (sent, delay) = (1, Duration::from_secs(1));
        let (latency, waited, after) = (delay, delay, delay);
        vec![
            Event::Waiting {
                key,
                reason,
                until: Some(until),
            },
            Event::Admitted {
                key,
                waited,
                is_probe: false,
            },
            Event::Refused {
                key,
                reason,
                until: None,
            },
            Event::Settled {
                key,
                verdict: Some(Verdict::Success),
                latency,
            },
            Event::Abandoned { key },
            Event::RateChanged {
                key,
                from: 1.0,
                to: 2.0,
                why: Why::Settings,
            },
            Event::HoldStarted {
                key,
                until,
                source: Source::RetryAfter,
            },
            Event::BreakerOpened { key, until: None },
            Event::BreakerClosed { key },
            Event::GateOverridden {
                key,
                change: GateOverride::Release,
            },
            Event::RetryScheduled {
                key,
                sent,
                delay,
                reason: ResendReason::Verdict(Verdict::Overloaded),
            },
            Event::Hedged { key, after },
            Event::HedgeWon { key },
            Event::Failed {
                key,
                sent,
                reason: TerminalReason::Exhausted,
            },
            Event::Refreshed {
                credential: "crm",
                succeeded: true,
            },
            Event::EndpointPaused {
                pool,
                endpoint,
                until,
                errors: 1,
                source: Source::Assumed,
            },
            Event::EndpointDisabled {
                pool,
                endpoint,
                why: Disabled::Person,
            },
            Event::EndpointEnabled { pool, endpoint },
            Event::OperationEnded {
                id: "1",
                kind: "default",
                destination: key,
                state: OperationState::Completed,
                sent,
            },
        ]
    }

    /// Keeps the names of events.
    #[derive(Clone, Default)]
    struct Names {
        wants_everything: bool,
        names: Arc<Mutex<Vec<&'static str>>>,
    }

    impl EventListener for Names {
        fn on_event(&self, _at: Timestamp, event: &Event<'_>) {
            self.names.lock().unwrap().push(event.name());
        }

        fn wants_everything(&self) -> bool {
            self.wants_everything
        }
    }

    #[test]
    fn each_of_a_pair_gets_what_it_wants() {
        let [every, changes] = [true, false].map(|wants_everything| Names {
            wants_everything,
            ..Names::default()
        });
        let limiter = Limiter::builder()
            .clock(ManualClock::new().clock())
            .listener((every.clone(), changes.clone()))
            .build();
        let wait = Some(Duration::from_secs(7));
        let permit = limiter.try_acquire("api.example.com").unwrap();
        permit.settle(&Outcome::throttled(Duration::from_millis(40), wait));
        assert_eq!(*changes.names.lock().unwrap(), ["hold_started"]);
        let all = every.names.lock().unwrap();
        assert!(
            all.contains(&"admitted") && all.contains(&"hold_started"),
            "{all:?}"
        );
    }
}
