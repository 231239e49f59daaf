//! The bodies of calls about pools, their endpoints, protection and test tool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::schema;

/// Pools
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    /// By name
    pub pools: Vec<Pool>,
}

/// A pool
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its name, the first part of the path it is served at
    pub name: String,
    /// Which endpoint is asked first
    pub balance: Balance,
    /// When its endpoints are paused and disabled
    pub protection: Protection,
    /// The same as the configuration file says, else the defaults: what a reset restores
    pub configured: Protection,
    /// Did a person change the protection, so that it differs from `configured`?
    pub changed: bool,
    /// In the order of the list
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    /// Its name in the pool
    pub name: String,
    /// The key of its gate
    pub key: String,
    /// The base of its requests' URLs
    pub url: String,
    /// May it be used, pauses aside?
    pub enabled: bool,
    /// The end of its pause in milliseconds of Unix time; null if it is not paused
    #[schema(required)]
    pub paused_until_ms: Option<i64>,
    /// The start of its pause in milliseconds of Unix time; null if it is not paused
    #[schema(required)]
    pub pause_started_ms: Option<i64>,
    /// Is its pause over, without a success since? One request at a time is sent to it then
    pub recovering: bool,
    /// Errors that climbed since the last success
    pub consecutive_errors: u32,
    /// Its last error: status, code and matched phrase; null if there was none since the last
    /// success
    #[schema(required)]
    pub last_error: Option<String>,
    /// Why it is disabled; null if it is not
    #[schema(required)]
    pub disabled_reason: Option<String>,
    /// Why it is disabled, in a word; null if it is not
    #[schema(required)]
    pub disabled_kind: Option<DisabledKind>,
    /// When it was disabled, in milliseconds of Unix time; null if it is not, or that is not known
    #[schema(required)]
    pub disabled_at_ms: Option<i64>,
    /// Requests in flight
    pub in_flight: u32,
}

/// An endpoint to add
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddEndpoint {
    /// A name that no other endpoint of the pool has, without `/`
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = r"^[^/\x00-\x1f\x7f-\x9f]+$",
        example = "c"
    )]
    pub name: String,
    /// The base of its requests' URLs; without user info, `?` and `#`
    #[schema(
        max_length = 2048,
        pattern = r"^https?://([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*|\[[0-9A-Fa-f:.]+\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*$",
        example = "https://c.example.com/v1"
    )]
    pub url: String,
    /// Headers of every request, with references to their values: `env:NAME`, `file:PATH`, or
    /// either after a word such as `Bearer`
    #[serde(default)]
    #[schema(schema_with = header_references, required = false)]
    pub headers: BTreeMap<String, String>,
}

/// Whether an endpoint is used
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchEndpoint {
    /// Enabling clears all error state
    pub enabled: bool,
}

/// When the endpoints of a pool are paused and disabled
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Protection {
    /// Are endpoints paused and disabled on errors? By default those of pools with two or more
    pub enabled: bool,
    /// The pause after the first error, the second, and so on; the last repeats
    #[schema(example = json!(["30s", "1m"]))]
    pub pauses: Vec<String>,
    /// The number of errors in a row that disables
    #[schema(minimum = 1, maximum = 10)]
    pub disable_after: u32,
    /// Do transport failures climb too?
    pub unreachable: bool,
    /// Does the console show its test tool?
    pub show_test_tool: bool,
    /// Successes since the last error after which an undirected 429 is the gate's own probing and
    /// does not climb; 0: every 429 climbs
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub probing_after: u32,
    /// Statuses that climb
    pub statuses: Vec<u16>,
    /// Phrases that climb, as whole words in any case
    pub texts: Vec<String>,
}

/// Changes of a pool's protection; what is not named stays
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeProtection {
    /// Are endpoints paused and disabled on errors?
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub enabled: Option<bool>,
    /// The pause after the first error, the second, and so on, each at least 1s; the last repeats
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = pauses, required = false)]
    pub pauses: Option<Vec<String>>,
    /// The number of errors in a row that disables
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10, nullable = false)]
    pub disable_after: Option<u64>,
    /// Do transport failures climb too?
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub unreachable: Option<bool>,
    /// Does the console show its test tool?
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub show_test_tool: Option<bool>,
    /// Successes since the last error after which an undirected 429 is the gate's own probing and
    /// does not climb; 0: every 429 climbs
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000, nullable = false)]
    pub probing_after: Option<u64>,
    /// Statuses that climb
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = statuses, required = false)]
    pub statuses: Option<Vec<u64>>,
    /// Phrases that climb, as whole words in any case
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = texts, required = false)]
    pub texts: Option<Vec<String>>,
}

/// Which scenario to play
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TestRun {
    /// Which responses an endpoint gets
    pub scenario: Scenario,
}

/// What a pool's protection would do
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestResult {
    /// Are the endpoints of this pool protected now?
    pub protected: bool,
    /// One for every request
    pub steps: Vec<TestStep>,
}

/// The state of an endpoint after a request
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestStep {
    /// What happens to the endpoint
    pub event: TestEvent,
    /// The status of the response; null if nothing was sent
    #[schema(required)]
    pub status: Option<u16>,
    /// When, from the start of the test
    pub at_ms: u64,
    /// May it be used, pauses aside?
    pub enabled: bool,
    /// Is it paused?
    pub paused: bool,
    /// How long the pause lasts from here; 0 if there is none
    pub pause_ms: u64,
    /// Errors that climbed since the last success
    pub consecutive_errors: u32,
    /// Its last error; null if there was none since the last success
    #[schema(required)]
    pub last_error: Option<String>,
    /// All of it as a sentence
    pub text: String,
}

words! {
    /// Which endpoint is asked first
    Balance = tidegate::Balance {
        /// The one with the fewest requests in flight
        LeastLoaded = "least_loaded",
        /// Each in turn
        RoundRobin = "round_robin",
        /// The first of the list that may send
        First = "first",
    }

    /// Why an endpoint is disabled
    DisabledKind {
        /// As many errors in a row as `disable_after`
        Errors = "errors",
        /// The server says that a quota is used up
        QuotaExhausted = "quota_exhausted",
        /// The last of `disable_after` errors in a row was that its credential is rejected
        CredentialRejected = "credential_rejected",
        /// A person disabled it
        Person = "person",
    }

    /// Responses that the test tool plays
    Scenario {
        /// One 429
        SingleError = "single_error",
        /// Three 429s in a row
        RepeatedErrors = "repeated_errors",
        /// Two 429s, a success, another 429
        SuccessRecovery = "success_recovery",
        /// As many 429s as disable it
        AutoDisable = "auto_disable",
    }

    /// What happens to an endpoint
    TestEvent {
        /// A response that is an error
        Error = "error",
        /// A response that is none
        Success = "success",
        /// The endpoint is disabled, so nothing is sent
        NotSent = "not_sent",
    }
}

fn header_references() -> RefOr<Schema> {
    schema(json!({
        "type": "object",
        "description": "Headers of every request, with references to their values: `env:NAME`, `file:PATH`, or either after a word such as `Bearer`",
        "additionalProperties": {
            "type": "string",
            "pattern": r"^([A-Za-z]{1,16} )?(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$",
        },
        "propertyNames": {
            "type": "string",
            "maxLength": 256,
            "pattern": r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
        },
    }))
}

fn pauses() -> RefOr<Schema> {
    schema(json!({
        "type": "array",
        "items": { "type": "string", "pattern": r"^[1-9][0-9]{0,5}(s|m|h)$" },
        "description": "The pause after the first error, the second, and so on, each at least 1s; the last repeats",
        "minItems": 1,
        "maxItems": 100,
    }))
}

fn statuses() -> RefOr<Schema> {
    // All but 401, 409 and 412, which never climb.
    let ranges = [(400, 400), (402, 408), (410, 411), (413, 999)];
    let ranges =
        ranges.map(|(min, max)| json!({ "type": "integer", "minimum": min, "maximum": max }));
    schema(json!({
        "type": "array",
        "items": { "oneOf": ranges },
        "description": "Statuses that climb, from 400 to 999 without 401, 409 and 412",
        "maxItems": 100,
    }))
}

fn texts() -> RefOr<Schema> {
    schema(json!({
        "type": "array",
        "items": { "type": "string", "maxLength": 200, "pattern": r#"^[!#-+\--Z\\^-~]+( [!#-+\--Z\\^-~]+)*$"# },
        "description": "Phrases that climb, as whole words in any case",
        "maxItems": 100,
    }))
}
