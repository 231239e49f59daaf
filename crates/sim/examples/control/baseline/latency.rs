//! Detects a server that is slower than usual, by batches of latencies against a slow mean.

use policy::time::Timestamp;

/// Latencies of accepted requests, in seconds.
#[derive(Debug, Default)]
pub(super) struct Latency {
    /// A moving mean over about five responses.
    pub(super) recent: f64,
    /// The usual latency; `None` before the first batch.
    pub(super) usual: Option<f64>,
    batch: Batch,
    last: Comparison,
}

/// Latencies that are compared together.
#[derive(Debug, Default)]
struct Batch {
    started: Timestamp,
    count: f64,
    sum: f64,
    squares: f64,
}

/// The last complete batch, compared with the usual latency.
#[derive(Clone, Copy, Debug, Default)]
struct Comparison {
    /// Its mean over the usual latency.
    ratio: f64,
    /// How many standard errors it was above.
    deviation: f64,
}

impl Latency {
    /// Adds a latency. `true` if it completes a batch.
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
        let is_complete = self.batch.count >= enough && lasted >= long_enough;
        if is_complete {
            self.compare();
        }
        is_complete
    }

    /// Whether the last batch was significantly more than `factor` times as slow as usual.
    pub(super) fn is_above(&self, factor: f64) -> bool {
        self.last.ratio > factor && self.last.deviation > SIGNIFICANT
    }

    /// The mean of the last batch over the usual latency, significant or not.
    pub(super) fn ratio(&self) -> f64 {
        self.last.ratio
    }

    /// Compares the batch and moves the usual latency: down quickly, up by a thousandth, so that a queue
    /// does not become usual.
    fn compare(&mut self) {
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
        self.last = Comparison {
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

/// In standard errors: one false alarm in millions of batches.
const SIGNIFICANT: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds `count` latencies, fifty a second. Returns the number of batches completed.
    fn add(latency: &mut Latency, count: u64, millis: f64, from: Timestamp) -> usize {
        let whole = (0..count).filter(|number| {
            let now = from.after_seconds(*number as f64 / 50.0);
            latency.measure(millis / 1e3, now)
        });
        whole.count()
    }

    #[test]
    fn detects_a_slower_batch_and_keeps_the_usual_latency() {
        let mut latency = Latency::default();
        assert_eq!(add(&mut latency, 5, 100.0, Timestamp::ZERO), 1);
        assert_eq!(latency.usual, Some(0.1));
        let batches = add(&mut latency, 160, 160.0, Timestamp::from_secs(1));
        assert_eq!(batches, 10);
        assert!(latency.is_above(1.5) && !latency.is_above(1.7));
        assert!(latency.usual.unwrap() < 0.101);
        add(&mut latency, 16, 80.0, Timestamp::from_secs(9));
        assert!(!latency.is_above(0.5), "faster is not above anything");
        assert!(latency.usual.unwrap() < 0.095);
    }
}
