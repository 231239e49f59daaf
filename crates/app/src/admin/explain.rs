//! The decision trail of a request.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use policy::classify;
use policy::outcome::UpstreamResponse;
use serde::Deserialize;
use tidegate::call::{CallDecision, TrailStep};
use tidegate::{Clock, Timestamp};
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{Decision, DecisionKind, Explanation, TrailList, TrailSummary};
use super::problem::{Kind, Refused};
use super::query;
use crate::core::{millis, unix_millis};
use crate::gateway::{InvalidRequestId, RequestId, RequestTrail};

/// Every decision about one request
#[utoipa::path(
    get, operation_id = "explainRequest", path = "/api/v1/explain/{request_id}", tag = "requests", params(RequestPath),
    responses((status = 200, description = "Its decision trail", body = Explanation))
)]
pub(super) async fn explain(
    State(admin): State<Arc<AdminState>>,
    Path(RequestPath { request_id }): Path<RequestPath>,
) -> Result<Json<Explanation>, Refused> {
    let id: RequestId = request_id
        .parse()
        .map_err(|error: InvalidRequestId| Refused::new(Kind::BadRequest, error.to_string()))?;
    let trail = admin.trails.find(id);
    let clock = admin.state.limiter().clock();
    match trail {
        Some(trail) => Ok(Json(Explanation::new(&trail, clock))),
        None => {
            let keep = admin.state.configuration().settings().trails.keep;
            Err(Refused::not_found(format!(
                "there is no trail of request `{id}`; the server has those of the last {keep} requests (`trails.keep`), until the next restart"
            )))
        }
    }
}

/// The last requests that asked for permits of a gate
///
/// Newest first, without their decisions.
#[utoipa::path(
    get, operation_id = "listTrails", path = "/api/v1/explain", tag = "requests", params(TrailQuery),
    responses((status = 200, description = "The requests", body = TrailList))
)]
pub(super) async fn list(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<TrailList>, Refused> {
    let mut asked = TrailQuery {
        key: String::new(),
        limit: Some(50),
    };
    query::read(query.as_deref(), &["key", "limit"], |name, value| {
        Some(match name {
            "key" => {
                asked.key = value.to_owned();
                Ok(())
            }
            "limit" => query::limit(value).map(|limit| asked.limit = Some(limit)),
            _ => return None,
        })
    })?;
    let clock = admin.state.limiter().clock();
    let limit = asked.limit.unwrap_or(50);
    let found = admin.trails.recent(limit, |trail| {
        asked.key.is_empty() || concerns(trail, &asked.key)
    });
    let trails = found.iter().map(|trail| TrailSummary::new(trail, clock));
    Ok(Json(TrailList {
        trails: trails.collect(),
    }))
}

/// Did this request ask for a permit of this gate?
fn concerns(trail: &RequestTrail, key: &str) -> bool {
    let is_endpoint = || {
        let (pool, endpoint) = key.split_once('/')?;
        Some(*trail.route == *pool && trail.endpoint.as_deref() == Some(endpoint))
    };
    let mut steps = trail.decisions.steps().iter();
    let is_asked = steps.any(|step| match &step.decision {
        CallDecision::Waiting { key: asked, .. }
        | CallDecision::Admitted { key: asked, .. }
        | CallDecision::Refused { key: asked, .. }
        | CallDecision::Hedged { key: asked, .. } => **asked == *key,
        _ => false,
    });
    is_asked || is_endpoint().unwrap_or(false)
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct TrailQuery {
    /// What the gate is for; all requests if there is none
    #[param(example = "llm/a", required = false)]
    key: String,
    /// The most requests to list
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

impl TrailSummary {
    fn new(trail: &RequestTrail, clock: &Clock) -> Self {
        Self {
            id: trail.id.to_string(),
            at_ms: unix_millis(clock, trail.at),
            route: trail.route.to_string(),
            method: trail.method.to_string(),
            status: trail.status,
            endpoint: trail.endpoint.as_deref().map(str::to_owned),
            outcome: trail.outcome.as_str().to_owned(),
            attempts: trail.sent,
            waited_ms: millis(trail.decisions.waited()),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct RequestPath {
    /// The `Tidegate-Request-Id` of its response
    #[param(pattern = "^[0-9a-fA-F]{24}$", example = "8c1f03aa0000000000000007")]
    request_id: String,
}

impl Explanation {
    fn new(trail: &RequestTrail, clock: &Clock) -> Self {
        let steps = trail.decisions.steps().iter();
        Self {
            request: TrailSummary::new(trail, clock),
            steps: steps.map(|step| Decision::new(step, clock)).collect(),
            left_out: trail.decisions.left_out(),
        }
    }
}

impl Decision {
    fn new(step: &TrailStep, clock: &Clock) -> Self {
        let time = |at: Option<Timestamp>| at.map(|at| unix_millis(clock, at));
        let mut decision = Self {
            at_ms: unix_millis(clock, step.at),
            text: step.decision.to_string(),
            ..Self::default()
        };
        decision.kind = match &step.decision {
            CallDecision::Waiting { key, reason, until } => {
                decision.key = Some(key.to_string());
                decision.reason = Some(reason.to_string());
                decision.until_ms = time(*until);
                DecisionKind::Waiting
            }
            CallDecision::Admitted { key, waited } => {
                decision.key = Some(key.to_string());
                decision.waited_ms = Some(millis(*waited));
                DecisionKind::Admitted
            }
            CallDecision::Refused { key, reason, until } => {
                decision.key = Some(key.to_string());
                decision.reason = Some(reason.to_string());
                decision.until_ms = time(*until);
                DecisionKind::Refused
            }
            CallDecision::Settled {
                response,
                verdict,
                latency,
            } => {
                match response {
                    UpstreamResponse::Status(status) => decision.status = Some(*status),
                    UpstreamResponse::Failed { failure, .. } => {
                        decision.failure = Some(classify::failure(*failure).because.to_string());
                    }
                }
                decision.verdict = verdict.map(|verdict| verdict.as_str().to_owned());
                decision.latency_ms = Some(millis(*latency));
                DecisionKind::Answered
            }
            CallDecision::Hedged { key, after } => {
                decision.key = Some(key.to_string());
                decision.delay_ms = Some(millis(*after));
                DecisionKind::Hedged
            }
            CallDecision::Overtaken { key, after } => {
                decision.key = Some(key.to_string());
                decision.latency_ms = Some(millis(*after));
                DecisionKind::Overtaken
            }
            CallDecision::Unsent => DecisionKind::Unsent,
            CallDecision::Scheduled {
                until,
                delay,
                source,
                reason,
            } => {
                decision.until_ms = time(Some(*until));
                decision.delay_ms = Some(millis(*delay));
                decision.source = Some(source.as_str().to_owned());
                decision.reason = Some(reason.as_str().to_owned());
                DecisionKind::Scheduled
            }
            CallDecision::Refreshed { succeeded } => {
                let result = if *succeeded { "succeeded" } else { "failed" };
                decision.reason = Some(result.to_owned());
                DecisionKind::Refreshed
            }
            CallDecision::Over { reason } => {
                decision.reason = Some(reason.as_str().to_owned());
                DecisionKind::Over
            }
        };
        decision
    }
}
