//! Reading the bodies of calls: a new operation, and the resolution of a conflict.

use http::HeaderMap;
use policy::operation::Resolution;
use policy::setting;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::admin::api::AdminState;
use crate::admin::bodies::{HeaderValues, ResolveAction};
use crate::admin::body::{Documents, Fields, MAX_BODY, integer};
use crate::admin::problem::Refused;
use crate::admin::query::quoted;
use crate::state::{AcceptError, OperationRequest};

/// The longest body of a call with so many documents, each as long as the most generous type allows.
/// A character of a string takes up to six bytes as JSON.
pub(super) fn max_length(admin: &AdminState, documents: u64) -> usize {
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
pub(super) fn read_new(
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

pub(super) fn read_resolution(
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
