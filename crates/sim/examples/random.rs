//! Judges a strategy on random upstreams.
//!
//! `random N SEED [--strategy NAME] [--worst K] [--only INDEX] [--write DIR]` prints the distribution of
//! figures over N upstreams and lists the worst. `--only` runs and prints a single one. The same as
//! `tidegate simulate --random N --seed SEED`, which takes longer to build.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use sim::client::Strategy;
use sim::random::{Distribution, Verdict, describe, scenario, scenario_text, simulate_all};
use sim::scenario::Scenario;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let Options {
        count,
        seed,
        strategy,
        ..
    } = options;
    if let Some(directory) = &options.write {
        fs::create_dir_all(directory)?;
        for index in 0..count {
            let file = directory.join(format!("{seed}-{index}.toml"));
            fs::write(file, scenario_text(seed, index))?;
        }
    }
    let indexes: Vec<u64> = match options.only {
        Some(index) => vec![index],
        None => (0..count).collect(),
    };
    let scenarios: Vec<Scenario> = indexes
        .iter()
        .map(|index| scenario(seed, *index).with_strategy(strategy))
        .collect();
    let figures = simulate_all(&scenarios, &mut |_| {});
    let verdicts: Vec<Verdict> = scenarios
        .iter()
        .zip(&figures)
        .map(|(scenario, figures)| Verdict::new(scenario, figures))
        .collect();
    if options.only.is_some() {
        println!("{}", scenario_text(seed, indexes[0]));
        println!("{:#?}", figures[0]);
        return Ok(());
    }
    let distribution = Distribution::of(&verdicts);
    print!("{}", distribution.text());
    let mut worst: Vec<usize> = (0..verdicts.len()).collect();
    worst.sort_by(|a, b| verdicts[*b].badness().total_cmp(&verdicts[*a].badness()));
    println!("\nworst");
    for place in worst.into_iter().take(options.worst) {
        println!(
            "{:3} {} | {}",
            indexes[place],
            verdicts[place].text(),
            describe(&scenarios[place])
        );
    }
    Ok(())
}

struct Options {
    count: u64,
    seed: u64,
    strategy: Strategy,
    worst: usize,
    only: Option<u64>,
    write: Option<PathBuf>,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            count: 70,
            seed: 1,
            strategy: Strategy::Adaptive,
            worst: 15,
            only: None,
            write: None,
        };
        let mut position = 0;
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("`{word}` needs a value"))
            };
            match &*word {
                "--strategy" => options.strategy = value()?.parse()?,
                "--worst" => options.worst = value()?.parse()?,
                "--only" => options.only = Some(value()?.parse()?),
                "--write" => options.write = Some(value()?.into()),
                _ if position == 0 => {
                    options.count = word.parse()?;
                    position = 1;
                }
                _ if position == 1 => {
                    options.seed = word.parse()?;
                    position = 2;
                }
                _ => return Err(format!("`{word}` is unknown").into()),
            }
        }
        Ok(options)
    }
}
