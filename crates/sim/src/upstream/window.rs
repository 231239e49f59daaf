//! A quota of requests in each fixed window.

use std::time::Duration;

use policy::time::Timestamp;

use super::response::LimitStatus;

#[derive(Clone, Debug)]
pub(super) struct Window {
    quota: u64,
    period: u128,
    phase: u128,
    /// The number of the current window.
    index: u128,
    used: u64,
    at: Timestamp,
}

impl Window {
    pub(super) fn new(quota: u64, period: Duration, phase: Duration) -> Self {
        let mut window = Self {
            quota,
            period: period.as_nanos().max(1),
            phase: phase.as_nanos(),
            index: 0,
            used: 0,
            at: Timestamp::ZERO,
        };
        window.advance(Timestamp::ZERO);
        window
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        let index = self.since_first(now) / self.period;
        if index != self.index {
            self.index = index;
            self.used = 0;
        }
        self.at = now;
    }

    pub(super) fn change(&mut self, quota: u64) {
        self.quota = quota;
    }

    pub(super) fn has(&self, cost: u64) -> bool {
        self.used.saturating_add(cost) <= self.quota
    }

    pub(super) fn take(&mut self, cost: u64) -> bool {
        let taken = self.has(cost);
        if taken {
            self.used += cost;
        }
        taken
    }

    /// The time until the current window ends.
    pub(super) fn remaining_time(&self) -> Duration {
        let rest = self.period - self.since_first(self.at) % self.period;
        Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX))
    }

    pub(super) fn status(&self) -> LimitStatus {
        LimitStatus {
            limit: self.quota,
            remaining: self.quota.saturating_sub(self.used),
            reset: self.remaining_time(),
        }
    }

    /// Nanoseconds since the start of window 0, which is `phase` before time zero.
    fn since_first(&self, at: Timestamp) -> u128 {
        u128::from(at.as_nanos()) + self.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_at(window: &mut Window, millis: u64) -> usize {
        window.advance(Timestamp::from_millis(millis));
        std::iter::from_fn(|| window.take(1).then_some(())).count()
    }

    #[test]
    fn resets_the_quota_exactly_at_the_window_border() {
        let mut window = Window::new(5, Duration::from_secs(10), Duration::ZERO);
        let taken = [0, 9_999, 10_000, 19_999, 20_000].map(|at| taken_at(&mut window, at));
        assert_eq!(taken, [5, 0, 5, 0, 5]);
        assert_eq!(window.remaining_time(), Duration::from_secs(10));
    }

    #[test]
    fn phase_moves_all_borders_back() {
        let mut window = Window::new(5, Duration::from_secs(10), Duration::from_secs(3));
        let taken = [0, 6_999, 7_000, 16_999, 17_000].map(|at| taken_at(&mut window, at));
        assert_eq!(taken, [5, 0, 5, 0, 5]);
        window.advance(Timestamp::from_millis(26_500));
        assert_eq!(window.remaining_time(), Duration::from_millis(500));
    }

    #[test]
    fn smaller_quota_counts_requests_already_used() {
        let mut window = Window::new(10, Duration::from_secs(10), Duration::ZERO);
        for _ in 0..7 {
            assert!(window.take(1));
        }
        window.change(8);
        assert_eq!(window.status().remaining, 1);
        window.change(3);
        assert_eq!(window.status().remaining, 0);
        assert!(!window.take(1));
    }
}
