//! Liveness, readiness and metrics.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use super::api::AdminState;
use super::bodies::{Health, HealthStatus, Version};
use crate::metrics::Metrics;

/// Is it alive?
#[utoipa::path(
    get, operation_id = "showHealth", path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "It is", body = Health))
)]
pub(super) async fn healthz() -> Json<Health> {
    Json(Health {
        status: HealthStatus::Ok,
        reason: None,
    })
}

/// May it be sent requests?
#[utoipa::path(
    get, operation_id = "showReadiness", path = "/readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "It may; degraded: operations wait for their database, or gates continue with the last share of this node", body = Health),
        (status = 503, description = "It may not: it is stopping, or cannot store what must survive a restart", body = Health)
    )
)]
pub(super) async fn readyz(State(admin): State<Arc<AdminState>>) -> Response {
    let health = readiness(&admin);
    // Without the database that all nodes share, none would be sent requests.
    let is_own = admin.state.store().own_state().degraded.is_some();
    let status = match health.status {
        HealthStatus::Degraded if !is_own => StatusCode::OK,
        HealthStatus::Ok => StatusCode::OK,
        HealthStatus::Draining | HealthStatus::Degraded => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(health)).into_response()
}

/// May it be sent requests?
pub(super) fn readiness(admin: &AdminState) -> Health {
    if admin.is_draining() {
        let reason = Some("requests in flight are finished, new ones are refused".to_owned());
        let status = HealthStatus::Draining;
        Health { status, reason }
    } else if let Some(problem) = store_problem(admin) {
        let (status, reason) = (HealthStatus::Degraded, Some(problem));
        Health { status, reason }
    } else {
        let (status, reason) = (HealthStatus::Ok, None);
        Health { status, reason }
    }
}

/// What does not work because of a store, worst first.
pub(super) fn store_problem(admin: &AdminState) -> Option<String> {
    let store = admin.state.store();
    if let Some(error) = store.own_state().degraded {
        return Some(format!("what is learned cannot be stored: {error}"));
    }
    if let Some(error) = store.state().degraded {
        return Some(format!(
            "operations wait, and no new ones are accepted: {error}"
        ));
    }
    let core = admin.state.core();
    let error = core.fleet()?.view(core.clock().now()).degraded?;
    Some(format!(
        "gates continue with the last share of this node: {error}"
    ))
}

/// The version, and which process responds
#[utoipa::path(
    get, operation_id = "showVersion", path = "/version", tag = "health",
    responses((status = 200, description = "The version", body = Version))
)]
pub(super) async fn version(State(admin): State<Arc<AdminState>>) -> Json<Version> {
    Json(admin.version())
}

/// Every metric, as Prometheus reads them
#[utoipa::path(
    get, operation_id = "showMetrics", path = "/metrics", tag = "health",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics(State(admin): State<Arc<AdminState>>) -> Response {
    let text = admin.state.core().metrics().render();
    with_type(text, Metrics::CONTENT_TYPE)
}

/// A text that is JSON already.
pub(super) fn json(text: String) -> Response {
    with_type(text, "application/json")
}

fn with_type(text: String, kind: &'static str) -> Response {
    let mut answer = Response::new(Body::from(text));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
