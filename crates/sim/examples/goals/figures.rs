//! The figures that are compared, and their means.

use std::collections::BTreeMap;
use std::time::Duration;

use sim::measure::{Figures, Series};
use sim::scenario::Scenario;
use sim::simulate::simulate_with_series;

/// Figures by name, in alphabetical order. `None` if a figure does not apply to one of the runs.
pub(crate) type Named = BTreeMap<&'static str, Option<f64>>;

/// Runs a scenario and names the figures that apply to it.
pub(crate) fn run(scenario: &Scenario, seed: u64) -> Named {
    let (figures, series) = simulate_with_series(scenario, seed, STEP);
    named(scenario, &figures, &series)
}

/// The openings of breakers are exact at any step; counts start at slices.
const STEP: Duration = Duration::from_secs(10);

/// The means of several runs of one scenario; of names that end in `_max` the highest.
pub(crate) fn mean(runs: &[&Named]) -> Named {
    let mut sums = Named::new();
    for run in runs {
        for (name, value) in *run {
            let sum = sums.entry(name).or_insert(Some(0.0));
            *sum = sum.zip(*value).map(|(sum, value)| match is_max(name) {
                true => f64::max(sum, value),
                false => sum + value,
            });
        }
    }
    for (name, sum) in &mut sums {
        if !is_max(name) {
            *sum = sum.map(|sum| sum / runs.len() as f64);
        }
    }
    sums
}

fn is_max(name: &str) -> bool {
    name.ends_with("_max")
}

fn named(scenario: &Scenario, figures: &Figures, series: &Series) -> Named {
    let mut named = Named::from([
        ("goodput", figures.goodput_ratio_settled),
        ("refused", figures.refused_ratio),
        ("refused_count", Some(figures.refused as f64)),
        ("refused_from_120_s", refused_from(120, series)),
        ("early", Some(figures.early_after_hint as f64)),
        ("bans", Some(figures.bans as f64)),
        ("bans_max", Some(figures.bans as f64)),
        ("breaker_opened", Some(figures.breaker_opened as f64)),
        ("time_to_90_s", figures.time_to_90_s),
        ("latency_ms", figures.mean_latency_ms),
    ]);
    if scenario.client_count() > 1 {
        named.insert("jain", figures.jain);
        named.insert("jain_from_240_s", jain_from(240, series));
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
        named.insert("sends_per_failure", sends);
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

/// The share of requests sent from this second on that were refused.
fn refused_from(second: u64, series: &Series) -> Option<f64> {
    let slices = series.slices.iter().skip(slices_until(second));
    let (sent, refused) = slices.fold((0, 0), |(sent, refused), slice| {
        (sent + slice.sent, refused + slice.refused)
    });
    (sent > 0).then(|| f64::from(refused) / f64::from(sent))
}

/// Jain's index over the requests accepted from this second on.
fn jain_from(second: u64, series: &Series) -> Option<f64> {
    let counts = series.clients.iter().map(|client| {
        let slices = client.accepted.iter().skip(slices_until(second));
        f64::from(slices.sum::<u32>())
    });
    let sum: f64 = counts.clone().sum();
    let squares: f64 = counts.map(|count| count * count).sum();
    (squares > 0.0).then(|| sum * sum / (series.clients.len() as f64 * squares))
}

fn slices_until(second: u64) -> usize {
    usize::try_from(second / STEP.as_secs()).unwrap_or(usize::MAX)
}
