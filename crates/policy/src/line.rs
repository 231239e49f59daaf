//! The waiting line of a gate: which ticket leaves next, and which deadline passes first.
//!
//! Tickets of a class leave strictly in the order they joined. Interactive tickets leave before
//! background ones, but at most [`SHARE`] in a row while a background ticket waits, so that none
//! waits forever. A ticket of class [`Class::Front`] joins before all interactive ones: its ask had
//! its turn before and could not use it. The line knows nothing of tokens or breakers; the gate asks it for the next
//! ticket, and removes it when it may leave.
//!
//! The lines of all gates share one arena, [`Tickets`]. A gate stores four bytes for its line,
//! joining and leaving do not allocate once the arena has reached its peak size, and freed entries
//! are reused.

use crate::time::Timestamp;

mod deadlines;

use deadlines::{Deadlines, NIL};

/// A place in a line. It never becomes valid again after it has left or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// A small number, unique among the tickets in line, to index per-ticket data.
    pub fn index(&self) -> usize {
        self.index as usize
    }
}

/// Which asks leave first when several wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// A person waits for the response. The default.
    #[default]
    Interactive,
    /// Background work: leaves after interactive work, but gets at least every eighth turn.
    Background,
    /// It had its turn at this gate before and gave it up, because it needs other gates as well:
    /// leaves before interactive work.
    Front,
}

/// How many interactive tickets may leave in a row while a background one waits. Seven of eight is
/// close to absolute priority, and still bounds a background wait to eight times its share.
pub const SHARE: u32 = 7;

/// Identifies a line in its arena; [`LineId::NONE`] while it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineId(u32);

impl LineId {
    /// The line of a gate without waiting asks.
    pub const NONE: Self = Self(NIL);
}

/// The tickets that leave before a given one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// The number of tickets.
    pub tickets: u32,
    /// Their total cost.
    pub cost: u64,
}

/// An arena of waiting lines.
#[derive(Clone, Debug)]
pub struct Tickets {
    waiters: Vec<Waiter>,
    free_waiter: u32,
    deadlines: Deadlines,
    lines: Vec<Line>,
    free_line: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    /// Incremented for each ticket in this place, so that stale tickets are recognised.
    generation: u32,
    line: LineId,
    class: Class,
    cost: u32,
    previous: u32,
    /// The next in line, or the next free place.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    front: Queue,
    interactive: Queue,
    background: Queue,
    /// Interactive tickets that left since a background ticket left or started to wait.
    run: u32,
    /// The root of the heap of deadlines; for a free line, the next free line.
    soonest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
    len: u32,
    cost: u64,
}

impl Tickets {
    /// An empty arena.
    pub fn new() -> Self {
        Self {
            waiters: Vec::new(),
            free_waiter: NIL,
            deadlines: Deadlines::default(),
            lines: Vec::new(),
            free_line: NIL,
        }
    }

    /// Adds a ticket at the end of the line of its class.
    pub fn join(
        &mut self,
        line: &mut LineId,
        class: Class,
        cost: u32,
        deadline: Timestamp,
    ) -> Ticket {
        if *line == LineId::NONE {
            *line = self.open_line();
        }
        let tail = self.line_mut(*line).queue_mut(class).tail;
        let index = self.seat(Waiter {
            generation: 0,
            line: *line,
            class,
            cost,
            previous: tail,
            next: NIL,
        });
        if tail != NIL {
            self.waiter_mut(tail).next = index;
        }
        let queue = self.line_mut(*line).queue_mut(class);
        if tail == NIL {
            queue.head = index;
        }
        queue.tail = index;
        queue.len += 1;
        queue.cost += u64::from(cost);
        let mut root = self.line(*line).soonest;
        self.deadlines.insert(&mut root, index, deadline);
        self.line_mut(*line).soonest = root;
        Ticket {
            index,
            generation: self.waiter(index).generation,
        }
    }

    /// The number of tickets in `line`.
    pub fn waiting(&self, line: LineId) -> u32 {
        if line == LineId::NONE {
            return 0;
        }
        let line = self.line(line);
        line.front.len + line.interactive.len + line.background.len
    }

    /// The cost of the next ticket.
    pub fn first_cost(&self, line: LineId) -> Option<u32> {
        self.first(line).map(|index| self.waiter(index).cost)
    }

    /// Removes the next ticket.
    pub fn leave_first(&mut self, line: &mut LineId) -> Option<Ticket> {
        let index = self.first(*line)?;
        let class = self.waiter(index).class;
        let present = self.line_mut(*line);
        present.run = match class {
            // It overtakes, whether or not background tickets wait.
            Class::Front => present.run,
            Class::Interactive if present.background.len > 0 => present.run + 1,
            Class::Interactive | Class::Background => 0,
        };
        Some(self.remove(line, index))
    }

    /// Removes a ticket before its turn. Returns `false` if it had already left.
    pub fn cancel(&mut self, line: &mut LineId, ticket: Ticket) -> bool {
        let known = self.waiters.get(ticket.index()).is_some_and(|waiter| {
            waiter.generation == ticket.generation
                && waiter.line == *line
                && waiter.line != LineId::NONE
        });
        if known {
            self.remove(line, ticket.index);
        }
        known
    }

    /// The earliest deadline in `line`.
    pub fn next_deadline(&self, line: LineId) -> Option<Timestamp> {
        let soonest = self.soonest(line)?;
        Some(self.deadlines.at(soonest))
    }

    /// Removes the ticket with the earliest deadline.
    pub fn leave_soonest_deadline(&mut self, line: &mut LineId) -> Option<Ticket> {
        let soonest = self.soonest(*line)?;
        Some(self.remove(line, soonest))
    }

    /// The tickets that would leave before a ticket of `class` that joins now, assuming that no
    /// others join.
    pub fn ahead(&self, line: LineId, class: Class) -> Ahead {
        if line == LineId::NONE {
            return Ahead::default();
        }
        let Line {
            front,
            interactive,
            background,
            run,
            ..
        } = *self.line(line);
        match class {
            Class::Front => Ahead {
                tickets: front.len,
                cost: front.cost,
            },
            Class::Interactive => {
                let turns = (run.saturating_add(interactive.len) / SHARE).min(background.len);
                Ahead {
                    tickets: front.len + interactive.len + turns,
                    cost: front.cost + interactive.cost + background.cost_of(turns),
                }
            }
            Class::Background => {
                let first = u64::from(SHARE.saturating_sub(run));
                let turns = first + u64::from(SHARE) * u64::from(background.len);
                let turns = u32::try_from(turns)
                    .unwrap_or(u32::MAX)
                    .min(interactive.len);
                Ahead {
                    tickets: front.len + background.len + turns,
                    cost: front.cost + background.cost + interactive.cost_of(turns),
                }
            }
        }
    }

    /// The costs of the tickets counted by [`Tickets::ahead`], in the order they leave.
    pub fn costs_ahead(&self, line: LineId, class: Class) -> impl Iterator<Item = u32> {
        let Line {
            front,
            interactive,
            background,
            mut run,
            ..
        } = match line {
            LineId::NONE => Line::EMPTY,
            line => *self.line(line),
        };
        let (mut front, mut interactive, mut background) =
            (front.head, interactive.head, background.head);
        std::iter::from_fn(move || {
            if front != NIL || class == Class::Front {
                let waiter = (front != NIL).then(|| self.waiter(front))?;
                front = waiter.next;
                return Some(waiter.cost);
            }
            // The new ticket is behind the last one of its class.
            let has_interactive = interactive != NIL || class == Class::Interactive;
            let has_background = background != NIL || class == Class::Background;
            let takes_background = !has_interactive || (has_background && run >= SHARE);
            let next = if takes_background {
                run = 0;
                &mut background
            } else {
                run = if has_background { run + 1 } else { 0 };
                &mut interactive
            };
            if *next == NIL {
                return None;
            }
            let waiter = self.waiter(*next);
            *next = waiter.next;
            Some(waiter.cost)
        })
    }

    fn first(&self, line: LineId) -> Option<u32> {
        if line == LineId::NONE {
            return None;
        }
        let Line {
            front,
            interactive,
            background,
            run,
            ..
        } = *self.line(line);
        if front.len > 0 {
            return Some(front.head);
        }
        let background_first = interactive.len == 0 || (background.len > 0 && run >= SHARE);
        Some(if background_first {
            background.head
        } else {
            interactive.head
        })
    }

    fn soonest(&self, line: LineId) -> Option<u32> {
        (line != LineId::NONE).then(|| self.line(line).soonest)
    }

    fn remove(&mut self, line: &mut LineId, index: u32) -> Ticket {
        let Waiter {
            generation,
            class,
            cost,
            previous,
            next,
            ..
        } = *self.waiter(index);
        if previous != NIL {
            self.waiter_mut(previous).next = next;
        }
        if next != NIL {
            self.waiter_mut(next).previous = previous;
        }
        let mut root = self.line(*line).soonest;
        self.deadlines.remove(&mut root, index);
        let present = self.line_mut(*line);
        present.soonest = root;
        let queue = present.queue_mut(class);
        if queue.head == index {
            queue.head = next;
        }
        if queue.tail == index {
            queue.tail = previous;
        }
        queue.len -= 1;
        queue.cost -= u64::from(cost);
        self.vacate(index);
        if self.waiting(*line) == 0 {
            self.close_line(line);
        }
        Ticket { index, generation }
    }

    fn seat(&mut self, waiter: Waiter) -> u32 {
        let index = self.free_waiter;
        if index == NIL {
            self.waiters.push(waiter);
            return u32::try_from(self.waiters.len() - 1).expect("fewer than 2^32 wait at once");
        }
        let generation = self.waiter(index).generation;
        self.free_waiter = self.waiter(index).next;
        *self.waiter_mut(index) = Waiter {
            generation,
            ..waiter
        };
        index
    }

    fn vacate(&mut self, index: u32) {
        let free = self.free_waiter;
        let waiter = self.waiter_mut(index);
        waiter.generation = waiter.generation.wrapping_add(1);
        waiter.line = LineId::NONE;
        waiter.next = free;
        self.free_waiter = index;
    }

    fn open_line(&mut self) -> LineId {
        let id = self.free_line;
        if id == NIL {
            self.lines.push(Line::EMPTY);
            return LineId(
                u32::try_from(self.lines.len() - 1).expect("no more lines than waiters"),
            );
        }
        self.free_line = self.line(LineId(id)).soonest;
        *self.line_mut(LineId(id)) = Line::EMPTY;
        LineId(id)
    }

    fn close_line(&mut self, line: &mut LineId) {
        self.line_mut(*line).soonest = self.free_line;
        self.free_line = line.0;
        *line = LineId::NONE;
    }

    fn line(&self, id: LineId) -> &Line {
        &self.lines[id.0 as usize]
    }

    fn line_mut(&mut self, id: LineId) -> &mut Line {
        &mut self.lines[id.0 as usize]
    }

    fn waiter(&self, index: u32) -> &Waiter {
        &self.waiters[index as usize]
    }

    fn waiter_mut(&mut self, index: u32) -> &mut Waiter {
        &mut self.waiters[index as usize]
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Self::new()
    }
}

impl Line {
    const EMPTY: Self = Self {
        front: Queue::EMPTY,
        interactive: Queue::EMPTY,
        background: Queue::EMPTY,
        run: 0,
        soonest: NIL,
    };

    fn queue_mut(&mut self, class: Class) -> &mut Queue {
        match class {
            Class::Front => &mut self.front,
            Class::Interactive => &mut self.interactive,
            Class::Background => &mut self.background,
        }
    }
}

impl Queue {
    const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
        len: 0,
        cost: 0,
    };

    /// The cost of the first `turns` tickets, assuming the average cost for each: exact if all cost
    /// the same.
    fn cost_of(&self, turns: u32) -> u64 {
        match self.len {
            0 => 0,
            len => self.cost.saturating_mul(u64::from(turns)) / u64::from(len),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEVER: Timestamp = Timestamp::MAX;

    fn drain(tickets: &mut Tickets, line: &mut LineId) -> Vec<Ticket> {
        std::iter::from_fn(|| tickets.leave_first(line)).collect()
    }

    #[test]
    fn tickets_leave_in_order() {
        let (mut tickets, mut line) = (Tickets::new(), LineId::NONE);
        let came: Vec<Ticket> = (0..5)
            .map(|_| tickets.join(&mut line, Class::Interactive, 1, NEVER))
            .collect();
        assert_eq!(tickets.waiting(line), 5);
        assert_eq!(drain(&mut tickets, &mut line), came);
        assert_eq!((line, tickets.waiting(line)), (LineId::NONE, 0));
        assert_eq!(
            (tickets.first_cost(line), tickets.next_deadline(line)),
            (None, None)
        );
    }

    #[test]
    fn cancelling_frees_the_place_once() {
        let (mut tickets, mut line) = (Tickets::new(), LineId::NONE);
        let [first, middle, last] =
            [1, 2, 3].map(|cost| tickets.join(&mut line, Class::Interactive, cost, NEVER));
        assert!(tickets.cancel(&mut line, middle));
        assert!(!tickets.cancel(&mut line, middle));
        assert_eq!(tickets.ahead(line, Class::Interactive).cost, 4);
        assert_eq!(drain(&mut tickets, &mut line), [first, last]);
        let again = tickets.join(&mut line, Class::Interactive, 1, NEVER);
        assert_eq!(again.index(), last.index(), "places are used again");
        assert!(
            !tickets.cancel(&mut line, last),
            "a stale ticket does not match the new one"
        );
        let mut other = LineId::NONE;
        assert!(
            !tickets.cancel(&mut other, again),
            "nor does a ticket of another line"
        );
        tickets.join(&mut other, Class::Interactive, 1, NEVER);
        assert!(!tickets.cancel(&mut other, again));
        assert!(tickets.cancel(&mut line, again));
        assert_eq!((tickets.waiters.len(), tickets.lines.len()), (3, 2));
    }

    #[test]
    fn front_leaves_before_all_others_in_order() {
        let (mut tickets, mut line) = (Tickets::new(), LineId::NONE);
        let mut join = |class| tickets.join(&mut line, class, 2, NEVER);
        let background = join(Class::Background);
        let interactive = join(Class::Interactive);
        let front = [join(Class::Front), join(Class::Front)];
        let ahead = |class| tickets.ahead(line, class);
        assert_eq!(ahead(Class::Front).tickets, 2);
        assert_eq!(ahead(Class::Interactive).tickets, 3);
        assert_eq!(ahead(Class::Background).cost, 8);
        for class in [Class::Front, Class::Interactive, Class::Background] {
            let costs: u64 = tickets.costs_ahead(line, class).map(u64::from).sum();
            assert_eq!(costs, ahead(class).cost, "{class:?}");
        }
        assert_eq!(tickets.waiting(line), 4);
        let [first, second] = front;
        let left = drain(&mut tickets, &mut line);
        assert_eq!(left, [first, second, interactive, background]);
    }

    #[test]
    fn interactive_leaves_first_and_background_every_eighth_time() {
        let (mut tickets, mut line) = (Tickets::new(), LineId::NONE);
        let background: Vec<Ticket> = (0..2)
            .map(|_| tickets.join(&mut line, Class::Background, 1, NEVER))
            .collect();
        for _ in 0..20 {
            tickets.join(&mut line, Class::Interactive, 1, NEVER);
        }
        let left = drain(&mut tickets, &mut line);
        let places: Vec<usize> = background
            .iter()
            .map(|ticket| left.iter().position(|t| t == ticket).unwrap())
            .collect();
        assert_eq!(places, [7, 15]);
    }

    #[test]
    fn counts_turns_only_while_both_classes_wait() {
        let (mut tickets, mut line) = (Tickets::new(), LineId::NONE);
        let join =
            |tickets: &mut Tickets, line: &mut LineId, class| tickets.join(line, class, 1, NEVER);
        for _ in 0..=SHARE {
            join(&mut tickets, &mut line, Class::Interactive);
        }
        for _ in 0..SHARE {
            tickets.leave_first(&mut line);
        }
        join(&mut tickets, &mut line, Class::Background);
        let last = join(&mut tickets, &mut line, Class::Interactive);
        tickets.leave_first(&mut line);
        assert_eq!(
            tickets.leave_first(&mut line),
            Some(last),
            "the new ticket has to wait its turn"
        );
    }

    #[test]
    fn finds_the_earliest_deadline_in_any_order() {
        let (mut tickets, mut line) = (Tickets::new(), LineId::NONE);
        let secs = Timestamp::from_secs;
        let [late, soon, later] =
            [20, 10, 30].map(|at| tickets.join(&mut line, Class::Interactive, 1, secs(at)));
        assert_eq!(tickets.next_deadline(line), Some(secs(10)));
        assert_eq!(tickets.leave_soonest_deadline(&mut line), Some(soon));
        assert_eq!(tickets.next_deadline(line), Some(secs(20)));
        assert_eq!(tickets.leave_first(&mut line), Some(late));
        assert_eq!(tickets.leave_soonest_deadline(&mut line), Some(later));
        assert_eq!(tickets.leave_soonest_deadline(&mut line), None);
    }

    proptest! {
        /// Random joins, departures, expiries and cancellations over several lines: classes leave
        /// in order, no ticket is lost or duplicated, and `ahead` predicts the exact position.
        #[test]
        fn lines_keep_order_and_lose_no_ticket(steps in prop::collection::vec((0usize..3, 0u8..10, 0u64..40), 1..400)) {
            let mut tickets = Tickets::new();
            let mut lines = [LineId::NONE; 3];
            let mut models: [Vec<(Ticket, Class, Timestamp)>; 3] = Default::default();
            for (which, action, number) in steps {
                let (line, model) = (&mut lines[which], &mut models[which]);
                match action {
                    0..=4 => {
                        let class = [Class::Interactive, Class::Interactive, Class::Background, Class::Background, Class::Front][usize::from(action)];
                        let ahead = tickets.ahead(*line, class);
                        prop_assert_eq!(tickets.costs_ahead(*line, class).count(), ahead.tickets as usize);
                        prop_assert_eq!(u64::from(ahead.tickets), ahead.cost, "each costs 1");
                        let deadline = Timestamp::from_secs(number);
                        let ticket = tickets.join(line, class, 1, deadline);
                        let (mut copy, mut copied_line) = (tickets.clone(), *line);
                        let left = drain(&mut copy, &mut copied_line);
                        prop_assert_eq!(left.iter().position(|t| *t == ticket), Some(ahead.tickets as usize));
                        model.push((ticket, class, deadline));
                    }
                    5..=7 => {
                        let left = tickets.leave_first(line);
                        let place = model.iter().position(|(ticket, ..)| Some(*ticket) == left);
                        prop_assert_eq!(place.is_some(), !model.is_empty());
                        if let Some(place) = place {
                            let class = model[place].1;
                            prop_assert!(model[..place].iter().all(|(_, c, _)| *c != class), "in order");
                            model.remove(place);
                        }
                    }
                    8 => {
                        let soonest = model.iter().map(|(.., at)| *at).min();
                        prop_assert_eq!(tickets.next_deadline(*line), soonest);
                        let left = tickets.leave_soonest_deadline(line);
                        let place = model.iter().position(|(ticket, ..)| Some(*ticket) == left);
                        prop_assert_eq!(place.map(|place| model.remove(place).2), soonest);
                    }
                    _ => if !model.is_empty() {
                        let place = usize::try_from(number).unwrap() % model.len();
                        let (ticket, ..) = model.remove(place);
                        prop_assert!(tickets.cancel(line, ticket));
                        prop_assert!(!tickets.cancel(line, ticket));
                    },
                }
                prop_assert_eq!(tickets.waiting(*line) as usize, model.len());
            }
        }
    }
}
