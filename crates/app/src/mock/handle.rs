//! From a request to its response.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::body::MockBody;
use super::endpoint::{self, Endpoint};
use super::model::{Decision, PlannedResponse};
use super::state::{MockState, RequestGuard};
use super::stats::RequestEnd;

pub(super) type MockResponse = Response<MockBody>;

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: Arc<MockState>,
    /// The client's number.
    pub(super) client: usize,
    pub(super) address: IpAddr,
    /// Whether it ends with a TCP reset.
    pub(super) is_reset: Arc<AtomicBool>,
}

/// A request to which a response is planned.
#[derive(Debug)]
pub(super) struct MockRequest<'a> {
    pub(super) state: &'a Arc<MockState>,
    pub(super) connection: &'a Connection,
    pub(super) head: Parts,
    pub(super) body: Incoming,
    /// Its JSON, or the response to what is none, if it was read to know the cost.
    pub(super) read: Option<Result<Value, MockResponse>>,
    pub(super) planned: PlannedResponse,
    /// Its number, counted from 0.
    pub(super) number: u64,
}

/// The connection is reset instead of a response.
#[derive(Debug, thiserror::Error)]
#[error("reset as decided")]
pub(super) struct ConnectionReset;

pub(super) async fn handle(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<MockResponse, ConnectionReset> {
    let state = &connection.state;
    let (head, mut body) = request.into_parts();
    let is_head = head.method == Method::HEAD;
    if let Some(response) = unlimited(state, &head) {
        return Ok(for_head(response, is_head));
    }
    let (cost, read) = match state.settings.limits_cost() {
        true => state.settings.style.cost(state, &head, &mut body).await,
        false => (1, None),
    };
    let (method, path) = (&head.method, head.uri.path());
    let (mut guard, decision) = state.receive(connection.client, cost, method, path);
    match decision {
        Decision::Reset => {
            guard.end(RequestEnd::NoResponse);
            connection.is_reset.store(true, Ordering::Relaxed);
            Err(ConnectionReset)
        }
        Decision::Silent => {
            guard.end(RequestEnd::NoResponse);
            match never_respond(state, body).await {}
        }
        Decision::Respond(planned) => {
            let request = MockRequest {
                state,
                connection: &connection,
                head,
                body,
                read,
                planned,
                number: guard.number(),
            };
            Ok(respond(request, guard).await)
        }
    }
}

/// The response at a path that is not limited.
fn unlimited(state: &MockState, head: &Parts) -> Option<MockResponse> {
    let path = head.uri.path();
    match path.strip_prefix("/_mock/") {
        Some(name) => Some(endpoint::control(state, &head.method, name)),
        None => state.settings.style.unlimited(state, path),
    }
}

async fn respond(mut request: MockRequest<'_>, mut guard: RequestGuard) -> MockResponse {
    let (state, planned) = (request.state, request.planned);
    let is_head = request.head.method == Method::HEAD;
    let style = state.settings.style;
    let mut response = if planned.status == 200 {
        match Endpoint::parse(request.head.uri.path(), request.head.uri.query()) {
            Some(endpoint) => endpoint.respond(request).await,
            None => style.success(request).await,
        }
    } else {
        drain(&mut request.body).await;
        style.failure(&request)
    };
    style.add_headers(state, &planned, response.headers_mut());
    state.sleep_until(&guard, planned.at).await;
    guard.end(match planned.is_cut {
        true => RequestEnd::NoResponse,
        false => RequestEnd::Response(response.status().as_u16()),
    });
    if planned.is_cut {
        response = response.map(MockBody::cut);
    }
    for_head(response, is_head).map(|body| body.with_guard(guard))
}

/// For HEAD, removes the body and keeps its `content-length`.
fn for_head(mut response: MockResponse, is_head: bool) -> MockResponse {
    if !is_head {
        return response;
    }
    if let Some(length) = response.body().size_hint().exact() {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    response.map(|_| MockBody::empty())
}

/// Reads a body to its end and discards it; returns its length and its trailers.
pub(super) async fn drain(body: &mut Incoming) -> (u64, Option<http::HeaderMap>) {
    let (mut length, mut trailers) = (0, None);
    while !body.is_end_stream() {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        match frame.into_data() {
            Ok(data) => length += data.len() as u64,
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    (length, trailers)
}

/// Waits until the client disconnects or the mock stops.
async fn never_respond(state: &MockState, mut body: Incoming) -> Infallible {
    drain(&mut body).await;
    loop {
        let later = state.clock().now() + Duration::from_secs(3600);
        state.clock().sleep_until(later).await;
    }
}

/// A response with a JSON body.
pub(super) fn json(status: u16, value: &Value) -> MockResponse {
    typed(
        status,
        "application/json",
        MockBody::whole(value.to_string()),
    )
}

/// A response with a body of this media type.
pub(super) fn typed(status: u16, media_type: &'static str, body: MockBody) -> MockResponse {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let value = http::HeaderValue::from_static(media_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}
