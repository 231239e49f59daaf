//! A simulation as an HTML page: what every strategy did over time, its figures, and the command
//! that repeats it.
//!
//! The page is one file without scripts or external resources, so that it can be attached and
//! archived. Plots are inline SVG with colours by name, which the page's style sets for light, dark
//! and print. The same report always gives the same bytes.
//!
//! Text from outside, such as the scenario, is escaped.

mod bins;
mod clients;
mod course;
mod fleet;
mod keys;
mod lanes;
mod life;
mod page;
mod phases;
mod plots;
mod states;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::measure::{Figures, Series};

pub use course::{Course, CourseBand, courses};
pub use fleet::fleet_without_store;
pub use keys::{limits_of_keys, store_work_of_keys};
pub use life::life_of_a_limit;

/// The content of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Report<'a> {
    /// The scenario's name.
    pub name: &'a str,
    /// Its description, a phrase; may be empty.
    pub about: &'a str,
    /// The scenario as it was written.
    pub text: &'a str,
    /// Its duration.
    pub duration: Duration,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The command that gives the same page.
    pub command: &'a str,
    /// The runs of the scenario, one per strategy, in the order in which they are shown.
    pub runs: Vec<StrategyRun>,
}

/// The result of one strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategyRun {
    /// The strategy's name.
    pub strategy: String,
    /// Its figures.
    pub figures: Figures,
    /// Its course over time; best in slices of [`step_for`].
    pub series: Series,
}

/// Renders the page.
///
/// ```
/// use sim::report::{self, Report, StrategyRun};
/// use sim::scenario::Shipped;
/// use sim::simulate::simulate_with_series;
///
/// let shipped = Shipped::find("o5").unwrap();
/// let scenario = shipped.scenario();
/// let step = report::step_for(scenario.duration);
/// let (figures, series) = simulate_with_series(&scenario, 1, step);
/// let page = report::html(&Report {
///     name: shipped.name,
///     about: shipped.about,
///     text: shipped.text,
///     duration: scenario.duration,
///     seed: 1,
///     command: "tidegate simulate o5 --seed 1",
///     runs: vec![StrategyRun { strategy: "adaptive".into(), figures, series }],
/// });
/// assert!(page.starts_with("<!DOCTYPE html>"));
/// ```
pub fn html(report: &Report<'_>) -> String {
    page::page(report)
}

/// The length of a slice for a run of this duration: a plot is 800 pixels wide, so more slices than
/// that would not be seen.
pub fn step_for(duration: Duration) -> Duration {
    const SLICES: u32 = 600;
    (duration / SLICES).max(Duration::from_millis(1))
}
