//! A token bucket on the server's side: it starts full and refills all the time.

use std::time::Duration;

use policy::time::Timestamp;

use super::response::LimitStatus;
use crate::whole;

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    pub(super) fn full(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            at: Timestamp::ZERO,
        }
    }

    pub(super) fn refill(&mut self, now: Timestamp) {
        let nanos = now.since(self.at).as_nanos() as f64;
        // Multiply before dividing: then a gap of exactly one token gives exactly one token.
        self.tokens = (self.tokens + nanos * self.rate / 1e9).min(self.burst);
        self.at = self.at.max(now);
    }

    /// Call [`Bucket::refill`] first: up to now tokens arrived at the old rate.
    pub(super) fn change(&mut self, rate: f64, burst: f64) {
        self.rate = rate;
        self.burst = burst;
        self.tokens = self.tokens.min(burst);
    }

    pub(super) fn has(&self, cost: f64) -> bool {
        self.tokens >= cost - self.slack()
    }

    pub(super) fn take(&mut self, cost: f64) -> bool {
        let taken = self.has(cost);
        if taken {
            self.tokens = (self.tokens - cost).max(0.0);
        }
        taken
    }

    /// How long until there are `cost` tokens.
    pub(super) fn time_until(&self, cost: f64) -> Duration {
        let missing = (cost - self.tokens).max(0.0);
        Duration::try_from_secs_f64(missing / self.rate).unwrap_or(Duration::MAX)
    }

    /// Like [`Bucket::status`], with the time until the bucket is full, as language models give it.
    pub(super) fn status_until_full(&self) -> LimitStatus {
        LimitStatus {
            reset: self.time_until(self.burst),
            ..self.status()
        }
    }

    pub(super) fn status(&self) -> LimitStatus {
        let remaining = (self.tokens + self.slack()).floor();
        let missing = (remaining + 1.0 - self.tokens).min(self.burst - self.tokens);
        let reset = Duration::try_from_secs_f64(missing.max(0.0) / self.rate);
        LimitStatus {
            limit: whole(self.burst),
            remaining: whole(remaining),
            reset: reset.unwrap_or(Duration::MAX),
        }
    }

    /// Tolerance for rounding: requests exactly at the rate must pass although a time is a nanosecond
    /// short or a sum is off by a few units in the last place.
    fn slack(&self) -> f64 {
        (1.0 + self.rate) * 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_all_requests_exactly_at_the_rate() {
        for rate in [0.3, 3.0, 7.0, 50.0, 99.9] {
            let mut bucket = Bucket::full(rate, 1.0);
            for number in 0..100_000 {
                bucket.refill(Timestamp::ZERO.after_seconds(f64::from(number) / rate));
                assert!(bucket.take(1.0), "{rate} {number}");
            }
        }
    }

    #[test]
    fn admits_the_burst_and_then_the_rate() {
        let mut bucket = Bucket::full(2.0, 3.0);
        let mut taken_at = |millis| {
            bucket.refill(Timestamp::from_millis(millis));
            std::iter::from_fn(|| bucket.take(1.0).then_some(())).count()
        };
        assert_eq!(
            [0, 499, 500, 1600, 60_000].map(&mut taken_at),
            [3, 0, 1, 2, 3]
        );
        assert_eq!(bucket.time_until(1.0), Duration::from_millis(500));
    }

    #[test]
    fn status_names_the_time_of_the_next_token() {
        let mut bucket = Bucket::full(2.0, 3.0);
        let status = |bucket: &Bucket| {
            let LimitStatus {
                limit,
                remaining,
                reset,
            } = bucket.status();
            (limit, remaining, reset.as_millis())
        };
        assert_eq!(status(&bucket), (3, 3, 0));
        assert!(bucket.take(1.0));
        assert_eq!(status(&bucket), (3, 2, 500));
        bucket.refill(Timestamp::from_millis(100));
        assert!(bucket.take(1.0) && bucket.take(1.0));
        assert_eq!(status(&bucket), (3, 0, 400));
    }
}
