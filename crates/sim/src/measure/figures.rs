//! The figures of one run, and their mean and spread over several.

use std::ops::AddAssign;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// The figures of one run. The names are those of `--json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Accepted over capacity, whole run; `None` without capacity.
    pub goodput_ratio: Option<f64>,
    /// The same from 60 s on.
    pub goodput_ratio_settled: Option<f64>,
    /// Requests that left a client.
    pub sent: u64,
    /// Responses with 2xx or 3xx that arrived.
    pub accepted: u64,
    /// Responses with 429, 403 or 503 that arrived.
    pub refused: u64,
    /// All other ended attempts: 500s, refused connections, timeouts.
    pub failed: u64,
    /// Refused over sent; `None` if nothing was sent.
    pub refused_ratio: Option<f64>,
    /// Requests sent after a hint had arrived at that client and before the hint's wait ended.
    pub early_after_hint: u64,
    /// How many times a client was banned.
    pub bans: u64,
    /// How many times the client was banned that was banned most often; not in `--json`.
    pub max_client_bans: u64,
    /// How many times a breaker opened.
    pub breaker_opened: u64,
    /// The maximum length of the server's queue; `None` if it has no queue.
    pub max_queue: Option<u64>,
    /// Start of the first interval with 90 % of the capacity, in seconds.
    pub time_to_90_s: Option<f64>,
    /// One per outage.
    pub outages: Vec<OutageFigures>,
    /// One per step of the limit.
    pub steps: Vec<StepFigures>,
    /// Resends after failures.
    pub failure_cost: FailureCost,
    /// From sending to response, accepted requests from 60 s on.
    pub mean_latency_ms: Option<f64>,
    /// The 99th percentile of the same.
    pub p99_latency_ms: Option<f64>,
    /// Jain's index over accepted requests per client from 100 s on.
    pub jain: Option<f64>,
    /// The most that was sent in 10 s from 60 s on, over what the limit allows in 10 s; `None` if the
    /// limit is not a bucket.
    pub peak_ratio: Option<f64>,
    /// Calls to the stores of fleets over requests sent; `None` without fleets.
    pub store_calls_per_request: Option<f64>,
    /// What each client does at the end and why, in a sentence; `None` if it has no gate. Not in
    /// `--json`.
    pub explanations: Vec<Option<String>>,
}

impl Figures {
    /// Every figure that is one number, with its name, in display order; `None` where it does not
    /// apply.
    pub fn numbers(&self) -> [Named; 17] {
        let count = |number: u64| Some(number as f64);
        [
            ("goodput_ratio", self.goodput_ratio),
            ("goodput_ratio_settled", self.goodput_ratio_settled),
            ("sent", count(self.sent)),
            ("accepted", count(self.accepted)),
            ("refused", count(self.refused)),
            ("failed", count(self.failed)),
            ("refused_ratio", self.refused_ratio),
            ("early_after_hint", count(self.early_after_hint)),
            ("bans", count(self.bans)),
            ("breaker_opened", count(self.breaker_opened)),
            ("max_queue", self.max_queue.and_then(count)),
            ("time_to_90_s", self.time_to_90_s),
            ("mean_latency_ms", self.mean_latency_ms),
            ("p99_latency_ms", self.p99_latency_ms),
            ("jain", self.jain),
            ("peak_ratio", self.peak_ratio),
            ("store_calls_per_request", self.store_calls_per_request),
        ]
    }
}

/// Figures of an outage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutageFigures {
    /// Requests sent during it.
    pub sent: u64,
    /// From its end to the first interval with 90 % of the capacity, in seconds; `None` if there is none
    /// before the next outage.
    pub recovery_s: Option<f64>,
}

/// Figures of a step of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepFigures {
    /// When the limit changed, in seconds.
    pub at_s: f64,
    /// From then to the first interval with 90 % of the capacity, after a step down also with at most
    /// 10 % refused, in seconds; `None` if there is none before the next step.
    pub settle_s: Option<f64>,
}

/// Failures and resends of requests that failed at least once and were finally accepted. A refusal
/// is not a failure, but a resend after it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCost {
    /// How many times they failed.
    pub failures: u64,
    /// How many times they were sent after their first failure.
    pub sends: u64,
}

impl FailureCost {
    /// Sends per failure: 1 if nothing else goes wrong. `None` without failures.
    pub fn sends_per_failure(&self) -> Option<f64> {
        (self.failures > 0).then(|| self.sends as f64 / self.failures as f64)
    }
}

impl AddAssign for FailureCost {
    fn add_assign(&mut self, other: Self) {
        self.failures += other.failures;
        self.sends += other.sends;
    }
}

/// A figure with its name; `None` where it does not apply.
pub type Named = (&'static str, Option<f64>);

/// The figures of one run, or the mean or spread of several runs of a scenario.
///
/// A figure that does not apply to one of the runs does not apply to the mean either: otherwise a run
/// that never recovers would improve the mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Every figure that is one number, in the order of [`Figures::numbers`].
    pub figures: Vec<Named>,
    /// For each outage, `sent` and `recovery_s`.
    pub outages: Vec<Vec<Named>>,
    /// For each step, `at_s` and `settle_s`.
    pub steps: Vec<Vec<Named>>,
}

/// As `tidegate simulate --json` prints them: figures by name, in order. Counts have no fraction, unless
/// they are a mean that has one.
impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.figures {
            map.serialize_entry(name, &Number(name, *value))?;
            if *name == "time_to_90_s" {
                map.serialize_entry("outages", &rows(&self.outages))?;
                map.serialize_entry("steps", &rows(&self.steps))?;
            }
        }
        map.end()
    }
}

fn rows(rows: &[Vec<Named>]) -> Vec<Row<'_>> {
    rows.iter().map(|row| Row(row)).collect()
}

struct Row<'a>(&'a [Named]);

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let numbers = self.0.iter();
        serializer.collect_map(numbers.map(|(name, value)| (name, Number(name, *value))))
    }
}

struct Number<'a>(&'a str, Option<f64>);

impl Serialize for Number<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            None => serializer.serialize_none(),
            Some(number) if is_count(self.0) && number.fract() == 0.0 => {
                serializer.serialize_u64(crate::whole(number))
            }
            Some(number) => serializer.serialize_f64(number),
        }
    }
}

impl Summary {
    /// The figures of one run.
    pub fn of(figures: &Figures) -> Self {
        let outages = figures.outages.iter().map(|outage| {
            vec![
                ("sent", Some(outage.sent as f64)),
                ("recovery_s", outage.recovery_s),
            ]
        });
        let steps = figures
            .steps
            .iter()
            .map(|step| vec![("at_s", Some(step.at_s)), ("settle_s", step.settle_s)]);
        Self {
            figures: figures.numbers().to_vec(),
            outages: outages.collect(),
            steps: steps.collect(),
        }
    }

    /// The mean of several runs.
    pub fn mean(runs: &[Self]) -> Self {
        Self::combined(runs, mean)
    }

    /// The standard deviation of several runs; 0 for a single run.
    pub fn spread(runs: &[Self]) -> Self {
        Self::combined(runs, deviation)
    }

    /// The figure of this name; `None` if it does not apply, or if there is no such figure.
    pub fn figure(&self, name: &str) -> Option<f64> {
        value(&self.figures, name)
    }

    /// The figure of this name of an outage, counted from 0.
    pub fn outage(&self, index: usize, name: &str) -> Option<f64> {
        value(self.outages.get(index)?, name)
    }

    /// The figure of this name of a step, counted from 0.
    pub fn step(&self, index: usize, name: &str) -> Option<f64> {
        value(self.steps.get(index)?, name)
    }

    fn combined(runs: &[Self], combine: impl Fn(&[f64]) -> f64) -> Self {
        let column = |part: &dyn Fn(&Self) -> &[Named]| -> Vec<Named> {
            let first = runs.first().map_or(&[] as &[Named], part);
            let names = first.iter().map(|(name, _)| *name);
            let figures = names.map(|name| {
                let values: Option<Vec<f64>> =
                    runs.iter().map(|run| value(part(run), name)).collect();
                (name, values.map(|values| combine(&values)))
            });
            figures.collect()
        };
        let (outages, steps) = runs
            .first()
            .map_or((0, 0), |first| (first.outages.len(), first.steps.len()));
        Self {
            figures: column(&|run| &run.figures),
            outages: (0..outages)
                .map(|index| column(&|run| &run.outages[index]))
                .collect(),
            steps: (0..steps)
                .map(|index| column(&|run| &run.steps[index]))
                .collect(),
        }
    }
}

/// Whether this figure is always a whole number.
pub fn is_count(name: &str) -> bool {
    let mut figures = FIGURES.iter();
    figures.any(|(known, unit, _)| *known == name && *unit == Unit::Count)
}

/// How to display a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share, in percent.
    Share,
    /// A count.
    Count,
    /// A time in seconds.
    Seconds,
    /// A time in milliseconds.
    Milliseconds,
    /// From 0 to 1, with three decimals.
    Index,
}

/// Every figure that is one number, in display order: its name, its unit and what it means.
pub const FIGURES: [(&str, Unit, &str); 17] = [
    (
        "goodput_ratio",
        Unit::Share,
        "Accepted requests over the upstream's capacity.",
    ),
    (
        "goodput_ratio_settled",
        Unit::Share,
        "The same from 60 s on, when the limit should be known.",
    ),
    ("sent", Unit::Count, "Requests sent."),
    ("accepted", Unit::Count, "Responses with 2xx or 3xx."),
    ("refused", Unit::Count, "Responses with 429, 403 or 503."),
    (
        "failed",
        Unit::Count,
        "Everything else: 500s, refused connections, timeouts.",
    ),
    ("refused_ratio", Unit::Share, "Refused over sent."),
    (
        "early_after_hint",
        Unit::Count,
        "Requests sent before the end of a wait that the server had named.",
    ),
    (
        "bans",
        Unit::Count,
        "How often the upstream banned a client.",
    ),
    ("breaker_opened", Unit::Count, "How often a breaker opened."),
    (
        "max_queue",
        Unit::Count,
        "The longest queue at the upstream, if it has one.",
    ),
    (
        "time_to_90_s",
        Unit::Seconds,
        "Time until 90 % of the capacity was used.",
    ),
    (
        "mean_latency_ms",
        Unit::Milliseconds,
        "From sending to response, accepted requests from 60 s on: mean.",
    ),
    (
        "p99_latency_ms",
        Unit::Milliseconds,
        "The same: 99th percentile.",
    ),
    (
        "jain",
        Unit::Index,
        "Fairness among clients from 100 s on; 1 is equal.",
    ),
    (
        "peak_ratio",
        Unit::Share,
        "The most sent in 10 s from 60 s on, over what the bucket allows.",
    ),
    (
        "store_calls_per_request",
        Unit::Index,
        "Calls to the stores of fleets over requests sent.",
    ),
];

fn value(figures: &[Named], name: &str) -> Option<f64> {
    let found = figures.iter().find(|(known, _)| *known == name);
    found.and_then(|(_, value)| *value)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample.
fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Shipped;
    use crate::simulate::simulate;

    fn run(recovery_s: Option<f64>, sent: f64) -> Summary {
        Summary {
            figures: vec![("sent", Some(sent))],
            outages: vec![vec![("sent", Some(1.0)), ("recovery_s", recovery_s)]],
            steps: Vec::new(),
        }
    }

    #[test]
    fn mean_and_spread_of_several_runs() {
        let runs = [run(Some(2.0), 10.0), run(Some(4.0), 14.0)];
        let mean = Summary::mean(&runs);
        assert_eq!(mean.figure("sent"), Some(12.0));
        assert_eq!(mean.outages[0][1], ("recovery_s", Some(3.0)));
        let spread = Summary::spread(&runs);
        assert_eq!(spread.figure("sent"), Some(8.0_f64.sqrt()));
        assert_eq!(Summary::spread(&runs[..1]).figure("sent"), Some(0.0));
    }

    #[test]
    fn mean_is_none_if_one_run_has_no_value() {
        let runs = [run(Some(2.0), 10.0), run(None, 14.0)];
        assert_eq!(Summary::mean(&runs).outages[0][1], ("recovery_s", None));
        assert_eq!(Summary::spread(&runs).outages[0][1], ("recovery_s", None));
    }

    #[test]
    fn mean_of_one_run_equals_the_run() {
        let scenario = Shipped::find("o7").unwrap().scenario();
        let summary = Summary::of(&simulate(&scenario, 1));
        assert_eq!(Summary::mean(std::slice::from_ref(&summary)), summary);
        let counts = summary.figures.iter().filter(|(name, _)| is_count(name));
        for (name, count) in counts {
            assert!(
                count.is_none_or(|count| count.fract().abs() < 1e-9),
                "{name}"
            );
        }
    }
}
