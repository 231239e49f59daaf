//! How much the server really answers.

use super::coarse::{Coarse, Rough};
use crate::time::Timestamp;

/// Successes per second, over the current interval and the previous one.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    before: Rough,
    count: u16,
    since: Coarse,
}

impl Delivery {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            before: Rough::ZERO,
            count: 0,
            since: Coarse::of(now),
        }
    }

    #[inline]
    pub(super) fn count(&mut self, now: Timestamp, stretch: f64) {
        // Within half of the shortest interval there is nothing to divide.
        if self.since.millis_until(now) >= 150 {
            self.begin_half_if_over(now, stretch / 2.0);
        }
        self.count = self.count.saturating_add(1);
    }

    pub(super) fn begin_half_if_over(&mut self, now: Timestamp, half: f64) {
        let elapsed = self.since.seconds_until(now);
        if elapsed >= half {
            self.before = Rough::of(f64::from(self.count) / elapsed);
            self.count = 0;
            self.since = Coarse::of(now);
        }
    }

    pub(super) fn per_second(&self, now: Timestamp, stretch: f64) -> f64 {
        let half = stretch / 2.0;
        let elapsed = self.since.seconds_until(now);
        (self.before.get() * half + f64::from(self.count)) / (half + elapsed)
    }
}

const _: () = assert!(size_of::<Delivery>() <= 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_the_rate_of_responses_over_the_last_interval() {
        let at = Timestamp::from_millis;
        let mut delivery = Delivery::new(at(0));
        for index in 0..100 {
            delivery.count(at(10 * index), 0.4);
        }
        let per_second = delivery.per_second(at(1000), 0.4);
        assert!((per_second - 100.0).abs() < 5.0, "{per_second}");
        let per_second = delivery.per_second(at(3000), 0.4);
        assert!(per_second < 20.0, "{per_second}");
    }
}
