//! Operations: accepting them, their state, and a person's decisions.
//!
//! Responses never have a header, a body, or more of a URL than its host; the one exception is the
//! [conflict](conflict) of one operation.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

mod body;
mod bulk;
mod list;
mod request;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use policy::operation::{OperationEvent, OperationState};
use serde::{Deserialize, Serialize};
use store::StoreError;
use store::operations::{Decision, DecisionError, StoredOperation};
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{
    AcceptedOperation, AddOperation, BulkAction, BulkResult, Conflict, LeftOut, Operation,
    OperationList, Problem, ResolveOperation,
};
use super::body::Fields;
use super::problem::{Kind, Refused};
use super::query::{DEFAULT_LISTED, cursor};
use crate::state::{BulkRequest, OperationError};
use body::{attempt_body, bodies_of, body_of, delays_of, document};
use bulk::read_bulk;
use list::ListQuery;
use request::{max_length, read_new, read_resolution};

/// Accept an operation: a request to deliver
///
/// The response comes when the operation is durable. It is then sent until it is delivered, however
/// often that takes within the bounds of its type, or waits for a person in the state `failed` or
/// `conflict`. The same request under the same idempotency key is the same operation.
#[utoipa::path(
    post, operation_id = "addOperation", path = "/api/v1/operations", tag = "operations",
    request_body = AddOperation,
    responses(
        (status = 202, description = "It is stored", body = AcceptedOperation, headers(("location" = String, description = "Its path"))),
        (status = 403, description = "The address must not be dialled, or the request is cross-site", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Some values are invalid, or the idempotency key belongs to another request", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so it was not accepted; or the server is stopping", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn add(
    State(admin): State<Arc<AdminState>>,
    request: Request,
) -> Result<Response, Refused> {
    if admin.is_draining() {
        return Err(Refused::new(Kind::Draining, "send it to another server"));
    }
    let (head, body) = request.into_parts();
    let max = max_length(&admin, 2);
    let (fields, documents) = Fields::read(&head.headers, body, max, &["body", "base"]).await?;
    let request = read_new(&admin, fields, &documents, &head.headers)?;
    let operation = admin.state.accept_operation(request).await?.operation;
    let location = format!("/api/v1/operations/{}", operation.id);
    let body = AcceptedOperation {
        state: operation.state.into(),
        id: operation.id,
    };
    Ok(accepted(&location, body))
}

/// 202 with the path of what was accepted.
pub(super) fn accepted(location: &str, body: impl Serialize) -> Response {
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Operations, newest first
#[utoipa::path(
    get, operation_id = "listOperations", path = "/api/v1/operations", tag = "operations", params(ListQuery),
    responses(
        (status = 200, description = "A page of them", body = OperationList),
        (status = 503, description = "They cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<OperationList>, Refused> {
    let query = ListQuery::read(query.as_deref())?;
    let limit = query.limit.unwrap_or(DEFAULT_LISTED);
    let page = admin
        .state
        .operations()
        .page(query.filter(), query.before, limit)
        .await
        .map_err(unreadable)?;
    let next = page.last().filter(|_| page.len() == limit);
    Ok(Json(OperationList {
        next_cursor: next.map(|operation| cursor(operation.number)),
        operations: bodies_of(&admin, page),
        counts: admin.state.operations().counts().into(),
    }))
}

/// One operation, with its attempts
#[utoipa::path(
    get, operation_id = "showOperation", path = "/api/v1/operations/{id}", tag = "operations", params(OperationPath),
    responses(
        (status = 200, description = "The operation", body = Operation),
        (status = 503, description = "It cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(
    State(admin): State<Arc<AdminState>>,
    Path(OperationPath { id }): Path<OperationPath>,
) -> Result<Json<Operation>, Refused> {
    let operation = find(&admin, &id).await?;
    let attempts = admin.state.operations().attempts(operation.number).await;
    let attempts = attempts.map_err(unreadable)?.into_iter();
    let delays = delays_of(&admin, &operation);
    let mut body = body_of(&admin, operation);
    body.attempts = Some(attempts.map(attempt_body).collect());
    body.delays = Some(delays);
    Ok(Json(body))
}

/// The documents of a conflict
///
/// The only call that returns bodies.
#[utoipa::path(
    get, operation_id = "showConflict", path = "/api/v1/operations/{id}/conflict", tag = "operations", params(OperationPath),
    responses(
        (status = 200, description = "What the edit started from, what the operation sends, and what the server has", body = Conflict),
        (status = 404, description = "There is no such operation, or it is in no conflict", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn conflict(
    State(admin): State<Arc<AdminState>>,
    Path(OperationPath { id }): Path<OperationPath>,
) -> Result<Json<Conflict>, Refused> {
    let operation = find(&admin, &id).await?;
    let queue = admin.state.operations();
    let conflict = queue.conflict(operation.number).await.map_err(unreadable)?;
    let request = queue.request(operation.number).await.map_err(unreadable)?;
    let (Some(conflict), Some(request), OperationState::Conflict) =
        (conflict, request, operation.state)
    else {
        let state = operation.state;
        let detail = format!("the operation is in no conflict: it is {state}");
        return Err(Refused::not_found(detail));
    };
    Ok(Json(Conflict {
        base: request.base.as_deref().map(document),
        ours: Some(document(&request.body)),
        theirs: conflict.theirs.as_deref().map(document),
        fetched_ms: conflict.fetched_at.as_unix_millis(),
    }))
}

/// Send an operation again that failed or was cancelled, or sooner if it waits
///
/// It has all its attempts and its whole time again, and keeps its idempotency key.
#[utoipa::path(
    post, operation_id = "retryOperation", path = "/api/v1/operations/{id}/retry", tag = "operations", params(OperationPath),
    responses(
        (status = 200, description = "The operation afterwards", body = Operation),
        (status = 409, description = "Not possible in its present state", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn retry(
    State(admin): State<Arc<AdminState>>,
    Path(OperationPath { id }): Path<OperationPath>,
) -> Result<Json<Operation>, Refused> {
    decide(&admin, id, OperationEvent::Retry).await
}

/// Cancel an operation
///
/// A request that is being sent is not interrupted; what comes of it is not recorded any more.
#[utoipa::path(
    post, operation_id = "cancelOperation", path = "/api/v1/operations/{id}/cancel", tag = "operations", params(OperationPath),
    responses(
        (status = 200, description = "The operation afterwards", body = Operation),
        (status = 409, description = "Not possible in its present state", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn cancel(
    State(admin): State<Arc<AdminState>>,
    Path(OperationPath { id }): Path<OperationPath>,
) -> Result<Json<Operation>, Refused> {
    decide(&admin, id, OperationEvent::Cancel).await
}

/// Resolve a conflict
#[utoipa::path(
    post, operation_id = "resolveOperation", path = "/api/v1/operations/{id}/resolve", tag = "operations", params(OperationPath),
    request_body = ResolveOperation,
    responses(
        (status = 200, description = "The operation afterwards", body = Operation),
        (status = 409, description = "It is in no conflict", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn resolve(
    State(admin): State<Arc<AdminState>>,
    Path(OperationPath { id }): Path<OperationPath>,
    request: Request,
) -> Result<Json<Operation>, Refused> {
    let (head, body) = request.into_parts();
    let max = max_length(&admin, 1);
    let (fields, documents) = Fields::read(&head.headers, body, max, &["body"]).await?;
    let (resolution, body) = read_resolution(fields, &documents)?;
    let resolved = admin.state.resolve_operation(&id, resolution, body).await;
    let operation = resolved.map_err(|error| refused(error, &id))?;
    Ok(Json(body_of(&admin, operation)))
}

/// Send every operation again that matches a filter, or that is named
///
/// Conflicts are never among them, and those that are not replay safe only with `include_unsafe`. At
/// most 10 000 at a time: `next_cursor` names the rest.
#[utoipa::path(
    post, operation_id = "retryOperations", path = "/api/v1/operations/retry", tag = "operations",
    request_body = BulkAction,
    responses(
        (status = 200, description = "How many there are, and how many were changed", body = BulkResult),
        (status = 503, description = "They cannot be stored; some may have been changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn retry_all(
    State(admin): State<Arc<AdminState>>,
    fields: Fields,
) -> Result<Json<BulkResult>, Refused> {
    let request = read_bulk(fields, OperationEvent::Retry)?;
    decide_all(&admin, &request).await
}

/// Cancel every operation that matches a filter, or that is named
///
/// The filter names a state or ids. At most 10 000 at a time: `next_cursor` names the rest.
#[utoipa::path(
    post, operation_id = "cancelOperations", path = "/api/v1/operations/cancel", tag = "operations",
    request_body = BulkAction,
    responses(
        (status = 200, description = "How many there are, and how many were changed", body = BulkResult),
        (status = 503, description = "They cannot be stored; some may have been changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn cancel_all(
    State(admin): State<Arc<AdminState>>,
    fields: Fields,
) -> Result<Json<BulkResult>, Refused> {
    let request = read_bulk(fields, OperationEvent::Cancel)?;
    decide_all(&admin, &request).await
}

async fn find(admin: &AdminState, id: &str) -> Result<StoredOperation, Refused> {
    let found = admin.state.operations().get(id).await.map_err(unreadable)?;
    found.ok_or_else(|| no_operation(id))
}

fn no_operation(id: &str) -> Refused {
    let id: String = id.chars().take(100).collect();
    let detail = format!(
        "there is no operation `{id}`; completed and cancelled ones are deleted after `retain`"
    );
    Refused::not_found(detail)
}

fn unreadable(error: StoreError) -> Refused {
    let detail = format!("operations cannot be read: {error}");
    Refused::new(Kind::StoreUnavailable, detail)
}

async fn decide(
    admin: &AdminState,
    id: String,
    event: OperationEvent,
) -> Result<Json<Operation>, Refused> {
    let decision = Decision {
        id: id.clone(),
        now: admin.state.clock().wall(),
        event,
        request: None,
    };
    let decided = admin.state.decide_operation(decision).await;
    let operation = decided.map_err(|error| refused(error, &id))?;
    Ok(Json(body_of(admin, operation)))
}

fn refused(error: OperationError, id: &str) -> Refused {
    match error {
        OperationError::Decision(DecisionError::Unknown) => no_operation(id),
        error => error.into(),
    }
}

async fn decide_all(
    admin: &AdminState,
    request: &BulkRequest,
) -> Result<Json<BulkResult>, Refused> {
    let decided = admin.state.decide_operations(request).await;
    let decided = decided.map_err(OperationError::from)?;
    let left_out = decided.left_out.into_iter();
    Ok(Json(BulkResult {
        matched: decided.matched,
        will: decided.will,
        changed: decided.changed,
        dry_run: request.is_dry_run,
        left_out: left_out
            .map(|(reason, count)| LeftOut {
                reason: reason.into(),
                count,
            })
            .collect(),
        sample: bodies_of(admin, decided.sample),
        next_cursor: decided.before.map(cursor),
    }))
}

/// The id of an operation in the path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct OperationPath {
    /// The id of the operation
    #[param(example = "op_01jcrz4m3v8k2n6t0q5w9x7y1b", min_length = 1)]
    id: String,
}
