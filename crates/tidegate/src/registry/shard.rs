//! A shard of the registry: gates, lines and due times under one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use policy::budget::{BudgetSettings, RetryBudget};
use policy::fleet::Member;
use policy::gate::{
    self, Decision, Gate, GateRecord, GateSettings, GateSnapshot, GateSummary, Reason, ResponseBody,
};
use policy::hosts::{HostIndex, Hosts};
use policy::line::Tickets;
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;

use super::members::{FleetNode, GateHosts, Members};
use super::seats::{SeatId, SeatState, Seats};
use super::slab::{Slab, Slot, SlotIndex};
use super::table::Table;
use super::text::Text;
use crate::ask::{Ask, Refusal};
use crate::clock::Alarm;
use crate::settings::HostSettings;

mod forget;
mod line;
mod shared;

pub(crate) use shared::DueCall;

/// Everything under one lock. The fields that every ask touches come first, in two cache lines.
/// Those it writes share the lock's cache line, because every written line moves between CPU cores.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    pub(crate) counts: Counts,
    table: Table,
    slab: Slab,
    text: Text,
    hosts: Arc<Hosts<HostSettings>>,
    /// Only if the gates are shared by a fleet.
    members: Option<Box<Members>>,
    tickets: Tickets,
    seats: Seats,
    /// Retry budgets of gates that have been used by calls; evicted with their gates.
    retry_budgets: BTreeMap<SlotIndex, RetryBudget>,
    /// When each gate is due; only gates with waiting asks.
    due: BTreeSet<(Timestamp, SlotIndex)>,
    due_at: BTreeMap<SlotIndex, Timestamp>,
    /// The alarm for the first due gate, and its time.
    pub(crate) alarm: Option<(Timestamp, Alarm)>,
    /// The alarm's waker, created on first use.
    pub(crate) wakeup: Option<Waker>,
    /// Where the next search for idle gates starts.
    eviction_cursor: SlotIndex,
}

/// Counters of a shard, including evicted gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Asks.
    pub(crate) requests: u64,
    /// Asks that waited longer than `throttled_after`.
    pub(crate) throttled: u64,
    /// Refused asks.
    pub(crate) denied: u64,
    /// Evicted gates.
    pub(crate) evicted: u64,
    /// Attempts of evicted gates that succeeded, were throttled and failed.
    pub(crate) evicted_results: [u64; 3],
}

/// The result of an ask.
pub(crate) enum AskResult {
    Admitted(gate::Permit),
    Waiting {
        seat: SeatId,
        until: Option<Timestamp>,
        reason: Reason,
    },
    Refused(Refusal),
}

impl Shard {
    pub(super) fn new(hosts: &GateHosts, fleet: Option<&FleetNode>) -> Self {
        let members = fleet.zip(hosts.shared.as_ref()).map(|(fleet, shared)| {
            let members = Members::new(fleet.clone(), Arc::clone(shared));
            Box::new(members)
        });
        Self {
            counts: Counts::default(),
            table: Table::default(),
            slab: Slab::default(),
            text: Text::default(),
            hosts: Arc::clone(&hosts.hosts),
            members,
            tickets: Tickets::new(),
            seats: Seats::default(),
            retry_budgets: BTreeMap::new(),
            due: BTreeSet::new(),
            due_at: BTreeMap::new(),
            alarm: None,
            wakeup: None,
            eviction_cursor: 0,
        }
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: &str) -> Option<SlotIndex> {
        self.table.find(hash, |index| self.has(index, key))
    }

    /// Whether the gate at `index` is that of `key`.
    #[inline(always)]
    pub(super) fn has(&self, index: SlotIndex, key: &str) -> bool {
        let slot = self.slab.get(index);
        slot.is_some_and(|slot| self.text.is(slot.key, key))
    }

    /// Inserts a gate. `None` if there is no room for its key.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: &str,
        record: Option<&GateRecord>,
        now: Timestamp,
    ) -> Option<SlotIndex> {
        let text = self.text.insert(key)?;
        let index = self.hosts.index_for(key);
        let settings = &self.hosts.get(index).gate;
        let gate = match record {
            Some(record) => Gate::restore(settings, record, now),
            None => Gate::new(settings, now),
        };
        let slot = self.slab.insert(Slot {
            key: text,
            settings: index,
            gate,
        });
        self.table.insert(hash, slot);
        if let Some(members) = &mut self.members {
            let settings = members.settings.get(index);
            let member = Member::new(settings, members.fleet.node, now);
            members.insert(slot, member);
        }
        Some(slot)
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Takes a permit if only tokens matter and enough are available, which is the common case.
    /// `None` means that the caller has to use [`Shard::try_acquire`].
    #[inline(always)]
    pub(crate) fn acquire_at_once(
        &mut self,
        index: SlotIndex,
        cost: u32,
        now: Timestamp,
    ) -> Option<gate::Permit> {
        if self.members.is_some() {
            return None;
        }
        let (gate, settings, _) = self.parts(index);
        // Clocks of two CPU cores may differ slightly; a gate's time never goes back.
        let now = not_back(gate, now);
        let permit = gate.acquire_at_once(settings, &ask_at_once(cost, now), now);
        self.counts.requests += u64::from(permit.is_some());
        permit
    }

    /// Takes a permit if one is available now.
    pub(crate) fn try_acquire(
        &mut self,
        index: SlotIndex,
        cost: u32,
        now: Timestamp,
    ) -> Result<gate::Permit, Refusal> {
        self.counts.requests += 1;
        let now = self.time_at(index, now);
        match self.decide(index, &ask_at_once(cost, now), now) {
            Decision::Admit(permit) => Ok(permit),
            Decision::Wait { reason, until, .. } | Decision::Refuse { reason, until } => {
                let reason = without_deadline(reason, self.parts(index).0, now);
                self.counts.denied += 1;
                Err(Refusal::new(reason, until, now))
            }
        }
    }

    /// Takes a permit if one is available now, by the class of the ask.
    pub(crate) fn try_acquire_as(
        &mut self,
        index: SlotIndex,
        ask: &Ask<'_>,
        now: Timestamp,
    ) -> Result<gate::Permit, Refusal> {
        self.counts.requests += 1;
        let now = self.time_at(index, now);
        let at_once = gate::Ask {
            class: ask.class,
            ..ask_at_once(ask.cost, now)
        };
        match self.decide(index, &at_once, now) {
            Decision::Admit(permit) => Ok(permit),
            Decision::Wait { reason, until, .. } | Decision::Refuse { reason, until } => {
                let reason = without_deadline(reason, self.parts(index).0, now);
                Err(Refusal::new(reason, until, now))
            }
        }
    }

    /// Takes a permit, joins the line with a seat for `waker`, or is refused. `asked_at` is the
    /// time of the first ask.
    pub(crate) fn acquire(
        &mut self,
        index: SlotIndex,
        ask: &Ask<'_>,
        asked_at: Timestamp,
        waker: &Waker,
        now: Timestamp,
    ) -> AskResult {
        let now = self.time_at(index, now);
        let ask = ask.at_gate(self.parts(index).1, asked_at);
        match self.decide(index, &ask, now) {
            Decision::Admit(permit) => AskResult::Admitted(permit),
            Decision::Wait {
                ticket,
                until,
                reason,
            } => AskResult::Waiting {
                seat: self.seats.take(index, ticket, waker.clone()),
                until,
                reason,
            },
            Decision::Refuse { reason, until } => {
                let reason = if ask.deadline <= now {
                    without_deadline(reason, self.parts(index).0, now)
                } else {
                    reason
                };
                self.counts.denied += 1;
                AskResult::Refused(Refusal::new(reason, until, now))
            }
        }
    }

    fn decide(&mut self, index: SlotIndex, ask: &gate::Ask, now: Timestamp) -> Decision {
        if let Some(mut shared) = self.shared(index) {
            return shared.acquire(ask, now);
        }
        let (gate, settings, tickets) = self.parts(index);
        gate.acquire(settings, tickets, ask, now)
    }

    /// What [`Shard::acquire`] would decide.
    pub(crate) fn peek(
        &mut self,
        index: SlotIndex,
        ask: &Ask<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let now = self.time_at(index, now);
        let ask = ask.at_gate(self.parts(index).1, now);
        let decision = match self.shared(index) {
            Some(mut shared) => shared.peek(&ask, now),
            None => {
                let (gate, settings, tickets) = self.parts(index);
                gate.peek(settings, tickets, &ask, now)
            }
        };
        decision.map_err(|(reason, until)| Refusal::new(reason, until, now))
    }

    /// Returns a permit with the outcome of its attempt; the verdict is that for the item.
    #[inline(always)]
    pub(crate) fn settle(
        &mut self,
        index: SlotIndex,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        if self.members.is_some() {
            return self.settle_shared(index, permit, outcome, verdict, now);
        }
        let (gate, settings, _) = self.parts(index);
        gate.settle(settings, permit, outcome, verdict, not_back(gate, now))
    }

    /// Returns a permit at the head of a response whose body has not ended.
    pub(crate) fn settle_head(
        &mut self,
        index: SlotIndex,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> ResponseBody {
        let now = self.time_at(index, now);
        let verdict = self.count_shared(index, &permit, outcome, verdict, now);
        let (gate, settings, _) = self.parts(index);
        let body = gate.settle_head(settings, permit, outcome, verdict, now);
        if let Some(mut shared) = self.shared(index) {
            shared.after_settle(now);
        }
        body
    }

    #[inline]
    fn settle_shared(
        &mut self,
        index: SlotIndex,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        self.shared(index)?.settle(permit, outcome, verdict, now)
    }

    /// Counts an outcome for the fleet, if there is one. Returns the verdict to settle the gate with.
    fn count_shared(
        &mut self,
        index: SlotIndex,
        permit: &gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        match self.shared(index) {
            Some(mut shared) => shared.count(permit, outcome, verdict, now),
            None => verdict,
        }
    }

    /// Corrects the cost of an attempt whose body has not ended.
    pub(crate) fn correct_cost(
        &mut self,
        index: SlotIndex,
        body: &ResponseBody,
        used: u32,
        now: Timestamp,
    ) {
        let (gate, settings, _) = self.parts(index);
        gate.correct_cost(settings, body, used, not_back(gate, now));
    }

    /// Ends the body of a response.
    pub(crate) fn finish(&mut self, index: SlotIndex, body: ResponseBody, now: Timestamp) {
        let (gate, settings, _) = self.parts(index);
        gate.finish(settings, body, not_back(gate, now));
    }

    /// Returns a permit whose outcome is unknown.
    pub(crate) fn abandon(&mut self, index: SlotIndex, permit: gate::Permit, now: Timestamp) {
        if let Some(mut shared) = self.shared(index) {
            shared.abandon(&permit);
        }
        let (gate, settings, _) = self.parts(index);
        gate.abandon(settings, permit, not_back(gate, now));
    }

    /// Returns a permit whose attempt was not made.
    pub(crate) fn give_back(&mut self, index: SlotIndex, permit: gate::Permit, now: Timestamp) {
        if let Some(mut shared) = self.shared(index) {
            shared.abandon(&permit);
        }
        let (gate, settings, _) = self.parts(index);
        gate.give_back(settings, permit, not_back(gate, now));
    }

    /// The retry budget of a gate. A new one is full.
    pub(crate) fn retry_budget(
        &mut self,
        index: SlotIndex,
        settings: &BudgetSettings,
        now: Timestamp,
    ) -> &mut RetryBudget {
        let budget = self.retry_budgets.entry(index);
        budget.or_insert_with(|| RetryBudget::new(settings, now))
    }

    /// Collects from a seat: `Some` with its result, `None` if its owner still waits, `Err` if the
    /// seat has been reused. A waker that is no longer needed is moved to `unneeded` and must be
    /// dropped after unlocking, because it may be the last reference to a task.
    pub(crate) fn collect(
        &mut self,
        seat: SeatId,
        waker: &Waker,
        unneeded: &mut Option<Waker>,
    ) -> Result<Option<AskResult>, SeatTaken> {
        let (_, state) = self.seats.look(seat).ok_or(SeatTaken)?;
        if let SeatState::Waiting { waker: known, .. } = state {
            if !known.will_wake(waker) {
                *unneeded = Some(std::mem::replace(known, waker.clone()));
            }
            return Ok(None);
        }
        match self.seats.leave(seat) {
            Some(SeatState::Admitted(permit)) => Ok(Some(AskResult::Admitted(permit))),
            Some(SeatState::Refused(refusal)) => Ok(Some(AskResult::Refused(refusal))),
            Some(SeatState::Waiting { .. } | SeatState::Free { .. }) | None => Err(SeatTaken),
        }
    }

    /// Handles a dropped future: leaves the line, or returns its permit. The waker is moved to
    /// `unneeded`, see [`Shard::collect`].
    pub(crate) fn cancel(&mut self, seat: SeatId, unneeded: &mut Option<Waker>, now: Timestamp) {
        let Some((index, _)) = self.seats.look(seat) else {
            return;
        };
        match self.seats.leave(seat) {
            Some(SeatState::Waiting { ticket, waker }) => {
                *unneeded = Some(waker);
                let (gate, _, tickets) = self.parts(index);
                gate.cancel(tickets, ticket);
            }
            Some(SeatState::Admitted(permit)) => self.give_back(index, permit, now),
            // A refused ticket has already left the line, and its gate may be gone.
            Some(SeatState::Refused(_) | SeatState::Free { .. }) | None => {}
        }
    }

    /// The current time at a gate, see [`not_back`].
    pub(crate) fn time_at(&self, index: SlotIndex, now: Timestamp) -> Timestamp {
        let slot = self.slab.get(index);
        slot.map_or(now, |slot| not_back(&slot.gate, now))
    }

    /// Whether asks are waiting at this gate.
    #[inline(always)]
    pub(crate) fn is_waited_for(&self, index: SlotIndex) -> bool {
        let slot = self.slab.get(index);
        slot.is_some_and(|slot| slot.gate.is_waited_for())
    }

    /// A gate, its settings and the tickets: what every decision needs.
    #[inline(always)]
    fn parts(&mut self, index: SlotIndex) -> (&mut Gate, &GateSettings, &mut Tickets) {
        let slot = self
            .slab
            .get_mut(index)
            .expect("a gate stays as long as anything is in flight or in line");
        let settings = &self.hosts.get(slot.settings).gate;
        (&mut slot.gate, settings, &mut self.tickets)
    }

    /// The settings of a gate's host.
    pub(crate) fn host_settings(&self, index: SlotIndex) -> &HostSettings {
        let slot = self.slab.get(index);
        let settings = slot.map_or(HostIndex::DEFAULT, |slot| slot.settings);
        self.hosts.get(settings)
    }

    /// Calls `act` with a gate and its settings.
    pub(crate) fn with_gate<T>(
        &mut self,
        index: SlotIndex,
        act: impl FnOnce(&mut Gate, &GateSettings, &Tickets) -> T,
    ) -> T {
        let (gate, settings, tickets) = self.parts(index);
        act(gate, settings, tickets)
    }

    /// Calls `look` with the indexes of up to `limit` gates starting at `from`. Returns where to
    /// continue.
    pub(crate) fn look_at_some(
        &mut self,
        mut from: SlotIndex,
        limit: usize,
        mut look: impl FnMut(&mut Self, SlotIndex),
    ) -> Option<SlotIndex> {
        for _ in 0..limit {
            let (index, _) = self.slab.next(from)?;
            from = index + 1;
            look(self, index);
        }
        Some(from)
    }

    /// The state of a gate whose changes are reported as events.
    #[inline]
    pub(crate) fn summary(&mut self, index: SlotIndex, now: Timestamp) -> GateSummary {
        let (gate, ..) = self.parts(index);
        let summary = gate.summary(now);
        match self.members {
            None => summary,
            Some(_) => self.with_fleet(index, summary, now),
        }
    }

    /// A snapshot of a gate.
    pub(crate) fn look(&mut self, index: SlotIndex, now: Timestamp) -> GateSnapshot {
        if self.members.is_some() {
            return self.shared_snapshot(index, now);
        }
        let (gate, settings, tickets) = self.parts(index);
        gate.snapshot(settings, tickets, now)
    }

    /// The capacity of the key buffer in bytes.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.text.capacity()
    }

    pub(crate) fn key(&self, index: SlotIndex) -> &str {
        let slot = self.slab.get(index);
        slot.map_or("", |slot| self.text.get(slot.key))
    }
}

/// An ask that does not wait has no deadline to miss, so its refusal names what it would have
/// waited for.
fn without_deadline(reason: Reason, gate: &Gate, now: Timestamp) -> Reason {
    match reason {
        Reason::Deadline if gate.hold_until(now).is_some() => Reason::Hold,
        Reason::Deadline => Reason::Rate,
        reason => reason,
    }
}

/// The first thread to read the clock is not always the first to get the lock. Time must not go
/// back at a gate: it would refuse an ask from before its last event, and log events out of order.
#[inline]
fn not_back(gate: &Gate, now: Timestamp) -> Timestamp {
    now.max(gate.last_activity())
}

/// An ask that does not wait.
#[inline]
fn ask_at_once(cost: u32, now: Timestamp) -> gate::Ask {
    gate::Ask {
        cost,
        ..gate::Ask::until(now)
    }
}

/// The seat was reused: its permit was not collected in time.
#[derive(Debug)]
pub(crate) struct SeatTaken;
