//! Lengths of time, counted by how long they are.

use std::array;
use std::time::Duration;

use super::counter::Counter;

/// How often each of a few lengths of time was not exceeded, and their sum.
///
/// The bounds are the same for all, so that any two can be compared: from what a server in the
/// same house takes to what a quota makes one wait.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// How many fell between one bound and the next; the last are above all bounds.
    buckets: [Counter; BUCKETS],
    /// In nanoseconds; begins anew after 584 years of waiting in all, as counters do.
    sum: Counter,
}

/// What a histogram holds at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum_nanos: u64,
}

/// The bounds in seconds, as they are written, and in nanoseconds.
pub(super) const BOUNDS: [(&str, u64); BUCKETS - 1] = [
    ("0.005", 5_000_000),
    ("0.01", 10_000_000),
    ("0.025", 25_000_000),
    ("0.05", 50_000_000),
    ("0.1", 100_000_000),
    ("0.25", 250_000_000),
    ("0.5", 500_000_000),
    ("1", 1_000_000_000),
    ("2.5", 2_500_000_000),
    ("5", 5_000_000_000),
    ("10", 10_000_000_000),
    ("30", 30_000_000_000),
    ("60", 60_000_000_000),
    ("300", 300_000_000_000),
    ("3600", 3_600_000_000_000),
];

pub(super) const BUCKETS: usize = 16;

impl Histogram {
    /// Counts one length of time. In the sum, one longer than a year is a year: a server may name
    /// any number.
    pub(super) fn observe(&self, length: Duration) {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&(_, bound)| bound < nanos);
        self.buckets[bucket].increment();
        self.sum.add(nanos.min(YEAR));
    }

    pub(super) fn measured(&self) -> Measured {
        Measured {
            buckets: array::from_fn(|index| self.buckets[index].value()),
            sum_nanos: self.sum.value(),
        }
    }
}

const YEAR: u64 = 366 * 86_400 * 1_000_000_000;

impl Measured {
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds what came between two moments of another one.
    pub(super) fn add_between(&mut self, before: &Self, after: &Self) {
        for (index, bucket) in self.buckets.iter_mut().enumerate() {
            *bucket += after.buckets[index].saturating_sub(before.buckets[index]);
        }
        let added = after.sum_nanos.wrapping_sub(before.sum_nanos);
        self.sum_nanos = self.sum_nanos.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_what_is_below_it() {
        let histogram = Histogram::default();
        for nanos in [0, 5_000_000, 5_000_001, 3_600_000_000_001, u64::MAX] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let measured = histogram.measured();
        assert_eq!(measured.buckets[..3], [2, 1, 0]);
        assert_eq!(measured.buckets[BUCKETS - 1], 2);
        assert_eq!(measured.count(), 5);
        let seconds = 5_000_000 + 5_000_001 + 3_600_000_000_001 + YEAR;
        assert_eq!(measured.sum_nanos, seconds);
    }

    #[test]
    fn bounds_are_what_they_say_and_grow() {
        for (text, nanos) in BOUNDS {
            let seconds: f64 = text.parse().unwrap();
            assert_eq!(
                Duration::from_secs_f64(seconds).as_nanos(),
                u128::from(nanos)
            );
        }
        assert!(BOUNDS.is_sorted_by(|one, next| one.1 < next.1));
    }
}
