//! The list of goals.

use std::fmt;

/// One figure of one upstream and its bound.
pub(crate) struct Goal {
    pub(crate) upstream: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) bound: Bound,
}

/// A bound of a figure, inclusive.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
        }
    }
}

use Bound::{AtLeast, AtMost};

const fn goal(upstream: &'static str, figure: &'static str, bound: Bound) -> Goal {
    Goal {
        upstream,
        figure,
        bound,
    }
}

/// All goals. Ratios are from 0 to 1; `goodput` is that from 60 s on; `_max` is the highest of all seeds.
pub(crate) const GOALS: &[Goal] = &[
    goal("o1", "goodput", AtLeast(0.97)),
    goal("o1", "refused", AtMost(0.005)),
    goal("o1", "time_to_90_s", AtMost(3.0)),
    // The whole quota, in whole per cent.
    goal("o2", "goodput", AtLeast(0.995)),
    goal("o2", "refused", AtMost(0.015)),
    goal("o2", "early", AtMost(0.0)),
    goal("o3", "goodput", AtLeast(0.99)),
    goal("o3", "refused_count", AtMost(0.0)),
    goal("o4", "goodput", AtLeast(0.95)),
    goal("o4", "refused_count", AtMost(0.0)),
    // 1.25 of the latency without load: 100 ms of service and 20 ms of network.
    goal("o4", "latency_ms", AtMost(150.0)),
    goal("o5", "goodput", AtLeast(0.94)),
    goal("o5", "refused", AtMost(0.003)),
    goal("o5", "down_s", AtMost(2.0)),
    goal("o5", "up_s", AtMost(8.0)),
    goal("o6", "goodput", AtLeast(0.96)),
    goal("o6", "breaker_opened", AtMost(0.0)),
    goal("o7", "goodput", AtLeast(0.97)),
    goal("o7", "outage_sent", AtMost(30.0)),
    goal("o7", "recovery_s", AtMost(4.0)),
    goal("o7", "breaker_open_after_s", AtMost(5.0)),
    goal("o8", "goodput", AtLeast(0.99)),
    goal("o8", "refused", AtMost(0.005)),
    goal("o8", "jain", AtLeast(0.99)),
    goal("o8-4", "goodput", AtLeast(0.99)),
    goal("o8-4", "refused", AtMost(0.016)),
    goal("o8-4", "jain", AtLeast(0.98)),
    goal("o8-8", "goodput", AtLeast(0.99)),
    goal("o8-8", "refused", AtMost(0.025)),
    goal("o8-8", "jain", AtLeast(0.95)),
    goal("o8-16", "goodput", AtLeast(0.99)),
    goal("o8-16", "refused", AtMost(0.045)),
    goal("o8-16", "jain", AtLeast(0.90)),
    goal("o9", "goodput", AtLeast(0.85)),
    goal("o9", "refused_count", AtMost(10.0)),
    goal("o9", "bans_max", AtMost(0.0)),
    goal("ban", "bans_max", AtMost(1.0)),
    goal("ban-step", "bans_max", AtMost(1.0)),
    // From the fifth window on.
    goal("share", "jain_from_240_s", AtLeast(0.8)),
    goal("share", "refused", AtMost(0.03)),
    goal("share-hint", "jain_from_240_s", AtLeast(0.8)),
    goal("share-hint", "refused", AtMost(0.03)),
    goal("0.1/s-1", "refused_from_120_s", AtMost(0.06)),
    goal("0.1/s-10", "refused_from_120_s", AtMost(0.06)),
    goal("0.2/s-1", "refused_from_120_s", AtMost(0.06)),
    goal("0.2/s-10", "refused_from_120_s", AtMost(0.06)),
    goal("0.35/s-1", "refused_from_120_s", AtMost(0.06)),
    goal("0.35/s-10", "refused_from_120_s", AtMost(0.06)),
    goal("0.5/s-1", "refused_from_120_s", AtMost(0.06)),
    goal("0.5/s-10", "refused_from_120_s", AtMost(0.06)),
    goal("1/s-1", "refused_from_120_s", AtMost(0.06)),
    goal("1/s-10", "refused_from_120_s", AtMost(0.06)),
];
