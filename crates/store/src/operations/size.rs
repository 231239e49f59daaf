//! How much memory a call holds until it is written.

use super::{ClaimResult, ExportedOperation, Headers, RuleDecision, StoredRequest};

/// The bytes of a request.
pub(crate) fn request_bytes(request: &StoredRequest) -> usize {
    let base = request.base.as_ref().map_or(0, Vec::len);
    request.body.len() + base + request.url.len() + header_bytes(&request.headers)
}

/// The bytes of what is stored with a result.
pub(crate) fn result_bytes(result: &ClaimResult) -> usize {
    match result {
        ClaimResult::Completed(Some(response)) => {
            response.body.len() + header_bytes(&response.headers)
        }
        ClaimResult::Conflict(_, Some(RuleDecision::Send(change))) => {
            request_bytes(&change.request)
        }
        ClaimResult::Conflict(conflict, _) => conflict.theirs.as_ref().map_or(0, Vec::len),
        ClaimResult::Completed(None)
        | ClaimResult::Retry(_)
        | ClaimResult::Failed(_)
        | ClaimResult::Released => 0,
    }
}

/// The bytes of an operation on its way to another queue.
pub(crate) fn exported_bytes(operation: &ExportedOperation) -> usize {
    let response = operation.response.as_ref();
    let conflict = operation.conflict.as_ref();
    request_bytes(&operation.request)
        + response.map_or(0, |response| response.body.len())
        + conflict.map_or(0, |conflict| conflict.theirs.as_ref().map_or(0, Vec::len))
}

fn header_bytes(headers: &Headers) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}
