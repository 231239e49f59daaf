//! The body of the call about settings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Settings that a console needs; no secret is among them
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShownSettings {
    /// `[poll]`: how the status of a job is followed
    pub poll: PollTimes,
    /// `[jobs]`, and the bounds of a request for one
    pub jobs: JobBounds,
    /// `[operation.TYPE]`
    pub operations: OperationTypes,
    /// `[gate]`
    pub gate: GateDefaults,
}

/// How the status of a job is followed
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PollTimes {
    /// Between two requests while progress is below 30
    pub early_ms: u64,
    /// While it is below 70
    pub middle_ms: u64,
    /// From 70 on
    pub late_ms: u64,
    /// While nothing is known of the job
    pub first_ms: u64,
    /// The wait after the first 429; it doubles with each further one in a row
    pub base_ms: u64,
    /// The longest wait after a 429, unless the server names a longer one
    pub max_ms: u64,
    /// Without any success for longer than this, polling ends
    pub give_up_after_ms: u64,
    /// How often in a row other errors are retried
    pub other_retries: u32,
}

/// The bounds of jobs
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobBounds {
    /// How long finished jobs and their reports are stored
    #[schema(example = "30d")]
    pub retain: String,
    /// How many URLs a job fetches at most
    pub max_urls: u32,
    /// How many URLs a request for a job may name
    pub max_given_urls: u32,
    /// How many links away from the given URLs a crawl follows, unless its request says otherwise
    pub depth: u32,
    /// The most that a request may say
    pub max_depth: u32,
}

/// The types of operations
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationTypes {
    /// Their names: `default`, the others, and `webhook` if there is one
    #[schema(example = json!(["default", "analytics"]))]
    pub types: Vec<String>,
}

/// The defaults of gates
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GateDefaults {
    /// A wait longer than this counts as throttled
    pub throttled_after_ms: u64,
}
