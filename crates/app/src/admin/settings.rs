//! Settings that a console needs to show what the server does.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use policy::duration::Exact;

use super::api::AdminState;
use super::bodies::{GateDefaults, JobBounds, OperationTypes, PollTimes, ShownSettings};
use crate::jobs::{MAX_DEPTH, MAX_URLS};
use crate::settings::{DEFAULT_OPERATION, WEBHOOK_OPERATION};

/// Settings that a console needs
///
/// Those of the present configuration; a reload changes them.
#[utoipa::path(
    get, operation_id = "showSettings", path = "/api/v1/settings", tag = "health",
    responses((status = 200, description = "The settings", body = ShownSettings))
)]
pub(super) async fn show(State(admin): State<Arc<AdminState>>) -> Json<ShownSettings> {
    let configuration = admin.state.configuration();
    let settings = configuration.settings();
    let poll = &settings.poll;
    let others = settings.operations.keys().map(String::as_str);
    let others = others.filter(|name| *name != DEFAULT_OPERATION);
    let mut kinds = settings.operations.values();
    let has_webhook = kinds.any(|kind| kind.webhook.is_some());
    let types = std::iter::once(DEFAULT_OPERATION)
        .chain(others)
        .chain(has_webhook.then_some(WEBHOOK_OPERATION));
    Json(ShownSettings {
        poll: PollTimes {
            early_ms: millis(poll.early()),
            middle_ms: millis(poll.middle()),
            late_ms: millis(poll.late()),
            first_ms: millis(poll.first()),
            base_ms: millis(poll.base()),
            max_ms: millis(poll.max()),
            give_up_after_ms: millis(poll.give_up_after()),
            other_retries: poll.other_retries(),
        },
        jobs: JobBounds {
            retain: Exact(settings.jobs.retain).to_string(),
            max_urls: settings.jobs.max_urls,
            max_given_urls: MAX_URLS,
            depth: settings.fetch.depth,
            max_depth: MAX_DEPTH,
        },
        operations: OperationTypes {
            types: types.map(str::to_owned).collect(),
        },
        gate: GateDefaults {
            throttled_after_ms: millis(settings.gates.default_value().gate.throttled_after()),
        },
    })
}

/// Whole milliseconds, rounded up: a wait must not get shorter.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
