//! The gate: the state of one key, and the one place that decides whether a request may
//! leave.
//!
//! An [`Ask`] is admitted, waits, or is refused, always with a reason and where possible with
//! an `until`. The order of questions is fixed: breaker, hold, tokens (and known limits), in
//! flight, whose turn. An admitted ask gets a [`Permit`], which comes back with what happened;
//! the gate then learns, once per real event: the permit carries the *epoch* it was given out in,
//! every decrease, trip and close begins a new one, and results of an older epoch teach nothing:
//! they are counted and may extend a hold, which only ever grows.
//!
//! Everything happens in calls; nothing runs in between. A hold or an open breaker that
//! ended an hour ago is accounted for when the next ask looks, exactly as if it had been noticed
//! at that instant. One `u32` names the waiting line, which lives in an arena of its own; the rest
//! is a fixed 240 bytes, see [`Gate`].

use crate::breaker::{Breaker, BreakerState};
use crate::bucket::{Bucket, Pause};
use crate::hint::Source;
use crate::latency::Latency;
use crate::limits::Limits;
use crate::line::{LineId, Tickets};
use crate::rate::{self, Adaptive, LastProgress, Strategy, Why};
use crate::time::{CoarseTime, Timestamp};
use crate::window::Counts;

mod admit;
mod ask;
mod counters;
mod learn;
mod options;
mod record;
mod settings;
#[cfg(test)]
mod tests;

use counters::Counters;

pub use ask::{Ask, Decision, Permit, Reason, ResponseBody};
pub use options::GateOptions;
pub use record::{GateOverride, GateRecord, GateSnapshot, GateSummary};
pub use settings::GateSettings;

pub use crate::setting::SettingError;

/// The state of one key: 240 bytes, which with 16 bytes of its owner before them are four
/// cache lines. The first 48 bytes are what a granted ask touches, the next 64 belong to `adaptive`
/// and to trouble, the 64 after those are what every answer touches.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Gate {
    bucket: Bucket,
    counters: Counters,
    line: LineId,
    /// Permits given out so far, modulo 2^32.
    admitted: u32,
    /// When an attempt last succeeded.
    last_success: Option<CoarseTime>,
    last_progress: LastProgress,
    why: Why,
    /// Do tokens and places in flight alone decide? Nearly always: the breaker is Closed, no hold
    /// is to be accounted for, there are no known limits and the gate is not probing blind. Cached so
    /// that an ask need not look at all of these; updated by [`Gate::update_fast_path`].
    has_fast_path: bool,
    adaptive: Adaptive,
    throttled: u32,
    failed: u32,
    limits: Option<Box<Limits>>,
    succeeded: u32,
    latency: Latency,
    hold_source: Option<Source>,
    breaker: Breaker,
    hold_until: Timestamp,
}

impl Gate {
    /// An unused gate: a full bucket, a Closed breaker. All memory it ever needs is taken
    /// here.
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
            adaptive: Adaptive::new(now),
            throttled: 0,
            failed: 0,
            limits: Limits::boxed(&settings.limits, None),
            succeeded: 0,
            latency: Latency::new(settings.aimd.latency_target),
            hold_source: None,
            breaker: Breaker::new(),
            hold_until: Timestamp::ZERO,
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

    /// A person ends hold, open breaker and isolation at once. What was learned stays, and callers
    /// leave at pace.
    pub fn release(&mut self, settings: &GateSettings, now: Timestamp) {
        self.advance(settings, now);
        self.hold_until = Timestamp::ZERO;
        self.hold_source = None;
        self.breaker.reset();
        self.bucket.cut_to(1.0);
        self.begin_epoch();
        self.update_fast_path();
    }

    /// A person makes the gate as new. What is in flight or in line stays there.
    pub fn reset(&mut self, settings: &GateSettings, now: Timestamp) {
        self.release(settings, now);
        let Self {
            admitted,
            counters,
            line,
            ..
        } = *self;
        let breaker = self.breaker.clone();
        let limits = self.limits.take();
        *self = Self {
            admitted,
            counters,
            line,
            breaker,
            limits,
            ..Self::new(settings, now)
        };
        self.update_fast_path();
    }

    /// The settings were changed from `old` to `new`: keeps what was learned, within the new bounds.
    ///
    /// Holds, the breaker's state, what is in flight and what is in line stay. The rate is brought
    /// within the new bounds, or set to the initial one if it is fixed now; if it moved, attempts
    /// under way teach nothing any more. What was saved is cut to the new burst. A known limit
    /// that stays keeps its log, a new one starts with what the others know. The breaker's window
    /// is forgotten if its slices have another length, for such slices do not compare, and what
    /// `adaptive` remembers if the strategy is another, for it was not kept up to date.
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
            let present = self.limits.take();
            self.limits = Limits::boxed(&new.limits, present.as_deref());
        }
        if old.breaker.window_slice != new.breaker.window_slice {
            self.breaker.forget_window();
        }
        if old.strategy != new.strategy {
            self.adaptive = Adaptive::new(now);
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

    /// What the breaker's window holds.
    pub fn window(&self, settings: &GateSettings, now: Timestamp) -> Counts {
        self.breaker.counts(&settings.breaker, now)
    }

    /// Failures since the last success.
    pub fn consecutive_failures(&self) -> u16 {
        self.breaker.consecutive_failures()
    }

    /// How many wait.
    pub fn waiting(&self, tickets: &Tickets) -> u32 {
        tickets.waiting(self.line)
    }

    /// Is its line not empty?
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.line != LineId::NONE
    }

    /// When an attempt last succeeded, rounded down to whole seconds; `None` if none did since the
    /// gate was made, restored or reset. Kept by a gate that is not enabled too.
    pub fn last_success(&self) -> Option<Timestamp> {
        self.last_success.map(CoarseTime::timestamp)
    }

    /// Attempts under way: until the end of the response's body, where the owner of the permit says
    /// when that is.
    pub fn in_flight(&self) -> u32 {
        self.counters.in_flight()
    }

    /// Counts every decrease, trip, close and interference of a person.
    pub fn epoch(&self) -> u32 {
        self.counters.epoch()
    }

    /// When it was last asked, or a permit came back.
    pub fn last_activity(&self) -> Timestamp {
        self.bucket.refilled_at()
    }

    /// May it be forgotten? Not while it is held, not Closed, or while anything is in flight or
    /// in line.
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        let busy = self.in_flight() > 0 || self.is_waited_for();
        let held = self.hold_until > now;
        !busy && !held && self.breaker.state(now) == BreakerState::Closed
    }

    /// Was it not used for `idle_after`, and may it be forgotten?
    pub fn is_idle(&self, settings: &GateSettings, now: Timestamp) -> bool {
        now.since(self.last_activity()) >= settings.idle_after && self.is_evictable(now)
    }

    /// Lets time do what it does: tokens come, pauses end, Open becomes HalfOpen.
    fn advance(&mut self, settings: &GateSettings, now: Timestamp) {
        let burst = rate::burst(settings, self.bucket.rate());
        self.bucket.refill(now, burst, self.pause(settings));
        self.breaker.advance(now);
    }

    /// The pause that is on or has just ended: the later of hold and open breaker.
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
        }
    }

    /// Called at the end of everything that can make a difference. What was only looked at, and
    /// what took a short cut, makes none.
    fn update_fast_path(&mut self) {
        let paused = self.hold_until > self.bucket.refilled_at() || !self.breaker.is_closed();
        self.has_fast_path = !paused && self.limits.is_none() && !self.adaptive.is_probing_blind();
    }

    fn begin_epoch(&mut self) {
        self.counters.begin_epoch();
    }
}
