//! A part of the registry under one lock: its gates, who waits at them, and who is due when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use policy::gate::{self, Decision, Gate, GateRecord, GateSettings, GateSnapshot, Reason};
use policy::hosts::Hosts;
use policy::line::Tickets;
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;

use super::hash::KeyHash;
use super::seats::{SeatId, Seats, State};
use super::slab::{Slab, Slot, SlotIndex};
use super::table::Table;
use super::text::Text;
use crate::ask::{Ask, Refusal};
use crate::clock::Alarm;
use crate::settings::HostSettings;

/// Everything under one lock. What every ask touches comes first, in two cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    table: Table,
    slab: Slab,
    text: Text,
    hosts: Arc<Hosts<HostSettings>>,
    pub(crate) counts: Counts,
    tickets: Tickets,
    seats: Seats,
    /// When to look at which gate again; only those where someone waits.
    due: BTreeSet<(Timestamp, SlotIndex)>,
    due_at: BTreeMap<SlotIndex, Timestamp>,
    /// The alarm for the first of them, and when it rings.
    pub(crate) alarm: Option<(Timestamp, Alarm)>,
    /// Whom it wakes; made when it is first needed.
    pub(crate) bell: Option<Waker>,
    /// Where the search for idle gates goes on.
    hand: SlotIndex,
}

/// What happened at the gates of a shard, those that are gone included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Asks.
    pub(crate) requests: u64,
    /// Asks that had to wait for longer than `throttled_after`.
    pub(crate) throttled: u64,
    /// Asks that were refused.
    pub(crate) denied: u64,
    /// Gates that were forgotten.
    pub(crate) evicted: u64,
}

/// What became of an ask, as the owner of the lock learns of it.
pub(crate) enum Asked {
    Admitted(gate::Permit),
    Waits {
        seat: SeatId,
        until: Option<Timestamp>,
        reason: Reason,
    },
    Refused(Refusal),
}

impl Shard {
    pub(super) fn new(hosts: Arc<Hosts<HostSettings>>) -> Self {
        Self {
            table: Table::default(),
            slab: Slab::default(),
            text: Text::default(),
            hosts,
            counts: Counts::default(),
            tickets: Tickets::new(),
            seats: Seats::default(),
            due: BTreeSet::new(),
            due_at: BTreeMap::new(),
            alarm: None,
            bell: None,
            hand: 0,
        }
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: &str) -> Option<SlotIndex> {
        self.table.find(hash, |index| {
            let slot = self.slab.get(index);
            slot.is_some_and(|slot| self.text.is(slot.key, key))
        })
    }

    /// A new gate. `None` if there is no room for the text of its key.
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
        let index = self.slab.insert(Slot {
            key: text,
            settings: index,
            gate,
        });
        self.table.insert(hash, index);
        Some(index)
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Takes a permit if nothing but tokens decides and there are enough: nearly always. `None` says
    /// only that [`Shard::try_acquire`] has to be asked.
    #[inline(always)]
    pub(crate) fn acquire_at_once(
        &mut self,
        index: SlotIndex,
        cost: u32,
        now: Timestamp,
    ) -> Option<gate::Permit> {
        let (gate, settings, _) = self.parts(index);
        // Clocks of two processors may differ by a little; at a gate time never goes back.
        let now = not_back(gate, now);
        let permit = gate.acquire_at_once(settings, &ask_at_once(cost, now), now);
        self.counts.requests += u64::from(permit.is_some());
        permit
    }

    /// Takes a permit if there is one now.
    pub(crate) fn try_acquire(
        &mut self,
        index: SlotIndex,
        cost: u32,
        now: Timestamp,
    ) -> Result<gate::Permit, Refusal> {
        self.counts.requests += 1;
        let (gate, settings, tickets) = self.parts(index);
        let now = not_back(gate, now);
        match gate.acquire(settings, tickets, &ask_at_once(cost, now), now) {
            Decision::Admit(permit) => Ok(permit),
            Decision::Wait { reason, until, .. } | Decision::Refuse { reason, until } => {
                let reason = without_deadline(reason, gate, now);
                self.counts.denied += 1;
                Err(Refusal::new(reason, until, now))
            }
        }
    }

    /// Takes a permit, joins the line with a seat for `waker`, or is refused. Who asks once more
    /// says when it did so first.
    pub(crate) fn acquire(
        &mut self,
        index: SlotIndex,
        ask: &Ask<'_>,
        asked_at: Timestamp,
        waker: &Waker,
        now: Timestamp,
    ) -> Asked {
        let (gate, settings, tickets) = self.parts(index);
        let now = not_back(gate, now);
        let ask = ask.at_gate(settings, asked_at);
        match gate.acquire(settings, tickets, &ask, now) {
            Decision::Admit(permit) => Asked::Admitted(permit),
            Decision::Wait {
                ticket,
                until,
                reason,
            } => Asked::Waits {
                seat: self.seats.take(index, ticket, waker.clone()),
                until,
                reason,
            },
            Decision::Refuse { reason, until } => {
                let reason = if ask.deadline <= now {
                    without_deadline(reason, gate, now)
                } else {
                    reason
                };
                self.counts.denied += 1;
                Asked::Refused(Refusal::new(reason, until, now))
            }
        }
    }

    /// What [`Shard::acquire`] would say.
    pub(crate) fn peek(
        &mut self,
        index: SlotIndex,
        ask: &Ask<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let (gate, settings, tickets) = self.parts(index);
        let now = not_back(gate, now);
        let ask = ask.at_gate(settings, now);
        let answer = gate.peek(settings, tickets, &ask, now);
        answer.map_err(|(reason, until)| Refusal::new(reason, until, now))
    }

    /// Brings a permit back with what happened.
    #[inline(always)]
    pub(crate) fn settle(
        &mut self,
        index: SlotIndex,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        let (gate, settings, _) = self.parts(index);
        gate.settle(settings, permit, outcome, verdict, not_back(gate, now));
    }

    /// Brings a permit back of whose attempt nobody knows.
    pub(crate) fn abandon(&mut self, index: SlotIndex, permit: gate::Permit, now: Timestamp) {
        let (gate, settings, _) = self.parts(index);
        gate.abandon(settings, permit, not_back(gate, now));
    }

    /// Brings a permit back whose attempt was never made.
    pub(crate) fn give_back(&mut self, index: SlotIndex, permit: gate::Permit, now: Timestamp) {
        let (gate, settings, _) = self.parts(index);
        gate.give_back(settings, permit, not_back(gate, now));
    }

    /// What is in a seat: `Some` if it was emptied, `None` if its owner still waits. `Err` if it
    /// is not theirs any more. A waker that is not needed any more goes to `unneeded`, to be
    /// dropped without the lock: it may be the last that holds a task.
    pub(crate) fn collect(
        &mut self,
        seat: SeatId,
        waker: &Waker,
        unneeded: &mut Option<Waker>,
    ) -> Result<Option<Asked>, Gone> {
        let (_, state) = self.seats.look(seat).ok_or(Gone)?;
        if let State::Waiting { waker: known, .. } = state {
            if !known.will_wake(waker) {
                *unneeded = Some(std::mem::replace(known, waker.clone()));
            }
            return Ok(None);
        }
        match self.seats.leave(seat) {
            Some(State::Admitted(permit)) => Ok(Some(Asked::Admitted(permit))),
            Some(State::Refused(refusal)) => Ok(Some(Asked::Refused(refusal))),
            Some(State::Waiting { .. } | State::Free { .. }) | None => Err(Gone),
        }
    }

    /// Someone no longer waits, or does not want what is in the seat. The waker goes to
    /// `unneeded`, see [`Shard::collect`].
    pub(crate) fn cancel(&mut self, seat: SeatId, unneeded: &mut Option<Waker>, now: Timestamp) {
        let Some((index, _)) = self.seats.look(seat) else {
            return;
        };
        match self.seats.leave(seat) {
            Some(State::Waiting { ticket, waker }) => {
                *unneeded = Some(waker);
                let (gate, _, tickets) = self.parts(index);
                gate.cancel(tickets, ticket);
            }
            Some(State::Admitted(permit)) => self.give_back(index, permit, now),
            // Who was refused is not in line any more, and its gate may be gone.
            Some(State::Refused(_) | State::Free { .. }) | None => {}
        }
    }

    /// The time at a gate: never before its last event, for clocks of two processors may differ by
    /// a little.
    pub(crate) fn time_at(&self, index: SlotIndex, now: Timestamp) -> Timestamp {
        let slot = self.slab.get(index);
        slot.map_or(now, |slot| now.max(slot.gate.last_activity()))
    }

    /// Does someone wait at this gate?
    #[inline(always)]
    pub(crate) fn is_waited_for(&self, index: SlotIndex) -> bool {
        let slot = self.slab.get(index);
        slot.is_some_and(|slot| slot.gate.is_waited_for())
    }

    /// Lets everyone leave who was due before `now`, each at the time they were due.
    ///
    /// Alarms ring late, by milliseconds on a busy machine, and what a bucket cannot hold meanwhile
    /// would be lost, and the rate with it. So a line is served as if it had been looked at in
    /// time.
    pub(crate) fn catch_up(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        let earliest = now.as_nanos().saturating_sub(MOST_LATE_NANOS);
        let earliest = Timestamp::from_nanos(earliest);
        let mut last = None;
        while let Some(&due) = self.due_at.get(&index)
            && due < now
        {
            let at = self.time_at(index, due.max(earliest));
            if at >= now || last.is_some_and(|last| at <= last) {
                return;
            }
            self.serve(index, at, wakers);
            last = Some(at);
        }
    }

    /// Lets everyone leave the line who may or must, and notes when to look again.
    pub(crate) fn serve(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        let now = not_back(self.parts(index).0, now);
        loop {
            let before = wakers.len();
            self.admit_all(index, now, wakers);
            self.expire_all(index, now, wakers);
            if wakers.len() == before {
                break;
            }
        }
        let (gate, settings, tickets) = self.parts(index);
        let next = gate.next_wake(settings, tickets, now);
        self.look_again(index, next);
    }

    fn admit_all(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        loop {
            let (gate, settings, tickets) = self.parts(index);
            let Some((ticket, permit)) = gate.admit_next(settings, tickets, now) else {
                return;
            };
            wakers.extend(self.seats.tell(ticket, State::Admitted(permit), now));
        }
    }

    fn expire_all(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        loop {
            let (gate, settings, tickets) = self.parts(index);
            let until = gate.next_admission(settings, tickets);
            let Some(ticket) = gate.expire_next(tickets, now) else {
                return;
            };
            self.counts.denied += 1;
            let refused = State::Refused(Refusal::new(Reason::Deadline, until, now));
            wakers.extend(self.seats.tell(ticket, refused, now));
        }
    }

    fn look_again(&mut self, index: SlotIndex, at: Option<Timestamp>) {
        if let Some(before) = self.due_at.remove(&index) {
            self.due.remove(&(before, index));
        }
        if let Some(at) = at {
            self.due_at.insert(index, at);
            self.due.insert((at, index));
        }
    }

    /// When a gate or a seat has to be looked at again, if any.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let gate = self.due.first().map(|(at, _)| *at);
        let seat = self.seats.next_forfeit();
        [gate, seat].into_iter().flatten().min()
    }

    /// Looks at every gate and every seat that is due.
    pub(crate) fn serve_due(&mut self, now: Timestamp, wakers: &mut Vec<Waker>) {
        self.forfeit(now, wakers);
        while let Some(&(at, index)) = self.due.first() {
            if at > now {
                return;
            }
            self.catch_up(index, now, wakers);
            self.serve(index, now, wakers);
            // Timers are late by some hundred microseconds and bursts make up for two
            // milliseconds: at high rates several leave together instead of a wake-up for each.
            if let Some(&next) = self.due_at.get(&index) {
                self.look_again(index, Some(next.max(now + GRAIN)));
            }
        }
    }

    /// Takes back what was never collected.
    fn forfeit(&mut self, now: Timestamp, wakers: &mut Vec<Waker>) {
        while let Some((index, permit)) = self.seats.forfeit_next(now) {
            self.give_back(index, permit, now);
            self.serve(index, now, wakers);
        }
    }

    /// Forgets gates that nobody has used for long, looking at no more than `most` slots.
    /// `false` when the end was reached.
    pub(super) fn evict_idle(&mut self, hasher: &KeyHash, most: usize, now: Timestamp) -> Swept {
        let mut evicted = 0;
        for _ in 0..most {
            let Some((index, slot)) = self.slab.next(self.hand) else {
                self.hand = 0;
                return Swept {
                    evicted,
                    finished: true,
                };
            };
            self.hand = index + 1;
            let settings = &self.hosts.get(slot.settings).gate;
            if slot.gate.is_idle(settings, now) {
                self.remove(hasher, index);
                evicted += 1;
            }
        }
        Swept {
            evicted,
            finished: false,
        }
    }

    /// The least recently used gate that may go, of the first `most` slots after the hand or, if
    /// none of them may, of all.
    pub(super) fn least_recently_used(
        &self,
        most: usize,
        now: Timestamp,
    ) -> Option<(Timestamp, SlotIndex)> {
        let mut best: Option<(Timestamp, SlotIndex)> = None;
        let mut from = self.hand;
        for looked in 0..self.slab.len() {
            if looked >= most && best.is_some() {
                break;
            }
            let next = self.slab.next(from).or_else(|| self.slab.next(0));
            let Some((index, slot)) = next else { break };
            from = index + 1;
            let used = slot.gate.last_activity();
            if slot.gate.is_evictable(now) && best.is_none_or(|(oldest, _)| used < oldest) {
                best = Some((used, index));
            }
        }
        best
    }

    /// Forgets a gate, if it may still go.
    pub(super) fn evict(&mut self, hasher: &KeyHash, index: SlotIndex, now: Timestamp) -> bool {
        let slot = self.slab.get(index);
        let may_go = slot.is_some_and(|slot| slot.gate.is_evictable(now));
        if may_go {
            self.remove(hasher, index);
        }
        may_go
    }

    fn remove(&mut self, hasher: &KeyHash, index: SlotIndex) {
        let Some(slot) = self.slab.remove(index) else {
            return;
        };
        let hash = hasher.hash(self.text.get(slot.key));
        self.table.remove(hash, index);
        self.text.remove(slot.key);
        self.counts.evicted += 1;
        if self.text.has_many_holes() {
            self.pack();
        }
    }

    /// Moves the text of the keys together.
    fn pack(&mut self) {
        let mut packed = Text::default();
        let mut from = 0;
        while let Some((index, slot)) = self.slab.next(from) {
            let text = packed.insert(self.text.get(slot.key));
            if let (Some(text), Some(slot)) = (text, self.slab.get_mut(index)) {
                slot.key = text;
            }
            from = index + 1;
        }
        self.text = packed;
    }

    /// Puts every gate under new settings, those where someone waits first of all into effect.
    pub(super) fn adopt(
        &mut self,
        hosts: &Arc<Hosts<HostSettings>>,
        now: Timestamp,
        wakers: &mut Vec<Waker>,
    ) {
        let before = std::mem::replace(&mut self.hosts, Arc::clone(hosts));
        let mut from = 0;
        while let Some((index, slot)) = self.slab.next(from) {
            from = index + 1;
            let (old, new) = (slot.settings, hosts.index_for(self.text.get(slot.key)));
            let Some(slot) = self.slab.get_mut(index) else {
                continue;
            };
            slot.settings = new;
            let (old, new) = (&before.get(old).gate, &hosts.get(new).gate);
            if old != new {
                slot.gate.adopt(old, new, now);
            }
        }
        let waited_for: Vec<SlotIndex> = self.due_at.keys().copied().collect();
        for index in waited_for {
            self.serve(index, now, wakers);
        }
    }

    /// A gate, its settings and the lines: what every decision needs.
    #[inline(always)]
    fn parts(&mut self, index: SlotIndex) -> (&mut Gate, &GateSettings, &mut Tickets) {
        let slot = self
            .slab
            .get_mut(index)
            .expect("a gate stays as long as anyone is in flight or in line");
        let settings = &self.hosts.get(slot.settings).gate;
        (&mut slot.gate, settings, &mut self.tickets)
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

    /// Calls `look` with up to `most` gates from `from` on; returns where to go on.
    pub(crate) fn look_at_some(
        &mut self,
        mut from: SlotIndex,
        most: usize,
        mut look: impl FnMut(&str, &mut Gate, &GateSettings, &Tickets),
    ) -> Option<SlotIndex> {
        for _ in 0..most {
            let (index, _) = self.slab.next(from)?;
            from = index + 1;
            let slot = self.slab.get_mut(index)?;
            let settings = &self.hosts.get(slot.settings).gate;
            look(
                self.text.get(slot.key),
                &mut slot.gate,
                settings,
                &self.tickets,
            );
        }
        Some(from)
    }

    /// What can be seen of a gate.
    pub(crate) fn look(&mut self, index: SlotIndex, now: Timestamp) -> GateSnapshot {
        let (gate, settings, tickets) = self.parts(index);
        gate.snapshot(settings, tickets, now)
    }

    /// For how many bytes of keys there is room.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.text.capacity()
    }

    pub(crate) fn key(&self, index: SlotIndex) -> &str {
        let slot = self.slab.get(index);
        slot.map_or("", |slot| self.text.get(slot.key))
    }
}

/// Who reads the clock first need not get the lock first. To a gate time does not go back: it would
/// refuse whoever comes from before its last event, and keep a log of it in the wrong order.
#[inline]
fn not_back(gate: &Gate, now: Timestamp) -> Timestamp {
    now.max(gate.last_activity())
}

/// Longer than alarms are late on a busy machine; after longer than that the machine was asleep, and
/// what came meanwhile must not leave at once.
const MOST_LATE_NANOS: u64 = 100_000_000;

/// Who does not wait at all has no deadline to miss: what keeps it is the reason.
fn without_deadline(reason: Reason, gate: &Gate, now: Timestamp) -> Reason {
    match reason {
        Reason::Deadline if gate.hold_until(now).is_some() => Reason::Hold,
        Reason::Deadline => Reason::Rate,
        reason => reason,
    }
}

/// An ask that does not wait.
#[inline]
fn ask_at_once(cost: u32, now: Timestamp) -> gate::Ask {
    gate::Ask {
        cost,
        ..gate::Ask::until(now)
    }
}

/// A seat that is not its owner's any more.
#[derive(Debug)]
pub(crate) struct Gone;

/// What a look at some slots has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swept {
    pub(super) evicted: usize,
    pub(super) finished: bool,
}

/// How close together wake-ups of one gate may be.
const GRAIN: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use policy::gate::GateOptions;

    use super::*;

    const KEY: &str = "api.example.com";

    /// A shard with one gate of 500 a second at which `waiting` wait since the beginning.
    fn shard(waiting: usize) -> (Shard, SlotIndex) {
        let mut options = GateOptions::default();
        for (name, value) in [("strategy", "fixed"), ("initial_rate", "500")] {
            options.set(name, value).unwrap();
        }
        let settings = HostSettings::from(options.build().unwrap());
        let mut shard = Shard::new(Arc::new(Hosts::new(settings)));
        let now = Timestamp::ZERO;
        let index = shard.insert(7, KEY, None, now).unwrap();
        while shard.try_acquire(index, 1, now).is_ok() {}
        for _ in 0..waiting {
            let ask = Ask::new(KEY);
            let asked = shard.acquire(index, &ask, now, Waker::noop(), now);
            assert!(matches!(asked, Asked::Waits { .. }));
        }
        shard.serve(index, now, &mut Vec::new());
        (shard, index)
    }

    #[test]
    fn an_alarm_that_is_late_costs_nobody_their_token() {
        let (mut shard, _) = shard(1000);
        let mut left = Vec::new();
        for ring in [3, 17, 90, 95, 180, 200] {
            shard.serve_due(Timestamp::from_millis(ring), &mut left);
        }
        assert_eq!(left.len(), 100, "500 a second for 200 ms");
    }

    #[test]
    fn what_came_while_the_machine_slept_does_not_leave_at_once() {
        let (mut shard, _) = shard(1000);
        let mut left = Vec::new();
        shard.serve_due(Timestamp::from_secs(20), &mut left);
        let most = 500 / 10 + 2;
        assert!((50..=most).contains(&left.len()), "{}", left.len());
    }

    #[test]
    fn a_late_look_by_someone_else_costs_nobody_their_token_either() {
        let (mut shard, index) = shard(1000);
        let mut left = Vec::new();
        for at in (7..=200).step_by(7) {
            let now = Timestamp::from_millis(at);
            shard.catch_up(index, now, &mut left);
            // Whoever asks looks at the tokens, and so forgets what the bucket cannot hold.
            assert!(shard.try_acquire(index, 1, now).is_err(), "no overtaking");
        }
        shard.serve_due(Timestamp::from_millis(200), &mut left);
        assert_eq!(left.len(), 100);
    }
}
