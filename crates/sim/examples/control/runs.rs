//! Runs every contender at every upstream and computes the means of the figures.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use policy::time::Timestamp;
use sim::client::{ClientSettings, Driver, Strategy};
use sim::measure::{Figures, Series};
use sim::scenario::{Scenario, Shipped};
use sim::simulate::simulate_with_series;

use crate::baseline;

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
    pub(crate) mean: Mean,
}

/// Means over all seeds, by name. `None` if a figure does not apply to one of the runs.
pub(crate) struct Mean {
    pub(crate) figures: BTreeMap<&'static str, Option<f64>>,
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

fn mean(scenario: &Scenario, seeds: u64) -> Mean {
    let mut sums: BTreeMap<&'static str, Option<f64>> = BTreeMap::new();
    for seed in 1..=seeds {
        let (figures, series) = simulate_with_series(scenario, seed, STEP);
        for (name, value) in named(scenario, &figures, &series) {
            let sum = sums.entry(name).or_insert(Some(0.0));
            *sum = sum.zip(value).map(|(sum, value)| sum + value);
        }
    }
    let share = |sum: Option<f64>| sum.map(|sum| sum / seeds as f64);
    Mean {
        figures: sums
            .into_iter()
            .map(|(name, sum)| (name, share(sum)))
            .collect(),
    }
}

/// Only the opening of breakers is read from the series, which is exact at any step.
const STEP: Duration = Duration::from_secs(10);

/// The figures that are compared, without those that do not apply to the upstream.
fn named(
    scenario: &Scenario,
    figures: &Figures,
    series: &Series,
) -> Vec<(&'static str, Option<f64>)> {
    let mut named = vec![
        ("goodput", figures.goodput_ratio_settled),
        ("refused", figures.refused_ratio),
        ("refused_count", Some(figures.refused as f64)),
        ("early", Some(figures.early_after_hint as f64)),
        ("bans", Some(figures.bans as f64)),
        ("breaker_opened", Some(figures.breaker_opened as f64)),
        ("time_to_90_s", figures.time_to_90_s),
        ("latency_ms", figures.mean_latency_ms),
    ];
    if scenario.client_count() > 1 {
        named.push(("jain", figures.jain));
    }
    if let [down, up] = &*figures.steps {
        named.extend([("down_s", down.settle_s), ("up_s", up.settle_s)]);
    }
    if let [outage] = &*figures.outages {
        named.extend([
            ("outage_sent", Some(outage.sent as f64)),
            ("recovery_s", outage.recovery_s),
            ("breaker_open_after_s", open_after(scenario, series)),
        ]);
    }
    if scenario.upstream.failure_rate > 0.0 || !scenario.upstream.outages.is_empty() {
        let sends = figures.failure_cost.sends_per_failure();
        named.push(("sends_per_failure", sends));
    }
    named
}

/// Seconds from the start of the outage until the last client's breaker opened; `None` if one did not
/// open.
fn open_after(scenario: &Scenario, series: &Series) -> Option<f64> {
    let start = scenario.upstream.outages.first()?.from;
    let first = series.clients.iter().map(|client| {
        let bands = client.breaker.iter().map(|band| band.from);
        bands.filter(|from| *from >= start).min()
    });
    let opened = first.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some(opened.seconds_since(start))
}
