//! Measures fleets: nodes that share a limit, and what happens when something fails.
//!
//! `fleet [SEEDS] [NAME]` runs every fleet and every fault, or those whose names begin with NAME, with
//! this many seeds, five by default. It prints the means, and the worst 10 s of all seeds.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;
use std::time::Duration;

use sim::fleet::FleetSettings;
use sim::measure::{Figures, Series};
use sim::scenario::{Scenario, Shipped};
use sim::simulate::{simulate, simulate_with_series};

/// The name of a row, the upstream, and the number of nodes; none: one client without a store.
const FLEETS: [(&str, &str, Option<u32>); 12] = [
    ("100/s alone", "fleet-8", None),
    ("100/s ×8", "fleet-8", Some(8)),
    ("100/s ×64", "fleet-8", Some(64)),
    ("o2 alone", "o2", None),
    ("o2 ×8", "o2", Some(8)),
    ("o2 ×64", "o2", Some(64)),
    ("o3 alone", "o3", None),
    ("o3 ×8", "o3", Some(8)),
    ("o3 ×64", "o3", Some(64)),
    ("o9 alone", "o9", None),
    ("o9 ×8", "o9", Some(8)),
    ("o9 ×64", "o9", Some(64)),
];

/// The name of a row, the fleet at a bucket of 100/s, and how long the fault lasts from 120 s on.
const FAULTS: [(&str, &str, u32); 13] = [
    ("none", "nodes = 8", 30),
    (
        "killed, empty",
        "nodes = 8\nstore = { outage = [{ from = \"120s\", to = \"150s\", empty = true }] }",
        30,
    ),
    (
        "killed, empty ×64",
        "nodes = 64\nstore = { outage = [{ from = \"120s\", to = \"150s\", empty = true }] }",
        30,
    ),
    (
        "frozen",
        "nodes = 8\nstore = { outage = [{ from = \"120s\", to = \"150s\" }] }",
        30,
    ),
    ("flushed", "nodes = 8\nstore = { flush = [\"120s\"] }", 30),
    ("1 % lost", "nodes = 8\nstore = { loss = 0.01 }", 30),
    (
        "store of 50 ms",
        "nodes = 8\nstore = { latency = \"50ms\" }",
        30,
    ),
    (
        "1 of 8 cut off",
        "nodes = 8\nstore = { partition = [{ nodes = 8, from = \"120s\", to = \"150s\" }] }",
        30,
    ),
    (
        "owner cut off",
        "nodes = 8\nstore = { partition = [{ nodes = 1, from = \"120s\", to = \"150s\" }] }",
        30,
    ),
    (
        "4 of 8 cut off",
        "nodes = 8\nstore = { partition = [{ nodes = \"5-8\", from = \"120s\", to = \"150s\" }] }",
        30,
    ),
    (
        "node killed",
        "nodes = 8\ndown = [{ nodes = 8, from = \"120s\" }]",
        5,
    ),
    (
        "owner killed",
        "nodes = 8\ndown = [{ nodes = 1, from = \"120s\" }]",
        5,
    ),
    (
        "7 join 1",
        "nodes = 8\ndown = [{ nodes = \"2-8\", from = \"0s\", to = \"120s\" }]",
        10,
    ),
];

const FROM_S: usize = 120;
const STEP: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let only = arguments.next().unwrap_or_default();
    println!("fleet               goodput  refused   jain  bans     peak  calls per request");
    for (name, upstream, nodes) in FLEETS.into_iter().filter(|row| row.0.starts_with(&only)) {
        let scenario = fleet(upstream, nodes)?;
        let runs: Vec<_> = (1..=seeds).map(|seed| simulate(&scenario, seed)).collect();
        println!("{name:<18} {}", line(&runs));
    }
    println!(
        "\nfault                peak     during: goodput refused  10 s after: goodput refused"
    );
    for (name, client, length) in FAULTS.into_iter().filter(|row| row.0.starts_with(&only)) {
        let scenario = faulty(client)?;
        let runs = (1..=seeds).map(|seed| simulate_with_series(&scenario, seed, STEP));
        println!(
            "{name:<18} {}",
            fault_line(&runs.collect::<Vec<_>>(), length)
        );
    }
    Ok(())
}

fn fleet(upstream: &str, nodes: Option<u32>) -> Result<Scenario, Box<dyn Error>> {
    let shipped = Shipped::find(upstream).ok_or("no such scenario")?;
    let mut scenario = shipped.scenario();
    scenario.duration = Duration::from_secs(660);
    scenario.clients[0].fleet = nodes.map(FleetSettings::of);
    Ok(scenario)
}

fn faulty(client: &str) -> Result<Scenario, Box<dyn Error>> {
    let text =
        format!("[upstream]\nkind = \"bucket\"\nrate = 100\nburst = 10\n[[client]]\n{client}");
    Scenario::read(client, text.as_bytes()).map_err(|problems| problems[0].to_string().into())
}

fn line(runs: &[Figures]) -> String {
    let mean = |figure: &dyn Fn(&Figures) -> Option<f64>| {
        let values: Option<Vec<f64>> = runs.iter().map(figure).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
    };
    let shown = |number: Option<f64>, digits: usize, unit: &str| {
        number.map_or_else(
            || "–".to_owned(),
            |number| format!("{number:.digits$}{unit}"),
        )
    };
    let percent = |number: Option<f64>| number.map(|number| 100.0 * number);
    let peaks = runs.iter().filter_map(|run| run.peak_ratio);
    format!(
        "{:>8} {:>8} {:>6} {:>5} {:>8} {:>8}",
        shown(percent(mean(&|run| run.goodput_ratio_settled)), 1, " %"),
        shown(percent(mean(&|run| run.refused_ratio)), 2, " %"),
        shown(mean(&|run| run.jain), 3, ""),
        runs.iter().map(|run| run.bans).sum::<u64>(),
        shown(percent(peaks.reduce(f64::max)), 1, " %"),
        shown(mean(&|run| run.store_calls_per_request), 2, ""),
    )
}

fn fault_line(runs: &[(Figures, Series)], length: u32) -> String {
    let to = FROM_S + length as usize;
    let peak = runs.iter().filter_map(|(run, _)| run.peak_ratio);
    let (during, refused) = part(runs, FROM_S..to);
    let (after, refused_after) = part(runs, to..to + 10);
    format!(
        "{:5.1} %          {:5.1} %  {:5.2} %            {:5.1} %  {:5.2} %",
        100.0 * peak.fold(0.0, f64::max),
        100.0 * during,
        100.0 * refused,
        100.0 * after,
        100.0 * refused_after,
    )
}

/// Accepted over capacity, and refused over sent, in these seconds of all runs.
fn part(runs: &[(Figures, Series)], seconds: std::ops::Range<usize>) -> (f64, f64) {
    let slices = runs
        .iter()
        .flat_map(|(_, series)| &series.slices[seconds.clone()]);
    let (mut accepted, mut refused, mut sent, mut capacity) = (0.0, 0.0, 0.0, 0.0);
    for slice in slices {
        accepted += f64::from(slice.accepted);
        refused += f64::from(slice.refused);
        sent += f64::from(slice.sent);
        capacity += slice.capacity;
    }
    (accepted / capacity, refused / sent)
}
