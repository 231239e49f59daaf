//! Is the server slower than usual? Judged in batches of answers against a slow mean.

use policy::time::Timestamp;

/// Latencies of what was accepted, in seconds.
#[derive(Debug, Default)]
pub(super) struct Latency {
    /// A moving mean over about five answers.
    pub(super) recent: f64,
    /// What is usual; `None` before the first batch.
    pub(super) usual: Option<f64>,
    batch: Batch,
    judged: Judged,
}

/// Answers that are judged together.
#[derive(Debug, Default)]
struct Batch {
    started: Timestamp,
    count: f64,
    sum: f64,
    squares: f64,
}

/// What the last whole batch was like.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    /// Its mean over what is usual.
    ratio: f64,
    /// How many standard errors it was above.
    deviation: f64,
}

impl Latency {
    /// One more answer. `true` if that makes a batch whole.
    pub(super) fn measure(&mut self, seconds: f64, now: Timestamp) -> bool {
        self.recent = match self.recent {
            0.0 => seconds,
            recent => 0.8 * recent + 0.2 * seconds,
        };
        if self.batch.count < 1.0 {
            self.batch.started = now;
        }
        self.batch.count += 1.0;
        self.batch.sum += seconds;
        self.batch.squares += seconds * seconds;
        let (enough, long_enough) = match self.usual {
            Some(_) => (16.0, 0.25),
            None => (5.0, 0.0),
        };
        let lasted = now.seconds_since(self.batch.started);
        let whole = self.batch.count >= enough && lasted >= long_enough;
        if whole {
            self.judge();
        }
        whole
    }

    /// Was the last batch significantly more than `factor` times as slow as usual?
    pub(super) fn is_above(&self, factor: f64) -> bool {
        self.judged.ratio > factor && self.judged.deviation > SIGNIFICANT
    }

    /// The mean of the last batch over what is usual, significant or not.
    pub(super) fn ratio(&self) -> f64 {
        self.judged.ratio
    }

    /// Down quickly, up a thousandth at a time: a queue must not become the new usual.
    fn judge(&mut self) {
        let Batch {
            count,
            sum,
            squares,
            ..
        } = std::mem::take(&mut self.batch);
        let mean = sum / count;
        let Some(usual) = self.usual else {
            self.usual = Some(mean);
            return;
        };
        let spread = (squares / count - mean * mean).max(0.0).sqrt();
        let excess = mean - usual;
        self.judged = Judged {
            ratio: mean / usual,
            deviation: excess / (spread.max(0.1 * usual) / count.sqrt()),
        };
        let step = if excess < 0.0 {
            0.3 * excess
        } else {
            0.001 * excess.min(0.5 * usual)
        };
        self.usual = Some(usual + step);
    }
}

/// In standard errors. By chance alone that happens once in millions of batches.
const SIGNIFICANT: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` answers of so many milliseconds, fifty a second; how many batches they made whole.
    fn answers(latency: &mut Latency, count: u64, millis: f64, from: Timestamp) -> usize {
        let whole = (0..count).filter(|number| {
            let now = from.after_seconds(*number as f64 / 50.0);
            latency.measure(millis / 1e3, now)
        });
        whole.count()
    }

    #[test]
    fn a_batch_that_is_slower_is_seen_and_does_not_become_the_usual() {
        let mut latency = Latency::default();
        assert_eq!(answers(&mut latency, 5, 100.0, Timestamp::ZERO), 1);
        assert_eq!(latency.usual, Some(0.1));
        let batches = answers(&mut latency, 160, 160.0, Timestamp::from_secs(1));
        assert_eq!(batches, 10);
        assert!(latency.is_above(1.5) && !latency.is_above(1.7));
        assert!(latency.usual.unwrap() < 0.101);
        answers(&mut latency, 16, 80.0, Timestamp::from_secs(9));
        assert!(!latency.is_above(0.5), "faster is not above anything");
        assert!(latency.usual.unwrap() < 0.095);
    }
}
