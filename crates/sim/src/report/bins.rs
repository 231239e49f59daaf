//! Bins: groups of slices, so that a few dozen requests fall into each.
//!
//! One request in two seconds, counted in slices of half a second, would give a rate that alternates
//! between 0 and 2.

use std::ops::Range;

use super::StrategyRun;
use crate::measure::{Series, Slice};
use crate::plot::round_up;
use crate::whole;

/// A run, divided into bins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    bins: Vec<Bin>,
}

/// The clients' shares of the accepted requests in a bin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shares {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// Each from 0 to 1; `None` if nothing was accepted.
    pub(super) of_clients: Option<Vec<f64>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Bin {
    from_s: f64,
    to_s: f64,
    slices: Range<usize>,
}

impl Bins {
    /// Divides a run of `end_s` into bins of about `width_s`.
    pub(super) fn of(series: &Series, width_s: f64, end_s: f64) -> Self {
        let step_s = series.step.as_secs_f64();
        let per_bin = usize::try_from(whole((width_s / step_s).round())).unwrap_or(usize::MAX);
        let per_bin = per_bin.clamp(1, series.slices.len().max(1));
        let starts = (0..series.slices.len()).step_by(per_bin);
        let mut bins: Vec<Bin> = Vec::new();
        for start in starts {
            let end = (start + per_bin).min(series.slices.len());
            let bin = Bin {
                from_s: start as f64 * step_s,
                to_s: (end as f64 * step_s).min(end_s),
                slices: start..end,
            };
            match bins.last_mut() {
                // A short remainder joins the bin before it.
                Some(last) if bin.to_s - bin.from_s < step_s * per_bin as f64 / 2.0 => {
                    last.to_s = bin.to_s;
                    last.slices.end = bin.slices.end;
                }
                _ => bins.push(bin),
            }
        }
        Self { bins }
    }

    /// The count per second in each bin: a line that is level within a bin.
    pub(super) fn per_second(
        &self,
        slices: &[Slice],
        count: impl Fn(&Slice) -> u32,
    ) -> Vec<(f64, f64)> {
        let bins = self.bins.iter().flat_map(|bin| {
            let sum: f64 = slices[bin.slices.clone()]
                .iter()
                .map(|slice| f64::from(count(slice)))
                .sum();
            bin.level(sum / (bin.to_s - bin.from_s))
        });
        bins.collect()
    }

    /// The mean latency in each bin, as lines that are interrupted where nothing was accepted.
    pub(super) fn latency_ms(&self, slices: &[Slice]) -> Vec<Vec<(f64, f64)>> {
        let means = self.bins.iter().map(|bin| {
            let (mut count, mut sum) = (0.0, 0.0);
            for slice in &slices[bin.slices.clone()] {
                if let Some(mean) = slice.latency_ms {
                    count += f64::from(slice.accepted);
                    sum += mean * f64::from(slice.accepted);
                }
            }
            (count > 0.0).then(|| bin.level(sum / count))
        });
        let means: Vec<_> = means.collect();
        let lines = means.split(Option::is_none);
        let lines = lines.map(|line| line.iter().copied().flatten().flatten().collect());
        lines.filter(|line: &Vec<_>| !line.is_empty()).collect()
    }

    /// The clients' shares of the accepted requests in each bin.
    pub(super) fn shares(&self, series: &Series) -> Vec<Shares> {
        let bins = self.bins.iter().map(|bin| {
            let clients = series.clients.iter();
            let counts: Vec<f64> = clients
                .map(|client| {
                    let accepted = client.accepted.get(bin.slices.clone()).unwrap_or_default();
                    accepted.iter().map(|count| f64::from(*count)).sum()
                })
                .collect();
            let total: f64 = counts.iter().sum();
            let shares = counts.into_iter().map(|count| count / total).collect();
            Shares {
                from_s: bin.from_s,
                to_s: bin.to_s,
                of_clients: (total > 0.0).then_some(shares),
            }
        });
        bins.collect()
    }
}

impl Bin {
    fn level(&self, value: f64) -> [(f64, f64); 2] {
        [(self.from_s, value), (self.to_s, value)]
    }
}

/// The width at which each bin of each of these runs has [`REQUESTS_PER_BIN`], within
/// [`MIN_BINS`] and [`MAX_BINS`] per plot.
pub(super) fn width_s(runs: &[StrategyRun], end_s: f64) -> f64 {
    let needed = runs.iter().map(|run| {
        let sent = (run.figures.sent as f64).max(1.0);
        REQUESTS_PER_BIN * end_s / sent
    });
    let needed = needed.fold(0.0, f64::max);
    let (min, max) = (end_s / MAX_BINS, end_s / MIN_BINS);
    round_up(needed.clamp(min, max).max(f64::MIN_POSITIVE))
}

const REQUESTS_PER_BIN: f64 = 30.0;
const MAX_BINS: f64 = 300.0;
pub(super) const MIN_BINS: f64 = 20.0;
