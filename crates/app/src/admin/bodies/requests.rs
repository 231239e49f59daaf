//! The bodies of calls about single requests.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Every decision about a request
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The request
    #[serde(flatten)]
    pub request: TrailSummary,
    /// Every decision in order
    pub steps: Vec<Decision>,
    /// How many steps are missing before the last two
    pub left_out: u32,
}

/// One decision
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// When, in milliseconds of Unix time
    pub at_ms: i64,
    /// What was decided
    pub kind: DecisionKind,
    /// As a sentence
    pub text: String,
    /// The gate or pool that decided
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// Why, in a word
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// Until when, in milliseconds of Unix time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub until_ms: Option<i64>,
    /// How long it had waited
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub waited_ms: Option<f64>,
    /// The status of the upstream's response
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// Why there was no response
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub failure: Option<String>,
    /// The class of the outcome
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub verdict: Option<String>,
    /// From sending to the response's head, or to the failure
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub latency_ms: Option<f64>,
    /// How long until it is sent again
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub delay_ms: Option<f64>,
    /// Where that delay comes from
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub source: Option<String>,
}

/// What was decided
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// To wait in line
    Waiting,
    /// To send
    Admitted,
    /// Not to send
    Refused,
    /// An attempt got a response or failed
    Answered,
    /// To send beside an attempt that is not answered yet
    Hedged,
    /// An attempt was dropped, because another was answered first
    Overtaken,
    /// An attempt was not sent
    Unsent,
    /// To send again at a time
    Scheduled,
    /// The credential was refreshed
    Refreshed,
    /// The request has ended
    #[default]
    Over,
}

/// Requests that asked for permits of a gate
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrailList {
    /// Newest first
    pub trails: Vec<TrailSummary>,
}

/// A request, without its decisions
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrailSummary {
    /// Its `Tidegate-Request-Id`
    pub id: String,
    /// When it arrived, in milliseconds of Unix time
    pub at_ms: i64,
    /// The pool it was for; empty if there is none
    pub route: String,
    /// Its method
    pub method: String,
    /// The status of its response
    #[schema(minimum = 100, maximum = 999)]
    pub status: u16,
    /// The endpoint that responded; null if none did
    #[schema(required)]
    pub endpoint: Option<String>,
    /// How it ended: `success`, a terminal reason, or why Tidegate itself responded
    pub outcome: String,
    /// How often it was sent
    pub attempts: u32,
    /// Time spent waiting, in lines and between attempts
    pub waited_ms: f64,
}
