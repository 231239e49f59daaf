//! The goals of the strategy `adaptive` with its default settings.
//!
//! `goals [SEEDS] [--only PREFIX] [--beside FILE]` runs every upstream with SEEDS seeds, 20 by default,
//! and prints each goal with the mean of all seeds, and the mean of the seeds from 11 on: the first
//! ten were used for tuning. `--only` leaves out upstreams whose names do not start with PREFIX. The last
//! line is JSON; `--beside` takes the output of another build and prints its values beside.
//! `scripts/bench-control` runs it.
//!
//! It uses little of the library, so that it also builds with older ones.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

mod figures;
mod goals;
mod upstreams;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Map, Value, json};

use figures::Named;
use goals::{GOALS, Goal};

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let runs = runs(&options)?;
    let goals = GOALS.iter();
    let results: Vec<_> = goals
        .filter_map(|goal| GoalResult::of(goal, &runs))
        .collect();
    println!("{}", heading(&options));
    for result in &results {
        println!("{}", result.line(options.beside.as_ref()));
    }
    println!("{}", summary(&options, &results));
    Ok(())
}

struct Options {
    seeds: u64,
    only: String,
    /// The last line of another build's output.
    beside: Option<Value>,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            seeds: 20,
            only: String::new(),
            beside: None,
        };
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next();
                value.ok_or_else(|| format!("`{word}` needs a value"))
            };
            match &*word {
                "--only" => options.only = value()?,
                "--beside" => {
                    let text = fs::read_to_string(value()?)?;
                    let last = text.lines().last().unwrap_or_default();
                    options.beside = Some(serde_json::from_str(last)?);
                }
                _ => options.seeds = word.parse()?,
            }
        }
        Ok(options)
    }
}

/// The seeds up to this one were used for tuning.
const TUNING_SEEDS: u64 = 10;

/// The runs of each upstream, by seed.
type Runs = BTreeMap<String, Vec<(u64, Named)>>;

/// Runs all upstreams on all processors.
fn runs(options: &Options) -> Result<Runs, Box<dyn Error>> {
    let mut jobs = Vec::new();
    for name in upstreams::names() {
        if name.starts_with(&options.only) {
            let scenario = upstreams::scenario(&name)?;
            jobs.extend((1..=options.seeds).map(|seed| (name.clone(), scenario.clone(), seed)));
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((name, scenario, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((name.clone(), *seed, figures::run(scenario, *seed)));
        }
        done
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let done = workers.into_iter().map(|worker| worker.join());
        done.map(|done| done.map_err(|_| "a run panicked"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let mut runs = Runs::new();
    for (name, seed, figures) in done.into_iter().flatten() {
        runs.entry(name).or_default().push((seed, figures));
    }
    Ok(runs)
}

struct GoalResult {
    goal: &'static Goal,
    /// The mean of all seeds.
    value: Option<f64>,
    /// The mean of those that were not used for tuning.
    unseen: Option<f64>,
    is_met: bool,
}

impl GoalResult {
    /// `None` if its upstream was not run.
    fn of(goal: &'static Goal, runs: &Runs) -> Option<Self> {
        let runs = runs.get(goal.upstream)?;
        let mean = |from: u64| {
            let runs = runs.iter().filter(|(seed, _)| *seed >= from);
            let runs: Vec<&Named> = runs.map(|(_, figures)| figures).collect();
            figures::mean(&runs).get(goal.figure).copied().flatten()
        };
        let value = mean(1);
        Some(Self {
            goal,
            value,
            unseen: mean(TUNING_SEEDS + 1),
            is_met: value.is_some_and(|value| goal.bound.holds(value)),
        })
    }

    fn line(&self, beside: Option<&Value>) -> String {
        let mark = |is_met| if is_met { "met   " } else { "MISSED" };
        let Goal {
            upstream,
            figure,
            bound,
        } = self.goal;
        let mut line = format!(
            "{} {upstream:10} {figure:20} {:>8} {:>8}",
            mark(self.is_met),
            shown(self.value),
            shown(self.unseen)
        );
        if let Some(beside) = beside {
            let of = |part: &str| beside[part][upstream][figure].as_f64();
            let value = of("goals");
            let is_met = value.is_some_and(|value| bound.holds(value));
            let (value, unseen) = (shown(value), shown(of("unseen")));
            line += &format!("  {} {value:>8} {unseen:>8}", mark(is_met));
        }
        line + &format!("  {bound}")
    }
}

fn heading(options: &Options) -> String {
    let all = format!("1..{}", options.seeds);
    let unseen = match options.seeds > TUNING_SEEDS {
        true => format!("{}..{}", TUNING_SEEDS + 1, options.seeds),
        false => "–".to_owned(),
    };
    let mut line = format!(
        "\n{:38} {all:>8} {unseen:>8}",
        "goals of `adaptive`, mean of seeds"
    );
    if options.beside.is_some() {
        line += &format!("  before {all:>8} {unseen:>8}");
    }
    line
}

fn summary(options: &Options, results: &[GoalResult]) -> Value {
    let mut goals = Map::new();
    let mut unseen = Map::new();
    for result in results {
        let Goal {
            upstream, figure, ..
        } = result.goal;
        let entry = |map: &mut Map<String, Value>, name: &str, value: Value| {
            let upstream = map.entry(*upstream).or_insert_with(|| json!({}));
            upstream[name] = value;
        };
        let is_met = goals
            .get(*upstream)
            .is_none_or(|of: &Value| of["met"] == true);
        entry(&mut goals, figure, number(result.value));
        entry(&mut goals, "met", (is_met && result.is_met).into());
        entry(&mut unseen, figure, number(result.unseen));
    }
    let met = goals.values().filter(|of| of["met"] == true).count();
    let of = goals.len();
    let figures_met = results.iter().filter(|result| result.is_met).count();
    let mut summary = json!({
        "goals": goals, "met": met, "of": of, "seeds": options.seeds, "unseen": unseen,
        "figures_met": figures_met, "figures": results.len(),
    });
    if let Some(beside) = &options.beside {
        let names = ["goals", "unseen", "figures_met"];
        let before: Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), beside[*name].clone()))
            .collect();
        summary["before"] = before.into();
    }
    summary
}

/// `–` for figures that do not apply.
fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}

/// Four digits after the point: more is not significant with twenty seeds.
fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| ((value * 1e4).round() / 1e4).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &'static str, value: Option<f64>) -> Named {
        Named::from([(name, value)])
    }

    #[test]
    fn every_goal_has_an_upstream_and_a_figure() {
        let names = upstreams::names();
        for name in &names {
            upstreams::scenario(name).unwrap();
            assert!(GOALS.iter().any(|goal| goal.upstream == name), "{name}");
        }
        for goal in GOALS {
            assert!(names.iter().any(|name| name == goal.upstream));
        }
        for name in ["ban", "share", "0.1/s-10"] {
            let figures = figures::run(&upstreams::scenario(name).unwrap(), 1);
            for goal in GOALS.iter().filter(|goal| goal.upstream == name) {
                assert!(figures[goal.figure].is_some(), "{name} {}", goal.figure);
            }
        }
    }

    #[test]
    fn mean_of_max_is_the_highest() {
        let check = |name, values: [Option<f64>; 2], expected| {
            let runs = values.map(|value| run(name, value));
            let mean = figures::mean(&[&runs[0], &runs[1]]);
            assert_eq!(mean, run(name, expected));
        };
        check("bans", [Some(0.0), Some(3.0)], Some(1.5));
        check("bans_max", [Some(0.0), Some(3.0)], Some(3.0));
        check("recovery_s", [Some(1.0), None], None);
    }

    #[test]
    fn values_of_seeds_for_tuning_are_left_out_of_unseen() {
        let goal = GOALS.iter().find(|goal| goal.figure == "goodput").unwrap();
        let seeds = [(1, 0.5), (11, 1.0)];
        let seeds = seeds.map(|(seed, value)| (seed, run("goodput", Some(value))));
        let runs = Runs::from([(goal.upstream.to_owned(), seeds.to_vec())]);
        let result = GoalResult::of(goal, &runs).unwrap();
        assert_eq!((result.value, result.unseen), (Some(0.75), Some(1.0)));
        assert!(!result.is_met);
    }
}
