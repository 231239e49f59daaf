//! Every event of the log: its level, its fields and what people read.

use std::fmt;
use std::io;
use std::time::Duration;

use policy::duration::Rounded;
use policy::hint::Source;
use policy::item::{ResendReason, TerminalReason};
use policy::key::endpoint_key;
use policy::ladder::Disabled;
use policy::poll::Notice;
use policy::time::Timestamp;
use tidegate::Clock;
use tidegate::event::Event;
use tracing::Level;
use tracing::field::display;

use super::Log;
use super::line::{DATE_LENGTH, rfc3339};
use crate::metrics::RequestOutcome;
use crate::redact::Text;

/// The names of all events.
pub const EVENTS: [&str; 33] = [
    "retry_scheduled",
    "operation_failed",
    "claim_lost",
    "heartbeat_failed",
    "store_unreadable",
    "job_failed",
    "request_exhausted",
    "request",
    "hold_started",
    "breaker_opened",
    "breaker_closed",
    "endpoint_paused",
    "endpoint_disabled",
    "endpoint_enabled",
    "refreshed",
    "poll_rate_limited",
    "poll_recovered",
    "poll_gave_up",
    "reloaded",
    "reload_failed",
    "draining",
    "stopped",
    "store_degraded",
    "store_recovered",
    "fleet_degraded",
    "fleet_recovered",
    "no_descriptors",
    "tls_failed",
    "access_log_gap",
    "access_log_failed",
    "otlp_failed",
    "otlp_recovered",
    "lines_dropped",
];

/// Emits a `tracing` event. Its target is its name too, so that a filter can name it.
macro_rules! event {
    ($log:ident, $level:ident $name:literal, $($fields:tt)+) => {
        $log.emit(Level::$level, || {
            tracing::event!(name: $name, target: $name, Level::$level, $($fields)+);
        })
    };
}

/// What is sent again or has failed, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemId<'a> {
    /// A request of the gateway.
    Request(&'a str),
    /// An operation.
    Operation(&'a str),
}

/// An item that will be sent again.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// Which item.
    pub item: ItemId<'a>,
    /// The key of its gate, or its pool.
    pub key: &'a str,
    /// How often it was sent so far.
    pub attempt: u32,
    /// How long from now.
    pub delay: Duration,
    /// Why.
    pub reason: ResendReason,
    /// Its trace.
    pub trace_id: &'a str,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct RequestEnd<'a> {
    /// Its id.
    pub request_id: &'a str,
    /// Its route.
    pub route: &'a str,
    /// The status of the response.
    pub status: u16,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// How often it was sent.
    pub attempts: u32,
    /// How long it waited, in lines and between attempts.
    pub wait: Duration,
    /// From its arrival to the head of the response.
    pub latency: Duration,
    /// Its trace.
    pub trace_id: &'a str,
}

impl Log {
    /// An item will be sent again.
    pub fn retry_scheduled(&self, retry: &Retry<'_>) {
        let (request_id, operation_id, id) = match retry.item {
            ItemId::Request(id) => (Some(id), None, id),
            ItemId::Operation(id) => (None, Some(id), id),
        };
        let (key, attempt, trace_id) = (retry.key, retry.attempt, retry.trace_id);
        let (delay, reason) = (In(retry.delay), retry.reason.as_str());
        let delay_ms = millis(retry.delay);
        event!(
            self, INFO "retry_scheduled",
            request_id, operation_id, key, attempt, delay_ms, reason, trace_id,
            "{id} is sent again {delay} at {key} after attempt {attempt}: {reason}"
        );
    }

    /// An operation will not be sent again by itself.
    pub fn operation_failed(
        &self,
        operation_id: &str,
        key: &str,
        attempts: u32,
        reason: TerminalReason,
        trace_id: &str,
    ) {
        let reason = reason.as_str();
        event!(
            self, ERROR "operation_failed",
            operation_id, key, attempts, reason, trace_id,
            "{operation_id} at {key} failed, attempts {attempts}: {reason}"
        );
    }

    /// An operation was sent, but its claim was lost meanwhile: its lease had ended, or a person had
    /// decided about it. What became of it is not changed.
    pub fn claim_lost(&self, operation_id: &str, key: &str) {
        event!(
            self, WARN "claim_lost",
            operation_id, key,
            "{operation_id} at {key} was sent, but its result came too late: its claim was lost"
        );
    }

    /// The leases of what is being sent could not be extended. The next heartbeat does, unless they have
    /// ended by then.
    pub fn heartbeat_failed(&self, claims: usize, problem: Text<'_>) {
        event!(
            self, WARN "heartbeat_failed",
            claims, problem = %problem,
            "the leases of {claims} operations were not extended: {problem}"
        );
    }

    /// An operation cannot be read from the store, so it cannot be sent now.
    pub fn store_unreadable(&self, operation_id: &str, key: &str, problem: Text<'_>) {
        event!(
            self, ERROR "store_unreadable",
            operation_id, key, problem = %problem,
            "{operation_id} at {key} waits, because its request cannot be read: {problem}"
        );
    }

    /// A job could not go on.
    pub fn job_failed(&self, job_id: &str, problem: Text<'_>) {
        event!(
            self, ERROR "job_failed",
            job_id, problem = %problem,
            "{job_id} failed: {problem}"
        );
    }

    /// A request has used all attempts that it may have.
    pub fn request_exhausted(&self, request_id: &str, key: &str, attempts: u32, trace_id: &str) {
        event!(
            self, WARN "request_exhausted",
            request_id, key, attempts, trace_id,
            "{request_id} at {key} failed, attempts {attempts}: exhausted"
        );
    }

    /// A request was answered.
    pub fn request(&self, end: &RequestEnd<'_>) {
        let RequestEnd {
            request_id,
            route,
            status,
            outcome,
            attempts,
            wait,
            latency,
            trace_id,
        } = *end;
        let outcome = outcome.as_str();
        let (wait_ms, latency_ms) = (millis(wait), millis(latency));
        event!(
            self, DEBUG "request",
            request_id, route, status, outcome, attempts, wait_ms, latency_ms, trace_id,
            "{request_id} {route} {status} {outcome}, attempts {attempts}, waited {wait_ms}ms, took {latency_ms}ms"
        );
    }

    /// An event of the limiter, if it is one that is logged: a retry, for instance, is logged by
    /// its sender, which knows the item. `last_error` is that of the event's endpoint.
    pub fn limiter_event(&self, event: &Event<'_>, last_error: Option<&str>) {
        match *event {
            Event::HoldStarted { key, until, source } => {
                let Some(until) = self.until(until) else {
                    return;
                };
                event!(
                    self, WARN "hold_started",
                    key, until = until.field, source = source.as_str(),
                    "{key} is held {until}: {}", NamedBy(source)
                );
            }
            Event::BreakerOpened { key, until } => {
                let until = until.and_then(|until| self.until(until));
                let text = until.as_ref().map(ToString::to_string);
                let text = text.as_deref().unwrap_or("until a person releases it");
                event!(
                    self, WARN "breaker_opened",
                    key, until = until.as_ref().map(|until| &*until.field),
                    "breaker of {key} is open {text}"
                );
            }
            Event::BreakerClosed { key } => {
                event!(
                    self, WARN "breaker_closed",
                    key,
                    "breaker of {key} is closed"
                );
            }
            Event::EndpointPaused {
                pool,
                endpoint,
                until,
                errors,
                source,
            } => {
                let Some(until) = self.until(until) else {
                    return;
                };
                let key = endpoint_key(pool, endpoint);
                let last = LastError(last_error);
                event!(
                    self, WARN "endpoint_paused",
                    key, pool, endpoint, until = until.field, source = source.as_str(), errors, last_error = last.field(),
                    "{key} is paused {until}: {}, consecutive errors {errors}{last}", NamedBy(source)
                );
            }
            Event::EndpointDisabled {
                pool,
                endpoint,
                why,
            } => {
                let key = endpoint_key(pool, endpoint);
                let last = LastError(last_error);
                let reason = why.as_str();
                event!(
                    self, WARN "endpoint_disabled",
                    key, pool, endpoint, reason, last_error = last.field(),
                    "{key} is disabled {}{last}", Because(why)
                );
            }
            Event::EndpointEnabled { pool, endpoint } => {
                let key = endpoint_key(pool, endpoint);
                event!(
                    self, INFO "endpoint_enabled",
                    key, pool, endpoint,
                    "{key} is enabled"
                );
            }
            Event::Refreshed {
                credential,
                succeeded: true,
            } => event!(self, DEBUG "refreshed",
                credential,
                succeeded = true,
                "credential {credential} is refreshed"
            ),
            Event::Refreshed {
                credential,
                succeeded: false,
            } => event!(self, WARN "refreshed",
                credential,
                succeeded = false,
                "credential {credential} cannot be refreshed"
            ),
            _ => {}
        }
    }

    /// Polling slowed down, recovered or gave up.
    pub fn poll(&self, key: &str, notice: Notice) {
        match notice {
            Notice::RateLimited { wait, attempt } => event!(self, WARN "poll_rate_limited",
                key,
                attempt,
                delay_ms = millis(wait),
                "{notice}"
            ),
            Notice::Recovered => event!(self, INFO "poll_recovered", key, "{notice}"),
            Notice::GaveUp => event!(self, ERROR "poll_gave_up", key, "{notice}"),
        }
    }

    /// The settings were read again and are in use.
    pub fn reloaded(&self) {
        event!(self, INFO "reloaded", "the settings were reloaded");
    }

    /// The settings were read again and are wrong; the previous ones stay in use.
    pub fn reload_failed(&self, problem: &str) {
        event!(
            self, ERROR "reload_failed",
            problem,
            "the previous settings stay in use: {problem}"
        );
    }

    /// A client did not finish a TLS handshake. Anyone can cause that, so it is for debugging only.
    pub fn tls_failed(&self, error: &io::Error) {
        // The words of a client may be in it.
        let error = error.to_string();
        let reason = Text::new(&error);
        event!(
            self, DEBUG "tls_failed",
            reason = display(&reason),
            "a TLS handshake failed: {reason}"
        );
    }

    /// No new requests are accepted; those in flight are finished.
    pub fn draining(&self, in_flight: u64) {
        event!(
            self, INFO "draining",
            in_flight,
            "no new requests are accepted, in flight: {in_flight}"
        );
    }

    /// The server has stopped.
    pub fn stopped(&self) {
        event!(self, INFO "stopped", "the server has stopped");
    }

    /// State that has to survive a restart cannot be written.
    pub fn store_degraded(&self, problem: Text<'_>) {
        event!(
            self, WARN "store_degraded",
            problem = %problem,
            "state cannot be stored: {problem}"
        );
    }

    /// State can be written again.
    pub fn store_recovered(&self) {
        event!(self, INFO "store_recovered", "state is stored again");
    }

    /// The server that gates are shared through is silent.
    pub fn fleet_degraded(&self, problem: Text<'_>) {
        event!(
            self, WARN "fleet_degraded",
            problem = %problem,
            "gates continue with the last share of this node: {problem}"
        );
    }

    /// It answers again, after a silence.
    pub fn fleet_recovered(&self, silence: Duration) {
        let silence_ms = millis(silence);
        let silence = Rounded(silence);
        event!(
            self, INFO "fleet_recovered",
            silence_ms,
            "gates are shared again, after {silence}"
        );
    }

    /// No connection can be opened or accepted, because as many descriptors are open as may be.
    pub fn no_descriptors(&self, limit: usize) {
        event!(
            self, ERROR "no_descriptors",
            limit,
            "no connection can be opened, because the process may have {limit} descriptors open \
             (`ulimit -n`)"
        );
    }

    /// Lines of the access log found no room, because it could not be written as fast.
    pub fn access_log_gap(&self, count: u64) {
        event!(
            self, WARN "access_log_gap",
            count,
            "{count} lines are missing in the access log: it could not be written as fast"
        );
    }

    /// The access log cannot be written or opened again. Logged once until it can be written.
    pub fn access_log_failed(&self, problem: &str) {
        event!(
            self, ERROR "access_log_failed",
            problem,
            "the access log cannot be written: {problem}"
        );
    }

    /// A collector does not accept spans or metrics. Logged once until it does.
    pub fn otlp_failed(&self, signal: &str, problem: Text<'_>) {
        event!(
            self, WARN "otlp_failed",
            signal, problem = %problem,
            "the collector does not accept {signal}: {problem}"
        );
    }

    /// The collector accepts spans or metrics again.
    pub fn otlp_recovered(&self, signal: &str) {
        event!(
            self, INFO "otlp_recovered",
            signal,
            "the collector accepts {signal} again"
        );
    }

    /// How an instant is shown; `None` if nothing is logged.
    fn until(&self, at: Timestamp) -> Option<Until> {
        let clock = &self.0.as_ref()?.clock;
        Some(Until::new(clock, at))
    }
}

/// An instant until which something lasts.
struct Until {
    field: String,
    text: String,
}

impl Until {
    /// For people `until 06:00:20Z (20s)`, with the date only if it is another day.
    fn new(clock: &Clock, at: Timestamp) -> Self {
        let (now, field) = (rfc3339(clock.wall()), rfc3339(clock.wall_at(at)));
        let (date, time) = field.split_at(DATE_LENGTH);
        let time = time.get(1..9).unwrap_or_default();
        let day = match now.starts_with(date) {
            true => String::new(),
            false => format!("{date} "),
        };
        let left = Rounded(at.since(clock.now()));
        let text = format!("until {day}{time}Z ({left})");
        Self { field, text }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What an endpoint's server said last, redacted.
#[derive(Clone, Copy)]
struct LastError<'a>(Option<&'a str>);

impl<'a> LastError<'a> {
    fn field(self) -> Option<tracing::field::DisplayValue<Text<'a>>> {
        self.0.map(|text| display(Text::new(text)))
    }
}

impl fmt::Display for LastError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, ", last error: {}", Text::new(text)),
            None => Ok(()),
        }
    }
}

/// Where the server named a wait, if it did.
struct NamedBy(Source);

impl fmt::Display for NamedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Source::Assumed => f.write_str("the server named no wait"),
            Source::Counted => f.write_str("its window has accepted as much as before"),
            Source::Body => f.write_str("the server named it in the body"),
            source => write!(f, "the server named it in `{source}`"),
        }
    }
}

/// Why an endpoint is disabled, as the end of a sentence.
struct Because(Disabled);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Disabled::Errors(errors) => write!(f, "after consecutive errors: {errors}"),
            Disabled::QuotaExhausted => f.write_str("because its quota is exhausted"),
            Disabled::CredentialRejected => f.write_str("because its credential is rejected"),
            Disabled::Person => f.write_str("by a person"),
        }
    }
}

/// A delay below a millisecond is shown as none: rounded up it would be a second.
struct In(Duration);

impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 < Duration::from_millis(1) {
            true => f.write_str("at once"),
            false => write!(f, "in {}", Rounded(self.0)),
        }
    }
}

/// In whole milliseconds, rounded up as every wait.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
