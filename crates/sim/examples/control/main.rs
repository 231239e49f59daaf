//! Compares strategies over the shipped upstreams, and the default strategy with its goals.
//!
//! `control [SEEDS]` runs every upstream with every strategy and baseline, ten seeds each by default,
//! and prints the means: a table per upstream, the goals, the default strategy beside the best of three
//! designs, and one line of JSON. `scripts/bench-control` runs it and stores results.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

mod baseline;
mod beside;
mod goals;
mod runs;

use std::error::Error;

use serde_json::{Map, Value, json};

use beside::Beside;
use goals::{GOALS, Goal};
use runs::{CONTENDERS, Mean, Row, UPSTREAMS};

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = std::env::args()
        .nth(1)
        .map_or(Ok(10), |text| text.parse())?;
    let rows = runs::all(seeds)?;
    for upstream in UPSTREAMS {
        println!("\n{}: {}", upstream, runs::about(upstream));
        println!("{HEADING}");
        for row in rows.iter().filter(|row| row.upstream == upstream) {
            println!("{}", line(row));
        }
    }
    println!("\ngoals of `adaptive`");
    let results: Vec<_> = GOALS
        .iter()
        .filter_map(|goal| evaluate(goal, &rows))
        .collect();
    for (goal, value, met) in &results {
        let mark = if *met { "met   " } else { "MISSED" };
        let value = shown(*value, 3);
        println!(
            "{mark} {:6} {:24} {value:>8}  {}",
            goal.upstream, goal.figure, goal.bound
        );
    }
    println!("\n`adaptive` beside the best of `epochs` and `model`: no more than 5 points behind");
    let beside = beside::all(&rows);
    for each in &beside {
        println!("{}", comparison(each));
    }
    println!("{}", summary(seeds, &rows, &results, &beside));
    Ok(())
}

const HEADING: &str = "strategy        goodput  refused  latency  to 90 %  steps down/up    outage sent/back  \
                       opens  breaker  resends   jain   bans  early";

fn line(row: &Row) -> String {
    let Mean { figures } = &row.mean;
    let get = |name: &str| figures.get(name).copied().flatten();
    let per_cent = |name| shown(get(name).map(|ratio| 100.0 * ratio), 2);
    let pair = |a: &str, b: &str, digits| match (figures.get(a), figures.get(b)) {
        (None, None) => "–".to_owned(),
        _ => format!("{} / {}", shown(get(a), digits), shown(get(b), 1)),
    };
    format!(
        "{:14} {:>7}% {:>7}% {:>6}ms {:>7}s {:>14} {:>19} {:>6} {:>8} {:>8} {:>6} {:>6} {:>6}",
        row.contender,
        per_cent("goodput"),
        per_cent("refused"),
        shown(get("latency_ms"), 0),
        shown(get("time_to_90_s"), 1),
        pair("down_s", "up_s", 1),
        pair("outage_sent", "recovery_s", 0),
        shown(get("breaker_opened"), 1),
        shown(get("breaker_open_after_s"), 2),
        shown(get("sends_per_failure"), 2),
        shown(get("jain"), 3),
        shown(get("bans"), 1),
        shown(get("early"), 0),
    )
}

fn comparison(beside: &Beside) -> String {
    let Beside {
        upstream,
        figure,
        value,
        best,
        of,
        met,
    } = beside;
    let mark = if *met { "met   " } else { "MISSED" };
    format!("{mark} {upstream:6} {figure:24} {value:>8.3}  {best:.3} of `{of}`")
}

/// `–` for figures that do not apply.
fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

type GoalResult = (&'static Goal, Option<f64>, bool);

fn evaluate(goal: &'static Goal, rows: &[Row]) -> Option<GoalResult> {
    let row = rows
        .iter()
        .find(|row| row.upstream == goal.upstream && row.contender == CONTENDERS[0])?;
    let value = row.mean.figures.get(goal.figure).copied().flatten();
    Some((
        goal,
        value,
        value.is_some_and(|value| goal.bound.holds(value)),
    ))
}

fn summary(seeds: u64, rows: &[Row], results: &[GoalResult], beside: &[Beside]) -> Value {
    let mut goals = Map::new();
    for upstream in UPSTREAMS {
        let of = results
            .iter()
            .filter(|(goal, _, _)| goal.upstream == upstream);
        let mut entry = Map::new();
        entry.insert("met".into(), of.clone().all(|(_, _, met)| *met).into());
        for (goal, value, _) in of {
            entry.insert(goal.figure.into(), number(*value));
        }
        goals.insert(upstream.into(), entry.into());
    }
    let met = goals.values().filter(|entry| entry["met"] == true).count();
    let of = goals.len();
    let strategies: Map<String, Value> = CONTENDERS
        .iter()
        .map(|contender| {
            let own = rows.iter().filter(|row| row.contender == *contender);
            let upstreams: Map<String, Value> = own
                .map(|row| (row.upstream.to_owned(), mean(&row.mean)))
                .collect();
            ((*contender).to_owned(), upstreams.into())
        })
        .collect();
    let behind = beside::summary(beside);
    json!({
        "behind": behind, "goals": goals, "met": met, "of": of, "seeds": seeds,
        "strategies": strategies,
    })
}

fn mean(mean: &Mean) -> Value {
    let figures = mean.figures.iter();
    let figures: Map<String, Value> = figures
        .filter(|(_, value)| value.is_some())
        .map(|(name, value)| ((*name).to_owned(), number(*value)))
        .collect();
    figures.into()
}

/// Four digits after the point: more is not significant with ten seeds.
fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| ((value * 1e4).round() / 1e4).into())
}
