//! Writes the page of a shipped scenario to a file, with one or several strategies.
//!
//! `cargo run --release --package tidegate-sim --example report -- o5 page.html adaptive none`

use std::error::Error;
use std::{env, fs};

use sim::client::Strategy;
use sim::report::{self, Report, StrategyRun};
use sim::scenario::Shipped;
use sim::simulate::simulate_with_series;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [name, path, strategies @ ..] = arguments.as_slice() else {
        return Err("expected a scenario, a file and strategies".into());
    };
    let shipped = Shipped::find(name).ok_or_else(|| format!("no scenario `{name}`"))?;
    let scenario = shipped.scenario();
    let mut runs = Vec::new();
    for strategy in strategies {
        let scenario = scenario
            .clone()
            .with_strategy(strategy.parse::<Strategy>()?);
        let step = report::step_for(scenario.duration);
        let (figures, series) = simulate_with_series(&scenario, scenario.seed, step);
        runs.push(StrategyRun {
            strategy: strategy.clone(),
            figures,
            series,
        });
    }
    let seed = scenario.seed;
    let chosen = strategies.join(",");
    let page = report::html(&Report {
        name: shipped.name,
        about: shipped.about,
        text: shipped.text,
        duration: scenario.duration,
        seed,
        command: &format!("tidegate simulate {name} --strategy {chosen} --seed {seed}"),
        runs,
    });
    fs::write(path, page)?;
    Ok(())
}
