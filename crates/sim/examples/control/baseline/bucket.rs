//! A token bucket with a changing rate.

use policy::time::Timestamp;

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) rate: f64,
    pub(super) capacity: f64,
    tokens: f64,
    filled_at: Timestamp,
}

impl Bucket {
    /// A bucket with this many tokens.
    pub(super) fn new(rate: f64, capacity: f64, tokens: f64, now: Timestamp) -> Self {
        Self {
            rate,
            capacity,
            tokens,
            filled_at: now,
        }
    }

    /// Takes one token; the error is when there will be one.
    pub(super) fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        self.fill(now);
        let missing = 1.0 - self.tokens;
        if missing > TOLERANCE {
            return Err(now.after_seconds(missing / self.rate));
        }
        self.tokens -= 1.0;
        Ok(())
    }

    pub(super) fn set_rate(&mut self, rate: f64, capacity: f64, now: Timestamp) {
        self.fill(now);
        self.rate = rate;
        self.capacity = capacity;
        self.tokens = self.tokens.min(capacity);
    }

    /// Removes all tokens; the bucket refills from `until` on.
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

/// Larger than rounding errors.
const TOLERANCE: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_at_the_rate_up_to_the_capacity() {
        let at = Timestamp::from_secs;
        let mut bucket = Bucket::new(2.0, 3.0, 0.0, at(0));
        assert_eq!(bucket.take(at(0)), Err(Timestamp::from_millis(500)));
        let mut taken_at = |now| std::iter::from_fn(|| bucket.take(at(now)).ok()).count();
        assert_eq!([1, 2, 100].map(&mut taken_at), [2, 2, 3]);
        bucket.empty_until(at(105));
        assert!(bucket.take(at(104)).is_err());
        assert_eq!(bucket.take(at(106)), Ok(()));
        bucket.set_rate(0.5, 1.0, at(106));
        assert_eq!(bucket.take(at(106)), Ok(()), "one of two was left");
        assert_eq!(bucket.take(at(106)), Err(at(108)));
    }
}
