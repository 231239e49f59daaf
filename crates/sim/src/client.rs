//! A client: something to send, and what decides when.
//!
//! The client itself decides nothing. It keeps the backlog and what is under way, and asks its
//! [`Controller`]: a gate, a backoff, a poll …, whatever stands behind it, may the next request
//! leave, or when is it worth asking again? It asks when something happened, an answer or an
//! arrival, and at the time that it was told, never in ticks. What came back refused or failed
//! stays in the backlog, unless the controller keeps it to send it again itself.

mod controller;
mod failing;
mod gated;
mod polling;
mod pooled;
mod retrying;
mod settings;
mod tries;

use std::time::Duration;

use policy::classify;
use policy::hint::{self, Response};
use policy::outcome::{Failure, Outcome, Phase};
use policy::random::Random;
use policy::time::Timestamp;

pub use controller::{
    Afterwards, Attempt, Controller, FlightId, GateView, Kept, Next, Outstanding, Standing,
};
pub use settings::{
    ClientSettings, CustomController, Driver, PoolSettings, Strategy, UnknownStrategy,
};
pub(crate) use settings::{DEFAULT_IN_FLIGHT, naive};

use crate::load::Load;
use crate::measure::{AfterFailures, Class};
use crate::upstream::Answer;
use tries::Tries;

/// One of those who call the upstream.
#[derive(Debug)]
pub(crate) struct Client {
    load: Load,
    controller: Box<dyn Controller>,
    random: Random,
    flights: Vec<Flight>,
    free: Vec<FlightId>,
    tries: Tries,
    /// When it wants to be asked again, as it stands in the queue of events.
    wake_at: Option<Timestamp>,
    /// Until when the server has asked not to be called.
    asked_until: Timestamp,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) sent_at: Timestamp,
    pub(crate) ending: Ending,
}

/// How a request ends, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answered(Answer),
    Unreachable,
    TimedOut,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Send a request now, under this name.
    Send(FlightId),
    /// Be asked again then, or when an answer has come.
    Wake(Option<Timestamp>),
}

impl Client {
    pub(crate) fn new(settings: &ClientSettings, mut random: Random) -> Self {
        let start = settings.start.at(random.unit());
        let load = Load::new(settings.backlog, start);
        Self {
            load: match settings.driver {
                Driver::Poll { .. } => load.repeating(),
                Driver::Gate(_)
                | Driver::Naive(_)
                | Driver::Custom(_)
                | Driver::Backoff(_)
                | Driver::FailureQueue(_)
                | Driver::Protection(_) => load,
            },
            controller: settings.controller(start),
            random,
            flights: Vec::new(),
            free: Vec::new(),
            tries: Tries::default(),
            wake_at: None,
            asked_until: Timestamp::ZERO,
        }
    }

    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    pub(crate) fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// What its failures cost.
    pub(crate) fn after_failures(&self) -> AfterFailures {
        self.tries.sum()
    }

    /// Is it `at` that it wants to be woken? Then it no longer does.
    pub(crate) fn wakes_at(&mut self, at: Timestamp) -> bool {
        let wakes = self.wake_at == Some(at);
        if wakes {
            self.wake_at = None;
        }
        wakes
    }

    /// Notes when it wants to be woken. `Some` if that has to be put into the queue.
    pub(crate) fn wake(&mut self, at: Option<Timestamp>) -> Option<Timestamp> {
        let changed = self.wake_at != at;
        self.wake_at = at;
        at.filter(|_| changed)
    }

    /// What it wants at `now`. After [`Wish::Send`] comes [`Client::sent`].
    pub(crate) fn wish(&mut self, now: Timestamp) -> Wish {
        if now < self.load.start() {
            return Wish::Wake(Some(self.load.start()));
        }
        let id = self
            .free
            .last()
            .copied()
            .unwrap_or(FlightId(self.flights.len()));
        let has_fresh = self.load.has(now);
        match self.controller.next(id, has_fresh, now, &mut self.random) {
            Next::SendFresh => {
                self.load.take();
                self.tries.sent_fresh(id);
                Wish::Send(id)
            }
            Next::SendAgain(kept) => {
                self.tries.sent_again(id, kept);
                Wish::Send(id)
            }
            Next::Wait { until } => {
                let arrival = self.load.next_arrival().filter(|_| !has_fresh);
                // Who may leave now, but does not, waits for an answer.
                let until = until.filter(|until| *until > now);
                Wish::Wake([until, arrival].into_iter().flatten().min())
            }
        }
    }

    /// A request has left. `true` if the server had asked not to be called yet.
    pub(crate) fn sent(&mut self, id: FlightId, flight: Flight) -> bool {
        if self.free.pop().is_none() {
            self.flights.push(flight);
        } else {
            self.flights[id.0] = flight;
        }
        flight.sent_at < self.asked_until
    }

    /// A request has ended: how, and how long it took.
    pub(crate) fn ended(&mut self, id: FlightId, now: Timestamp) -> Flight {
        let flight = self.flights[id.0];
        self.free.push(id);
        let attempt = judged(&flight, now);
        if let Some(wait) = attempt.outcome.hint.wait {
            self.asked_until = self.asked_until.max(now + wait);
        }
        let afterwards = self
            .controller
            .answered(id, &attempt, now, &mut self.random);
        let ended = self.tries.ended(id, Class::of(&flight.ending));
        match afterwards {
            Afterwards::Over => {}
            Afterwards::BackToBacklog => {
                self.load.put_back();
                ended.put_back();
            }
            Afterwards::Kept(kept) => ended.keep(kept),
        }
        flight
    }
}

/// What the policies hear of a request.
pub(crate) fn judged(flight: &Flight, now: Timestamp) -> Attempt {
    let latency = now.since(flight.sent_at);
    match flight.ending {
        Ending::Answered(answer) => Attempt::answered(&answer, latency),
        Ending::Unreachable => failed(Failure::Connect, Phase::Connecting, latency),
        Ending::TimedOut => failed(Failure::Timeout, Phase::Waiting, latency),
    }
}

impl Attempt {
    /// An attempt that got this answer: with the hint read from its headers, and the verdict.
    pub fn answered(answer: &Answer, latency: Duration) -> Self {
        let headers = answer.headers();
        let response = Response {
            status: answer.status,
            headers: headers.iter(),
            body: b"",
        };
        let hint = hint::read(&response, None);
        let verdict = classify::response(&[], &response, &hint).verdict;
        Self {
            outcome: Outcome::status(answer.status, latency).with_hint(hint),
            verdict,
        }
    }
}

fn failed(failure: Failure, phase: Phase, latency: Duration) -> Attempt {
    Attempt {
        outcome: Outcome::failure(failure, phase, latency),
        verdict: classify::failure(failure).verdict,
    }
}
