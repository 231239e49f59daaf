//! The bodies of calls about operations.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::schema;

/// A request to deliver
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddOperation {
    /// The name of a section `[operation.TYPE]`; by default `default`
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = known_type, required = false)]
    pub kind: Option<String>,
    /// The method
    #[schema(pattern = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,32}$", example = "POST")]
    pub method: String,
    /// A URL, or `/POOL/rest` for a pool of the gateway
    #[schema(
        max_length = 8192,
        pattern = r"^(https?:/)?/[A-Za-z0-9._~%/?&=:@!$'()*+,;-]+$",
        example = "/llm/orders"
    )]
    pub url: String,
    /// Names and values; a list repeats a header
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = headers, required = false)]
    pub headers: BTreeMap<String, HeaderValues>,
    /// A string is sent as it is, any other value as JSON; null: no body. A JSON object or list gets the
    /// `content-type` `application/json`, unless the headers have one
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, required = false)]
    pub body: Option<Box<RawValue>>,
    /// Names the request to the server, on every attempt; by default the operation's id. Posting the
    /// same request under the same key again returns the same operation. The header
    /// `Idempotency-Key` of this call counts as well
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^[\t -~]{1,255}$", nullable = false)]
    pub idempotency_key: Option<String>,
    /// The name of a section `[credential.NAME]`, instead of the type's
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = known_credential, required = false)]
    pub credential: Option<String>,
    /// The name of a section `[backoff.NAME]`, instead of the type's
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = known_backoff, required = false)]
    pub backoff: Option<String>,
    /// How long until it expires, instead of the type's, such as `30s` or `24h`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[1-9][0-9]{0,4}(ms|s|m|h|d)$", nullable = false)]
    pub expires_after: Option<String>,
    /// Operations with the same order key are sent one at a time, oldest first
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255, nullable = false)]
    pub order_key: Option<String>,
    /// Higher leaves first; by default 0
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = -100, maximum = 100, required = false)]
    pub priority: i32,
    /// The document that the edit started from, for a conflict; as `body`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, required = false)]
    pub base: Option<Box<RawValue>>,
    /// The URL whose GET returns what the server has, for a conflict
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 8192,
        pattern = r"^https?://[A-Za-z0-9._~%/?&=:@!$'()*+,;-]+$",
        nullable = false
    )]
    pub resource: Option<String>,
}

/// The values of a header
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HeaderValues {
    /// One
    One(String),
    /// Several, in order
    Several(Vec<String>),
}

/// An operation that is stored
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedOperation {
    /// Names it in every other call
    #[schema(example = "op_01jcrz4m3v8k2n6t0q5w9x7y1b")]
    pub id: String,
    /// Where it is in its life
    pub state: StateName,
}

/// Operations, newest first
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// Newest first
    pub operations: Vec<Operation>,
    /// `cursor` of the next page; null on the last one
    #[schema(required)]
    pub next_cursor: Option<String>,
    /// How many operations there are in each state, whatever the filter
    pub counts: OperationCounts,
}

/// How many operations there are in each state
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationCounts {
    /// Waiting for a worker
    pub available: u64,
    /// Being sent
    pub running: u64,
    /// Waiting for a time, then sent again
    pub retryable: u64,
    /// Delivered
    pub completed: u64,
    /// Not sent again by themselves
    pub failed: u64,
    /// Waiting for a decision
    pub conflict: u64,
    /// Cancelled by a person
    pub cancelled: u64,
}

impl From<store::operations::OperationCounts> for OperationCounts {
    fn from(counts: store::operations::OperationCounts) -> Self {
        Self {
            available: counts.available,
            running: counts.running,
            retryable: counts.retryable,
            completed: counts.completed,
            failed: counts.failed,
            conflict: counts.conflict,
            cancelled: counts.cancelled,
        }
    }
}

/// An operation, without what it sends
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Names it in every other call
    pub id: String,
    /// Its type
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it is in its life
    pub state: StateName,
    /// Why it is not sent by itself any more; null while it is, and after it was delivered
    #[schema(required)]
    pub reason: Option<Reason>,
    /// Where it is sent: the key of a gate, or `/` and the name of a pool
    pub key: String,
    /// Method, scheme and host
    pub summary: String,
    /// When it was accepted, in milliseconds of Unix time
    pub accepted_at_ms: i64,
    /// When it is due; null in states in which it is not sent by itself
    #[schema(required)]
    pub next_at_ms: Option<i64>,
    /// When it expires; null once nothing happens to it by itself
    #[schema(required)]
    pub expires_at_ms: Option<i64>,
    /// When it reached a state that it does not leave by itself; null before
    #[schema(required)]
    pub ended_at_ms: Option<i64>,
    /// How often it was sent since it was last started
    pub sent: u32,
    /// How many of these count: a wait that the server names does not use up an attempt
    pub counted: u32,
    /// How many may count, then it has failed
    pub max_attempts: u32,
    /// Why it is not sent now; null in states in which it is not sent by itself, and if nothing is
    /// known to delay it
    #[schema(required)]
    pub waiting_for: Option<WaitingFor>,
    /// Does a second send do no harm?
    pub replay_safe: bool,
    /// Does an older operation with the same order key come first?
    pub blocked: bool,
    /// Operations with the same order key are sent one at a time; null without one
    #[schema(required)]
    pub order_key: Option<String>,
    /// Higher leaves first
    pub priority: i32,
    /// Its own backoff; null: that of its type
    #[schema(required)]
    pub backoff: Option<String>,
    /// The name of its credential; null without one
    #[schema(required)]
    pub credential: Option<String>,
    /// Connects lines of the log
    #[schema(required)]
    pub trace_id: Option<String>,
    /// Its conflict; null if it is in none
    #[schema(required)]
    pub conflict: Option<ConflictSummary>,
    /// The last 100 attempts, oldest first; not in lists
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub attempts: Option<Vec<OperationAttempt>>,
    /// How long it may wait between attempts; not in lists
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub delays: Option<Delays>,
}

/// Why an operation is not sent now
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingFor {
    /// In a word
    pub reason: WaitReason,
    /// The gate, or `/` and the name of the pool
    pub key: String,
    /// Until when, in milliseconds of Unix time; null if that is not known
    #[schema(required)]
    pub until_ms: Option<i64>,
}

/// How long an operation may wait between its attempts, if the server names no wait
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delays {
    /// The name of its backoff: its own, or that of its type
    pub backoff: String,
    /// The usual estimate: all delays before jitter and maximum, with the one after the last attempt
    pub estimate_ms: u64,
    /// The shortest that all waits can be together
    pub min_ms: u64,
    /// The longest
    pub max_ms: u64,
}

/// A conflict, without its documents
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConflictSummary {
    /// How often a rule has merged it, at most 3 times
    pub rounds: u8,
}

/// One attempt of an operation
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationAttempt {
    /// When it was sent, in milliseconds of Unix time
    pub at_ms: i64,
    /// How far it got
    pub phase: String,
    /// The status of the response; null without one
    #[schema(required)]
    pub status: Option<u16>,
    /// From sending to the response's head, or to the failure
    pub latency_ms: f64,
    /// How long it waited before, since it was due
    pub wait_ms: f64,
    /// The verdict, or the failure
    pub reason: String,
}

/// The documents of a conflict, as JSON where they are JSON, else as strings; null if unknown
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Conflict {
    /// What the edit started from
    #[schema(value_type = Option<Value>, required)]
    pub base: Option<Box<RawValue>>,
    /// What the operation sends
    #[schema(value_type = Option<Value>, required)]
    pub ours: Option<Box<RawValue>>,
    /// What the server has
    #[schema(value_type = Option<Value>, required)]
    pub theirs: Option<Box<RawValue>>,
    /// When that was fetched, or when the conflict was found, in milliseconds of Unix time
    pub fetched_ms: i64,
}

/// What becomes of a conflict
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveOperation {
    /// What to do
    pub action: ResolveAction,
    /// `replace`: what to send instead; as `body` of a new operation
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, required = false)]
    pub body: Option<Box<RawValue>>,
}

/// Which operations a bulk action is for, and whether to change them
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkAction {
    /// Which operations
    pub filter: BulkFilter,
    /// Count only, and change nothing
    #[serde(default)]
    #[schema(required = false)]
    pub dry_run: bool,
    /// `retry`: also those that are not replay safe, which the server may act on twice
    #[serde(default)]
    #[schema(required = false)]
    pub include_unsafe: bool,
    /// `next_cursor` of the call before
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[1-9a-f][0-9a-f]{0,14}$", nullable = false)]
    pub cursor: Option<String>,
}

/// Which operations; what is not named is any
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BulkFilter {
    /// `retry`: `failed`, which is the default, `retryable` or `cancelled`; `cancel`: any but
    /// `completed` and `cancelled`, and required. With `ids`, any of these by default
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub state: Option<StateName>,
    /// A type
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, nullable = false)]
    pub kind: Option<String>,
    /// The reason of failed ones
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<Reason>,
    /// Where they are sent
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, nullable = false)]
    pub key: Option<String>,
    /// What their ids begin with
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, nullable = false)]
    pub id: Option<String>,
    /// Only these
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = ids, required = false)]
    pub ids: Option<Vec<String>>,
}

/// What a bulk action did
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// Operations that match the filter, or that `ids` name
    pub matched: u64,
    /// Operations that would be changed by the same call without `dry_run`, or that were changed
    pub will: u64,
    /// Operations that were changed; none in a dry run
    pub changed: u64,
    /// How many were left out, by reason
    pub left_out: Vec<LeftOut>,
    /// The first ten that match, as they are now
    pub sample: Vec<Operation>,
    /// Was nothing to be changed?
    pub dry_run: bool,
    /// `cursor` of the call for the rest, after 10 000 operations; null if there is no rest
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// Operations that a bulk action leaves out
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// Why
    pub reason: LeftOutReason,
    /// How many
    pub count: u64,
}

words! {
    /// Why an operation is not sent now
    WaitReason {
        /// Its own delay after the last attempt
        Backoff = "backoff",
        /// An older operation with the same order key comes first
        Order = "order",
        /// Its gate is held
        Hold = "hold",
        /// The breaker of its gate is open
        BreakerOpen = "breaker_open",
        /// The breaker of its gate lets a few probes through
        HalfOpen = "half_open",
        /// A person, or a used-up quota, isolated its gate
        Isolated = "isolated",
        /// It waits for its turn at the gate
        Rate = "rate",
        /// Every endpoint of its pool is paused
        Pause = "pause",
        /// Every endpoint of its pool is disabled
        Disabled = "disabled",
        /// Its pool has no endpoint
        NoEndpoint = "no_endpoint",
    }

    /// Why an operation is left out of a bulk action
    LeftOutReason = crate::state::LeftOut {
        /// The server may act on it twice
        NotReplaySafe = "not_replay_safe",
        /// It is in another state, or does not match the rest of the filter
        OtherState = "state",
        /// Something else changed it meanwhile
        Changed = "changed",
        /// There is no operation of this id
        NotFound = "not_found",
    }

    /// Where an operation is in its life
    StateName {
        /// Waiting for a worker
        Available = "available",
        /// Being sent
        Running = "running",
        /// Waiting for a time, then sent again
        Retryable = "retryable",
        /// Delivered
        Completed = "completed",
        /// Not sent again by itself
        Failed = "failed",
        /// The server has something else; waits for a decision
        Conflict = "conflict",
        /// Cancelled by a person
        Cancelled = "cancelled",
    }

    /// Why an operation is not sent by itself any more
    Reason = policy::item::TerminalReason {
        /// All attempts were used up
        Exhausted = "exhausted",
        /// The server does not accept it
        Rejected = "rejected",
        /// The server refused the credential, also after a refresh
        AuthFailed = "auth_failed",
        /// The server has something else
        Conflict = "conflict",
        /// The server's quota is used up
        QuotaExhausted = "quota_exhausted",
        /// Its time is over
        Expired = "expired",
        /// A person cancelled it
        Cancelled = "cancelled",
        /// Every endpoint is disabled
        Disabled = "disabled",
        /// Its gate had no success for too long
        GaveUp = "gave_up",
        /// The breaker of its gate was open
        BreakerOpen = "breaker_open",
        /// Its response could not be used
        Unusable = "unusable",
    }

    /// What to do about a conflict
    ResolveAction = policy::operation::Resolution {
        /// Send it again, with the version of the server's document as `If-Match`
        Resend = "resend",
        /// Leave what the server has; the operation is cancelled
        Discard = "discard",
        /// Send another body instead, under a new idempotency key
        Replace = "replace",
    }
}

impl From<policy::operation::OperationState> for StateName {
    fn from(state: policy::operation::OperationState) -> Self {
        use policy::operation::OperationState;
        match state {
            OperationState::Available => Self::Available,
            OperationState::Running => Self::Running,
            OperationState::Retryable => Self::Retryable,
            OperationState::Completed => Self::Completed,
            OperationState::Failed(_) => Self::Failed,
            OperationState::Conflict => Self::Conflict,
            OperationState::Cancelled => Self::Cancelled,
        }
    }
}

/// Shows nothing of what is sent.
impl fmt::Debug for AddOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddOperation")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HeaderValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderValues")
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn headers() -> RefOr<Schema> {
    let value = json!({ "type": "string", "pattern": r"^[\t -~]*$" });
    schema(json!({
        "type": "object",
        "description": "Names and values; a list repeats a header. `Host`, hop-by-hop headers, `Content-Length`, `Expect` and `Tidegate-…` are set by Tidegate, but `Tidegate-Cost` says what the request costs and is not sent",
        "additionalProperties": {
            "oneOf": [value, { "type": "array", "items": value, "maxItems": 10 }],
        },
        "propertyNames": { "type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" },
        "maxProperties": 10,
    }))
}

fn ids() -> RefOr<Schema> {
    schema(json!({
        "type": "array",
        "items": { "type": "string", "minLength": 1, "maxLength": 100 },
        "description": "Only these",
        "minItems": 1,
        "maxItems": 1000,
    }))
}

fn known_type() -> RefOr<Schema> {
    name("The name of a section `[operation.TYPE]`; by default `default`")
}

fn known_credential() -> RefOr<Schema> {
    name("The name of a section `[credential.NAME]`, instead of the type's")
}

fn known_backoff() -> RefOr<Schema> {
    name("The name of a section `[backoff.NAME]`, instead of the type's")
}

fn name(description: &str) -> RefOr<Schema> {
    schema(json!({ "type": "string", "description": description, "minLength": 1 }))
}
