//! A scenario, played: figures as a table or as JSON, and whether they are enough.

pub(super) mod input;
mod record;
mod report;
mod table;

use anyhow::anyhow;
use serde_json::json;
use sim::assertion::Assertion;
use sim::measure::Summary;
use sim::scenario::{SHIPPED, Variant};
use sim::simulate::simulate_watched;

use super::{Failure, problems, unwritten};
use crate::args::SimulateArgs;
use crate::exit::Exit;
use crate::output::{Output, columns};

pub(crate) fn simulate(args: &SimulateArgs, is_json: bool, output: &Output) -> Result<(), Failure> {
    if args.list {
        return list(is_json, output);
    }
    if let Some(name) = &args.show {
        let text = input::shipped(name)?.text;
        return output.print(text.as_bytes()).or_else(unwritten);
    }
    // Whatever can be wrong with what was typed is found before anything is played.
    let assertions = assertions(&args.assertions)?;
    let draft = input::draft(args)?;
    let variants = draft.variants().map_err(|found| {
        let file = draft.file.as_ref().map(|(name, _)| name.as_str());
        problems::failure(file, found, SCENARIO_HINT, is_json, output)
    })?;
    let outcomes = play(args, &variants, output);
    let text = if is_json {
        record::text(&outcomes)
    } else {
        table::text(&input::title(args), &outcomes)
    };
    output.print(text.as_bytes()).or_else(unwritten)?;
    if let Some(path) = &args.report {
        report::write(path, args, &draft, &outcomes)?;
        output.detail(&format!("wrote {}", path.display()));
    }
    judge(&assertions, &outcomes)
}

const SCENARIO_HINT: &str = "`tidegate simulate --show o1` prints a scenario that works, `--help` how to write one in flags";

/// What one strategy came to.
struct Outcome<'a> {
    variant: &'a Variant,
    /// The first that was played.
    seed: u64,
    /// Of the only run, or the mean of several.
    summary: Summary,
    /// If several were asked for.
    over: Option<Seeds>,
}

/// What can be told of several seeds.
struct Seeds {
    count: u32,
    spread: Summary,
}

fn play<'a>(args: &SimulateArgs, variants: &'a [Variant], output: &Output) -> Vec<Outcome<'a>> {
    let seeds = args.seeds.unwrap_or(1);
    let parts = variants.len() as f64 * f64::from(seeds);
    let mut played = 0.0;
    let mut progress = output.progress();
    let mut outcomes = Vec::new();
    for variant in variants {
        let scenario = &variant.scenario;
        let first = args.seed.unwrap_or(scenario.seed);
        let mut runs = Vec::new();
        for number in 0..seeds {
            let seed = first.wrapping_add(number.into());
            let mut watch = |share: f64| progress.reached((played + share) / parts);
            let figures = simulate_watched(scenario, seed, &mut watch);
            runs.push(Summary::of(&figures));
            played += 1.0;
        }
        outcomes.push(Outcome {
            variant,
            seed: first,
            summary: Summary::mean(&runs),
            over: args.seeds.map(|count| Seeds {
                count,
                spread: Summary::spread(&runs),
            }),
        });
    }
    outcomes
}

fn assertions(written: &[String]) -> Result<Vec<Assertion>, Failure> {
    let mut assertions = Vec::new();
    let mut errors = Vec::new();
    for text in written {
        match text.parse::<Assertion>() {
            Ok(assertion) => assertions.push(assertion),
            Err(malformed) => errors.push(anyhow!("--assert '{text}', {malformed}")),
        }
    }
    if errors.is_empty() {
        return Ok(assertions);
    }
    let names = Assertion::NAMES.join(", ");
    Err(Failure {
        exit: Exit::Usage,
        errors,
        hint: Some(format!(
            "an assertion is `FIGURE OPERATOR NUMBER`, joined by `and`; figures are {names}"
        )),
    })
}

/// Every strategy has to meet every assertion.
fn judge(assertions: &[Assertion], outcomes: &[Outcome<'_>]) -> Result<(), Failure> {
    let mut errors = Vec::new();
    for outcome in outcomes {
        let strategy = &outcome.variant.strategy;
        let unmet = assertions.iter();
        let unmet = unmet.flat_map(|assertion| assertion.unmet(&outcome.summary));
        errors.extend(unmet.map(|unmet| anyhow!("{strategy}: {unmet}")));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure {
        exit: Exit::Failed,
        errors,
        hint: None,
    })
}

fn list(is_json: bool, output: &Output) -> Result<(), Failure> {
    let text = if is_json {
        let scenarios = SHIPPED.iter();
        let scenarios: Vec<_> = scenarios
            .map(|shipped| json!({ "name": shipped.name, "about": shipped.about }))
            .collect();
        format!("{:#}\n", json!(scenarios))
    } else {
        let mut rows = vec![vec!["scenario".to_owned(), "about".to_owned()]];
        let shipped = SHIPPED.iter();
        rows.extend(shipped.map(|shipped| vec![shipped.name.to_owned(), shipped.about.to_owned()]));
        columns(&rows)
    };
    output.print(text.as_bytes()).or_else(unwritten)
}
