//! How many URLs ended per second lately.

use std::collections::VecDeque;
use std::time::Duration;

use policy::time::Timestamp;

/// Counts of the last seconds.
#[derive(Debug, Default)]
pub(super) struct RecentRate {
    counts: VecDeque<(Timestamp, u64)>,
}

/// Between two counts.
const STEP: Duration = Duration::from_secs(1);

/// As many counts are kept: a rate over ten seconds follows a change, and does not jump.
const MAX_COUNTS: usize = 11;

impl RecentRate {
    /// Takes the count at `now`, about once a second. Returns whether it was taken.
    pub(super) fn add(&mut self, now: Timestamp, count: u64) -> bool {
        let last = self.counts.back();
        let is_due = last.is_none_or(|(at, _)| now.since(*at) >= STEP);
        if is_due {
            self.counts.push_back((now, count));
            if self.counts.len() > MAX_COUNTS {
                self.counts.pop_front();
            }
        }
        is_due
    }

    pub(super) fn per_second(&self) -> f64 {
        let (Some((from, first)), Some((to, last))) = (self.counts.front(), self.counts.back())
        else {
            return 0.0;
        };
        let seconds = to.since(*from).as_secs_f64();
        match seconds > 0.0 {
            true => (last - first) as f64 / seconds,
            false => 0.0,
        }
    }
}
