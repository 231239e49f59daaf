//! The HTML report of a simulation.

use std::fs;
use std::path::Path;

use anyhow::Context;
use sim::report::{self, Report, StrategyRun};
use sim::scenario::{Draft, Shipped};
use sim::simulate::simulate_with_series;

use super::{Outcome, SimulateArgs, input};
use crate::commands::Failure;
use crate::exit::Exit;

/// Writes the report of the first seed of every strategy to `path`.
pub(super) fn write(
    path: &Path,
    args: &SimulateArgs,
    draft: &Draft,
    outcomes: &[Outcome<'_>],
) -> Result<(), Failure> {
    let Some(first) = outcomes.first() else {
        return Ok(());
    };
    let name = input::title(args);
    let page = report::html(&Report {
        name: &name,
        about: Shipped::find(&name).map_or("", |shipped| shipped.about),
        text: &text(draft),
        duration: first.variant.scenario.duration,
        seed: first.seed,
        command: &command(args, first.seed),
        runs: outcomes.iter().map(run).collect(),
    });
    let written =
        fs::write(path, page).with_context(|| format!("cannot write `{}`", path.display()));
    written.map_err(|error| Failure::new(Exit::Failed, error))
}

fn run(outcome: &Outcome<'_>) -> StrategyRun {
    let scenario = &outcome.variant.scenario;
    let step = report::step_for(scenario.duration);
    let (figures, series) = simulate_with_series(scenario, outcome.seed, step);
    StrategyRun {
        strategy: outcome.variant.strategy.clone(),
        figures,
        series,
    }
}

/// The scenario as written: the file, or the flag in its place.
fn text(draft: &Draft) -> String {
    match (&draft.file, &draft.upstream) {
        (Some((_, bytes)), _) => String::from_utf8_lossy(bytes).into_owned(),
        (None, Some(upstream)) => format!("--upstream '{upstream}'\n"),
        (None, None) => String::new(),
    }
}

/// The command that gives the same report, without `--report`.
fn command(args: &SimulateArgs, seed: u64) -> String {
    let mut command = "tidegate simulate".to_owned();
    if let Some(scenario) = &args.scenario {
        command += &format!(" {}", quoted(scenario));
    }
    let mut flag = |name: &str, value: &str| command += &format!(" {name} {}", quoted(value));
    if let Some(upstream) = &args.upstream {
        flag("--upstream", upstream);
    }
    if !args.strategies.is_empty() {
        flag("--strategy", &args.strategies.join(","));
    }
    if let Some(duration) = &args.duration {
        flag("--duration", duration);
    }
    if let Some(clients) = &args.clients {
        flag("--clients", clients);
    }
    for setting in &args.settings {
        flag("--set", setting);
    }
    if let Some(config) = &args.config {
        flag("--config", &config.display().to_string());
    }
    flag("--seed", &seed.to_string());
    command
}

/// Quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=%+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
