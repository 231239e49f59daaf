//! The capacity of an upstream: piecewise constant over time.

use policy::time::Timestamp;

use crate::scenario::Scenario;
use crate::upstream::UpstreamSettings;

/// The requests per second that an upstream can accept, over time. Zero in an outage.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Start and rate of each piece, in order; the first starts at zero.
    pieces: Vec<(Timestamp, f64)>,
}

impl Capacity {
    /// The capacity of an upstream for requests without costs.
    pub fn of(upstream: &UpstreamSettings) -> Self {
        Self::with_rate(upstream, |at| upstream.rate_at(at))
    }

    /// The capacity of a scenario's upstream for its clients.
    pub fn for_clients(scenario: &Scenario) -> Self {
        Self::with_rate(&scenario.upstream, |at| scenario.rate_at(at))
    }

    fn with_rate(upstream: &UpstreamSettings, rate_at: impl Fn(Timestamp) -> f64) -> Self {
        let steps = upstream.steps.iter().map(|step| step.at);
        let outages = upstream
            .outages
            .iter()
            .flat_map(|outage| [outage.from, outage.to]);
        let mut borders: Vec<_> = std::iter::once(Timestamp::ZERO)
            .chain(steps)
            .chain(outages)
            .collect();
        borders.sort_unstable();
        borders.dedup();
        let pieces = borders.into_iter().map(|at| {
            let rate = match upstream.outage_at(at) {
                Some(_) => 0.0,
                None => rate_at(at),
            };
            (at, rate)
        });
        Self {
            pieces: pieces.collect(),
        }
    }

    /// Requests per second at `at`.
    pub fn at(&self, at: Timestamp) -> f64 {
        let begun = self.pieces.partition_point(|(from, _)| *from <= at);
        self.pieces[begun.max(1) - 1].1
    }

    /// Requests from `from` to `to`.
    pub fn between(&self, from: Timestamp, to: Timestamp) -> f64 {
        let ends = self.pieces.iter().skip(1).map(|(at, _)| *at);
        let ends = ends.chain(std::iter::once(Timestamp::MAX));
        let sums = self
            .pieces
            .iter()
            .zip(ends)
            .map(|((begin, rate), end)| rate * end.min(to).seconds_since(from.max(*begin)));
        sums.sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::upstream::{Kind, Outage, Step};

    #[test]
    fn capacity_follows_the_kind_of_limit() {
        let rate = |kind| Capacity::of(&UpstreamSettings::of(kind)).at(Timestamp::from_secs(7));
        let check = |kind, per_second: f64| assert!((rate(kind) - per_second).abs() < 1e-9);
        check(
            Kind::Bucket {
                rate: 50.0,
                burst: 10.0,
            },
            50.0,
        );
        let period = Duration::from_secs(60);
        check(
            Kind::Window {
                quota: 600,
                period,
                phase: Duration::ZERO,
            },
            10.0,
        );
        let slots = Kind::Slots {
            slots: 40,
            service: Duration::from_millis(80),
            queue: 9,
        };
        check(slots, 500.0);
        let failing = UpstreamSettings {
            failure_rate: 0.03,
            ..UpstreamSettings::of(slots)
        };
        assert!((Capacity::of(&failing).at(Timestamp::ZERO) - 485.0).abs() < 1e-9);
    }

    #[test]
    fn steps_and_outages_change_the_capacity() {
        let bucket = |rate| Kind::Bucket { rate, burst: 1.0 };
        let at = Timestamp::from_secs;
        let upstream = UpstreamSettings {
            steps: vec![Step {
                at: at(10),
                kind: bucket(20.0),
            }],
            outages: vec![Outage {
                from: at(5),
                to: at(15),
                timeout_share: 0.0,
                timeout: Duration::from_secs(1),
                status: None,
            }],
            ..UpstreamSettings::of(bucket(100.0))
        };
        let capacity = Capacity::of(&upstream);
        let sum = |from, to| capacity.between(at(from), at(to));
        let check = |sum: f64, expected: f64| assert!((sum - expected).abs() < 1e-9, "{sum}");
        check(sum(0, 30), 500.0 + 300.0);
        check(sum(4, 16), 100.0 + 20.0);
        check(sum(7, 12), 0.0);
        check(sum(12, 7), 0.0);
        check(capacity.at(at(14)), 0.0);
        check(capacity.at(at(15)), 20.0);
    }
}
