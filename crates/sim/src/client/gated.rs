//! A sender behind a gate, as everything that sends through Tidegate is.
//!
//! It asks for one permit at a time and stays in line until it leaves, then asks for the next:
//! with a backlog without end that sends everything the gate allows. It waits for holds and open
//! breakers, as background work does.

use policy::breaker::BreakerState;
use policy::gate::{Ask, Decision, Gate, GateSettings, Permit};
use policy::line::{Class, Tickets};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{
    Afterwards, Attempt, Controller, FlightId, GateView, Next, Outstanding, Standing,
};

#[derive(Debug)]
pub(super) struct Gated {
    settings: GateSettings,
    gate: Gate,
    tickets: Tickets,
    permits: Outstanding<Permit>,
    opened: u64,
}

impl Gated {
    pub(super) fn new(settings: GateSettings, now: Timestamp) -> Self {
        Self {
            gate: Gate::new(&settings, now),
            settings,
            tickets: Tickets::new(),
            permits: Outstanding::new(),
            opened: 0,
        }
    }

    fn wait(&self, now: Timestamp) -> Next {
        Next::Wait {
            until: self.gate.next_wake(&self.settings, &self.tickets, now),
        }
    }
}

impl Controller for Gated {
    fn next(&mut self, id: FlightId, has_fresh: bool, now: Timestamp, _: &mut Random) -> Next {
        if self.gate.is_waited_for() {
            let admitted = self.gate.admit_next(&self.settings, &mut self.tickets, now);
            let Some((_, permit)) = admitted else {
                return self.wait(now);
            };
            self.permits.put(id, permit);
            return Next::SendFresh;
        }
        if !has_fresh {
            return Next::Wait { until: None };
        }
        match self
            .gate
            .acquire(&self.settings, &mut self.tickets, &PATIENT, now)
        {
            Decision::Admit(permit) => {
                self.permits.put(id, permit);
                Next::SendFresh
            }
            Decision::Wait { .. } => self.wait(now),
            Decision::Refuse { until, .. } => Next::Wait { until },
        }
    }

    fn answered(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        _: &mut Random,
    ) -> Afterwards {
        let was_open = self.gate.breaker_state(now) == BreakerState::Open;
        if let Some(permit) = self.permits.take(id) {
            let Attempt { outcome, verdict } = attempt;
            self.gate
                .settle(&self.settings, permit, outcome, *verdict, now);
        }
        let is_open = self.gate.breaker_state(now) == BreakerState::Open;
        self.opened += u64::from(is_open && !was_open);
        Afterwards::until_accepted(attempt)
    }

    fn standing(&self, now: Timestamp) -> Standing {
        Standing {
            rate: Some(self.gate.rate()),
            hold_until: self.gate.hold_until(now),
            breaker: Some(self.gate.breaker_state(now)),
        }
    }

    fn breaker_opened(&self) -> u64 {
        self.opened
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

/// Waits for as long as it takes.
const PATIENT: Ask = Ask {
    cost: 1,
    deadline: Timestamp::MAX,
    class: Class::Interactive,
    waits_for_breaker: true,
};
