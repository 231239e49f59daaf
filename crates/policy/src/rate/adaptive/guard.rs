//! Recognises queues at the server by the latency of responses.
//!
//! Responses are compared in batches: a single one says little, because latencies vary. A batch is
//! slow if its mean is significantly above the usual latency, by more than a fifth and by more than
//! the time of three waiting requests. The second condition is for servers with few slots: at 90 % of
//! their capacity, one or two requests wait on average, which doubles the latency at a single slot.
//!
//! **Stalls.** If this process, or the network, stops for a moment, many responses arrive at the same
//! time, all late. At most one response per millisecond is counted, so that a stall counts as a few
//! responses, which differ too much from the others of their batch to be significant.

use std::time::Duration;

use super::coarse::Coarse;
use crate::time::Timestamp;

/// Whether a queue builds up at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queueing {
    /// Latency is as usual.
    None,
    /// Latency is significantly higher, or a decrease has not taken effect yet: do not grow.
    Suspected,
    /// Latency stays significantly higher: reduce the rate a little.
    Lasting,
    /// Latency is much higher: reduce the rate to what the server delivers.
    Building,
}

/// Compares batches of responses with the usual latency.
#[derive(Clone, Debug)]
pub(super) struct LatencyGuard {
    /// Moving mean over about five responses, in seconds; zero before the first.
    mean: f32,
    /// The usual latency in seconds; zero before the first batch.
    base: f32,
    /// The sum of differences from the base in the current batch.
    sum: f32,
    /// The sum of their squares. In the first batch, the sum of the latencies of its first half.
    squares: f32,
    /// When the current batch starts. Earlier responses are not counted.
    starts: Coarse,
    len: u16,
    /// The last eight bits of the millisecond in which a response was last counted.
    tick: u8,
    slow: SlowBatches,
}

impl LatencyGuard {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            mean: 0.0,
            base: 0.0,
            sum: 0.0,
            squares: 0.0,
            starts: Coarse::of(now),
            len: 0,
            tick: u8::MAX,
            slow: SlowBatches::NONE,
        }
    }

    pub(super) fn mean(&self) -> f64 {
        f64::from(self.mean)
    }

    /// The usual latency in seconds, as far as it is known.
    #[inline]
    pub(super) fn base(&self) -> Option<f64> {
        if self.base > 0.0 {
            return Some(f64::from(self.base));
        }
        (self.len >= MIN_FIRST).then(|| f64::from(self.first_half()))
    }

    #[inline]
    pub(super) fn measure(&mut self, latency: Duration, rate: f64, now: Timestamp) -> Queueing {
        let seconds = latency
            .as_secs_f32()
            .clamp(MIN_LATENCY_SECONDS, MAX_LATENCY_SECONDS);
        self.mean = if self.mean > 0.0 {
            0.8 * self.mean + 0.2 * seconds
        } else {
            seconds
        };
        let elapsed = self.starts.signed_millis_until(now);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "modulo 256 is meant"
        )]
        let tick = elapsed as u8;
        if elapsed >= 0 && tick != self.tick {
            self.tick = tick;
            self.count(seconds);
            if self.len >= MIN_BATCH && self.is_long_enough(elapsed) {
                return self.judge_batch(rate, now);
            }
        }
        match self.slow.last_was_slow() {
            false => Queueing::None,
            true => Queueing::Suspected,
        }
    }

    /// Starts a new batch after a decrease. The current one, and the result of the last, belong to the
    /// previous rate.
    pub(super) fn restart(&mut self, now: Timestamp) {
        if self.base == 0.0 && self.len >= MIN_FIRST {
            self.base = self.first_half();
        }
        self.slow = SlowBatches::NONE;
        self.settle(now);
    }

    /// Starts a new batch when nearly all responses to the first requests after `from` have arrived.
    pub(super) fn settle(&mut self, from: Timestamp) {
        if self.base > 0.0 {
            let latency = self.mean.min(MAX_RATIO * self.base);
            let before = self.starts;
            self.begin_batch(from.after_seconds(f64::from(SETTLE_LATENCIES * latency)));
            if before.seconds_since(self.starts) > 0.0 {
                self.starts = before;
            }
        }
    }

    #[inline]
    fn count(&mut self, seconds: f32) {
        let difference = seconds - self.base;
        self.sum += difference;
        if self.base > 0.0 {
            self.squares += difference * difference;
        } else if self.len < FIRST_HALF {
            self.squares += seconds;
        }
        self.len = self.len.saturating_add(1);
    }

    #[inline]
    fn is_long_enough(&self, elapsed_millis: i32) -> bool {
        self.base == 0.0
            || (elapsed_millis >= MIN_BATCH_MILLIS && elapsed_millis as f32 >= 1000.0 * self.base)
    }

    fn begin_batch(&mut self, at: Timestamp) {
        self.sum = 0.0;
        self.squares = 0.0;
        self.len = 0;
        self.tick = u8::MAX;
        self.starts = Coarse::of(at);
    }

    /// The mean of the first half of the first batch.
    fn first_half(&self) -> f32 {
        self.squares / f32::from(self.len.min(FIRST_HALF))
    }

    #[inline(never)]
    fn judge_batch(&mut self, rate: f64, now: Timestamp) -> Queueing {
        let len = f32::from(self.len);
        let offset = self.sum / len;
        if self.base == 0.0 {
            return self.judge_first(offset, now);
        }
        let variance = (self.squares / len - offset * offset).max(0.0);
        let error = variance.sqrt().max(MIN_SPREAD * self.base) / len.sqrt();
        let excess = offset / self.base;
        let in_flight = super::narrow(rate) * self.base;
        let is_slow = offset > SIGNIFICANCE * error && excess > SLOW.max(SLOW_WAITING / in_flight);
        let is_much_slower = excess > MUCH_SLOWER.max(MUCH_SLOWER_WAITING / in_flight);
        let before = self.slow;
        self.follow(offset, error);
        self.begin_batch(now);
        if !is_slow {
            self.slow = before.and_usual();
            return Queueing::None;
        }
        self.slow = before.and_slow(if is_much_slower { DECREASE } else { 1 });
        if self.slow.count() > MAX_SLOW {
            // Lowering the rate did not help, so the latency does not come from a queue.
            self.base += offset;
            self.slow = SlowBatches::NONE;
            return Queueing::None;
        }
        if is_much_slower {
            let slow = self.slow;
            self.restart(now);
            self.slow = slow;
            return Queueing::Building;
        }
        match before.last_was_slow() {
            false => Queueing::Suspected,
            true => Queueing::Lasting,
        }
    }

    /// Takes the first batch as usual, unless its latencies grow: then requests were queued from the
    /// start, and only the first half is usual.
    fn judge_first(&mut self, mean: f32, now: Timestamp) -> Queueing {
        let first = self.first_half();
        if mean > FIRST_GROWTH * first {
            self.restart(now);
            self.slow = SlowBatches::NONE.and_slow(DECREASE);
            return Queueing::Building;
        }
        self.base = mean;
        self.begin_batch(now);
        Queueing::None
    }

    /// Moves the base towards a batch: down at once, up slowly if the difference may be chance, and
    /// else hardly at all, because a queue must not become usual.
    fn follow(&mut self, offset: f32, error: f32) {
        self.base += if offset < 0.0 {
            0.3 * offset
        } else if offset < 1.5 * error {
            0.06 * offset
        } else {
            0.001 * offset.min(0.5 * self.base)
        };
    }
}

/// How many more batches were slow than as usual, where a decrease counts as [`DECREASE`], and, in the
/// highest bit, whether the last one was slow.
#[derive(Clone, Copy, Debug)]
struct SlowBatches(u8);

impl SlowBatches {
    const NONE: Self = Self(0);
    const LAST: u8 = 0x80;

    fn last_was_slow(self) -> bool {
        self.0 & Self::LAST != 0
    }

    fn count(self) -> u8 {
        self.0 & !Self::LAST
    }

    /// After a slow batch, which counts as `weight`.
    fn and_slow(self, weight: u8) -> Self {
        Self((self.count() + weight) | Self::LAST)
    }

    /// After a batch as usual.
    fn and_usual(self) -> Self {
        Self(self.count().saturating_sub(1))
    }
}

/// Shorter latencies, in seconds, count as equal: a busy machine alone adds as much, and slowing
/// down would not help.
const MIN_LATENCY_SECONDS: f32 = 0.01;
/// One response after hours must not distort the mean for the next hour.
const MAX_LATENCY_SECONDS: f32 = 600.0;

/// Responses of a batch at least. With 32, slow servers are noticed late.
const MIN_BATCH: u16 = 16;
/// A batch takes at least this long, and as long as a response usually takes.
const MIN_BATCH_MILLIS: i32 = 250;
const FIRST_HALF: u16 = MIN_BATCH / 2;
/// If the first batch is cut short by a refusal, so many responses give the base.
const MIN_FIRST: u16 = 4;
/// The mean of the first batch relative to its first half. Chance alone exceeds it in 2 % of first
/// batches with a spread of 0.5, and in 5 % with 0.6. At 1.2 times the capacity it is 1.4, at twice
/// the capacity 1.7.
const FIRST_GROWTH: f32 = 1.35;

/// Standard errors. From 3 to 5 makes no difference but at 100 slots (90 % after 17 s with 3).
const SIGNIFICANCE: f32 = 4.0;
/// Latencies vary at least by this share of the base, so that equal ones do not make the smallest
/// difference significant.
const MIN_SPREAD: f32 = 0.1;
/// A slow batch exceeds the base by this share, and by the time of so many waiting requests. With 3 and 6
/// waiting requests instead of 4 and 8, 6 more of 1400 random upstreams miss 90 % of goodput.
const SLOW: f32 = 0.2;
const SLOW_WAITING: f32 = 4.0;
const MUCH_SLOWER: f32 = 0.6;
const MUCH_SLOWER_WAITING: f32 = 8.0;

/// Responses to the first requests after a decrease arrive in order of their latency, the fastest
/// first. A batch starts when nearly all of them have arrived. With 1.5 the base sinks, and 20 slots
/// lose 2.5 % of goodput.
const SETTLE_LATENCIES: f32 = 2.5;
/// A queue that is longer than this many usual latencies is not waited for.
const MAX_RATIO: f32 = 4.0;

/// The count of a decrease, in slow batches.
const DECREASE: u8 = 4;
/// After so many slow batches more than usual ones, the rate is a tenth lower, or with decreases 40 %.
/// Counted in a row instead, a usual latency that was found too low by chance lowers the rate for
/// minutes.
const MAX_SLOW: u8 = 12;

const _: () = assert!(size_of::<LatencyGuard>() <= 24);

#[cfg(test)]
mod tests {
    use super::*;

    /// A guard at 100 requests per second.
    struct Responses {
        guard: LatencyGuard,
        millis: u64,
    }

    impl Responses {
        /// With a usual latency of about 100 ms.
        fn usual() -> Self {
            let now = Timestamp::from_millis(1000);
            let mut responses = Self {
                guard: LatencyGuard::new(now),
                millis: 1000,
            };
            assert_eq!(responses.arrive(100, 100), Queueing::None);
            responses
        }

        /// `count` responses, one every 10 ms; the strongest result. Every other response takes a tenth
        /// more than `latency`, the rest a tenth less.
        fn arrive(&mut self, count: u64, latency: u64) -> Queueing {
            let results = (0..count).map(|index| {
                self.millis += 10;
                let tenth = latency / 10;
                self.measure(if index % 2 == 0 {
                    latency + tenth
                } else {
                    latency - tenth
                })
            });
            strongest(results)
        }

        /// Nothing arrives for `stall` ms, then at once everything that should have, and that late.
        fn stall(&mut self, stall: u64) -> Queueing {
            self.millis += stall;
            let late = (0..stall / 10).map(|index| stall - 10 * index);
            strongest(late.map(|late| self.measure(100 + late)))
        }

        fn measure(&mut self, latency: u64) -> Queueing {
            let now = Timestamp::from_millis(self.millis);
            self.guard
                .measure(Duration::from_millis(latency), 100.0, now)
        }

        fn base_millis(&self) -> f64 {
            1000.0 * self.guard.base().unwrap()
        }
    }

    fn strongest(results: impl Iterator<Item = Queueing>) -> Queueing {
        results.fold(Queueing::None, |strongest, result| {
            if result as u8 > strongest as u8 {
                result
            } else {
                strongest
            }
        })
    }

    #[test]
    fn suspects_then_reports_a_lasting_queue() {
        let mut responses = Responses::usual();
        assert_eq!(responses.arrive(30, 115), Queueing::None);
        responses.arrive(30, 100);
        assert_eq!(responses.arrive(52, 145), Queueing::Suspected);
        assert_eq!(responses.arrive(26, 145), Queueing::Lasting);
        responses.arrive(52, 100);
        assert_eq!(responses.arrive(26, 100), Queueing::None);
    }

    #[test]
    fn reports_a_growing_queue_once_and_waits_for_the_decrease_to_take_effect() {
        let mut responses = Responses::usual();
        assert_eq!(responses.arrive(60, 200), Queueing::Building);
        let mut responses = Responses::usual();
        while responses.arrive(1, 200) != Queueing::Building {}
        // 2.5 latencies, then a batch.
        assert_eq!(responses.arrive(48, 200), Queueing::Suspected);
        responses.arrive(60, 100);
        assert_eq!(responses.arrive(26, 100), Queueing::None);
    }

    #[test]
    fn tolerates_four_waiting_requests_where_few_are_in_flight() {
        let mut responses = Responses::usual();
        let at_rate = |responses: &mut Responses, rate: f64| {
            strongest((0..60).map(|_| {
                responses.millis += 10;
                let now = Timestamp::from_millis(responses.millis);
                responses
                    .guard
                    .measure(Duration::from_millis(190), rate, now)
            }))
        };
        assert_eq!(at_rate(&mut Responses::usual(), 20.0), Queueing::None);
        assert_eq!(at_rate(&mut responses, 100.0), Queueing::Building);
    }

    #[test]
    fn takes_a_latency_as_usual_that_lower_rates_do_not_change() {
        let mut responses = Responses::usual();
        let decreases = (0..2000).filter(|_| responses.arrive(1, 250) == Queueing::Building);
        assert_eq!(decreases.count(), usize::from(MAX_SLOW / DECREASE));
        assert!((responses.base_millis() - 275.0).abs() < 1.0);
    }

    #[test]
    fn takes_a_latency_as_usual_that_most_batches_show_at_lower_rates() {
        let mut responses = Responses::usual();
        // The current batch ends.
        responses.arrive(16, 100);
        let mut eased = 0;
        for batch in 0..150 {
            // Every third batch is as the usual latency, by chance.
            let latency = if batch % 3 == 2 { 100 } else { 150 };
            eased += u32::from(responses.arrive(25, latency) == Queueing::Lasting);
        }
        assert!(eased < 40, "{eased} times");
    }

    #[test]
    fn ignores_the_fast_responses_right_after_a_decrease() {
        let mut responses = Responses::usual();
        let base = responses.base_millis();
        responses
            .guard
            .restart(Timestamp::from_millis(responses.millis));
        responses.arrive(24, 40);
        responses.arrive(100, 100);
        assert!((responses.base_millis() - base).abs() < 2.0);
    }

    #[test]
    fn takes_the_first_half_as_usual_if_requests_queue_from_the_start() {
        let mut guard = LatencyGuard::new(Timestamp::ZERO);
        let results = (1..=16).map(|index| {
            let latency = Duration::from_millis(500 * index);
            guard.measure(latency, 4.0, Timestamp::from_millis(500 * index))
        });
        assert_eq!(strongest(results), Queueing::Building);
        assert!(guard.base().unwrap() < 2.5);
    }

    #[test]
    fn a_refusal_in_the_first_batch_ends_it() {
        let mut guard = LatencyGuard::new(Timestamp::ZERO);
        for index in 1..=5 {
            let now = Timestamp::from_millis(10 * index);
            guard.measure(Duration::from_millis(100), 2.0, now);
        }
        guard.restart(Timestamp::from_millis(60));
        assert!((guard.base().unwrap() - 0.1).abs() < 1e-6);
    }

    #[test]
    fn stalls_of_this_process_are_no_queue() {
        let mut responses = Responses::usual();
        for round in 0..200 {
            let stall = 50 + 50 * (round % 6);
            let result = responses.stall(stall);
            assert!(result == Queueing::None, "{result:?} after {stall} ms");
            let result = responses.arrive(20 + 7 * (round % 5), 100);
            assert!(result == Queueing::None, "{result:?} after {stall} ms");
        }
        assert!((responses.base_millis() - 100.0).abs() < 10.0);
    }

    #[test]
    fn short_latencies_are_equal() {
        let mut responses = Responses::usual();
        responses.arrive(600, 2);
        assert_eq!(responses.arrive(200, 9), Queueing::None);
    }
}
