//! `Prefer: respond-async`: a request becomes an operation. Its client reads the operation's state,
//! and the upstream's response when it has come, at the `Location` of the response.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use policy::duration::whole_seconds;
use policy::item::TerminalReason;
use policy::operation::OperationState;
use serde_json::json;
use store::operations::{StoredOperation, StoredResponse};

use super::body::ServedBody;
use super::error::{GatewayError, REASON};
use super::headers;
use super::request::ParsedRequest;
use super::response::{MarkedResponse, Responder};
use super::worker::Worker;
use crate::client_body::ClientBody;
use crate::exchange::cost::COST;
use crate::exchange::{BodyBounds, ReplayableBody};
use crate::metrics::RequestOutcome;
use crate::settings::DEFAULT_OPERATION;
use crate::state::{AcceptError, OperationRequest};
use crate::whole_body::read_whole;

/// What the paths of operations begin with. No pool has a name with a dot.
pub(super) const PREFIX: &str = "/.tidegate/operations/";

/// A request for the state of an operation.
#[derive(Debug)]
pub(super) struct OperationLookup {
    pub(super) id: Box<str>,
    pub(super) client: String,
}

/// Does the client want its request to become an operation?
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let preferences = headers.get_all(PREFER).iter();
    let mut preferences = preferences
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split([',', ';']));
    preferences.any(|preference| preference.trim().eq_ignore_ascii_case("respond-async"))
}

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Stores a request as an operation of `client`, and responds when it is durable.
pub(super) async fn accept(
    worker: &Worker,
    request: ParsedRequest,
    client: String,
    body: ClientBody,
    mut responder: Responder<'_>,
) -> MarkedResponse {
    responder.route = Some(Arc::clone(&request.route.label));
    match store(worker, request, client, body).await {
        Ok(operation) => {
            let mut response = state_response(StatusCode::ACCEPTED, &operation);
            let headers = response.headers_mut();
            headers.insert(
                PREFERENCE_APPLIED,
                HeaderValue::from_static("respond-async"),
            );
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            if let Ok(location) = HeaderValue::try_from(format!("{PREFIX}{}", operation.id)) {
                headers.insert(LOCATION, location);
            }
            responder.respond_with(response, RequestOutcome::Success)
        }
        Err(error) => responder.refuse(&error),
    }
}

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

async fn store(
    worker: &Worker,
    request: ParsedRequest,
    client: String,
    body: ClientBody,
) -> Result<StoredOperation, GatewayError> {
    let state = worker.state();
    let settings = state.configuration();
    let settings = settings.settings();
    let most = settings.operation(DEFAULT_OPERATION).max_body;
    let bounds = BodyBounds {
        most: Some(most),
        // It is read once, to be stored.
        kept: 0,
        idle: settings.http.idle_timeout,
        min_rate: settings.http.min_body_rate,
    };
    let body = ReplayableBody::new(body, bounds, state.core().replay_memory()).body();
    let body = read_whole(body, most).await?;
    let body = body.ok_or(GatewayError::BodyTooLarge)?;
    let url = format!("/{}{}", request.route.name, request.rest());
    let mut headers = request.headers.into_inner();
    for name in [CONTENT_LENGTH, HOST, PREFER, TE] {
        headers.remove(name);
    }
    if let Some(cost) = request.cost {
        headers.insert(COST, cost.into());
    }
    let accepted = state.accept_operation(OperationRequest {
        method: request.method.to_string(),
        url,
        headers: pairs(&headers)?,
        body: body.into(),
        client,
        ..OperationRequest::default()
    });
    match accepted.await {
        Ok(accepted) => Ok(accepted.operation),
        Err(AcceptError::Store(_)) => Err(GatewayError::StoreUnavailable),
        Err(AcceptError::TooMany { .. }) => Err(GatewayError::TooManyOperations),
        Err(AcceptError::BodyTooLarge { .. }) => Err(GatewayError::BodyTooLarge),
        Err(AcceptError::KeyReused) => Err(GatewayError::KeyReused),
        Err(AcceptError::AddressNotAllowed(_)) => Err(GatewayError::AddressNotAllowed),
        Err(AcceptError::Invalid(_)) => Err(GatewayError::BadRequest),
    }
}

fn pairs(headers: &HeaderMap) -> Result<Vec<(String, String)>, GatewayError> {
    let pairs = headers.iter().map(|(name, value)| {
        let value = std::str::from_utf8(value.as_bytes()).map_err(|_| GatewayError::BadRequest)?;
        Ok((name.to_string(), value.to_owned()))
    });
    pairs.collect()
}

/// Responds with the state of an operation, or with the upstream's response to it.
pub(super) async fn show(
    worker: &Worker,
    method: &Method,
    lookup: OperationLookup,
    responder: Responder<'_>,
) -> MarkedResponse {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return responder.refuse(&GatewayError::NoRoute(
            "the state of an operation is read with GET".to_owned(),
        ));
    }
    let queue = worker.state().operations();
    let operation = match queue.get(&lookup.id).await {
        // Another client's operation is answered as one that does not exist.
        Ok(found) => found.filter(|operation| operation.client == lookup.client),
        Err(_) => return responder.refuse(&GatewayError::StoreUnavailable),
    };
    let Some(operation) = operation else {
        return responder.refuse(&GatewayError::NoRoute(
            "there is no such operation; finished ones are deleted after a while".to_owned(),
        ));
    };
    if operation.state == OperationState::Completed {
        return match queue.response(operation.number).await {
            Ok(Some(stored)) => {
                responder.respond_with(stored_response(stored), RequestOutcome::Success)
            }
            Ok(None) => {
                let response = state_response(StatusCode::OK, &operation);
                responder.respond_with(response, RequestOutcome::Success)
            }
            Err(_) => responder.refuse(&GatewayError::StoreUnavailable),
        };
    }
    let mut response = state_response(status_of(operation.state), &operation);
    match operation.state.reason() {
        Some(reason) => {
            let headers = response.headers_mut();
            headers.insert(REASON, HeaderValue::from_static(reason.as_str()));
        }
        None => {
            let wait = operation
                .next_at
                .and_then(|at| worker.state().clock().wall().until(at));
            let seconds = whole_seconds(wait.unwrap_or_default()).clamp(1, MAX_RETRY_AFTER);
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
    }
    let outcome = operation.state.reason().map(RequestOutcome::from);
    responder.respond_with(response, outcome.unwrap_or(RequestOutcome::Success))
}

/// An operation that waits for long may be sent sooner, when a person decides so.
const MAX_RETRY_AFTER: u64 = 60;

/// What the state of an operation is as a status.
fn status_of(state: OperationState) -> StatusCode {
    match state {
        OperationState::Available | OperationState::Running | OperationState::Retryable => {
            StatusCode::ACCEPTED
        }
        OperationState::Completed => StatusCode::OK,
        OperationState::Conflict => StatusCode::CONFLICT,
        OperationState::Cancelled => StatusCode::GONE,
        OperationState::Failed(TerminalReason::Expired) => StatusCode::GATEWAY_TIMEOUT,
        OperationState::Failed(_) => StatusCode::BAD_GATEWAY,
    }
}

fn state_response(status: StatusCode, operation: &StoredOperation) -> Response<ServedBody> {
    let body = json!({
        "id": operation.id,
        "state": operation.state.as_str(),
        "reason": operation.state.reason().map(TerminalReason::as_str),
        "next_at_ms": operation.next_at.map(|at| at.as_unix_millis()),
        "attempts": operation.counters.sent,
    });
    let mut response = Response::new(ServedBody::Made(Some(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The upstream's response, as it was stored.
fn stored_response(stored: StoredResponse) -> Response<ServedBody> {
    let mut response = Response::new(ServedBody::Made(Some(Bytes::from(stored.body))));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    for (name, value) in stored.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&value)) {
            response.headers_mut().append(name, value);
        }
    }
    headers::clean_response(response.headers_mut());
    // It is made from the body that was stored.
    response.headers_mut().remove(CONTENT_LENGTH);
    response
}
