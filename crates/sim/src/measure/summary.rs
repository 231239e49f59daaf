//! Figures of one run or of several alike, every number by its name.
//!
//! Over several seeds a figure is the mean. One that does not apply to one of the runs does not
//! apply to the mean either: a recovery that never came would otherwise make the others look good.

use super::Figures;

/// A figure by its name; `None` where it does not apply.
pub type Named = (&'static str, Option<f64>);

/// What one run or several came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Every figure that is one number, in the order of [`Figures::numbers`].
    pub figures: Vec<Named>,
    /// For each outage, `sent` and `recovery_s`.
    pub outages: Vec<Vec<Named>>,
    /// For each step, `at_s` and `settle_s`.
    pub steps: Vec<Vec<Named>>,
}

impl Summary {
    /// Of one run.
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

    /// The mean of runs of one scenario.
    pub fn mean(runs: &[Self]) -> Self {
        Self::combined(runs, mean)
    }

    /// How far runs of one scenario are apart: the standard deviation, 0 for a single run.
    pub fn spread(runs: &[Self]) -> Self {
        Self::combined(runs, deviation)
    }

    /// The figure of this name; `None` if it does not apply, or if there is no such figure.
    pub fn figure(&self, name: &str) -> Option<f64> {
        value(&self.figures, name)
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

/// Is this figure of a run always a whole number?
pub fn is_count(name: &str) -> bool {
    COUNTS.contains(&name)
}

const COUNTS: [&str; 8] = [
    "sent",
    "accepted",
    "refused",
    "failed",
    "early_after_hint",
    "bans",
    "breaker_opened",
    "max_queue",
];

fn value(figures: &[Named], name: &str) -> Option<f64> {
    let found = figures.iter().find(|(known, _)| *known == name);
    found.and_then(|(_, value)| *value)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of a sample: the runs stand for all the seeds that were not tried.
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
    fn several_runs_have_a_mean_and_a_spread() {
        let runs = [run(Some(2.0), 10.0), run(Some(4.0), 14.0)];
        let mean = Summary::mean(&runs);
        assert_eq!(mean.figure("sent"), Some(12.0));
        assert_eq!(mean.outages[0][1], ("recovery_s", Some(3.0)));
        let spread = Summary::spread(&runs);
        assert_eq!(spread.figure("sent"), Some(8.0_f64.sqrt()));
        assert_eq!(Summary::spread(&runs[..1]).figure("sent"), Some(0.0));
    }

    #[test]
    fn what_never_came_in_one_run_has_no_mean() {
        let runs = [run(Some(2.0), 10.0), run(None, 14.0)];
        assert_eq!(Summary::mean(&runs).outages[0][1], ("recovery_s", None));
        assert_eq!(Summary::spread(&runs).outages[0][1], ("recovery_s", None));
    }

    #[test]
    fn the_mean_of_one_run_is_that_run() {
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
