//! A simulation as a page to look at: what every strategy did over time, its figures, and how to
//! repeat it.
//!
//! The page is one file that needs no network and no script, so that it can be attached, archived
//! and opened years later. Plots are drawings inside the page whose colours are names: the page
//! says what they are in light, in dark and on paper. The same report always gives the same bytes.
//!
//! Whatever others wrote, the scenario above all, is text on the page and never part of it.

mod bins;
mod canvas;
mod clients;
mod colour;
mod markup;
mod page;
mod plots;
mod scale;
mod states;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::measure::{Figures, Series};

/// What a page is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Report<'a> {
    /// The scenario's name.
    pub name: &'a str,
    /// What it is about, in a phrase; may be empty.
    pub about: &'a str,
    /// The scenario as it was written.
    pub text: &'a str,
    /// How long it lasts.
    pub duration: Duration,
    /// What random numbers came from.
    pub seed: u64,
    /// The command that gives the same page.
    pub command: &'a str,
    /// The same scenario with one strategy after the other, in the order in which they are shown.
    pub runs: Vec<StrategyRun>,
}

/// What came of one strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategyRun {
    /// The strategy, in words.
    pub strategy: String,
    /// What it came to.
    pub figures: Figures,
    /// What happened over time; best in slices of [`step_for`].
    pub series: Series,
}

/// The whole page.
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

/// The length of a slice that suits a plot of this duration: a plot is about 800 points wide, and
/// no line needs more than that.
pub fn step_for(duration: Duration) -> Duration {
    const SLICES: u32 = 600;
    (duration / SLICES).max(Duration::from_millis(1))
}
