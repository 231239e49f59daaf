//! What an operation sends after its conflict was resolved, by a person or by a merge rule.

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use policy::operation::{Operation, OperationEvent, Resolution};
use store::operations::{
    Decision, DecisionError, RequestChange, StoredConflict, StoredOperation, StoredRequest,
};

use super::intake::random_bytes;
use super::{OperationError, State};

impl State {
    /// Resolves the conflict of an operation as a person decided; `body` is what to send instead, for
    /// [`Resolution::Replace`].
    ///
    /// # Errors
    ///
    /// If it is in no conflict, or if that cannot be stored. Nothing has changed then.
    pub async fn resolve_operation(
        &self,
        id: &str,
        resolution: Resolution,
        body: Option<Vec<u8>>,
    ) -> Result<StoredOperation, OperationError> {
        let event = OperationEvent::Resolve(resolution);
        let queue = self.operations();
        let operation = queue.get(id).await?.ok_or(DecisionError::Unknown)?;
        Operation::restore(operation.state, operation.merges)
            .apply(event)
            .map_err(DecisionError::from)?;
        if let Some(body) = &body {
            self.check_length(&operation, body)?;
        }
        let request = match resolution {
            Resolution::Discard => None,
            Resolution::Resend | Resolution::Replace => {
                let conflict = queue.conflict(operation.number).await?;
                let request = queue.request(operation.number).await?;
                let request = request.ok_or(DecisionError::Unknown)?;
                Some(resolved_request(
                    &operation,
                    request,
                    conflict.as_ref(),
                    body,
                ))
            }
        };
        self.decide_operation(Decision {
            id: operation.id,
            now: self.clock().wall(),
            event,
            request,
        })
        .await
    }

    fn check_length(&self, operation: &StoredOperation, body: &[u8]) -> Result<(), OperationError> {
        let configuration = self.configuration();
        let most = configuration.settings().operation(&operation.kind).max_body;
        let length = body.len();
        if length as u64 <= most {
            return Ok(());
        }
        let kind = operation.kind.clone();
        Err(OperationError::BodyTooLarge { length, most, kind })
    }
}

/// The request of `operation` with what is known about its conflict, and with another body if there
/// is one.
///
/// - **The version of the server's document becomes `If-Match`**, in place of every precondition that
///   the request had: those have failed. Without a known version they stay as they are, so that
///   nothing is overwritten unseen.
/// - **Another body has a new idempotency key**, or the server would respond from its memory of the
///   old one. The same body keeps its key.
pub fn resolved_request(
    operation: &StoredOperation,
    mut request: StoredRequest,
    conflict: Option<&StoredConflict>,
    body: Option<Vec<u8>>,
) -> RequestChange {
    if let Some(etag) = conflict.and_then(|conflict| conflict.etag.as_ref()) {
        request.headers.retain(|(name, _)| !is_precondition(name));
        let if_match = (IF_MATCH.to_string(), etag.clone().into_bytes());
        request.headers.push(if_match);
    }
    let idempotency_key = match body {
        Some(body) => {
            request.body = body;
            new_key(operation)
        }
        None => operation.idempotency_key.clone(),
    };
    RequestChange {
        request,
        idempotency_key,
    }
}

fn is_precondition(name: &str) -> bool {
    [
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_UNMODIFIED_SINCE,
    ]
    .iter()
    .any(|known| name.eq_ignore_ascii_case(known.as_str()))
}

/// The id, so that people find the operation by its key, and 64 random bits.
fn new_key(operation: &StoredOperation) -> String {
    let random = u64::from_be_bytes(random_bytes());
    format!("{}.{random:016x}", operation.id)
}

#[cfg(test)]
mod tests {
    use policy::operation::OperationState;
    use policy::time::WallTime;
    use store::operations::Counters;

    use super::*;

    fn operation() -> StoredOperation {
        let at = WallTime::from_unix_millis(0);
        StoredOperation {
            number: 1,
            id: "op_1".to_owned(),
            kind: "default".to_owned(),
            destination: "a.example.com".to_owned(),
            summary: "PUT https://a.example.com/…".to_owned(),
            idempotency_key: "first".to_owned(),
            client: String::new(),
            credential: None,
            backoff: None,
            order_key: None,
            priority: 0,
            trace_id: None,
            state: OperationState::Conflict,
            merges: 0,
            counters: Counters::default(),
            accepted_at: at,
            next_at: None,
            expires_at: at,
            ended_at: Some(at),
            is_blocked: false,
            unblocked: None,
            is_reported: false,
        }
    }

    fn request(headers: &[(&str, &str)]) -> StoredRequest {
        let headers = headers.iter();
        StoredRequest {
            method: "PUT".to_owned(),
            url: "https://a.example.com/1".to_owned(),
            headers: headers
                .map(|(name, value)| (String::from(*name), value.as_bytes().to_vec()))
                .collect(),
            body: b"ours".to_vec(),
            ..StoredRequest::default()
        }
    }

    fn conflict(etag: Option<&str>) -> StoredConflict {
        StoredConflict {
            theirs: None,
            etag: etag.map(str::to_owned),
            fetched_at: WallTime::from_unix_millis(0),
        }
    }

    fn names(change: &RequestChange) -> Vec<String> {
        let headers = change.request.headers.iter();
        headers
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
            .collect()
    }

    #[test]
    fn replaces_preconditions_by_the_known_version() {
        let request = request(&[
            ("if-match", "\"1\""),
            ("x-a", "b"),
            ("if-none-match", "*"),
            ("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ]);
        let known = conflict(Some("\"2\""));
        let change = resolved_request(&operation(), request, Some(&known), None);
        assert_eq!(names(&change), ["x-a: b", "if-match: \"2\""]);
        assert_eq!(change.idempotency_key, "first");
        assert_eq!(change.request.body, b"ours");
    }

    #[test]
    fn leaves_preconditions_when_no_version_is_known() {
        for known in [None, Some(conflict(None))] {
            let request = request(&[("if-match", "\"1\"")]);
            let change = resolved_request(&operation(), request, known.as_ref(), None);
            assert_eq!(names(&change), ["if-match: \"1\""]);
        }
    }

    #[test]
    fn gives_another_body_a_key_of_its_own() {
        let known = conflict(Some("\"2\""));
        let replaced = || {
            let body = Some(b"merged".to_vec());
            resolved_request(&operation(), request(&[]), Some(&known), body)
        };
        let (first, second) = (replaced(), replaced());
        assert_eq!(first.request.body, b"merged");
        assert_eq!(names(&first), ["if-match: \"2\""]);
        assert!(first.idempotency_key.starts_with("op_1."));
        assert_ne!(first.idempotency_key, second.idempotency_key);
    }
}
