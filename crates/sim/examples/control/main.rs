//! Compares strategies over the shipped upstreams.
//!
//! `control [SEEDS]` runs every upstream with every strategy and baseline, twenty seeds each by default,
//! and prints the means: a table per upstream, the default strategy beside the best of three designs,
//! and one line of JSON. `scripts/bench-control` runs it and the example `goals`, and stores results.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

mod baseline;
mod beside;
#[path = "../goals/figures.rs"]
mod figures;
mod runs;

use std::error::Error;

use serde_json::{Map, Value, json};

use beside::Beside;
use figures::Named;
use runs::{CONTENDERS, Row, UPSTREAMS};

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = std::env::args()
        .nth(1)
        .map_or(Ok(20), |text| text.parse())?;
    let rows = runs::all(seeds)?;
    for upstream in UPSTREAMS {
        println!("\n{}: {}", upstream, runs::about(upstream));
        println!("{HEADING}");
        for row in rows.iter().filter(|row| row.upstream == upstream) {
            println!("{}", line(row));
        }
    }
    println!("\n`adaptive` beside the best of `epochs` and `model`: no more than 5 points behind");
    let beside = beside::all(&rows);
    for each in &beside {
        println!("{}", comparison(each));
    }
    println!("{}", summary(&rows, &beside));
    Ok(())
}

const HEADING: &str = "strategy        goodput  refused  latency  to 90 %  steps down/up    outage sent/back  \
                       opens  breaker  resends   jain   bans  early";

fn line(row: &Row) -> String {
    let figures = &row.mean;
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

fn summary(rows: &[Row], beside: &[Beside]) -> Value {
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
    json!({ "behind": behind, "strategies": strategies })
}

fn mean(mean: &Named) -> Value {
    let figures = mean.iter();
    let figures: Map<String, Value> = figures
        .filter(|(_, value)| value.is_some())
        .map(|(name, value)| ((*name).to_owned(), number(*value)))
        .collect();
    figures.into()
}

/// Four digits after the point: more is not significant with twenty seeds.
fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| ((value * 1e4).round() / 1e4).into())
}
