//! Forward mode: requests in absolute form, as programs send them to an `HTTP_PROXY`.
//!
//! Such a request names its server itself. It is served if `[forward]` allows that host, and then treated
//! like one for a pool: it waits at the gate of its host, is sent, judged, and sent again where that is
//! safe. The address that the name leads to is checked when it is dialled, because the client chose it.
//!
//! The checks against web pages do not apply. A browser sends a request in this form, or a `CONNECT`,
//! only if a person has set the gateway as its proxy, and then those of every page come here. A page that
//! is pointed at the gateway sends its path alone, which is checked as always.

use std::mem;
use std::pin::pin;
use std::sync::Arc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Uri, Version};
use policy::backoff::BackoffSettings;
use policy::classify::Rule;
use policy::hosts::without_port;
use policy::item::ItemKind;
use policy::jitter::RetryAfterJitter;
use policy::key;
use tidegate::call::{Call, TrailStep};
use tidegate::{Attempt, AttemptResult};
use url::Url;

use super::body::discard;
use super::clients::ClientIndex;
use super::error::GatewayError;
use super::handle::{ArrivingBody, EndpointResponse, is_permanent, while_arriving};
use super::request::{RareHeaders, RequestHeaders, RequestTerms, item_kind, pass_headers};
use super::response::{MarkedResponse, Responder, SentTo};
use super::routes::{RouteLabel, Routes};
use super::serving::{ClientUpgrade, Serving};
use super::shared::SharedGateway;
use super::worker::Worker;
use crate::exchange::{
    Destination, DestinationError, ReplayableBody, RequestBody, SendError, StreamWait, Target,
    Trust,
};
use crate::host_check::AcceptedHosts;
use crate::metrics::{KeyMetrics, Metrics, RouteMetrics};
use crate::observe::{TRACEPARENT, TraceContext};
use crate::settings::{Forward, Settings};

/// How requests of forward mode are treated, and where they are counted.
#[derive(Debug)]
pub(super) struct ForwardRoute {
    backoff: BackoffSettings,
    requests: Arc<RouteMetrics>,
    tunnels: Arc<RouteMetrics>,
}

/// The routes of forward mode in metrics, logs and trails. No pool can have such a name.
const REQUESTS: &str = "_forward";
const TUNNELS: &str = "_connect";

impl ForwardRoute {
    /// `None` if forward mode is off.
    pub(super) fn new(settings: &Settings, metrics: &Metrics) -> Option<Self> {
        settings.forward.is_on().then(|| Self {
            backoff: settings.backoffs[BACKOFF]
                .clone()
                .with_retry_after_jitter(RetryAfterJitter::CALLS),
            requests: metrics.route(REQUESTS),
            tunnels: metrics.route(TUNNELS),
        })
    }

    pub(super) fn requests(&self, key: &Arc<str>) -> Arc<RouteLabel> {
        RouteLabel::new(REQUESTS, Arc::clone(key), Arc::clone(&self.requests))
    }

    pub(super) fn tunnels(&self, key: &Arc<str>) -> Arc<RouteLabel> {
        RouteLabel::new(TUNNELS, Arc::clone(key), Arc::clone(&self.tunnels))
    }

    /// A call through the gate of a host.
    pub(super) fn call<'a>(
        &'a self,
        worker: &'a Worker,
        host: &'a ForwardHost,
        kind: ItemKind,
        watch: &'a (dyn Fn(&TrailStep) + Sync),
    ) -> Call<'a> {
        let limiter = worker.state().limiter();
        limiter
            .call(&*host.key)
            .give_up_after(None)
            .in_line_only()
            .kind(kind)
            .backoff(&self.backoff)
            .retry_after_jitter(self.backoff.retry_after_jitter())
            .watch(watch)
    }
}

/// There is no section for forward mode that could name another.
const BACKOFF: &str = "standard";

/// The server that a request to a proxy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForwardTarget {
    /// Scheme, host and port; `http` for a `CONNECT`.
    url: Url,
    /// The key of its gate.
    key: String,
    is_connect: bool,
}

impl ForwardTarget {
    /// The server that a request in absolute form, or a `CONNECT`, names. `None` if it is for the
    /// gateway itself, or forward mode has nothing to do with it.
    pub(super) fn of<B>(
        request: &Request<B>,
        forward: &Forward,
        ours: &AcceptedHosts,
    ) -> Result<Option<Self>, GatewayError> {
        let is_connect = request.method() == Method::CONNECT;
        // In HTTP/2 every request names scheme and authority: other hosts are wrong ones there.
        if !forward.is_on() || (request.version() == Version::HTTP_2 && !is_connect) {
            return Ok(None);
        }
        let target = Self::named_by(request.uri(), is_connect)?;
        if ours.names_listener(&target.url) {
            return match is_connect {
                true => Err(GatewayError::LoopDetected),
                false => Ok(None),
            };
        }
        let is_ours = |authority: &Authority| !is_connect && ours.accepts(authority);
        let is_allowed = forward.allows(without_port(&target.key));
        match request.uri().authority() {
            Some(authority) if !is_allowed && is_ours(authority) => Ok(None),
            _ => Ok(Some(target)),
        }
    }

    fn named_by(uri: &Uri, is_connect: bool) -> Result<Self, GatewayError> {
        let authority = uri.authority().ok_or(GatewayError::BadRequest)?;
        let scheme = match uri.scheme() {
            None if is_connect && authority.port().is_some() => "http",
            Some(scheme) if !is_connect && *scheme == Scheme::HTTP => "http",
            Some(scheme) if !is_connect && *scheme == Scheme::HTTPS => "https",
            _ => return Err(GatewayError::BadRequest),
        };
        // User info in an address is for the person who typed it, and never sent (RFC 9110, section
        // 4.2.4).
        if authority.as_str().contains('@') {
            return Err(GatewayError::BadRequest);
        }
        let bad = |_| GatewayError::BadRequest;
        let url = Url::parse(&format!("{scheme}://{authority}")).map_err(bad)?;
        let key = match (is_connect, url.host_str(), url.port_or_known_default()) {
            // A tunnel may carry either scheme, so that both default ports are the host alone.
            (true, Some(host), Some(port)) => key::normalize(&format!("{host}:{port}")),
            _ => key::normalize(url.as_str()),
        };
        let key = key.map_err(|_| GatewayError::BadRequest)?;
        Ok(Self {
            url,
            key,
            is_connect,
        })
    }

    /// The host alone, normalised.
    pub(super) fn host(&self) -> &str {
        without_port(&self.key)
    }
}

/// A request to a proxy that may be served.
#[derive(Debug)]
pub(super) enum ProxiedRequest {
    /// In absolute form.
    Forward(ForwardRequest),
    /// `CONNECT`.
    Tunnel(TunnelRequest),
}

/// A request in absolute form, without its body.
#[derive(Debug)]
pub(super) struct ForwardRequest {
    target: ForwardTarget,
    method: Method,
    path: PathAndQuery,
    headers: RequestHeaders,
    kind: ItemKind,
    cost: Option<u32>,
    trace: Option<Box<TraceContext>>,
}

/// A `CONNECT`.
#[derive(Debug)]
pub(super) struct TunnelRequest {
    pub(super) target: ForwardTarget,
    pub(super) kind: ItemKind,
    /// The connection of its client, once the response was sent.
    pub(super) upgrade: ClientUpgrade,
}

/// Reads the rest of a head whose target may be reached.
pub(super) fn parse<B>(
    shared: &SharedGateway,
    routes: &Routes,
    serving: &Serving,
    target: ForwardTarget,
    client: Option<ClientIndex>,
    rare: RareHeaders,
    request: &mut Request<B>,
) -> Result<ProxiedRequest, GatewayError> {
    let terms = RequestTerms::read(shared, routes, rare, request)?;
    // Nothing is to be read between its head and the tunnel.
    if target.is_connect && has_body(request) {
        return Err(GatewayError::BadRequest);
    }
    routes
        .guard()
        .count(client, || shared.state.clock().now())?;
    let gate = routes.settings().gate_for(target.host());
    let (wait, retry_unsafe) = (terms.max_wait.unwrap_or_else(|| gate.max_wait()), false);
    if target.is_connect {
        return Ok(ProxiedRequest::Tunnel(TunnelRequest {
            kind: item_kind(
                request.method(),
                request.headers(),
                rare,
                retry_unsafe,
                wait,
            ),
            upgrade: serving.upgrade(request),
            target,
        }));
    }
    let mut headers = mem::take(request.headers_mut());
    let kind = item_kind(request.method(), &headers, rare, retry_unsafe, wait);
    pass_headers(shared, request.version(), &mut headers);
    let path = request.uri().path_and_query().cloned();
    Ok(ProxiedRequest::Forward(ForwardRequest {
        method: request.method().clone(),
        path: path.unwrap_or_else(|| PathAndQuery::from_static("/")),
        headers: RequestHeaders::new(headers),
        cost: terms.cost,
        trace: None,
        target,
        kind,
    }))
}

fn has_body<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let length = headers.get(http::header::CONTENT_LENGTH);
    length.is_some_and(|length| length != "0")
        || headers.contains_key(http::header::TRANSFER_ENCODING)
}

/// The server of a request, ready to be called.
#[derive(Debug)]
pub(super) struct ForwardHost {
    pub(super) key: Arc<str>,
    /// As a header's value.
    name: HeaderValue,
    pub(super) destination: Arc<Destination>,
    rules: Arc<[Rule]>,
    pub(super) metrics: Arc<KeyMetrics>,
}

impl ForwardHost {
    /// The server that `target` names. It is looked up for every request, in registries that are
    /// bounded.
    pub(super) fn new(
        worker: &Worker,
        routes: &Routes,
        target: &ForwardTarget,
    ) -> Result<Arc<Self>, GatewayError> {
        let destination = routes.exchange().destination(&target.url, Trust::Client);
        let destination = destination.map_err(|error| match error {
            DestinationError::TooMany => GatewayError::TooManyGates,
            DestinationError::Scheme | DestinationError::Host => GatewayError::BadRequest,
        })?;
        let name = HeaderValue::from_str(&target.key).map_err(|_| GatewayError::BadRequest)?;
        Ok(Arc::new(Self {
            key: target.key.as_str().into(),
            name,
            destination,
            rules: Arc::clone(&routes.settings().gates.find(&target.key).rules),
            metrics: worker.state().core().metrics().key(&target.key),
        }))
    }
}

impl SentTo for Arc<ForwardHost> {
    fn header_value(&self) -> HeaderValue {
        self.name.clone()
    }

    fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.key)
    }
}

/// Serves a request in absolute form.
pub(super) async fn serve(
    worker: &Worker,
    routes: &Routes,
    serving: &Serving,
    mut request: ForwardRequest,
    body: ArrivingBody,
    mut responder: Responder<'_>,
) -> MarkedResponse {
    let Some(route) = routes.forward() else {
        return responder.refuse(&GatewayError::HostNotAllowed);
    };
    let host = match ForwardHost::new(worker, routes, &request.target) {
        Ok(host) => host,
        Err(error) => return responder.refuse(&error),
    };
    responder.route = Some(route.requests(&host.key));
    request.trace = responder.trace_context().map(Box::new);
    let streams = responder.stream_wait(&request.kind);
    let watch = |step: &TrailStep| responder.watch(step);
    let call = route.call(worker, &host, request.kind, &watch);
    let call = call.cost(request.cost.unwrap_or(1));
    let run = call.run(async |attempt| {
        if serving.has_left_unnoticed() {
            let (endpoint, result) = (Arc::clone(&host), Some(Err(SendError::request_body())));
            return AttemptResult::unsent(EndpointResponse { endpoint, result });
        }
        send(
            worker, routes, &request, &body.body, &streams, attempt, &host,
        )
        .await
    });
    let ended = while_arriving(&body, pin!(run)).await;
    responder.waited_outside += streams.waited();
    let response = match ended {
        Ok(ended) => responder.respond(ended, &body.body, request.cost.is_some()),
        Err(failure) => failure.refuse(responder),
    };
    if let (true, Some(unread)) = (body.is_coming, body.body.into_unread()) {
        discard(unread);
    }
    response
}

/// Makes one attempt.
async fn send(
    worker: &Worker,
    routes: &Routes,
    request: &ForwardRequest,
    body: &ReplayableBody,
    streams: &StreamWait<'_>,
    attempt: Attempt,
    host: &Arc<ForwardHost>,
) -> AttemptResult<EndpointResponse<Arc<ForwardHost>>> {
    let target = Target {
        destination: &host.destination,
        rules: &host.rules,
        phrase_in: |_: &str| None,
        metrics: &host.metrics,
        worker: worker.number,
    };
    let make = || {
        let sent = upstream_request(request, body, host, attempt.number);
        (sent, body.clone())
    };
    let exchange = routes.exchange();
    let attempting = exchange.attempt_within(&attempt, target, streams, make);
    let answered = attempting.await;
    let may_resend = body.is_resendable() && !is_permanent(&answered.value);
    let answered = answered.map(|result| EndpointResponse {
        endpoint: Arc::clone(host),
        result: Some(result),
    });
    match may_resend {
        true => answered,
        false => answered.last(),
    }
}

/// The request that the server gets. Its `Host` is the one of the address: what the client wrote there
/// does not count (RFC 9112, section 3.2.2).
fn upstream_request(
    request: &ForwardRequest,
    body: &ReplayableBody,
    host: &ForwardHost,
    attempt: u32,
) -> Request<RequestBody> {
    let mut sent = Request::new(body.body());
    *sent.method_mut() = request.method.clone();
    *sent.uri_mut() = Uri::from(request.path.clone());
    *sent.headers_mut() = request.headers.for_attempt();
    let authority = host.destination.authority().clone();
    sent.headers_mut().insert(http::header::HOST, authority);
    if let Some(trace) = &request.trace {
        sent.headers_mut()
            .insert(TRACEPARENT, trace.header(attempt));
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(method: Method, uri: &str) -> Result<(String, String), GatewayError> {
        let uri: Uri = uri.parse().unwrap();
        let target = ForwardTarget::named_by(&uri, method == Method::CONNECT)?;
        let url = target.url.as_str().trim_end_matches('/');
        Ok((url.to_owned(), target.key))
    }

    #[test]
    fn reads_url_and_key_of_every_form() {
        for (method, uri, url, key) in [
            (
                Method::GET,
                "http://Example.com/x?y",
                "http://example.com",
                "example.com",
            ),
            (
                Method::GET,
                "https://example.com:443/",
                "https://example.com",
                "example.com",
            ),
            (
                Method::GET,
                "http://example.com:8080/",
                "http://example.com:8080",
                "example.com:8080",
            ),
            (
                Method::GET,
                "http://127.1/",
                "http://127.0.0.1",
                "127.0.0.1",
            ),
            (Method::GET, "http://[0:0::1]/", "http://[::1]", "[::1]"),
            (
                Method::CONNECT,
                "example.com:443",
                "http://example.com:443",
                "example.com",
            ),
            (
                Method::CONNECT,
                "example.com:80",
                "http://example.com",
                "example.com",
            ),
            (
                Method::CONNECT,
                "EXAMPLE.com:22",
                "http://example.com:22",
                "example.com:22",
            ),
            (Method::CONNECT, "[::1]:443", "http://[::1]:443", "[::1]"),
        ] {
            let expected = (url.to_owned(), key.to_owned());
            assert_eq!(named(method, uri), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn refuses_other_schemes_user_info_and_connect_without_a_port() {
        for (method, uri) in [
            (Method::GET, "ftp://example.com/"),
            (Method::GET, "http://user:pw@example.com/"),
            (Method::GET, "http://user@example.com/"),
            (Method::CONNECT, "example.com"),
            (Method::CONNECT, "user@example.com:443"),
            (Method::CONNECT, "/path"),
        ] {
            assert_eq!(named(method, uri), Err(GatewayError::BadRequest), "{uri}");
        }
    }
}
