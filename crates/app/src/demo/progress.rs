//! The accepted requests of one upstream over time, as far as they are shown.

use std::collections::VecDeque;
use std::time::Duration;

/// Takes a sample every tenth of a second; its size does not grow with the run.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// The upstream's window: rates are measured over whole windows.
    period: Duration,
    /// The samples of the last second.
    recent: VecDeque<Sample>,
    /// When a second first carried nine tenths of the capacity.
    reached: Option<Duration>,
    /// The first sample of a window from then on.
    first: Option<Sample>,
    last: Option<Sample>,
}

/// The accepted requests up to a time, and the capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) accepted: u64,
    pub(super) possible: f64,
}

impl Progress {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            recent: VecDeque::new(),
            reached: None,
            first: None,
            last: None,
        }
    }

    /// Adds a sample. Returns whether it just reached nine tenths of the capacity.
    pub(super) fn record(&mut self, sample: Sample) -> bool {
        let before = self.recent.back().copied().unwrap_or_default();
        self.recent.push_back(sample);
        while self.recent.len() > 2 && sample.at - self.recent[1].at >= WINDOW {
            self.recent.pop_front();
        }
        let first = self.recent.front().copied().unwrap_or_default();
        let (accepted, possible) = between(first, sample);
        let is_long = sample.at - first.at >= WINDOW;
        let is_new = self.reached.is_none() && is_long && accepted >= REACHED_SHARE * possible;
        if is_new {
            self.reached = Some(sample.at);
        }
        self.record_border(before, sample);
        is_new
    }

    fn record_border(&mut self, before: Sample, sample: Sample) {
        let period = self.period.as_nanos().max(1);
        let is_border = before.at.as_nanos() / period != sample.at.as_nanos() / period;
        if self.reached.is_some() && is_border {
            self.first.get_or_insert(sample);
            self.last = Some(sample);
        }
    }

    /// Accepted per second, over the last second.
    pub(super) fn pace(&self) -> f64 {
        match (self.recent.front(), self.recent.back()) {
            (Some(first), Some(last)) => between(*first, *last).0,
            _ => 0.0,
        }
    }

    /// When it first reached nine tenths of the capacity.
    pub(super) fn reached(&self) -> Option<Duration> {
        self.reached
    }

    /// Accepted per second and capacity per second from then on, over whole windows; over the whole
    /// run if it is too short for one.
    pub(super) fn found(&self) -> (f64, f64) {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last.at > first.at => between(first, last),
            _ => between(
                Sample::default(),
                self.recent.back().copied().unwrap_or_default(),
            ),
        }
    }
}

/// Shorter would show bursts, longer would lag behind.
const WINDOW: Duration = Duration::from_secs(1);

const REACHED_SHARE: f64 = 0.9;

/// Accepted per second and capacity per second.
fn between(first: Sample, last: Sample) -> (f64, f64) {
    let seconds = (last.at - first.at).as_secs_f64();
    if seconds <= 0.0 {
        return (0.0, 0.0);
    }
    let accepted = (last.accepted - first.accepted) as f64;
    let possible = last.possible - first.possible;
    (accepted / seconds, possible / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes ten samples per second at `rate` accepted per second.
    fn record_for(progress: &mut Progress, from: u64, seconds: u64, rate: u64) -> Vec<u64> {
        let ticks = (from * 10 + 1)..=((from + seconds) * 10);
        let samples = ticks.map(|tick| Sample {
            at: Duration::from_millis(tick * 100),
            accepted: tick * rate / 10,
            possible: tick as f64 * 5.0,
        });
        samples
            .filter(|sample| progress.record(*sample))
            .map(|sample| sample.at.as_millis().try_into().unwrap())
            .collect()
    }

    #[test]
    fn is_reached_once_after_a_second_at_nine_tenths() {
        let mut progress = Progress::new(Duration::from_secs(1));
        assert!(record_for(&mut progress, 0, 3, 20).is_empty());
        let mut progress = Progress::new(Duration::from_secs(1));
        assert_eq!(record_for(&mut progress, 0, 5, 46), [1100]);
        assert_eq!(progress.reached(), Some(Duration::from_millis(1100)));
        let (found, possible) = progress.found();
        assert!((progress.pace() - 46.0).abs() < 1.0 && (found - 46.0).abs() < 1e-9);
        assert!((possible - 50.0).abs() < 1e-9);
    }

    #[test]
    fn measures_the_found_rate_over_whole_periods() {
        let mut progress = Progress::new(Duration::from_secs(10));
        record_for(&mut progress, 0, 34, 50);
        let samples = (progress.first.unwrap().at, progress.last.unwrap().at);
        assert_eq!(samples, (Duration::from_secs(10), Duration::from_secs(30)));
    }

    #[test]
    fn has_no_rate_without_samples() {
        let progress = Progress::new(Duration::from_secs(1));
        assert!(progress.pace() + progress.found().0 < f64::MIN_POSITIVE);
    }
}
