//! Where those who wait are told that they may leave.
//!
//! A ticket of [`policy::line`] ends the moment it leaves the line, but the future it belongs to
//! hears of it only when it is polled next. The seat is what it has meanwhile: first the waker to
//! call, then the permit or the refusal to collect.
//!
//! A future may be leaked and never polled again. What it does not collect within
//! [`COLLECT_WITHIN`] is taken back and its seat is free; a future that was only slow finds
//! somebody else's or nobody's seat by its generation, and asks anew.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use policy::gate;
use policy::line::Ticket;
use policy::time::Timestamp;

use super::slab::SlotIndex;
use crate::ask::Refusal;

/// Names a seat, and which of its owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId {
    index: u32,
    generation: u32,
}

/// A task that gets no turn within this has more to worry about than its place in line.
const COLLECT_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Seat {
    generation: u32,
    slot: SlotIndex,
    state: State,
}

/// What is in a seat.
#[derive(Debug)]
pub(super) enum State {
    /// Someone in line.
    Waiting { ticket: Ticket, waker: Waker },
    /// A permit to collect.
    Admitted(gate::Permit),
    /// A refusal to collect.
    Refused(Refusal),
    /// Nothing: it is nobody's.
    Free { next: Option<u32> },
}

#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
    free: Option<u32>,
    /// The seat of each ticket in line, by the ticket's index.
    by_ticket: Vec<u32>,
    /// What was put into seats, the oldest first; most of it has been collected since.
    told: VecDeque<(Timestamp, SeatId)>,
}

impl Seats {
    /// A seat for someone who has just joined the line of `slot`.
    pub(super) fn take(&mut self, slot: SlotIndex, ticket: Ticket, waker: Waker) -> SeatId {
        let state = State::Waiting { ticket, waker };
        let index = self.free_seat();
        let seat = &mut self.seats[index as usize];
        seat.slot = slot;
        seat.state = state;
        let generation = seat.generation;
        if self.by_ticket.len() <= ticket.index() {
            self.by_ticket.resize(ticket.index() + 1, 0);
        }
        self.by_ticket[ticket.index()] = index;
        SeatId { index, generation }
    }

    /// What is in a seat and for which gate, if it is still its owner's.
    pub(super) fn look(&mut self, id: SeatId) -> Option<(SlotIndex, &mut State)> {
        let seat = self.seats.get_mut(id.index as usize)?;
        (seat.generation == id.generation).then_some((seat.slot, &mut seat.state))
    }

    /// Says what became of someone who has just left the line; the waker is to be called after
    /// unlocking.
    pub(super) fn tell(&mut self, ticket: Ticket, news: State, now: Timestamp) -> Option<Waker> {
        let index = self.by_ticket[ticket.index()];
        let seat = &mut self.seats[index as usize];
        let id = SeatId {
            index,
            generation: seat.generation,
        };
        let before = std::mem::replace(&mut seat.state, news);
        self.forget_collected();
        self.told.push_back((now, id));
        match before {
            State::Waiting { waker, .. } => Some(waker),
            State::Admitted(_) | State::Refused(_) | State::Free { .. } => None,
        }
    }

    /// Its owner leaves the seat and takes along what was in it.
    pub(super) fn leave(&mut self, id: SeatId) -> Option<State> {
        let seat = self.seats.get_mut(id.index as usize)?;
        if seat.generation != id.generation {
            return None;
        }
        let next = self.free.replace(id.index);
        seat.generation = seat.generation.wrapping_add(1);
        Some(std::mem::replace(&mut seat.state, State::Free { next }))
    }

    /// When [`Seats::forfeit_next`] has something to do at the latest.
    pub(super) fn next_forfeit(&self) -> Option<Timestamp> {
        let (told, _) = self.told.front()?;
        Some(*told + COLLECT_WITHIN)
    }

    /// Takes back the permit of someone who never came for it, with its gate. Call again until
    /// `None`.
    pub(super) fn forfeit_next(&mut self, now: Timestamp) -> Option<(SlotIndex, gate::Permit)> {
        while let Some(&(told, id)) = self.told.front() {
            let is_there = self.look(id).is_some();
            if is_there && now.since(told) < COLLECT_WITHIN {
                return None;
            }
            self.told.pop_front();
            let slot = self.look(id).map(|(slot, _)| slot);
            if let (Some(slot), Some(State::Admitted(permit))) = (slot, self.leave(id)) {
                return Some((slot, permit));
            }
        }
        None
    }

    /// What was collected needs no more looking after. The list stays as short as the oldest news
    /// that nobody came for, and so five seconds long at most.
    fn forget_collected(&mut self) {
        while let Some(&(_, id)) = self.told.front()
            && self.look(id).is_none()
        {
            self.told.pop_front();
        }
    }

    fn free_seat(&mut self) -> u32 {
        if let Some(index) = self.free {
            if let State::Free { next } = self.seats[index as usize].state {
                self.free = next;
            }
            return index;
        }
        self.seats.push(Seat {
            generation: 0,
            slot: 0,
            state: State::Free { next: None },
        });
        u32::try_from(self.seats.len() - 1).expect("lines are bounded below 2^32")
    }
}
