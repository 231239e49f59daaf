//! Whether a strategy did well on an upstream, and on how many of a set.

use serde::{Deserialize, Serialize};

use policy::time::Timestamp;

use crate::load::Backlog;
use crate::measure::{Capacity, Figures};
use crate::scenario::Scenario;

/// The figures of one run by which a strategy is judged. Readable from what
/// `tidegate simulate --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Accepted over capacity, whole run.
    #[serde(rename = "goodput_ratio")]
    pub goodput: Option<f64>,
    /// The same from 60 s on, by which goodput is judged.
    #[serde(rename = "goodput_ratio_settled")]
    pub settled: Option<f64>,
    /// Refused over sent, whole run.
    #[serde(rename = "refused_ratio")]
    pub refused: Option<f64>,
    /// Bans of all clients.
    pub bans: u64,
    /// Bans of the client that was banned most often. Other builds may not print it: the least
    /// possible number then.
    #[serde(default)]
    pub max_client_bans: u64,
    /// Seconds to 90 % of the capacity; `None` if it was never reached.
    pub time_to_90_s: Option<f64>,
    /// Fairness among clients.
    pub jain: Option<f64>,
    /// The highest share refused that is within bounds.
    #[serde(default)]
    pub refused_bound: f64,
}

impl Verdict {
    /// The verdict on a run of `scenario`.
    pub fn new(scenario: &Scenario, figures: &Figures) -> Self {
        Self {
            goodput: figures.goodput_ratio,
            settled: figures.goodput_ratio_settled,
            refused: figures.refused_ratio,
            bans: figures.bans,
            max_client_bans: figures.max_client_bans,
            time_to_90_s: figures.time_to_90_s,
            jain: figures.jain,
            refused_bound: refused_bound(scenario),
        }
    }

    /// The verdict on a run of `scenario` by another build, from a line of its
    /// `tidegate simulate --json`.
    ///
    /// # Errors
    ///
    /// The line is not such a line.
    pub fn from_json(scenario: &Scenario, line: &str) -> Result<Self, serde_json::Error> {
        let mut verdict: Self = serde_json::from_str(line)?;
        let clients = (scenario.client_count() as u64).max(1);
        verdict.max_client_bans = verdict.max_client_bans.max(verdict.bans.div_ceil(clients));
        verdict.refused_bound = refused_bound(scenario);
        Ok(verdict)
    }

    /// Whether settled goodput is at least this.
    pub fn reaches(&self, share: f64) -> bool {
        self.settled.is_some_and(|settled| settled >= share)
    }

    /// Whether the share refused is within bounds. Nothing sent counts as nothing refused.
    pub fn is_polite(&self) -> bool {
        self.refused.unwrap_or(0.0) <= self.refused_bound
    }

    /// How bad it is, to list the worst first: what is missing to 90 % of goodput, what exceeds the
    /// bound of refused requests, and every ban of a client after its first.
    pub fn badness(&self) -> f64 {
        let missing = (GOOD - self.settled.unwrap_or(0.0)).max(0.0);
        let excess = (self.refused.unwrap_or(0.0) - self.refused_bound).max(0.0);
        let bans = self.max_client_bans.saturating_sub(1) as f64;
        // The largest allowed share is 2 %, so a point too many weighs as much as five of goodput.
        missing + 5.0 * excess + bans
    }
}

const GOOD: f64 = 0.9;
const FAIR: f64 = 0.6;

/// 2 %, and 6 % where a client has less than 2/s: there each probe is a large share.
fn refused_bound(scenario: &Scenario) -> f64 {
    let end = Timestamp::ZERO + scenario.duration;
    let capacity = Capacity::of(&scenario.upstream).between(Timestamp::ZERO, end);
    let offered = scenario.clients.iter().map(|client| match client.backlog {
        Backlog::PerSecond(rate) => rate * f64::from(client.count),
        Backlog::Endless | Backlog::Total(_) => f64::INFINITY,
    });
    let rate = (capacity / scenario.duration.as_secs_f64()).min(offered.sum());
    if rate / (scenario.client_count() as f64) < 2.0 {
        0.06
    } else {
        0.02
    }
}

/// Some percentiles of a figure, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The lowest value.
    pub min: f64,
    /// A tenth of the values are at most this.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// Nine tenths of the values are at most this.
    pub p90: f64,
    /// The highest value.
    pub max: f64,
}

impl Percentiles {
    /// `None` without values.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).max(1);
            values.get(rank - 1).copied()
        };
        Some(Self {
            min: rank(0)?,
            p10: rank(10)?,
            p50: rank(50)?,
            p90: rank(90)?,
            max: rank(100)?,
        })
    }
}

/// The results of a strategy over a set of upstreams.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// How many upstreams.
    pub upstreams: usize,
    /// How many with a settled goodput of at least 90 %.
    pub good: usize,
    /// How many with at least 60 %.
    pub fair: usize,
    /// How many with at least 90 % over the whole run.
    pub good_whole_run: usize,
    /// How many with a share refused within bounds: 2 %, and 6 % below 2/s per client.
    pub polite: usize,
    /// Bans of all clients.
    pub bans: u64,
    /// How many with a client that was banned twice or more.
    pub banned_twice: usize,
    /// How many never reached 90 % of the capacity.
    pub never_90: usize,
    /// Settled goodput.
    pub settled: Option<Percentiles>,
    /// Goodput of the whole run.
    pub goodput: Option<Percentiles>,
    /// Share refused.
    pub refused: Option<Percentiles>,
    /// Seconds to 90 % of the capacity, where it was reached.
    pub time_to_90_s: Option<Percentiles>,
    /// Fairness, where there are several clients.
    pub jain: Option<Percentiles>,
}

impl Distribution {
    /// Counts the verdicts of a set.
    pub fn of(verdicts: &[Verdict]) -> Self {
        let count = |holds: &dyn Fn(&Verdict) -> bool| {
            verdicts.iter().filter(|verdict| holds(verdict)).count()
        };
        let percentiles = |value: &dyn Fn(&Verdict) -> Option<f64>| {
            Percentiles::of(verdicts.iter().filter_map(value))
        };
        Self {
            upstreams: verdicts.len(),
            good: count(&|verdict| verdict.reaches(GOOD)),
            fair: count(&|verdict| verdict.reaches(FAIR)),
            good_whole_run: count(&|verdict| verdict.goodput.is_some_and(|share| share >= GOOD)),
            polite: count(&Verdict::is_polite),
            bans: verdicts.iter().map(|verdict| verdict.bans).sum(),
            banned_twice: count(&|verdict| verdict.max_client_bans > 1),
            never_90: count(&|verdict| verdict.time_to_90_s.is_none()),
            settled: percentiles(&|verdict| verdict.settled),
            goodput: percentiles(&|verdict| verdict.goodput),
            refused: percentiles(&|verdict| verdict.refused),
            time_to_90_s: percentiles(&|verdict| verdict.time_to_90_s),
            jain: percentiles(&|verdict| verdict.jain),
        }
    }

    /// The goals of the default strategy.
    pub fn goals(&self) -> [Goal; 4] {
        let share = |count: usize| count as f64 / (self.upstreams.max(1) as f64);
        let at_least = |name, count: usize, bound: f64| Goal {
            name,
            value: share(count),
            bound,
            is_met: share(count) >= bound,
        };
        [
            at_least("goodput of at least 90 %", self.good, 0.9),
            at_least("goodput of at least 60 %", self.fair, 0.99),
            at_least("refused within 2 %, 6 % below 2/s", self.polite, 0.9),
            Goal {
                name: "a client banned twice or more",
                value: share(self.banned_twice),
                bound: 0.0,
                is_met: self.banned_twice == 0,
            },
        ]
    }
}

/// A share of upstreams, and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// What is true of the share.
    pub name: &'static str,
    /// The share, from 0 to 1.
    pub value: f64,
    /// What the share should be.
    pub bound: f64,
    /// Whether the bound is met.
    pub is_met: bool,
}

impl Distribution {
    /// The distribution as lines of text.
    pub fn text(&self) -> String {
        let share = |count: usize| {
            let percent = 100.0 * count as f64 / (self.upstreams.max(1) as f64);
            format!("{count} of {} ({percent:.1} %)", self.upstreams)
        };
        let percentiles = |values: Option<Percentiles>, factor: f64, digits: usize| match values {
            None => "–".to_owned(),
            Some(values) => {
                let Percentiles {
                    min,
                    p10,
                    p50,
                    p90,
                    max,
                } = values;
                [min, p10, p50, p90, max]
                    .map(|value| format!("{:8.digits$}", factor * value))
                    .concat()
            }
        };
        let mut lines = String::new();
        let mut line = |name: &str, value: String| {
            lines += &format!("{name:34} {value}\n");
        };
        for goal in self.goals() {
            let mark = if goal.is_met { "met" } else { "MISSED" };
            let (value, bound) = (100.0 * goal.value, 100.0 * goal.bound);
            line(goal.name, format!("{value:.1} %, goal {bound} %: {mark}"));
        }
        line("90 % over the whole run", share(self.good_whole_run));
        line("bans", self.bans.to_string());
        line("never at 90 %", share(self.never_90));
        line(
            "",
            "     min     10 %     50 %     90 %      max".to_owned(),
        );
        line("settled goodput %", percentiles(self.settled, 100.0, 1));
        line("goodput %", percentiles(self.goodput, 100.0, 1));
        line("refused %", percentiles(self.refused, 100.0, 2));
        line("s to 90 %", percentiles(self.time_to_90_s, 1.0, 1));
        line("jain", percentiles(self.jain, 1.0, 3));
        lines
    }
}

impl Verdict {
    /// The figures in one line.
    pub fn text(&self) -> String {
        let shown = |value: Option<f64>, factor: f64, digits: usize| {
            value.map_or_else(
                || "–".to_owned(),
                |value| format!("{:.digits$}", factor * value),
            )
        };
        format!(
            "settled {:>5} % whole {:>5} % refused {:>5} % bans {} to 90 % {:>5} s jain {}",
            shown(self.settled, 100.0, 1),
            shown(self.goodput, 100.0, 1),
            shown(self.refused, 100.0, 2),
            self.bans,
            shown(self.time_to_90_s, 1.0, 1),
            shown(self.jain, 1.0, 3),
        )
    }
}
