//! Figures as JSON.
//!
//! One object, or a list of them for several strategies. The names keep the order of the reference,
//! so that two outputs can be compared line by line.

use serde::Serialize;
use sim::measure::Summary;

use super::Outcome;
use crate::commands::Failure;
use crate::output::Output;

pub(super) fn print(outcomes: &[Outcome<'_>], output: &Output) -> Result<(), Failure> {
    let records: Vec<Record<'_>> = outcomes.iter().map(record).collect();
    match records.as_slice() {
        [only] => output.json(only),
        several => output.json(&several),
    }
}

#[derive(Serialize)]
struct Record<'a> {
    strategy: &'a str,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seeds: Option<u32>,
    #[serde(flatten)]
    figures: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<&'a Summary>,
}

fn record<'a>(outcome: &'a Outcome<'_>) -> Record<'a> {
    Record {
        strategy: &outcome.variant.strategy,
        seed: outcome.seed,
        seeds: outcome.over.as_ref().map(|over| over.count),
        figures: &outcome.summary,
        spread: outcome.over.as_ref().map(|over| &over.spread),
    }
}
