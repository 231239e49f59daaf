//! Figures as JSON.
//!
//! One object, or a list of them for several strategies. The names keep the order of the reference,
//! so that two outputs can be compared line by line.

use serde::{Serialize, Serializer};
use sim::measure::{Named, Summary, is_count};

use super::Outcome;
use crate::commands::Failure;
use crate::output::Output;

pub(super) fn print(outcomes: &[Outcome<'_>], output: &Output) -> Result<(), Failure> {
    let records: Vec<Record> = outcomes.iter().map(record).collect();
    match records.as_slice() {
        [only] => output.json(only),
        several => output.json(&several),
    }
}

/// Values by name, in order.
struct Record(Vec<(&'static str, Value)>);

enum Value {
    Text(String),
    Count(u64),
    Number(f64),
    Null,
    Record(Record),
    List(Vec<Record>),
}

fn record(outcome: &Outcome<'_>) -> Record {
    let strategy = outcome.variant.strategy.clone();
    let mut entries = vec![
        ("strategy", Value::Text(strategy)),
        ("seed", Value::Count(outcome.seed)),
    ];
    if let Some(over) = &outcome.over {
        entries.push(("seeds", Value::Count(over.count.into())));
    }
    entries.extend(figures(&outcome.summary));
    if let Some(over) = &outcome.over {
        let spread = Record(figures(&over.spread));
        entries.push(("spread", Value::Record(spread)));
    }
    Record(entries)
}

fn figures(summary: &Summary) -> Vec<(&'static str, Value)> {
    let list = |rows: &[Vec<Named>]| {
        let rows = rows
            .iter()
            .map(|row| Record(row.iter().map(named).collect()));
        Value::List(rows.collect())
    };
    let mut entries = Vec::new();
    for figure in &summary.figures {
        entries.push(named(figure));
        if figure.0 == "time_to_90_s" {
            entries.push(("outages", list(&summary.outages)));
            entries.push(("steps", list(&summary.steps)));
        }
    }
    entries
}

/// Counts are written without a fraction, unless they are a mean that has one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count that is whole and not negative"
)]
fn named(&(name, value): &Named) -> (&'static str, Value) {
    let value = match value {
        None => Value::Null,
        Some(number) if is_count(name) && number.fract() == 0.0 => Value::Count(number as u64),
        Some(number) => Value::Number(number),
    };
    (name, value)
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Null => serializer.serialize_none(),
            Self::Record(record) => record.serialize(serializer),
            Self::List(records) => records.serialize(serializer),
        }
    }
}
