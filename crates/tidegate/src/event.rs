//! What happens, as types: the one place that logs, metrics and consoles are fed from.
//!
//! A limiter has at most one [`EventListener`], given when it is built; for several, write one
//! that passes on. Without one no event is built. Events borrow, so that a listener pays only for
//! what it copies.

use std::time::Duration;

use policy::gate::Reason;
use policy::hint::Source;
use policy::item::{ResendReason, TerminalReason};
use policy::ladder::Disabled;
use policy::operation::OperationState;
use policy::outcome::Verdict;
use policy::rate::Why;
use policy::time::Timestamp;

/// Receives events.
///
/// It is called by the task that asks, settles or retries, after all locks are free. What takes
/// long belongs into a channel. A panic in it is a panic of that task; its permits are given back.
pub trait EventListener: Send + Sync + 'static {
    /// Something happened at `at`, on the limiter's clock.
    fn on_event(&self, at: Timestamp, event: &Event<'_>);

    /// Does it want every single ask and response? If not, it does not get `Waiting`,
    /// `Admitted`, `Refused`, `Settled`, `Abandoned` and `RateChanged`, and asks and answers that
    /// change nothing else cost no more than without a listener. It may change its mind.
    fn wants_everything(&self) -> bool {
        true
    }
}

impl<F: Fn(Timestamp, &Event<'_>) + Send + Sync + 'static> EventListener for F {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        self(at, event);
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An ask has joined a line.
    Waiting {
        /// Whose line.
        key: &'a str,
        /// Why it waits.
        reason: Reason,
        /// When it would leave by the present state, if that is known.
        until: Option<Timestamp>,
    },
    /// An ask got its permit.
    Admitted {
        /// Of which gate.
        key: &'a str,
        /// After waiting this long.
        waited: Duration,
        /// It is one of the few that find out whether the upstream works again.
        is_probe: bool,
    },
    /// An ask was refused, at once or after waiting.
    Refused {
        /// By which gate.
        key: &'a str,
        /// Why.
        reason: Reason,
        /// When asking again may help, if that is known.
        until: Option<Timestamp>,
    },
    /// An attempt was made, and this came of it.
    Settled {
        /// At which gate.
        key: &'a str,
        /// The class of its outcome; `None` for one that changes nothing.
        verdict: Option<Verdict>,
        /// From sending to the answer's head, or to the failure.
        latency: Duration,
    },
    /// A permit came back without an outcome.
    Abandoned {
        /// Of which gate.
        key: &'a str,
    },
    /// A gate's rate has changed.
    RateChanged {
        /// Of which gate.
        key: &'a str,
        /// Per second, before.
        from: f64,
        /// Per second, now.
        to: f64,
        /// Why.
        why: Why,
    },
    /// A hold has begun, or now lasts longer.
    HoldStarted {
        /// Of which gate.
        key: &'a str,
        /// Until when.
        until: Timestamp,
        /// Where it comes from.
        source: Source,
    },
    /// A breaker opened.
    BreakerOpened {
        /// Of which gate.
        key: &'a str,
        /// Until when; `None` if it is isolated, by a person or a used-up allowance.
        until: Option<Timestamp>,
    },
    /// A breaker closed again.
    BreakerClosed {
        /// Of which gate.
        key: &'a str,
    },
    /// Something will be sent again.
    RetryScheduled {
        /// Through which gate or pool.
        key: &'a str,
        /// How often it was sent so far; zero if its gate never let it out.
        sent: u32,
        /// How long from now.
        delay: Duration,
        /// Why.
        reason: ResendReason,
    },
    /// A call is over without success, and will not be sent again. One event for each.
    Failed {
        /// Through which gate or pool.
        key: &'a str,
        /// How often it was sent.
        sent: u32,
        /// Why not.
        reason: TerminalReason,
    },
    /// A credential was refreshed, or could not be.
    Refreshed {
        /// Which one.
        credential: &'a str,
        /// Is it good now?
        succeeded: bool,
    },
    /// An endpoint is paused.
    EndpointPaused {
        /// Whose endpoint.
        pool: &'a str,
        /// Which one.
        endpoint: &'a str,
        /// Until when.
        until: Timestamp,
        /// Errors in a row so far.
        errors: u32,
        /// Where the wait was read; `assumed` for a step of the ladder.
        source: Source,
    },
    /// An endpoint is not used until a person enables it.
    EndpointDisabled {
        /// Whose endpoint.
        pool: &'a str,
        /// Which one.
        endpoint: &'a str,
        /// Why.
        why: Disabled,
    },
    /// An endpoint works again, or a person says so.
    EndpointEnabled {
        /// Whose endpoint.
        pool: &'a str,
        /// Which one.
        endpoint: &'a str,
    },
    /// A durable operation has reached a state that it does not leave by itself. The library has no
    /// operations; the server does.
    OperationEnded {
        /// Its id.
        id: &'a str,
        /// Its type.
        kind: &'a str,
        /// Where it was sent.
        destination: &'a str,
        /// Its state, with the reason.
        state: OperationState,
        /// How often it was sent.
        sent: u32,
    },
}

impl Event<'_> {
    /// The word for it in logs and streams.
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
            Self::RetryScheduled { .. } => "retry_scheduled",
            Self::Failed { .. } => "failed",
            Self::Refreshed { .. } => "refreshed",
            Self::EndpointPaused { .. } => "endpoint_paused",
            Self::EndpointDisabled { .. } => "endpoint_disabled",
            Self::EndpointEnabled { .. } => "endpoint_enabled",
            Self::OperationEnded { .. } => "operation_ended",
        }
    }
}
