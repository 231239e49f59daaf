//! The delivered rate.

use std::collections::VecDeque;
use std::time::Duration;

use policy::time::Timestamp;

/// The times of recent successes.
#[derive(Debug, Default)]
pub(super) struct Delivered(VecDeque<Timestamp>);

impl Delivered {
    pub(super) fn count(&mut self, now: Timestamp) {
        while self.0.front().is_some_and(|at| now.since(*at) > MAX_AGE) {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Successes per second in the last `seconds`.
    pub(super) fn per_second(&self, seconds: f64, now: Timestamp) -> f64 {
        let before = self
            .0
            .partition_point(|at| now.seconds_since(*at) > seconds);
        (self.0.len() - before) as f64 / seconds
    }

    /// Successes from `from` on.
    pub(super) fn since(&self, from: Timestamp) -> u64 {
        let before = self.0.partition_point(|at| *at < from);
        (self.0.len() - before) as u64
    }
}

/// The longest window that can be learned, and the latency of its last responses.
const MAX_AGE: Duration = Duration::from_secs(310);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_recent_successes() {
        let mut delivered = Delivered::default();
        for tenth in 0..4000 {
            delivered.count(Timestamp::from_millis(tenth * 100));
        }
        let now = Timestamp::from_millis(399_950);
        assert!((delivered.per_second(2.0, now) - 10.0).abs() < 1e-9);
        assert_eq!(delivered.since(Timestamp::from_secs(399)), 10);
        assert_eq!(delivered.0.len(), 3101, "the rest is dropped");
    }
}
