//! On how many upstreams of a set a strategy does well.

use serde::Serialize;

use super::verdict::{ACCEPTABLE, GOOD, Verdict};

/// The results of a strategy over a set of upstreams.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// How many upstreams.
    pub upstreams: usize,
    /// How many with a settled goodput of at least 90 %.
    pub goodput_90: usize,
    /// How many with at least 60 %.
    pub goodput_60: usize,
    /// How many with a share refused within its bound.
    pub refused_within_bound: usize,
    /// How many with a client that was banned twice or more.
    pub banned_twice: usize,
    /// Settled goodput.
    pub goodput_ratio_settled: Option<Percentiles>,
    /// How many with at least 90 % over the whole run.
    pub goodput_90_whole_run: usize,
    /// Goodput of the whole run.
    pub goodput_ratio: Option<Percentiles>,
    /// Share refused.
    pub refused_ratio: Option<Percentiles>,
    /// Bans of all clients.
    pub bans: u64,
    /// How many never reached 90 % of the capacity.
    pub never_at_90: usize,
    /// Seconds to 90 % of the capacity, where it was reached.
    pub time_to_90_s: Option<Percentiles>,
    /// Fairness, where there are several clients.
    pub jain: Option<Percentiles>,
}

impl Distribution {
    /// The distribution of these verdicts.
    pub fn of(verdicts: &[Verdict]) -> Self {
        let count = |holds: &dyn Fn(&Verdict) -> bool| {
            let verdicts = verdicts.iter();
            verdicts.filter(|verdict| holds(verdict)).count()
        };
        let percentiles = |value: fn(&Verdict) -> Option<f64>| {
            Percentiles::of(verdicts.iter().filter_map(value).collect())
        };
        Self {
            upstreams: verdicts.len(),
            goodput_90: count(&|verdict| verdict.reaches(GOOD)),
            goodput_60: count(&|verdict| verdict.reaches(ACCEPTABLE)),
            refused_within_bound: count(&Verdict::is_within_bound),
            banned_twice: count(&Verdict::is_banned_twice),
            goodput_ratio_settled: percentiles(|verdict| verdict.goodput_ratio_settled),
            goodput_90_whole_run: count(&|verdict| {
                verdict.goodput_ratio.is_some_and(|ratio| ratio >= GOOD)
            }),
            goodput_ratio: percentiles(|verdict| verdict.goodput_ratio),
            refused_ratio: percentiles(|verdict| verdict.refused_ratio),
            bans: verdicts.iter().map(|verdict| verdict.bans).sum(),
            never_at_90: count(&|verdict| verdict.time_to_90_s.is_none()),
            time_to_90_s: percentiles(|verdict| verdict.time_to_90_s),
            jain: percentiles(|verdict| verdict.jain),
        }
    }

    /// The goals of the default strategy.
    pub fn goals(&self) -> [Goal; 4] {
        let share = |count: usize| count as f64 / (self.upstreams.max(1) as f64);
        let goal = |name, count, bound, is_met: fn(f64, f64) -> bool| Goal {
            name,
            share: share(count),
            bound,
            is_met: is_met(share(count), bound),
        };
        let at_least = |share, bound| share >= bound;
        let at_most = |share, bound| share <= bound;
        [
            goal("goodput at least 90 %", self.goodput_90, 0.9, at_least),
            goal("goodput at least 60 %", self.goodput_60, 0.99, at_least),
            goal(
                "refused at most 2 % (6 % below 2/s)",
                self.refused_within_bound,
                0.9,
                at_least,
            ),
            goal("a client banned twice", self.banned_twice, 0.0, at_most),
        ]
    }
}

/// A share of upstreams, and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// What is true of the share.
    pub name: &'static str,
    /// The share, from 0 to 1.
    pub share: f64,
    /// What the share should be, at least or at most.
    pub bound: f64,
    /// Whether it is.
    pub is_met: bool,
}

/// Percentiles of a figure, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The lowest value.
    pub min: f64,
    /// A tenth of the values are at most this.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// Nine tenths of the values are at most this.
    pub p90: f64,
    /// The highest value.
    pub max: f64,
}

impl Percentiles {
    /// `None` without values.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).max(1);
            values.get(rank - 1).copied()
        };
        // Four digits are enough to compare, and can be read.
        let at = |percent| at(percent).map(|value| (value * 1e4).round() / 1e4);
        Some(Self {
            min: at(0)?,
            p10: at(10)?,
            p50: at(50)?,
            p90: at(90)?,
            max: at(100)?,
        })
    }
}
