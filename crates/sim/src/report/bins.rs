//! Slices put together until a count in them says something.
//!
//! One request in two seconds, counted in slices of half a second, is a row of noughts and twos. A
//! bin is so many slices that a few dozen requests fall into it.

use std::ops::Range;

use super::StrategyRun;
use super::scale::round_up;
use crate::measure::{Series, Slice};
use crate::number::whole;

/// A run, cut into bins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    bins: Vec<Bin>,
}

/// Who got how much in a bin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shares {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// Of each client, from 0 to 1; `None` where nothing was accepted.
    pub(super) of_clients: Option<Vec<f64>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Bin {
    from_s: f64,
    to_s: f64,
    slices: Range<usize>,
}

impl Bins {
    /// Cuts a run of `end_s` into bins of about `width_s`.
    pub(super) fn of(series: &Series, width_s: f64, end_s: f64) -> Self {
        let step_s = series.step.as_secs_f64();
        let together = usize::try_from(whole((width_s / step_s).round())).unwrap_or(usize::MAX);
        let together = together.clamp(1, series.slices.len().max(1));
        let starts = (0..series.slices.len()).step_by(together);
        let mut bins: Vec<Bin> = Vec::new();
        for start in starts {
            let end = (start + together).min(series.slices.len());
            let bin = Bin {
                from_s: start as f64 * step_s,
                to_s: (end as f64 * step_s).min(end_s),
                slices: start..end,
            };
            match bins.last_mut() {
                // A remainder counts too little to be shown on its own.
                Some(last) if bin.to_s - bin.from_s < step_s * together as f64 / 2.0 => {
                    last.to_s = bin.to_s;
                    last.slices.end = bin.slices.end;
                }
                _ => bins.push(bin),
            }
        }
        Self { bins }
    }

    /// What was counted in each bin, per second: a line that is level within a bin.
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

    /// Mean latency in each bin, as stretches without gaps: where nothing was accepted there is
    /// no latency.
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
        let stretches = means.split(Option::is_none);
        let stretches =
            stretches.map(|stretch| stretch.iter().copied().flatten().flatten().collect());
        stretches
            .filter(|stretch: &Vec<_>| !stretch.is_empty())
            .collect()
    }

    /// How much of what was accepted in each bin each client had.
    pub(super) fn shares(&self, series: &Series) -> Vec<Shares> {
        let bins = self.bins.iter().map(|bin| {
            let clients = series.clients.iter();
            let counts: Vec<f64> = clients
                .map(|client| {
                    let accepted = client.accepted.get(bin.slices.clone()).unwrap_or_default();
                    accepted.iter().map(|count| f64::from(*count)).sum()
                })
                .collect();
            let all: f64 = counts.iter().sum();
            let shares = counts.into_iter().map(|count| count / all).collect();
            Shares {
                from_s: bin.from_s,
                to_s: bin.to_s,
                of_clients: (all > 0.0).then_some(shares),
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

/// How wide bins must be so that a few dozen requests fall into each, whichever of these runs it
/// is. No plot shows more than some hundred of them, and none fewer than twenty.
pub(super) fn width_s(runs: &[StrategyRun], end_s: f64) -> f64 {
    let rarest = runs.iter().map(|run| needed_s(run, end_s));
    let needed = rarest.fold(0.0, f64::max);
    let (least, most) = (end_s / MOST_BINS, end_s / FEWEST_BINS);
    round_up(needed.clamp(least, most).max(f64::MIN_POSITIVE))
}

const ENOUGH: f64 = 30.0;
const MOST_BINS: f64 = 300.0;
pub(super) const FEWEST_BINS: f64 = 20.0;

fn needed_s(run: &StrategyRun, end_s: f64) -> f64 {
    ENOUGH * end_s / (run.figures.sent as f64).max(1.0)
}
