//! A node of a fleet: a gate whose key is shared, as in the running product.
//!
//! Like a sender behind a gate of its own, it asks for one permit at a time. What it may send, its
//! [`Member`] decides with the replies of the store. Calls to the store and their replies are passed
//! on by the run.
//!
//! A node that stops loses everything; when it starts again, it is another node to the store. Its
//! requests in flight come to an end without it.

use std::sync::Arc;

use policy::breaker::BreakerState;
use policy::fleet::{Call, Member, NodeId, Notice, Reply, SharedSettings};
use policy::gate::{Ask, Decision, Gate, Permit};
use policy::line::Tickets;
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{
    Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp, InFlight,
};
use super::gate::ASK;

/// A node of a fleet.
#[derive(Debug)]
pub(crate) struct Node {
    settings: Arc<SharedSettings>,
    /// Where the numbers of its starts come from.
    ids: Random,
    id: NodeId,
    is_up: bool,
    gate: Gate,
    member: Member,
    tickets: Tickets,
    permits: InFlight<Permit>,
    breaker_opened: u64,
    next_cost: u32,
    /// When the member is to see that time passes.
    tick_at: Timestamp,
    /// When the run looks at this node's calls next.
    wake_at: Option<Timestamp>,
}

/// A call of a node on its way.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) client: usize,
    pub(crate) sender: NodeId,
    pub(crate) sent_at: Timestamp,
    pub(crate) call: Call,
}

impl Node {
    pub(super) fn new(settings: Arc<SharedSettings>, mut ids: Random, now: Timestamp) -> Self {
        let id = next_id(&mut ids);
        let member = Member::new(&settings, id, now);
        Self {
            gate: Gate::new(&settings.gate, now),
            tick_at: member.next_tick(&settings, now),
            member,
            settings,
            ids,
            id,
            is_up: true,
            tickets: Tickets::new(),
            permits: InFlight::new(),
            breaker_opened: 0,
            next_cost: 1,
            wake_at: None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Stops at once, as if it were killed.
    pub(crate) fn stop(&mut self) {
        self.is_up = false;
        self.permits = InFlight::new();
        self.wake_at = None;
    }

    /// Starts without knowing anything.
    pub(crate) fn start(&mut self, now: Timestamp) {
        self.id = next_id(&mut self.ids);
        self.is_up = true;
        self.gate = Gate::new(&self.settings.gate, now);
        self.member = Member::new(&self.settings, self.id, now);
        self.tickets = Tickets::new();
        self.tick_at = self.member.next_tick(&self.settings, now);
    }

    /// What it says to the store now, if a call is due.
    pub(crate) fn call(&mut self, client: usize, now: Timestamp) -> Option<Message> {
        if self.next_call(now)? > now {
            return None;
        }
        let waiting = self.gate.waiting(&self.tickets);
        let call = self.member.call(&self.settings, waiting, now);
        self.tick_at = self.member.next_tick(&self.settings, now);
        Some(Message {
            client,
            sender: self.id,
            sent_at: now,
            call,
        })
    }

    /// Sets when the run looks at its calls next. `Some` if that has to be added to the event queue.
    pub(crate) fn set_wake_up(&mut self, now: Timestamp) -> Option<Timestamp> {
        let wakes = [self.next_call(now), Some(self.tick_at)];
        let next = wakes.into_iter().flatten().min();
        let next = next.filter(|at| self.is_up && *at < Timestamp::MAX);
        let next = next.map(|at| at.max(now));
        let changed = self.wake_at != next;
        self.wake_at = next;
        next.filter(|_| changed)
    }

    /// Consumes the wake-up at `now`. `false` if it is outdated.
    pub(crate) fn take_wake_up(&mut self, now: Timestamp) -> bool {
        if self.wake_at != Some(now) {
            return false;
        }
        self.wake_at = None;
        if self.tick_at <= now {
            self.member.tick(&self.settings, now);
            self.tick_at = self.member.next_tick(&self.settings, now);
        }
        true
    }

    pub(crate) fn replied(&mut self, message: &Message, reply: &Reply, now: Timestamp) {
        if self.is_up && message.sender == self.id {
            let (settings, gate) = (&self.settings, &mut self.gate);
            self.member
                .replied(settings, gate, &message.call, reply, now);
            self.tick_at = self.member.next_tick(settings, now);
        }
    }

    /// The call of `message` was not answered in time.
    pub(crate) fn unanswered(&mut self, message: &Message, now: Timestamp) {
        if self.is_up && message.sender == self.id {
            self.member.unanswered(now);
            self.tick_at = self.member.next_tick(&self.settings, now);
        }
    }

    pub(crate) fn noticed(&mut self, notice: &Notice, now: Timestamp) {
        if self.is_up {
            self.member
                .noticed(&self.settings, &mut self.gate, notice, now);
        }
    }

    fn next_call(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.gate.waiting(&self.tickets);
        self.member
            .next_call(&self.settings, waiting, now)
            .filter(|_| self.is_up)
    }

    fn wait(&mut self, now: Timestamp) -> Action {
        let external = self.member.external();
        let settings = &self.settings.gate;
        Action::Wait {
            until: self
                .gate
                .next_wake_external(settings, &self.tickets, external, now),
        }
    }
}

impl Controller for Node {
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        _: &mut Random,
    ) -> Action {
        if !self.is_up {
            return Action::Wait { until: None };
        }
        let settings = &self.settings.gate;
        let external = self.member.external();
        if self.gate.is_waited_for() {
            let tickets = &mut self.tickets;
            let admitted = self
                .gate
                .admit_next_external(settings, tickets, external, now);
            let Some((_, permit)) = admitted else {
                return self.wait(now);
            };
            self.permits.insert(id, permit);
            return Action::Send;
        }
        if !has_backlog {
            return Action::Wait { until: None };
        }
        let ask = Ask {
            cost: self.next_cost,
            ..ASK
        };
        let tickets = &mut self.tickets;
        match self
            .gate
            .acquire_external(settings, tickets, &ask, external, now)
        {
            Decision::Admit(permit) => {
                self.permits.insert(id, permit);
                Action::Send
            }
            Decision::Wait { .. } => self.wait(now),
            Decision::Refuse { until, .. } => Action::Wait { until },
        }
    }

    fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        _: &mut Random,
    ) -> FollowUp {
        let was_open = self.gate.breaker_state(now) == BreakerState::Open;
        if let Some(permit) = self.permits.remove(id) {
            let AttemptResult { outcome, verdict } = result;
            let verdict = self
                .member
                .settled(&self.settings, &permit, outcome, *verdict, now);
            self.gate
                .settle(&self.settings.gate, permit, outcome, verdict, now);
            self.member.after_settle(&self.gate, now);
        }
        let is_open = self.gate.breaker_state(now) == BreakerState::Open;
        self.breaker_opened += u64::from(is_open && !was_open);
        FollowUp::until_accepted(result)
    }

    fn set_next_cost(&mut self, cost: u32) {
        self.next_cost = cost;
    }

    fn state(&self, now: Timestamp) -> ControllerState {
        if !self.is_up {
            return ControllerState::default();
        }
        let view = self.member.view(now);
        let controller = self.member.controller();
        let learned = |gate: &Gate| gate.learned(&self.settings.controller, now);
        ControllerState {
            rate: Some(view.share * view.rate),
            hold_until: self.gate.hold_until(now),
            breaker: Some(self.gate.breaker_state(now)),
            learned: controller.and_then(learned),
        }
    }

    /// Only the owner of the key knows why the fleet sends as it does.
    fn explanation(&self, now: Timestamp) -> Option<String> {
        let controller = self.member.controller().filter(|_| self.is_up)?;
        let snapshot = controller.snapshot(&self.settings.controller, &self.tickets, now);
        Some(format!("for the fleet: {snapshot}"))
    }

    fn breaker_opened(&self) -> u64 {
        self.breaker_opened
    }
}

/// The number of a node: never zero, which means none.
fn next_id(ids: &mut Random) -> NodeId {
    NodeId(ids.next_u64().max(1))
}
