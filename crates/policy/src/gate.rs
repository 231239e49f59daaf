//! The gate: the state kept for one key, and the one place where it is decided who may send.
//!
//! An [`Ask`] is admitted, told to wait, or refused, always with a reason and where possible with
//! an `until`. The order of questions is fixed: breaker, hold, tokens (and known limits), in
//! flight, whose turn. Whoever is admitted gets a [`Permit`] and brings it back with what happened;
//! the gate then learns, once per real event: the permit carries the *epoch* it was given out in,
//! every decrease, trip and close begins a new one, and results of an older epoch change nothing
//! but a hold, which only ever grows.
//!
//! Everything happens when somebody calls; nothing runs in between. A hold or an open breaker that
//! ended an hour ago is accounted for when the next ask looks, exactly as if it had been noticed
//! at that instant. One `u32` names the waiting line, which lives in an arena of its own; the rest
//! is a fixed 256 bytes, see [`Gate`].

use std::fmt;
use std::time::Duration;

use crate::breaker::{self, Breaker, BreakerRecord, BreakerState, Change, Probe};
use crate::bucket::{Bucket, Pause};
use crate::hint::Source;
use crate::latency::Latency;
use crate::limits::Limits;
use crate::line::{Class, LineId, Ticket, Tickets};
use crate::outcome::{Answer, Outcome, Verdict};
use crate::rate::{self, Adaptive, Moment, Reaction, Strategy, Why};
use crate::time::Timestamp;
use crate::window::Counts;

mod settings;
#[cfg(test)]
mod tests;

pub use settings::{GateOptions, GateSettings, SettingError, suggestion};

/// A request for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How many tokens the attempt takes; zero counts as one.
    pub cost: u32,
    /// Until when the caller is ready to wait; at or before now: not at all.
    pub deadline: Timestamp,
    /// Who leaves first when several wait.
    pub class: Class,
    /// Wait for an open breaker too, if the deadline allows, instead of being refused.
    pub waits_for_breaker: bool,
}

impl Ask {
    /// An interactive ask for one token that may wait until `deadline`, but not for a breaker.
    pub fn until(deadline: Timestamp) -> Self {
        Self {
            cost: 1,
            deadline,
            class: Class::Interactive,
            waits_for_breaker: false,
        }
    }

    fn cost(&self) -> u32 {
        self.cost.max(1)
    }
}

/// What becomes of an ask.
#[derive(Debug)]
pub enum Decision {
    /// Send now, and bring the permit back.
    Admit(Permit),
    /// Stay in line.
    Wait {
        /// The place in line.
        ticket: Ticket,
        /// When this ask would leave as things stand, the line before it included; `None` if that
        /// depends on answers still to come.
        until: Option<Timestamp>,
        /// What keeps it.
        reason: Reason,
    },
    /// Do not send.
    Refuse {
        /// Why not.
        reason: Reason,
        /// When it might be worth asking again, if known.
        until: Option<Timestamp>,
    },
}

/// Why an ask waits or is refused: a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No token yet: the gate's rate or a known limit.
    Rate,
    /// The server, or a step of our own, said "not before".
    Hold,
    /// The breaker is not Closed and no probe is free.
    BreakerOpen,
    /// As many attempts as allowed are under way.
    InFlight,
    /// As many as allowed are waiting.
    QueueFull,
    /// It could not leave before its deadline.
    Deadline,
    /// There are as many gates as allowed, and none can go.
    TooManyGates,
}

impl Reason {
    /// The word for it in replay, logs, headers and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Hold => "hold",
            Self::BreakerOpen => "breaker_open",
            Self::InFlight => "in_flight",
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
            Self::TooManyGates => "too_many_gates",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The right to make one attempt. Bring it back with [`Gate::settle`] or [`Gate::abandon`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is not brought back stays in flight for ever"]
pub struct Permit {
    admitted_at: Timestamp,
    epoch: u32,
    /// The how-manieth of its gate it is, modulo 2^32.
    number: u32,
    cost: u32,
    probe: Option<Probe>,
}

impl Permit {
    /// When it was given out.
    pub fn admitted_at(&self) -> Timestamp {
        self.admitted_at
    }

    /// The epoch of its gate that it was given out in.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Is this attempt one of the few that find out whether the upstream works again?
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// The state kept for one key: 256 bytes, four cache lines. What a granted ask touches comes
/// first; what only an answer touches comes later.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Gate {
    bucket: Bucket,
    hold_until: Timestamp,
    epoch: u32,
    /// Permits given out so far, modulo 2^32.
    admitted: u32,
    in_flight: u32,
    line: LineId,
    breaker: Breaker,
    limits: Option<Box<Limits>>,
    adaptive: Adaptive,
    latency: Latency,
    succeeded: u32,
    throttled: u32,
    failed: u32,
    hold_source: Option<Source>,
    why: Why,
}

impl Gate {
    /// A gate nobody has used: a full bucket, a Closed breaker. All memory it ever needs is taken
    /// here.
    pub fn new(settings: &GateSettings, now: Timestamp) -> Self {
        let rate = settings.initial_rate;
        Self {
            bucket: Bucket::full(rate, rate::burst(settings, rate), now),
            hold_until: Timestamp::ZERO,
            epoch: 0,
            admitted: 0,
            in_flight: 0,
            line: LineId::NONE,
            breaker: Breaker::new(),
            limits: (!settings.limits.is_empty()).then(|| Box::new(Limits::new(&settings.limits))),
            adaptive: Adaptive::new(now),
            latency: Latency::new(settings.aimd.latency_target),
            succeeded: 0,
            throttled: 0,
            failed: 0,
            hold_source: None,
            why: Why::Initial,
        }
    }

    /// Decides on `ask`, and does what was decided: takes the tokens or joins the line.
    pub fn acquire(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Decision {
        match self.judge(settings, tickets, ask, now) {
            Judged::Leave => match self.grant(settings, ask.cost(), now) {
                Some(permit) => Decision::Admit(permit),
                None => self.join(settings, tickets, ask, now, Reason::Rate, None),
            },
            Judged::Wait { reason, until } => self.join(settings, tickets, ask, now, reason, until),
            Judged::Refuse { reason, until } => Decision::Refuse { reason, until },
        }
    }

    /// What [`Gate::acquire`] would say, without taking anything or joining the line: `Ok` means
    /// it would leave at once.
    pub fn peek(
        &mut self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Result<(), (Reason, Option<Timestamp>)> {
        match self.judge(settings, tickets, ask, now) {
            Judged::Leave => Ok(()),
            Judged::Wait { reason, until } | Judged::Refuse { reason, until } => {
                Err((reason, until))
            }
        }
    }

    /// When whoever is first in line would leave, if time alone decides it; never before the last
    /// event at this gate. `None` if nobody waits, or if it takes an answer or a person.
    pub fn next_admission(&self, settings: &GateSettings, tickets: &Tickets) -> Option<Timestamp> {
        let cost = tickets.first_cost(self.line)?;
        let looked_at = self.bucket.refilled_at();
        let isolated = self.breaker.state(looked_at) == BreakerState::Isolated;
        if isolated || self.in_flight >= settings.max_in_flight {
            return None;
        }
        let probe_at = self.breaker.probe_at_the_latest(&settings.breaker);
        let answer_at = self
            .is_waiting_for_answers(settings)
            .then(|| self.adaptive.waits_until(looked_at));
        let leaves_at = self.leaves_at(settings, 0, cost, looked_at)?;
        [Some(leaves_at), probe_at, answer_at]
            .into_iter()
            .flatten()
            .max()
    }

    /// When to call again at the latest: someone may leave then, or will have waited in vain.
    pub fn next_wake(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let deadline = tickets.next_deadline(self.line).map(|at| {
            if at < self.blocked_until(now) {
                now
            } else {
                at
            }
        });
        let admission = self.next_admission(settings, tickets);
        [deadline, admission].into_iter().flatten().min()
    }

    /// Lets whoever is first in line leave, if they may at `now`. Call again until `None`.
    pub fn admit_next(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        now: Timestamp,
    ) -> Option<(Ticket, Permit)> {
        let cost = tickets.first_cost(self.line)?;
        self.advance(settings, now);
        let barred = match self.breaker.state(now) {
            BreakerState::Closed => false,
            BreakerState::HalfOpen => self.breaker.free_probes(&settings.breaker) == 0,
            BreakerState::Open | BreakerState::Isolated => true,
        };
        if barred || self.is_full(settings, now) || self.leaves_at(settings, 0, cost, now)? > now {
            return None;
        }
        let permit = self.grant(settings, cost, now)?;
        let ticket = tickets.leave_first(&mut self.line)?;
        Some((ticket, permit))
    }

    /// Takes someone out of the line whose deadline has passed, or will certainly pass before a
    /// hold or an open breaker ends. Call again until `None`.
    pub fn expire_next(&mut self, tickets: &mut Tickets, now: Timestamp) -> Option<Ticket> {
        let deadline = tickets.next_deadline(self.line)?;
        let in_vain = deadline <= now || deadline < self.blocked_until(now);
        if in_vain {
            tickets.leave_soonest_deadline(&mut self.line)
        } else {
            None
        }
    }

    /// Gives a place in line back. `false` if the ticket had left before.
    pub fn cancel(&mut self, tickets: &mut Tickets, ticket: Ticket) -> bool {
        tickets.cancel(&mut self.line, ticket)
    }

    /// Brings a permit back with what happened. `verdict` is `None` for answers that change
    /// nothing.
    pub fn settle(
        &mut self,
        settings: &GateSettings,
        permit: Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        self.advance(settings, now);
        let present = self.take_back(&permit, now);
        if !settings.enabled {
            return;
        }
        if let Some(used) = outcome.used {
            self.correct(settings, permit.cost, used);
        }
        if let Answer::Status(_) = outcome.answer {
            self.latency.record(outcome.latency);
        }
        let Some(verdict) = verdict else { return };
        self.count(verdict);
        let exhausted = self.is_exhausted(settings, &permit, outcome);
        if let Some(wait) = told_to_wait(outcome, verdict, exhausted) {
            self.hold(now + wait, outcome.hint.source.unwrap_or(Source::Assumed));
        }
        if present {
            self.learn(settings, outcome, verdict, exhausted, now);
        } else if verdict == Verdict::Success {
            self.adaptive.late_success(self.moment(settings, now));
        }
    }

    /// Brings a permit back without an outcome: the attempt was never made, or nobody knows.
    pub fn abandon(&mut self, settings: &GateSettings, permit: Permit, now: Timestamp) {
        self.advance(settings, now);
        self.take_back(&permit, now);
    }

    /// A person closes the gate to everyone, until [`Gate::release`] or [`Gate::reset`].
    pub fn isolate(&mut self, settings: &GateSettings, now: Timestamp) {
        self.advance(settings, now);
        self.breaker.isolate();
        self.begin_epoch();
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
    }

    /// A person makes the gate as new. Who is in flight or in line stays there.
    pub fn reset(&mut self, settings: &GateSettings, now: Timestamp) {
        self.release(settings, now);
        let Self {
            epoch,
            admitted,
            in_flight,
            line,
            ..
        } = *self;
        let breaker = self.breaker.clone();
        let limits = self.limits.take();
        *self = Self {
            epoch,
            admitted,
            in_flight,
            line,
            breaker,
            limits,
            ..Self::new(settings, now)
        };
    }

    /// What must survive a restart.
    pub fn record(&self, now: Timestamp) -> GateRecord {
        GateRecord {
            rate: self.bucket.rate(),
            ceiling: self.adaptive.ceiling(),
            hold: self.hold_until(now).map(|until| until.since(now)),
            hold_source: self.hold_source,
            breaker: self.breaker.record_state(now),
        }
    }

    /// A gate as it was written down, with at most one token saved. A rate outside the bounds of
    /// today's settings is brought within them.
    pub fn restore(settings: &GateSettings, record: &GateRecord, now: Timestamp) -> Self {
        let mut gate = Self::new(settings, now);
        if record.rate.is_finite() && settings.strategy != Strategy::Fixed {
            gate.bucket
                .set_rate(record.rate.clamp(settings.min_rate, settings.max_rate));
            gate.why = Why::Restored;
        }
        gate.bucket.cut_to(1.0);
        gate.adaptive
            .restore_ceiling(record.ceiling.filter(|ceiling| ceiling.is_finite()));
        gate.breaker = Breaker::restore(&record.breaker, now);
        if let Some(left) = record.hold {
            gate.hold(now + left, record.hold_source.unwrap_or(Source::Assumed));
        }
        gate
    }

    /// What a person or a program may see of it.
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
        GateSnapshot {
            rate: bucket.rate(),
            tokens: bucket.tokens(),
            in_flight: self.in_flight,
            waiting: tickets.waiting(self.line),
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
            why: self.why,
        }
    }

    /// Tokens per second.
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

    /// Attempts under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Counts every decrease, trip, close and interference of a person.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// When anyone last asked or brought a permit back.
    pub fn last_activity(&self) -> Timestamp {
        self.bucket.refilled_at()
    }

    /// May it be forgotten? Not while it is held, not Closed, or while anyone is in flight or
    /// waits.
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        let busy = self.in_flight > 0 || self.line != LineId::NONE;
        let held = self.hold_until > now;
        !busy && !held && self.breaker.state(now) == BreakerState::Closed
    }

    /// Has nobody used it for so long that it is to be forgotten?
    pub fn is_idle(&self, settings: &GateSettings, now: Timestamp) -> bool {
        now.since(self.last_activity()) >= settings.idle_after && self.is_evictable(now)
    }

    fn judge(
        &mut self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Judged {
        self.advance(settings, now);
        if !settings.enabled {
            return Judged::Leave;
        }
        let at_breaker = match self.pass_breaker(settings, tickets, ask, now) {
            Ok(reason) => reason,
            Err(barred) => return barred,
        };
        let at_hold = match self.pass_hold(settings, ask, now) {
            Ok(reason) => reason,
            Err(barred) => return barred,
        };
        let ahead = tickets.ahead(self.line, ask.class);
        let Some(leaves_at) = self.leaves_at(settings, ahead, ask.cost(), now) else {
            // Dearer than a known limit ever admits.
            return Judged::Refuse {
                reason: Reason::Rate,
                until: None,
            };
        };
        if leaves_at > ask.deadline && self.is_limit_known(settings, ahead, ask, now) {
            return Judged::Refuse {
                reason: Reason::Deadline,
                until: Some(leaves_at),
            };
        }
        let at_bucket = (leaves_at > now).then_some(Reason::Rate);
        match at_hold.or(at_breaker).or(at_bucket) {
            Some(reason) => Judged::Wait {
                reason,
                until: Some(leaves_at),
            },
            None if self.is_full(settings, now) => Judged::Wait {
                reason: Reason::InFlight,
                until: None,
            },
            // Someone is first and about to leave: no overtaking.
            None if ahead > 0 => Judged::Wait {
                reason: Reason::Rate,
                until: Some(leaves_at),
            },
            None => Judged::Leave,
        }
    }

    /// `Ok` if the breaker lets the ask through or lets it wait for the breaker.
    fn pass_breaker(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Result<Option<Reason>, Judged> {
        let reason = Reason::BreakerOpen;
        match self.breaker.state(now) {
            BreakerState::Closed => Ok(None),
            BreakerState::Isolated => Err(Judged::Refuse {
                reason,
                until: None,
            }),
            BreakerState::Open => {
                let until = self.breaker.open_until(now);
                let waits =
                    ask.waits_for_breaker && until.is_none_or(|until| until <= ask.deadline);
                if waits {
                    Ok(Some(reason))
                } else {
                    Err(Judged::Refuse { reason, until })
                }
            }
            // Who waits already leaves first, as a probe.
            BreakerState::HalfOpen => {
                let waiting = tickets.waiting(self.line);
                let probe_left = self.breaker.free_probes(&settings.breaker) > waiting;
                match (probe_left, ask.waits_for_breaker) {
                    (true, _) => Ok(None),
                    (false, true) => Err(Judged::Wait {
                        reason,
                        until: None,
                    }),
                    (false, false) => Err(Judged::Refuse {
                        reason,
                        until: None,
                    }),
                }
            }
        }
    }

    /// `Ok` if there is no hold or the ask may wait for its end.
    fn pass_hold(
        &self,
        settings: &GateSettings,
        ask: &Ask,
        now: Timestamp,
    ) -> Result<Option<Reason>, Judged> {
        let Some(until) = self.hold_until(now) else {
            return Ok(None);
        };
        if until.since(now) > settings.max_hold {
            return Err(Judged::Refuse {
                reason: Reason::Hold,
                until: Some(until),
            });
        }
        if until > ask.deadline {
            return Err(Judged::Refuse {
                reason: Reason::Deadline,
                until: Some(until),
            });
        }
        Ok(Some(Reason::Hold))
    }

    /// When `ahead` tokens and then `cost` more will have left. `None`: never.
    fn leaves_at(
        &self,
        settings: &GateSettings,
        ahead: u64,
        cost: u32,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let burst = rate::burst(settings, self.bucket.rate());
        let pause = self.pause(settings);
        let at_rate = self
            .bucket
            .ready_at(ahead as f64, f64::from(cost), burst, pause);
        Some(at_rate.max(self.within_limits_at(settings, ahead, cost, now)?))
    }

    fn within_limits_at(
        &self,
        settings: &GateSettings,
        ahead: u64,
        cost: u32,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let earliest = now.max(self.pause(settings).until);
        match &self.limits {
            Some(limits) => limits.ready_at(ahead, cost, earliest),
            None => Some(now),
        }
    }

    /// Is it certain that `ask` cannot leave in time? A rate that is still being learned may rise
    /// until then; a fixed rate and a known limit will not.
    fn is_limit_known(
        &self,
        settings: &GateSettings,
        ahead: u64,
        ask: &Ask,
        now: Timestamp,
    ) -> bool {
        settings.strategy == Strategy::Fixed
            || self
                .within_limits_at(settings, ahead, ask.cost(), now)
                .is_some_and(|at| at > ask.deadline)
    }

    /// Are as many under way as allowed? What `adaptive` allows yields to silence, `max_in_flight`
    /// never does.
    fn is_full(&self, settings: &GateSettings, now: Timestamp) -> bool {
        self.in_flight >= settings.max_in_flight
            || self.is_waiting_for_answers(settings) && now < self.adaptive.waits_until(now)
    }

    fn is_waiting_for_answers(&self, settings: &GateSettings) -> bool {
        settings.strategy == Strategy::Adaptive
            && self.in_flight >= self.adaptive.in_flight_cap(self.bucket.rate())
    }

    fn join(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        ask: &Ask,
        now: Timestamp,
        reason: Reason,
        until: Option<Timestamp>,
    ) -> Decision {
        if ask.deadline <= now {
            return Decision::Refuse { reason, until };
        }
        if tickets.waiting(self.line) >= settings.max_waiting {
            return Decision::Refuse {
                reason: Reason::QueueFull,
                until: None,
            };
        }
        let ticket = tickets.join(&mut self.line, ask.class, ask.cost(), ask.deadline);
        Decision::Wait {
            ticket,
            until,
            reason,
        }
    }

    /// The only way to a permit: a token is taken, or there is none.
    fn grant(&mut self, settings: &GateSettings, cost: u32, now: Timestamp) -> Option<Permit> {
        if settings.enabled {
            let burst = rate::burst(settings, self.bucket.rate());
            if !self.bucket.take(f64::from(cost), burst) {
                return None;
            }
            if let Some(limits) = &mut self.limits {
                limits.take(cost, now);
            }
        }
        self.adaptive.stir(now);
        self.in_flight = self.in_flight.saturating_add(1);
        self.admitted = self.admitted.wrapping_add(1);
        Some(Permit {
            admitted_at: now,
            epoch: self.epoch,
            number: self.admitted,
            cost,
            probe: self.breaker.admit(now),
        })
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

    /// Nobody leaves before this.
    fn blocked_until(&self, now: Timestamp) -> Timestamp {
        let open_until = self.breaker.open_until(now).unwrap_or(Timestamp::ZERO);
        self.hold_until.max(open_until)
    }

    /// Frees what the permit held. `true` if its outcome is of the present epoch.
    fn take_back(&mut self, permit: &Permit, now: Timestamp) -> bool {
        self.adaptive.stir(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        let probing = self.breaker.give_back(permit.probe);
        permit.epoch == self.epoch && probing
    }

    fn correct(&mut self, settings: &GateSettings, asked: u32, used: u32) {
        let burst = rate::burst(settings, self.bucket.rate());
        self.bucket
            .correct(f64::from(used) - f64::from(asked), burst);
        if let Some(limits) = &mut self.limits {
            limits.correct(asked, used);
        }
    }

    fn count(&mut self, verdict: Verdict) {
        let counter = match verdict {
            Verdict::Success => &mut self.succeeded,
            Verdict::Throttled | Verdict::QuotaExhausted => &mut self.throttled,
            Verdict::Overloaded | Verdict::Unreachable => &mut self.failed,
            Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => return,
        };
        *counter = counter.saturating_add(1);
    }

    /// Does the server say that nothing is left? `adaptive` counts what was sent since as well:
    /// the server did not know of it when it answered.
    fn is_exhausted(&self, settings: &GateSettings, permit: &Permit, outcome: &Outcome) -> bool {
        let sent_since = match settings.strategy {
            Strategy::Adaptive => self.admitted.wrapping_sub(permit.number),
            Strategy::Aimd | Strategy::Fixed => 0,
        };
        outcome
            .hint
            .remaining
            .is_some_and(|remaining| remaining <= u64::from(sent_since))
    }

    fn hold(&mut self, until: Timestamp, source: Source) {
        if until > self.hold_until {
            self.hold_until = until;
            self.hold_source = Some(source);
        }
    }

    fn learn(
        &mut self,
        settings: &GateSettings,
        outcome: &Outcome,
        verdict: Verdict,
        exhausted: bool,
        now: Timestamp,
    ) {
        let moment = self.moment(settings, now);
        let signal = breaker_signal(settings, outcome, verdict);
        let change = self.breaker.record(&settings.breaker, signal, now);
        if change.is_some() {
            self.begin_epoch();
        }
        if verdict == Verdict::QuotaExhausted && outcome.hint.wait.or(outcome.hint.reset).is_none()
        {
            self.breaker.isolate();
            self.begin_epoch();
        }
        let adaptive = settings.strategy == Strategy::Adaptive;
        let signal = match change {
            Some(Change::Closed) if adaptive => Some(rate::Signal::BreakerClosed),
            // Growing into a window that is used up proves nothing.
            _ if adaptive && exhausted && verdict == Verdict::Success => None,
            _ => rate_signal(outcome, verdict),
        };
        if let Some(signal) = signal {
            let reaction = rate::react(settings, &mut self.adaptive, signal, moment);
            self.apply(settings, reaction, now);
        }
        if change == Some(Change::Closed) {
            // What was saved for probes is not for everyone.
            self.bucket
                .cut_to(rate::burst(settings, self.bucket.rate()));
        }
    }

    fn apply(&mut self, settings: &GateSettings, reaction: Reaction, now: Timestamp) {
        if let Some((rate, why)) = reaction.rate {
            self.bucket.set_rate(rate);
            self.why = why;
        }
        if reaction.decreased {
            self.begin_epoch();
            self.bucket
                .cut_to(rate::burst(settings, self.bucket.rate()));
        }
        if reaction.drain {
            self.bucket.cut_to(0.0);
        }
        if let Some(wait) = reaction.assumed_wait {
            self.hold(now + wait, Source::Assumed);
        }
    }

    fn moment(&self, settings: &GateSettings, now: Timestamp) -> Moment {
        Moment {
            now,
            rate: self.bucket.rate(),
            paused_until: self.pause(settings).until,
        }
    }

    fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }
}

/// A gate for the store: durations, no instants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateRecord {
    /// Tokens per second.
    pub rate: f64,
    /// The rate that was last refused, if one was.
    pub ceiling: Option<f64>,
    /// What was left of the hold.
    pub hold: Option<Duration>,
    /// Who asked for it.
    pub hold_source: Option<Source>,
    /// The breaker.
    pub breaker: BreakerRecord,
}

/// What can be seen of a gate at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateSnapshot {
    /// Tokens per second.
    pub rate: f64,
    /// Tokens there now; below zero after a cost was corrected upwards.
    pub tokens: f64,
    /// Attempts under way.
    pub in_flight: u32,
    /// How many wait.
    pub waiting: u32,
    /// Moving mean of the latency.
    pub latency_ewma: Duration,
    /// 95th percentile of the latency, before the first answer none.
    pub latency_p95: Option<Duration>,
    /// The breaker's state.
    pub breaker: BreakerState,
    /// The end of the open time, while Open.
    pub breaker_until: Option<Timestamp>,
    /// Failures since the last success.
    pub consecutive_failures: u16,
    /// The hold's end and who asked for it.
    pub hold: Option<(Timestamp, Source)>,
    /// Permits given out, modulo 2^32.
    pub admitted: u32,
    /// Outcomes by kind; these stop at 2^32 − 1.
    pub succeeded: u32,
    /// Throttled and quota exhausted.
    pub throttled: u32,
    /// Overloaded and unreachable.
    pub failed: u32,
    /// What the breaker's window holds.
    pub window: Counts,
    /// The last change of the rate.
    pub why: Why,
}

enum Judged {
    Leave,
    Wait {
        reason: Reason,
        until: Option<Timestamp>,
    },
    Refuse {
        reason: Reason,
        until: Option<Timestamp>,
    },
}

/// How long the server wants this gate to be left alone.
fn told_to_wait(outcome: &Outcome, verdict: Verdict, exhausted: bool) -> Option<Duration> {
    let hint = &outcome.hint;
    match verdict {
        Verdict::Throttled | Verdict::Overloaded => hint.wait,
        Verdict::QuotaExhausted => hint.wait.or(hint.reset),
        // A Retry-After on a success is about that one resource ("not ready yet"), not about pace.
        Verdict::Success if exhausted => hint.reset,
        Verdict::Success
        | Verdict::Unreachable
        | Verdict::Unauthorized
        | Verdict::Conflict
        | Verdict::Rejected => None,
    }
}

fn breaker_signal(settings: &GateSettings, outcome: &Outcome, verdict: Verdict) -> breaker::Signal {
    use breaker::Signal;
    let counts_throttled = settings.strategy == Strategy::Aimd && settings.aimd.count_throttled;
    match verdict {
        Verdict::Success => Signal::Success,
        Verdict::Rejected => Signal::Neutral,
        // Who names a wait is well enough to talk.
        Verdict::Overloaded | Verdict::Unreachable if !outcome.is_directed() => Signal::Failure,
        Verdict::Throttled if counts_throttled && !outcome.is_directed() => Signal::Failure,
        Verdict::Overloaded
        | Verdict::Unreachable
        | Verdict::Throttled
        | Verdict::QuotaExhausted
        | Verdict::Unauthorized
        | Verdict::Conflict => Signal::Silent,
    }
}

fn rate_signal(outcome: &Outcome, verdict: Verdict) -> Option<rate::Signal> {
    let refused = rate::Signal::Refused {
        directed: outcome.is_directed(),
    };
    match verdict {
        Verdict::Success => Some(rate::Signal::Accepted {
            latency: outcome.latency,
        }),
        Verdict::Throttled => Some(refused),
        Verdict::Overloaded if outcome.answer == Answer::Status(503) => Some(refused),
        Verdict::Overloaded | Verdict::Unreachable => Some(rate::Signal::Failed),
        Verdict::QuotaExhausted | Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => {
            None
        }
    }
}
