//! Judges a strategy on random upstreams, like `tidegate simulate --random`, and beside another build.
//!
//! `random N SEED[,SEED…] [OPTIONS]` runs N upstreams of each set, and prints the distribution of the
//! figures, the worst upstreams, and JSON as the last line.
//!
//! - `--strategy NAME`: the strategy, `adaptive` by default
//! - `--worst K`: how many of the worst upstreams, 10 by default
//! - `--only INDEX`: run a single upstream; print its file and all figures
//! - `--write DIR`: write the scenario files, and run nothing
//! - `--beside DIR`: DIR has the output of `tidegate simulate --json` of another build for each file,
//!   with the ending `.json`; print its figures too

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sim::client::Strategy;
use sim::random::{self, Distribution, Verdict};
use sim::scenario::Scenario;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    if let Some(directory) = &options.write {
        return write(&options, directory);
    }
    if let Some(index) = options.only {
        return show(&options, index);
    }
    let mut sets = Vec::new();
    for seed in &options.seeds {
        let set = Set::run(&options, *seed)?;
        println!("\n{} upstreams of seed {seed}", options.count);
        set.print(&options);
        sets.push((*seed, set));
    }
    let mut summary = json!({ "upstreams": options.count, "sets": {} });
    for (seed, set) in &sets {
        summary["sets"][seed.to_string()] = set.summary();
    }
    if sets.len() > 1 {
        let all = Set::concat(sets.into_iter().map(|(_, set)| set));
        println!("\nall sets");
        Set::print_table(&all);
        summary["all"] = all.summary();
    }
    println!("{summary}");
    Ok(())
}

struct Options {
    count: u64,
    seeds: Vec<u64>,
    strategy: Strategy,
    worst: usize,
    only: Option<u64>,
    write: Option<PathBuf>,
    beside: Option<PathBuf>,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            count: 70,
            seeds: vec![1],
            strategy: Strategy::Adaptive,
            worst: 10,
            only: None,
            write: None,
            beside: None,
        };
        let mut numbers = 0;
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next();
                value.ok_or_else(|| format!("`{word}` needs a value"))
            };
            match &*word {
                "--strategy" => options.strategy = value()?.parse()?,
                "--worst" => options.worst = value()?.parse()?,
                "--only" => options.only = Some(value()?.parse()?),
                "--write" => options.write = Some(value()?.into()),
                "--beside" => options.beside = Some(value()?.into()),
                _ => {
                    numbers += 1;
                    match numbers {
                        1 => options.count = word.parse()?,
                        2 => {
                            let seeds = word.split(',').map(str::parse);
                            options.seeds = seeds.collect::<Result<_, _>>()?;
                        }
                        _ => return Err(format!("`{word}` is unknown").into()),
                    }
                }
            }
        }
        Ok(options)
    }
}

fn write(options: &Options, directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    for seed in &options.seeds {
        for index in 0..options.count {
            let text = random::scenario_text(*seed, index);
            fs::write(directory.join(random::file_name(*seed, index)), text)?;
        }
    }
    Ok(())
}

fn show(options: &Options, index: u64) -> Result<(), Box<dyn Error>> {
    let seed = *options.seeds.first().ok_or("a seed is needed")?;
    let scenario = random::scenario(seed, index).with_strategy(options.strategy);
    let figures = random::simulate_all(&[scenario], &mut |_| {});
    println!("{}", random::scenario_text(seed, index));
    println!("{figures:#?}");
    Ok(())
}

/// The results of a set.
struct Set {
    scenarios: Vec<Scenario>,
    now: Vec<Verdict>,
    /// Of another build.
    before: Option<Vec<Verdict>>,
}

impl Set {
    fn run(options: &Options, seed: u64) -> Result<Self, Box<dyn Error>> {
        let scenarios: Vec<Scenario> = (0..options.count)
            .map(|index| random::scenario(seed, index).with_strategy(options.strategy))
            .collect();
        let figures = random::simulate_all(&scenarios, &mut |_| {});
        let now = scenarios.iter().zip(&figures);
        let now = now.map(|(scenario, figures)| Verdict::new(scenario, figures));
        let now = now.collect();
        let before = options.beside.as_ref().map(|directory| {
            let read = |(index, scenario): (u64, &Scenario)| {
                let file = directory.join(random::file_name(seed, index));
                let file = file.with_extension("json");
                let text = fs::read_to_string(&file)?;
                Verdict::from_json(scenario, &text)
                    .map_err(|error| format!("{}: {error}", file.display()).into())
            };
            let verdicts = (0..).zip(&scenarios).map(read);
            verdicts.collect::<Result<Vec<_>, Box<dyn Error>>>()
        });
        Ok(Self {
            now,
            before: before.transpose()?,
            scenarios,
        })
    }

    fn concat(sets: impl Iterator<Item = Self>) -> Self {
        let empty = Self {
            scenarios: Vec::new(),
            now: Vec::new(),
            before: Some(Vec::new()),
        };
        sets.fold(empty, |mut all, set| {
            all.scenarios.extend(set.scenarios);
            all.now.extend(set.now);
            all.before = all.before.zip(set.before).map(|(mut all, before)| {
                all.extend(before);
                all
            });
            all
        })
    }

    fn print(&self, options: &Options) {
        self.print_table();
        let mut heading = vec!["worst".to_owned()];
        heading.extend(Verdict::HEADINGS.map(str::to_owned));
        let worst = random::worst(&self.now).into_iter().take(options.worst);
        let rows = worst.map(|index| {
            let mut row = vec![index.to_string()];
            row.extend(self.now[index].cells());
            row.push(random::describe(&self.scenarios[index]));
            row
        });
        print_aligned(&std::iter::once(heading).chain(rows).collect::<Vec<_>>());
    }

    fn print_table(&self) {
        let now = Distribution::of(&self.now);
        let before = self.before.as_deref().map(Distribution::of);
        let columns = match &before {
            Some(before) => vec![("before", before), ("now", &now)],
            None => vec![("now", &now)],
        };
        print_aligned(&random::table(&columns));
    }

    fn summary(&self) -> Value {
        let mut summary = json!({ "now": Distribution::of(&self.now) });
        if let Some(before) = &self.before {
            summary["before"] = json!(Distribution::of(before));
        }
        summary
    }
}

/// Columns but the first are aligned to the right; cells beyond the heading are not aligned.
fn print_aligned(rows: &[Vec<String>]) {
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths.get(column).copied().unwrap_or(0);
            match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            }
        });
        println!("{}", cells.collect::<Vec<_>>().join("  "));
    }
}
