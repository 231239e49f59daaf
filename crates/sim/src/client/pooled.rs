//! A client with a pool of endpoints that all lead to the upstream, each protected by its ladder.

use policy::ladder::{Ended, LadderSettings};
use policy::outcome::{Answer, Outcome, Verdict};
use policy::pool::{Choice, Lease, Pool};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{Afterwards, Attempt, Controller, FlightId, Next, Outstanding, Standing};
use super::settings::PoolSettings;

#[derive(Debug)]
pub(super) struct Pooled {
    settings: LadderSettings,
    pool: Pool,
    most: u32,
    in_flight: u32,
    leases: Outstanding<Lease>,
}

impl Pooled {
    pub(super) fn new(settings: &PoolSettings, most: u32) -> Self {
        let mut pool = Pool::new(settings.balance);
        for number in 1..=settings.endpoints {
            pool.add(&format!("endpoint {number}"));
        }
        Self {
            settings: settings.ladder.clone(),
            pool,
            most,
            in_flight: 0,
            leases: Outstanding::new(),
        }
    }
}

impl Controller for Pooled {
    fn next(&mut self, id: FlightId, has_fresh: bool, now: Timestamp, _: &mut Random) -> Next {
        if !has_fresh || self.in_flight >= self.most {
            return Next::Wait { until: None };
        }
        match self.pool.choose(&self.settings, now, |_| now) {
            Choice::Send(lease) => {
                self.in_flight += 1;
                self.leases.put(id, lease);
                Next::SendFresh
            }
            Choice::Wait { until, .. } => Next::Wait { until },
            Choice::Nobody => Next::Wait { until: None },
        }
    }

    fn answered(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        _: &mut Random,
    ) -> Afterwards {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(lease) = self.leases.take(id) {
            let ended = ended(&attempt.outcome, attempt.verdict);
            self.pool.settle(&self.settings, lease, &ended, now);
        }
        Afterwards::until_accepted(attempt)
    }

    /// Held while every endpoint is paused.
    fn standing(&self, now: Timestamp) -> Standing {
        let ladders = self
            .pool
            .endpoints()
            .iter()
            .map(|endpoint| endpoint.ladder());
        let enabled = ladders.filter(|ladder| ladder.is_enabled());
        let first = enabled.map(|ladder| ladder.paused_until()).min();
        Standing {
            hold_until: first.flatten().filter(|until| *until > now),
            ..Standing::default()
        }
    }
}

fn ended(outcome: &Outcome, verdict: Option<Verdict>) -> Ended<'static> {
    match outcome.answer {
        Answer::Status(status) => Ended::answered(status, verdict, "", &outcome.hint),
        Answer::Failed { failure, .. } => Ended::failure(failure, ""),
    }
}
