//! The bodies of requests and responses, defined once: the server fills them, the document at
//! `/openapi.json` describes them, and [`super::client`] sends and returns them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

/// Defines enums of words. One that is named after `=` is an enum of the library with the same
/// variants: either converts into the other.
macro_rules! words {
    ($(
        $(#[$doc:meta])+
        $Name:ident $(= $library:path)? { $($(#[$variant_doc:meta])+ $Variant:ident = $word:tt,)+ }
    )+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub enum $Name {$(
            $(#[$variant_doc])+
            #[serde(rename = $word)]
            $Variant,
        )+}

        impl $Name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$Variant),+];

            /// Its word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word,)+
                }
            }
        }

        words!(@library $Name $($library)? { $($Variant)+ });
    )+};
    (@library $Name:ident { $($Variant:ident)+ }) => {};
    (@library $Name:ident $library:path { $($Variant:ident)+ }) => {
        impl From<$library> for $Name {
            fn from(library: $library) -> Self {
                use $library as Library;
                match library {
                    $(Library::$Variant => Self::$Variant,)+
                }
            }
        }

        impl From<$Name> for $library {
            fn from(body: $Name) -> Self {
                match body {
                    $($Name::$Variant => Self::$Variant,)+
                }
            }
        }
    };
}

mod console;
mod demo;
mod jobs;
mod operations;
mod settings;
mod simulate;

pub use console::{
    Attention, AttentionKind, Band, BandName, GateHistory, PoolCounts, RateChange, Rates,
    RecentEvent, RecentEvents, StoreHealth, Summary, TotalSeries, TrailList, TrailSummary, Values,
    Waiting, WaitingSeries,
};
pub use demo::{DemoLink, DemoStep, DemoStepState, DemoTour};
pub use jobs::{Job, JobCounts, JobList, JobStatusName, StageName, StartJob, StartedJob};
pub use operations::{
    AcceptedOperation, AddOperation, BulkAction, BulkFilter, BulkResult, Conflict, ConflictSummary,
    Delays, HeaderValues, LeftOut, LeftOutReason, Operation, OperationAttempt, OperationCounts,
    OperationList, Reason, ResolveAction, ResolveOperation, StateName, WaitReason, WaitingFor,
};
pub use settings::{GateDefaults, JobBounds, OperationTypes, PollTimes, ShownSettings};
pub use simulate::{
    ScenarioField, ScenarioList, Simulate, Simulation, SimulationBand, SimulationRun,
    SimulationScenario, SimulationSeries,
};

/// Sign a browser in
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The token in `admin-token` of the data folder
    pub token: String,
}

/// Does not show the token.
impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignIn").finish_non_exhaustive()
    }
}

/// The version, and which process responds
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The version of Tidegate
    pub version: String,
    /// Random for each process: another one means a restart
    pub boot_id: String,
    /// When the process started, in milliseconds of Unix time
    pub started_ms: i64,
    /// Is this `tidegate demo`?
    pub demo: bool,
}

/// Gates, and all of them together
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GateList {
    /// All gates together
    pub totals: GateTotals,
    /// How many gates match
    pub total: u64,
    /// In the order that was asked for
    pub gates: Vec<Gate>,
}

/// All gates together, since the start
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GateTotals {
    /// Asks
    pub requests: u64,
    /// Asks that waited for longer than `throttled_after` and were admitted then
    pub throttled: u64,
    /// Asks that were refused, at once or after waiting
    pub denied: u64,
    /// Attempts that were not the first of their item
    pub retries: u64,
    /// Gates whose breaker is open or isolated now
    pub open: u64,
    /// Gates that are probing now
    pub half_open: u64,
    /// Gates there are now
    pub gates: u64,
    /// Gates that were evicted
    pub evicted: u64,
    /// Gates that are held now
    pub held: u64,
    /// Gates that are isolated now; `open` has them too
    pub isolated: u64,
    /// Callers in line now
    pub waiting: u64,
    /// Attempts in flight now
    pub in_flight: u64,
}

/// A gate
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gate {
    /// What it is for: `pool/endpoint` or `host[:port]`
    pub key: String,
    /// How the rate moves
    pub strategy: Strategy,
    /// Tokens per second
    pub rate_per_second: f64,
    /// Tokens there now; below zero after a cost was corrected
    pub tokens: f64,
    /// Attempts in flight
    pub in_flight: u32,
    /// Callers in line
    pub waiting: u32,
    /// From sending to the response's head
    pub latency_ms: Latency,
    /// The share of failures in the window
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub error_rate: f64,
    /// Whether attempts are let through
    pub breaker: Breaker,
    /// Failures since the last success
    pub consecutive_failures: u16,
    /// Until when nothing is sent; null without a hold
    #[schema(required)]
    pub hold: Option<Hold>,
    /// Results of attempts, since the gate was made
    pub counts: Counts,
    /// The window of the breaker
    pub window: Window,
    /// What the strategy `adaptive` is doing; null for others
    #[schema(required)]
    pub phase: Option<Phase>,
    /// The rate that was last refused, per second; null while none was
    #[schema(required)]
    pub ceiling: Option<f64>,
    /// The phase, the ceiling and how it was learned, in one sentence
    pub why: String,
    /// Attempts that succeeded, per second over about the last five
    pub accepted_per_second: f64,
    /// Attempts that the server refused because they came too fast, per second
    pub refused_per_second: f64,
    /// Attempts that failed otherwise, per second
    pub failed_per_second: f64,
    /// With `recent=true`, what was accepted per second in the last minute, oldest first; null if
    /// the gate is not recorded
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<f64>>>)]
    pub recent: Option<Option<Values>>,
    /// Tokens per second that it starts with; this and what follows only of a single gate
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_rate: Option<f64>,
    /// The lowest rate
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<f64>,
    /// The highest rate
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<f64>,
    /// Attempts in flight at a time
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Known limits, such as `10/1s`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<String>>,
    /// When the first in line leaves, in milliseconds of Unix time; null if none waits, or if that
    /// depends on a response or a person
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub first_leaves_ms: Option<Option<i64>>,
    /// Callers in line, by the reason
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_by_reason: Option<Waiting>,
}

/// From sending to the response's head, in milliseconds
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// A moving mean
    pub ewma: f64,
    /// 95 of 100 took no longer; null before the first response
    #[schema(required)]
    pub p95: Option<f64>,
}

/// Whether attempts are let through
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Breaker {
    /// What it lets through
    pub state: BreakerState,
    /// The end of the open time in milliseconds of Unix time; null if it is not open
    #[schema(required)]
    pub until_ms: Option<i64>,
    /// Since when it is in this state, in milliseconds of Unix time; null if it is closed, or that is
    /// not known
    #[schema(required)]
    pub since_ms: Option<i64>,
    /// Why it is not closed; null if it is, or that is not known
    #[schema(required)]
    pub reason: Option<String>,
}

/// Until when nothing is sent
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// In milliseconds of Unix time
    pub until_ms: i64,
    /// Since when, in milliseconds of Unix time; null if that is not known
    #[schema(required)]
    pub since_ms: Option<i64>,
    /// Why, as a sentence
    pub reason: String,
    /// The header that named it, `body`, or `assumed`
    pub source: String,
}

/// Results of attempts, since the gate was made
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Permits
    pub admitted: u32,
    /// Successes
    pub success: u32,
    /// Throttled, and used-up quotas
    pub throttled: u32,
    /// Overloaded and unreachable
    pub failed: u32,
}

/// The window of the breaker
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// Results in it
    pub total: u32,
    /// Failures among them
    pub failed: u32,
}

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

/// Every decision about a request
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Its `Tidegate-Request-Id`
    pub id: String,
    /// When it arrived, in milliseconds of Unix time
    pub at_ms: i64,
    /// The pool it was for
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

/// Whether the process works
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// In a word
    pub status: HealthStatus,
    /// Why it is not ok, as a sentence
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}

/// Why a call failed (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:tidegate:problem:` and the reason
    #[serde(rename = "type")]
    #[schema(example = "urn:tidegate:problem:not_found")]
    pub kind: String,
    /// The reason for people
    pub title: String,
    /// The status of the response
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What happened, and what to do about it
    pub detail: String,
    /// The reason for programs
    #[schema(example = "not_found")]
    pub reason: String,
    /// Every invalid value, with what was expected
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<InvalidField>,
}

/// An invalid value
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvalidField {
    /// Its name; the parts of a list by `[0]`
    pub field: String,
    /// The value, unless it is missing or may be a secret
    #[schema(required)]
    pub value: Option<String>,
    /// What is expected
    pub expected: String,
}

words! {
    /// How the rate moves
    Strategy = tidegate::Strategy {
        /// Finds an unknown limit and stays below it
        Adaptive = "adaptive",
        /// Additive increase, multiplicative decrease
        Aimd = "aimd",
        /// A constant rate
        Fixed = "fixed",
    }

    /// What the strategy `adaptive` is doing
    Phase = policy::rate::Phase {
        /// No rate was refused yet: the rate grows fast
        Searching = "searching",
        /// The rate grows towards the ceiling
        Rising = "rising",
        /// The rate stays near the ceiling
        Staying = "staying",
        /// The rate grows slowly above the ceiling, in case the limit has risen
        Probing = "probing",
    }

    /// What a breaker lets through
    BreakerState = policy::breaker::BreakerState {
        /// Everything
        Closed = "closed",
        /// Nothing, for some time
        Open = "open",
        /// A few probes
        HalfOpen = "half_open",
        /// Nothing, until a person releases it
        Isolated = "isolated",
    }

    /// In which order gates are listed
    GateSort {
        /// Most permits first
        Admitted = "admitted",
        /// Longest line first
        Waiting = "waiting",
        /// Most attempts in flight first
        InFlight = "in_flight",
        /// Highest error rate first
        ErrorRate = "error_rate",
        /// Highest rate first
        Rate = "rate",
        /// By key
        Key = "key",
        /// Most accepted per second first
        Accepted = "accepted",
        /// Most refused per second first
        Refused = "refused",
        /// Highest 95th percentile of the latency first
        P95 = "p95",
        /// Latest end of a hold or an open breaker first
        Until = "until",
    }

    /// Which gates are listed
    GateFilter {
        /// Held, or with a breaker that is not closed
        Attention = "attention",
        /// With an open breaker
        Open = "open",
        /// With a half-open breaker
        HalfOpen = "half_open",
        /// With a hold
        Held = "held",
        /// Isolated
        Isolated = "isolated",
    }

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

    /// Whether the process works, in a word
    HealthStatus {
        /// It works
        Ok = "ok",
        /// It is stopping
        Draining = "draining",
        /// It cannot store what must survive a restart
        Degraded = "degraded",
    }
}

/// A schema as it is written in the document.
fn schema(written: Value) -> RefOr<Schema> {
    serde_json::from_value(written).expect("it is written as a schema")
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
