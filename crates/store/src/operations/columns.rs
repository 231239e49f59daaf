//! How values of operations are written as columns, alike in every database.

use std::time::Duration;

use policy::item::TerminalReason;
use policy::operation::OperationState;
use serde_json::{Value, json};

use super::Headers;

/// One of each word.
pub(crate) const STATES: [OperationState; 7] = [
    OperationState::Available,
    OperationState::Running,
    OperationState::Retryable,
    OperationState::Completed,
    OperationState::Failed(TerminalReason::Expired),
    OperationState::Conflict,
    OperationState::Cancelled,
];

/// The state of a row, or why it is none.
pub(crate) fn state(word: &str, reason: Option<&str>) -> Result<OperationState, String> {
    let known = STATES.into_iter().find(|state| state.as_str() == word);
    let state = match known {
        Some(OperationState::Failed(_)) => reason
            .and_then(TerminalReason::named)
            .map(OperationState::Failed),
        other => other,
    };
    state.ok_or_else(|| format!("`{word}` with the reason {reason:?} is no state of an operation"))
}

/// A length of time in milliseconds, rounded up.
pub(crate) fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// The length of time of a column; what cannot be is none.
pub(crate) fn length(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// A list of pairs; a value that is no text is a list of its bytes.
pub(crate) fn headers_to_text(headers: &Headers) -> String {
    let pairs = headers
        .iter()
        .map(|(name, value)| match std::str::from_utf8(value) {
            Ok(text) => json!([name, text]),
            Err(_) => json!([name, value]),
        });
    Value::Array(pairs.collect()).to_string()
}

/// The headers of a column; `None` if it has something else.
pub(crate) fn headers_from_text(text: &str) -> Option<Headers> {
    let pair = |pair: Value| -> Option<(String, Vec<u8>)> {
        let mut pair = pair.as_array()?.iter();
        let name = pair.next()?.as_str()?.to_owned();
        let value = match pair.next()? {
            Value::String(text) => text.clone().into_bytes(),
            bytes => {
                let bytes = bytes.as_array()?.iter();
                bytes
                    .map(|byte| u8::try_from(byte.as_u64()?).ok())
                    .collect::<Option<_>>()?
            }
        };
        Some((name, value))
    };
    let list: Vec<Value> = serde_json::from_str(text).ok()?;
    list.into_iter().map(pair).collect()
}
