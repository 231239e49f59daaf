//! Whether a strategy did well on an upstream.

use policy::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::load::Backlog;
use crate::measure::{Capacity, Figures};
use crate::scenario::Scenario;

/// The figures of one run by which a strategy is judged, with their names of
/// `tidegate simulate --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Accepted over capacity, whole run.
    pub goodput_ratio: Option<f64>,
    /// The same from 60 s on, by which goodput is judged.
    pub goodput_ratio_settled: Option<f64>,
    /// Refused over sent, whole run.
    pub refused_ratio: Option<f64>,
    /// The highest `refused_ratio` that is within bounds: 2 %, and 6 % where a client has less than
    /// 2/s, because there each probe is a large share.
    #[serde(default)]
    pub refused_bound: f64,
    /// Bans of all clients.
    pub bans: u64,
    /// Bans of the client that was banned most often; the lowest possible number if a build does not
    /// print it.
    #[serde(default)]
    pub max_client_bans: u64,
    /// Seconds to 90 % of the capacity; `None` if it was never reached.
    pub time_to_90_s: Option<f64>,
    /// Fairness among clients; `None` for one client.
    pub jain: Option<f64>,
}

impl Verdict {
    /// The verdict on a run of `scenario`.
    pub fn new(scenario: &Scenario, figures: &Figures) -> Self {
        Self {
            goodput_ratio: figures.goodput_ratio,
            goodput_ratio_settled: figures.goodput_ratio_settled,
            refused_ratio: figures.refused_ratio,
            refused_bound: refused_bound(scenario),
            bans: figures.bans,
            max_client_bans: figures.max_client_bans,
            time_to_90_s: figures.time_to_90_s,
            jain: figures.jain,
        }
    }

    /// The verdict on a run of `scenario` by another build, from the output of its
    /// `tidegate simulate --json`.
    ///
    /// # Errors
    ///
    /// The output is not such an object.
    pub fn from_json(scenario: &Scenario, output: &str) -> Result<Self, serde_json::Error> {
        let mut verdict: Self = serde_json::from_str(output)?;
        let clients = (scenario.client_count() as u64).max(1);
        verdict.max_client_bans = verdict.max_client_bans.max(verdict.bans.div_ceil(clients));
        verdict.refused_bound = refused_bound(scenario);
        Ok(verdict)
    }

    /// Whether settled goodput is at least this.
    pub fn reaches(&self, goodput: f64) -> bool {
        self.goodput_ratio_settled
            .is_some_and(|settled| settled >= goodput)
    }

    /// Whether the share refused is within its bound. If nothing was sent, nothing was refused.
    pub fn is_within_bound(&self) -> bool {
        self.refused_ratio.unwrap_or(0.0) <= self.refused_bound
    }

    /// Whether a client was banned again after its first ban.
    pub fn is_banned_twice(&self) -> bool {
        self.max_client_bans > 1
    }

    /// Zero if it is good in every respect, and higher the worse it is: what is missing to 90 % of
    /// goodput, five times what is refused above the bound, and one for every ban of a client after
    /// its first.
    pub fn shortfall(&self) -> f64 {
        let missing = GOOD - self.goodput_ratio_settled.unwrap_or(0.0);
        let excess = self.refused_ratio.unwrap_or(0.0) - self.refused_bound;
        let bans = self.max_client_bans.saturating_sub(1) as f64;
        missing.max(0.0) + 5.0 * excess.max(0.0) + bans
    }
}

/// Goodput that is good.
pub(super) const GOOD: f64 = 0.9;
/// Goodput that nearly every upstream should have.
pub(super) const ACCEPTABLE: f64 = 0.6;

fn refused_bound(scenario: &Scenario) -> f64 {
    let end = Timestamp::ZERO + scenario.duration;
    let capacity = Capacity::of(&scenario.upstream).between(Timestamp::ZERO, end);
    let capacity = capacity / scenario.duration.as_secs_f64();
    let offered = scenario.clients.iter().map(|client| match client.backlog {
        Backlog::PerSecond(rate) => rate * f64::from(client.count),
        Backlog::Endless | Backlog::Total(_) => f64::INFINITY,
    });
    let rate = capacity.min(offered.sum());
    if rate / (scenario.client_count() as f64) < 2.0 {
        0.06
    } else {
        0.02
    }
}
