//! From requests, operations and fetches that have ended to their spans.
//!
//! A request is a span of kind *server*, from its arrival to the end of the response. Each of its
//! attempts is a span of kind *client* below it, from sending to the head of the response. What it
//! waited for, with the reason, is an event of the request's span, and so is everything else of its
//! decision trail. Operations and URLs of fetches, which come from a queue, are spans of kind *consumer*.
//! They have no trail, so the wait before an attempt, and what was decided about the next one, are events
//! of its span.
//! Names of attributes are those of OpenTelemetry's conventions where there is one.

use std::time::Duration;

use http::Method;
use policy::classify;
use policy::item::{DelaySource, ResendReason};
use policy::outcome::{UpstreamResponse, Verdict};
use policy::time::{Timestamp, WallTime};
use tidegate::Clock;
use tidegate::call::{CallDecision, Trail, TrailStep};

use super::protobuf::Message;
use super::resource::{attribute, export};
use crate::observe::{
    Finished, FinishedAttempt, FinishedRequest, FinishedWork, StartTime, TraceContext,
};

/// From times of the clock to those of spans.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanTime {
    pub(super) now: Timestamp,
    wall: WallTime,
}

impl SpanTime {
    /// As both clocks are now.
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            now: clock.now(),
            wall: clock.wall(),
        }
    }

    /// Nanoseconds since 1970.
    pub(super) fn nanos(&self, at: Timestamp) -> u64 {
        let wall = nanos_since_1970(self.wall);
        let nanos = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        wall.saturating_sub(nanos(self.now.since(at)))
            .saturating_add(nanos(at.since(self.now)))
    }
}

fn nanos_since_1970(at: WallTime) -> u64 {
    let millis = u64::try_from(at.as_unix_millis()).unwrap_or(0);
    millis.saturating_mul(1_000_000)
}

/// An export of the spans of these.
pub(super) fn encode(batch: &[Finished], time: SpanTime, instance: &str) -> Vec<u8> {
    export(instance, |scope| {
        for finished in batch {
            match finished {
                Finished::Request(request) => request_spans(scope, request, time),
                Finished::Attempt(attempt) => {
                    scope.message(2, |span| work_attempt_span(span, attempt, time));
                }
                Finished::Work(work) => scope.message(2, |span| work_span(span, work, time)),
            }
        }
    })
}

fn request_spans(scope: &mut Message, request: &FinishedRequest, time: SpanTime) {
    let Some(trace) = request.trace else {
        return;
    };
    let method = request.method.as_ref().map_or("HTTP", Method::as_str);
    scope.message(2, |span| request_span(span, request, &trace, time));
    for attempt in attempts(&request.trail, request.attempts) {
        scope.message(2, |span| {
            attempt_span(span, method, &trace, &attempt, time);
        });
    }
}

const SERVER: u64 = 2;
const CLIENT: u64 = 3;
const CONSUMER: u64 = 5;
/// The field of a span's attributes.
const ATTRIBUTES: u32 = 9;
/// The status of a span that is an error.
const ERROR: u64 = 2;

fn request_span(
    span: &mut Message,
    request: &FinishedRequest,
    trace: &TraceContext,
    time: SpanTime,
) {
    let method = request.method.as_ref().map_or("HTTP", Method::as_str);
    place(span, trace);
    span.text(5, &format!("{method} {}", request.route));
    span.number(6, SERVER);
    span.fixed(7, time.nanos(request.started));
    span.fixed(8, time.nanos(request.ended));
    let texts = [
        ("http.request.method", Some(method)),
        ("url.path", Some(without_query(&request.path))),
        ("tidegate.route", Some(&*request.route)),
        ("tidegate.endpoint", request.endpoint.as_deref()),
        ("tidegate.client", request.client.as_deref()),
        ("tidegate.outcome", Some(request.outcome.as_str())),
        ("tidegate.request_id", Some(&*request.request_id)),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            attribute(span, ATTRIBUTES, name, text);
        }
    }
    let numbers = [
        ("http.response.status_code", request.status.into()),
        ("http.response.body.size", request.bytes),
        ("tidegate.attempts", request.attempts.into()),
        ("tidegate.wait_ms", millis(request.wait)),
    ];
    for (name, number) in numbers {
        attribute(span, ATTRIBUTES, name, number);
    }
    for step in request.trail.steps() {
        event(span, step, time);
    }
    // For a server only its own failures are errors; what a client did wrong is none.
    if request.status >= 500 || request.is_truncated {
        let reason = request.reason().unwrap_or(request.outcome.as_str());
        attribute(span, ATTRIBUTES, "error.type", reason);
        span.message(15, |status| status.number(3, ERROR));
    }
}

/// The ids of a span that attempts are below.
fn place(span: &mut Message, trace: &TraceContext) {
    span.bytes(1, &trace.trace_id.to_be_bytes());
    span.bytes(2, &trace.span_id.to_be_bytes());
    if let Some(parent) = trace.parent {
        span.bytes(4, &parent.to_be_bytes());
    }
}

/// Values of a query are redacted anyway, and its names say little.
fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// An attempt, as the trail shows it.
struct AttemptStep<'a> {
    number: u32,
    key: &'a str,
    ended: Timestamp,
    latency: Duration,
    response: UpstreamResponse,
    verdict: Option<Verdict>,
}

/// The attempts in a trail, with their numbers. If steps were left out of it, the last attempt is the
/// `sent`-th all the same.
fn attempts(trail: &Trail, sent: u32) -> Vec<AttemptStep<'_>> {
    let steps = trail.steps();
    let gap = match trail.left_out() {
        0 => steps.len(),
        _ => steps.len().saturating_sub(2),
    };
    let mut key = "";
    let mut found: Vec<AttemptStep<'_>> = Vec::new();
    for (step, index) in steps.iter().zip(0..) {
        match &step.decision {
            CallDecision::Admitted { key: admitted, .. } => key = admitted,
            CallDecision::Settled {
                response,
                verdict,
                latency,
            } => {
                let number = found.last().map_or(1, |last| last.number.saturating_add(1));
                found.push(AttemptStep {
                    number: if index >= gap { sent } else { number },
                    key,
                    ended: step.at,
                    latency: *latency,
                    response: *response,
                    verdict: *verdict,
                });
            }
            _ => {}
        }
    }
    found
}

fn attempt_span(
    span: &mut Message,
    method: &str,
    trace: &TraceContext,
    attempt: &AttemptStep<'_>,
    time: SpanTime,
) {
    let ended = time.nanos(attempt.ended);
    let latency = u64::try_from(attempt.latency.as_nanos()).unwrap_or(u64::MAX);
    span.bytes(1, &trace.trace_id.to_be_bytes());
    span.bytes(2, &trace.attempt(attempt.number).to_be_bytes());
    span.bytes(4, &trace.span_id.to_be_bytes());
    span.text(5, &format!("{method} {}", attempt.key));
    span.number(6, CLIENT);
    span.fixed(7, ended.saturating_sub(latency));
    span.fixed(8, ended);
    attribute(span, ATTRIBUTES, "http.request.method", method);
    attribute(span, ATTRIBUTES, "tidegate.key", attempt.key);
    let resent = u64::from(attempt.number).saturating_sub(1);
    attribute(span, ATTRIBUTES, "http.request.resend_count", resent);
    if let Some(verdict) = attempt.verdict {
        attribute(span, ATTRIBUTES, "tidegate.verdict", verdict.as_str());
    }
    let status = match attempt.response {
        UpstreamResponse::Status(status) => {
            let name = "http.response.status_code";
            attribute(span, ATTRIBUTES, name, u64::from(status));
            (status >= 400).then(|| status.to_string())
        }
        UpstreamResponse::Failed { failure, .. } => {
            Some(classify::failure(failure).because.to_string())
        }
    };
    if let Some(kind) = status {
        attribute(span, ATTRIBUTES, "error.type", kind.as_str());
        span.message(15, |status| status.number(3, ERROR));
    }
}

/// An attempt of work, with the wait before it and what was decided about the next one.
fn work_attempt_span(span: &mut Message, attempt: &FinishedAttempt, time: SpanTime) {
    let step = AttemptStep {
        number: attempt.number,
        key: &attempt.key,
        ended: attempt.ended,
        latency: attempt.latency,
        response: attempt.response,
        verdict: attempt.verdict,
    };
    attempt_span(span, &attempt.method, &attempt.trace, &step, time);
    let ended = time.nanos(attempt.ended);
    let latency = u64::try_from(attempt.latency.as_nanos()).unwrap_or(u64::MAX);
    span.message(11, |event| {
        event.fixed(1, ended.saturating_sub(latency));
        event.text(2, "admitted");
        attribute(event, EVENT_ATTRIBUTES, "tidegate.key", &*attempt.key);
        let waited = millis(attempt.waited);
        attribute(event, EVENT_ATTRIBUTES, "tidegate.wait_ms", waited);
    });
    if let Some(resend) = attempt.resend {
        span.message(11, |event| {
            event.fixed(1, ended);
            event.text(2, "retry_scheduled");
            resend_attributes(event, resend.reason, resend.source, resend.delay);
        });
    }
}

/// An operation or a URL.
fn work_span(span: &mut Message, work: &FinishedWork, time: SpanTime) {
    let started = match work.started {
        StartTime::Clock(at) => time.nanos(at),
        StartTime::Wall(at) => nanos_since_1970(at),
    };
    place(span, &work.trace);
    span.text(5, &work.name);
    span.number(6, CONSUMER);
    span.fixed(7, started);
    span.fixed(8, time.nanos(work.ended));
    for (name, text) in &work.texts {
        attribute(span, ATTRIBUTES, name, &**text);
    }
    for (name, number) in &work.numbers {
        attribute(span, ATTRIBUTES, name, *number);
    }
    if let Some(error) = work.error {
        attribute(span, ATTRIBUTES, "error.type", error);
        span.message(15, |status| status.number(3, ERROR));
    }
}

/// The field of an event's attributes.
const EVENT_ATTRIBUTES: u32 = 3;

/// An event of a request's span. Attempts are spans, so they are none.
fn event(span: &mut Message, step: &TrailStep, time: SpanTime) {
    let name = match &step.decision {
        CallDecision::Settled { .. } => return,
        CallDecision::Waiting { .. } => "waiting",
        CallDecision::Admitted { .. } => "admitted",
        CallDecision::Refused { .. } => "refused",
        CallDecision::Hedged { .. } => "hedged",
        CallDecision::Overtaken { .. } => "overtaken",
        CallDecision::Unsent => "unsent",
        CallDecision::Scheduled { .. } => "retry_scheduled",
        CallDecision::Refreshed { .. } => "refreshed",
        CallDecision::Over { .. } => "over",
    };
    span.message(11, |event| {
        event.fixed(1, time.nanos(step.at));
        event.text(2, name);
        let mut text = |name: &str, text: &str| attribute(event, EVENT_ATTRIBUTES, name, text);
        match &step.decision {
            CallDecision::Waiting { key, reason, .. }
            | CallDecision::Refused { key, reason, .. } => {
                text("tidegate.key", key);
                text("tidegate.reason", reason.as_str());
            }
            CallDecision::Hedged { key, .. } | CallDecision::Overtaken { key, .. } => {
                text("tidegate.key", key);
            }
            CallDecision::Admitted { key, waited } => {
                text("tidegate.key", key);
                let waited = millis(*waited);
                attribute(event, EVENT_ATTRIBUTES, "tidegate.wait_ms", waited);
            }
            CallDecision::Scheduled {
                delay,
                source,
                reason,
                ..
            } => resend_attributes(event, *reason, *source, *delay),
            CallDecision::Refreshed { succeeded } => {
                text(
                    "tidegate.succeeded",
                    if *succeeded { "true" } else { "false" },
                );
            }
            CallDecision::Over { reason } => text("tidegate.reason", reason.as_str()),
            CallDecision::Settled { .. } | CallDecision::Unsent => {}
        }
    });
}

fn resend_attributes(
    event: &mut Message,
    reason: ResendReason,
    source: DelaySource,
    delay: Duration,
) {
    attribute(event, EVENT_ATTRIBUTES, "tidegate.reason", reason.as_str());
    attribute(event, EVENT_ATTRIBUTES, "tidegate.source", source.as_str());
    attribute(event, EVENT_ATTRIBUTES, "tidegate.delay_ms", millis(delay));
}

/// In whole milliseconds, rounded up as every wait.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
