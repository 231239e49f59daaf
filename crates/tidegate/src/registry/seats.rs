//! Seats: where waiting futures collect their permit or refusal.
//!
//! A ticket of [`policy::line`] ends when it leaves the line, but its future can only collect the
//! result on its next poll. The seat bridges that gap: it first holds the waker to call, then the
//! permit or refusal to collect.
//!
//! A future may be leaked and never polled again. A result that is not collected within
//! [`COLLECT_WITHIN`] is taken back and its seat is freed. A future that was merely slow detects by
//! the generation that its seat was reused, and asks again.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use policy::gate;
use policy::line::Ticket;
use policy::time::Timestamp;

use super::slab::SlotIndex;
use crate::ask::Refusal;
use crate::clock::TasksRun;

/// Identifies a seat and the generation of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId {
    index: u32,
    generation: u32,
}

/// Far longer than a runtime needs to poll a woken task.
const COLLECT_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Seat {
    generation: u32,
    slot: SlotIndex,
    state: SeatState,
}

/// The content of a seat.
#[derive(Debug)]
pub(super) enum SeatState {
    /// The owner's ticket is in line.
    Waiting { ticket: Ticket, waker: Waker },
    /// A permit is ready to be collected.
    Admitted(gate::Permit),
    /// A refusal is ready to be collected.
    Refused(Refusal),
    /// The seat is free.
    Free { next: Option<u32> },
}

#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
    free: Option<u32>,
    /// The seat of each ticket in line, indexed by ticket.
    by_ticket: Vec<u32>,
    /// Filled seats, oldest first; most have been collected since.
    filled: VecDeque<(Timestamp, SeatId)>,
}

impl Seats {
    /// Takes a seat for a ticket that has just joined the line of `slot`.
    pub(super) fn take(&mut self, slot: SlotIndex, ticket: Ticket, waker: Waker) -> SeatId {
        let state = SeatState::Waiting { ticket, waker };
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

    /// The content of a seat and its gate, if the seat still belongs to `id`'s owner.
    pub(super) fn look(&mut self, id: SeatId) -> Option<(SlotIndex, &mut SeatState)> {
        let seat = self.seats.get_mut(id.index as usize)?;
        (seat.generation == id.generation).then_some((seat.slot, &mut seat.state))
    }

    /// Stores the result of a ticket that has just left the line. The caller calls the returned
    /// waker after unlocking.
    pub(super) fn fill(
        &mut self,
        ticket: Ticket,
        news: SeatState,
        now: Timestamp,
    ) -> Option<Waker> {
        let index = self.by_ticket[ticket.index()];
        let seat = &mut self.seats[index as usize];
        let id = SeatId {
            index,
            generation: seat.generation,
        };
        let before = std::mem::replace(&mut seat.state, news);
        self.forget_collected();
        self.filled.push_back((now, id));
        match before {
            SeatState::Waiting { waker, .. } => Some(waker),
            SeatState::Admitted(_) | SeatState::Refused(_) | SeatState::Free { .. } => None,
        }
    }

    /// Frees the owner's seat and returns its content.
    pub(super) fn leave(&mut self, id: SeatId) -> Option<SeatState> {
        let seat = self.seats.get_mut(id.index as usize)?;
        if seat.generation != id.generation {
            return None;
        }
        let next = self.free.replace(id.index);
        seat.generation = seat.generation.wrapping_add(1);
        Some(std::mem::replace(&mut seat.state, SeatState::Free { next }))
    }

    /// The latest time at which [`Seats::forfeit_next`] has to be called.
    pub(super) fn next_forfeit(&self) -> Option<Timestamp> {
        let (filled_at, _) = self.filled.front()?;
        Some(*filled_at + COLLECT_WITHIN)
    }

    /// Takes back a permit that was not collected, with its gate. Call it until it returns `None`.
    /// If its task could not run since it was filled, it gets as much time from when it can.
    pub(super) fn forfeit_next(
        &mut self,
        now: Timestamp,
        tasks: TasksRun,
    ) -> Option<(SlotIndex, gate::Permit)> {
        while let Some(&(filled_at, id)) = self.filled.front() {
            let is_there = self.look(id).is_some();
            if is_there && now.since(filled_at) < COLLECT_WITHIN {
                return None;
            }
            self.filled.pop_front();
            if is_there && filled_at > tasks.last {
                self.filled.push_back((tasks.next, id));
                continue;
            }
            let slot = self.look(id).map(|(slot, _)| slot);
            if let (Some(slot), Some(SeatState::Admitted(permit))) = (slot, self.leave(id)) {
                return Some((slot, permit));
            }
        }
        None
    }

    /// Removes collected results from the front of the list. The list is bounded by the oldest
    /// uncollected result, and so covers at most five seconds.
    fn forget_collected(&mut self) {
        while let Some(&(_, id)) = self.filled.front()
            && self.look(id).is_none()
        {
            self.filled.pop_front();
        }
    }

    fn free_seat(&mut self) -> u32 {
        if let Some(index) = self.free {
            if let SeatState::Free { next } = self.seats[index as usize].state {
                self.free = next;
            }
            return index;
        }
        self.seats.push(Seat {
            generation: 0,
            slot: 0,
            state: SeatState::Free { next: None },
        });
        u32::try_from(self.seats.len() - 1).expect("lines are bounded below 2^32")
    }
}

#[cfg(test)]
mod tests {
    use policy::line::{Class, LineId, Tickets};

    use super::*;

    /// One line and the seats of its tickets.
    /// Tasks run all the time.
    fn at_any_time() -> TasksRun {
        TasksRun {
            last: Timestamp::MAX,
            next: Timestamp::MAX,
        }
    }

    struct Line {
        tickets: Tickets,
        line: LineId,
        seats: Seats,
    }

    impl Line {
        fn new() -> Self {
            Self {
                tickets: Tickets::new(),
                line: LineId::NONE,
                seats: Seats::default(),
            }
        }

        fn join(&mut self) -> SeatId {
            let ticket = self
                .tickets
                .join(&mut self.line, Class::Interactive, 1, Timestamp::MAX);
            self.seats.take(0, ticket, Waker::noop().clone())
        }

        /// Refuses the first ticket in line.
        fn refuse_first(&mut self, now: Timestamp) {
            let ticket = self
                .tickets
                .leave_first(&mut self.line)
                .expect("a ticket is in line");
            let refused = SeatState::Refused(Refusal::new(gate::Reason::Deadline, None, now));
            assert!(
                self.seats.fill(ticket, refused, now).is_some(),
                "its waker is returned"
            );
        }
    }

    #[test]
    fn stores_result_in_the_seat_of_its_ticket() {
        let mut line = Line::new();
        let [first, second] = [line.join(), line.join()];
        line.refuse_first(Timestamp::ZERO);
        assert!(matches!(
            line.seats.look(first),
            Some((0, SeatState::Refused(_)))
        ));
        assert!(matches!(
            line.seats.look(second),
            Some((0, SeatState::Waiting { .. }))
        ));
        assert!(matches!(
            line.seats.leave(first),
            Some(SeatState::Refused(_))
        ));
        assert!(line.seats.leave(first).is_none(), "once");
    }

    #[test]
    fn reused_seat_is_invisible_to_its_old_owner() {
        let mut line = Line::new();
        let old = line.join();
        line.refuse_first(Timestamp::ZERO);
        assert!(
            line.seats
                .forfeit_next(Timestamp::ZERO + COLLECT_WITHIN, at_any_time())
                .is_none()
        );
        let new = line.join();
        assert_eq!(old.index, new.index, "seats are used again");
        assert!(line.seats.look(old).is_none());
        assert!(line.seats.leave(old).is_none());
        assert!(line.seats.look(new).is_some());
    }

    #[test]
    fn takes_back_uncollected_permit_after_five_seconds() {
        let mut line = Line::new();
        let at = Timestamp::from_secs(10);
        assert_eq!(line.seats.next_forfeit(), None);
        let seat = line.join();
        line.refuse_first(at);
        assert_eq!(line.seats.next_forfeit(), Some(Timestamp::from_secs(15)));
        line.seats
            .forfeit_next(Timestamp::from_nanos(14_999_999_999), at_any_time());
        assert!(line.seats.look(seat).is_some());
        line.seats
            .forfeit_next(Timestamp::from_secs(15), at_any_time());
        assert!(line.seats.look(seat).is_none());
        assert_eq!(line.seats.next_forfeit(), None);
    }

    #[test]
    fn memory_is_bounded_with_collected_and_leaked_seats() {
        let mut line = Line::new();
        let mut now = Timestamp::ZERO;
        for round in 0..100_000 {
            now = now + Duration::from_millis(10);
            line.seats.forfeit_next(now, at_any_time());
            let seat = line.join();
            line.refuse_first(now);
            // Two of three are leaked.
            if round % 3 == 0 {
                line.seats.leave(seat);
            }
        }
        // All results of the last five seconds.
        assert!(line.seats.seats.len() <= 510, "{}", line.seats.seats.len());
        assert!(
            line.seats.filled.len() <= 510,
            "{}",
            line.seats.filled.len()
        );
        assert_eq!(line.seats.by_ticket.len(), 1);
    }

    #[test]
    fn forgets_results_collected_at_once() {
        let mut line = Line::new();
        for _ in 0..1000 {
            let seat = line.join();
            line.refuse_first(Timestamp::ZERO);
            line.seats.leave(seat);
        }
        assert_eq!((line.seats.seats.len(), line.seats.filled.len()), (1, 1));
    }
}
