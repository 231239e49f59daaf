//! The bodies of calls about the last minutes: the summary, the history of a gate, recent events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{GateTotals, Health};

/// Values of a series, oldest first; null where nothing was recorded
pub type Values = Vec<Option<f64>>;

/// Health, totals and waits, now and over the last minutes
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// The version of Tidegate
    pub version: String,
    /// When the process started, in milliseconds of Unix time
    pub started_ms: i64,
    /// As `/readyz` says
    pub health: Health,
    /// Where state is stored
    pub stores: Vec<StoreHealth>,
    /// All gates together, since the start
    pub totals: GateTotals,
    /// Per second, over the last five seconds
    pub rates: Rates,
    /// Callers that wait now, by the reason
    pub waiting_by_reason: Waiting,
    /// Operations by state
    pub operations: BTreeMap<String, u64>,
    /// Jobs by status
    pub jobs: BTreeMap<String, u64>,
    /// Pools and their endpoints
    pub pools: PoolCounts,
    /// Over the window
    pub series: TotalSeries,
    /// What a person may have to decide, worst first, at most eight
    pub attention: Vec<Attention>,
    /// How many there are in all
    pub attention_total: u64,
}

/// A place where state is stored
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreHealth {
    /// What it is
    pub name: String,
    /// `ok` or `degraded`
    pub status: String,
    /// What is wrong; null if nothing is
    #[schema(required)]
    pub detail: Option<String>,
}

/// Per second
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Asks
    pub requests: f64,
    /// Attempts that succeeded
    pub accepted: f64,
    /// Attempts that the server refused because they came too fast
    pub refused: f64,
    /// Attempts that failed otherwise
    pub failed: f64,
    /// Attempts that were not the first of their item
    pub retries: f64,
}

/// Callers in line, by the reason
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// For the rate of the gate
    pub rate: u32,
    /// For the end of a hold
    pub hold: u32,
    /// For a breaker that is not closed
    pub breaker_open: u32,
    /// For an attempt in flight to end
    pub in_flight: u32,
}

/// Pools and their endpoints
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolCounts {
    /// Pools
    pub pools: u64,
    /// Endpoints of all pools
    pub endpoints: u64,
    /// Endpoints that are paused now
    pub paused: u64,
    /// Endpoints that are disabled now
    pub disabled: u64,
}

/// All gates over the window
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TotalSeries {
    /// When the first second began, in milliseconds of Unix time
    pub start_ms: i64,
    /// From one value to the next
    pub step_ms: i64,
    /// Asks per second
    pub requests: Values,
    /// Attempts that succeeded, per second
    pub accepted: Values,
    /// Attempts that servers refused because they came too fast, per second
    pub refused: Values,
    /// Attempts that failed otherwise, per second
    pub failed: Values,
    /// Attempts that were not the first of their item, per second
    pub retries: Values,
    /// Callers in line
    pub waiting: Values,
    /// Callers in line, by the reason
    pub waiting_by_reason: WaitingSeries,
}

/// Callers in line over the window, by the reason
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitingSeries {
    /// For the rate of the gate
    pub rate: Values,
    /// For the end of a hold
    pub hold: Values,
    /// For a breaker that is not closed
    pub breaker_open: Values,
    /// For an attempt in flight to end
    pub in_flight: Values,
}

words! {
    /// What needs attention
    AttentionKind {
        /// A gate whose breaker is open
        GateOpen = "gate_open",
        /// A gate that is isolated
        GateIsolated = "gate_isolated",
        /// An endpoint that is disabled
        EndpointDisabled = "endpoint_disabled",
        /// Operations that failed or have a conflict
        Operations = "operations",
        /// A store that cannot be written
        Store = "store",
    }

    /// A state of a gate that is shown over a stretch of time
    BandName {
        /// Nothing is sent until a hold ends
        Held = "held",
        /// The breaker refuses
        Open = "open",
        /// The breaker lets probes through
        HalfOpen = "half_open",
        /// Everything is refused until a person releases or resets it
        Isolated = "isolated",
    }
}

/// Something that a person may have to decide
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attention {
    /// What it is
    pub kind: AttentionKind,
    /// The gate
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The pool
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The endpoint
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Since when, in milliseconds of Unix time, if that is known
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
    /// Until when, in milliseconds of Unix time, if it ends by itself
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// How many
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What is the matter, as a sentence
    pub text: String,
    /// The page of the console that shows it
    pub link: String,
}

/// A gate over the last minutes
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GateHistory {
    /// What it is for
    pub key: String,
    /// When the first second began, in milliseconds of Unix time
    pub start_ms: i64,
    /// From one value to the next
    pub step_ms: i64,
    /// Tokens per second
    pub rate: Values,
    /// The limit as far as it is known, per second; null while it is not
    pub ceiling: Values,
    /// Attempts that succeeded, per second
    pub accepted: Values,
    /// Attempts that the server refused because they came too fast, per second
    pub refused: Values,
    /// Attempts that failed otherwise, per second
    pub failed: Values,
    /// A moving mean of the time from sending to the response's head
    pub latency_ms: Values,
    /// 95 of 100 took no longer
    pub p95_ms: Values,
    /// Callers in line
    pub waiting: Values,
    /// Attempts in flight
    pub in_flight: Values,
    /// When it was held, open, half-open or isolated, oldest first
    pub bands: Vec<Band>,
    /// Changes of the rate, newest first, at most 50. Steps in one direction for one reason are one
    pub changes: Vec<RateChange>,
}

/// A stretch of time in one state
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Band {
    /// The state
    pub state: BandName,
    /// In milliseconds of Unix time
    pub from_ms: i64,
    /// In milliseconds of Unix time; null if its end is not known yet
    #[schema(required)]
    pub to_ms: Option<i64>,
    /// The header that named a hold, `body`, `assumed` or `counted`; null for other states
    #[schema(required)]
    pub source: Option<String>,
}

/// A change of a gate's rate
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RateChange {
    /// In milliseconds of Unix time
    pub at_ms: i64,
    /// Tokens per second before
    pub from: f64,
    /// Tokens per second afterwards
    pub to: f64,
    /// What moved it
    pub why: String,
}

/// The last changes of state
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecentEvents {
    /// Newest first
    pub events: Vec<RecentEvent>,
}

/// A change of state
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecentEvent {
    /// Its number; later ones are higher
    pub id: u64,
    /// In milliseconds of Unix time
    pub at_ms: i64,
    /// What happened
    pub kind: String,
    /// Its values, as in the stream
    #[schema(value_type = BTreeMap<String, Value>)]
    pub data: Value,
    /// What happened, as a sentence
    pub text: String,
}
