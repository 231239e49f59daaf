//! What access log and traces need of a request: noted when it begins, completed when its response is
//! made, and handed over when the body of the response has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Version};
use hyper::body::{Body, Frame};
use policy::time::Timestamp;
use tidegate::call::{CallDecision, Trail};

use super::body::ServedBody;
use super::routes::Routes;
use super::trails::RequestId;
use crate::core::Core;
use crate::exchange::BodyError;
use crate::metrics::{Metrics, RequestOutcome};
use crate::observe::{FinishedRequest, Observers, TraceContext, TraceParent};
use crate::redact;

/// What is noted when a request begins, if anything is recorded of requests.
#[derive(Debug)]
pub(super) struct ObservedRequest {
    client: Option<Box<str>>,
    path: Box<str>,
    version: Version,
    pub(super) trace: Option<TraceContext>,
}

impl ObservedRequest {
    /// `None` if nothing is recorded.
    pub(super) fn new<B>(
        core: &Core,
        routes: &Routes,
        request: &Request<B>,
        id: RequestId,
        parent: Option<&TraceParent>,
    ) -> Option<Box<Self>> {
        let observers = core.observers();
        if !observers.is_on() {
            return None;
        }
        let uri = request.uri();
        let path = match (request.method(), uri.authority()) {
            (&Method::CONNECT, Some(authority)) => authority.as_str(),
            _ => uri.path_and_query().map_or("/", |path| path.as_str()),
        };
        let path = redact::Url::new(path);
        let client = routes.guard().known_client(request.headers());
        let trace = |sample| TraceContext::new(id.bits(), parent.copied(), sample);
        Some(Box::new(Self {
            client: client.map(Into::into),
            path: path.to_string().into(),
            version: request.version(),
            trace: observers.spans().map(|spans| trace(spans.sample)),
        }))
    }

    /// What is recorded of it, but for the body of its response.
    pub(super) fn finish(self, end: RequestSummary) -> FinishedRequest {
        let endpoint = end.endpoint;
        FinishedRequest {
            started: end.started,
            ended: end.started,
            client: self.client,
            method: Some(end.method),
            version: self.version,
            path: self.path,
            endpoint: endpoint.or_else(|| last_endpoint(&end.trail, &end.route)),
            route: end.route,
            status: end.status,
            bytes: 0,
            is_truncated: false,
            attempts: end.attempts,
            wait: end.wait,
            outcome: end.outcome,
            request_id: end.id.to_string(),
            trace_id: end.trace_id,
            trace: self.trace,
            trail: end.trail,
        }
    }
}

/// What is known of a request when its response is made.
pub(super) struct RequestSummary {
    pub(super) id: RequestId,
    pub(super) trace_id: u128,
    pub(super) started: Timestamp,
    pub(super) method: Method,
    pub(super) route: Arc<str>,
    /// The endpoint whose response is passed on.
    pub(super) endpoint: Option<Arc<str>>,
    pub(super) status: u16,
    pub(super) attempts: u32,
    pub(super) wait: std::time::Duration,
    pub(super) outcome: RequestOutcome,
    pub(super) trail: Trail,
}

/// Records a request whose bytes could not be read.
pub(super) fn record_unparsed(
    core: &Core,
    id: RequestId,
    status: u16,
    outcome: RequestOutcome,
    bytes: u64,
) {
    let observers = core.observers();
    if !observers.is_on() {
        return;
    }
    let now = observers.clock().now();
    observers.finish(FinishedRequest {
        started: now,
        ended: now,
        client: None,
        method: None,
        version: Version::HTTP_11,
        path: "-".into(),
        route: Metrics::NO_ROUTE.into(),
        endpoint: None,
        status,
        bytes,
        is_truncated: false,
        attempts: 0,
        wait: std::time::Duration::ZERO,
        outcome,
        request_id: id.to_string(),
        trace_id: id.bits(),
        trace: None,
        trail: Trail::default(),
    });
}

/// The endpoint that admitted a request last: keys of endpoints are `pool/endpoint`.
fn last_endpoint(trail: &Trail, route: &str) -> Option<Arc<str>> {
    let mut steps = trail.steps().iter().rev();
    let key = steps.find_map(|step| match &step.decision {
        CallDecision::Admitted { key, .. } => Some(key),
        _ => None,
    })?;
    let endpoint = key.strip_prefix(route)?.strip_prefix('/')?;
    Some(endpoint.into())
}

/// The body of a response whose request is recorded when this is dropped.
#[derive(Debug)]
pub struct ObservedBody {
    pub(super) body: ServedBody,
    request: Option<FinishedRequest>,
    observers: Arc<Observers>,
    bytes: u64,
    is_truncated: bool,
}

impl ObservedBody {
    pub(super) fn new(
        body: ServedBody,
        request: FinishedRequest,
        observers: &Arc<Observers>,
    ) -> Self {
        Self {
            body,
            request: Some(request),
            observers: Arc::clone(observers),
            bytes: 0,
            is_truncated: false,
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            Poll::Ready(Some(Err(_))) => self.is_truncated = true,
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            let ended = self.observers.clock().now();
            self.observers.finish(FinishedRequest {
                ended,
                bytes: self.bytes,
                is_truncated: self.is_truncated,
                ..request
            });
        }
    }
}
