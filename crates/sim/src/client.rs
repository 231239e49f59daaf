//! A client of the upstream: a backlog of requests and a controller that decides when to send.
//!
//! The client itself makes no decisions. It holds the backlog and the attempts in flight, and asks
//! its [`Controller`] whether the next request may leave, or when to ask again. It asks when a
//! request arrives, when an attempt ends, and at the time the controller named; there are no ticks.
//! Requests that were refused or failed return to the backlog, unless the controller resends them
//! itself.

mod controller;
mod failure_cost;
mod failure_queue;
mod gate;
mod node;
mod poll;
mod pool;
mod retry;
mod settings;

use std::sync::Arc;

use policy::fleet::SharedSettings;
use policy::random::Random;
use policy::time::Timestamp;

pub use controller::{
    Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp, GateView, InFlight,
    ResendId,
};
pub(crate) use node::{Message, Node};
pub use settings::{
    ClientSettings, CostSettings, CustomController, Driver, PoolSettings, Strategy, UnknownStrategy,
};
pub(crate) use settings::{DEFAULT_IN_FLIGHT, naive};

use crate::load::Load;
use crate::measure::{AttemptClass, FailureCost};
use crate::upstream::{UpstreamResponse, lognormal, normal};
use failure_cost::FailureCounter;

/// A simulated client.
#[derive(Debug)]
pub(crate) struct Client {
    load: Load,
    sender: Sender,
    random: Random,
    attempts: Vec<Attempt>,
    /// Ids of ended attempts, to be used again.
    free_ids: Vec<AttemptId>,
    failures: FailureCounter,
    /// The wake-up event of this client in the event queue that is still valid.
    wake_at: Option<Timestamp>,
    /// The end of the longest wait that the server asked for.
    hint_until: Timestamp,
    costs: Option<Costs>,
}

/// What decides when a client sends.
#[derive(Debug)]
enum Sender {
    Alone(Box<dyn Controller>),
    Node(Box<Node>),
}

impl Sender {
    fn controller(&self) -> &dyn Controller {
        match self {
            Self::Alone(controller) => &**controller,
            Self::Node(node) => &**node,
        }
    }

    fn controller_mut(&mut self) -> &mut dyn Controller {
        match self {
            Self::Alone(controller) => &mut **controller,
            Self::Node(node) => &mut **node,
        }
    }
}

/// The costs of the requests in the backlog, drawn one by one.
#[derive(Debug)]
struct Costs {
    settings: CostSettings,
    /// That of the next request, if it was drawn.
    next: Option<u32>,
    /// Those of requests that returned to the backlog.
    returned: Vec<u32>,
}

impl Costs {
    fn next(&mut self, random: &mut Random) -> u32 {
        let returned = &mut self.returned;
        *self.next.get_or_insert_with(|| {
            returned.pop().unwrap_or_else(|| {
                let CostSettings { mean, spread, .. } = self.settings;
                whole_cost(lognormal(mean, spread, normal(random)))
            })
        })
    }

    fn estimate(&self, cost: u32) -> u32 {
        whole_cost(f64::from(cost) * self.settings.estimate)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float saturates"
)]
fn whole_cost(cost: f64) -> u32 {
    cost.round().max(1.0) as u32
}

/// An attempt in flight. Its end is known as soon as it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) sent_at: Timestamp,
    pub(crate) end: AttemptEnd,
    /// What it costs, if costs are counted.
    pub(crate) cost: Option<u32>,
}

/// How an attempt ends, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    Response(UpstreamResponse),
    Unreachable,
    TimedOut,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAction {
    /// Send a request now, under this id and with this cost, if costs are counted.
    Send(AttemptId, Option<u32>),
    /// Wait until this time or until an attempt ends; `None`: only until an attempt ends.
    WaitUntil(Option<Timestamp>),
}

impl Client {
    /// A client. `shared`: if it is a node of a fleet, what all nodes agree on.
    pub(crate) fn new(
        settings: &ClientSettings,
        shared: Option<&Arc<SharedSettings>>,
        mut random: Random,
    ) -> Self {
        let start = settings.start.at(random.unit());
        let load = Load::new(settings.backlog, start);
        let sender = match shared {
            Some(shared) => {
                let ids = Random::from_seed(random.next_u64());
                Sender::Node(Box::new(Node::new(Arc::clone(shared), ids, start)))
            }
            None => Sender::Alone(settings.controller(start)),
        };
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
            sender,
            random,
            attempts: Vec::new(),
            free_ids: Vec::new(),
            failures: FailureCounter::default(),
            wake_at: None,
            hint_until: Timestamp::ZERO,
            costs: settings.cost.map(|settings| Costs {
                settings,
                next: None,
                returned: Vec::new(),
            }),
        }
    }

    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    pub(crate) fn controller(&self) -> &dyn Controller {
        self.sender.controller()
    }

    /// The node of a fleet that it is, if any.
    pub(crate) fn node(&mut self) -> Option<&mut Node> {
        match &mut self.sender {
            Sender::Alone(_) => None,
            Sender::Node(node) => Some(node),
        }
    }

    pub(crate) fn failure_cost(&self) -> FailureCost {
        self.failures.total()
    }

    /// Consumes the wake-up at `at`. `false` if it is outdated.
    pub(crate) fn take_wake_up(&mut self, at: Timestamp) -> bool {
        let is_valid = self.wake_at == Some(at);
        if is_valid {
            self.wake_at = None;
        }
        is_valid
    }

    /// Replaces the wake-up. `Some` if it has to be added to the event queue.
    pub(crate) fn set_wake_up(&mut self, at: Option<Timestamp>) -> Option<Timestamp> {
        let changed = self.wake_at != at;
        self.wake_at = at;
        at.filter(|_| changed)
    }

    /// Decides what to do at `now`. [`ClientAction::Send`] must be followed by [`Client::sent`].
    pub(crate) fn next_action(&mut self, now: Timestamp) -> ClientAction {
        if now < self.load.start() {
            return ClientAction::WaitUntil(Some(self.load.start()));
        }
        let id = self
            .free_ids
            .last()
            .copied()
            .unwrap_or(AttemptId(self.attempts.len()));
        let has_backlog = self.load.has(now);
        if let Some(costs) = &mut self.costs {
            let cost = costs.next(&mut self.random);
            let estimate = costs.estimate(cost);
            self.sender.controller_mut().set_next_cost(estimate);
        }
        let action =
            self.sender
                .controller_mut()
                .next_action(id, has_backlog, now, &mut self.random);
        match action {
            Action::Send => {
                self.load.take();
                self.failures.sent(id);
                ClientAction::Send(id, self.take_cost())
            }
            Action::Resend(resend) => {
                self.failures.resent(id, resend);
                ClientAction::Send(id, self.take_cost())
            }
            Action::Wait { until } => {
                let arrival = self.load.next_arrival().filter(|_| !has_backlog);
                // A controller that could send now and does not waits for an attempt to end.
                let until = until.filter(|until| *until > now);
                ClientAction::WaitUntil([until, arrival].into_iter().flatten().min())
            }
        }
    }

    fn take_cost(&mut self) -> Option<u32> {
        self.costs.as_mut()?.next.take()
    }

    /// Records an attempt that has just been sent. `true` if a wait that the server asked for had
    /// not ended.
    pub(crate) fn sent(&mut self, id: AttemptId, attempt: Attempt) -> bool {
        if self.free_ids.pop().is_none() {
            self.attempts.push(attempt);
        } else {
            self.attempts[id.0] = attempt;
        }
        attempt.sent_at < self.hint_until
    }

    /// Reports the end of an attempt to the controller. Returns the attempt.
    pub(crate) fn attempt_ended(&mut self, id: AttemptId, now: Timestamp) -> Attempt {
        let attempt = self.attempts[id.0];
        self.free_ids.push(id);
        let result = attempt.result(now);
        if let Some(wait) = result.outcome.hint.wait {
            self.hint_until = self.hint_until.max(now + wait);
        }
        let follow_up =
            self.sender
                .controller_mut()
                .attempt_ended(id, &result, now, &mut self.random);
        if follow_up == FollowUp::Requeue {
            self.load.put_back();
        }
        if follow_up != FollowUp::Done
            && let Some(costs) = &mut self.costs
        {
            costs.returned.extend(attempt.cost);
        }
        self.failures
            .ended(id, AttemptClass::of(&attempt.end), follow_up);
        attempt
    }
}

impl Attempt {
    /// The result of this attempt if it ends at `now`.
    pub(crate) fn result(&self, now: Timestamp) -> AttemptResult {
        let latency = now.since(self.sent_at);
        match &self.end {
            AttemptEnd::Response(response) => {
                let mut result = AttemptResult::of_response(response, latency);
                result.outcome.used = self.cost.filter(|_| response.is_accepted());
                result
            }
            AttemptEnd::Unreachable => AttemptResult::unreachable(latency),
            AttemptEnd::TimedOut => AttemptResult::timed_out(latency),
        }
    }
}
