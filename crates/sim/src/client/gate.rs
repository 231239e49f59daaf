//! A sender behind a gate, like every sender of Tidegate.
//!
//! It asks for one permit at a time, waits in line until it is admitted, then asks for the next.
//! With an endless backlog that sends everything the gate allows. It waits for holds and open
//! breakers, as background work does.

use policy::breaker::BreakerState;
use policy::gate::{Ask, Decision, Gate, GateSettings, Permit};
use policy::line::{Class, Tickets};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{
    Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp, GateView, InFlight,
};

#[derive(Debug)]
pub(super) struct GateController {
    settings: GateSettings,
    gate: Gate,
    tickets: Tickets,
    permits: InFlight<Permit>,
    breaker_opened: u64,
    next_cost: u32,
}

impl GateController {
    pub(super) fn new(settings: GateSettings, now: Timestamp) -> Self {
        Self {
            gate: Gate::new(&settings, now),
            settings,
            tickets: Tickets::new(),
            permits: InFlight::new(),
            breaker_opened: 0,
            next_cost: 1,
        }
    }

    fn wait(&self, now: Timestamp) -> Action {
        Action::Wait {
            until: self.gate.next_wake(&self.settings, &self.tickets, now),
        }
    }
}

impl Controller for GateController {
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        _: &mut Random,
    ) -> Action {
        if self.gate.is_waited_for() {
            let admitted = self.gate.admit_next(&self.settings, &mut self.tickets, now);
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
        match self
            .gate
            .acquire(&self.settings, &mut self.tickets, &ask, now)
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
            self.gate
                .settle(&self.settings, permit, outcome, *verdict, now);
        }
        let is_open = self.gate.breaker_state(now) == BreakerState::Open;
        self.breaker_opened += u64::from(is_open && !was_open);
        FollowUp::until_accepted(result)
    }

    fn set_next_cost(&mut self, cost: u32) {
        self.next_cost = cost;
    }

    fn state(&self, now: Timestamp) -> ControllerState {
        ControllerState {
            rate: Some(self.gate.rate()),
            hold_until: self.gate.hold_until(now),
            breaker: Some(self.gate.breaker_state(now)),
            learned: self.gate.learned(&self.settings, now),
        }
    }

    fn breaker_opened(&self) -> u64 {
        self.breaker_opened
    }

    fn gate(&self) -> Option<GateView<'_>> {
        Some(GateView {
            settings: &self.settings,
            gate: &self.gate,
            tickets: &self.tickets,
            permits: &self.permits,
        })
    }
}

/// Without a deadline.
pub(super) const ASK: Ask = Ask {
    cost: 1,
    deadline: Timestamp::MAX,
    class: Class::Interactive,
    waits_for_breaker: true,
};
