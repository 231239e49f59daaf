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

    pub(super) fn empty(&mut self, now: Timestamp) {
        self.tokens = 0.0;
        self.filled_at = now;
    }

    fn fill(&mut self, now: Timestamp) {
        let filled = self.tokens + now.seconds_since(self.filled_at) * self.rate;
        self.tokens = filled.min(self.capacity);
        self.filled_at = now;
    }
}

/// More than rounding takes, less than anyone sees.
const ALMOST: f64 = 1e-6;
