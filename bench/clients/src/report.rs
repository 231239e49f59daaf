//! The result, as a table of Markdown for people and as one line of JSON for programs.
//!
//! The only place of this package that prints.

use std::error::Error;

use crate::mocks::MOCKS;
use crate::{ROUNDS, Row, URLS, WORKERS};

pub(crate) fn print(rows: &[Row]) {
    println!("{URLS} requests to five servers, {WORKERS} at a time, medians of {ROUNDS} runs:");
    for (name, _) in MOCKS {
        println!("- {name}");
    }
    println!();
    println!("| client | answered | sent more than needed | refused | time |");
    println!("|---|---:|---:|---:|---:|");
    for row in rows {
        let (name, answered, extra) = (row.name, row.answered, extra(row));
        let (refused, took) = (row.refused, row.took.as_secs_f64());
        println!("| {name} | {answered} | {extra} | {refused} | {took:.1} s |");
    }
    println!();
    println!("{}", json(rows));
}

pub(crate) fn fail(error: &dyn Error) {
    eprintln!("error: {error}");
}

/// Requests beyond one for each URL.
fn extra(row: &Row) -> u32 {
    let needed = u32::try_from(URLS).unwrap_or(u32::MAX);
    row.sent.saturating_sub(needed)
}

fn json(rows: &[Row]) -> String {
    let rows: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                r#"{{"client":"{}","answered":{},"extra":{},"refused":{},"seconds":{:.2}}}"#,
                row.name,
                row.answered,
                extra(row),
                row.refused,
                row.took.as_secs_f64()
            )
        })
        .collect();
    format!(
        r#"{{"requests":{URLS},"rounds":{ROUNDS},"clients":[{}]}}"#,
        rows.join(",")
    )
}
