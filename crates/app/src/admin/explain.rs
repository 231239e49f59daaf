//! Why a request went the way it did: its decision trail.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use policy::classify;
use policy::outcome::Answer;
use serde::Serialize;
use tidegate::call::{CallDecision, TrailStep};
use tidegate::{Clock, Timestamp};
use utoipa::{IntoParams, ToSchema};

use super::api::AdminState;
use super::problem::{Kind, Refused};
use crate::core::{millis, unix_millis};
use crate::gateway::{InvalidRequestId, RequestId, RequestTrail};

/// Every decision about one request
#[utoipa::path(
    get, operation_id = "explainRequest", path = "/api/v1/explain/{request_id}", tag = "requests", params(Request),
    responses((status = 200, description = "Its decision trail", body = Explained))
)]
pub(super) async fn explain(
    State(desk): State<Arc<AdminState>>,
    Path(id): Path<String>,
) -> Result<Json<Explained>, Refused> {
    let id: RequestId = id
        .parse()
        .map_err(|error: InvalidRequestId| Refused::new(Kind::BadRequest, error.to_string()))?;
    let trail = desk.trails.find(id);
    let clock = desk.state.limiter().clock();
    match trail {
        Some(trail) => Ok(Json(Explained::new(&trail, clock))),
        None => {
            let keep = desk.state.configuration().settings().trails.keep;
            Err(Refused::not_found(format!(
                "nothing is known of request `{id}`; trails of the last {keep} requests are kept (`trails.keep`), until the next restart"
            )))
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes what `explain` reads")]
struct Request {
    /// The `Tidegate-Request-Id` of its answer
    #[param(pattern = "^[0-9a-fA-F]{24}$", example = "8c1f03aa0000000000000007")]
    request_id: String,
}

/// What was decided about a request
#[derive(Serialize, ToSchema)]
pub(super) struct Explained {
    /// Its `Tidegate-Request-Id`
    id: String,
    /// When it came, in milliseconds of Unix time
    at_ms: i64,
    /// The pool it was for
    route: String,
    method: String,
    /// The status it was answered with
    #[schema(minimum = 100, maximum = 999)]
    status: u16,
    /// The endpoint that answered; null if none did
    #[schema(required)]
    endpoint: Option<String>,
    /// How it ended: `success`, a terminal reason, or why the answer was ours
    outcome: String,
    /// How often it was sent
    attempts: u32,
    /// Time spent waiting, in lines and between attempts
    waited_ms: f64,
    /// Every decision in order
    steps: Vec<Decision>,
    /// How many steps are missing before the last two
    left_out: u32,
}

impl Explained {
    fn new(trail: &RequestTrail, clock: &Clock) -> Self {
        let steps = trail.decisions.steps().iter();
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
            steps: steps.map(|step| Decision::new(step, clock)).collect(),
            left_out: trail.decisions.left_out(),
        }
    }
}

/// One decision
#[derive(Default, Serialize, ToSchema)]
struct Decision {
    /// When, in milliseconds of Unix time
    at_ms: i64,
    #[schema(inline)]
    kind: DecisionKind,
    /// In words
    text: String,
    /// The gate or pool that decided
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key: Option<String>,
    /// Why, in a word
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Until when, in milliseconds of Unix time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    until_ms: Option<i64>,
    /// How long it had waited
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    waited_ms: Option<f64>,
    /// The status of the upstream's answer
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    status: Option<u16>,
    /// How no answer came
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failure: Option<String>,
    /// The class of the outcome
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    verdict: Option<String>,
    /// From sending to the answer's head, or to the failure
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    latency_ms: Option<f64>,
    /// How long until it is sent again
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    delay_ms: Option<f64>,
    /// Where that delay comes from
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    source: Option<String>,
}

/// What was decided
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum DecisionKind {
    Waiting,
    Admitted,
    Refused,
    Answered,
    Unsent,
    Scheduled,
    Refreshed,
    #[default]
    Over,
}

impl Decision {
    fn new(step: &TrailStep, clock: &Clock) -> Self {
        let time = |at: Option<Timestamp>| at.map(|at| unix_millis(clock, at));
        let told = Self {
            at_ms: unix_millis(clock, step.at),
            text: step.decision.to_string(),
            ..Self::default()
        };
        match &step.decision {
            CallDecision::Waiting { key, reason, until } => Self {
                kind: DecisionKind::Waiting,
                key: Some(key.to_string()),
                reason: Some(reason.to_string()),
                until_ms: time(*until),
                ..told
            },
            CallDecision::Admitted { key, waited } => Self {
                kind: DecisionKind::Admitted,
                key: Some(key.to_string()),
                waited_ms: Some(millis(*waited)),
                ..told
            },
            CallDecision::Refused { key, reason, until } => Self {
                kind: DecisionKind::Refused,
                key: Some(key.to_string()),
                reason: Some(reason.to_string()),
                until_ms: time(*until),
                ..told
            },
            CallDecision::Answered {
                answer,
                verdict,
                latency,
            } => Self {
                kind: DecisionKind::Answered,
                verdict: verdict.map(|verdict| verdict.as_str().to_owned()),
                latency_ms: Some(millis(*latency)),
                ..told.with_answer(answer)
            },
            CallDecision::Unsent => Self {
                kind: DecisionKind::Unsent,
                ..told
            },
            CallDecision::Scheduled {
                until,
                delay,
                source,
                reason,
            } => Self {
                kind: DecisionKind::Scheduled,
                until_ms: time(Some(*until)),
                delay_ms: Some(millis(*delay)),
                source: Some(source.as_str().to_owned()),
                reason: Some(reason.as_str().to_owned()),
                ..told
            },
            CallDecision::Refreshed { succeeded } => Self {
                kind: DecisionKind::Refreshed,
                reason: Some(if *succeeded { "succeeded" } else { "failed" }.to_owned()),
                ..told
            },
            CallDecision::Over { reason } => Self {
                kind: DecisionKind::Over,
                reason: Some(reason.as_str().to_owned()),
                ..told
            },
        }
    }

    fn with_answer(self, answer: &Answer) -> Self {
        match answer {
            Answer::Status(status) => Self {
                status: Some(*status),
                ..self
            },
            Answer::Failed { failure, .. } => Self {
                failure: Some(classify::failure(*failure).because.to_string()),
                ..self
            },
        }
    }
}
