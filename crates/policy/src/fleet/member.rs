//! One shared key on one node.
//!
//! A member counts what the node asks, sends and gets, says when the next call to the store is due and
//! what it contains, and applies the reply. While the store is silent it lets the node continue with
//! its last share. A call contains what happened since the one before. If a call is not answered, its
//! counts are lost; a refusal, a trip and the end of a probe are reported again.

mod calls;
mod report;
mod silence;

use std::time::Duration;

use super::owner::Owner;
use super::{BreakerReply, Call, Claim, NodeId, Notice, Reply, SharedSettings};
use crate::breaker::BreakerState;
use crate::gate::{External, ExternalBreaker, Gate, GateOverride};
use crate::random::Random;
use crate::time::Timestamp;
use calls::{Calls, MIN_DEMAND};
use report::{Report, TripCause};
use silence::Degraded;

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

/// If the store holds for so much less than a node knows, it has lost the hold.
const LOST_HOLD: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
