//! Responds to a request: passes the upstream's response on, or makes one of the gateway's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body;
use policy::gate::Reason;
use policy::item::{ItemKind, TerminalReason};
use policy::time::Timestamp;
use tidegate::call::{CallDecision, Trail, TrailStep};
use tidegate::{CallError, CallResult, InFlight, RefusalReason};

use super::body::ServedBody;
use super::error::GatewayError;
use super::handle::EndpointResponse;
use super::headers;
use super::observed::{self, ObservedBody, ObservedRequest, RequestSummary};
use super::request::RareHeaders;
use super::routes::{RouteLabel, Routes};
use super::trails::{RequestId, RequestTrail};
use super::tunnel::TunnelResponse;
use super::worker::Worker;
use crate::exchange::{
    ReplayableBody, RequestBodyError, SendError, SendErrorKind, StreamWait, Tunnel,
};
use crate::http1::{self, HeadLines, Refusal, put_header, put_number_header};
use crate::log::{ItemId, Level, RequestEnd, Retry};
use crate::metrics::{Metrics, RequestOutcome};
use crate::observe::{FinishedRequest, TraceContext, TraceParent};

/// Responds to one request, and records how it ended: in metrics, the log and its trail.
pub(super) struct Responder<'a> {
    worker: &'a Worker,
    id: RequestId,
    method: Method,
    started: Timestamp,
    trace_parent: Option<Box<TraceParent>>,
    /// What is noted of it, if anything is recorded.
    observed: Option<Box<ObservedRequest>>,
    /// How often it was sent so far.
    sent: AtomicU32,
    /// How long it waited besides its call: for its credential, and for streams of HTTP/2.
    pub(super) waited_outside: Duration,
    pub(super) route: Option<Arc<RouteLabel>>,
    is_recorded: bool,
}

/// What is known of a request's call when it ends.
#[derive(Default)]
struct CallSummary {
    sent: u32,
    /// How long it waited besides what the trail says.
    waited: Duration,
    trail: Trail,
}

impl CallSummary {
    fn waited(&self) -> Duration {
        self.waited.saturating_add(self.trail.waited())
    }
}

/// What a request was sent to, as its response and its trail name it.
pub(super) trait SentTo {
    /// Its name as a header's value.
    fn header_value(&self) -> HeaderValue;
    /// Its name.
    fn shared_name(&self) -> Arc<str>;
}

/// The end of a call, taken apart.
struct EndedCall<T> {
    last: Option<T>,
    /// `None`: it succeeded.
    reason: Option<TerminalReason>,
    summary: CallSummary,
    in_flight: Option<InFlight>,
}

/// The error of a call that ended without a response to pass on. `failed`: its last attempt.
fn call_error(
    failed: Option<&SendError>,
    reason: Option<TerminalReason>,
    body_error: Option<RequestBodyError>,
    trail: &Trail,
    now: Timestamp,
) -> GatewayError {
    if let Some(error) = failed {
        match error.kind {
            SendErrorKind::NotAllowed { .. } => return GatewayError::AddressNotAllowed,
            SendErrorKind::NoDescriptors => return GatewayError::NoDescriptors,
            SendErrorKind::NoStream => return GatewayError::InFlight,
            SendErrorKind::RequestBody => {
                let error = body_error.map(GatewayError::from);
                return error.unwrap_or(GatewayError::BodyIncomplete);
            }
            SendErrorKind::Failed { .. } => {}
        }
    }
    // The last refusal says more than the failure before it.
    match refusal(trail, now) {
        Some(error) => error,
        None => match failed {
            Some(error) => GatewayError::Unreachable(error.message.clone()),
            None if reason == Some(TerminalReason::Disabled) => {
                GatewayError::NoEndpoint { wait: None }
            }
            None => GatewayError::Deadline,
        },
    }
}

/// A response, and what every response says of its request.
pub(super) type MarkedResponse = http1::MarkedResponse<ServedBody, ResponseMark>;

/// What every response says of its request. Over HTTP/1 it is written as it is: in a map of headers it
/// would be hashed four times, to be written once.
pub(super) struct ResponseMark {
    id: RequestId,
    attempts: u32,
    waited: Duration,
    endpoint: Option<HeaderValue>,
}

impl ResponseMark {
    fn new(id: RequestId, summary: &CallSummary, endpoint: Option<HeaderValue>) -> Self {
        Self {
            id,
            attempts: summary.sent,
            waited: summary.waited(),
            endpoint,
        }
    }

    fn waited_ms(&self) -> u64 {
        u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds it to a map of headers.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        headers.insert(REQUEST_ID, id_value(self.id));
        headers.insert(ATTEMPTS, self.attempts.into());
        headers.insert(WAIT_MS, self.waited_ms().into());
        headers.insert(ENDPOINT, self.endpoint.unwrap_or(NO_ENDPOINT));
    }
}

impl HeadLines for ResponseMark {
    fn put(&self, text: &mut Vec<u8>) {
        put_header(text, &REQUEST_ID, &self.id.digits());
        put_number_header(text, &ATTEMPTS, self.attempts.into());
        put_number_header(text, &WAIT_MS, self.waited_ms());
        let endpoint = self.endpoint.as_ref().map(HeaderValue::as_bytes);
        put_header(text, &ENDPOINT, endpoint.unwrap_or(NO_ENDPOINT.as_bytes()));
    }
}

/// The response to bytes that are no request. It is the last on its connection.
pub(super) fn refuse_unparsed(worker: &Worker, refusal: Refusal) -> MarkedResponse {
    refuse_connection(
        worker,
        match refusal {
            Refusal::Malformed => &GatewayError::BadRequest,
            Refusal::TooLarge => &GatewayError::HeadersTooLarge,
        },
    )
}

/// The response to a client that speaks plain HTTP where TLS is spoken.
pub(super) fn refuse_plain_text(worker: &Worker) -> Vec<u8> {
    let MarkedResponse { response, mark } = refuse_connection(worker, &GatewayError::NotTls);
    let (head, body) = response.into_parts();
    let now = worker.state().clock().wall();
    http1::response_bytes(&head, &mark, &body.into_made(), now)
}

fn refuse_connection(worker: &Worker, error: &GatewayError) -> MarkedResponse {
    let outcome = error.outcome();
    worker.shared.no_route().request(outcome);
    let id = worker.new_request_id();
    let response = error.response(id);
    let (core, status) = (worker.shared.state.core(), error.status().as_u16());
    let length = response.body().size_hint().lower();
    observed::record_unparsed(core, id, status, outcome, length);
    MarkedResponse {
        response,
        mark: ResponseMark::new(id, &CallSummary::default(), None),
    }
}

impl From<RequestBodyError> for GatewayError {
    fn from(error: RequestBodyError) -> Self {
        match error {
            RequestBodyError::TooLarge => Self::BodyTooLarge,
            RequestBodyError::Malformed => Self::BadRequest,
            RequestBodyError::Slow | RequestBodyError::Broken | RequestBodyError::Replaced => {
                Self::BodyIncomplete
            }
        }
    }
}

/// Why the gate or the pool refused it, if that was the last decision.
fn refusal(trail: &Trail, now: Timestamp) -> Option<GatewayError> {
    let last = trail.steps().iter().rev();
    let mut last = last.filter(|step| !matches!(step.decision, CallDecision::Over { .. }));
    let CallDecision::Refused { reason, until, .. } = &last.next()?.decision else {
        return None;
    };
    // The failure that it would be retried for says more.
    if *reason == RefusalReason::Gate(Reason::RetryBudget) {
        return None;
    }
    let wait: Option<Duration> = until.map(|until| until.since(now));
    Some(match *reason {
        RefusalReason::NoEndpoint => GatewayError::NoEndpoint { wait: None },
        // Without an end, an endpoint recovers: it takes one request at a time.
        RefusalReason::Paused => match wait {
            Some(_) => GatewayError::NoEndpoint { wait },
            None => GatewayError::InFlight,
        },
        RefusalReason::Gate(reason) => match reason {
            Reason::QueueFull => GatewayError::QueueFull { wait },
            Reason::BreakerOpen => GatewayError::BreakerOpen { wait },
            Reason::TooManyGates => GatewayError::TooManyGates,
            Reason::InFlight => GatewayError::InFlight,
            Reason::Rate | Reason::Hold | Reason::Deadline | Reason::RetryBudget => match wait {
                Some(_) => GatewayError::WaitTooLong { wait },
                None => GatewayError::Deadline,
            },
        },
    })
}

impl<'a> Responder<'a> {
    pub(super) fn new<B>(
        worker: &'a Worker,
        routes: &Routes,
        request: &Request<B>,
        rare: RareHeaders,
    ) -> Self {
        let id = worker.new_request_id();
        let trace_parent = match rare.trace {
            true => TraceParent::read(request.headers()).map(Box::new),
            false => None,
        };
        let core = worker.shared.state.core();
        Self {
            worker,
            id,
            method: request.method().clone(),
            started: worker.shared.state.limiter().clock().now(),
            observed: ObservedRequest::new(core, routes, request, id, trace_parent.as_deref()),
            trace_parent,
            sent: AtomicU32::new(0),
            waited_outside: Duration::ZERO,
            route: None,
            is_recorded: false,
        }
    }

    /// The place of the request in its trace, if traces are exported.
    pub(super) fn trace_context(&self) -> Option<TraceContext> {
        self.observed.as_ref().and_then(|observed| observed.trace)
    }

    /// How long its attempts may wait for streams, if it may wait as this kind of item says.
    pub(super) fn stream_wait(&self, kind: &ItemKind) -> StreamWait<'a> {
        let longest = kind.expires_after.unwrap_or(Duration::MAX);
        let clock = self.worker.shared.state.clock();
        StreamWait::until(clock, self.started + longest)
    }

    /// Counts sends, and logs that the request will be sent again.
    pub(super) fn watch(&self, step: &TrailStep) {
        if matches!(step.decision, CallDecision::Settled { .. }) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        let CallDecision::Scheduled { delay, reason, .. } = &step.decision else {
            return;
        };
        let log = self.worker.shared.state.log();
        if !log.has(Level::INFO) {
            return;
        }
        let route = self.route.as_ref();
        log.retry_scheduled(&Retry {
            item: ItemId::Request(&self.id.to_string()),
            key: route.map_or("", |route| &route.key),
            attempt: self.sent.load(Ordering::Relaxed),
            delay: *delay,
            reason: *reason,
            trace_id: &self.trace(),
        });
    }

    /// Responds with what the call came to: the upstream's response, or an error. With `counted`, the
    /// usage that the body names corrects the request's cost.
    pub(super) fn respond<E: SentTo>(
        mut self,
        ended: Result<CallResult<EndpointResponse<E>>, CallError<EndpointResponse<E>>>,
        body: &ReplayableBody,
        counted: bool,
    ) -> MarkedResponse {
        let ended = self.take_apart(ended);
        let (reason, summary) = (ended.reason, ended.summary);
        match ended.last {
            Some(EndpointResponse {
                endpoint,
                result: Some(Ok(response)),
            }) => {
                // A compressed body tells nothing.
                let counted = counted && !response.headers().contains_key(CONTENT_ENCODING);
                let in_flight = ended.in_flight;
                let response = (*response).map(|body| ServedBody::passed(body, in_flight, counted));
                self.pass(response, &endpoint, reason, summary)
            }
            last => {
                let failed = last.as_ref().map(|last| &last.result);
                let error = match failed {
                    Some(None) => GatewayError::HeadersTooLarge,
                    failed => {
                        let failed = failed.and_then(|failed| failed.as_ref()?.as_ref().err());
                        call_error(failed, reason, body.error(), &summary.trail, self.now())
                    }
                };
                let endpoint = last.map(|last| last.endpoint.header_value());
                self.refuse_after(&error, endpoint, summary)
            }
        }
    }

    /// Responds to a `CONNECT`. Returns the tunnel too, if it is open.
    pub(super) fn respond_to_connect(
        mut self,
        ended: Result<CallResult<TunnelResponse>, CallError<TunnelResponse>>,
    ) -> (MarkedResponse, Option<(Tunnel, Option<InFlight>)>) {
        let ended = self.take_apart(ended);
        let (reason, summary) = (ended.reason, ended.summary);
        match ended.last {
            Some(TunnelResponse {
                host,
                result: Ok(tunnel),
            }) => {
                let response = Response::new(ServedBody::Made(None));
                let mark = ResponseMark::new(self.id, &summary, Some(host.header_value()));
                let (outcome, name) = (RequestOutcome::Success, Some(host.shared_name()));
                let response = self.record(response, name, outcome, summary);
                let response = MarkedResponse { response, mark };
                (response, Some((tunnel, ended.in_flight)))
            }
            last => {
                let failed = last.as_ref().and_then(|last| last.result.as_ref().err());
                let error = call_error(failed, reason, None, &summary.trail, self.now());
                let name = last.map(|last| last.host.header_value());
                (self.refuse_after(&error, name, summary), None)
            }
        }
    }

    fn take_apart<T>(&self, ended: Result<CallResult<T>, CallError<T>>) -> EndedCall<T> {
        let (last, reason, sent, trail, in_flight) = match ended {
            Ok(CallResult {
                value,
                sent,
                trail,
                in_flight,
                ..
            }) => (Some(value), None, sent, trail, in_flight),
            Err(CallError {
                reason,
                last,
                sent,
                trail,
                in_flight,
                ..
            }) => (last, Some(reason), sent, trail, in_flight),
        };
        let summary = CallSummary {
            sent,
            waited: self.waited_outside,
            trail,
        };
        EndedCall {
            last,
            reason,
            summary,
            in_flight,
        }
    }

    /// Responds with an error to a request that was never sent.
    pub(super) fn refuse(mut self, error: &GatewayError) -> MarkedResponse {
        self.refuse_after(error, None, CallSummary::default())
    }

    /// The same to one that has waited since it came.
    pub(super) fn refuse_waiting(mut self, error: &GatewayError) -> MarkedResponse {
        let summary = CallSummary {
            waited: self.now().since(self.started),
            ..CallSummary::default()
        };
        self.refuse_after(error, None, summary)
    }

    /// Responds to a browser that asks whether a page may send a request.
    pub(super) fn allow_preflight(self, headers: HeaderMap) -> MarkedResponse {
        let mut response = Response::new(ServedBody::Made(None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        *response.headers_mut() = headers;
        self.respond_with(response, RequestOutcome::Success)
    }

    /// Responds with what was made here, without a call.
    pub(super) fn respond_with(
        mut self,
        response: Response<ServedBody>,
        outcome: RequestOutcome,
    ) -> MarkedResponse {
        let summary = CallSummary::default();
        let mark = ResponseMark::new(self.id, &summary, None);
        let response = self.record(response, None, outcome, summary);
        MarkedResponse { response, mark }
    }

    fn refuse_after(
        &mut self,
        error: &GatewayError,
        endpoint: Option<HeaderValue>,
        summary: CallSummary,
    ) -> MarkedResponse {
        if *error == GatewayError::NoDescriptors {
            self.worker.shared.log_no_descriptors();
        }
        let mark = ResponseMark::new(self.id, &summary, endpoint);
        let response = self.record(error.response(self.id), None, error.outcome(), summary);
        MarkedResponse { response, mark }
    }

    /// Passes the upstream's response on, unchanged but for the headers of a connection and ours.
    fn pass(
        &mut self,
        mut response: Response<ServedBody>,
        endpoint: &impl SentTo,
        reason: Option<TerminalReason>,
        summary: CallSummary,
    ) -> MarkedResponse {
        *response.version_mut() = http::Version::HTTP_11;
        headers::clean_response(response.headers_mut());
        let mark = ResponseMark::new(self.id, &summary, Some(endpoint.header_value()));
        let outcome = reason.map_or(RequestOutcome::Success, RequestOutcome::from);
        let name = Some(endpoint.shared_name());
        let response = self.record(response, name, outcome, summary);
        MarkedResponse { response, mark }
    }

    /// The trace it belongs to, or one of its own.
    fn trace_id(&self) -> u128 {
        let parent = self.trace_parent.as_ref();
        parent.map_or_else(|| self.id.bits(), |parent| parent.trace_id)
    }

    fn trace(&self) -> String {
        format!("{:032x}", self.trace_id())
    }

    fn now(&self) -> Timestamp {
        self.worker.shared.state.limiter().clock().now()
    }

    fn count(
        &self,
        route: Option<&RouteLabel>,
        status: StatusCode,
        outcome: RequestOutcome,
        summary: &CallSummary,
    ) {
        let state = &self.worker.shared.state;
        match route {
            Some(route) => route.metrics.request(outcome),
            None => self.worker.shared.no_route().request(outcome),
        }
        let succeeded = outcome == RequestOutcome::Success;
        state
            .core()
            .metrics()
            .call(&summary.trail, summary.sent, succeeded);
        let log = state.log();
        let route = route.map_or(Metrics::NO_ROUTE, |route| &route.name);
        let last = summary.trail.steps().last().map(|step| &step.decision);
        let reason = TerminalReason::Exhausted;
        if last == Some(&CallDecision::Over { reason }) {
            log.request_exhausted(&self.id.to_string(), route, summary.sent, &self.trace());
        }
        if log.has(Level::DEBUG) {
            log.request(&RequestEnd {
                request_id: &self.id.to_string(),
                route,
                status: status.as_u16(),
                outcome,
                attempts: summary.sent,
                wait: summary.waited(),
                latency: self.now().since(self.started),
                trace_id: &self.trace(),
            });
        }
    }

    /// Records how the request ended. If it is observed, the rest is recorded with the end of the
    /// response's body.
    fn record(
        &mut self,
        response: Response<ServedBody>,
        endpoint: Option<Arc<str>>,
        outcome: RequestOutcome,
        summary: CallSummary,
    ) -> Response<ServedBody> {
        let status = response.status();
        match self.record_head(status, endpoint, outcome, summary) {
            None => response,
            Some(request) => {
                let observers = self.worker.shared.state.core().observers();
                response.map(|body| {
                    let body = ObservedBody::new(body, request, observers);
                    ServedBody::Observed(Box::new(body))
                })
            }
        }
    }

    fn record_head(
        &mut self,
        status: StatusCode,
        endpoint: Option<Arc<str>>,
        outcome: RequestOutcome,
        summary: CallSummary,
    ) -> Option<FinishedRequest> {
        self.is_recorded = true;
        let route = self.route.take();
        self.count(route.as_deref(), status, outcome, &summary);
        let finished = self.observed.take().map(|observed| {
            let route = route.as_ref().map(|route| Arc::clone(&route.name));
            observed.finish(RequestSummary {
                id: self.id,
                trace_id: self.trace_id(),
                started: self.started,
                method: self.method.clone(),
                route: route.unwrap_or_else(|| Metrics::NO_ROUTE.into()),
                endpoint: endpoint.clone(),
                status: status.as_u16(),
                attempts: summary.sent,
                wait: summary.waited(),
                outcome,
                trail: summary.trail.clone(),
            })
        });
        let trail = RequestTrail {
            id: self.id,
            at: self.started,
            route: route.map_or_else(Arc::default, |route| Arc::clone(&route.name)),
            method: self.method.clone(),
            status: status.as_u16(),
            endpoint,
            outcome,
            sent: summary.sent,
            decisions: summary.trail,
        };
        self.worker.shared.trails().record(trail);
        finished
    }
}

impl Drop for Responder<'_> {
    /// A request that is dropped before its response is one whose client has disconnected.
    fn drop(&mut self) {
        if !self.is_recorded {
            let summary = CallSummary {
                sent: self.sent.load(Ordering::Relaxed),
                ..CallSummary::default()
            };
            let outcome = RequestOutcome::Cancelled;
            if let Some(request) = self.record_head(CLIENT_CLOSED, None, outcome, summary) {
                let observers = self.worker.shared.state.core().observers();
                let ended = self.now();
                observers.finish(FinishedRequest { ended, ..request });
            }
        }
    }
}

/// Never sent: the status that other servers log for it, too.
const CLIENT_CLOSED: StatusCode = match StatusCode::from_u16(499) {
    Ok(status) => status,
    Err(_) => StatusCode::BAD_REQUEST,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("tidegate-request-id");
const ATTEMPTS: HeaderName = HeaderName::from_static("tidegate-attempts");
const WAIT_MS: HeaderName = HeaderName::from_static("tidegate-wait-ms");
const ENDPOINT: HeaderName = HeaderName::from_static("tidegate-endpoint");
/// In place of an endpoint, for requests that were sent to none.
const NO_ENDPOINT: HeaderValue = HeaderValue::from_static("-");

fn id_value(id: RequestId) -> HeaderValue {
    HeaderValue::from_bytes(&id.digits()).expect("an id is made of digits")
}
