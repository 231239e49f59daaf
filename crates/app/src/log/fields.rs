//! The fields of a line, in the names that programs know them by.

use std::fmt::{Display, Write};
use std::time::Duration;

use policy::poll::Notice;
use policy::time::Timestamp;
use tidegate::Clock;

use super::calendar::Rfc3339;
use super::escape::JsonString;
use super::line::{Line, Whose, Why};

/// A JSON object on one line, its fields in the order written.
pub(super) struct Fields<'a> {
    out: String,
    clock: &'a Clock,
}

impl<'a> Fields<'a> {
    pub(super) fn new(clock: &'a Clock) -> Self {
        Self {
            out: String::with_capacity(USUAL),
            clock,
        }
    }

    pub(super) fn text(&mut self, name: &str, value: impl AsRef<str>) {
        self.raw(name, JsonString(value.as_ref()));
    }

    fn maybe(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    fn number(&mut self, name: &str, value: impl Into<u64>) {
        self.raw(name, value.into());
    }

    /// In whole milliseconds; rounded up, as every wait.
    fn millis(&mut self, name: &str, value: Duration) {
        self.raw(name, value.as_nanos().div_ceil(1_000_000));
    }

    fn instant(&mut self, name: &str, value: Timestamp) {
        self.text(name, Rfc3339(self.clock.wall_at(value)).to_string());
    }

    /// Ends the object and the line.
    pub(super) fn end(mut self) -> String {
        self.out.push_str("}\n");
        self.out
    }

    fn raw(&mut self, name: &str, value: impl Display) {
        let separator = if self.out.is_empty() { '{' } else { ',' };
        // Writing into a string cannot fail.
        _ = write!(self.out, "{separator}\"{name}\":{value}");
    }

    /// Everything that `line` has to say.
    pub(super) fn of(&mut self, line: &Line<'_>) {
        match *line {
            Line::RetryScheduled {
                whose,
                key,
                attempt,
                delay,
                reason,
                trace_id,
            } => {
                match whose {
                    Whose::Request(id) => self.text("request_id", id),
                    Whose::Operation(id) => self.text("operation_id", id),
                }
                self.text("key", key);
                self.number("attempt", attempt);
                self.millis("delay_ms", delay);
                self.text("reason", reason.as_str());
                self.maybe("trace_id", trace_id);
            }
            Line::OperationFailed {
                operation_id,
                key,
                reason,
                trace_id,
            } => {
                self.text("operation_id", operation_id);
                self.text("key", key);
                self.text("reason", reason.as_str());
                self.maybe("trace_id", trace_id);
            }
            Line::Request {
                request_id,
                route,
                status,
                outcome,
                attempts,
                wait,
                latency,
                trace_id,
            } => {
                self.text("request_id", request_id);
                self.text("route", route);
                self.number("status", status);
                self.text("outcome", outcome.as_str());
                self.number("attempts", attempts);
                self.millis("wait_ms", wait);
                self.millis("latency_ms", latency);
                self.maybe("trace_id", trace_id);
            }
            Line::HoldStarted { key, until, source } => {
                self.text("key", key);
                self.instant("until", until);
                self.text("source", source.as_str());
            }
            Line::BreakerOpened { key, until } => {
                self.text("key", key);
                if let Some(until) = until {
                    self.instant("until", until);
                }
            }
            Line::BreakerClosed { key } => self.text("key", key),
            Line::EndpointPaused {
                pool,
                endpoint,
                until,
                errors,
                last_error,
            } => {
                self.endpoint(pool, endpoint);
                self.instant("until", until);
                self.number("errors", errors);
                self.maybe("last_error", last_error.map(|text| text.to_string()));
            }
            Line::EndpointDisabled {
                pool,
                endpoint,
                why,
                last_error,
            } => {
                self.endpoint(pool, endpoint);
                self.text("reason", Why(why).word());
                self.maybe("last_error", last_error.map(|text| text.to_string()));
            }
            Line::EndpointEnabled { pool, endpoint } => self.endpoint(pool, endpoint),
            Line::Refreshed {
                credential,
                succeeded,
            } => {
                self.text("credential", credential);
                self.raw("succeeded", succeeded);
            }
            Line::Poll { key, notice } => {
                self.text("key", key);
                if let Notice::RateLimited { wait, attempt } = notice {
                    self.number("attempt", attempt);
                    self.millis("delay_ms", wait);
                }
            }
            Line::Listening { what, address } => {
                self.text("what", what);
                self.text("address", address.to_string());
            }
            Line::ReloadFailed { problem } => self.text("problem", problem),
            Line::StoreDegraded { problem } => self.text("problem", problem.to_string()),
            Line::Draining { in_flight } => self.number("in_flight", in_flight),
            Line::LinesDropped { count } => self.number("count", count),
            Line::Reloaded | Line::Stopped | Line::StoreRecovered => {}
        }
    }

    /// An endpoint has a gate too, and that gate's key.
    fn endpoint(&mut self, pool: &str, endpoint: &str) {
        self.text("key", policy::key::endpoint_key(pool, endpoint).as_str());
        self.text("pool", pool);
        self.text("endpoint", endpoint);
    }
}

/// Most lines are shorter.
const USUAL: usize = 256;
