//! An event, written down for those who look on from outside: its name and its values as JSON.

use std::time::Duration;

use policy::ladder::Disabled;
use serde_json::{Value, json};
use tidegate::event::Event;
use tidegate::{Clock, Timestamp};

/// Something that happened, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// The word for it.
    pub name: &'static str,
    /// Its values; times in milliseconds of Unix time, or null.
    pub data: Value,
}

impl Happening {
    /// Writes an event down.
    pub(super) fn new(clock: &Clock, at: Timestamp, event: &Event<'_>) -> Self {
        let mut data = values(clock, event);
        data["at_ms"] = unix_millis(clock, at).into();
        Self {
            name: event.name(),
            data,
        }
    }
}

/// A time on the limiter's clock as it is shown everywhere.
pub(crate) fn unix_millis(clock: &Clock, at: Timestamp) -> i64 {
    clock.wall_at(at).as_unix_millis()
}

/// Why an endpoint is disabled, in one word.
fn disabled_word(why: Disabled) -> &'static str {
    match why {
        Disabled::Errors(_) => "errors",
        Disabled::QuotaExhausted => "quota_exhausted",
        Disabled::Person => "person",
    }
}

/// Milliseconds with their fractions, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    let micros = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
    f64::from(micros) / 1000.0
}

fn values(clock: &Clock, event: &Event<'_>) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| unix_millis(clock, at));
    match *event {
        Event::Waiting { key, reason, until } => {
            json!({ "key": key, "reason": reason.as_str(), "until_ms": time(until) })
        }
        Event::Admitted {
            key,
            waited,
            is_probe,
        } => json!({ "key": key, "waited_ms": millis(waited), "probe": is_probe }),
        Event::Refused { key, reason, until } => {
            json!({ "key": key, "reason": reason.as_str(), "until_ms": time(until) })
        }
        Event::Settled {
            key,
            verdict,
            latency,
        } => {
            let verdict = verdict.map(|verdict| verdict.as_str());
            json!({ "key": key, "verdict": verdict, "latency_ms": millis(latency) })
        }
        Event::Abandoned { key } | Event::BreakerClosed { key } => json!({ "key": key }),
        Event::RateChanged { key, from, to, why } => {
            json!({ "key": key, "from": from, "to": to, "why": why.to_string() })
        }
        Event::HoldStarted { key, until, source } => {
            json!({ "key": key, "until_ms": time(Some(until)), "source": source.as_str() })
        }
        Event::BreakerOpened { key, until } => json!({ "key": key, "until_ms": time(until) }),
        Event::RetryScheduled {
            key,
            sent,
            delay,
            reason,
        } => {
            json!({ "key": key, "sent": sent, "delay_ms": millis(delay), "reason": reason.as_str() })
        }
        Event::Failed { key, sent, reason } => {
            json!({ "key": key, "sent": sent, "reason": reason.as_str() })
        }
        Event::Refreshed {
            credential,
            succeeded,
        } => json!({ "credential": credential, "succeeded": succeeded }),
        Event::EndpointPaused {
            pool,
            endpoint,
            until,
            errors,
        } => json!({
            "pool": pool,
            "endpoint": endpoint,
            "until_ms": time(Some(until)),
            "consecutive_errors": errors,
        }),
        Event::EndpointDisabled {
            pool,
            endpoint,
            why,
        } => json!({ "pool": pool, "endpoint": endpoint, "reason": disabled_word(why) }),
        Event::EndpointEnabled { pool, endpoint } => {
            json!({ "pool": pool, "endpoint": endpoint })
        }
        // A kind that is new to us still has its name.
        _ => json!({}),
    }
}
