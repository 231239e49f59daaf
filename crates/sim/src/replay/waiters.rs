//! The waiting tickets of all gates, and which leaves next.
//!
//! A gate knows when the first ticket of its line leaves. The first tickets of all lines are sorted
//! here, by time and then by number, so that the next one is found without searching all gates.

use std::collections::{BTreeSet, VecDeque};

use policy::line::Ticket;
use policy::time::Timestamp;

use super::gates::GateId;

#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// By gate. A gate with waiting tickets is never evicted, so a new gate has an empty line.
    lines: Vec<Line>,
    due: BTreeSet<(Timestamp, u64, GateId)>,
}

/// The line of one gate: tickets and the numbers of their asks, in order.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<(Ticket, u64)>,
    /// Its entry in the order, if only time decides when the first ticket leaves.
    due: Option<(Timestamp, u64)>,
}

impl Waiters {
    pub(super) fn join(&mut self, gate: GateId, ticket: Ticket, number: u64) {
        if self.lines.len() <= gate.index() {
            self.lines.resize_with(gate.index() + 1, Line::default);
        }
        self.lines[gate.index()].waiting.push_back((ticket, number));
    }

    /// Removes a ticket from its line and returns the number of its ask.
    pub(super) fn leave(&mut self, gate: GateId, ticket: Ticket) -> u64 {
        let waiting = &mut self.lines[gate.index()].waiting;
        let place = waiting.iter().position(|&(waiting, _)| waiting == ticket);
        let (_, number) = place
            .and_then(|place| waiting.remove(place))
            .expect("a gate admits only asks in its line");
        number
    }

    pub(super) fn has_line(&self, gate: GateId) -> bool {
        self.lines
            .get(gate.index())
            .is_some_and(|line| !line.waiting.is_empty())
    }

    /// Schedules the first ticket of the gate's line for `due`.
    pub(super) fn schedule(&mut self, gate: GateId, due: Option<Timestamp>) {
        let Some(line) = self.lines.get_mut(gate.index()) else {
            return;
        };
        let first = line.waiting.front().map(|&(_, number)| number);
        let due = due.zip(first);
        if line.due == due {
            return;
        }
        if let Some((time, number)) = line.due {
            self.due.remove(&(time, number, gate));
        }
        if let Some((time, number)) = due {
            self.due.insert((time, number, gate));
        }
        line.due = due;
    }

    /// When and where the next ticket leaves, if not after `now`.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<(Timestamp, GateId)> {
        let &(time, _, gate) = self.due.first()?;
        (time <= now).then_some((time, gate))
    }
}
