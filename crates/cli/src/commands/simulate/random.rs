//! `--random`: strategies on a set of random upstreams.

use std::fs;
use std::path::Path;

use anyhow::Context;
use policy::setting;
use serde::Serialize;
use sim::random::{self, Distribution, Verdict};
use sim::scenario::{Draft, Scenario, Variant};

use super::{SCENARIO_HINT, SimulateArgs, input};
use crate::commands::{Failure, problems};
use crate::exit::Exit;
use crate::output::{self, Output};

pub(super) fn count(text: &str) -> Result<u32, String> {
    setting::whole(text, 1, 10_000)
}

pub(super) fn worst_count(text: &str) -> Result<u32, String> {
    setting::whole(text, 0, 10_000)
}

pub(super) fn run(args: &SimulateArgs, count: u32, output: &Output) -> Result<(), Failure> {
    let seed = args.seed.unwrap_or(1);
    let results = strategies(args, seed, count, output)?;
    if let Some(folder) = &args.write {
        let written = write(folder, seed, count);
        written.map_err(|error| Failure::new(Exit::Failed, error))?;
        output.detail(&format!("wrote {count} files to {}", folder.display()));
    }
    let results = simulate(results, output);
    if output.is_json() {
        let records: Vec<Record<'_>> = results.iter().map(|result| result.record(seed)).collect();
        return match records.as_slice() {
            [only] => output.json(only),
            several => output.json(&several),
        };
    }
    let worst = args.worst.unwrap_or(10);
    output.text(&text(&results, seed, worst as usize))
}

/// A strategy and the upstreams that it runs on.
struct Strategy {
    name: String,
    scenarios: Vec<Scenario>,
}

/// The results of a strategy.
struct StrategyResult {
    name: String,
    scenarios: Vec<Scenario>,
    verdicts: Vec<Verdict>,
    distribution: Distribution,
}

/// The set for every strategy of the flags.
fn strategies(
    args: &SimulateArgs,
    seed: u64,
    count: u32,
    output: &Output,
) -> Result<Vec<Strategy>, Failure> {
    let draft = input::draft(args, output)?;
    let mut strategies: Vec<Strategy> = Vec::new();
    for index in 0..u64::from(count) {
        let name = random::file_name(seed, index);
        let draft = Draft {
            file: Some((name.clone(), random::scenario_text(seed, index).into())),
            ..draft.clone()
        };
        let variants = draft
            .variants()
            .map_err(|found| problems::failure(Some(&name), found, SCENARIO_HINT, output))?;
        for (place, Variant { strategy, scenario }) in variants.into_iter().enumerate() {
            match strategies.get_mut(place) {
                Some(strategy) => strategy.scenarios.push(scenario),
                None => strategies.push(Strategy {
                    name: strategy,
                    scenarios: vec![scenario],
                }),
            }
        }
    }
    Ok(strategies)
}

fn write(folder: &Path, seed: u64, count: u32) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write to `{}`", folder.display());
    fs::create_dir_all(folder).with_context(cannot_write)?;
    for index in 0..u64::from(count) {
        let file = folder.join(random::file_name(seed, index));
        fs::write(file, random::scenario_text(seed, index)).with_context(cannot_write)?;
    }
    Ok(())
}

fn simulate(strategies: Vec<Strategy>, output: &Output) -> Vec<StrategyResult> {
    let parts: usize = strategies.iter().map(|of| of.scenarios.len()).sum();
    let mut progress = output.progress();
    let mut before = 0;
    let mut results = Vec::new();
    for Strategy { name, scenarios } in strategies {
        let mut done =
            |done: usize| progress.update((before + done) as f64 / (parts.max(1) as f64));
        let figures = random::simulate_all(&scenarios, &mut done);
        before += scenarios.len();
        let verdicts: Vec<Verdict> = scenarios
            .iter()
            .zip(&figures)
            .map(|(scenario, figures)| Verdict::new(scenario, figures))
            .collect();
        results.push(StrategyResult {
            name,
            distribution: Distribution::of(&verdicts),
            scenarios,
            verdicts,
        });
    }
    results
}

fn text(results: &[StrategyResult], seed: u64, worst: usize) -> String {
    let count = results.first().map_or(0, |result| result.scenarios.len());
    let distributions: Vec<_> = results
        .iter()
        .map(|result| (result.name.as_str(), &result.distribution))
        .collect();
    let mut parts = vec![
        format!("{count} random upstreams, seed {seed}; goodput is that from 60 s on\n"),
        output::figures(&random::table(&distributions)),
    ];
    parts.extend(results.iter().filter_map(|result| result.worst(worst)));
    parts.join("\n")
}

impl StrategyResult {
    /// A table of the worst upstreams; `None` if there are none.
    fn worst(&self, count: usize) -> Option<String> {
        let mut indexes = random::worst(&self.verdicts);
        indexes.truncate(count);
        if indexes.is_empty() {
            return None;
        }
        let mut heading = vec![format!("worst of {}", self.name)];
        heading.extend(Verdict::HEADINGS.map(str::to_owned));
        let rows = indexes.iter().map(|index| {
            let mut row = vec![index.to_string()];
            row.extend(self.verdicts[*index].cells());
            row
        });
        let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
        let table = output::figures(&rows);
        let mut lines = table.lines().map(str::to_owned);
        let mut text = format!("{}\n", lines.next().unwrap_or_default());
        for (line, index) in lines.zip(indexes) {
            let about = random::describe(&self.scenarios[index]);
            text.push_str(&format!("{line}  {about}\n"));
        }
        Some(text)
    }

    fn record(&self, seed: u64) -> Record<'_> {
        let upstreams = (0..).zip(self.scenarios.iter().zip(&self.verdicts));
        let upstreams = upstreams.map(|(index, (scenario, verdict))| UpstreamRecord {
            index,
            about: random::describe(scenario),
            verdict,
        });
        Record {
            strategy: &self.name,
            seed,
            goals: self.distribution.goals(),
            distribution: &self.distribution,
            upstreams: upstreams.collect(),
        }
    }
}

#[derive(Serialize)]
struct Record<'a> {
    strategy: &'a str,
    seed: u64,
    goals: [random::Goal; 4],
    distribution: &'a Distribution,
    upstreams: Vec<UpstreamRecord<'a>>,
}

#[derive(Serialize)]
struct UpstreamRecord<'a> {
    index: u64,
    about: String,
    #[serde(flatten)]
    verdict: &'a Verdict,
}
