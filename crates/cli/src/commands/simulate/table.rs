//! Figures as a table: a row for each strategy, then the outages and steps, and what each client does
//! at the end.

use policy::duration::Exact;
use policy::time::Timestamp;
use sim::measure::{Named, Summary};

use super::Outcome;
use crate::output::{figures, table};

pub(super) fn text(title: &str, outcomes: &[Outcome<'_>]) -> String {
    let tables = [strategies(outcomes), outages(outcomes), steps(outcomes)];
    let tables = tables.iter().filter(|rows| rows.len() > 1);
    let tables = tables.map(|rows| figures(rows));
    let tables: Vec<String> = tables.chain(explanations(outcomes)).collect();
    format!("{}\n\n{}", heading(title, outcomes), tables.join("\n"))
}

fn heading(title: &str, outcomes: &[Outcome<'_>]) -> String {
    let Some(first) = outcomes.first() else {
        return title.to_owned();
    };
    let duration = Exact(first.variant.scenario.duration);
    let seed = first.seed;
    match &first.over {
        None => format!("{title}: {duration} of virtual time, seed {seed}"),
        Some(over) => {
            let last = seed.wrapping_add(u64::from(over.count) - 1);
            format!(
                "{title}: {duration} of virtual time, seeds {seed} to {last}, \
                 mean ± standard deviation"
            )
        }
    }
}

/// A figure and how it is shown.
struct Column {
    heading: &'static str,
    figure: &'static str,
    unit: Unit,
    /// Is it shown even if it applies to no strategy?
    is_usual: bool,
}

#[derive(Clone, Copy)]
enum Unit {
    /// A percentage with so many digits after the point.
    Share(usize),
    Count,
    Millis,
    Seconds,
    /// From 0 to 1.
    Index,
}

const COLUMNS: [Column; 13] = [
    usual("goodput", "goodput_ratio", Unit::Share(1)),
    usual("settled", "goodput_ratio_settled", Unit::Share(1)),
    // Two digits: a tenth of a percent decides whether a strategy meets its goal.
    usual("refused", "refused_ratio", Unit::Share(2)),
    usual("sent", "sent", Unit::Count),
    usual("latency", "mean_latency_ms", Unit::Millis),
    usual("p99", "p99_latency_ms", Unit::Millis),
    usual("to 90 %", "time_to_90_s", Unit::Seconds),
    usual("bans", "bans", Unit::Count),
    usual("breaker", "breaker_opened", Unit::Count),
    usual("early", "early_after_hint", Unit::Count),
    rare("queue", "max_queue", Unit::Count),
    rare("fairness", "jain", Unit::Index),
    rare("store calls", "store_calls_per_request", Unit::Index),
];

const fn usual(heading: &'static str, figure: &'static str, unit: Unit) -> Column {
    Column {
        heading,
        figure,
        unit,
        is_usual: true,
    }
}

const fn rare(heading: &'static str, figure: &'static str, unit: Unit) -> Column {
    Column {
        is_usual: false,
        ..usual(heading, figure, unit)
    }
}

fn strategies(outcomes: &[Outcome<'_>]) -> Vec<Vec<String>> {
    let applies = |column: &&Column| {
        let mut values = outcomes.iter().map(|of| of.summary.figure(column.figure));
        column.is_usual || values.any(|value| value.is_some())
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(applies).collect();
    let mut heading = vec!["strategy".to_owned()];
    heading.extend(columns.iter().map(|column| column.heading.to_owned()));
    let mut rows = vec![heading];
    for outcome in outcomes {
        let mut row = vec![outcome.variant.strategy.clone()];
        row.extend(columns.iter().map(|column| {
            let of = |summary: &Summary| summary.figure(column.figure);
            let spread = outcome.over.as_ref().and_then(|over| of(&over.spread));
            shown(of(&outcome.summary), spread, column.unit)
        }));
        rows.push(row);
    }
    rows
}

fn outages(outcomes: &[Outcome<'_>]) -> Vec<Vec<String>> {
    let mut rows = vec![words(&["strategy", "outage", "sent", "recovery"])];
    for outcome in outcomes {
        let outages = &outcome.variant.scenario.upstream.outages;
        for (index, outage) in outages.iter().enumerate() {
            let cells = parts(outcome, [Unit::Count, Unit::Seconds], |summary| {
                &summary.outages[index]
            });
            let when = format!("{} to {}", moment(outage.from), moment(outage.to));
            rows.push([vec![outcome.variant.strategy.clone(), when], cells].concat());
        }
    }
    rows
}

fn steps(outcomes: &[Outcome<'_>]) -> Vec<Vec<String>> {
    let mut rows = vec![words(&["strategy", "step at", "settled after"])];
    for outcome in outcomes {
        for (index, step) in outcome.variant.scenario.upstream.steps.iter().enumerate() {
            let cells = parts(outcome, [Unit::Seconds; 2], |summary| &summary.steps[index]);
            let strategy = outcome.variant.strategy.clone();
            rows.push(vec![strategy, moment(step.at), cells[1].clone()]);
        }
    }
    rows
}

/// What clients do at the end, and why; `None` if none of them has a gate.
fn explanations(outcomes: &[Outcome<'_>]) -> Option<String> {
    let has_several = outcomes.iter().any(|of| of.explanations.len() > 1);
    let mut rows = Vec::new();
    for outcome in outcomes {
        let shown = outcome.explanations.iter().take(MAX_CLIENTS);
        for (index, explanation) in shown.enumerate() {
            let Some(explanation) = explanation else {
                continue;
            };
            let client = has_several.then(|| (index + 1).to_string());
            let mut row = vec![outcome.variant.strategy.clone()];
            row.extend(client);
            row.push(explanation.clone());
            rows.push(row);
        }
    }
    let heading: &[&str] = match has_several {
        true => &["strategy", "client", "at the end"],
        false => &["strategy", "at the end"],
    };
    (!rows.is_empty()).then(|| table(heading, rows.into_iter()))
}

/// As many as the report shows.
const MAX_CLIENTS: usize = 16;

/// The figures of an outage or a step.
fn parts(
    outcome: &Outcome<'_>,
    units: [Unit; 2],
    row: impl Fn(&Summary) -> &Vec<Named>,
) -> Vec<String> {
    let spreads = outcome.over.as_ref().map(|over| row(&over.spread));
    let values = row(&outcome.summary).iter().zip(units).enumerate();
    let cells = values.map(|(index, ((_, value), unit))| {
        let spread = spreads.and_then(|row| row[index].1);
        shown(*value, spread, unit)
    });
    cells.collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn moment(at: Timestamp) -> String {
    format!("{}s", at.seconds_since(Timestamp::ZERO))
}

fn shown(value: Option<f64>, spread: Option<f64>, unit: Unit) -> String {
    let Some(value) = value else {
        return "–".to_owned();
    };
    let spread = spread.filter(|spread| *spread > 0.0);
    let (factor, digits, sign) = match unit {
        Unit::Share(digits) => (100.0, digits, " %"),
        Unit::Count => (1.0, usize::from(spread.is_some()), ""),
        Unit::Millis if value >= 10_000.0 => (1e-3, 1, "s"),
        Unit::Millis => (1.0, 0, "ms"),
        Unit::Seconds => (1.0, 1, "s"),
        Unit::Index => (1.0, 3, ""),
    };
    let number = |value: f64| format!("{:.digits$}", value * factor);
    match spread {
        None => format!("{}{sign}", number(value)),
        Some(spread) => format!("{} ± {}{sign}", number(value), number(spread)),
    }
}
