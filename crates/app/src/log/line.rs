//! Everything that is logged.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use policy::hint::Source;
use policy::item::{ResendReason, TerminalReason};
use policy::ladder::Disabled;
use policy::poll::Notice;
use policy::time::Timestamp;
use tidegate::event::Event;

use super::Level;
use crate::metrics::RequestOutcome;
use crate::redact::Text;

/// One line of the log. Instants are of the clock that the log was made with.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Line<'a> {
    /// Something will be sent again.
    RetryScheduled {
        /// What.
        whose: Whose<'a>,
        /// Through which gate or pool.
        key: &'a str,
        /// How often it was sent so far.
        attempt: u32,
        /// How long from now.
        delay: Duration,
        /// Why.
        reason: ResendReason,
        /// The trace that it is a part of.
        trace_id: Option<&'a str>,
    },
    /// An operation will not be sent again by itself.
    OperationFailed {
        /// Which one.
        operation_id: &'a str,
        /// Through which gate.
        key: &'a str,
        /// Why not.
        reason: TerminalReason,
        /// The trace that it is a part of.
        trace_id: Option<&'a str>,
    },
    /// A request was answered.
    Request {
        /// Which one.
        request_id: &'a str,
        /// By which route.
        route: &'a str,
        /// With this status.
        status: u16,
        /// How it ended.
        outcome: RequestOutcome,
        /// How often it was sent.
        attempts: u32,
        /// How long it waited, in lines and between attempts.
        wait: Duration,
        /// From its arrival to the head of the answer.
        latency: Duration,
        /// The trace that it is a part of.
        trace_id: Option<&'a str>,
    },
    /// A hold has begun, or now lasts longer.
    HoldStarted {
        /// Of which gate.
        key: &'a str,
        /// Until when.
        until: Timestamp,
        /// Who asked for it.
        source: Source,
    },
    /// A breaker opened.
    BreakerOpened {
        /// Of which gate.
        key: &'a str,
        /// Until when; `None` if only a person ends it.
        until: Option<Timestamp>,
    },
    /// A breaker closed again.
    BreakerClosed {
        /// Of which gate.
        key: &'a str,
    },
    /// An endpoint is left alone for a while.
    EndpointPaused {
        /// Whose endpoint.
        pool: &'a str,
        /// Which one.
        endpoint: &'a str,
        /// Until when.
        until: Timestamp,
        /// Errors in a row so far.
        errors: u32,
        /// The last of them.
        last_error: Option<Text<'a>>,
    },
    /// An endpoint is left alone until a person enables it.
    EndpointDisabled {
        /// Whose endpoint.
        pool: &'a str,
        /// Which one.
        endpoint: &'a str,
        /// Why.
        why: Disabled,
        /// The last error.
        last_error: Option<Text<'a>>,
    },
    /// An endpoint works again, or a person says so.
    EndpointEnabled {
        /// Whose endpoint.
        pool: &'a str,
        /// Which one.
        endpoint: &'a str,
    },
    /// A credential was refreshed, or could not be.
    Refreshed {
        /// Which one.
        credential: &'a str,
        /// Is it good now?
        succeeded: bool,
    },
    /// Following a job became slower, as fast as before again, or is over.
    Poll {
        /// Which job, or at which address.
        key: &'a str,
        /// What changed.
        notice: Notice,
    },
    /// Something takes connections now.
    Listening {
        /// What.
        what: &'a str,
        /// Where.
        address: SocketAddr,
    },
    /// The settings were read again and are in use.
    Reloaded,
    /// The settings were read again and are wrong; those from before stay in use.
    ReloadFailed {
        /// What is wrong with them.
        problem: &'a str,
    },
    /// No new requests are taken; those under way are finished.
    Draining {
        /// How many are under way.
        in_flight: u64,
    },
    /// Everything has stopped.
    Stopped,
    /// What has to survive a restart cannot be written down now.
    StoreDegraded {
        /// Why not.
        problem: Text<'a>,
    },
    /// It can be written down again.
    StoreRecovered,
    /// Lines are missing here, because the log could not be written as fast as they came.
    LinesDropped {
        /// How many.
        count: u64,
    },
}

/// Whose retry it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// That of a request, by its id.
    Request(&'a str),
    /// That of an operation, by its id.
    Operation(&'a str),
}

impl<'a> Line<'a> {
    /// The line for an event that is logged as it is; `None` for all others. A retry is one of
    /// those: only who makes the call knows whose it is.
    pub fn from_event(event: &Event<'a>) -> Option<Self> {
        Some(match *event {
            Event::HoldStarted { key, until, source } => Self::HoldStarted { key, until, source },
            Event::BreakerOpened { key, until } => Self::BreakerOpened { key, until },
            Event::BreakerClosed { key } => Self::BreakerClosed { key },
            Event::EndpointPaused {
                pool,
                endpoint,
                until,
                errors,
            } => Self::EndpointPaused {
                pool,
                endpoint,
                until,
                errors,
                last_error: None,
            },
            Event::EndpointDisabled {
                pool,
                endpoint,
                why,
            } => Self::EndpointDisabled {
                pool,
                endpoint,
                why,
                last_error: None,
            },
            Event::EndpointEnabled { pool, endpoint } => Self::EndpointEnabled { pool, endpoint },
            Event::Refreshed {
                credential,
                succeeded,
            } => Self::Refreshed {
                credential,
                succeeded,
            },
            _ => return None,
        })
    }

    /// The same with an endpoint's last error, where the line has a place for it.
    #[must_use]
    pub fn with_last_error(mut self, text: Option<&'a str>) -> Self {
        if let Self::EndpointPaused { last_error, .. } | Self::EndpointDisabled { last_error, .. } =
            &mut self
        {
            *last_error = text.map(Text::new);
        }
        self
    }

    /// How much it matters.
    pub const fn level(&self) -> Level {
        match self {
            Self::OperationFailed { .. } | Self::ReloadFailed { .. } => Level::Error,
            Self::HoldStarted { .. }
            | Self::BreakerOpened { .. }
            | Self::BreakerClosed { .. }
            | Self::EndpointPaused { .. }
            | Self::EndpointDisabled { .. }
            | Self::StoreDegraded { .. }
            | Self::LinesDropped { .. } => Level::Warn,
            Self::RetryScheduled { .. }
            | Self::EndpointEnabled { .. }
            | Self::Listening { .. }
            | Self::Reloaded
            | Self::Draining { .. }
            | Self::Stopped
            | Self::StoreRecovered => Level::Info,
            Self::Request { .. } => Level::Debug,
            Self::Refreshed { succeeded, .. } => match succeeded {
                true => Level::Debug,
                false => Level::Warn,
            },
            Self::Poll { notice, .. } => match notice {
                Notice::RateLimited { .. } => Level::Warn,
                Notice::Recovered => Level::Info,
                Notice::GaveUp => Level::Error,
            },
        }
    }

    /// The name of the event.
    pub const fn event(&self) -> &'static str {
        match self {
            Self::RetryScheduled { .. } => "retry_scheduled",
            Self::OperationFailed { .. } => "operation_failed",
            Self::Request { .. } => "request",
            Self::HoldStarted { .. } => "hold_started",
            Self::BreakerOpened { .. } => "breaker_opened",
            Self::BreakerClosed { .. } => "breaker_closed",
            Self::EndpointPaused { .. } => "endpoint_paused",
            Self::EndpointDisabled { .. } => "endpoint_disabled",
            Self::EndpointEnabled { .. } => "endpoint_enabled",
            Self::Refreshed { .. } => "refreshed",
            Self::Poll { notice, .. } => notice.event(),
            Self::Listening { .. } => "listening",
            Self::Reloaded => "reloaded",
            Self::ReloadFailed { .. } => "reload_failed",
            Self::Draining { .. } => "draining",
            Self::Stopped => "stopped",
            Self::StoreDegraded { .. } => "store_degraded",
            Self::StoreRecovered => "store_recovered",
            Self::LinesDropped { .. } => "lines_dropped",
        }
    }
}

/// Why an endpoint is disabled, in words that may stand in a sentence.
pub(super) struct Why(pub(super) Disabled);

impl Why {
    /// The word for it.
    pub(super) const fn word(&self) -> &'static str {
        match self.0 {
            Disabled::Errors(_) => "errors",
            Disabled::QuotaExhausted => "quota_exhausted",
            Disabled::Person => "person",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Disabled::Errors(1) => f.write_str("after 1 error"),
            Disabled::Errors(errors) => write!(f, "after {errors} errors in a row"),
            Disabled::QuotaExhausted => f.write_str("because its allowance is used up"),
            Disabled::Person => f.write_str("by a person"),
        }
    }
}
