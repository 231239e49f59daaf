//! When work paced by a failure queue may start, and when to give up.

use std::time::Duration;

use super::{FailureQueue, FailureQueueSettings, Moment};
use crate::random::Random;
use crate::time::Timestamp;

/// Paces the attempts at one upstream: each starts a gap after the latest end or start, and the
/// first one at once.
///
/// The gap is computed from the failures that count when asking, so it shrinks as they expire. Its
/// jitter is drawn once. With `give_up_after`, nothing starts once there was a failure and no
/// success for longer than that; before any success the time counts from the first start.
///
/// ```
/// use tidegate_policy::failure_queue::{FailureQueueSettings, Pacer, Start, WorkResult};
/// use tidegate_policy::random::Random;
/// use tidegate_policy::time::Timestamp;
///
/// let settings = FailureQueueSettings::default();
/// let mut random = Random::from_seed(1);
/// let mut pacer = Pacer::new();
/// let second = Timestamp::from_secs;
/// assert_eq!(pacer.start(&settings, second(0), &mut random), Start::Now);
/// pacer.end(&settings, second(9), WorkResult::Failure);
/// let Start::Wait { until, .. } = pacer.start(&settings, second(10), &mut random) else {
///     panic!("there is a gap");
/// };
/// assert_eq!(until, Some(second(69)));
/// assert_eq!(pacer.start(&settings, second(69), &mut random), Start::Now);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pacer {
    queue: FailureQueue,
    /// The latest end or start.
    last: Option<Moment>,
    /// Drawn once per gap, so that asking again gives the same time.
    jitter: Option<Duration>,
    /// Attempts that have started and not ended.
    in_flight: u32,
    /// The last success, or the first start before any.
    last_success: Option<Moment>,
    /// Whether there was a failure since then.
    has_failed: bool,
}

/// Whether work may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It has started, and its end must be reported.
    Now,
    /// Not yet.
    Wait {
        /// The current end of the gap. `None` if it depends on attempts in flight: the time to give
        /// up has passed, and only a success of one of them prevents that.
        until: Option<Timestamp>,
        /// When to ask again, unless an attempt ends first.
        ask_again: Timestamp,
    },
    /// There was no success for longer than `give_up_after`. Asking again does not help.
    GaveUp,
}

/// What an attempt says about the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkResult {
    /// It succeeded and removes the oldest failure.
    Success,
    /// It failed and may succeed later; it adds a failure.
    Failure,
    /// It says nothing about the upstream, for example because the item is invalid. The gap still
    /// counts from its end.
    Neutral,
}

impl WorkResult {
    /// Success if it is `Ok`, failure if it is an error.
    pub const fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(_) => Self::Failure,
        }
    }
}

/// A pacer as it is stored, as ages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacerRecord {
    /// The age of each failure.
    pub failures: Vec<Duration>,
    /// The age of the latest end or start; `None` if nothing has started.
    pub last: Option<Duration>,
}

impl Pacer {
    /// A pacer without attempts.
    pub const fn new() -> Self {
        Self {
            queue: FailureQueue::new(),
            last: None,
            jitter: None,
            in_flight: 0,
            last_success: None,
            has_failed: false,
        }
    }

    /// Restores a pacer: failures expire and the gap ends when they would have. The time to give up
    /// starts again.
    pub fn restore(settings: &FailureQueueSettings, record: &PacerRecord, now: Timestamp) -> Self {
        Self {
            queue: FailureQueue::restore(settings, record.failures.iter().copied(), now),
            last: record.last.map(|age| Moment::ago(age, now)),
            ..Self::new()
        }
    }

    /// The state to persist. Attempts in flight count as started and not ended.
    pub fn record(&self, settings: &FailureQueueSettings, now: Timestamp) -> PacerRecord {
        PacerRecord {
            failures: self.queue.ages(settings, now).collect(),
            last: self.last.map(|last| last.age(now)),
        }
    }

    /// Starts an attempt, if it may start at `now`.
    pub fn start(
        &mut self,
        settings: &FailureQueueSettings,
        now: Timestamp,
        random: &mut Random,
    ) -> Start {
        let give_up = self.give_up_at(settings);
        if give_up.is_some_and(|at| now > at) {
            return match self.in_flight {
                0 => Start::GaveUp,
                _ => Start::Wait {
                    until: None,
                    ask_again: Timestamp::MAX,
                },
            };
        }
        let until = self.gap_end(settings, now, random);
        if until > now {
            let expiry = self.queue.next_expiry(settings, now);
            let expiry = expiry.unwrap_or(Timestamp::MAX);
            // It gives up just after, not at, that time.
            let give_up = give_up.map_or(Timestamp::MAX, |at| at + Duration::from_nanos(1));
            return Start::Wait {
                until: Some(until),
                ask_again: until.min(expiry).min(give_up),
            };
        }
        self.record_event(now);
        self.in_flight += 1;
        self.last_success.get_or_insert_with(|| now.into());
        Start::Now
    }

    /// Reports the end of an attempt.
    pub fn end(&mut self, settings: &FailureQueueSettings, now: Timestamp, result: WorkResult) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.record_event(now);
        match result {
            WorkResult::Success => {
                self.queue.succeeded(settings, now);
                self.last_success = Some(now.into());
                self.has_failed = false;
            }
            WorkResult::Failure => {
                self.queue.failed(settings, now);
                self.has_failed = true;
            }
            WorkResult::Neutral => {}
        }
    }

    /// The failures that count.
    pub fn queue(&self) -> &FailureQueue {
        &self.queue
    }

    /// Attempts that have started and not ended.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether it is equivalent to a new pacer at `now`: nothing in flight, no failure and no gap.
    pub fn is_idle(&self, settings: &FailureQueueSettings, now: Timestamp) -> bool {
        let longest = settings.base().saturating_add(settings.variance());
        let is_over = |last: Moment| last.after(longest) <= now;
        self.in_flight == 0
            && self.give_up_at(settings).is_none()
            && self.queue.failures(settings, now) == 0
            && self.last.is_none_or(is_over)
    }

    fn record_event(&mut self, now: Timestamp) {
        let now = Moment::from(now);
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        self.jitter = None;
    }

    fn gap_end(
        &mut self,
        settings: &FailureQueueSettings,
        now: Timestamp,
        random: &mut Random,
    ) -> Timestamp {
        let Some(last) = self.last else {
            return now;
        };
        let gap = self.queue.gap(settings, now);
        let draw = || self.queue.wait(settings, now, random).saturating_sub(gap);
        let jitter = *self.jitter.get_or_insert_with(draw);
        last.after(gap.saturating_add(jitter))
    }

    fn give_up_at(&self, settings: &FailureQueueSettings) -> Option<Timestamp> {
        let last_success = self.last_success.filter(|_| self.has_failed)?;
        Some(last_success.after(settings.give_up_after()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FailureQueueOptions;
    use super::*;

    struct TestPacer {
        settings: FailureQueueSettings,
        pacer: Pacer,
        random: Random,
    }

    fn pacer(given: &[(&str, &str)]) -> TestPacer {
        let mut options = FailureQueueOptions::default();
        for (name, value) in given {
            options.set(name, value).unwrap();
        }
        TestPacer {
            settings: options.build().unwrap(),
            pacer: Pacer::new(),
            random: Random::from_seed(1),
        }
    }

    impl TestPacer {
        fn start(&mut self, second: u64) -> Start {
            let now = Timestamp::from_secs(second);
            self.pacer.start(&self.settings, now, &mut self.random)
        }

        fn end(&mut self, second: u64, result: WorkResult) {
            let now = Timestamp::from_secs(second);
            self.pacer.end(&self.settings, now, result);
        }
    }

    fn wait(until: u64, ask_again: u64) -> Start {
        Start::Wait {
            until: Some(Timestamp::from_secs(until)),
            ask_again: Timestamp::from_secs(ask_again),
        }
    }

    #[test]
    fn each_start_is_a_gap_after_the_latest_event() {
        let mut pacer = pacer(&[]);
        assert_eq!(pacer.start(0), Start::Now);
        assert_eq!(pacer.start(0), wait(30, 30));
        assert_eq!(pacer.start(30), Start::Now);
        pacer.end(40, WorkResult::Success);
        assert_eq!(pacer.start(41), wait(70, 70));
        pacer.end(45, WorkResult::Neutral);
        assert_eq!(pacer.start(46), wait(75, 75));
    }

    #[test]
    fn gap_shrinks_when_failures_expire() {
        let mut pacer = pacer(&[("max_age", "100s")]);
        assert_eq!(pacer.start(0), Start::Now);
        pacer.end(1, WorkResult::Failure);
        assert_eq!(pacer.start(61), Start::Now);
        pacer.end(90, WorkResult::Failure);
        assert_eq!(pacer.start(90), wait(180, 101));
        assert_eq!(pacer.start(101), wait(150, 150));
        assert_eq!(pacer.start(150), Start::Now);
    }

    #[test]
    fn base_of_zero_never_waits() {
        let mut pacer = pacer(&[("base", "0s")]);
        for second in [0, 0, 1] {
            assert_eq!(pacer.start(second), Start::Now);
        }
        pacer.end(1, WorkResult::Failure);
        assert_eq!(pacer.start(1), Start::Now);
        assert_eq!(pacer.pacer.in_flight(), 3);
    }

    #[test]
    fn asking_again_keeps_the_jitter() {
        let mut pacer = pacer(&[("variance", "1000s")]);
        assert_eq!(pacer.start(0), Start::Now);
        let first = pacer.start(1);
        assert_eq!(pacer.start(2), first);
        pacer.end(3, WorkResult::Success);
        assert_ne!(pacer.start(3), first);
    }

    #[test]
    fn gives_up_after_a_failure_and_no_success_for_that_long() {
        let mut pacer = pacer(&[("give_up_after", "100s"), ("base", "60s")]);
        assert_eq!(pacer.start(10), Start::Now);
        pacer.end(20, WorkResult::Failure);
        let give_up = Timestamp::from_secs(110) + Duration::from_nanos(1);
        assert_eq!(
            pacer.start(20),
            Start::Wait {
                until: Some(Timestamp::from_secs(140)),
                ask_again: give_up
            }
        );
        assert_eq!(pacer.start(110), wait_until(140, give_up));
        assert_eq!(pacer.start(111), Start::GaveUp);
    }

    fn wait_until(until: u64, ask_again: Timestamp) -> Start {
        Start::Wait {
            until: Some(Timestamp::from_secs(until)),
            ask_again,
        }
    }

    #[test]
    fn success_in_flight_prevents_giving_up() {
        let mut pacer = pacer(&[("give_up_after", "100s"), ("base", "10s")]);
        assert_eq!(pacer.start(0), Start::Now);
        assert_eq!(pacer.start(10), Start::Now);
        pacer.end(20, WorkResult::Failure);
        let in_flight = Start::Wait {
            until: None,
            ask_again: Timestamp::MAX,
        };
        assert_eq!(pacer.start(150), in_flight);
        pacer.end(160, WorkResult::Success);
        assert_eq!(pacer.start(170), Start::Now);
    }

    #[test]
    fn terminal_results_alone_do_not_give_up() {
        let mut pacer = pacer(&[("give_up_after", "1s"), ("base", "10s")]);
        assert_eq!(pacer.start(0), Start::Now);
        pacer.end(5, WorkResult::Neutral);
        assert_eq!(pacer.start(1000), Start::Now);
    }

    #[test]
    fn restore_continues_as_recorded() {
        let mut before = pacer(&[]);
        assert_eq!(before.start(1000), Start::Now);
        before.end(1010, WorkResult::Failure);
        let record = before
            .pacer
            .record(&before.settings, Timestamp::from_secs(1020));
        let mut after = pacer(&[]);
        after.pacer = Pacer::restore(&after.settings, &record, Timestamp::from_secs(2));
        assert_eq!(after.start(2), wait(52, 52));
        assert_eq!(after.start(52), Start::Now);
    }

    #[test]
    fn is_idle_without_failures_and_gap() {
        let mut pacer = pacer(&[]);
        let is_idle = |pacer: &TestPacer, second| {
            let now = Timestamp::from_secs(second);
            pacer.pacer.is_idle(&pacer.settings, now)
        };
        assert!(is_idle(&pacer, 0));
        assert_eq!(pacer.start(0), Start::Now);
        assert!(!is_idle(&pacer, 500));
        pacer.end(500, WorkResult::Success);
        assert!(!is_idle(&pacer, 529));
        assert!(is_idle(&pacer, 530));
    }
}
