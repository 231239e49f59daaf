//! Serves one request: reads its head, calls the pool, and responds.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use http::{HeaderValue, Request, StatusCode, Uri};
use tidegate::call::TrailStep;
use tidegate::pool::Endpoint;
use tidegate::{Attempt, AttemptResult};

use super::body::discard;
use super::cross_site::Source;
use super::forward::{self, ProxiedRequest};
use super::operation;
use super::request::{Parsed, ParsedRequest, RareHeaders, parse};
use super::response::{MarkedResponse, Responder, SentTo};
use super::routes::{Route, Routes};
use super::serving::Serving;
use super::worker::Worker;
use super::{tunnel, upgrade};
use crate::client_body::ClientBody;
use crate::exchange::{
    BodyBounds, ReplayableBody, RequestBody, RequestBodyError, SendError, SendResult, StreamWait,
    Target, path,
};
use crate::observe::TRACEPARENT;
use crate::state::UpstreamEndpoint;

/// What an attempt at an endpoint, or another server, came to, and at which.
#[derive(Debug)]
pub(super) struct EndpointResponse<E = Arc<Endpoint<UpstreamEndpoint>>> {
    pub(super) endpoint: E,
    /// `None`: nothing was sent, because the path is too long behind the endpoint's own.
    pub(super) result: Option<SendResult>,
}

impl SentTo for Arc<Endpoint<UpstreamEndpoint>> {
    fn header_value(&self) -> HeaderValue {
        self.data().name.clone()
    }

    fn shared_name(&self) -> Arc<str> {
        Endpoint::shared_name(self)
    }
}

/// The body of a request, as it arrives.
pub(super) struct ArrivingBody {
    pub(super) body: ReplayableBody,
    /// The client sends it without waiting for `100 Continue`.
    pub(super) is_coming: bool,
}

impl ArrivingBody {
    pub(super) fn new(
        worker: &Worker,
        body: ClientBody,
        bounds: BodyBounds,
        is_coming: bool,
    ) -> Self {
        let memory = worker.state().core().replay_memory();
        let body = match is_coming {
            true => ReplayableBody::new(body, bounds, memory),
            false => ReplayableBody::asked_for(body, bounds, memory),
        };
        Self { body, is_coming }
    }
}

/// Serves one request.
pub(super) async fn handle(
    worker: &Worker,
    serving: Serving,
    mut request: Request<ClientBody>,
) -> MarkedResponse {
    let routes = worker.shared.routes();
    let rare = RareHeaders::new(request.headers());
    let responder = Responder::new(worker, &routes, &request, rare);
    let source = match rare.source {
        true => routes.guard().origins.source(&request),
        false => Source::Direct,
    };
    let is_coming = !rare.expect;
    let parsed = parse(
        &worker.shared,
        &routes,
        &serving,
        &source,
        rare,
        &mut request,
    );
    let body = request.into_body();
    let mut marked = match parsed {
        Ok(Parsed::Request(mut request)) => match request.operation_of.take() {
            Some(client) => {
                // Rare, so it need not make every request larger.
                Box::pin(operation::accept(worker, request, client, body, responder)).await
            }
            None => {
                request.trace = responder.trace_context().map(Box::new);
                let body = ArrivingBody::new(worker, body, request.route.bounds, is_coming);
                call(worker, &serving, &request, body, responder).await
            }
        },
        Ok(Parsed::Upgrade(request)) => {
            // Rare, so it need not make every request larger.
            Box::pin(upgrade::serve(worker, &serving, request, body, responder)).await
        }
        // Larger than a request of a pool. Responses of other servers stay as they are for pages, too.
        Ok(Parsed::Proxied(request)) => {
            return Box::pin(serve_proxied(
                worker, &routes, &serving, *request, body, is_coming, responder,
            ))
            .await;
        }
        Ok(Parsed::Operation(method, lookup)) => {
            Box::pin(operation::show(worker, &method, lookup, responder)).await
        }
        Ok(Parsed::Preflight(headers)) => responder.allow_preflight(headers),
        Err(error) => {
            if is_coming {
                discard(body);
            }
            responder.refuse(&error)
        }
    };
    let origins = &routes.guard().origins;
    origins.apply(&source, marked.response.headers_mut());
    marked
}

/// Serves a request to a proxy.
async fn serve_proxied(
    worker: &Worker,
    routes: &Routes,
    serving: &Serving,
    request: ProxiedRequest,
    body: ClientBody,
    is_coming: bool,
    responder: Responder<'_>,
) -> MarkedResponse {
    match request {
        ProxiedRequest::Forward(request) => {
            let body = ArrivingBody::new(worker, body, routes.bounds(), is_coming);
            forward::serve(worker, routes, serving, request, body, responder).await
        }
        ProxiedRequest::Tunnel(request) => {
            tunnel::serve(worker, routes, serving, request, responder).await
        }
    }
}

/// Calls the pool: waits at its gates, sends, and sends again where that is safe and useful.
pub(super) async fn call(
    worker: &Worker,
    serving: &Serving,
    request: &ParsedRequest,
    body: ArrivingBody,
    mut responder: Responder<'_>,
) -> MarkedResponse {
    let route = &request.route;
    responder.route = Some(Arc::clone(&route.label));
    if let Some(token) = &route.token {
        let clock = worker.state().clock();
        let asked = clock.now();
        // Rare, so it need not make every request larger.
        Box::pin(token.prepare()).await;
        responder.waited_outside = clock.now().since(asked);
    }
    let streams = responder.stream_wait(&request.kind);
    let watch = |step: &TrailStep| responder.watch(step);
    let call = route.pool.call().give_up_after(None).in_line_only();
    let call = call
        .cost(request.cost.unwrap_or(1))
        .kind(request.kind)
        .backoff(&route.backoff)
        .retry_after_jitter(route.backoff.retry_after_jitter())
        .watch(&watch);
    let call = match &route.token {
        Some(token) => call.credential(token.refresh()),
        None => call,
    };
    let ended = {
        // Pinned at once: it is large, and would be copied.
        let run = pin!(call.run(async |attempt, endpoint| {
            if serving.has_left_unnoticed() {
                let result = Some(Err(SendError::request_body()));
                return AttemptResult::unsent(EndpointResponse { endpoint, result });
            }
            send_to_endpoint(worker, request, &body.body, &streams, attempt, endpoint).await
        }));
        while_arriving(&body, run).await
    };
    responder.waited_outside += streams.waited();
    let response = match ended {
        Ok(ended) => {
            let is_counted = request.cost.is_some() && !request.is_upgrade;
            responder.respond(ended, &body.body, is_counted)
        }
        Err(failure) => failure.refuse(responder),
    };
    if let (true, Some(unread)) = (body.is_coming, body.body.into_unread()) {
        discard(unread);
    }
    response
}

/// A body that ended its request.
pub(super) struct BodyFailure {
    error: RequestBodyError,
    /// Enough of it had come for the request to be sent.
    has_arrived: bool,
}

impl BodyFailure {
    pub(super) fn refuse(self, responder: Responder<'_>) -> MarkedResponse {
        match self.has_arrived {
            true => responder.refuse_waiting(&self.error.into()),
            false => responder.refuse(&self.error.into()),
        }
    }
}

/// Runs a call when enough of its request's body has arrived, and reads ahead meanwhile.
pub(super) fn while_arriving<T>(
    body: &ArrivingBody,
    mut run: Pin<&mut impl Future<Output = T>>,
) -> impl Future<Output = Result<T, BodyFailure>> {
    let mut has_arrived = !body.is_coming;
    poll_fn(move |context| {
        let failure = |error, has_arrived| BodyFailure { error, has_arrived };
        if !has_arrived {
            if let Err(error) = ready!(body.body.poll_arrival(context)) {
                return Poll::Ready(Err(failure(error, false)));
            }
            has_arrived = true;
        }
        if let Poll::Ready(ended) = run.as_mut().poll(context) {
            return Poll::Ready(Ok(ended));
        }
        match body.is_coming {
            true => {
                let ahead = body.body.poll_ahead(context);
                ahead.map(|error| Err(failure(error, true)))
            }
            false => Poll::Pending,
        }
    })
}

/// Makes one attempt at one endpoint.
async fn send_to_endpoint(
    worker: &Worker,
    request: &ParsedRequest,
    body: &ReplayableBody,
    streams: &StreamWait<'_>,
    attempt: Attempt,
    endpoint: Arc<Endpoint<UpstreamEndpoint>>,
) -> AttemptResult<EndpointResponse> {
    let upstream = endpoint.data();
    let join = || path::join(&upstream.base, request.rest()).map(Uri::from);
    let mut uri = join();
    if uri.is_none() {
        let result = None;
        return AttemptResult::unsent(EndpointResponse { endpoint, result });
    }
    let target = Target {
        destination: &upstream.destination,
        rules: &upstream.rules,
        phrase_in: |text: &str| {
            let protection = request.route.pool.protection();
            protection.phrase_in(text).map(str::to_owned)
        },
        metrics: &upstream.metrics,
        worker: worker.number,
    };
    let mut make = || {
        // Joined anew for a resend, which is rare: a copy for each request would take longer.
        let uri = uri.take().or_else(join).unwrap_or_default();
        let sent = upstream_request(uri, upstream, request, body, attempt.number);
        (sent, body.clone())
    };
    let exchange = &request.route.exchange;
    let answered = match request.is_upgrade && upstream.destination.speaks_http1() {
        true => {
            let (sent, _) = make();
            Box::pin(exchange.attempt_upgrade(&attempt, target, sent)).await
        }
        false => {
            let attempting = exchange.attempt_within(&attempt, target, streams, make);
            attempting.await
        }
    };
    let may_resend = body.is_resendable()
        && (!is_permanent(&answered.value) || has_other(&request.route, &endpoint));
    let answered = answered.map(|result| EndpointResponse {
        endpoint,
        result: Some(result),
    });
    match may_resend {
        true => answered,
        false => answered.last(),
    }
}

/// Would it come to the same if it were sent there again? An invalid certificate stays invalid, and an
/// endpoint that leads in a circle leads there again.
pub(super) fn is_permanent(result: &SendResult) -> bool {
    match result {
        Ok(response) => response.status() == StatusCode::LOOP_DETECTED,
        Err(error) => error.is_permanent,
    }
}

/// Can another endpoint of the pool be used?
fn has_other(route: &Route, endpoint: &Endpoint<UpstreamEndpoint>) -> bool {
    route.pool.other_endpoint_ready_at(endpoint).is_some()
}

/// The request that an endpoint gets.
fn upstream_request(
    uri: Uri,
    upstream: &UpstreamEndpoint,
    request: &ParsedRequest,
    body: &ReplayableBody,
    attempt: u32,
) -> Request<RequestBody> {
    let mut sent = Request::new(body.body());
    *sent.method_mut() = request.method.clone();
    *sent.uri_mut() = uri;
    *sent.headers_mut() = request.headers.for_attempt();
    if let Some(trace) = &request.trace {
        sent.headers_mut()
            .insert(TRACEPARENT, trace.header(attempt));
    }
    upstream.apply_headers(sent.headers_mut());
    if let Some(token) = &request.route.token {
        token.apply(sent.headers_mut());
    }
    sent
}
