//! Operations, attempts and documents as bodies of responses.

use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::operation::OperationState;
use serde_json::value::RawValue;
use store::operations::{AttemptRecord, StoredOperation};

use crate::admin::api::AdminState;
use crate::admin::bodies::{ConflictSummary, Delays, Operation, OperationAttempt};
use crate::admin::waiting::Waits;
use crate::core::millis;
use crate::settings::Settings;
use crate::state::is_replay_safe;

pub(super) fn body_of(admin: &AdminState, operation: StoredOperation) -> Operation {
    let settings = Arc::clone(admin.state.configuration().settings());
    operation_body(operation, &settings, &mut Waits::new(&admin.state))
}

pub(super) fn bodies_of(admin: &AdminState, operations: Vec<StoredOperation>) -> Vec<Operation> {
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

pub(super) fn delays_of(admin: &AdminState, operation: &StoredOperation) -> Delays {
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

pub(super) fn attempt_body(attempt: AttemptRecord) -> OperationAttempt {
    OperationAttempt {
        at_ms: attempt.at.as_unix_millis(),
        phase: attempt.phase,
        status: attempt.status,
        latency_ms: millis(attempt.latency),
        wait_ms: millis(attempt.waited),
        reason: attempt.reason,
    }
}

/// A document as it is shown: as JSON if it is JSON, else as a string.
pub(super) fn document(bytes: &[u8]) -> Box<RawValue> {
    if let Ok(document) = serde_json::from_slice::<Box<RawValue>>(bytes) {
        return document;
    }
    let text = String::from_utf8_lossy(bytes);
    serde_json::value::to_raw_value(&text).expect("a string can be written as JSON")
}
