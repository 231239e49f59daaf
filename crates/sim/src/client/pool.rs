//! A client with a pool of endpoints that all lead to the upstream, each protected by its ladder.

use policy::ladder::{EndpointResult, LadderSettings};
use policy::outcome::{Outcome, UpstreamResponse, Verdict};
use policy::pool::{Choice, Lease, Pool};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{
    Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp, InFlight,
};
use super::settings::PoolSettings;

#[derive(Debug)]
pub(super) struct PoolController {
    settings: LadderSettings,
    pool: Pool,
    max_in_flight: u32,
    in_flight: u32,
    leases: InFlight<Lease>,
}

impl PoolController {
    pub(super) fn new(settings: &PoolSettings, max_in_flight: u32) -> Self {
        let mut pool = Pool::new(settings.balance);
        for number in 1..=settings.endpoints {
            pool.add(&format!("endpoint {number}"));
        }
        Self {
            settings: settings.ladder.clone(),
            pool,
            max_in_flight,
            in_flight: 0,
            leases: InFlight::new(),
        }
    }
}

impl Controller for PoolController {
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        _: &mut Random,
    ) -> Action {
        if !has_backlog || self.in_flight >= self.max_in_flight {
            return Action::Wait { until: None };
        }
        match self.pool.choose(&self.settings, now, |_| now) {
            Choice::Send(lease) => {
                self.in_flight += 1;
                self.leases.insert(id, lease);
                Action::Send
            }
            Choice::Wait { until, .. } => Action::Wait { until },
            Choice::NoEndpoint => Action::Wait { until: None },
        }
    }

    fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        _: &mut Random,
    ) -> FollowUp {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(lease) = self.leases.remove(id) {
            let ended = ended(&result.outcome, result.verdict);
            self.pool.settle(&self.settings, lease, &ended, now);
        }
        FollowUp::until_accepted(result)
    }

    /// Held while every endpoint is paused.
    fn state(&self, now: Timestamp) -> ControllerState {
        let ladders = self
            .pool
            .endpoints()
            .iter()
            .map(|endpoint| endpoint.ladder());
        let enabled = ladders.filter(|ladder| ladder.is_enabled());
        let first = enabled.map(|ladder| ladder.paused_until()).min();
        ControllerState {
            hold_until: first.flatten().filter(|until| *until > now),
            ..ControllerState::default()
        }
    }
}

fn ended(outcome: &Outcome, verdict: Option<Verdict>) -> EndpointResult<'static> {
    match outcome.response {
        UpstreamResponse::Status(status) => {
            EndpointResult::response(status, verdict, "", &outcome.hint)
        }
        UpstreamResponse::Failed { failure, .. } => EndpointResult::failure(failure, ""),
    }
}
