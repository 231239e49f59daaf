//! The breaker's sliding window: recent attempts and how many of them failed.
//!
//! Time is divided into slices that start at multiples of the slice length on the gate's clock,
//! with two small counters each. A list of single results would be exact but unbounded; two
//! decaying counters would be bounded, but could not answer "ten samples in the last thirty
//! seconds". There are sixteen slices: [`MAX_SLICES`] whole ones and the current one. The current
//! one always has the same place, and the others shift when it ends. Shifts are rare, while nearly
//! every response counts in the current slice, which takes one comparison and neither a division
//! nor a search.
//!
//! At most gates nothing has failed for a while. So the counters of failures are allocated at the
//! first one, and freed when the last one has left the sixteen slices.
//!
//! A slice counts while it *starts* at or after `now - window`, so a result expires between one
//! slice before the end of the window and exactly at its end. On a clock younger than the window
//! everything counts. Settings are not stored here: the owner always passes the same `slice`, and
//! calls [`Window::clear`] if it changes, because slice numbers of different lengths are not
//! comparable.
//!
//! Edge cases: when the clock steps back, the latest slice stays current. A long silence clears at
//! most sixteen slices. A slice that has counted 65 535 results halves both counters before it
//! continues, which keeps its error rate within 1/32 768 but not its total. A slice length of zero
//! counts as one nanosecond: settings refuse it, and nothing here may divide by it.

use std::time::Duration;

use crate::time::{Timestamp, nanos};

/// The maximum number of whole slices in a window: `window <= MAX_SLICES * slice`. For a longer
/// window, only the last `MAX_SLICES` slices before the current one are stored.
pub const MAX_SLICES: u64 = 15;

/// Recent results in slices of time: 48 bytes, and 32 more while there are failures among them.
///
/// ```
/// use std::time::Duration;
/// use tidegate_policy::{time::Timestamp, window::Window};
///
/// let (window, slice) = (Duration::from_secs(30), Duration::from_secs(2));
/// let mut results = Window::new();
/// results.record(slice, Timestamp::from_secs(1), true);
/// results.record(slice, Timestamp::from_secs(3), false);
///
/// let counts = results.counts(window, slice, Timestamp::from_secs(4));
/// assert_eq!((counts.total, counts.failed), (2, 1));
/// assert_eq!(counts.error_rate(), 0.5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Window {
    /// The failed results of each slice, as in `totals`; `None` if there are none.
    failed: Option<Box<[u16; SLICES]>>,
    /// All results of each slice, the latest last: next to `start`, because a success touches both.
    totals: [u16; SLICES],
    /// The start of the latest slice, a multiple of the slice length. Zero before the first result,
    /// when all slices are empty.
    start: u64,
}

impl Window {
    /// An empty window.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one result at `now`. A `now` before the latest slice counts in that slice.
    #[inline]
    pub fn record(&mut self, slice: Duration, now: Timestamp, failed: bool) {
        let slice = slice_nanos(slice);
        if now.as_nanos() >= self.start.saturating_add(slice) {
            self.advance_to(now.as_nanos(), slice);
        }
        if self.totals[LATEST] == u16::MAX {
            self.halve_latest();
        }
        self.totals[LATEST] += 1;
        if failed {
            self.failed.get_or_insert_default()[LATEST] += 1;
        }
    }

    /// The results of every slice that starts at or after `now - window`. A `now` before the latest
    /// slice counts as the start of that slice. A window of zero includes the current slice only at
    /// the instant it starts.
    pub fn counts(&self, window: Duration, slice: Duration, now: Timestamp) -> Counts {
        let slice = slice_nanos(slice);
        let cutoff = now.as_nanos().max(self.start).saturating_sub(nanos(window));
        let mut counts = Counts::default();
        let mut start = Some(self.start);
        for index in (0..SLICES).rev() {
            let Some(counted) = start.filter(|&start| start >= cutoff) else {
                break;
            };
            counts.total += u32::from(self.totals[index]);
            counts.failed += self.failed.as_ref().map_or(0, |it| u32::from(it[index]));
            start = counted.checked_sub(slice);
        }
        counts
    }

    /// Clears everything, including the latest time.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Makes the slice of `now` the current one and clears skipped slices, which are all of them
    /// after a long silence.
    #[cold]
    fn advance_to(&mut self, now: u64, slice: u64) {
        let passed = (now - self.start) / slice;
        self.start += passed * slice;
        let passed = usize::try_from(passed).unwrap_or(SLICES).min(SLICES);
        shift(&mut self.totals, passed);
        if let Some(failed) = &mut self.failed {
            shift(failed, passed);
            if failed.iter().all(|&count| count == 0) {
                self.failed = None;
            }
        }
    }

    /// Makes room in the latest slice, which is full.
    #[cold]
    fn halve_latest(&mut self) {
        let failed = self.failed.as_mut().map(|failed| &mut failed[LATEST]);
        for count in failed.into_iter().chain([&mut self.totals[LATEST]]) {
            *count = count.div_ceil(2);
        }
    }
}

/// Moves the counters by `passed` slices, towards the older ones.
fn shift(counts: &mut [u16; SLICES], passed: usize) {
    counts.copy_within(passed.., 0);
    counts[SLICES - passed..].fill(0);
}

/// The number of results in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All results.
    pub total: u32,
    /// The failed results.
    pub failed: u32,
}

impl Counts {
    /// The share of failed results, 0 to 1; 0 if there are none.
    pub fn error_rate(self) -> f64 {
        if self.total == 0 {
            0.0
        } else {
            f64::from(self.failed) / f64::from(self.total)
        }
    }
}

/// The whole slices of a window and the current one.
const SLICES: usize = 16;
const _: () = assert!(SLICES as u64 == MAX_SLICES + 1);

/// The index of the current slice.
const LATEST: usize = SLICES - 1;

/// The length of a slice, at least one nanosecond to avoid a division by zero.
fn slice_nanos(slice: Duration) -> u64 {
    nanos(slice).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: f64) -> Timestamp {
        Timestamp::ZERO.after_seconds(seconds)
    }

    fn counted(total: u32, failed: u32) -> Counts {
        Counts { total, failed }
    }

    #[test]
    fn conformance_cases_hold() {
        let text = include_str!("../../../conformance/004_window.json");
        let file: Value = serde_json::from_str(text).unwrap();
        for case in file["cases"].as_array().unwrap() {
            let given = &case["given"];
            let slice = Duration::from_secs(given["bucket_s"].as_u64().unwrap_or(1));
            let length = Duration::from_secs(given["window_s"].as_u64().unwrap_or(5));
            let mut window = Window::new();
            for record in given["records"].as_array().unwrap() {
                let [when, total, failed] = [0, 1, 2].map(|i| record[i].as_u64().unwrap());
                for number in 0..total {
                    window.record(slice, Timestamp::from_secs(when), number < failed);
                }
            }
            let now = Timestamp::from_secs(given["at_s"].as_u64().unwrap_or(0));
            let counts = window.counts(length, slice, now);

            let (id, expect) = (&case["id"], &case["expect"]);
            if let Some(total) = expect["total"].as_u64() {
                assert_eq!(u64::from(counts.total), total, "{id}");
            }
            if let Some(errors) = expect["errors"].as_u64() {
                assert_eq!(u64::from(counts.failed), errors, "{id}");
            }
            if let Some(rate) = expect["rate"].as_f64() {
                assert_eq!(counts.error_rate().to_bits(), rate.to_bits(), "{id}");
            }
        }
    }

    impl Window {
        /// What a success does not touch: so many bytes at the start.
        pub(crate) const OLDER_BYTES: usize =
            std::mem::offset_of!(Self, totals) + LATEST * size_of::<u16>();
    }

    #[test]
    fn size_is_48_bytes() {
        assert_eq!(size_of::<Window>(), 48);
    }

    #[test]
    fn failures_take_memory_until_the_last_one_has_left_the_slices() {
        let mut window = Window::new();
        window.record(SECOND, at(1.0), false);
        assert_eq!(window.failed, None);
        window.record(SECOND, at(2.0), true);
        assert!(window.failed.is_some());
        window.record(SECOND, at(17.0), false);
        assert_eq!(window.counts(15 * SECOND, SECOND, at(17.0)), counted(2, 1));
        window.record(SECOND, at(18.0), false);
        assert_eq!(window.failed, None);
    }

    #[test]
    fn empty_window_has_no_errors() {
        let counts = Window::new().counts(SECOND, SECOND, Timestamp::MAX);
        assert_eq!(counts, counted(0, 0));
        assert_eq!(counts.error_rate().to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn slice_counts_until_its_start_leaves_the_window() {
        let mut window = Window::new();
        window.record(SECOND, at(7.9), true);
        let total = |now| window.counts(5 * SECOND, SECOND, at(now)).total;
        assert_eq!(total(12.0), 1);
        assert_eq!(total(12.000_000_001), 0);
    }

    #[test]
    fn longest_window_keeps_sixteen_slices_at_a_boundary() {
        let mut window = Window::new();
        for second in 0..=20 {
            window.record(SECOND, Timestamp::from_secs(second), second % 2 == 0);
        }
        let counts = |now| window.counts(15 * SECOND, SECOND, at(now));
        assert_eq!(counts(20.0), counted(16, 8));
        assert_eq!(counts(20.5), counted(15, 8));
    }

    #[test]
    fn too_long_window_keeps_the_last_slices() {
        let mut window = Window::new();
        for second in 0..100 {
            window.record(SECOND, Timestamp::from_secs(second), true);
        }
        let counts = window.counts(60 * SECOND, SECOND, at(99.0));
        assert_eq!(counts, counted(16, 16));
    }

    #[test]
    fn clock_step_back_counts_in_the_latest_slice() {
        let mut window = Window::new();
        window.record(SECOND, at(100.0), false);
        window.record(SECOND, at(3.0), true);
        assert_eq!(window.counts(5 * SECOND, SECOND, at(0.0)), counted(2, 1));
        assert_eq!(window.counts(5 * SECOND, SECOND, at(105.0)), counted(2, 1));
        assert_eq!(window.counts(5 * SECOND, SECOND, at(105.5)), counted(0, 0));
    }

    #[test]
    fn long_silence_clears_the_window() {
        let mut window = Window::new();
        for second in 0..16 {
            window.record(SECOND, Timestamp::from_secs(second), true);
        }
        window.record(SECOND, Timestamp::MAX, false);
        let counts = window.counts(15 * SECOND, SECOND, Timestamp::MAX);
        assert_eq!(counts, counted(1, 0));
    }

    #[test]
    fn clear_resets_the_latest_time() {
        let mut window = Window::new();
        window.record(SECOND, Timestamp::MAX, true);
        window.clear();
        assert_eq!(window, Window::new());
        window.record(SECOND, at(1.0), false);
        assert_eq!(window.counts(SECOND, SECOND, at(1.0)), counted(1, 0));
    }

    #[test]
    fn full_slice_halves_both_counts() {
        let mut window = Window::new();
        for number in 0..1_000_000 {
            window.record(SECOND, at(0.0), number % 5 < 2);
        }
        let counts = window.counts(SECOND, SECOND, at(0.0));
        assert!((32_768..=65_535).contains(&counts.total), "{counts:?}");
        assert!((counts.error_rate() - 0.4).abs() < 1e-4, "{counts:?}");
    }

    #[test]
    fn full_slice_keeps_at_least_one_failure() {
        let mut window = Window::new();
        window.record(SECOND, at(0.0), true);
        for _ in 0..200_000 {
            window.record(SECOND, at(0.0), false);
        }
        assert_eq!(window.counts(SECOND, SECOND, at(0.0)).failed, 1);
    }

    #[test]
    fn accepts_extreme_lengths() {
        let mut window = Window::new();
        window.record(Duration::ZERO, at(1.0), true);
        let counts = window.counts(Duration::ZERO, Duration::ZERO, at(1.0));
        assert_eq!(counts, counted(1, 1));
        window.clear();
        window.record(Duration::MAX, Timestamp::MAX, true);
        let counts = window.counts(Duration::MAX, Duration::MAX, Timestamp::MAX);
        assert_eq!(counts, counted(1, 1));
    }

    /// The specification: stores every record.
    #[derive(Default)]
    struct Model {
        records: Vec<(u64, bool)>,
        latest_start: u64,
    }

    impl Model {
        fn record(&mut self, slice: u64, now: u64, failed: bool) {
            let start = now.max(self.latest_start) / slice * slice;
            self.latest_start = start;
            self.records.push((start, failed));
        }

        fn counts(&self, window: u64, now: u64) -> Counts {
            let now = now.max(self.latest_start);
            let counted = |&&(start, _): &&(u64, bool)| start.saturating_add(window) >= now;
            let failed = |&&(_, failed): &&(u64, bool)| failed;
            let total = self.records.iter().filter(counted).count();
            let failed = self.records.iter().filter(counted).filter(failed).count();
            Counts {
                total: u32::try_from(total).unwrap(),
                failed: u32::try_from(failed).unwrap(),
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<(i64, bool)>> {
        let step = prop_oneof![
            8 => 0_i64..1_500,
            2 => 0_i64..20_000,
            1 => -3_000_i64..0,
            1 => 0_i64..1_000_000_000_000_000,
        ];
        prop::collection::vec((step, any::<bool>()), 1..200)
    }

    proptest! {
        #[test]
        fn matches_a_model_that_stores_every_record(
            slice in prop_oneof![1_u64..10, 100_u64..2_000],
            slices in 1_u64..=MAX_SLICES,
            part in 0_u64..100,
            start: u64,
            steps in steps(),
        ) {
            let length = (slice * slices).saturating_sub(part);
            let [slice_length, window_length] = [slice, length].map(Duration::from_nanos);
            let (mut window, mut model) = (Window::new(), Model::default());
            let mut now = start / 2;
            for (step, failed) in steps {
                now = now.saturating_add_signed(step);
                let timestamp = Timestamp::from_nanos(now);
                prop_assert_eq!(
                    window.counts(window_length, slice_length, timestamp),
                    model.counts(length, now)
                );
                window.record(slice_length, timestamp, failed);
                model.record(slice, now, failed);
                prop_assert_eq!(
                    window.counts(window_length, slice_length, timestamp),
                    model.counts(length, now)
                );
            }
        }
    }
}
