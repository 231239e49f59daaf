//! Counts in slices of time: a fixed number of slices, twice as long whenever they are used up.

use std::time::Duration;

use super::{AttemptClass, TimeSeries};

/// How many slices there are at most. A plot is 800 pixels wide, so more would not be seen.
pub(super) const MAX_SLICES: usize = 240;

/// The length of slices, the same for all series of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(Duration);

impl Step {
    /// Four slices a second: the first minute is shown in full.
    pub(super) const FIRST: Self = Self(Duration::from_millis(250));

    pub(super) const fn length(self) -> Duration {
        self.0
    }

    /// How often the length must double until `elapsed` is within the last slice.
    pub(super) fn doublings_for(self, elapsed: Duration) -> u32 {
        let slices = self.index(elapsed) / MAX_SLICES;
        usize::BITS - slices.leading_zeros()
    }

    pub(super) fn double(&mut self) {
        self.0 = self.0.saturating_mul(2);
    }

    /// The slice in which `elapsed` is.
    pub(super) fn index(self, elapsed: Duration) -> usize {
        usize::try_from(elapsed.as_nanos() / self.0.as_nanos().max(1)).unwrap_or(usize::MAX)
    }
}

/// The slices of one host, as many as have passed since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Slices(Vec<Slice>);

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    counts: [u32; 4],
    rate: Option<f32>,
    ceiling: Option<f32>,
}

impl Slices {
    pub(super) fn count(&mut self, index: usize, class: AttemptClass) {
        let count = &mut self.at(index).counts[class as usize];
        *count = count.saturating_add(1);
    }

    pub(super) fn set_rate(&mut self, index: usize, rate: f64, ceiling: Option<f64>) {
        let slice = self.at(index);
        slice.rate = Some(single(rate));
        slice.ceiling = ceiling.map(single);
    }

    fn at(&mut self, index: usize) -> &mut Slice {
        let index = index.min(MAX_SLICES - 1);
        if self.0.len() <= index {
            self.0.resize(index + 1, Slice::default());
        }
        &mut self.0[index]
    }

    /// Joins every two slices.
    pub(super) fn halve(&mut self) {
        let joined = self.0.chunks(2).map(|pair| {
            let mut slice = pair[0];
            if let Some(later) = pair.get(1) {
                for (count, more) in slice.counts.iter_mut().zip(later.counts) {
                    *count = count.saturating_add(more);
                }
                if later.rate.is_some() {
                    (slice.rate, slice.ceiling) = (later.rate, later.ceiling);
                }
            }
            slice
        });
        self.0 = joined.collect();
    }

    /// How many bytes it takes.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.0.capacity() * size_of::<Slice>()
    }

    /// The series up to the slice `last`.
    pub(super) fn series(&self, last: usize) -> TimeSeries {
        let length = last.min(MAX_SLICES - 1) + 1;
        let slices = || {
            let rest = std::iter::repeat(Slice::default());
            self.0.iter().copied().chain(rest).take(length)
        };
        let counts = |class: AttemptClass| slices().map(move |slice| slice.counts[class as usize]);
        let has_rate = self.0.iter().any(|slice| slice.rate.is_some());
        let rates = if has_rate { length } else { 0 };
        TimeSeries {
            accepted: counts(AttemptClass::Accepted).collect(),
            refused: counts(AttemptClass::Refused).collect(),
            rejected: counts(AttemptClass::Rejected).collect(),
            failed: counts(AttemptClass::Failed).collect(),
            rate: slices().take(rates).map(|slice| slice.rate).collect(),
            ceiling: slices().take(rates).map(|slice| slice.ceiling).collect(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "seven digits are more than a plot shows"
)]
fn single(rate: f64) -> f32 {
    rate as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_joined_in_pairs() {
        let mut slices = Slices::default();
        for index in [0, 1, 1, 2] {
            slices.count(index, AttemptClass::Accepted);
        }
        slices.set_rate(1, 5.0, None);
        slices.set_rate(2, 6.0, Some(7.0));
        slices.halve();
        let series = slices.series(2);
        assert_eq!(series.accepted, [3, 1, 0]);
        assert_eq!(series.rate, [Some(5.0), Some(6.0), None]);
        assert_eq!(series.ceiling, [None, Some(7.0), None]);
    }

    #[test]
    fn step_doubles_until_the_time_fits() {
        let check = |seconds, doublings| {
            let elapsed = Duration::from_secs(seconds);
            assert_eq!(Step::FIRST.doublings_for(elapsed), doublings, "{seconds} s");
        };
        check(59, 0);
        check(60, 1);
        check(119, 1);
        check(120, 2);
        check(240, 3);
        let mut step = Step::FIRST;
        let year = Duration::from_secs(365 * 86_400);
        for _ in 0..step.doublings_for(year) {
            step.double();
        }
        assert!(step.index(year) < MAX_SLICES);
    }
}
