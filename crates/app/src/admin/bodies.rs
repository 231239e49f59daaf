//! The bodies of requests and responses, defined once: the server fills them, the document at
//! `/openapi.json` describes them, and [`super::client`] sends and returns them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
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

mod demo;
mod gates;
mod jobs;
mod operations;
mod pools;
mod requests;
mod settings;
mod simulate;
mod summary;

pub use demo::{DemoLink, DemoStep, DemoStepState, DemoTour};
pub use gates::{
    Breaker, BreakerState, CostLimit, Counts, FleetShare, Gate, GateFilter, GateList, GateServer,
    GateServers, GateSort, GateTotals, Hold, Latency, Phase, Strategy, Window,
};
pub use jobs::{Job, JobCounts, JobList, JobStatusName, StageName, StartJob, StartedJob};
pub use operations::{
    AcceptedOperation, AddOperation, BulkAction, BulkFilter, BulkResult, Conflict, ConflictSummary,
    Delays, HeaderValues, LeftOut, LeftOutReason, Operation, OperationAttempt, OperationCounts,
    OperationList, Reason, ResolveAction, ResolveOperation, StateName, WaitReason, WaitingFor,
};
pub use pools::{
    AddEndpoint, Balance, ChangeProtection, DisabledKind, Endpoint, Pool, PoolList, Protection,
    Scenario, SwitchEndpoint, TestEvent, TestResult, TestRun, TestStep,
};
pub use requests::{Decision, DecisionKind, Explanation, TrailList, TrailSummary};
pub use settings::{GateDefaults, JobBounds, OperationTypes, PollTimes, ShownSettings};
pub use simulate::{
    ScenarioField, ScenarioList, Simulate, Simulation, SimulationBand, SimulationRun,
    SimulationScenario, SimulationSeries,
};
pub use summary::{
    Attention, AttentionKind, Band, BandName, GateHistory, PoolCounts, RateChange, Rates,
    RecentEvent, RecentEvents, StoreHealth, Summary, TotalSeries, Values, Waiting, WaitingSeries,
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
