//! What a member counts and notices, for its next call.

use std::time::Duration;

use super::Member;
use crate::breaker::BreakerState;
use crate::fleet::{Call, Left, ProbeResult, Refusal, RefusalKind, SharedSettings};
use crate::gate::{ExternalBreaker, Gate, GateOverride, Permit};
use crate::outcome::{Outcome, UpstreamResponse, Verdict};
use crate::rate::Strategy;
use crate::time::Timestamp;

/// What happened since the last call.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) accepted: u32,
    pub(super) latency_sum: Duration,
    pub(super) late_accepted: u32,
    pub(super) late_refused: u32,
    pub(super) refusal: Option<(Refusal, Timestamp)>,
    pub(super) hold_until: Option<Timestamp>,
    pub(super) left: Option<(Left, Timestamp)>,
    pub(super) trip: Option<TripCause>,
    pub(super) probe: Option<ProbeResult>,
    /// What a person ordered here, and when.
    pub(super) overriding: Option<(GateOverride, Timestamp)>,
}

/// Why the breaker of the fleet should open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TripCause {
    /// The breaker of this node has opened on its own evidence.
    Evidence,
    /// That of the fleet was not Closed, and the store has lost it.
    Lost,
}

impl Member {
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
        if let Some(degraded) = &mut self.degraded {
            degraded.refused(now);
        }
        if !is_present || self.feedback.refusal.is_some() {
            self.feedback.late_refused = self.feedback.late_refused.saturating_add(1);
            return;
        }
        let refusal = Refusal {
            epoch: self.external.epoch(),
            kind,
            age: Duration::ZERO,
            serial: self.external.serial_of(permit.number()),
        };
        self.feedback.refusal = Some((refusal, permit.admitted_at()));
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
    pub(super) fn forget_said(&mut self, call: &Call) {
        if let Some(said) = &call.refusal
            && self
                .feedback
                .refusal
                .is_some_and(|(refusal, _)| refusal.epoch == said.epoch)
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
}

/// A server that is overloaded and says nothing else.
fn is_busy(outcome: &Outcome) -> bool {
    outcome.response == UpstreamResponse::Status(503)
}

/// A 403 so soon after a refusal is a ban.
const BAN_AFTER_REFUSAL: Duration = Duration::from_secs(120);
/// Quotas that are renewed sooner are left to holds.
const MIN_RESET: Duration = Duration::from_secs(1);
/// So few remaining requests per node are reported at once.
const LOW_LEFT: u32 = 4;
