//! Bounds on goodput and on the share of refused requests, for tests over shipped scenarios.

use std::fmt::Write;

use sim::measure::Figures;
use sim::scenario::{Scenario, Shipped};
use sim::simulate::simulate;

pub(crate) const SEEDS: [u64; 2] = [1, 2];

/// A shipped scenario with bounds on goodput from 60 s on and on the share of refused requests,
/// both in percent.
pub(crate) struct Row(
    pub(crate) &'static str,
    pub(crate) (f64, f64),
    pub(crate) (f64, f64),
);

/// Simulates the scenario of every row, modified by `change`, and compares the figures with the
/// row's bounds. A failure prints the table and the seeds.
pub(crate) fn check(
    change: impl Fn(Scenario) -> Scenario,
    rows: &[Row],
    also: impl Fn(&str, &Figures),
) {
    let mut table = String::new();
    let mut failures = 0;
    for Row(name, goodput, refused) in rows {
        let scenario = change(Shipped::find(name).unwrap().scenario());
        for seed in SEEDS {
            let figures = simulate(&scenario, seed);
            let settled = 100.0 * figures.goodput_ratio_settled.unwrap();
            let share = 100.0 * figures.refused_ratio.unwrap();
            let within = |value: f64, bounds: &(f64, f64)| bounds.0 <= value && value <= bounds.1;
            let is_within = within(settled, goodput) && within(share, refused);
            failures += u32::from(!is_within);
            let mark = if is_within { ' ' } else { '!' };
            writeln!(
                table,
                "{mark} {name:6} seed {seed}: goodput {settled:6.2} in {goodput:?}, refused {share:5.2} in {refused:?}"
            )
            .unwrap();
            if is_within {
                also(name, &figures);
            }
        }
    }
    assert_eq!(failures, 0, "\n{table}");
}
