//! Paces work by a queue of recent failures.
//!
//! For upstreams that only succeed or fail, such as a site behind a download program. The gap from
//! the end of one attempt to the start of the next is `base · (1 + failures)`: every recent failure
//! adds one `base`, every success removes the oldest failure, and failures expire after `max_age`.
//! The gap grows at once and shrinks step by step. A delay per item would let a hundred new items
//! hit a site that has just failed a hundred times.
//!
//! Failures are counted at the time of asking, not of the last result. A failure that is exactly
//! `max_age` old has expired.
//!
//! Edge cases: a full queue drops its oldest failure, so memory and gap are bounded by `max_size`;
//! with `max_age = 0s` failures never expire; a clock that steps back counts as one that stood
//! still; a gap is at most 584 years.
//!
//! [`FailureQueue`] counts failures; [`Pacer`] uses it to decide when work may start and when to
//! give up.

mod pacer;
mod settings;

use std::collections::VecDeque;
use std::time::Duration;

pub use pacer::{Pacer, PacerRecord, Start, WorkResult};
pub use settings::{FailureQueueOptions, FailureQueueSettings, Growth};

use crate::random::Random;
use crate::time::{Timestamp, nanos};

/// Recent failures of one upstream, oldest first.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_policy::failure_queue::{FailureQueue, FailureQueueSettings};
/// use tidegate_policy::time::Timestamp;
///
/// let settings = FailureQueueSettings::default();
/// let mut queue = FailureQueue::new();
/// queue.failed(&settings, Timestamp::ZERO);
/// assert_eq!(queue.gap(&settings, Timestamp::from_secs(1)), Duration::from_secs(60));
/// assert_eq!(queue.gap(&settings, Timestamp::from_secs(300)), Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureQueue {
    /// In order of time.
    failures: VecDeque<Moment>,
}

/// A [`Timestamp`], or an instant before the clock's origin: a restored failure may be older than
/// the clock that measures its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(i128);

impl Moment {
    fn ago(age: Duration, now: Timestamp) -> Self {
        Self(i128::from(now.as_nanos()) - i128::from(nanos(age)))
    }

    /// The time from this instant to `now`; zero if it is later.
    fn age(self, now: Timestamp) -> Duration {
        let age = i128::from(now.as_nanos()) - self.0;
        Duration::from_nanos(u64::try_from(age.max(0)).unwrap_or(u64::MAX))
    }

    /// The instant `length` after this one, clamped to the range of the clock.
    fn after(self, length: Duration) -> Timestamp {
        let at = self.0 + i128::from(nanos(length));
        Timestamp::from_nanos(u64::try_from(at.max(0)).unwrap_or(u64::MAX))
    }
}

impl From<Timestamp> for Moment {
    fn from(at: Timestamp) -> Self {
        Self(at.as_nanos().into())
    }
}

impl FailureQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            failures: VecDeque::new(),
        }
    }

    /// Records a failure. At `max_size` the oldest is dropped.
    pub fn failed(&mut self, settings: &FailureQueueSettings, now: Timestamp) {
        self.forget(settings, now);
        while self.failures.len() >= settings.max_size() {
            self.failures.pop_front();
        }
        let now = Moment::from(now);
        let last = self.failures.back().copied().unwrap_or(now);
        self.failures.push_back(now.max(last));
    }

    /// Records a success, which removes the oldest failure.
    pub fn succeeded(&mut self, settings: &FailureQueueSettings, now: Timestamp) {
        self.forget(settings, now);
        self.failures.pop_front();
    }

    /// The number of failures that count at `now`.
    pub fn failures(&self, settings: &FailureQueueSettings, now: Timestamp) -> usize {
        self.failures.len() - self.expired_count(settings, now)
    }

    /// The time of the oldest failure that counts at `now`. A failure before the clock's origin is
    /// reported at the origin.
    pub fn oldest(&self, settings: &FailureQueueSettings, now: Timestamp) -> Option<Timestamp> {
        let oldest = self.failures.get(self.expired_count(settings, now))?;
        Some(oldest.after(Duration::ZERO))
    }

    /// When the oldest failure expires, which shortens the gap. `None` if there is none at `now` or
    /// failures never expire.
    pub fn next_expiry(
        &self,
        settings: &FailureQueueSettings,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let oldest = self.failures.get(self.expired_count(settings, now))?;
        Some(oldest.after(settings.max_age()?))
    }

    /// The ages of the failures that count at `now`, oldest first.
    pub fn ages(
        &self,
        settings: &FailureQueueSettings,
        now: Timestamp,
    ) -> impl Iterator<Item = Duration> {
        let expired_count = self.expired_count(settings, now);
        self.failures
            .range(expired_count..)
            .map(move |failed| failed.age(now))
    }

    /// A queue with failures of these ages, in any order. The oldest beyond `max_size` are dropped.
    pub fn restore(
        settings: &FailureQueueSettings,
        ages: impl IntoIterator<Item = Duration>,
        now: Timestamp,
    ) -> Self {
        let ages = ages.into_iter();
        let mut failures: Vec<Moment> = ages.map(|age| Moment::ago(age, now)).collect();
        failures.sort_unstable();
        let dropped = failures.len().saturating_sub(settings.max_size());
        let mut queue = Self {
            failures: failures.into_iter().skip(dropped).collect(),
        };
        queue.forget(settings, now);
        queue
    }

    /// The gap from the end of one attempt to the start of the next, as of `now`, without jitter.
    pub fn gap(&self, settings: &FailureQueueSettings, now: Timestamp) -> Duration {
        let failures = u32::try_from(self.failures(settings, now)).unwrap_or(u32::MAX);
        let factor = match settings.growth() {
            Growth::Linear => u64::from(failures) + 1,
            Growth::Double => 1_u64.checked_shl(failures).unwrap_or(u64::MAX),
        };
        scaled(settings.base(), factor)
    }

    /// The gap with jitter: longer by less than `variance`, never shorter. Draws no random number
    /// if `variance` is zero.
    pub fn wait(
        &self,
        settings: &FailureQueueSettings,
        now: Timestamp,
        random: &mut Random,
    ) -> Duration {
        let variance = u64::try_from(settings.variance().as_nanos()).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(random.below(variance));
        self.gap(settings, now).saturating_add(jitter).min(MAX_GAP)
    }

    /// When the next attempt may start, as of `now`: at once if there was none before, else a gap
    /// after the last one ended. Never before `now`.
    pub fn start(
        &self,
        settings: &FailureQueueSettings,
        last_end: Option<Timestamp>,
        now: Timestamp,
        random: &mut Random,
    ) -> Timestamp {
        match last_end {
            None => now,
            Some(ended) => now.max(ended + self.wait(settings, now, random)),
        }
    }

    fn forget(&mut self, settings: &FailureQueueSettings, now: Timestamp) {
        let expired_count = self.expired_count(settings, now);
        self.failures.drain(..expired_count);
    }

    /// The number of expired failures.
    fn expired_count(&self, settings: &FailureQueueSettings, now: Timestamp) -> usize {
        match settings.max_age() {
            Some(max_age) => self
                .failures
                .partition_point(|failed| failed.age(now) >= max_age),
            None => 0,
        }
    }
}

/// The range of a monotonic clock in nanoseconds.
const MAX_GAP: Duration = Duration::from_nanos(u64::MAX);

fn scaled(base: Duration, factor: u64) -> Duration {
    let nanos = base.as_nanos().saturating_mul(u128::from(factor));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(given: &[(&str, &str)]) -> FailureQueueSettings {
        let mut options = FailureQueueOptions::default();
        for (name, value) in given {
            options.set(name, value).unwrap();
        }
        options.build().unwrap()
    }

    fn after(failures: u64, settings: &FailureQueueSettings) -> FailureQueue {
        let mut queue = FailureQueue::new();
        for second in 0..failures {
            queue.failed(settings, Timestamp::from_secs(second));
        }
        queue
    }

    fn check_gap(failures: u64, given: &[(&str, &str)], seconds: u64) {
        let settings = settings(given);
        let queue = after(failures, &settings);
        let gap = queue.gap(&settings, Timestamp::from_secs(failures));
        assert_eq!(gap, Duration::from_secs(seconds), "{failures} {given:?}");
    }

    #[test]
    fn every_recent_failure_adds_one_base() {
        for (failures, seconds) in [(0, 30), (1, 60), (3, 120), (5, 180), (100, 3030)] {
            check_gap(failures, &[], seconds);
        }
        check_gap(3, &[("base", "10s")], 40);
        check_gap(7, &[("base", "0s")], 0);
    }

    #[test]
    fn full_queue_bounds_the_gap() {
        check_gap(150, &[], 3030);
        check_gap(150, &[("max_size", "20")], 630);
        check_gap(150, &[("max_size", "1")], 60);
    }

    #[test]
    fn double_growth_doubles_the_gap() {
        for (failures, seconds) in [(0, 30), (1, 60), (2, 120), (3, 240), (20, 31_457_280)] {
            check_gap(failures, &[("growth", "double")], seconds);
        }
        let settings = settings(&[("growth", "double")]);
        let queue = after(100, &settings);
        assert_eq!(queue.gap(&settings, Timestamp::from_secs(100)), MAX_GAP);
    }

    #[test]
    fn success_removes_the_oldest_failure() {
        let settings = settings(&[]);
        let mut queue = after(5, &settings);
        for (left, oldest) in [
            (4, Some(1)),
            (3, Some(2)),
            (2, Some(3)),
            (1, Some(4)),
            (0, None),
        ] {
            let now = Timestamp::from_secs(10);
            queue.succeeded(&settings, now);
            assert_eq!(queue.failures(&settings, now), left);
            assert_eq!(
                queue.oldest(&settings, now),
                oldest.map(Timestamp::from_secs)
            );
        }
        queue.succeeded(&settings, Timestamp::from_secs(11));
        assert_eq!(queue, FailureQueue::new());
    }

    #[test]
    fn success_removes_an_unexpired_failure() {
        let settings = settings(&[]);
        let mut queue = FailureQueue::new();
        queue.failed(&settings, Timestamp::ZERO);
        queue.failed(&settings, Timestamp::from_secs(250));
        queue.failed(&settings, Timestamp::from_secs(260));
        let now = Timestamp::from_secs(300);
        queue.succeeded(&settings, now);
        assert_eq!(queue.failures(&settings, now), 1);
    }

    #[test]
    fn failures_expire_without_any_event() {
        let settings = settings(&[]);
        let queue = after(3, &settings);
        let count = |nanos| queue.failures(&settings, Timestamp::from_nanos(nanos));
        assert_eq!(count(299_999_999_999), 3);
        assert_eq!(count(300_000_000_000), 2);
        assert_eq!(count(1_000_000_000_000), 0);
    }

    #[test]
    fn failures_never_expire_with_max_age_zero() {
        let settings = settings(&[("max_age", "0s")]);
        let queue = after(3, &settings);
        assert_eq!(queue.failures(&settings, Timestamp::MAX), 3);
    }

    #[test]
    fn clock_step_back_expires_nothing() {
        let settings = settings(&[]);
        let mut queue = FailureQueue::new();
        queue.failed(&settings, Timestamp::from_secs(100));
        queue.failed(&settings, Timestamp::from_secs(50));
        assert_eq!(queue.failures(&settings, Timestamp::from_secs(50)), 2);
        assert_eq!(queue.failures(&settings, Timestamp::from_secs(399)), 2);
        assert_eq!(queue.failures(&settings, Timestamp::from_secs(400)), 0);
    }

    #[test]
    fn first_attempt_starts_at_once_and_later_ones_after_a_gap() {
        let settings = settings(&[]);
        let queue = after(1, &settings);
        let mut random = Random::from_seed(1);
        let mut start = |ended, now| {
            let ended = Option::map(ended, Timestamp::from_secs);
            queue.start(&settings, ended, Timestamp::from_secs(now), &mut random)
        };
        assert_eq!(start(None, 7), Timestamp::from_secs(7));
        assert_eq!(start(Some(7), 7), Timestamp::from_secs(67));
        assert_eq!(start(Some(7), 14_400), Timestamp::from_secs(14_400));
        // The failure at 0 s expires at 300 s, so asking then gives a shorter gap.
        assert_eq!(start(Some(290), 295), Timestamp::from_secs(350));
        assert_eq!(start(Some(290), 300), Timestamp::from_secs(320));
    }

    #[test]
    fn variance_only_adds() {
        let settings = settings(&[("variance", "5s"), ("growth", "double")]);
        let queue = after(3, &settings);
        let mut random = Random::from_seed(3);
        let waits: Vec<_> = (0..1000)
            .map(|_| queue.wait(&settings, Timestamp::from_secs(3), &mut random))
            .collect();
        let (least, most) = (Duration::from_secs(240), Duration::from_secs(245));
        assert!(waits.iter().all(|wait| (least..most).contains(wait)));
        let spread = *waits.iter().max().unwrap() - *waits.iter().min().unwrap();
        assert!(spread > Duration::from_millis(4900), "{spread:?}");
    }

    #[test]
    fn draws_no_random_number_without_variance() {
        let settings = settings(&[]);
        let mut random = Random::from_seed(5);
        FailureQueue::new().wait(&settings, Timestamp::ZERO, &mut random);
        assert_eq!(random, Random::from_seed(5));
    }

    #[test]
    fn restored_failures_expire_on_time() {
        let settings = settings(&[]);
        let queue = after(3, &settings);
        let ages: Vec<Duration> = queue.ages(&settings, Timestamp::from_secs(100)).collect();
        assert_eq!(ages, [100, 99, 98].map(Duration::from_secs));
        // Another clock, which started a second ago: its origin is later than all failures.
        let now = Timestamp::from_secs(1);
        let restored = FailureQueue::restore(&settings, ages.into_iter().rev(), now);
        let count = |seconds| restored.failures(&settings, Timestamp::from_secs(seconds));
        assert_eq!((count(1), count(200), count(201), count(203)), (3, 3, 2, 0));
        let expiry = restored.next_expiry(&settings, now);
        assert_eq!(expiry, Some(Timestamp::from_secs(201)));
    }

    #[test]
    fn restores_the_newest_that_fit() {
        let settings = settings(&[("max_size", "2"), ("max_age", "50s")]);
        let ages = [60, 1, 40, 3].map(Duration::from_secs);
        let now = Timestamp::from_secs(7);
        let restored = FailureQueue::restore(&settings, ages, now);
        let ages: Vec<Duration> = restored.ages(&settings, now).collect();
        assert_eq!(ages, [3, 1].map(Duration::from_secs));
    }

    /// Whether each event is a success, and how many milliseconds it follows the previous one.
    fn histories() -> impl Strategy<Value = Vec<(bool, u64)>> {
        prop::collection::vec((any::<bool>(), 0_u64..60_000), 0..200)
    }

    proptest! {
        #[test]
        fn matches_a_model_that_stores_every_failure(
            events in histories(),
            max_size in 1_usize..12,
            max_age in 0_u64..200,
        ) {
            let settings = settings(&[
                ("max_size", &max_size.to_string()),
                ("max_age", &format!("{max_age}s")),
            ]);
            let mut queue = FailureQueue::new();
            let mut naive: Vec<u64> = Vec::new();
            let mut millis = 0;
            for (succeeded, later) in events {
                millis += later;
                let now = Timestamp::from_millis(millis);
                naive.retain(|at| max_age == 0 || millis - at < max_age * 1000);
                if succeeded {
                    queue.succeeded(&settings, now);
                    if !naive.is_empty() {
                        naive.remove(0);
                    }
                } else {
                    queue.failed(&settings, now);
                    naive.push(millis);
                    if naive.len() > max_size {
                        naive.remove(0);
                    }
                }
                let count = naive.len();
                prop_assert_eq!(queue.failures(&settings, now), count);
                let seconds = 30 * (1 + count as u64);
                prop_assert_eq!(queue.gap(&settings, now), Duration::from_secs(seconds));
                prop_assert_eq!(
                    queue.oldest(&settings, now),
                    naive.first().copied().map(Timestamp::from_millis)
                );
            }
        }

        #[test]
        fn accepts_any_times_and_settings(
            scaled in prop::collection::vec((any::<u64>(), any::<bool>()), 0..50),
            base: u64, max_age: u64, variance: u64, double: bool, seed: u64,
        ) {
            let settings = settings(&[
                ("base", &format!("{base}ns")),
                ("max_age", &format!("{max_age}ns")),
                ("variance", &format!("{variance}ns")),
                ("growth", if double { "double" } else { "linear" }),
            ]);
            let mut queue = FailureQueue::new();
            let mut random = Random::from_seed(seed);
            for (nanos, succeeded) in scaled {
                let now = Timestamp::from_nanos(nanos);
                if succeeded {
                    queue.succeeded(&settings, now);
                } else {
                    queue.failed(&settings, now);
                }
                let wait = queue.wait(&settings, now, &mut random);
                prop_assert!(wait >= queue.gap(&settings, now));
                prop_assert!(queue.start(&settings, Some(now), now, &mut random) >= now);
            }
        }
    }
}
