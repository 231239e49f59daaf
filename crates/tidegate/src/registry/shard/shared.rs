//! Gates whose keys are shared by a fleet: the same decisions, with what the fleet allows.

use std::task::Waker;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::fleet::{
    Call, Claim, FleetSettings, Member, MemberView, Notice, Reply, SharedSettings,
};
use policy::gate::{
    self, Decision, ExternalBreaker, Gate, GateOverride, GateSnapshot, GateSummary, Reason,
};
use policy::line::{Ticket, Tickets};
use policy::outcome::{Outcome, Verdict};
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::{Shard, ask_at_once, not_back};
use crate::registry::members::SharedGate;
use crate::registry::slab::SlotIndex;

/// A shared gate with everything that a decision needs.
pub(super) struct Shared<'a> {
    gate: &'a mut Gate,
    settings: &'a SharedSettings,
    tickets: &'a mut Tickets,
    shared: &'a mut SharedGate,
}

/// A call to the store that is due, and the number of its member.
pub(crate) struct DueCall {
    pub(crate) key: String,
    pub(crate) settings: FleetSettings,
    pub(crate) call: Call,
    pub(crate) number: u64,
}

impl Shared<'_> {
    pub(super) fn acquire(&mut self, ask: &gate::Ask, now: Timestamp) -> Decision {
        let external = self.shared.member.external();
        let settings = &self.settings.gate;
        self.gate
            .acquire_external(settings, self.tickets, ask, external, now)
    }

    pub(super) fn peek(
        &mut self,
        ask: &gate::Ask,
        now: Timestamp,
    ) -> Result<(), (Reason, Option<Timestamp>)> {
        let external = self.shared.member.external();
        let settings = &self.settings.gate;
        self.gate
            .peek_external(settings, self.tickets, ask, external, now)
    }

    pub(super) fn admit_next(&mut self, now: Timestamp) -> Option<(Ticket, gate::Permit)> {
        let external = self.shared.member.external();
        let settings = &self.settings.gate;
        self.gate
            .admit_next_external(settings, self.tickets, external, now)
    }

    pub(super) fn next_wake(&mut self, now: Timestamp) -> Option<Timestamp> {
        let external = self.shared.member.external();
        let settings = &self.settings.gate;
        self.gate
            .next_wake_external(settings, self.tickets, external, now)
    }

    /// When the first in line leaves, as far as this node knows.
    pub(super) fn next_admission(&mut self, now: Timestamp) -> Option<Timestamp> {
        let hold = self.gate.hold_until(now);
        hold.max(self.shared.member.external().slots.next())
    }

    #[inline]
    pub(super) fn settle(
        self,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let Self { gate, settings, .. } = self;
        let member = &mut self.shared.member;
        let now = not_back(gate, now);
        let verdict = member.settled(settings, &permit, outcome, verdict, now);
        let verdict = gate.settle(&settings.gate, permit, outcome, verdict, now);
        member.after_settle(gate, now);
        verdict
    }

    /// Counts an outcome for the fleet. Returns the verdict to settle the gate with.
    pub(super) fn count(
        &mut self,
        permit: &gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let member = &mut self.shared.member;
        member.settled(self.settings, permit, outcome, verdict, now)
    }

    pub(super) fn after_settle(&mut self, now: Timestamp) {
        self.shared.member.after_settle(self.gate, now);
    }

    fn next_call(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.gate.waiting(self.tickets);
        let member = &self.shared.member;
        member.next_call(self.settings, waiting, now)
    }

    pub(super) fn abandon(&mut self, permit: &gate::Permit) {
        self.shared.member.abandoned(permit);
    }

    fn override_gate(&mut self, change: GateOverride, now: Timestamp) {
        change.apply(self.gate, &self.settings.gate, now);
        self.shared.member.overridden(self.settings, change, now);
    }

    /// The breaker of the fleet, if it decides: it is not Closed and the gate is not Isolated.
    fn breaker(&mut self, now: Timestamp) -> Option<(BreakerState, Option<Timestamp>)> {
        if self.gate.breaker_state(now) == BreakerState::Isolated {
            return None;
        }
        match self.shared.member.external().breaker {
            ExternalBreaker::Closed => None,
            ExternalBreaker::Open { until } if until > now => {
                Some((BreakerState::Open, Some(until)))
            }
            ExternalBreaker::Open { .. } | ExternalBreaker::HalfOpen { .. } => {
                Some((BreakerState::HalfOpen, None))
            }
        }
    }

    /// Lets the gate itself know of the hold of the fleet, so that it is seen and stored.
    fn follow_hold(&mut self, now: Timestamp) {
        if self.shared.member.external().hold_until > now {
            // What it would decide is of no interest.
            _ = self.peek(&gate::Ask::until(Timestamp::MAX), now);
        }
    }
}

impl Shard {
    /// A shared gate; `None` if the gates of this limiter are local.
    #[inline]
    pub(super) fn shared(&mut self, index: SlotIndex) -> Option<Shared<'_>> {
        let members = self.members.as_deref_mut()?;
        let slot = self.slab.get_mut(index)?;
        Some(Shared {
            gate: &mut slot.gate,
            settings: members.settings.get(slot.settings),
            tickets: &mut self.tickets,
            shared: members.by_slot.get_mut(index as usize)?.as_mut()?,
        })
    }

    /// [`Shard::acquire_at_once`] at a shared gate. If its next call is scheduled already, an ask that is
    /// admitted does not make it due sooner.
    #[inline]
    pub(crate) fn acquire_shared_at_once(
        &mut self,
        index: SlotIndex,
        cost: u32,
        now: Timestamp,
    ) -> Option<gate::Permit> {
        let shared = self.shared(index)?;
        shared.shared.active_since?;
        let now = not_back(shared.gate, now);
        let (settings, external) = (&shared.settings.gate, shared.shared.member.external());
        let ask = ask_at_once(cost, now);
        let permit = shared
            .gate
            .acquire_external_at_once(settings, &ask, external, now);
        self.counts.requests += u64::from(permit.is_some());
        permit
    }

    /// Whether the next call of a gate may be due sooner after something happened at it.
    #[inline]
    pub(crate) fn is_to_be_scheduled(&self, index: SlotIndex) -> bool {
        let member = self.members.as_deref().and_then(|it| it.get(index));
        member.is_some_and(|it| it.active_since.is_none() || it.member.is_urgent())
    }

    /// Overrides a gate on behalf of a person, and with it the gates of its fleet.
    pub(crate) fn override_gate(&mut self, index: SlotIndex, change: GateOverride, now: Timestamp) {
        match self.shared(index) {
            Some(mut shared) => shared.override_gate(change, now),
            None => self.with_gate(index, |gate, settings, _| change.apply(gate, settings, now)),
        }
    }

    /// Whether the gates of this shard are shared.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.members.is_some()
    }

    /// The strategy that moves the rate of a gate, here or in its fleet.
    pub(crate) fn strategy(&mut self, index: SlotIndex) -> Strategy {
        if let Some(shared) = self.shared(index) {
            return shared.settings.controller.strategy();
        }
        self.parts(index).1.strategy()
    }

    /// What the fleet says of a gate. One that is not used does without the store, but is not degraded.
    pub(crate) fn member_view(&self, index: SlotIndex, now: Timestamp) -> Option<MemberView> {
        let shared = self.members.as_deref()?.get(index)?;
        let mut view = shared.member.view(now);
        view.is_degraded &= shared.active_since.is_some();
        Some(view)
    }

    /// After something happened at a gate: its next call to the store may be due sooner.
    pub(crate) fn schedule_call(
        &mut self,
        index: SlotIndex,
        now: Timestamp,
        wakers: &mut Vec<Waker>,
    ) {
        let Some(shared) = self.shared(index) else {
            return;
        };
        let due = shared.next_call(now);
        let is_out = shared.shared.is_out;
        let Some(members) = self.members.as_deref_mut() else {
            return;
        };
        match due {
            Some(due) => {
                members.activate(index, now);
                wakers.extend(members.fleet.schedule.due_at(due));
            }
            None if is_out => {}
            None => members.retire(index),
        }
    }

    /// Passes the time of the next call of each active member to `due`, unless a call is out.
    pub(crate) fn calls_due(&mut self, now: Timestamp, mut due: impl FnMut(Timestamp, SlotIndex)) {
        for index in self.active_members() {
            let next = self.shared(index).and_then(|it| it.next_call(now));
            if let Some(at) = next {
                due(at, index);
            }
        }
    }

    fn active_members(&self) -> Vec<SlotIndex> {
        let members = self.members.as_deref();
        members.map_or_else(Vec::new, |members| members.active.clone())
    }

    /// Takes the call of a member.
    pub(crate) fn take_call(&mut self, index: SlotIndex, now: Timestamp) -> Option<DueCall> {
        let key = self.key(index).to_owned();
        let shared = self.shared(index)?;
        let now = not_back(shared.gate, now);
        let waiting = shared.gate.waiting(shared.tickets);
        shared.shared.is_out = true;
        Some(DueCall {
            key,
            settings: shared.settings.fleet,
            call: shared.shared.member.call(shared.settings, waiting, now),
            number: shared.shared.number,
        })
    }

    /// Applies the reply to a call; `None` if there was none. Replies to the call of an evicted gate are
    /// dropped.
    pub(crate) fn end_call(
        &mut self,
        index: SlotIndex,
        (call, number): (&Call, u64),
        reply: Option<&Reply>,
        now: Timestamp,
    ) {
        let Some(mut shared) = self.shared(index) else {
            return;
        };
        if shared.shared.number != number {
            return;
        }
        shared.shared.is_out = false;
        let Some(reply) = reply else {
            shared.shared.member.unanswered(now);
            return;
        };
        let member = &mut shared.shared.member;
        member.replied(shared.settings, shared.gate, call, reply, now);
        shared.follow_hold(now);
    }

    /// Applies what the store published.
    pub(crate) fn notice(&mut self, index: SlotIndex, notice: &Notice, now: Timestamp) {
        if let Some(mut shared) = self.shared(index) {
            let member = &mut shared.shared.member;
            member.noticed(shared.settings, shared.gate, notice, now);
            shared.follow_hold(now);
        }
    }

    /// Looks whether the store is silent. Returns the numbers of active and of degraded members.
    pub(crate) fn tick(&mut self, now: Timestamp, wakers: &mut Vec<Waker>) -> (usize, usize) {
        let Some(members) = self.members.as_deref() else {
            return (0, 0);
        };
        let max_silence = members.fleet.max_silence();
        let active = self.active_members();
        let mut degraded = 0;
        for index in &active {
            let Some(shared) = self.shared(*index) else {
                continue;
            };
            let now = not_back(shared.gate, now);
            // A key that was not used for a while has heard nothing, because it has not asked.
            let has_asked = shared.shared.active_since;
            let is_due = has_asked.is_some_and(|since| now.since(since) >= max_silence);
            if is_due && shared.shared.member.tick(shared.settings, now) {
                degraded += 1;
                self.serve(*index, now, wakers);
            }
        }
        (active.len(), degraded)
    }

    /// Claims of members whose store answered within `age`.
    pub(crate) fn claims(
        &self,
        age: Duration,
        now: Timestamp,
        mut claimed: impl FnMut(&str, Claim),
    ) {
        let Some(members) = self.members.as_deref() else {
            return;
        };
        let mut from = 0;
        while let Some((index, slot)) = self.slab.next(from) {
            from = index + 1;
            if let Some(shared) = members.get(index)
                && shared.member.view(now).silence <= age
                && let Some(claim) = shared.member.claim()
            {
                claimed(self.text.get(slot.key), claim);
            }
        }
    }

    /// Continues with what a node knew before a restart.
    pub(crate) fn restore_claim(&mut self, index: SlotIndex, claim: &Claim, now: Timestamp) {
        let Some(slot) = self.slab.get(index) else {
            return;
        };
        if let Some(members) = self.members.as_deref_mut() {
            let settings = members.settings.get(slot.settings);
            let member = Member::restored(settings, members.fleet.node, claim, now);
            members.insert(index, member);
        }
    }

    /// Whether a gate must stay because of what the fleet says: it is held, or the breaker is open.
    pub(super) fn is_kept_by_fleet(&self, index: SlotIndex, now: Timestamp) -> bool {
        let member = self.members.as_deref().and_then(|it| it.get(index));
        member.is_some_and(|shared| shared.member.is_blocked(now))
    }

    /// The snapshot of a shared gate: its own, with the state of the fleet's controller and breaker.
    pub(super) fn shared_snapshot(&mut self, index: SlotIndex, now: Timestamp) -> GateSnapshot {
        let mut shared = self.shared(index).expect("it is shared");
        let mut seen = shared
            .gate
            .snapshot(&shared.settings.gate, shared.tickets, now);
        let settings = &shared.settings.controller;
        seen.strategy = settings.strategy();
        (_, seen.max_rate) = settings.rate_bounds();
        if let Some(controller) = shared.shared.member.controller() {
            let controller = controller.snapshot(settings, &Tickets::new(), now);
            seen.learned = controller.learned;
            seen.ceiling = controller.ceiling;
            seen.phase = controller.phase;
            seen.why = controller.why;
        }
        if let Some((state, until)) = shared.breaker(now) {
            seen.breaker = state;
            seen.breaker_until = until;
        }
        if seen.waiting > 0 {
            let ask = gate::Ask::until(Timestamp::MAX);
            seen.waiting_for = shared.peek(&ask, now).err().map(|(reason, _)| reason);
            seen.first_leaves = shared.next_admission(now).map(|at| at.max(now));
        }
        seen
    }

    /// The summary of a gate with the breaker of its fleet.
    pub(super) fn with_fleet(
        &mut self,
        index: SlotIndex,
        mut summary: GateSummary,
        now: Timestamp,
    ) -> GateSummary {
        let breaker = self.shared(index).and_then(|mut it| it.breaker(now));
        if let Some((state, _)) = breaker {
            summary.breaker = state;
        }
        summary
    }
}
