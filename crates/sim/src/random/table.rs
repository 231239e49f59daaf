//! Results as rows of text: distributions side by side, and single upstreams.

use super::distribution::{Distribution, Percentiles};
use super::verdict::Verdict;

/// Distributions of the same set side by side, each with its name: a heading, the goals, and the
/// percentiles of all figures.
pub fn table(results: &[(&str, &Distribution)]) -> Vec<Vec<String>> {
    let mut heading = vec!["share of upstreams".to_owned(), "goal".to_owned()];
    heading.extend(results.iter().map(|(name, _)| (*name).to_owned()));
    let mut rows = vec![heading];
    let goals: Vec<_> = results.iter().map(|(_, of)| of.goals()).collect();
    for index in 0..goals.first().map_or(0, |goals| goals.len()) {
        let goal = goals[0][index];
        let mut row = vec![goal.name.to_owned(), percent(goal.bound, 0)];
        row.extend(goals.iter().map(|goals| {
            let mark = if goals[index].is_met { "met" } else { "MISSED" };
            format!("{mark} {}", percent(goals[index].share, 1))
        }));
        rows.push(row);
    }
    let mut row = |name: &str, cell: &dyn Fn(&Distribution) -> String| {
        let cells = results.iter().map(|(_, of)| cell(of));
        let row = [name.to_owned(), String::new()].into_iter().chain(cells);
        rows.push(row.collect());
    };
    row("goodput at least 90 %, whole run", &|of| {
        let share = of.goodput_90_whole_run as f64 / (of.upstreams.max(1) as f64);
        percent(share, 1)
    });
    row("90 % never reached", &|of| {
        percent(of.never_at_90 as f64 / (of.upstreams.max(1) as f64), 1)
    });
    row("bans", &|of| of.bans.to_string());
    for (name, figure, shown, percentiles) in PERCENTILES {
        for (percentile, value) in *percentiles {
            row(&format!("{name}, {percentile}"), &|of| {
                figure(of).map_or_else(none, |of| shown(value(&of)))
            });
        }
    }
    rows
}

/// A figure with its name, how it is shown, and its percentiles.
type Row = (
    &'static str,
    Figure,
    fn(f64) -> String,
    &'static [Percentile],
);
type Figure = fn(&Distribution) -> Option<Percentiles>;
type Percentile = (&'static str, fn(&Percentiles) -> f64);

const MIN: Percentile = ("lowest", |of| of.min);
const P10: Percentile = ("10th percentile", |of| of.p10);
const P50: Percentile = ("median", |of| of.p50);
const P90: Percentile = ("90th percentile", |of| of.p90);
const MAX: Percentile = ("highest", |of| of.max);

/// The percentiles are those at the bad end of each figure.
const PERCENTILES: &[Row] = &[
    (
        "goodput",
        |of| of.goodput_ratio_settled,
        |value| percent(value, 1),
        &[P50, P10, MIN],
    ),
    (
        "goodput of the whole run",
        |of| of.goodput_ratio,
        |value| percent(value, 1),
        &[P50, P10, MIN],
    ),
    (
        "refused",
        |of| of.refused_ratio,
        |value| percent(value, 2),
        &[P50, P90, MAX],
    ),
    (
        "time to 90 %",
        |of| of.time_to_90_s,
        seconds,
        &[P50, P90, MAX],
    ),
    ("fairness", |of| of.jain, index, &[P50, P10, MIN]),
];

impl Verdict {
    /// The headings of [`Self::cells`].
    pub const HEADINGS: [&str; 6] = [
        "settled", "goodput", "refused", "bans", "to 90 %", "fairness",
    ];

    /// The figures of one upstream.
    pub fn cells(&self) -> [String; 6] {
        let shown =
            |value: Option<f64>, text: &dyn Fn(f64) -> String| value.map_or_else(none, text);
        [
            shown(self.goodput_ratio_settled, &|value| percent(value, 1)),
            shown(self.goodput_ratio, &|value| percent(value, 1)),
            shown(self.refused_ratio, &|value| percent(value, 2)),
            self.bans.to_string(),
            shown(self.time_to_90_s, &seconds),
            shown(self.jain, &index),
        ]
    }
}

/// A figure that does not apply.
fn none() -> String {
    "–".to_owned()
}

fn percent(ratio: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * ratio)
}

fn seconds(value: f64) -> String {
    format!("{value:.1}s")
}

fn index(value: f64) -> String {
    format!("{value:.3}")
}
