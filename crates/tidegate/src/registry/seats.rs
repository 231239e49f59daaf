//! Seats: where futures that wait collect their permit or refusal.
//!
//! A ticket of [`policy::line`] ends the moment it leaves the line, but the future it belongs to
//! can collect only when it is polled next. The seat is what it has meanwhile: first the waker to
//! call, then the permit or the refusal to collect.
//!
//! A future may be leaked and never polled again. What it does not collect within
//! [`COLLECT_WITHIN`] is taken back and its seat is free; a future that was only slow finds
//! by its generation that the seat is not its own any more, and asks again.

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

/// Far longer than a runtime needs to poll a woken task.
const COLLECT_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Seat {
    generation: u32,
    slot: SlotIndex,
    state: SeatState,
}

/// What is in a seat.
#[derive(Debug)]
pub(super) enum SeatState {
    /// A ticket in line.
    Waiting { ticket: Ticket, waker: Waker },
    /// A permit to collect.
    Admitted(gate::Permit),
    /// A refusal to collect.
    Refused(Refusal),
    /// Nothing: it is free.
    Free { next: Option<u32> },
}

#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
    free: Option<u32>,
    /// The seat of each ticket in line, by the ticket's index.
    by_ticket: Vec<u32>,
    /// What was put into seats, the oldest first; most of it has been collected since.
    filled: VecDeque<(Timestamp, SeatId)>,
}

impl Seats {
    /// A seat for a ticket that has just joined the line of `slot`.
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

    /// What is in a seat and for which gate, if it is still its owner's.
    pub(super) fn look(&mut self, id: SeatId) -> Option<(SlotIndex, &mut SeatState)> {
        let seat = self.seats.get_mut(id.index as usize)?;
        (seat.generation == id.generation).then_some((seat.slot, &mut seat.state))
    }

    /// Puts in what became of a ticket that has just left the line; the waker is to be called after
    /// unlocking.
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

    /// Its owner leaves the seat and takes along what was in it.
    pub(super) fn leave(&mut self, id: SeatId) -> Option<SeatState> {
        let seat = self.seats.get_mut(id.index as usize)?;
        if seat.generation != id.generation {
            return None;
        }
        let next = self.free.replace(id.index);
        seat.generation = seat.generation.wrapping_add(1);
        Some(std::mem::replace(&mut seat.state, SeatState::Free { next }))
    }

    /// When [`Seats::forfeit_next`] has something to do at the latest.
    pub(super) fn next_forfeit(&self) -> Option<Timestamp> {
        let (filled_at, _) = self.filled.front()?;
        Some(*filled_at + COLLECT_WITHIN)
    }

    /// Takes back a permit that was not collected, with its gate. Call again until
    /// `None`.
    pub(super) fn forfeit_next(&mut self, now: Timestamp) -> Option<(SlotIndex, gate::Permit)> {
        while let Some(&(filled_at, id)) = self.filled.front() {
            let is_there = self.look(id).is_some();
            if is_there && now.since(filled_at) < COLLECT_WITHIN {
                return None;
            }
            self.filled.pop_front();
            let slot = self.look(id).map(|(slot, _)| slot);
            if let (Some(slot), Some(SeatState::Admitted(permit))) = (slot, self.leave(id)) {
                return Some((slot, permit));
            }
        }
        None
    }

    /// What was collected needs no more looking after. The list stays as short as the oldest news
    /// that was not collected, and so five seconds long at most.
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

    /// One line, and the seats of those in it.
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

        /// Refuses the first in line.
        fn refuse_first(&mut self, now: Timestamp) {
            let ticket = self
                .tickets
                .leave_first(&mut self.line)
                .expect("a ticket is in line");
            let refused = SeatState::Refused(Refusal::new(gate::Reason::Deadline, None, now));
            assert!(
                self.seats.fill(ticket, refused, now).is_some(),
                "it is woken"
            );
        }
    }

    #[test]
    fn news_go_to_the_seat_of_their_ticket() {
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
    fn a_seat_that_is_taken_again_is_not_its_old_owners() {
        let mut line = Line::new();
        let old = line.join();
        line.refuse_first(Timestamp::ZERO);
        assert!(
            line.seats
                .forfeit_next(Timestamp::ZERO + COLLECT_WITHIN)
                .is_none()
        );
        let new = line.join();
        assert_eq!(old.index, new.index, "seats are used again");
        assert!(line.seats.look(old).is_none());
        assert!(line.seats.leave(old).is_none());
        assert!(line.seats.look(new).is_some());
    }

    #[test]
    fn uncollected_permit_is_due_five_seconds_later() {
        let mut line = Line::new();
        let at = Timestamp::from_secs(10);
        assert_eq!(line.seats.next_forfeit(), None);
        let seat = line.join();
        line.refuse_first(at);
        assert_eq!(line.seats.next_forfeit(), Some(Timestamp::from_secs(15)));
        line.seats
            .forfeit_next(Timestamp::from_nanos(14_999_999_999));
        assert!(line.seats.look(seat).is_some());
        line.seats.forfeit_next(Timestamp::from_secs(15));
        assert!(line.seats.look(seat).is_none());
        assert_eq!(line.seats.next_forfeit(), None);
    }

    #[test]
    fn seats_and_news_do_not_grow_with_what_was_collected_or_leaked() {
        let mut line = Line::new();
        let mut now = Timestamp::ZERO;
        for round in 0..100_000 {
            now = now + Duration::from_millis(10);
            line.seats.forfeit_next(now);
            let seat = line.join();
            line.refuse_first(now);
            // Two of three are leaked.
            if round % 3 == 0 {
                line.seats.leave(seat);
            }
        }
        // What can come in five seconds.
        assert!(line.seats.seats.len() <= 510, "{}", line.seats.seats.len());
        assert!(
            line.seats.filled.len() <= 510,
            "{}",
            line.seats.filled.len()
        );
        assert_eq!(line.seats.by_ticket.len(), 1);
    }

    #[test]
    fn news_that_are_collected_at_once_are_not_kept() {
        let mut line = Line::new();
        for _ in 0..1000 {
            let seat = line.join();
            line.refuse_first(Timestamp::ZERO);
            line.seats.leave(seat);
        }
        assert_eq!((line.seats.seats.len(), line.seats.filled.len()), (1, 1));
    }
}
