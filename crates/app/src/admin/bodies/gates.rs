//! The bodies of calls about gates.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::summary::{Values, Waiting};

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

/// What a gate learned about a limit on cost, such as tokens of a language model
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CostLimit {
    /// Cost per second
    pub per_second: f64,
    /// The limit as far as it is known, in cost per second; null while it is not
    #[schema(required)]
    pub ceiling: Option<f64>,
    /// Cost that may be sent now; below zero after a request that cost more
    pub available: f64,
    /// Mean cost of a request
    pub mean: f64,
}

/// What a fleet of servers says of a gate that they share
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FleetShare {
    /// What all servers together send per second at most
    pub rate_per_second: f64,
    /// The part of it that is this server's
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub share: f64,
    /// How many servers use the gate
    pub servers: u32,
    /// Whether this server decides the rate for all
    pub is_owner: bool,
    /// Whether Redis does not answer, so that this server continues with its last share
    pub is_degraded: bool,
}

/// The servers of a fleet that use a gate
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GateServers {
    /// In the order of their addresses; empty if the gate is not shared
    pub servers: Vec<GateServer>,
}

/// What one server of a fleet has of a gate
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GateServer {
    /// Its version, and the address that it listens on; empty if it has left
    pub server: String,
    /// Its part of the rate of the fleet
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub share: f64,
    /// Requests per second that it would send if it could
    pub demand_per_second: f64,
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
    /// The limit as far as it is known, per second; null while it is not
    #[schema(required)]
    pub ceiling: Option<f64>,
    /// The limit on cost; null as long as every request costs one
    #[schema(required)]
    pub cost: Option<CostLimit>,
    /// The rate of the fleet and the share of this server, if gates are shared (`storage.gates`);
    /// `rate_per_second` is that of this server then, `ceiling` that of the fleet
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetShare>,
    /// The phase, the ceiling, how it was learned and when more is tried, in one sentence
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
    /// The header that named it, `body`, `assumed` or `counted`
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
}
