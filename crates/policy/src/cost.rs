//! A limit on cost besides the limit on requests, such as a language model's tokens per minute.
//!
//! A gate gets one with the first cost other than one, if its strategy is `adaptive`. From then on the
//! gate's own bucket counts requests, this one counts cost, and an ask leaves when both allow it.
//!
//! Costs are counted in *units* of about their mean, so that a request weighs about one, and the same
//! strategy with the same constants finds this limit. A unit is changed when the mean has moved by a
//! factor of two; the rate in cost per second stays. The strategy learns from accepted units, not from
//! accepted requests, so what it measures is exact however much costs vary.
//!
//! An estimate may be wrong in one direction all the time. An ask therefore takes what requests like
//! it really cost: its estimate times the ratio of the means of actual and estimated costs. The actual
//! cost corrects the rest.
//!
//! If the server says what remains, nothing leaves that exceeds it.

use std::time::Duration;

use crate::bucket::{Bucket, Pause};
use crate::gate::{CostRecord, CostSnapshot, GateSettings};
use crate::hint::Quota;
use crate::rate::{self, Adaptive, Moment, Reaction, Signal};
use crate::time::Timestamp;

/// A limit on cost and what was learned about it.
#[derive(Clone, Debug)]
pub(crate) struct CostLimit {
    /// In units.
    bucket: Bucket,
    adaptive: Adaptive,
    /// The cost of one unit.
    unit: f64,
    /// Moving means of estimated and actual costs.
    asked: f64,
    used: f64,
    /// How many costs are in the means, up to [`MEAN_OVER`].
    samples: u8,
    /// Accepted units that the strategy has not seen yet; negative if it saw more.
    unseen: f64,
    /// A latency that never changes: queues at the server are the concern of the rate of requests.
    latency: Option<Duration>,
    quota: Option<RemainingCost>,
    refill: Refill,
    /// What was taken for the last attempts, by their number; negative if unknown.
    recent: [f32; RECENT as usize],
}

/// What the server says is left, minus what was sent since.
#[derive(Clone, Copy, Debug)]
struct RemainingCost {
    at: Timestamp,
    left: f64,
    until: Timestamp,
}

/// Whether the server's limit is a bucket, whose reset is the time until it is full, and not a window.
///
/// A bucket's used part over the time until its reset is always its rate; in a window that quotient
/// grows all the time. So two responses tell, if the used part differs enough.
#[derive(Clone, Copy, Debug, Default)]
struct Refill {
    /// The used part and the quotient of the response to compare with.
    used: f64,
    per_second: f64,
    is_bucket: bool,
}

impl Refill {
    fn compare(&mut self, quota: Quota, reset: Duration) {
        let Some(limit) = quota.limit else { return };
        let used = limit.saturating_sub(quota.remaining) as f64;
        // Resets in whole seconds tell nothing about a bucket that is nearly full.
        if used < 0.05 * limit as f64 || reset.is_zero() {
            return;
        }
        let per_second = used / reset.as_secs_f64();
        let is_equal = (per_second / self.per_second - 1.0).abs() < 0.2;
        let is_other = used > 1.3 * self.used || 1.3 * used < self.used;
        if is_other || self.is_bucket && !is_equal {
            *self = Self {
                used,
                per_second,
                is_bucket: is_equal,
            };
        }
    }
}

/// The means follow about this many costs.
const MEAN_OVER: u8 = 20;
/// As many attempts as a gate has in flight by default.
const RECENT: u32 = 256;
fn slot(number: u32) -> usize {
    (number % RECENT) as usize
}

/// So that one absurd cost cannot take long.
const MAX_UNITS: u32 = 64;

impl CostLimit {
    /// A limit that nothing is known about, for costs of about `cost`. Its rate is that of requests.
    pub(crate) fn new(settings: &GateSettings, cost: u32, rate: f64, now: Timestamp) -> Self {
        let cost = f64::from(cost.max(1));
        Self {
            bucket: Bucket::full(rate, rate::burst(settings, rate), now),
            adaptive: Adaptive::new(now),
            unit: cost,
            asked: cost,
            used: cost,
            samples: 0,
            unseen: 0.0,
            latency: None,
            quota: None,
            refill: Refill::default(),
            recent: [-1.0; RECENT as usize],
        }
    }

    pub(crate) fn record(&self) -> CostRecord {
        CostRecord {
            rate: self.bucket.rate() * self.unit,
            ceiling: self.adaptive.ceiling().map(|ceiling| ceiling * self.unit),
            mean: self.used,
        }
    }

    /// Restores a limit with at most one unit. A rate outside the bounds of the settings, for requests
    /// of the mean cost, is clamped. `None` if the record has no numbers.
    pub(crate) fn restore(
        settings: &GateSettings,
        record: &CostRecord,
        now: Timestamp,
    ) -> Option<Self> {
        let mean = Some(record.mean).filter(|mean| mean.is_finite() && *mean >= 1.0)?;
        let rate = Some(record.rate / mean).filter(|rate| rate.is_finite())?;
        let rate = rate.clamp(settings.min_rate, settings.max_rate);
        let ceiling = record.ceiling.map(|ceiling| ceiling / mean);
        let mut limit = Self {
            unit: mean,
            asked: mean,
            used: mean,
            ..Self::new(settings, 1, rate, now)
        };
        limit.bucket.cut_to(1.0);
        limit
            .adaptive
            .restore_ceiling(ceiling.filter(|ceiling| ceiling.is_finite()));
        Some(limit)
    }

    /// What asks that cost `asked` in total really cost.
    fn expected(&self, asked: f64) -> f64 {
        asked * self.used / self.asked
    }

    fn burst(&self, settings: &GateSettings) -> f64 {
        rate::burst(settings, self.bucket.rate())
    }

    pub(crate) fn refill(&mut self, settings: &GateSettings, now: Timestamp, pause: Pause) {
        self.bucket.refill(now, self.burst(settings), pause);
    }

    /// When asks with a total cost of `ahead` and then one with `cost` may have left.
    pub(crate) fn ready_at(
        &self,
        settings: &GateSettings,
        ahead: u64,
        cost: u32,
        pause: Pause,
    ) -> Timestamp {
        let (ahead, cost) = (self.expected(ahead as f64), self.expected(f64::from(cost)));
        let burst = self.burst(settings);
        let at_rate = self
            .bucket
            .ready_at(ahead / self.unit, cost / self.unit, burst, pause);
        at_rate.max(self.within_quota_at(ahead + cost))
    }

    /// When the server's quota allows the next ask with this cost, as far as it said.
    pub(crate) fn allowed_at(&self, ahead: u64, cost: u32) -> Timestamp {
        self.within_quota_at(self.expected(ahead as f64 + f64::from(cost)))
    }

    fn within_quota_at(&self, cost: f64) -> Timestamp {
        match self.quota {
            Some(quota) if cost > quota.left && self.refill.is_bucket => {
                let missing = (cost - quota.left) / self.refill.per_second;
                quota.at.after_seconds(missing).min(quota.until)
            }
            Some(quota) if cost > quota.left => quota.until,
            _ => Timestamp::ZERO,
        }
    }

    /// Whether an ask with `cost` may leave now; the bucket must have been refilled.
    pub(crate) fn has(&self, settings: &GateSettings, cost: u32, now: Timestamp) -> bool {
        self.ready_at(settings, 0, cost, Pause::NONE) <= now
    }

    /// Takes the cost of an attempt.
    pub(crate) fn take(&mut self, attempt: AttemptCost) {
        let cost = self.expected(f64::from(attempt.asked));
        self.bucket.correct(cost / self.unit, 0.0);
        if let Some(quota) = &mut self.quota {
            quota.left -= cost;
        }
        self.remember(attempt, cost);
    }

    /// Returns the cost of an attempt that was not made.
    pub(crate) fn give_back(&mut self, settings: &GateSettings, attempt: AttemptCost) {
        let cost = self.taken(attempt);
        let burst = self.burst(settings);
        self.bucket.correct(-cost / self.unit, burst);
        if let Some(quota) = &mut self.quota {
            quota.left += cost;
        }
    }

    /// What was taken for an attempt, or about that if it is long ago.
    fn taken(&self, attempt: AttemptCost) -> f64 {
        let recent = f64::from(self.recent[slot(attempt.number)]);
        if attempt.sent_since < RECENT && recent >= 0.0 {
            recent
        } else {
            self.expected(f64::from(attempt.asked))
        }
    }

    /// The cost of all attempts since this one.
    fn sent_since(&self, attempt: AttemptCost) -> f64 {
        let known = attempt.sent_since.min(RECENT - 1);
        let newest = attempt.number.wrapping_add(attempt.sent_since);
        let recent = (0..known).map(|back| {
            let number = newest.wrapping_sub(back);
            f64::from(self.recent[slot(number)].max(0.0))
        });
        recent.sum::<f64>() + f64::from(attempt.sent_since - known) * self.used
    }

    /// Counts the expected cost of an attempt that was accepted.
    pub(crate) fn count_accepted(&mut self, attempt: AttemptCost) {
        let taken = self.taken(attempt);
        self.samples = (self.samples + 1).min(MEAN_OVER);
        let share = 1.0 / f64::from(self.samples);
        self.asked += share * (f64::from(attempt.asked) - self.asked);
        self.used += share * (taken - self.used);
        self.unseen += taken / self.unit;
        self.adjust_unit();
    }

    /// Replaces the expected cost of an attempt by the actual one.
    pub(crate) fn correct(
        &mut self,
        settings: &GateSettings,
        attempt: AttemptCost,
        used: u32,
        accepted: bool,
    ) {
        let used = f64::from(used);
        let difference = used - self.taken(attempt);
        self.bucket
            .correct(difference / self.unit, self.burst(settings));
        self.remember(attempt, used);
        if accepted {
            self.unseen += difference / self.unit;
            self.used = (self.used + difference / f64::from(self.samples.max(1))).max(1.0);
            self.adjust_unit();
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a cost needs no more than seven digits"
    )]
    fn remember(&mut self, attempt: AttemptCost, cost: f64) {
        if attempt.sent_since < RECENT {
            self.recent[slot(attempt.number)] = cost as f32;
        }
    }

    fn adjust_unit(&mut self) {
        if self.used > 2.0 * self.unit || 2.0 * self.used < self.unit {
            let factor = self.unit / self.used;
            self.unit = self.used;
            self.unseen *= factor;
            self.bucket.rescale(factor);
            let ceiling = self.adaptive.ceiling().map(|ceiling| ceiling * factor);
            self.adaptive.restore_ceiling(ceiling);
        }
    }

    /// Learns from accepted units. Those of an older epoch are only counted.
    pub(crate) fn accepted(
        &mut self,
        settings: &GateSettings,
        present: bool,
        latency: Duration,
        moment: Moment,
    ) -> Reaction {
        let latency = *self.latency.get_or_insert(latency);
        let mut all = Reaction::default();
        for _ in 0..MAX_UNITS {
            if self.unseen <= 0.0 {
                return all;
            }
            self.unseen -= 1.0;
            let moment = self.at(moment);
            if present {
                let reaction = self.react(settings, Signal::Accepted { latency }, moment);
                all.decreased |= reaction.decreased;
                all.assumed_wait = all.assumed_wait.max(reaction.assumed_wait);
            } else {
                self.adaptive.late_success(moment);
            }
        }
        self.unseen = 0.0;
        all
    }

    /// Learns from a refusal.
    pub(crate) fn refused(
        &mut self,
        settings: &GateSettings,
        wait: Option<Duration>,
        moment: Moment,
    ) -> Reaction {
        let moment = self.at(moment);
        self.react(settings, Signal::Refused { wait }, moment)
    }

    fn at(&self, moment: Moment) -> Moment {
        Moment {
            rate: self.bucket.rate(),
            ..moment
        }
    }

    fn react(&mut self, settings: &GateSettings, signal: Signal, moment: Moment) -> Reaction {
        let reaction = rate::react(settings, &mut self.adaptive, signal, moment);
        if let Some((rate, _)) = reaction.rate {
            self.bucket.set_rate(rate);
        }
        if reaction.decreased {
            self.bucket.cut_to(self.burst(settings));
        }
        if reaction.drain {
            self.bucket.cut_to(0.0);
        }
        reaction
    }

    /// Takes what the server says remains. Returns `true` if less remains than the rate uses in
    /// `spread` seconds; the rate is lowered to that.
    pub(crate) fn limit_to(
        &mut self,
        settings: &GateSettings,
        quota: Quota,
        attempt: AttemptCost,
        spread: f64,
        now: Timestamp,
    ) -> bool {
        let Some(reset) = quota.reset else {
            return false;
        };
        let left = (quota.remaining as f64 - self.sent_since(attempt)).max(0.0);
        self.quota = Some(RemainingCost {
            at: now,
            left,
            until: now + reset,
        });
        self.refill.compare(quota, reset);
        if self.refill.is_bucket {
            return false;
        }
        let spread = spread.min(reset.as_secs_f64());
        let is_slower = self.bucket.rate() * self.unit * spread > left;
        if is_slower {
            let rate = left / self.unit / spread;
            self.bucket.set_rate(rate.max(settings.min_rate));
            self.bucket.cut_to(0.0);
            self.adaptive.forget_growth();
        }
        is_slower
    }

    pub(crate) fn snapshot(
        &self,
        settings: &GateSettings,
        now: Timestamp,
        pause: Pause,
    ) -> CostSnapshot {
        let mut bucket = self.bucket;
        bucket.refill(now, self.burst(settings), pause);
        CostSnapshot {
            rate: bucket.rate() * self.unit,
            ceiling: self.adaptive.ceiling().map(|ceiling| ceiling * self.unit),
            available: bucket.tokens() * self.unit,
            mean: self.used,
        }
    }

    /// Whether it is unknown if the server accepts anything.
    pub(crate) fn is_probing_blind(&self) -> bool {
        self.adaptive.is_probing_blind()
    }
}

/// The cost of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptCost {
    /// Its number at its gate.
    pub(crate) number: u32,
    /// How many attempts were sent after it.
    pub(crate) sent_since: u32,
    /// The cost of the ask.
    pub(crate) asked: u32,
}
