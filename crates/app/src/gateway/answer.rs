//! The end of a request: the upstream's answer passed on, or one of our own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use policy::gate::Reason;
use policy::item::TerminalReason;
use policy::time::Timestamp;
use tidegate::call::{CallDecision as Step, Trail, TrailStep};
use tidegate::{CallError, Called, RefusalReason};

use super::body::ServedBody;
use super::handle::{Got, What};
use super::headers;
use super::problem::Own;
use super::routes::Route;
use super::trails::{RequestId, RequestTrail};
use super::worker::Worker;
use crate::log::{ItemId, Level, RequestEnd, Retry};
use crate::metrics::{Metrics, RequestOutcome};
use crate::state::UpstreamEndpoint;
use crate::upstream::{BodyTrouble, Kept, Trouble};

/// What is needed to end a request.
pub(super) struct Finish<'a> {
    worker: &'a Worker,
    id: RequestId,
    method: Method,
    came_at: Timestamp,
    trace_id: Option<Box<str>>,
    /// How often it was sent so far.
    sent: AtomicU32,
    pub(super) route: Option<Arc<Route>>,
    has_ended: bool,
}

/// What is known of a request's way.
struct Way {
    sent: u32,
    trail: Trail,
}

/// Ends a request with what its call came to.
pub(super) fn finish(
    ended: Result<Called<Got>, CallError<Got>>,
    body: &Kept,
    mut finish: Finish<'_>,
) -> Response<ServedBody> {
    let (got, reason, way, in_flight) = match ended {
        Ok(Called {
            value,
            sent,
            trail,
            in_flight,
        }) => (Some(value), None, Way { sent, trail }, in_flight),
        Err(CallError {
            reason,
            last,
            sent,
            trail,
            in_flight,
        }) => (last, Some(reason), Way { sent, trail }, in_flight),
    };
    match got {
        Some(Got {
            endpoint,
            what: What::Answer(answer),
        }) => {
            let answer = answer.map(|body| ServedBody::Passed(body, in_flight));
            finish.pass(answer, endpoint.data(), endpoint.name(), reason, way)
        }
        got => {
            let own = own_answer(got.as_ref(), reason, body, &way.trail, finish.now());
            let endpoint = got.as_ref().map(|got| got.endpoint.data().name.clone());
            finish.own_after(&own, endpoint, way)
        }
    }
}

/// Which answer of ours it is.
fn own_answer(
    got: Option<&Got>,
    reason: Option<TerminalReason>,
    body: &Kept,
    trail: &Trail,
    now: Timestamp,
) -> Own {
    let failed = got.and_then(|got| match &got.what {
        What::Failed(error) => Some(error),
        What::Answer(_) | What::PathTooLong => None,
    });
    if matches!(got.map(|got| &got.what), Some(What::PathTooLong)) {
        return Own::HeadersTooLarge;
    }
    if let Some(error) = failed {
        match error.trouble {
            Trouble::NotAllowed { .. } => return Own::AddressNotAllowed,
            Trouble::NoDescriptors => return Own::NoDescriptors,
            Trouble::Body => return body.trouble().map_or(Own::BodyIncomplete, Own::from),
            Trouble::Failed { .. } => {}
        }
    }
    // What kept it last says more than what failed before that.
    match refusal(trail, now) {
        Some(own) => own,
        None => match failed {
            Some(error) => Own::Unreachable(error.what.clone()),
            None if reason == Some(TerminalReason::Disabled) => Own::NoEndpoint { wait: None },
            None => Own::Deadline,
        },
    }
}

/// The response to bytes that hyper refused with `status`: as it is sent, and the last on its
/// connection. `replaced` is hyper's own response.
pub(super) fn refuse_unparsed(worker: &Worker, status: StatusCode, replaced: &[u8]) -> Bytes {
    let own = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => {
            Own::HeadersTooLarge
        }
        _ => Own::BadRequest,
    };
    worker.front.no_route().request(own.outcome());
    let id = worker.name_request();
    let mut response = own.answer(id);
    mark(response.headers_mut(), id, 0, Duration::ZERO, None);
    let mut bytes = format!("HTTP/1.1 {}\r\n", own.status()).into_bytes();
    for (name, value) in response.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    let mut lines = replaced.split_inclusive(|byte| *byte == b'\n');
    bytes.extend_from_slice(lines.find(|line| line.starts_with(b"date:")).unwrap_or(b""));
    let body = response.into_body().into_made();
    let length = format!(
        "content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    bytes.extend_from_slice(length.as_bytes());
    bytes.extend_from_slice(&body);
    bytes.into()
}

/// Puts on what every response carries.
fn mark(
    headers: &mut HeaderMap,
    id: RequestId,
    sent: u32,
    waited: Duration,
    endpoint: Option<HeaderValue>,
) {
    let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    headers.insert(REQUEST_ID, id_value(id));
    headers.insert(ATTEMPTS, number(sent.into()));
    headers.insert(WAIT_MS, number(waited));
    headers.insert(ENDPOINT, endpoint.unwrap_or(NOBODY));
}

impl From<BodyTrouble> for Own {
    fn from(trouble: BodyTrouble) -> Self {
        match trouble {
            BodyTrouble::TooLarge => Self::BodyTooLarge,
            BodyTrouble::Slow | BodyTrouble::Broken | BodyTrouble::Replaced => Self::BodyIncomplete,
        }
    }
}

/// What the gate or pool said that did not let it out, if that was the last word.
fn refusal(trail: &Trail, now: Timestamp) -> Option<Own> {
    let last = trail.steps().iter().rev();
    let mut last = last.filter(|step| !matches!(step.decision, Step::Over { .. }));
    let Step::Refused { reason, until, .. } = &last.next()?.decision else {
        return None;
    };
    // What failed before says more than that there is no retry for it.
    if *reason == RefusalReason::Gate(Reason::RetryBudget) {
        return None;
    }
    let wait: Option<Duration> = until.map(|until| until.since(now));
    Some(match *reason {
        RefusalReason::NoEndpoint => Own::NoEndpoint { wait: None },
        RefusalReason::Paused => Own::NoEndpoint { wait },
        RefusalReason::Gate(reason) => match reason {
            Reason::QueueFull => Own::QueueFull { wait },
            Reason::BreakerOpen => Own::BreakerOpen { wait },
            Reason::TooManyGates => Own::TooManyGates,
            Reason::InFlight => Own::InFlight,
            Reason::Rate | Reason::Hold | Reason::Deadline | Reason::RetryBudget => match wait {
                Some(_) => Own::WaitTooLong { wait },
                None => Own::Deadline,
            },
        },
    })
}

impl<'a> Finish<'a> {
    pub(super) fn new<B>(worker: &'a Worker, id: RequestId, request: &Request<B>) -> Self {
        Self {
            worker,
            id,
            method: request.method().clone(),
            came_at: worker.front.state.limiter().clock().now(),
            trace_id: trace_id(request.headers()),
            sent: AtomicU32::new(0),
            route: None,
            has_ended: false,
        }
    }

    /// Writes down that it will be sent again, with whose it is.
    pub(super) fn tell(&self, step: &TrailStep) {
        if matches!(step.decision, Step::Answered { .. }) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        let Step::Scheduled { delay, reason, .. } = &step.decision else {
            return;
        };
        let log = self.worker.front.state.log();
        if !log.has(Level::INFO) {
            return;
        }
        let route = self.route.as_ref();
        log.retry_scheduled(&Retry {
            item: ItemId::Request(&self.id.to_string()),
            key: route.map_or("", |route| route.pool.name()),
            attempt: self.sent.load(Ordering::Relaxed),
            delay: *delay,
            reason: *reason,
            trace_id: &self.trace(),
        });
    }

    /// The trace it belongs to, or one of its own.
    fn trace(&self) -> String {
        match &self.trace_id {
            Some(id) => id.to_string(),
            None => format!("{:0>32}", self.id.to_string()),
        }
    }

    fn now(&self) -> Timestamp {
        self.worker.front.state.limiter().clock().now()
    }

    /// An answer of our own, to a request that was never sent.
    pub(super) fn own(mut self, own: &Own) -> Response<ServedBody> {
        let way = Way {
            sent: 0,
            trail: Trail::default(),
        };
        self.own_after(own, None, way)
    }

    /// The response to a browser that asks whether a page may send a request.
    pub(super) fn preflight(mut self, headers: HeaderMap) -> Response<ServedBody> {
        let mut response = Response::new(ServedBody::Made(None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        *response.headers_mut() = headers;
        mark(response.headers_mut(), self.id, 0, Duration::ZERO, None);
        let way = Way {
            sent: 0,
            trail: Trail::default(),
        };
        self.keep(response.status(), None, RequestOutcome::Success, way);
        response
    }

    fn own_after(
        &mut self,
        own: &Own,
        endpoint: Option<HeaderValue>,
        way: Way,
    ) -> Response<ServedBody> {
        let mut answer = own.answer(self.id);
        mark(
            answer.headers_mut(),
            self.id,
            way.sent,
            way.trail.waited(),
            endpoint,
        );
        self.keep(answer.status(), None, own.outcome(), way);
        answer
    }

    /// The upstream's answer, unchanged but for what we add.
    fn pass(
        &mut self,
        mut answer: Response<ServedBody>,
        remote: &UpstreamEndpoint,
        endpoint: &str,
        reason: Option<TerminalReason>,
        way: Way,
    ) -> Response<ServedBody> {
        headers::clean_answer(answer.headers_mut());
        *answer.version_mut() = http::Version::HTTP_11;
        let endpoint_name = Some(remote.name.clone());
        mark(
            answer.headers_mut(),
            self.id,
            way.sent,
            way.trail.waited(),
            endpoint_name,
        );
        let outcome = reason.map_or(RequestOutcome::Success, RequestOutcome::from);
        self.keep(answer.status(), Some(endpoint), outcome, way);
        answer
    }

    fn count(&self, route: Option<&Route>, status: StatusCode, outcome: RequestOutcome, way: &Way) {
        let state = &self.worker.front.state;
        match route {
            Some(route) => route.metrics.request(outcome),
            None => self.worker.front.no_route().request(outcome),
        }
        let succeeded = outcome == RequestOutcome::Success;
        state.core().metrics().call(&way.trail, way.sent, succeeded);
        let log = state.log();
        let route = route.map_or(Metrics::NO_ROUTE, |route| route.pool.name());
        let last = way.trail.steps().last().map(|step| &step.decision);
        let reason = TerminalReason::Exhausted;
        if last == Some(&Step::Over { reason }) {
            log.request_exhausted(&self.id.to_string(), route, way.sent, &self.trace());
        }
        if log.has(Level::DEBUG) {
            log.request(&RequestEnd {
                request_id: &self.id.to_string(),
                route,
                status: status.as_u16(),
                outcome,
                attempts: way.sent,
                wait: way.trail.waited(),
                latency: self.now().since(self.came_at),
                trace_id: &self.trace(),
            });
        }
    }

    fn keep(
        &mut self,
        status: StatusCode,
        endpoint: Option<&str>,
        outcome: RequestOutcome,
        way: Way,
    ) {
        self.has_ended = true;
        let route = self.route.take();
        self.count(route.as_deref(), status, outcome, &way);
        let trail = RequestTrail {
            id: self.id,
            at: self.came_at,
            route: route.as_ref().map_or("", |route| route.pool.name()).into(),
            method: self.method.clone(),
            status: status.as_u16(),
            endpoint: endpoint.map(Into::into),
            outcome,
            sent: way.sent,
            decisions: way.trail,
        };
        self.worker.front.trails().record(trail);
    }
}

impl Drop for Finish<'_> {
    /// A request that is dropped before its end is one whose caller has gone.
    fn drop(&mut self) {
        if !self.has_ended {
            let way = Way {
                sent: self.sent.load(Ordering::Relaxed),
                trail: Trail::default(),
            };
            self.keep(GONE, None, RequestOutcome::Cancelled, way);
        }
    }
}

/// Nobody gets this status: it is what logs of other servers say in its place, too.
const GONE: StatusCode = match StatusCode::from_u16(499) {
    Ok(status) => status,
    Err(_) => StatusCode::BAD_REQUEST,
};

/// The trace that a caller says its request belongs to.
fn trace_id(headers: &HeaderMap) -> Option<Box<str>> {
    let parent = headers.get("traceparent")?.to_str().ok()?;
    let id = parent.split('-').nth(1)?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.into())
}

const REQUEST_ID: HeaderName = HeaderName::from_static("tidegate-request-id");
const ATTEMPTS: HeaderName = HeaderName::from_static("tidegate-attempts");
const WAIT_MS: HeaderName = HeaderName::from_static("tidegate-wait-ms");
const ENDPOINT: HeaderName = HeaderName::from_static("tidegate-endpoint");
/// In place of an endpoint, for who was sent to none.
const NOBODY: HeaderValue = HeaderValue::from_static("-");

/// Most numbers are one of these.
fn number(number: u64) -> HeaderValue {
    match number {
        0 => HeaderValue::from_static("0"),
        1 => HeaderValue::from_static("1"),
        number => HeaderValue::from(number),
    }
}

fn id_value(id: RequestId) -> HeaderValue {
    HeaderValue::from_bytes(&id.digits()).expect("an id is made of digits")
}
