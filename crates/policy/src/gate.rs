//! The gate: the state of one key, and the only place that decides whether a request may be sent.
//!
//! An [`Ask`] is admitted, waits, or is refused, always with a reason and, if known, with an
//! `until`. Checks run in a fixed order: breaker, hold, tokens (and known limits), in flight, turn
//! in line. An admitted ask gets a [`Permit`], which is returned with the outcome. The gate then
//! learns, once per real event: the permit carries the *epoch* it was issued in, and every
//! decrease, trip and close starts a new epoch. Results of an older epoch teach nothing; they are
//! counted and may extend a hold, which only ever grows.
//!
//! Everything happens in calls; nothing runs in between. A hold or an open breaker that ended an
//! hour ago is accounted for by the next ask, exactly as if it had been noticed at that instant.
//! The waiting line is stored in a separate arena and identified by a `u32`; the rest is a fixed
//! 248 bytes, see [`Gate`].

use crate::breaker::{Breaker, BreakerState};
use crate::bucket::{Bucket, Pause};
use crate::cost::CostLimit;
use crate::hint::Source;
use crate::latency::Latency;
use crate::limits::Limits;
use crate::line::{LineId, Tickets};
use crate::rate::{self, Adaptive, LastProgress, Strategy, Why};
use crate::time::{CoarseTime, Timestamp};
use crate::window::Counts;

mod admit;
mod ask;
mod counted;
mod counters;
mod explain;
mod external;
mod hedge;
mod learn;
mod options;
mod quota;
mod record;
mod settings;
mod silent;
#[cfg(test)]
mod tests;

use counted::CountedWindow;
use counters::Counters;
use quota::Quota;
use silent::SilentWindow;

pub(crate) use external::Replayed;

pub use ask::{Ask, Decision, Permit, Reason, ResponseBody};
pub use external::{External, ExternalBreaker, Slots};
pub use options::GateOptions;
pub use record::{CostRecord, CostSnapshot, GateOverride, GateRecord, GateSnapshot, GateSummary};
pub use settings::GateSettings;

pub use crate::setting::SettingError;

/// The state of one key: 248 bytes, which are four cache lines together with 8 bytes of its owner
/// before them. A granted ask touches only the first 56 bytes. The next 64 are what an accepted
/// response changes in the state of `adaptive`, or reads there. The rest of that state, counters of
/// refusals and failures, and what few gates have are touched by few responses. Every response
/// touches a part of the last 64.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Gate {
    bucket: Bucket,
    counters: Counters,
    line: LineId,
    /// Permits issued so far, modulo 2^32.
    admitted: u32,
    /// The time of the last success.
    last_success: Option<CoarseTime>,
    last_progress: LastProgress,
    why: Why,
    /// Whether only tokens and the in-flight count decide, which is the common case: the breaker is
    /// Closed, no hold has to be accounted for, there are no known limits and no limit on cost, and
    /// the gate is not probing blind. Cached so that an ask need not check all of these; updated by
    /// [`Gate::update_fast_path`].
    has_fast_path: bool,
    hold_until: Timestamp,
    adaptive: Adaptive,
    throttled: u32,
    failed: u32,
    extras: Option<Box<Extras>>,
    breaker: Breaker,
    latency: Latency,
    hold_source: Option<Source>,
    succeeded: u32,
}

/// What few gates have: known limits, and what `adaptive` learns from headers that tell a quota and
/// from costs. Never empty.
#[derive(Clone, Debug, Default)]
struct Extras {
    limits: Option<Limits>,
    quota: Option<Quota>,
    cost: Option<Box<CostLimit>>,
    counted: Option<CountedWindow>,
    silent: Option<SilentWindow>,
}

impl Extras {
    fn of_limits(limits: Option<Limits>) -> Option<Box<Self>> {
        limits.map(|limits| {
            Box::new(Self {
                limits: Some(limits),
                ..Self::default()
            })
        })
    }

    fn is_empty(&self) -> bool {
        let Self {
            limits,
            quota,
            cost,
            counted,
            silent,
        } = self;
        limits.is_none()
            && quota.is_none()
            && cost.is_none()
            && counted.is_none()
            && silent.is_none()
    }
}

impl Gate {
    /// A new gate with a full bucket and a Closed breaker. All memory that it ever needs is
    /// allocated here, except for the counters of failures, and for quotas and costs that `adaptive`
    /// learns.
    pub fn new(settings: &GateSettings, now: Timestamp) -> Self {
        let rate = settings.initial_rate;
        let mut gate = Self {
            bucket: Bucket::full(rate, rate::burst(settings, rate), now),
            counters: Counters::default(),
            line: LineId::NONE,
            admitted: 0,
            last_success: None,
            last_progress: LastProgress::at(now),
            why: Why::Initial,
            has_fast_path: false,
            hold_until: Timestamp::ZERO,
            adaptive: Adaptive::new(now),
            throttled: 0,
            failed: 0,
            extras: Extras::of_limits(Limits::of(&settings.limits, None)),
            breaker: Breaker::new(),
            latency: Latency::new(settings.aimd.latency_target),
            hold_source: None,
            succeeded: 0,
        };
        gate.update_fast_path();
        gate
    }

    /// Makes the gate refuse every ask, until [`Gate::release`] or [`Gate::reset`].
    pub fn isolate(&mut self, settings: &GateSettings, now: Timestamp) {
        self.advance(settings, now);
        self.breaker.isolate();
        self.begin_epoch();
        self.update_fast_path();
    }

    /// Ends a hold, an open breaker or isolation on behalf of a person. What was learned stays, and
    /// waiting asks leave at the learned rate.
    pub fn release(&mut self, settings: &GateSettings, now: Timestamp) {
        self.advance(settings, now);
        self.hold_until = Timestamp::ZERO;
        self.hold_source = None;
        self.change_extras(|extras| {
            (extras.quota, extras.counted, extras.silent) = (None, None, None)
        });
        self.breaker.reset();
        self.bucket.cut_to(1.0);
        self.begin_epoch();
        self.update_fast_path();
    }

    /// Resets the gate to its initial state. Attempts in flight and waiting asks stay.
    pub fn reset(&mut self, settings: &GateSettings, now: Timestamp) {
        self.release(settings, now);
        let Self {
            admitted,
            counters,
            line,
            ..
        } = *self;
        let breaker = self.breaker.clone();
        let limits = self.extras.take().and_then(|extras| extras.limits);
        *self = Self {
            admitted,
            counters,
            line,
            breaker,
            extras: Extras::of_limits(limits),
            ..Self::new(settings, now)
        };
        self.update_fast_path();
    }

    /// Applies changed settings, keeping what was learned within the new bounds.
    ///
    /// Holds, the breaker's state, attempts in flight and waiting asks stay. The rate is clamped to
    /// the new bounds, or set to the initial rate if it is fixed now; if it changed, attempts in
    /// flight teach nothing. Saved tokens are cut to the new burst. A known limit that stays keeps
    /// its log; a new one starts with the log of another. The breaker's window is cleared if the
    /// slice length changed, because such slices are not comparable, and the state of `adaptive` is
    /// reset if the strategy changed, because it was not kept up to date.
    pub fn adopt(&mut self, old: &GateSettings, new: &GateSettings, now: Timestamp) {
        self.advance(old, now);
        let rate = match new.strategy {
            Strategy::Fixed => new.initial_rate,
            Strategy::Adaptive | Strategy::Aimd => {
                self.bucket.rate().clamp(new.min_rate, new.max_rate)
            }
        };
        if rate.to_bits() != self.bucket.rate().to_bits() {
            self.bucket.set_rate(rate);
            self.why = Why::Settings;
            self.begin_epoch();
        }
        self.bucket.cut_to(rate::burst(new, rate));
        if old.limits != new.limits {
            self.change_extras(|extras| {
                extras.limits = Limits::of(&new.limits, extras.limits.as_ref());
            });
        }
        if old.breaker.window_slice != new.breaker.window_slice {
            self.breaker.forget_window();
        }
        if old.strategy != new.strategy {
            self.adaptive = Adaptive::new(now);
            let limits = self.extras.take().and_then(|extras| extras.limits);
            self.extras = Extras::of_limits(limits);
        }
        self.update_fast_path();
    }

    /// Tokens per second.
    #[inline]
    pub fn rate(&self) -> f64 {
        self.bucket.rate()
    }

    /// The breaker's state.
    pub fn breaker_state(&self, now: Timestamp) -> BreakerState {
        self.breaker.state(now)
    }

    /// The end of the hold, if there is one.
    pub fn hold_until(&self, now: Timestamp) -> Option<Timestamp> {
        (self.hold_until > now).then_some(self.hold_until)
    }

    /// The counts in the breaker's window.
    pub fn window(&self, settings: &GateSettings, now: Timestamp) -> Counts {
        self.breaker.counts(&settings.breaker, now)
    }

    /// Failures since the last success.
    pub fn consecutive_failures(&self) -> u16 {
        self.breaker.consecutive_failures()
    }

    /// The number of waiting asks.
    pub fn waiting(&self, tickets: &Tickets) -> u32 {
        tickets.waiting(self.line)
    }

    /// Whether asks are waiting.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.line != LineId::NONE
    }

    /// The time of the last success, rounded down to whole seconds; `None` if there was none since
    /// the gate was created, restored or reset. Also recorded while the gate is disabled.
    pub fn last_success(&self) -> Option<Timestamp> {
        self.last_success.map(CoarseTime::timestamp)
    }

    /// Attempts in flight. An attempt lasts until the end of the response body, if the permit's
    /// owner reports it.
    pub fn in_flight(&self) -> u32 {
        self.counters.in_flight()
    }

    /// Incremented by every decrease, trip, close and override.
    pub fn epoch(&self) -> u32 {
        self.counters.epoch()
    }

    /// When it was last asked, or a permit was returned.
    pub fn last_activity(&self) -> Timestamp {
        self.bucket.refilled_at()
    }

    /// Whether it may be evicted: not while it is held or not Closed, or while anything is in
    /// flight or in line.
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        let busy = self.in_flight() > 0 || self.is_waited_for();
        let held = self.hold_until > now;
        !busy && !held && self.breaker.state(now) == BreakerState::Closed
    }

    /// Whether it is evictable and was not used for `idle_after`.
    pub fn is_idle(&self, settings: &GateSettings, now: Timestamp) -> bool {
        now.since(self.last_activity()) >= settings.idle_after && self.is_evictable(now)
    }

    /// Applies the passing of time: tokens refill, pauses end, Open becomes HalfOpen.
    fn advance(&mut self, settings: &GateSettings, now: Timestamp) {
        let burst = rate::burst(settings, self.bucket.rate());
        let pause = self.pause(settings);
        self.bucket.refill(now, burst, pause);
        if let Some(cost) = self.cost_mut() {
            cost.refill(settings, now, pause);
        }
        self.breaker.advance(now);
    }

    /// Changes what few gates have. There is no fast path until [`Gate::update_fast_path`].
    fn change_extras(&mut self, change: impl FnOnce(&mut Extras)) {
        self.has_fast_path = false;
        let mut extras = self.extras.take().unwrap_or_default();
        change(&mut extras);
        self.extras = (!extras.is_empty()).then_some(extras);
    }

    fn counted(&self) -> Option<&CountedWindow> {
        // Then it has no extras. Reading those touches another cache line.
        if self.has_fast_path {
            return None;
        }
        self.extras.as_ref()?.counted.as_ref()
    }

    fn silent(&self) -> Option<&SilentWindow> {
        self.extras.as_ref()?.silent.as_ref()
    }

    fn silent_mut(&mut self) -> Option<&mut SilentWindow> {
        self.extras.as_mut()?.silent.as_mut()
    }

    fn counted_mut(&mut self) -> Option<&mut CountedWindow> {
        self.extras.as_mut()?.counted.as_mut()
    }

    fn limits(&self) -> Option<&Limits> {
        self.extras.as_ref()?.limits.as_ref()
    }

    fn limits_mut(&mut self) -> Option<&mut Limits> {
        self.extras.as_mut()?.limits.as_mut()
    }

    fn quota(&self) -> Option<&Quota> {
        // Then it has no extras. Reading those touches another cache line.
        if self.has_fast_path {
            return None;
        }
        self.extras.as_ref()?.quota.as_ref()
    }

    fn quota_mut(&mut self) -> Option<&mut Quota> {
        if self.has_fast_path {
            return None;
        }
        self.extras.as_mut()?.quota.as_mut()
    }

    fn cost(&self) -> Option<&CostLimit> {
        self.extras.as_ref()?.cost.as_deref()
    }

    fn cost_mut(&mut self) -> Option<&mut CostLimit> {
        self.extras.as_mut()?.cost.as_deref_mut()
    }

    /// Begins to count costs if `cost` is the first one other than one.
    fn count_costs(&mut self, settings: &GateSettings, cost: u32, now: Timestamp) {
        let counts = settings.strategy == Strategy::Adaptive && settings.enabled;
        if cost == 1 || !counts || self.cost().is_some() {
            return;
        }
        let limit = CostLimit::new(settings, cost, self.bucket.rate(), now);
        self.change_extras(|extras| extras.cost = Some(Box::new(limit)));
    }

    /// How many tokens of the gate's own bucket an ask takes: one if cost has its own limit.
    fn tokens(&self, cost: u32) -> f64 {
        match self.cost() {
            Some(_) => 1.0,
            None => f64::from(cost),
        }
    }

    /// The active or just ended pause: the later of hold and open breaker.
    fn pause(&self, settings: &GateSettings) -> Pause {
        match self.breaker.pending_end() {
            Some(end) if end >= self.hold_until => Pause {
                until: end,
                keep: f64::from(settings.breaker.half_open_probes),
            },
            _ => Pause {
                until: self.hold_until,
                keep: 1.0,
            },
        }
    }

    fn hold(&mut self, until: Timestamp, source: Source) {
        if until > self.hold_until {
            self.hold_until = until;
            self.hold_source = Some(source);
            self.adaptive.pause_until(until);
        }
    }

    /// Called at the end of everything that may change it. Peeking and the fast path itself do not.
    fn update_fast_path(&mut self) {
        let paused = self.hold_until > self.bucket.refilled_at() || !self.breaker.is_closed();
        self.has_fast_path = !paused && self.extras.is_none() && !self.adaptive.is_probing_blind();
    }

    /// Whether only tokens matter. Then it is not held, and its breaker is Closed.
    #[inline]
    pub(crate) fn has_fast_path(&self) -> bool {
        self.has_fast_path
    }

    fn begin_epoch(&mut self) {
        self.counters.begin_epoch();
    }
}
