//! How much memory a call holds until it is written.

use super::{ClaimResult, Headers, RuleDecision, StoredRequest};

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

fn header_bytes(headers: &Headers) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}
