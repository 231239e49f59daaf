//! Runs every contender at every upstream and computes the means of the figures.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use policy::time::Timestamp;
use sim::client::{ClientSettings, Driver, Strategy};
use sim::scenario::{Scenario, Shipped};

use crate::baseline;
use crate::figures::{self, Named};

/// Names of shipped scenarios.
pub(crate) const UPSTREAMS: [&str; 12] = [
    "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o8-4", "o8-8", "o8-16", "o9",
];

/// Strategies and baselines by name; the goals are those of the first.
pub(crate) const CONTENDERS: [&str; 9] = [
    "adaptive",
    "aimd",
    "fixed",
    "epochs-gentle",
    "epochs-brisk",
    "model",
    "cubic",
    "autothrottle",
    "none",
];

/// The result of one contender at one upstream.
pub(crate) struct Row {
    pub(crate) upstream: &'static str,
    pub(crate) contender: &'static str,
    /// Means over all seeds.
    pub(crate) mean: Named,
}

/// The description of an upstream.
pub(crate) fn about(upstream: &str) -> &'static str {
    Shipped::find(upstream).map_or("", |shipped| shipped.about)
}

/// All rows, upstream by upstream, computed on all processors.
pub(crate) fn all(seeds: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut jobs = Vec::new();
    for upstream in UPSTREAMS {
        for contender in CONTENDERS {
            jobs.push((upstream, contender, scenario(upstream, contender)?));
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((upstream, contender, scenario)) =
            jobs.get(next.fetch_add(1, Ordering::Relaxed))
        {
            done.push((*upstream, *contender, mean(scenario, seeds)));
        }
        done
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut rows: Vec<Row> = thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        handles
            .into_iter()
            .flat_map(|handle| handle.join().unwrap_or_default())
            .map(|(upstream, contender, mean)| Row {
                upstream,
                contender,
                mean,
            })
            .collect()
    });
    let position = |contender| CONTENDERS.iter().position(|other| *other == contender);
    rows.sort_by_key(|row| position(row.contender));
    if rows.len() < jobs.len() {
        return Err("a run panicked".into());
    }
    Ok(rows)
}

fn scenario(upstream: &str, contender: &str) -> Result<Scenario, Box<dyn Error>> {
    let shipped = Shipped::find(upstream).ok_or_else(|| format!("no scenario {upstream}"))?;
    let scenario = shipped.scenario();
    if contender == "fixed" {
        return Ok(at_true_rate(scenario));
    }
    if let Some(scenario) = baseline::drive(scenario.clone(), contender) {
        return Ok(scenario);
    }
    let mut scenario = scenario.with_strategy(contender.parse()?);
    for client in &mut scenario.clients {
        if matches!(client.driver, Driver::Naive(_)) {
            client.max_in_flight = NAIVE_WORKERS;
        }
    }
    Ok(scenario)
}

/// A usual number of workers for such loops.
const NAIVE_WORKERS: u32 = 32;

/// Every client gets an equal share of the upstream's first capacity: knowing a limit does not mean
/// knowing that it will change.
fn at_true_rate(scenario: Scenario) -> Scenario {
    let rate = scenario.upstream.rate_at(Timestamp::ZERO) / scenario.client_count() as f64;
    let with_share = |client: ClientSettings| client.with_strategy(Strategy::Fixed(rate));
    Scenario {
        clients: scenario.clients.into_iter().map(with_share).collect(),
        ..scenario
    }
}

fn mean(scenario: &Scenario, seeds: u64) -> Named {
    let runs: Vec<Named> = (1..=seeds)
        .map(|seed| figures::run(scenario, seed))
        .collect();
    figures::mean(&runs.iter().collect::<Vec<_>>())
}
