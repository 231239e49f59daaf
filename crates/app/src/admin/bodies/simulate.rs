//! The bodies of calls about simulations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sim::measure::FIGURES;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::schema;

/// Scenarios that come with Tidegate
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScenarioList {
    /// In the order in which they are best read
    pub scenarios: Vec<SimulationScenario>,
    /// Strategies that clients may have; that of `fixed` is followed by a rate
    #[schema(example = json!(["adaptive", "aimd", "fixed:50", "none"]))]
    pub strategies: Vec<String>,
}

/// A scenario: an upstream and its clients
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SimulationScenario {
    /// Its name; of one that was made from a gate, the gate's key
    pub name: String,
    /// What it is, in a phrase
    pub title: String,
    /// The file, in TOML
    pub text: String,
    /// Values that may be changed by `set`
    pub fields: Vec<ScenarioField>,
}

/// A value of a scenario
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScenarioField {
    /// Its path in the file
    #[schema(example = "upstream.rate")]
    pub name: String,
    /// What it is, for people
    pub label: String,
    /// Its value as it is written, or the default
    #[schema(example = "100")]
    pub value: String,
}

/// What to simulate
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Simulate {
    /// The name of a scenario that comes with Tidegate; this or `text`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "o5")]
    pub scenario: Option<String>,
    /// A scenario in TOML
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub text: Option<String>,
    /// Values in place of those of the scenario, by their path
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false, example = json!({ "upstream.rate": "50" }))]
    pub set: BTreeMap<String, String>,
    /// Up to four, each for all clients: `adaptive`, `aimd`, `fixed:RATE` or `none`; by default what
    /// the scenario says
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 4, example = json!(["adaptive", "aimd"]))]
    pub strategies: Vec<String>,
    /// Of the random numbers; by default the scenario's
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub seed: Option<u64>,
}

/// What came out
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Simulation {
    /// One for each strategy
    pub runs: Vec<SimulationRun>,
    /// The command that gives the same figures
    #[schema(example = "tidegate simulate o5 --strategy adaptive,aimd --seed 1")]
    pub command: String,
}

/// What came out for one strategy
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulationRun {
    /// The strategy of the clients
    pub strategy: String,
    /// Figures by name, as `tidegate simulate --json` prints them; null where one does not apply
    #[schema(schema_with = figures)]
    pub figures: Map<String, Value>,
    /// The run over time
    pub series: SimulationSeries,
    /// When a client was held, or its breaker not closed
    pub bands: Vec<SimulationBand>,
}

/// A run over time, in steps of equal length, at most 600
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulationSeries {
    /// The start of the first step
    pub start_s: f64,
    /// The length of a step
    pub step_s: f64,
    /// What the upstream accepts, per second
    pub capacity: Vec<f64>,
    /// The rate of the clients' gates together, per second; null if they have none
    pub rate: Vec<Option<f64>>,
    /// Requests sent, per second
    pub sent: Vec<f64>,
    /// Accepted, per second
    pub accepted: Vec<f64>,
    /// Refused, per second
    pub refused: Vec<f64>,
    /// Failed in another way, per second
    pub failed: Vec<f64>,
    /// Mean latency of accepted requests; null where there was none
    pub latency_ms: Vec<Option<f64>>,
}

/// A time in one state
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulationBand {
    /// `held`, `open`, `half_open` or `isolated`
    pub state: String,
    /// Its start
    pub from_s: f64,
    /// Its end
    pub to_s: f64,
}

fn figures() -> RefOr<Schema> {
    let number = |about: &str| json!({ "type": ["number", "null"], "description": about });
    let rows = |about: &str, names: [&str; 2]| {
        let values = names.map(|name| (name.to_owned(), json!({ "type": ["number", "null"] })));
        let values: Map<String, Value> = values.into_iter().collect();
        let row = json!({ "type": "object", "properties": values });
        json!({ "type": "array", "description": about, "items": row })
    };
    let named = FIGURES.iter();
    let mut properties: Map<String, Value> = named
        .map(|(name, _, about)| ((*name).to_owned(), number(about)))
        .collect();
    let outages = "For each outage, requests sent in it, and the time until 90 % was used again.";
    properties.insert("outages".to_owned(), rows(outages, ["sent", "recovery_s"]));
    let steps = "For each step, when it was, and the time until 90 % was used.";
    properties.insert("steps".to_owned(), rows(steps, ["at_s", "settle_s"]));
    schema(json!({
        "type": "object",
        "description": "Figures by name, as `tidegate simulate --json` prints them; null where one does not apply",
        "properties": properties,
    }))
}
