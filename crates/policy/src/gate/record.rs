//! Records for persistence, and snapshots of a gate.

use std::time::Duration;

use super::{Gate, GateSettings, Reason};
use crate::breaker::{Breaker, BreakerRecord, BreakerState};
use crate::cost::CostLimit;
use crate::hint::Source;
use crate::line::Tickets;
use crate::rate::{self, Phase, RateView, Strategy, Why};
use crate::time::Timestamp;
use crate::window::Counts;

/// A gate as it is stored: durations instead of instants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateRecord {
    /// Tokens per second.
    pub rate: f64,
    /// The limit as far as it is known.
    pub ceiling: Option<f64>,
    /// The rate stays at or below this, because the server banned this client.
    pub banned_above: Option<f64>,
    /// The remaining hold.
    pub hold: Option<Duration>,
    /// Which hint it comes from.
    pub hold_source: Option<Source>,
    /// The breaker.
    pub breaker: BreakerRecord,
    /// The limit on cost, if costs are counted.
    pub cost: Option<CostRecord>,
}

/// A limit on cost as it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostRecord {
    /// Cost per second.
    pub rate: f64,
    /// The limit as far as it is known.
    pub ceiling: Option<f64>,
    /// Moving mean of the actual costs.
    pub mean: f64,
}

/// A person's override of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOverride {
    /// [`Gate::reset`].
    Reset,
    /// [`Gate::isolate`].
    Isolate,
    /// [`Gate::release`].
    Release,
}

impl GateOverride {
    /// Overrides `gate`.
    pub fn apply(self, gate: &mut Gate, settings: &GateSettings, now: Timestamp) {
        match self {
            Self::Reset => gate.reset(settings, now),
            Self::Isolate => gate.isolate(settings, now),
            Self::Release => gate.release(settings, now),
        }
    }
}

/// The state of a gate whose changes are reported as events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateSummary {
    /// Tokens per second.
    pub rate: f64,
    /// The end of the hold and the hint it comes from.
    pub hold: Option<(Timestamp, Source)>,
    /// The breaker's state.
    pub breaker: BreakerState,
}

impl GateSummary {
    /// Whether hold and breaker are equal. Ignores the rate, which changes with most responses.
    pub fn same_hold_and_breaker(&self, other: &Self) -> bool {
        self.hold == other.hold && self.breaker == other.breaker
    }
}

/// A snapshot of a gate. As text, one sentence: what the gate does and why.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GateSnapshot {
    /// When it was taken.
    pub taken_at: Timestamp,
    /// Whether the gate decides anything; if not, every ask is admitted.
    pub is_enabled: bool,
    /// How the rate moves.
    pub strategy: Strategy,
    /// Tokens per second.
    pub rate: f64,
    /// The configured maximum of the rate.
    pub max_rate: f64,
    /// Tokens available now; negative after a cost was corrected upwards.
    pub tokens: f64,
    /// Attempts in flight, until the end of the response body.
    pub in_flight: u32,
    /// Waiting asks.
    pub waiting: u32,
    /// Why the first of them does not leave now; `None` if none waits.
    pub waiting_for: Option<Reason>,
    /// When the first of them would leave, if only time decides.
    pub first_leaves: Option<Timestamp>,
    /// Moving mean of the latency.
    pub latency_ewma: Duration,
    /// 95th percentile of the latency; `None` before the first response.
    pub latency_p95: Option<Duration>,
    /// The breaker's state.
    pub breaker: BreakerState,
    /// The end of the open time, while Open.
    pub breaker_until: Option<Timestamp>,
    /// Failures since the last success.
    pub consecutive_failures: u16,
    /// The end of the hold and the hint it comes from.
    pub hold: Option<(Timestamp, Source)>,
    /// Permits issued, modulo 2^32.
    pub admitted: u32,
    /// Successful outcomes; this and the next two saturate at 2^32 − 1.
    pub succeeded: u32,
    /// Throttled and quota exhausted.
    pub throttled: u32,
    /// Overloaded and unreachable.
    pub failed: u32,
    /// The counts in the breaker's window.
    pub window: Counts,
    /// The limit as far as it is known.
    pub ceiling: Option<f64>,
    /// The phase of `adaptive`; `None` for other strategies.
    pub phase: Option<Phase>,
    /// What `adaptive` knows about the limit; `None` for other strategies.
    pub learned: Option<RateView>,
    /// Why the rate last changed.
    pub why: Why,
    /// The limit on cost; `None` as long as every ask costs one, and for other strategies.
    pub cost: Option<CostSnapshot>,
}

/// A snapshot of a limit on cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostSnapshot {
    /// Cost per second.
    pub rate: f64,
    /// The limit as far as it is known.
    pub ceiling: Option<f64>,
    /// Cost available now; negative after a cost that was more than there was.
    pub available: f64,
    /// Moving mean of the actual costs.
    pub mean: f64,
}

impl Gate {
    /// The state to persist.
    pub fn record(&self, now: Timestamp) -> GateRecord {
        GateRecord {
            rate: self.full_rate(),
            ceiling: self.adaptive.ceiling(),
            banned_above: self.adaptive.banned_above(),
            hold: self.hold_until(now).map(|until| until.since(now)),
            hold_source: self.hold_source,
            breaker: self.breaker.record_state(now),
            cost: self.cost().map(CostLimit::record),
        }
    }

    /// Restores a gate with at most one token. A rate outside the bounds of the settings is
    /// clamped.
    pub fn restore(settings: &GateSettings, record: &GateRecord, now: Timestamp) -> Self {
        let mut gate = Self::new(settings, now);
        if record.rate.is_finite() && settings.strategy != Strategy::Fixed {
            let rate = record.rate.clamp(settings.min_rate, settings.max_rate);
            gate.bucket.set_rate(rate);
            gate.why = Why::Restored;
        }
        gate.bucket.cut_to(1.0);
        let known = |rate: Option<f64>| rate.filter(|rate| rate.is_finite());
        gate.adaptive
            .restore(known(record.ceiling), known(record.banned_above));
        gate.breaker = Breaker::restore(&record.breaker, now);
        if let Some(cost) = &record.cost
            && settings.strategy == Strategy::Adaptive
        {
            let cost = CostLimit::restore(settings, cost, now);
            gate.change_extras(|extras| extras.cost = cost.map(Box::new));
        }
        if let Some(left) = record.hold {
            gate.hold(now + left, record.hold_source.unwrap_or(Source::Assumed));
        }
        gate.update_fast_path();
        gate
    }

    /// The state whose changes are reported as events; far cheaper than a snapshot.
    #[inline]
    pub fn summary(&self, now: Timestamp) -> GateSummary {
        GateSummary {
            rate: self.bucket.rate(),
            hold: self.hold_until(now).zip(self.hold_source),
            breaker: self.breaker.state(now),
        }
    }

    /// How many attempts succeeded, were throttled and failed.
    pub fn results(&self) -> [u32; 3] {
        [self.succeeded, self.throttled, self.failed]
    }

    /// What `adaptive` knows about the limit; `None` for other strategies.
    pub fn learned(&self, settings: &GateSettings, now: Timestamp) -> Option<RateView> {
        (settings.strategy == Strategy::Adaptive).then(|| {
            let paused_until = self.paused_until(settings, now);
            self.adaptive.view(self.bucket.rate(), paused_until, now)
        })
    }

    /// A snapshot for display and metrics.
    pub fn snapshot(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        now: Timestamp,
    ) -> GateSnapshot {
        let mut bucket = self.bucket;
        bucket.refill(
            now,
            rate::burst(settings, bucket.rate()),
            self.pause(settings),
        );
        let learned = self.learned(settings, now);
        GateSnapshot {
            taken_at: now,
            is_enabled: settings.enabled,
            strategy: settings.strategy,
            rate: bucket.rate(),
            max_rate: settings.max_rate,
            tokens: bucket.tokens(),
            in_flight: self.in_flight(),
            waiting: tickets.waiting(self.line),
            waiting_for: self.waiting_for(settings, tickets, now),
            first_leaves: self
                .next_admission(settings, tickets)
                .map(|leaves_at| leaves_at.max(now)),
            latency_ewma: self.latency.ewma(),
            latency_p95: self.latency.p95(),
            breaker: self.breaker.state(now),
            breaker_until: self.breaker.open_until(now),
            consecutive_failures: self.breaker.consecutive_failures(),
            hold: self.hold_until(now).zip(self.hold_source),
            admitted: self.admitted,
            succeeded: self.succeeded,
            throttled: self.throttled,
            failed: self.failed,
            window: self.window(settings, now),
            ceiling: learned.and_then(|learned| learned.ceiling),
            phase: learned.map(|learned| learned.phase),
            learned,
            why: self.why,
            cost: self
                .cost()
                .map(|limit| limit.snapshot(settings, now, self.pause(settings))),
        }
    }
}
