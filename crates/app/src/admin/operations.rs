//! Operations: accepting them, their state, and a person's decisions.
//!
//! Responses never have a header, a body, or more of a URL than its host; the one exception is the
//! [conflict](conflict) of one operation.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use policy::backoff::BackoffSettings;
use policy::operation::{OperationEvent, OperationState, Resolution};
use policy::setting;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use store::StoreError;
use store::operations::{AttemptRecord, Decision, DecisionError, OperationFilter, StoredOperation};
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{
    AcceptedOperation, AddOperation, BulkAction, BulkResult, Conflict, ConflictSummary, Delays,
    HeaderValues, LeftOut, Operation, OperationAttempt, OperationList, Problem, Reason,
    ResolveAction, ResolveOperation, StateName,
};
use super::body::{Documents, Fields, MAX_BODY, integer};
use super::problem::{Kind, Refused};
use super::waiting::Waits;
use crate::core::millis;
use crate::settings::Settings;
use crate::state::{AcceptError, BulkRequest, OperationError, OperationRequest, is_replay_safe};

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
    let query = read_query(query.as_deref().unwrap_or_default())?;
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

/// States from which a bulk action retries.
const RETRIED: [StateName; 3] = [
    StateName::Failed,
    StateName::Retryable,
    StateName::Cancelled,
];

/// States from which a bulk action cancels.
const CANCELLED: [StateName; 5] = [
    StateName::Available,
    StateName::Running,
    StateName::Retryable,
    StateName::Failed,
    StateName::Conflict,
];

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

/// So many operations are changed by one call: enough for most, and done within seconds.
const MAX_BULK: usize = 10_000;

/// The longest body of a call with so many documents, each as long as the most generous type allows.
/// A character of a string takes up to six bytes as JSON.
fn max_length(admin: &AdminState, documents: u64) -> usize {
    let configuration = admin.state.configuration();
    let types = configuration.settings().operations.values();
    let longest = types.map(|kind| kind.max_body).max().unwrap_or(0);
    let all = longest.saturating_mul(6 * documents).min(MAX_DOCUMENTS);
    MAX_BODY + usize::try_from(all).unwrap_or(usize::MAX - MAX_BODY)
}

/// A bound for types without one: the body is held in memory.
const MAX_DOCUMENTS: u64 = 256 << 20;

/// Reads a new operation. Everything that is invalid about it is reported at once, whether it cannot
/// be read or is refused by the state.
fn read_new(
    admin: &AdminState,
    mut fields: Fields,
    documents: &Documents,
    headers: &HeaderMap,
) -> Result<OperationRequest, Refused> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let name = "the name of a section of the settings";
    let key = "1 to 255 characters that a header may have";
    let url = "a URL such as `https://api.example.com/v1`, or `/POOL/rest`";
    let duration = |value: &Value| setting::positive(value.as_str()?).ok();
    let mut request = OperationRequest {
        kind: fields.take("type", name, text),
        method: fields
            .require("method", "an HTTP method such as `POST`", text)
            .unwrap_or_default(),
        url: fields.require("url", url, text).unwrap_or_default(),
        idempotency_key: fields.take_secret("idempotency_key", key, text),
        credential: fields.take("credential", name, text),
        backoff: fields.take("backoff", name, text),
        expires_after: fields.take("expires_after", "a duration such as `24h`", duration),
        order_key: fields.take_secret("order_key", "1 to 255 characters", text),
        priority: fields
            .take("priority", "a number from -100 to 100", integer)
            .unwrap_or_default(),
        resource: fields.take_secret("resource", "a URL", text),
        headers: read_headers(&mut fields),
        body: documents
            .get("body")
            .and_then(|body| bytes(body))
            .unwrap_or_default(),
        base: documents.get("base").and_then(|base| bytes(base)),
        client: String::new(),
    };
    add_own_headers(&mut request, headers);
    let mut problems = fields.problems();
    if problems.is_empty() {
        return Ok(request);
    }
    if let Err(AcceptError::Invalid(more)) = admin.state.check_operation(request) {
        let is_new = |field: &str| !problems.iter().any(|known| known.field == field);
        let more: Vec<_> = more
            .into_iter()
            .filter(|more| is_new(&more.field))
            .collect();
        problems.extend(more);
    }
    Err(Refused::invalid(problems))
}

/// An object or a list; a plain word may be anything.
fn is_json_document(body: &[u8]) -> bool {
    let is_bracketed = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    is_bracketed && serde_json::from_slice::<IgnoredAny>(body).is_ok()
}

/// Adds headers of the call itself that are meant for the operation, and the type of a JSON body.
fn add_own_headers(request: &mut OperationRequest, headers: &HeaderMap) {
    for value in headers.get_all("idempotency-key") {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        request.headers.push(("idempotency-key".to_owned(), value));
    }
    let is_typed = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-type");
    if !request.headers.iter().any(is_typed) && is_json_document(&request.body) {
        let json = "application/json".to_owned();
        request.headers.push(("content-type".to_owned(), json));
    }
    let has_trace = request
        .headers
        .iter()
        .any(|(name, _)| name == "traceparent");
    let trace = headers
        .get("traceparent")
        .and_then(|value| value.to_str().ok());
    if let (Some(trace), false) = (trace, has_trace) {
        request
            .headers
            .push(("traceparent".to_owned(), trace.to_owned()));
    }
}

fn read_headers(fields: &mut Fields) -> Vec<(String, String)> {
    let expected = "an object of names and strings, or lists of strings";
    let object = |value: &Value| value.as_object().cloned();
    let mut headers = Vec::new();
    for (name, value) in fields
        .take_secret("headers", expected, object)
        .unwrap_or_default()
    {
        match HeaderValues::deserialize(value) {
            Ok(HeaderValues::One(value)) => headers.push((name, value)),
            Ok(HeaderValues::Several(values)) => {
                headers.extend(values.into_iter().map(|value| (name.clone(), value)));
            }
            Err(_) => {
                let name: String = name.chars().take(100).collect();
                fields.note(
                    &format!("headers.{name}"),
                    None,
                    "a string, or a list of strings",
                );
            }
        }
    }
    headers
}

/// What is sent for a document: a string as it is, any other value as JSON; nothing for null.
fn bytes(document: &RawValue) -> Option<Vec<u8>> {
    match serde_json::from_str::<Option<String>>(document.get()) {
        Ok(text) => text.map(String::into_bytes),
        Err(_) => Some(document.get().as_bytes().to_vec()),
    }
}

/// A document as it is shown: as JSON if it is JSON, else as a string.
fn document(bytes: &[u8]) -> Box<RawValue> {
    if let Ok(document) = serde_json::from_slice::<Box<RawValue>>(bytes) {
        return document;
    }
    let text = String::from_utf8_lossy(bytes);
    serde_json::value::to_raw_value(&text).expect("a string can be written as JSON")
}

fn read_resolution(
    mut fields: Fields,
    documents: &Documents,
) -> Result<(Resolution, Option<Vec<u8>>), Refused> {
    let expected = format!(
        "one of {}",
        quoted(ResolveAction::ALL.iter().map(|word| word.as_str()))
    );
    let action = fields.require("action", &expected, |value| {
        ResolveAction::deserialize(value).ok()
    });
    let body = documents.get("body").and_then(|body| bytes(body));
    match (action, &body) {
        (Some(ResolveAction::Replace), None) => {
            fields.note("body", None, "is missing, expected what to send instead");
        }
        (Some(ResolveAction::Resend | ResolveAction::Discard), Some(_)) => {
            fields.note("body", None, "is used by `replace` only");
        }
        _ => {}
    }
    fields.end()?;
    let action = action.expect("a missing action is a problem");
    Ok((action.into(), body))
}

fn read_bulk(mut fields: Fields, event: OperationEvent) -> Result<BulkRequest, Refused> {
    let (states, default) = match event {
        OperationEvent::Retry => (&RETRIED[..], Some(StateName::Failed)),
        _ => (&CANCELLED[..], None),
    };
    let mut filter = fields.require_object("filter", "an object such as `{\"type\": \"default\"}`");
    let ids = read_ids(&mut filter);
    let has_ids = ids.is_some() || filter.has_problem("ids");
    let words = quoted(states.iter().map(|state| state.as_str()));
    let expected = format!("one of {words}");
    let is_required = default.is_none() && !has_ids && !fields.has_problem("filter");
    let read_state = |value: &Value| {
        let state = StateName::deserialize(value).ok()?;
        states.contains(&state).then_some(state)
    };
    let state = match is_required {
        true => filter.require("state", &expected, read_state),
        false => filter.take("state", &expected, read_state),
    };
    let default = default.filter(|_| !has_ids);
    let text = |value: &Value| {
        let text = value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    let reasons = quoted(Reason::ALL.iter().map(|reason| reason.as_str()));
    let reason = filter.take("reason", &format!("one of {reasons}"), |value| {
        Reason::deserialize(value).ok()
    });
    let key = "the key of a gate, or `/` and the name of a pool";
    let read = OperationFilter {
        states: state.or(default).map(word_of).into_iter().collect(),
        kind: filter.take("type", "a type", text),
        reason: reason.map(Into::into),
        destination: filter.take("key", key, text),
        id_prefix: filter.take("id", "what an id begins with", text),
    };
    fields.end_object("filter", filter);
    let flag = "`true` or `false`";
    let is_dry_run = fields.take("dry_run", flag, Value::as_bool);
    let includes_unsafe = fields.take("include_unsafe", flag, Value::as_bool);
    let before = fields.take("cursor", CURSOR, |value| read_cursor(value.as_str()?));
    fields.end()?;
    Ok(BulkRequest {
        ids,
        filter: read,
        states: states.iter().copied().map(word_of).collect(),
        event,
        includes_unsafe: includes_unsafe.unwrap_or_default(),
        is_dry_run: is_dry_run.unwrap_or_default(),
        before,
        limit: MAX_BULK,
    })
}

fn word_of(state: StateName) -> String {
    state.as_str().to_owned()
}

fn read_ids(filter: &mut Fields) -> Option<Vec<String>> {
    let expected = format!("a list of 1 to {MAX_IDS} ids");
    filter.take("ids", &expected, |value| {
        let ids = value.as_array()?;
        let text = |id: &Value| {
            let id = id.as_str()?;
            (1..=100)
                .contains(&id.chars().count())
                .then(|| id.to_owned())
        };
        let is_bounded = (1..=MAX_IDS).contains(&ids.len());
        ids.iter()
            .map(text)
            .collect::<Option<Vec<_>>>()
            .filter(|_| is_bounded)
    })
}

/// So many operations may be named.
const MAX_IDS: usize = 1000;

fn quoted(words: impl Iterator<Item = &'static str>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// The id of an operation in the path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct OperationPath {
    /// The id of the operation
    #[param(example = "op_01jcrz4m3v8k2n6t0q5w9x7y1b", min_length = 1)]
    id: String,
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only those in this state, or in one of these, with commas between them
    #[param(value_type = Option<String>, pattern = "^(available|running|retryable|completed|failed|conflict|cancelled)(,(available|running|retryable|completed|failed|conflict|cancelled))*$", example = "failed,conflict")]
    state: Vec<StateName>,
    /// Only those of this type
    #[param(rename = "type", min_length = 1)]
    kind: Option<String>,
    /// Only those that ended for this reason
    #[param(inline)]
    reason: Option<Reason>,
    /// Only those for this destination: the key of a gate, or `/` and the name of a pool
    #[param(min_length = 1)]
    key: Option<String>,
    /// Only those whose id begins with this
    #[param(min_length = 1)]
    id: Option<String>,
    /// `next_cursor` of the page before
    #[param(rename = "cursor", value_type = Option<String>, pattern = "^[1-9a-f][0-9a-f]{0,14}$")]
    before: Option<u64>,
    /// The most operations to list
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

impl ListQuery {
    fn filter(&self) -> OperationFilter {
        OperationFilter {
            states: self.state.iter().copied().map(word_of).collect(),
            kind: self.kind.clone(),
            reason: self.reason.map(Into::into),
            destination: self.key.clone(),
            id_prefix: self.id.clone(),
        }
    }
}

pub(super) const MAX_LISTED: usize = 1000;
pub(super) const DEFAULT_LISTED: usize = 100;

fn read_query(query: &str) -> Result<ListQuery, Refused> {
    let mut read = ListQuery::default();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let value = value.trim();
        let result = match &*name {
            "state" => value
                .split(',')
                .map(|word| read_word(word, StateName::ALL, StateName::as_str))
                .collect::<Result<_, _>>()
                .map(|states| read.state = states),
            "reason" => read_word(value, Reason::ALL, Reason::as_str)
                .map(|reason| read.reason = Some(reason)),
            "type" => read_text(value).map(|kind| read.kind = Some(kind)),
            "key" => read_text(value).map(|key| read.key = Some(key)),
            "id" => read_text(value).map(|id| read.id = Some(id)),
            "cursor" => read_cursor(value)
                .map(|before| read.before = Some(before))
                .ok_or_else(|| CURSOR.to_owned()),
            "limit" => setting::whole(value, 1, MAX_LISTED).map(|limit| read.limit = Some(limit)),
            other => {
                let other: String = other.chars().take(100).collect();
                let detail = format!(
                    "there is no parameter `{other}`, expected `state`, `type`, `reason`, `key`, `id`, `cursor` or `limit`"
                );
                return Err(Refused::new(Kind::BadRequest, detail));
            }
        };
        result.map_err(|expected| {
            let value: String = value.chars().take(100).collect();
            let detail = format!("`{name}` is `{value}`, expected {expected}");
            Refused::new(Kind::BadRequest, detail)
        })?;
    }
    Ok(read)
}

fn read_word<T: Copy>(text: &str, all: &[T], word: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|known| word(*known) == text);
    found.ok_or_else(|| format!("one of {}", quoted(all.iter().copied().map(word))))
}

fn read_text(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("a name".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Where a page ends. Numbers rise with every insert, so a cursor is valid while others arrive.
pub(super) fn cursor(number: u64) -> String {
    format!("{number:x}")
}

pub(super) const CURSOR: &str = "`next_cursor` of the page before";

pub(super) fn read_cursor(text: &str) -> Option<u64> {
    let number = u64::from_str_radix(text, 16).ok()?;
    (number > 0 && text.len() <= 15 && cursor(number) == text).then_some(number)
}

fn body_of(admin: &AdminState, operation: StoredOperation) -> Operation {
    let settings = Arc::clone(admin.state.configuration().settings());
    operation_body(operation, &settings, &mut Waits::new(&admin.state))
}

fn bodies_of(admin: &AdminState, operations: Vec<StoredOperation>) -> Vec<Operation> {
    let settings = Arc::clone(admin.state.configuration().settings());
    let mut waits = Waits::new(&admin.state);
    let operations = operations.into_iter();
    operations
        .map(|operation| operation_body(operation, &settings, &mut waits))
        .collect()
}

fn operation_body(
    operation: StoredOperation,
    settings: &Settings,
    waits: &mut Waits<'_>,
) -> Operation {
    let state = operation.state;
    let is_conflict = state == OperationState::Conflict;
    Operation {
        replay_safe: is_replay_safe(&operation),
        max_attempts: backoff_of(&operation, settings).1.max_attempts(),
        waiting_for: waits.of(&operation),
        state: state.into(),
        reason: state.reason().map(Into::into),
        accepted_at_ms: operation.accepted_at.as_unix_millis(),
        next_at_ms: operation.next_at.map(|at| at.as_unix_millis()),
        expires_at_ms: state
            .is_pending()
            .then(|| operation.expires_at.as_unix_millis()),
        ended_at_ms: operation.ended_at.map(|at| at.as_unix_millis()),
        sent: operation.counters.sent,
        counted: operation.counters.attempts,
        blocked: operation.is_blocked,
        conflict: is_conflict.then_some(ConflictSummary {
            rounds: operation.merges,
        }),
        attempts: None,
        delays: None,
        id: operation.id,
        kind: operation.kind,
        key: operation.destination,
        summary: operation.summary,
        order_key: operation.order_key,
        priority: operation.priority,
        backoff: operation.backoff,
        credential: operation.credential,
        trace_id: operation.trace_id,
    }
}

/// The backoff of an operation, with its name: its own if there still is one, else that of its type.
fn backoff_of<'a>(
    operation: &'a StoredOperation,
    settings: &'a Settings,
) -> (&'a str, &'a BackoffSettings) {
    let own = operation.backoff.as_deref();
    let own = own.and_then(|name| Some((name, settings.backoffs.get(name)?)));
    own.unwrap_or_else(|| {
        let name = &settings.operation(&operation.kind).backoff;
        (name, &settings.backoffs[name])
    })
}

fn delays_of(admin: &AdminState, operation: &StoredOperation) -> Delays {
    let configuration = admin.state.configuration();
    let (name, backoff) = backoff_of(operation, configuration.settings());
    let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let (min, max) = backoff.total_bounds();
    Delays {
        backoff: name.to_owned(),
        estimate_ms: millis(backoff.estimate_total()),
        min_ms: millis(min),
        max_ms: millis(max),
    }
}

fn attempt_body(attempt: AttemptRecord) -> OperationAttempt {
    OperationAttempt {
        at_ms: attempt.at.as_unix_millis(),
        phase: attempt.phase,
        status: attempt.status,
        latency_ms: millis(attempt.latency),
        wait_ms: millis(attempt.waited),
        reason: attempt.reason,
    }
}
