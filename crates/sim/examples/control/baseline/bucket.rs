//! A token bucket whose rate moves, as most of these controllers have one.

use policy::time::Timestamp;

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) rate: f64,
    pub(super) capacity: f64,
    tokens: f64,
    filled_at: Timestamp,
}

impl Bucket {
    /// One with so many tokens in it.
    pub(super) fn new(rate: f64, capacity: f64, tokens: f64, now: Timestamp) -> Self {
        Self {
            rate,
            capacity,
            tokens,
            filled_at: now,
        }
    }

    /// Takes one token, or says when there will be one.
    pub(super) fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        self.fill(now);
        let missing = 1.0 - self.tokens;
        if missing > ALMOST {
            return Err(now.after_seconds(missing / self.rate));
        }
        self.tokens -= 1.0;
        Ok(())
    }

    pub(super) fn move_to(&mut self, rate: f64, capacity: f64, now: Timestamp) {
        self.fill(now);
        self.rate = rate;
        self.capacity = capacity;
        self.tokens = self.tokens.min(capacity);
    }

    /// No token is left, and none comes before `until`.
    pub(super) fn empty_until(&mut self, until: Timestamp) {
        self.tokens = 0.0;
        self.filled_at = until;
    }

    fn fill(&mut self, now: Timestamp) {
        let filled = self.tokens + now.seconds_since(self.filled_at) * self.rate;
        self.tokens = filled.min(self.capacity);
        self.filled_at = self.filled_at.max(now);
    }
}

/// More than rounding takes, less than anyone sees.
const ALMOST: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_at_the_rate_up_to_the_capacity_and_not_before_their_time() {
        let at = Timestamp::from_secs;
        let mut bucket = Bucket::new(2.0, 3.0, 0.0, at(0));
        assert_eq!(bucket.take(at(0)), Err(Timestamp::from_millis(500)));
        let mut taken_at = |now| std::iter::from_fn(|| bucket.take(at(now)).ok()).count();
        assert_eq!([1, 2, 100].map(&mut taken_at), [2, 2, 3]);
        bucket.empty_until(at(105));
        assert!(bucket.take(at(104)).is_err());
        assert_eq!(bucket.take(at(106)), Ok(()));
        bucket.move_to(0.5, 1.0, at(106));
        assert_eq!(bucket.take(at(106)), Ok(()), "one of two was left");
        assert_eq!(bucket.take(at(106)), Err(at(108)));
    }
}
