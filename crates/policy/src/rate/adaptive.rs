//! The default strategy: finds an unknown limit and stays just below it.
//!
//! It grows fast until the first refusal, remembers that rate as a *ceiling*, falls well below it,
//! returns quickly, and then creeps: 0.5 requests per second faster every second, doubling every
//! five seconds, until the ceiling is confirmed or disproved. One decrease per epoch allows such
//! large steps, because a burst of refusals is one event.
//!
//! Refusals indicate rate limits, latency indicates queues. Latency is judged in batches of
//! responses against a slow mean, with a significance test: single responses give false alarms
//! every few seconds, and the fastest response ever seen is not a usable baseline. Failures other
//! than 503 say nothing about the rate; the breaker handles them.
//!
//! If nothing succeeded across two decreases, the server's window is exhausted, and lowering the
//! rate does not help: the rate stays, and one request at a time probes whether the window has
//! reset.

use std::time::Duration;

use super::{Moment, RateView, Reaction, Signal, Why};
use crate::gate::GateSettings;
use crate::time::Timestamp;

/// The current phase of the strategy, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No rate has been refused yet: the rate grows fast.
    Searching,
    /// The rate grows towards the ceiling.
    Rising,
    /// The rate stays near the ceiling.
    Staying,
    /// The rate grows slowly above the ceiling, in case the limit has risen.
    Probing,
}

/// The strategy's state, in 4-byte fields because every gate has one.
#[derive(Clone, Debug)]
pub(crate) struct Adaptive {
    /// The rate that was last refused; infinite if none was.
    ceiling: f32,
    latency: LatencyGuard,
    delivery: Delivery,
    /// When growth near the ceiling started.
    near_since: Coarse,
    /// Successes near the ceiling, saturating where more make no difference.
    near: u8,
    /// Successes since the last decrease, saturating where more make no difference.
    successes: u8,
    /// Decreases since the last success.
    streak: u8,
    /// How many requests to stay for before probing the ceiling, at low rates.
    probe_hold: u8,
}

impl Adaptive {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            ceiling: f32::INFINITY,
            latency: LatencyGuard::new(now),
            delivery: Delivery::new(now),
            near_since: Coarse::of(now),
            near: 0,
            successes: u8::MAX,
            streak: 0,
            probe_hold: INITIAL_PROBE_HOLD,
        }
    }

    /// The rate that was last refused, if any.
    pub(crate) fn ceiling(&self) -> Option<f64> {
        self.ceiling.is_finite().then_some(f64::from(self.ceiling))
    }

    /// What is known about the limit at this rate, for display.
    pub(crate) fn view(&self, rate: f64, paused_until: Timestamp, now: Timestamp) -> RateView {
        let ceiling = self.ceiling();
        let phase = match ceiling {
            None => Phase::Searching,
            Some(ceiling) if rate < NEAR * ceiling => Phase::Rising,
            Some(_) if self.is_staying(rate) => Phase::Staying,
            Some(_) => Phase::Probing,
        };
        let hold = f64::from(self.probe_hold) * (1.0 / rate).min(1.0);
        let probes_in = (hold - f64::from(self.near)).max(0.0) / rate;
        RateView {
            phase,
            ceiling,
            source: None,
            probes_at: (phase == Phase::Staying)
                .then(|| now.max(paused_until).after_seconds(probes_in)),
            is_shared: false,
            period: None,
            banned_above: None,
        }
    }

    /// Whether there are too few successes near the ceiling to probe it.
    fn is_staying(&self, rate: f64) -> bool {
        f64::from(self.near) <= f64::from(self.probe_hold) * (1.0 / rate).min(1.0)
    }

    /// Restores a ceiling learned before a restart.
    pub(crate) fn restore_ceiling(&mut self, ceiling: Option<f64>) {
        self.ceiling = ceiling.map_or(f32::INFINITY, narrow);
    }

    /// Whether the number of unanswered attempts has reached its bound: twice what the rate fills
    /// at the usual latency, plus [`ALWAYS_IN_FLIGHT`]. More would only queue at the server. The
    /// bound is one while it is unknown whether the server accepts anything.
    #[inline]
    pub(crate) fn is_filled_by(&self, unanswered: u32, rate: f64) -> bool {
        if self.is_probing_blind() {
            return unanswered >= 1;
        }
        match self.latency.base() {
            Some(base) => f64::from(unanswered) >= f64::from(ALWAYS_IN_FLIGHT) + 2.0 * rate * base,
            None => false,
        }
    }

    /// The recent mean latency in seconds; zero before the first response.
    pub(crate) fn mean_latency(&self) -> f64 {
        self.latency.mean()
    }

    /// Whether it is unknown if the server accepts anything.
    #[inline]
    pub(crate) fn is_probing_blind(&self) -> bool {
        self.streak >= 2
    }

    /// Whether a rate was ever refused. Only then does the end of the last pause matter.
    #[inline]
    pub(crate) fn has_ceiling(&self) -> bool {
        self.ceiling.is_finite()
    }

    pub(crate) fn react(
        &mut self,
        settings: &GateSettings,
        signal: Signal,
        moment: Moment,
    ) -> Reaction {
        match signal {
            Signal::Accepted { latency } => self.accepted(settings, latency, moment),
            Signal::Refused { directed: true } => self.directed(settings, moment),
            Signal::Refused { directed: false } => self.refused(settings, moment),
            Signal::Failed => Reaction::default(),
            Signal::BreakerClosed => {
                self.ceiling = narrow(moment.rate);
                self.forget_growth();
                Reaction::lower((moment.rate * 0.5).max(settings.min_rate), Why::Recovered)
            }
        }
    }

    /// Counts a success that is too late to teach anything else.
    pub(crate) fn late_success(&mut self, moment: Moment) {
        self.delivery.count(moment.now, self.stretch(moment.rate));
    }

    #[inline]
    pub(super) fn accepted(
        &mut self,
        settings: &GateSettings,
        latency: Duration,
        moment: Moment,
    ) -> Reaction {
        let Moment { now, rate, .. } = moment;
        self.delivery.count(now, self.stretch(rate));
        self.successes = self.successes.saturating_add(1);
        self.streak = 0;
        match self.latency.measure(latency, now) {
            Queueing::Building => {
                self.near_since = Coarse::of(now);
                self.slowed(settings, moment)
            }
            Queueing::Suspected => {
                self.near_since = Coarse::of(now);
                Reaction::default()
            }
            Queueing::None => self.grow(settings, moment),
        }
    }

    /// A queue builds up at the server: return to the rate that it really delivered.
    #[cold]
    fn slowed(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let delivered = self
            .delivery
            .per_second(moment.now, self.stretch(moment.rate));
        let capacity = moment.rate.min(delivered);
        if moment.rate > 0.97 * delivered {
            self.ceiling = narrow(capacity);
        }
        self.latency.restart(moment.now);
        self.successes = u8::MAX;
        Reaction::lower((0.85 * capacity).max(settings.min_rate), Why::SlowAnswers)
    }

    #[inline]
    fn grow(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let Moment { now, rate, .. } = moment;
        let step = self.step(moment);
        let grown = if rate < settings.max_rate {
            // An unused rate proves nothing. This limits growth only; it never lowers the rate.
            let used = 1.6 * self.delivery.per_second(now, self.stretch(rate)) + 4.0;
            rate.max((rate + step).min(settings.max_rate).min(used))
        } else {
            rate
        };
        if grown > 1.25 * f64::from(self.ceiling) + 0.5 {
            self.ceiling = f32::INFINITY;
            self.probe_hold = INITIAL_PROBE_HOLD;
        }
        if grown > rate {
            Reaction::raise(grown)
        } else {
            Reaction::default()
        }
    }

    #[inline]
    fn step(&mut self, moment: Moment) -> f64 {
        if !self.has_ceiling() {
            return (0.5 * moment.rate).min(1.0);
        }
        self.step_below_ceiling(moment)
    }

    #[inline(never)]
    fn step_below_ceiling(&mut self, moment: Moment) -> f64 {
        let Moment {
            now,
            rate,
            paused_until,
        } = moment;
        if rate < NEAR * f64::from(self.ceiling) {
            return (0.1 * rate * rate.min(1.0)).min(1.0);
        }
        if self.near == 0 {
            self.near_since = Coarse::of(now);
        }
        self.near = self.near.saturating_add(1);
        if self.is_staying(rate) {
            self.near_since = Coarse::of(now);
            return 0.0;
        }
        self.near_since = self.near_since.max(Coarse::of(paused_until), now);
        let doublings = (self.near_since.seconds_until(now) / 5.0).min(20.0);
        (0.5 * doublings.exp2() / rate).min(0.25 * rate)
    }

    fn refused(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let rate = self.fall(settings, moment.rate);
        self.latency.restart(moment.now);
        let doublings = i32::from(self.streak.saturating_sub(1)).min(20);
        let assumed_wait = (doublings > 0).then(|| {
            let seconds = (f64::from(1 << doublings) / rate).max(0.25 * 4f64.powi(doublings));
            Duration::from_secs_f64(seconds.min(MAX_ASSUMED_WAIT_SECONDS))
        });
        Reaction {
            drain: true,
            assumed_wait,
            ..Reaction::lower(rate, Why::Throttled)
        }
    }

    fn fall(&mut self, settings: &GateSettings, rate: f64) -> f64 {
        let closed_window = self.successes < 1 && self.streak >= 2;
        let fallen = if closed_window {
            rate
        } else {
            self.fall_from(rate).max(settings.min_rate)
        };
        self.successes = 0;
        self.forget_growth();
        self.streak = self.streak.saturating_add(1);
        fallen
    }

    fn fall_from(&mut self, rate: f64) -> f64 {
        let known = self.ceiling.is_finite();
        if known {
            self.probe_hold = match !self.is_staying(rate) {
                true => self.probe_hold.saturating_mul(2).min(32),
                false if rate < 1.0 => 16,
                false => INITIAL_PROBE_HOLD,
            };
        }
        let factor = if known && self.successes >= 2 {
            GENTLE_DECREASE
        } else {
            0.5
        };
        self.ceiling = narrow(rate);
        factor * rate
    }

    fn directed(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        // The delivered rate is the better measure, unless too little was sent.
        let delivered = self
            .delivery
            .per_second(moment.now, self.stretch(moment.rate));
        let capacity = delivered.clamp(0.5 * moment.rate, moment.rate);
        let rate = (GENTLE_DECREASE * capacity).max(settings.min_rate);
        self.ceiling = narrow(rate);
        self.forget_growth();
        self.latency.restart(moment.now);
        Reaction::lower(rate, Why::Directed)
    }

    /// The rate has fallen, so growth near the ceiling starts again.
    pub(crate) fn forget_growth(&mut self) {
        self.near = 0;
    }

    /// The interval over which delivery is measured: long enough for a handful of responses.
    #[inline]
    fn stretch(&self, rate: f64) -> f64 {
        // At 20 per second and above, six responses arrive within the shortest interval, and the
        // division by the rate can be skipped; below, they take longer.
        let handful = if rate < 20.0 {
            6.0 / rate
        } else {
            MIN_STRETCH_SECONDS
        };
        let round_trips = 2.0 * self.latency.mean();
        if round_trips > handful {
            round_trips
        } else {
            handful
        }
    }
}

/// When an attempt last started or ended, in seconds modulo 18 hours. Stored apart from the rest of
/// the state, because every granted ask writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastProgress(u16);

impl LastProgress {
    #[expect(clippy::cast_possible_truncation, reason = "modulo 18 hours is meant")]
    pub(crate) fn at(now: Timestamp) -> Self {
        Self((now.as_nanos() / 1_000_000_000) as u16)
    }

    /// When attempts in flight count as lost if none starts or ends meanwhile. Without this, a
    /// handful of attempts that never return would block the gate.
    pub(crate) fn waits_until(self, now: Timestamp, lost_after: Duration) -> Timestamp {
        let silent_for = u64::from(Self::at(now).0.wrapping_sub(self.0));
        now + lost_after.saturating_sub(Duration::from_secs(silent_for))
    }
}

/// The minimum bound on attempts in flight, however fast responses are.
pub(crate) const ALWAYS_IN_FLIGHT: u32 = 6;

/// Over shorter intervals the delivered rate is mostly noise.
const MIN_STRETCH_SECONDS: f64 = 0.3;

/// The rate is near the ceiling from this share of it.
const NEAR: f64 = 0.92;
/// The decrease from a known ceiling.
const GENTLE_DECREASE: f64 = 0.7;
/// Requests to stay below a ceiling before probing it, at rates below one per second.
const INITIAL_PROBE_HOLD: u8 = 4;
/// One request every ten seconds finds the reset of a window soon enough.
const MAX_ASSUMED_WAIT_SECONDS: f64 = 10.0;

/// Whether a queue builds up at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queueing {
    /// Latency is as usual.
    None,
    /// Latency is significantly higher: do not grow.
    Suspected,
    /// Latency is much higher: reduce the rate.
    Building,
}

/// Compares batches of responses with a slow mean.
#[derive(Clone, Debug)]
struct LatencyGuard {
    /// Moving mean over about five responses, in seconds; zero before the first.
    mean: f32,
    /// The usual latency in seconds; zero before the first batch.
    base: f32,
    /// Sum of differences from the base, and of their squares, in the current batch.
    sum: f32,
    squares: f32,
    started: Coarse,
    len: u16,
    /// How much slower the last batch was than the base; `Usual` after a decrease.
    pace: Pace,
    /// Whether the last batch's difference from the base was significant.
    significant: bool,
}

/// Shorter latencies, in seconds, count as equal: a busy machine alone adds as much, and slowing
/// down would not help.
const MIN_LATENCY_SECONDS: f32 = 0.01;
/// One response after hours must not distort the mean for the next hour.
const MAX_LATENCY_SECONDS: f32 = 600.0;

/// The mean of a batch relative to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pace {
    /// At most 20 % longer.
    Usual,
    /// At most 50 % longer.
    Slower,
    /// Longer than that.
    MuchSlower,
}

impl Pace {
    fn of(ratio: f32) -> Self {
        match ratio {
            _ if ratio > 1.5 => Self::MuchSlower,
            _ if ratio > 1.2 => Self::Slower,
            _ => Self::Usual,
        }
    }
}

impl LatencyGuard {
    fn new(now: Timestamp) -> Self {
        Self {
            mean: 0.0,
            base: 0.0,
            sum: 0.0,
            squares: 0.0,
            started: Coarse::of(now),
            len: 0,
            pace: Pace::Usual,
            significant: false,
        }
    }

    fn mean(&self) -> f64 {
        f64::from(self.mean)
    }

    fn base(&self) -> Option<f64> {
        (self.base > 0.0).then_some(f64::from(self.base))
    }

    #[inline]
    fn measure(&mut self, latency: Duration, now: Timestamp) -> Queueing {
        let seconds = latency
            .as_secs_f32()
            .clamp(MIN_LATENCY_SECONDS, MAX_LATENCY_SECONDS);
        self.mean = if self.mean > 0.0 {
            0.8 * self.mean + 0.2 * seconds
        } else {
            seconds
        };
        let difference = seconds - self.base;
        self.sum += difference;
        self.squares += difference * difference;
        self.len = self.len.saturating_add(1);
        let finished = self.finish_batch(now);
        // Without the significance test, latencies with a high variance would always look slow.
        let slow_now = self.significant && self.pace > Pace::Usual && self.mean >= 2.0 * self.base;
        let slow_batch = finished && self.significant && self.pace == Pace::MuchSlower;
        match () {
            () if slow_now || slow_batch => Queueing::Building,
            () if self.significant && self.pace > Pace::Usual => Queueing::Suspected,
            () => Queueing::None,
        }
    }

    /// Discards the current batch and the result of the last one: both belong to the previous rate.
    fn restart(&mut self, now: Timestamp) {
        self.sum = 0.0;
        self.squares = 0.0;
        self.len = 0;
        self.started = Coarse::of(now);
        self.pace = Pace::Usual;
        self.significant = false;
    }

    #[inline]
    fn finish_batch(&mut self, now: Timestamp) -> bool {
        let (enough, long_enough_millis) = if self.base > 0.0 { (16, 250) } else { (5, 0) };
        if self.len < enough || self.started.millis_until(now) < long_enough_millis {
            return false;
        }
        self.judge_batch(now);
        true
    }

    #[inline(never)]
    fn judge_batch(&mut self, now: Timestamp) {
        let len = f32::from(self.len);
        let offset = self.sum / len;
        let spread = (self.squares / len - offset * offset).max(0.0).sqrt();
        let batch = self.base + offset;
        let base = self.base;
        self.restart(now);
        if base > 0.0 {
            self.pace = Pace::of(batch / base);
            self.significant = offset / (spread.max(0.1 * base) / len.sqrt()) > 5.0;
            // Down at once, up by a thousandth at a time: a queue must not become the new normal.
            self.base += if offset < 0.0 {
                0.3 * offset
            } else {
                0.001 * offset.min(0.5 * base)
            };
        } else {
            self.base = batch;
        }
    }
}

/// Successes per second, over the current interval and the previous one.
#[derive(Clone, Debug)]
struct Delivery {
    before: f32,
    count: u32,
    since: Coarse,
}

impl Delivery {
    fn new(now: Timestamp) -> Self {
        Self {
            before: 0.0,
            count: 0,
            since: Coarse::of(now),
        }
    }

    #[inline]
    fn count(&mut self, now: Timestamp, stretch: f64) {
        // Within half of the shortest interval there is nothing to divide.
        if self.since.millis_until(now) >= 150 {
            self.begin_half_if_over(now, stretch / 2.0);
        }
        self.count = self.count.saturating_add(1);
    }

    fn begin_half_if_over(&mut self, now: Timestamp, half: f64) {
        let elapsed = self.since.seconds_until(now);
        if elapsed >= half {
            self.before = narrow(f64::from(self.count) / elapsed);
            self.count = 0;
            self.since = Coarse::of(now);
        }
    }

    fn per_second(&self, now: Timestamp, stretch: f64) -> f64 {
        let half = stretch / 2.0;
        let elapsed = self.since.seconds_until(now);
        (f64::from(self.before) * half + f64::from(self.count)) / (half + elapsed)
    }
}

/// A time in milliseconds modulo 49 days, enough for the age of recent events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coarse(u32);

impl Coarse {
    #[expect(clippy::cast_possible_truncation, reason = "modulo 49 days is meant")]
    fn of(at: Timestamp) -> Self {
        Self((at.as_nanos() / 1_000_000) as u32)
    }

    #[inline]
    fn millis_until(self, now: Timestamp) -> u32 {
        Self::of(now).0.wrapping_sub(self.0)
    }

    fn seconds_until(self, now: Timestamp) -> f64 {
        f64::from(self.millis_until(now)) / 1000.0
    }

    /// The later of two times that are not after `now`.
    fn max(self, other: Self, now: Timestamp) -> Self {
        if other.seconds_until(now) < self.seconds_until(now) {
            other
        } else {
            self
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rates and times need no more than seven digits here"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a batch of responses with this latency, 10 ms apart, and returns the guard's result.
    fn measure(guard: &mut LatencyGuard, now: &mut Timestamp, latency: Duration) -> Queueing {
        let mut seen = Queueing::None;
        for _ in 0..100 {
            *now = *now + Duration::from_millis(10);
            seen = guard.measure(latency, *now);
        }
        seen
    }

    #[test]
    fn ignores_differences_between_very_short_latencies() {
        let check = |usual: u64, later: u64, is_queue: bool| {
            let mut now = Timestamp::ZERO;
            let mut guard = LatencyGuard::new(now);
            measure(&mut guard, &mut now, Duration::from_micros(usual));
            let seen = measure(&mut guard, &mut now, Duration::from_micros(later));
            assert_eq!(
                matches!(seen, Queueing::Building),
                is_queue,
                "{usual} {later}"
            );
        };
        check(200, 9_000, false);
        check(200, 30_000, true);
        check(90_000, 95_000, false);
        check(90_000, 200_000, true);
    }
}
