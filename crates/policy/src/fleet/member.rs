//! One shared key on one node.
//!
//! A member counts what the node asks, sends and gets, says when the next call to the store is due and
//! what it contains, and applies the reply. While the store is silent it lets the node continue with
//! its last share. A call contains what happened since the one before. If a call is not answered, its
//! counts are lost; a refusal, a trip and the end of a probe are reported again.

use std::time::Duration;

use super::owner::Owner;
use super::{
    BreakerReply, Call, Claim, Left, NodeId, Notice, ProbeResult, Refusal, RefusalKind, Reply,
    SharedSettings, Trip,
};
use crate::breaker::{BreakerState, OPEN_GROWTH};
use crate::gate::{External, ExternalBreaker, Gate, GateOverride, Permit};
use crate::outcome::{Outcome, UpstreamResponse, Verdict};
use crate::random::Random;
use crate::rate::Strategy;
use crate::time::{Timestamp, saturating_u64};

/// The state of one shared key on one node.
#[derive(Clone, Debug)]
pub struct Member {
    external: External,
    /// As of the last reply or notice.
    rate: f64,
    share: f64,
    active: u32,
    is_free: bool,
    /// When the store last answered, and until when it said that there is nothing to gain by a call.
    heard_at: Option<Timestamp>,
    quiet_until: Timestamp,
    created_at: Timestamp,
    calls: Calls,
    feedback: Report,
    /// Requests per second that were asked lately.
    demand: f64,
    degraded: Option<Degraded>,
    /// When a refusal was last seen, by any node.
    refused_at: Option<Timestamp>,
    was_open: bool,
    /// The hold lasts at least until then, in case the store loses it. `External::hold_until` is later by
    /// as long as a reply or a notice took.
    held_until: Timestamp,
    /// The last override by a person that the node knows of, and whether it isolated the key.
    overrides: u32,
    is_isolated: bool,
    owner: Option<Box<Owner>>,
}

/// When calls are made.
#[derive(Clone, Debug)]
struct Calls {
    last: Timestamp,
    /// The first call since the last reply.
    asked_at: Option<Timestamp>,
    is_out: bool,
    is_urgent: bool,
    /// Consecutive calls without a reply.
    unanswered: u32,
    /// Not before, after calls without a reply.
    retry_at: Timestamp,
    /// The time to the next call, over the interval: nodes do not stay in step.
    pace: f64,
    jitter: Random,
}

/// What happened since the last call.
#[derive(Clone, Debug, Default)]
struct Report {
    accepted: u32,
    latency_sum: Duration,
    late_accepted: u32,
    late_refused: u32,
    refusal: Option<(u32, RefusalKind, Timestamp)>,
    hold_until: Option<Timestamp>,
    left: Option<(Left, Timestamp)>,
    trip: Option<TripCause>,
    probe: Option<ProbeResult>,
    /// What a person ordered here, and when.
    overriding: Option<(GateOverride, Timestamp)>,
}

/// Why the breaker of the fleet should open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TripCause {
    /// The breaker of this node has opened on its own evidence.
    Evidence,
    /// That of the fleet was not Closed, and the store has lost it.
    Lost,
}

/// The store is silent.
#[derive(Clone, Copy, Debug)]
struct Degraded {
    since: Timestamp,
    sent: u32,
    /// The part of the share that is used, after refusals.
    cut: f64,
    cut_at: Timestamp,
    /// The breaker of the fleet as this node continues with it: when it may next try to probe, the next
    /// open time, and how many probes have succeeded.
    try_at: Timestamp,
    open_time: Duration,
    successes: u8,
}

/// What a member knows, for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberView {
    /// The rate of the fleet, in requests per second.
    pub rate: f64,
    /// The node's share of it.
    pub share: f64,
    /// The epoch of the fleet.
    pub epoch: u32,
    /// How many nodes have a share.
    pub active: u32,
    /// Whether this node runs the controller.
    pub is_owner: bool,
    /// Whether the node needs no slots.
    pub is_free: bool,
    /// Whether the store is silent, so that the node continues with its last share.
    pub is_degraded: bool,
    /// Since when the store has not answered.
    pub silence: Duration,
}

impl Member {
    /// A key that the node has not used yet. It may send nothing before the first reply.
    pub fn new(settings: &SharedSettings, node: NodeId, now: Timestamp) -> Self {
        let mut external = External::new(now);
        external.slots.set_lateness(2 * settings.fleet.interval);
        Self {
            external,
            rate: settings.fleet.initial_rate,
            share: 0.0,
            active: 1,
            is_free: false,
            heard_at: None,
            quiet_until: now,
            created_at: now,
            calls: Calls {
                last: Timestamp::ZERO,
                asked_at: None,
                is_out: false,
                is_urgent: false,
                unanswered: 0,
                retry_at: Timestamp::ZERO,
                pace: 1.0,
                jitter: Random::from_seed(node.0),
            },
            feedback: Report::default(),
            demand: 0.0,
            degraded: None,
            refused_at: None,
            was_open: false,
            held_until: Timestamp::ZERO,
            overrides: 0,
            is_isolated: false,
            owner: None,
        }
    }

    /// A key that the node used before a restart. Until the first reply it continues with its share,
    /// degraded.
    pub fn restored(
        settings: &SharedSettings,
        node: NodeId,
        claim: &Claim,
        now: Timestamp,
    ) -> Self {
        let mut member = Self::new(settings, node, now);
        member.rate = claim.rate;
        member.share = claim.share.clamp(0.0, 1.0);
        member.external.begin_epoch(claim.epoch, 1.0);
        member.overrides = claim.overrides;
        member.is_isolated = claim.is_isolated;
        member.heard_at = Some(now);
        member.begin_degraded(settings, now);
        member.pace(settings, now);
        member
    }

    /// What the node knows of the key, for a restart; `None` before the first reply.
    pub fn claim(&self) -> Option<Claim> {
        self.heard_at.map(|_| Claim {
            rate: self.rate,
            epoch: self.external.epoch(),
            share: self.share,
            overrides: self.overrides,
            is_isolated: self.is_isolated,
        })
    }

    /// What the fleet allows, for the node's gate.
    #[inline]
    pub fn external(&mut self) -> &mut External {
        &mut self.external
    }

    /// Counts an outcome; call it before [`Gate::settle`], and settle with the verdict that it returns:
    /// a 403 that is a ban counts as throttled.
    #[inline]
    pub fn settled(
        &mut self,
        settings: &SharedSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let says_nothing_else = outcome.hint.remaining.is_none() && !self.external.is_probing();
        let is_plain = verdict == Some(Verdict::Success) && says_nothing_else;
        if is_plain && self.external.is_sent_in_epoch(permit.number()) {
            self.count_accepted(outcome);
            return verdict;
        }
        self.settled_slow_path(settings, permit, outcome, verdict, now)
    }

    #[inline(never)]
    fn settled_slow_path(
        &mut self,
        settings: &SharedSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let is_ban = self.is_ban(settings, outcome, verdict, now);
        let verdict = if is_ban {
            Some(Verdict::Throttled)
        } else {
            verdict
        };
        let is_present = self.external.epoch_of(permit.number()) == self.external.epoch();
        if self.external.end_probe(permit.number()) {
            self.end_probe(settings, outcome, verdict, now);
        }
        self.note_left(permit, outcome, verdict, now);
        let strategy = settings.controller.strategy;
        match verdict {
            Some(Verdict::Success)
                if is_present || self.external.is_sent_in_epoch(permit.number()) =>
            {
                self.count_accepted(outcome);
            }
            Some(Verdict::Success) => self.count_late(),
            Some(Verdict::Throttled) => {
                let kind = match outcome.hint.wait.filter(|_| outcome.is_directed()) {
                    _ if is_ban => RefusalKind::Banned,
                    Some(wait) => RefusalKind::Directed(wait),
                    None => RefusalKind::Undirected,
                };
                self.refused(kind, permit, is_present, now);
            }
            Some(Verdict::Overloaded) if is_busy(outcome) => {
                self.refused(RefusalKind::Undirected, permit, is_present, now);
            }
            Some(Verdict::Overloaded | Verdict::Unreachable) if strategy == Strategy::Aimd => {
                self.refused(RefusalKind::Failed, permit, is_present, now);
            }
            // A failure is a response too: the server has capacity for it.
            Some(Verdict::Overloaded | Verdict::Unreachable) => self.count_late(),
            Some(
                Verdict::QuotaExhausted
                | Verdict::Unauthorized
                | Verdict::Conflict
                | Verdict::Rejected,
            )
            | None => {}
        }
        verdict
    }

    /// An attempt ended without an outcome: a probe of the fleet has to be sent again.
    pub fn abandoned(&mut self, permit: &Permit) {
        if self.external.end_probe(permit.number()) {
            self.feedback.probe = Some(ProbeResult::Unknown);
            self.calls.is_urgent = true;
            if self.degraded.is_some() {
                self.external.breaker = ExternalBreaker::HalfOpen { may_probe: true };
            }
        }
    }

    /// Notices a hold and a trip of the gate; call it after [`Gate::settle`].
    #[inline]
    pub fn after_settle(&mut self, gate: &Gate, now: Timestamp) {
        if gate.has_fast_path() {
            // Neither held nor tripped.
            self.was_open = false;
        } else {
            self.notice_gate(gate, now);
        }
    }

    #[inline(never)]
    fn notice_gate(&mut self, gate: &Gate, now: Timestamp) {
        if let Some(until) = gate.hold_until(now)
            && until > self.external.hold_until
        {
            self.external.hold(until);
            self.held_until = until;
            self.feedback.hold_until = Some(until);
            self.calls.is_urgent = true;
        }
        let is_open = gate.breaker_state(now) == BreakerState::Open;
        if is_open && !self.was_open {
            self.feedback.trip = Some(TripCause::Evidence);
            self.calls.is_urgent = true;
        }
        self.was_open = is_open;
        let is_isolated = gate.breaker_state(now) == BreakerState::Isolated;
        if is_isolated && !self.is_isolated {
            // The server said that its quota is used up, to all nodes.
            self.order(GateOverride::Isolate, now);
        }
    }

    /// A person has overridden the gate of this node: so is the fleet, with the next call. Call it after
    /// [`GateOverride::apply`].
    pub fn overridden(&mut self, settings: &SharedSettings, change: GateOverride, now: Timestamp) {
        self.end_hold(settings, now);
        self.order(change, now);
    }

    fn order(&mut self, change: GateOverride, now: Timestamp) {
        self.feedback.overriding = Some((change, now));
        self.is_isolated = change == GateOverride::Isolate;
        self.calls.is_urgent = true;
    }

    /// Forgets the hold and the breaker of the fleet, and what this node would say about them.
    fn end_hold(&mut self, settings: &SharedSettings, now: Timestamp) {
        self.external.release();
        self.held_until = Timestamp::ZERO;
        self.feedback.hold_until = None;
        self.feedback.left = None;
        self.feedback.trip = None;
        self.feedback.probe = None;
        self.was_open = false;
        if let Some(owner) = &mut self.owner {
            owner.release(settings, now);
        }
    }

    /// When the next call is due; in the past: at once. It does not move while nothing happens. `None` while a call is out, or if there
    /// is nothing to say. `waiting` asks are in line.
    pub fn next_call(
        &self,
        settings: &SharedSettings,
        waiting: u32,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if self.calls.is_out {
            return None;
        }
        let interval = settings.fleet.interval.mul_f64(self.calls.pace);
        let due = if self.calls.is_urgent {
            self.calls.last
        } else if waiting > 0 && self.heard_at.is_none() {
            self.calls.last + MIN_BETWEEN_CALLS
        } else if self.has_slow_result() {
            self.calls.last + interval
        } else if waiting > 0 && self.is_short_of_slots(now) {
            (self.calls.last + MIN_BETWEEN_CALLS).max(self.quiet_until)
        } else if self.owner.is_some() && self.is_in_use(waiting) {
            self.calls.last + interval
        } else if self.is_in_use(waiting) {
            (self.calls.last + interval).max(self.quiet_until)
        } else if self.is_isolated || self.external.hold_until > now {
            // A person may have released it.
            self.calls.last + settings.fleet.lease
        } else {
            return None;
        };
        Some(due.max(self.calls.retry_at))
    }

    /// Whether there is a result that should not wait for the next slot: at slow rates the controller would
    /// change the rate for the request after that only.
    fn has_slow_result(&self) -> bool {
        self.rate < SLOW_RATE && self.feedback.accepted + self.feedback.late_accepted > 0
    }

    /// Whether something happened that the store should know at once.
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.calls.is_urgent
    }

    /// What to tell the store. Exactly one of [`Member::replied`] and [`Member::unanswered`] follows.
    pub fn call(&mut self, settings: &SharedSettings, waiting: u32, now: Timestamp) -> Call {
        let elapsed = now.seconds_since(self.calls.last).min(10.0);
        let counts = self.external.take_counts();
        if self.calls.last > Timestamp::ZERO && elapsed > 0.0 {
            let weight = 1.0 - (-elapsed / DEMAND_SECONDS).exp();
            self.demand += weight * (f64::from(counts.asked) / elapsed - self.demand);
        }
        if self.demand < MIN_DEMAND {
            // Otherwise the last trace of it would reserve a slot with every call.
            self.demand = 0.0;
        }
        let interval = settings.fleet.interval.as_secs_f64();
        let is_short = waiting > 0 || self.external.was_short();
        let mut demand = self.demand;
        if is_short {
            // The line does not tell how much more would be sent.
            demand = demand.max(2.0 * self.share * self.rate);
            demand = demand.max(f64::from(waiting.max(1)) / (2.0 * interval));
        }
        self.external.clear_short();
        let held = self.external.slots.held(now);
        let soon = saturating_u64((3.0 * interval * demand).ceil());
        let soon = u32::try_from(soon).unwrap_or(u32::MAX);
        let want = soon.max(waiting).saturating_sub(held);
        let mut back = 0.0;
        if let Some(degraded) = &mut self.degraded {
            degraded.sent = degraded.sent.saturating_add(counts.sent);
            let seconds = now.seconds_since(degraded.since).max(0.1);
            back = f64::from(degraded.sent) / seconds;
        }
        let mut report = std::mem::take(&mut self.feedback);
        report.overriding = report
            .overriding
            .filter(|(_, at)| now.since(*at) < MAX_ORDER_AGE);
        let call = Call {
            demand,
            want,
            held,
            sent: counts.sent,
            sent_freely: counts.sent_freely,
            accepted: report.accepted,
            latency_sum: report.latency_sum,
            late_accepted: report.late_accepted,
            late_refused: report.late_refused,
            refusal: report.refusal.map(|(epoch, kind, sent_at)| Refusal {
                epoch,
                kind,
                age: now.since(sent_at),
            }),
            hold_for: report
                .hold_until
                .map_or(Duration::ZERO, |until| until.since(now)),
            left: report.left.and_then(|(left, told_at)| {
                let reset = left.reset.checked_sub(now.since(told_at))?;
                Some(Left { reset, ..left })
            }),
            trip: report.trip.map(|cause| Trip {
                is_decisive: cause == TripCause::Lost || self.share >= 0.5,
            }),
            probe: report.probe,
            back,
            claim: self.claim(),
            fence: self.owner.as_ref().map_or(0, |owner| owner.fence()),
            decision: self.owner.as_mut().and_then(|owner| owner.decision(now)),
            overriding: report.overriding.map(|(change, _)| change),
        };
        // Said again if there is no reply.
        self.feedback.refusal = report.refusal;
        self.feedback.hold_until = report.hold_until;
        self.feedback.trip = report.trip;
        self.feedback.probe = report.probe;
        self.feedback.overriding = report.overriding;
        self.calls.is_out = true;
        self.calls.pace = self.calls.jitter.between(0.95, 1.05);
        self.calls.is_urgent = false;
        self.calls.last = now;
        self.calls.asked_at.get_or_insert(now);
        call
    }

    /// Takes the reply to the last call. Then let the line of the gate leave: asks may have slots now.
    pub fn replied(
        &mut self,
        settings: &SharedSettings,
        gate: &mut Gate,
        call: &Call,
        reply: &Reply,
        now: Timestamp,
    ) {
        self.calls.is_out = false;
        self.calls.unanswered = 0;
        self.calls.asked_at = None;
        self.calls.retry_at = Timestamp::ZERO;
        self.forget_said(call);
        self.quiet_until = now + reply.next;
        self.follow_override(settings, gate, reply.breaker, reply.overrides, now);
        self.heard_at = Some(now);
        self.remind(reply, now);
        self.follow(
            reply.rate,
            reply.epoch,
            reply.hold_for,
            reply.breaker,
            gate,
            settings,
            now,
        );
        let silence = self
            .degraded
            .take()
            .map_or(Duration::ZERO, |degraded| now.since(degraded.since));
        self.share = reply.share;
        self.active = reply.active.max(1);
        self.is_free = reply.is_free;
        self.external.add_slots(&reply.slots, now);
        self.pace(settings, now);
        gate.show_rate(self.share * self.rate);
        if silence > settings.fleet.lease
            && let Some(owner) = &mut self.owner
        {
            owner.measure_anew(settings, now);
        }
        self.run_controller(settings, reply, now);
    }

    /// A store that was flushed, or replaced by an older replica, has lost a hold or the breaker: it learns
    /// of them again.
    fn remind(&mut self, reply: &Reply, now: Timestamp) {
        if self.feedback.overriding.is_some() || reply.overrides < self.overrides {
            return;
        }
        if reply.hold_for > Duration::ZERO {
            // The store has answered later than it was called.
            self.held_until = self.held_until.max(self.calls.last + reply.hold_for);
        }
        if self.held_until > now + reply.hold_for + LOST_HOLD {
            self.feedback.hold_until = self.feedback.hold_until.max(Some(self.held_until));
            self.calls.is_urgent = true;
        }
        // One that has closed, or that a person has closed, has begun an epoch.
        let is_closed = reply.breaker == BreakerReply::Closed;
        let was_open = self.external.breaker != ExternalBreaker::Closed;
        if is_closed && was_open && reply.epoch == self.external.epoch() {
            self.feedback.trip = Some(TripCause::Lost);
            self.calls.is_urgent = true;
        }
    }

    /// The last call was not answered, or too late.
    pub fn unanswered(&mut self, now: Timestamp) {
        self.calls.is_out = false;
        self.calls.is_urgent |= self.feedback.refusal.is_some()
            || self.feedback.trip.is_some()
            || self.feedback.overriding.is_some();
        let doublings = self.calls.unanswered.min(2);
        self.calls.unanswered = self.calls.unanswered.saturating_add(1);
        let wait = FIRST_RETRY.saturating_mul(1 << doublings);
        let wait = wait.mul_f64(self.calls.jitter.between(0.75, 1.25));
        self.calls.retry_at = now + wait;
    }

    /// Takes what the store published.
    pub fn noticed(
        &mut self,
        settings: &SharedSettings,
        gate: &mut Gate,
        notice: &Notice,
        now: Timestamp,
    ) {
        if self.heard_at.is_none() || notice.epoch < self.external.epoch() {
            return;
        }
        let is_new = notice.epoch > self.external.epoch();
        self.follow_override(settings, gate, notice.breaker, notice.overrides, now);
        self.follow(
            notice.rate,
            notice.epoch,
            notice.hold_for,
            notice.breaker,
            gate,
            settings,
            now,
        );
        self.pace(settings, now);
        // The owner has to decide.
        self.calls.is_urgent |= is_new && self.owner.is_some();
    }

    /// Applies the passing of time while the store is silent; call it every interval. Returns whether
    /// the node is degraded.
    pub fn tick(&mut self, settings: &SharedSettings, now: Timestamp) -> bool {
        if self.degraded.is_none() && self.is_silent(settings, now) {
            self.begin_degraded(settings, now);
        }
        if self.degraded.is_some() {
            self.try_to_probe(settings, now);
            self.pace(settings, now);
        }
        self.degraded.is_some()
    }

    /// When [`Member::tick`] should be called next, because the store may be silent by then;
    /// [`Timestamp::MAX`] while no call waits for its reply.
    pub fn next_tick(&self, settings: &SharedSettings, now: Timestamp) -> Timestamp {
        match self.degraded {
            Some(_) => now + settings.fleet.interval,
            None => self.silent_at(settings).unwrap_or(Timestamp::MAX),
        }
    }

    /// What is known, for display.
    pub fn view(&self, now: Timestamp) -> MemberView {
        MemberView {
            rate: self.rate,
            share: self.share,
            epoch: self.external.epoch(),
            active: self.active,
            is_owner: self.owner.is_some(),
            is_free: self.is_free,
            is_degraded: self.degraded.is_some(),
            silence: now.since(self.heard_at.unwrap_or(self.created_at)),
        }
    }

    /// The controller of the key, if this node runs it.
    pub fn controller(&self) -> Option<&Gate> {
        self.owner.as_ref().map(|owner| owner.controller())
    }

    /// Whether the node has used the key lately, so that it is to be kept.
    pub fn is_in_use(&self, waiting: u32) -> bool {
        let counts = self.external.counts();
        waiting > 0
            || counts.asked > 0
            || self.demand > MIN_DEMAND
            || self.feedback.accepted > 0
            || !self.external.slots.is_empty()
            || self.external.is_probing()
            || self.feedback.overriding.is_some()
            || self.owner.as_ref().is_some_and(|owner| owner.has_decided())
    }

    /// Whether the fleet lets nothing pass now: the gate must be kept.
    pub fn is_blocked(&self, now: Timestamp) -> bool {
        let is_open = match self.external.breaker {
            ExternalBreaker::Closed | ExternalBreaker::HalfOpen { .. } => false,
            ExternalBreaker::Open { until } => until > now,
        };
        is_open || self.external.hold_until > now
    }

    fn is_short_of_slots(&self, now: Timestamp) -> bool {
        self.external.rate_cap().is_none()
            && self.external.slots.is_empty()
            && self.external.hold_until <= now
    }

    fn is_ban(
        &self,
        settings: &SharedSettings,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> bool {
        settings.controller.strategy == Strategy::Adaptive
            && verdict == Some(Verdict::Rejected)
            && outcome.response == UpstreamResponse::Status(403)
            && self
                .refused_at
                .is_some_and(|at| now.since(at) < BAN_AFTER_REFUSAL)
    }

    #[inline]
    fn count_accepted(&mut self, outcome: &Outcome) {
        self.feedback.accepted = self.feedback.accepted.saturating_add(1);
        self.feedback.latency_sum = self.feedback.latency_sum.saturating_add(outcome.latency);
    }

    fn count_late(&mut self) {
        self.feedback.late_accepted = self.feedback.late_accepted.saturating_add(1);
    }

    fn refused(&mut self, kind: RefusalKind, permit: &Permit, is_present: bool, now: Timestamp) {
        self.refused_at = Some(now);
        if let Some(degraded) = &mut self.degraded
            && now.since(degraded.cut_at) >= BETWEEN_CUTS
        {
            degraded.cut *= CUT;
            degraded.cut_at = now;
        }
        if !is_present || self.feedback.refusal.is_some() {
            self.feedback.late_refused = self.feedback.late_refused.saturating_add(1);
            return;
        }
        let epoch = self.external.epoch();
        self.feedback.refusal = Some((epoch, kind, permit.admitted_at()));
        self.calls.is_urgent = true;
    }

    fn end_probe(
        &mut self,
        settings: &SharedSettings,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        let result = match verdict {
            Some(Verdict::Success) => ProbeResult::Succeeded,
            Some(Verdict::Overloaded | Verdict::Unreachable) if !outcome.is_directed() => {
                ProbeResult::Failed
            }
            _ => ProbeResult::Unknown,
        };
        self.feedback.probe = Some(result);
        self.calls.is_urgent = true;
        self.end_degraded_probe(settings, result, now);
    }

    fn note_left(
        &mut self,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        let served = matches!(
            verdict,
            Some(Verdict::Success | Verdict::Rejected | Verdict::Conflict)
        );
        let (Some(remaining), Some(reset), true) =
            (outcome.hint.remaining, outcome.hint.reset, served)
        else {
            return;
        };
        if reset < MIN_RESET {
            return;
        }
        let left = Left {
            remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            reset,
            serial: self.external.serial_of(permit.number()),
        };
        let is_first = self.feedback.left.is_none();
        self.feedback.left = Some((left, now));
        self.calls.is_urgent |= is_first && left.remaining <= LOW_LEFT * self.active;
    }

    /// What was said in `call` and arrived.
    fn forget_said(&mut self, call: &Call) {
        if let Some(said) = &call.refusal
            && self
                .feedback
                .refusal
                .is_some_and(|(epoch, _, _)| epoch == said.epoch)
        {
            self.feedback.refusal = None;
        }
        let said = self.calls.last + call.hold_for;
        // A longer one may have been noticed meanwhile.
        self.feedback.hold_until = self.feedback.hold_until.filter(|until| *until > said);
        if call.trip.is_some() {
            self.feedback.trip = None;
        }
        if self.feedback.probe == call.probe {
            self.feedback.probe = None;
        }
        if self.feedback.overriding.map(|(change, _)| change) == call.overriding {
            self.feedback.overriding = None;
        }
    }

    /// Does at this node what a person has ordered at another one.
    fn follow_override(
        &mut self,
        settings: &SharedSettings,
        gate: &mut Gate,
        breaker: BreakerReply,
        overrides: u32,
        now: Timestamp,
    ) {
        if self.feedback.overriding.is_some() {
            // What is ordered here comes after it.
            return;
        }
        let is_first = self.overrides == 0 && self.heard_at.is_none();
        let is_isolated = breaker == BreakerReply::Isolated;
        if overrides > self.overrides && !is_first {
            self.end_hold(settings, now);
            if gate.hold_until(now).is_some() || gate.breaker_state(now) != BreakerState::Closed {
                gate.release(&settings.gate, now);
            }
        }
        if is_isolated && gate.breaker_state(now) != BreakerState::Isolated {
            gate.isolate(&settings.gate, now);
        }
        self.overrides = self.overrides.max(overrides);
        self.is_isolated = is_isolated;
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what a reply and a notice have in common"
    )]
    fn follow(
        &mut self,
        rate: f64,
        epoch: u32,
        hold_for: Duration,
        breaker: BreakerReply,
        gate: &mut Gate,
        settings: &SharedSettings,
        now: Timestamp,
    ) {
        let is_new = epoch != self.external.epoch();
        let is_lost = self.feedback.trip == Some(TripCause::Lost);
        if is_new && is_lost {
            // Another node was first.
            self.feedback.trip = None;
        }
        if is_new {
            self.external.begin_epoch(epoch, rate / self.rate);
            if rate < self.rate {
                self.refused_at = Some(now);
                // So that nodes that pace themselves do not start together. Without the store they have
                // done so before.
                if self.degraded.is_none() {
                    let phase = self.calls.jitter.unit();
                    self.external.delay_tokens(phase);
                }
            }
        }
        self.rate = rate;
        if self.feedback.overriding.is_some() {
            // The store does not know yet that a person has ended them.
            return;
        }
        if hold_for > Duration::ZERO {
            self.external.hold(now + hold_for);
        }
        if is_lost && !is_new && breaker == BreakerReply::Closed {
            return;
        }
        let was_closed = self.external.breaker == ExternalBreaker::Closed;
        self.external.breaker = match breaker {
            // Isolated is the gate itself.
            BreakerReply::Closed | BreakerReply::Isolated => ExternalBreaker::Closed,
            BreakerReply::Open { open_for } => ExternalBreaker::Open {
                until: now + open_for,
            },
            BreakerReply::HalfOpen { may_probe } => ExternalBreaker::HalfOpen {
                may_probe: may_probe && !self.external.is_probing(),
            },
        };
        let is_closed = self.external.breaker == ExternalBreaker::Closed;
        if was_closed != is_closed {
            // From now on the fleet's breaker counts, and after it closed, new evidence.
            gate.forget_failures(&settings.gate, now);
            self.was_open = false;
        }
    }

    /// Sets how the node paces itself.
    fn pace(&mut self, settings: &SharedSettings, now: Timestamp) {
        let share = self.share * self.rate;
        if let Some(degraded) = self.degraded {
            let silence = now.seconds_since(degraded.since);
            let shrunk = (1.0 - 0.01 * (silence - FULL_SHARE_SECONDS).max(0.0)).max(MIN_SHRUNK);
            let cap = match self.heard_at {
                Some(_) => share * shrunk * degraded.cut,
                None => MIN_DEGRADED_RATE,
            };
            self.external.set_rate_cap(cap, 1.0, now);
        } else if self.is_free {
            let interval = settings.fleet.interval.as_secs_f64();
            let had_slots = self.external.rate_cap().is_none();
            self.external
                .set_rate_cap(share, 1.0 + share * interval, now);
            if had_slots {
                // They are used up first, and no tokens are saved meanwhile.
                let held = self.external.slots.held(now);
                self.external.delay_tokens(held.into());
            }
        } else {
            self.external.clear_rate_cap();
            self.external.set_pace(share);
        }
    }

    /// Nodes that pace themselves must not start together.
    fn begin_degraded(&mut self, settings: &SharedSettings, now: Timestamp) {
        self.degraded = Some(Degraded {
            since: self.heard_at.unwrap_or(self.created_at),
            sent: 0,
            cut: 1.0,
            cut_at: now,
            try_at: now,
            open_time: settings.fleet.open_first,
            successes: 0,
        });
        self.external.set_rate_cap(MIN_DEGRADED_RATE, 1.0, now);
        let phase = self.calls.jitter.unit();
        self.external.delay_tokens(phase);
    }

    /// Without the store, a breaker of the fleet that is not Closed would never close. Each node tries as
    /// often as one node alone would, and one in `active` tries is a probe: together they send no more.
    fn try_to_probe(&mut self, settings: &SharedSettings, now: Timestamp) {
        let Some(degraded) = &mut self.degraded else {
            return;
        };
        let is_due = match self.external.breaker {
            ExternalBreaker::Closed => false,
            ExternalBreaker::Open { until } => until <= now,
            ExternalBreaker::HalfOpen { may_probe } => !may_probe && !self.external.is_probing(),
        };
        if !is_due || now < degraded.try_at {
            return;
        }
        let may_probe = self.calls.jitter.below(self.active.into()) == 0;
        self.external.breaker = ExternalBreaker::HalfOpen { may_probe };
        if !may_probe {
            // Perhaps another node probes and fails.
            degraded.try_at = now + degraded.next_open_time(settings);
        }
    }

    /// The store does not learn of this probe, or too late: the breaker follows it here.
    fn end_degraded_probe(
        &mut self,
        settings: &SharedSettings,
        result: ProbeResult,
        now: Timestamp,
    ) {
        let Some(degraded) = &mut self.degraded else {
            return;
        };
        self.external.breaker = match result {
            ProbeResult::Unknown => ExternalBreaker::HalfOpen { may_probe: true },
            ProbeResult::Failed => {
                let until = now + degraded.next_open_time(settings);
                degraded.try_at = until;
                degraded.successes = 0;
                ExternalBreaker::Open { until }
            }
            ProbeResult::Succeeded => {
                degraded.successes += 1;
                match degraded.successes >= settings.fleet.half_open_probes {
                    true => ExternalBreaker::Closed,
                    false => ExternalBreaker::HalfOpen { may_probe: true },
                }
            }
        };
    }

    fn is_silent(&self, settings: &SharedSettings, now: Timestamp) -> bool {
        self.silent_at(settings).is_some_and(|at| now >= at)
    }

    /// When the store counts as silent unless it answers. A node that has nothing to say is not kept
    /// waiting, however long the last reply is ago.
    fn silent_at(&self, settings: &SharedSettings) -> Option<Timestamp> {
        let asked_at = self.calls.asked_at?;
        Some(match self.heard_at {
            Some(heard_at) => {
                let silence = max_silence(settings);
                let usual = heard_at.max(self.quiet_until) + silence;
                usual.max(asked_at + silence.saturating_sub(settings.fleet.interval))
            }
            None => asked_at + SILENCE_AT_FIRST,
        })
    }

    fn run_controller(&mut self, settings: &SharedSettings, reply: &Reply, now: Timestamp) {
        let Some(ownership) = &reply.ownership else {
            self.owner = None;
            return;
        };
        match &mut self.owner {
            Some(owner) if owner.fence() == ownership.fence => {
                owner.learn(settings, &ownership.feedback, reply, now);
                self.calls.is_urgent |= owner.is_urgent();
            }
            _ => self.owner = Some(Box::new(Owner::new(settings, ownership, reply, now))),
        }
    }
}

impl Degraded {
    /// How long the breaker is open now; the next time it is longer.
    fn next_open_time(&mut self, settings: &SharedSettings) -> Duration {
        let open_time = self.open_time;
        let longer = open_time.mul_f64(OPEN_GROWTH);
        self.open_time = longer.min(settings.fleet.open_for);
        open_time
    }
}

/// A server that is overloaded and says nothing else.
fn is_busy(outcome: &Outcome) -> bool {
    outcome.response == UpstreamResponse::Status(503)
}

/// After this long without a reply the node is degraded.
fn max_silence(settings: &SharedSettings) -> Duration {
    (3 * settings.fleet.interval).max(Duration::from_millis(300))
}

/// Asks that need slots are gathered for this long.
const MIN_BETWEEN_CALLS: Duration = Duration::from_millis(20);
/// The wait after a call without a reply; doubles up to four times this.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// Demand follows what was asked over about this time.
const DEMAND_SECONDS: f64 = 0.3;
/// With a lower rate of the fleet, every result is reported within an interval: it is one call more for each
/// request.
const SLOW_RATE: f64 = 2.0;
/// With less demand per second a key is not in use.
const MIN_DEMAND: f64 = 0.01;
/// What a person ordered while the store was silent is not done at other nodes any later: it would end
/// holds that began since.
const MAX_ORDER_AGE: Duration = Duration::from_secs(30);
/// A 403 so soon after a refusal is a ban.
const BAN_AFTER_REFUSAL: Duration = Duration::from_secs(120);
/// Quotas that are renewed sooner are left to holds.
const MIN_RESET: Duration = Duration::from_secs(1);
/// If the store holds for so much less than a node knows, it has lost the hold.
const LOST_HOLD: Duration = Duration::from_millis(50);
/// So few remaining requests per node are reported at once.
const LOW_LEFT: u32 = 4;
/// A node that never had a share begins after this, at [`MIN_DEGRADED_RATE`] per second.
const SILENCE_AT_FIRST: Duration = Duration::from_secs(2);
const MIN_DEGRADED_RATE: f64 = 0.2;
/// While degraded: the whole share for this long, then 1 % less per second, down to a half.
const FULL_SHARE_SECONDS: f64 = 5.0;
const MIN_SHRUNK: f64 = 0.5;
/// While degraded: what remains after a refusal, at most so often.
const CUT: f64 = 0.8;
const BETWEEN_CUTS: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests;
