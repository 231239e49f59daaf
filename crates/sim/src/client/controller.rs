//! The interface between a client and the controller that decides when it sends.

use std::fmt;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::classify;
use policy::gate::{Gate, GateSettings, Permit};
use policy::hint::{self, Response};
use policy::line::Tickets;
use policy::outcome::{Failure, Outcome, Phase, Verdict};
use policy::random::Random;
use policy::rate::RateView;
use policy::time::Timestamp;

use crate::upstream::UpstreamResponse;

/// Decides when a client sends.
///
/// It sees what a real sender would see: the time, whether there is anything to send, and the
/// results of attempts. State per attempt is stored under the [`AttemptId`], for instance in
/// [`InFlight`].
pub trait Controller: fmt::Debug {
    /// Decides what the client does at `now`. If a request is to be sent, it is sent at once under
    /// `id`, and the controller is asked again. `has_backlog`: is there a new request to send?
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        random: &mut Random,
    ) -> Action;

    /// Learns from the result of attempt `id` and decides what happens to its request.
    fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        random: &mut Random,
    ) -> FollowUp;

    /// Sets what the next new request is expected to cost. Called before [`Controller::next_action`] if
    /// costs are counted.
    fn set_next_cost(&mut self, cost: u32) {
        let _ = cost;
    }

    /// The controller's state, for plots.
    fn state(&self, now: Timestamp) -> ControllerState {
        let _ = now;
        ControllerState::default()
    }

    /// What it does and why, in a sentence; `None` without a gate.
    fn explanation(&self, now: Timestamp) -> Option<String> {
        let GateView {
            settings,
            gate,
            tickets,
            ..
        } = self.gate()?;
        Some(gate.snapshot(settings, tickets, now).to_string())
    }

    /// How often its breaker has opened; 0 without a breaker.
    fn breaker_opened(&self) -> u64 {
        0
    }

    /// The gate behind it, if there is one, for the checks of invariants.
    fn gate(&self) -> Option<GateView<'_>> {
        None
    }
}

/// Identifies an attempt of a client while it is in flight. A small number that is reused later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptId(pub usize);

/// Identifies a request that a controller will resend itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResendId(pub usize);

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a request from the backlog; only if there is one.
    Send,
    /// Resends a request for which the controller returned [`FollowUp::Resend`].
    Resend(ResendId),
    /// Sends nothing. The controller is asked again at `until`, and after every arrival and end of
    /// an attempt.
    Wait {
        /// `None` if the passing of time changes nothing.
        until: Option<Timestamp>,
    },
}

/// What happens to a request after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUp {
    /// It was accepted or given up.
    Done,
    /// It returns to the backlog.
    Requeue,
    /// The controller resends it later.
    Resend(ResendId),
}

impl FollowUp {
    /// `Done` if the request was accepted, otherwise `Requeue`: for controllers that do not tell
    /// requests apart.
    pub fn until_accepted(result: &AttemptResult) -> Self {
        if result.is_accepted() {
            Self::Done
        } else {
            Self::Requeue
        }
    }
}

/// The result of an attempt, as policies take it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptResult {
    /// The outcome, with the hint read from the response's headers.
    pub outcome: Outcome,
    /// The class of the outcome.
    pub verdict: Option<Verdict>,
}

impl AttemptResult {
    /// The result of an attempt that got this response.
    pub fn of_response(response: &UpstreamResponse, latency: Duration) -> Self {
        let headers = response.headers();
        let readable = Response {
            status: response.status,
            headers: headers
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
            body: b"",
        };
        let hint = hint::read(&readable, None);
        let verdict = classify::response(&[], &readable, &hint).verdict;
        Self {
            outcome: Outcome::status(response.status, latency).with_hint(hint),
            verdict,
        }
    }

    /// The result of an attempt whose connection was refused.
    pub fn unreachable(latency: Duration) -> Self {
        Self::failed(Failure::Connect, Phase::Connecting, latency)
    }

    /// The result of an attempt that got no response in time.
    pub fn timed_out(latency: Duration) -> Self {
        Self::failed(Failure::Timeout, Phase::Waiting, latency)
    }

    fn failed(failure: Failure, phase: Phase, latency: Duration) -> Self {
        Self {
            outcome: Outcome::failure(failure, phase, latency),
            verdict: classify::failure(failure).verdict,
        }
    }

    /// Whether the request was accepted.
    pub fn is_accepted(&self) -> bool {
        self.verdict == Some(Verdict::Success)
    }
}

/// The visible state of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControllerState {
    /// Its rate in requests per second; `None` if it has none.
    pub rate: Option<f64>,
    /// The end of the current hold or pause.
    pub hold_until: Option<Timestamp>,
    /// The state of its breaker; `None` if it has none.
    pub breaker: Option<BreakerState>,
    /// What `adaptive` knows about the limit; `None` for others.
    pub learned: Option<RateView>,
}

/// A gate with everything that belongs to it, read-only.
#[derive(Clone, Copy, Debug)]
pub struct GateView<'a> {
    /// The gate's settings.
    pub settings: &'a GateSettings,
    /// The gate.
    pub gate: &'a Gate,
    /// Its line.
    pub tickets: &'a Tickets,
    /// The permits of the attempts in flight.
    pub permits: &'a InFlight<Permit>,
}

/// A value for every attempt in flight.
#[derive(Clone, Debug)]
pub struct InFlight<T>(Vec<Option<T>>);

impl<T> InFlight<T> {
    /// No attempts are in flight.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Stores the value of attempt `id`.
    pub fn insert(&mut self, id: AttemptId, value: T) {
        if self.0.len() <= id.0 {
            self.0.resize_with(id.0 + 1, || None);
        }
        self.0[id.0] = Some(value);
    }

    /// The value of attempt `id`.
    pub fn get(&self, id: AttemptId) -> Option<&T> {
        self.0.get(id.0).and_then(Option::as_ref)
    }

    /// Removes the value of attempt `id`.
    pub fn remove(&mut self, id: AttemptId) -> Option<T> {
        self.0.get_mut(id.0).and_then(Option::take)
    }
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self::new()
    }
}
