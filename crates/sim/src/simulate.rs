//! Runs scenarios. The same scenario and seed always give the same result.
//!
//! **Randomness.** The seed gives one stream of random numbers to the upstream and one to each
//! client, in this order, then one to the store of each fleet. Clients do not draw from each other's streams, and a client's draws do not
//! affect the upstream.
//!
//! **Fleets.** Every node of a fleet is a client. Its calls to the store, and what the store answers,
//! are events like requests.
//!
//! **Stopping.** A run may be long. Every few milliseconds it calls a function of its caller with the
//! virtual time it has reached, which may end it: a server does when the client has disconnected.
//!
//! **Observers** see every event of a run, for the checks of invariants. Without an observer they
//! cost nothing.

mod fleet;

use std::ops::ControlFlow;
use std::time::Duration;

use policy::fleet::{Notice, Reply as StoreReply};
use policy::random::Random;
use policy::time::Timestamp;

use crate::client::{
    Attempt, AttemptEnd, AttemptId, AttemptResult, Client, ClientAction, GateView, Message,
};
use crate::measure::{
    AttemptClass, Capacity, FailureCost, Figures, FinalState, Recorder, Series, SeriesRecorder,
};
use crate::scenario::Scenario;
use crate::upstream::{Reply, Upstream};
use crate::world::Queue;
use fleet::{Fleet, Seat, Senders};

/// Runs a scenario to its end.
///
/// ```
/// use sim::client::{ClientSettings, Strategy};
/// use sim::scenario::Scenario;
/// use sim::simulate::simulate;
/// use sim::upstream::{Kind, UpstreamSettings};
///
/// let upstream = UpstreamSettings::of(Kind::Bucket { rate: 50.0, burst: 10.0 });
/// let client = ClientSettings::of(Strategy::Fixed(50.0));
/// let figures = simulate(&Scenario::of(upstream, vec![client]), 1);
/// assert_eq!(figures.refused, 0);
/// assert!(figures.goodput_ratio.unwrap() > 0.99);
/// ```
pub fn simulate(scenario: &Scenario, seed: u64) -> Figures {
    simulate_watched(scenario, seed, &mut |_| {})
}

/// Runs a scenario and reports its progress, from 0 to 1, every few milliseconds of real time.
pub fn simulate_watched(scenario: &Scenario, seed: u64, progress: &mut dyn FnMut(f64)) -> Figures {
    let whole = Run::new(scenario, seed, None).run(&mut |done| {
        progress(done.share);
        ControlFlow::Continue(())
    });
    whole.expect(NOT_STOPPED).0
}

const NOT_STOPPED: &str = "only its watcher stops a run, and this one does not";

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// From 0 to 1.
    pub share: f64,
    /// Requests sent so far.
    pub sent: u64,
}

/// Runs a scenario and also records it over time, in slices of `step`, which is at least a
/// millisecond.
pub fn simulate_with_series(scenario: &Scenario, seed: u64, step: Duration) -> (Figures, Series) {
    let whole = simulate_until(scenario, seed, step, &mut |_| ControlFlow::Continue(()));
    whole.expect(NOT_STOPPED)
}

/// The same, unless `watch` stops it, which is called every few milliseconds of real time; `None` if
/// it did.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::time::Duration;
/// use sim::scenario::Shipped;
/// use sim::simulate::simulate_until;
///
/// let scenario = Shipped::find("o1").unwrap().scenario();
/// let mut stop = |_| ControlFlow::Break(());
/// assert_eq!(simulate_until(&scenario, 1, Duration::from_secs(1), &mut stop), None);
/// ```
pub fn simulate_until(
    scenario: &Scenario,
    seed: u64,
    step: Duration,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Option<(Figures, Series)> {
    let step = step.max(Duration::from_millis(1));
    let capacity = Capacity::for_clients(scenario);
    let clients = scenario.client_count();
    let series = SeriesRecorder::new(step, scenario.duration, &capacity, clients);
    let (figures, series) = Run::new(scenario, seed, Some(series)).run(watch)?;
    let series = series.expect("a run with a series returns it");
    Some((figures, series.finish()))
}

/// Runs a scenario and shows every event to `observer`.
pub(crate) fn simulate_observed(
    scenario: &Scenario,
    seed: u64,
    observer: &mut dyn Observer,
) -> Figures {
    let mut run = Run::new(scenario, seed, None);
    run.observer = Some(observer);
    let whole = run.run(&mut |_| ControlFlow::Continue(()));
    whole.expect(NOT_STOPPED).0
}

/// Runs a scenario and tells which node of a fleet, counted from 1, has reached its store and when.
pub(crate) fn simulate_calls(
    scenario: &Scenario,
    seed: u64,
    on_call: &mut dyn FnMut(u32, Timestamp),
) -> Figures {
    let mut run = Run::new(scenario, seed, None);
    run.on_call = Some(on_call);
    let whole = run.run(&mut |_| ControlFlow::Continue(()));
    whole.expect(NOT_STOPPED).0
}

/// Sees every event of a run without affecting it.
pub(crate) trait Observer {
    /// Called after each event.
    fn observe(&mut self, observation: &Observation<'_>);
}

/// An event and the state right after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation<'a> {
    pub(crate) now: Timestamp,
    /// The number of the client.
    pub(crate) client: usize,
    pub(crate) event: ClientEvent<'a>,
    pub(crate) has_backlog: bool,
    /// The client's gate, if it has one.
    pub(crate) gate: Option<GateView<'a>>,
}

/// What happened at a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientEvent<'a> {
    /// Its controller was asked and sends nothing now.
    Waits {
        /// When the controller is asked again; `None`: after the end of an attempt.
        until: Option<Timestamp>,
    },
    /// A request was sent.
    Sent {
        id: AttemptId,
        /// How the attempt will end, which only an observer can know.
        class: AttemptClass,
        /// When it will end.
        ends: Timestamp,
    },
    /// An attempt ended, and the controller has its result.
    Ended {
        id: AttemptId,
        class: AttemptClass,
        result: &'a AttemptResult,
    },
}

struct Run<'s> {
    scenario: &'s Scenario,
    queue: Queue<Event>,
    upstream: Upstream,
    random: Random,
    clients: Vec<Client>,
    /// By client.
    seats: Vec<Seat>,
    fleets: Vec<Fleet>,
    recorder: Recorder,
    series: Option<SeriesRecorder>,
    observer: Option<&'s mut dyn Observer>,
    on_call: Option<&'s mut dyn FnMut(u32, Timestamp)>,
}

/// A few milliseconds of work: often enough for a progress bar, rarely enough to cost nothing.
const EVENTS_PER_REPORT: u64 = 1 << 14;

#[derive(Debug)]
enum Event {
    /// A client's wake-up, which may be outdated.
    WakeUp { client: usize },
    /// The end of a client's attempt.
    AttemptEnd { client: usize, id: AttemptId },
    /// The end of a slice of the series.
    SliceEnd,
    /// A node of a fleet may have to call its store, which may be outdated.
    NodeWakeUp { client: usize },
    /// A node may start or stop.
    NodeChange { client: usize },
    /// A call arrives at the store of a fleet.
    Call(Box<Message>),
    /// Its reply arrives at the node.
    Reply(Box<Message>, Box<StoreReply>),
    /// The node gives up on its call.
    NoReply(Box<Message>),
    /// What the store published arrives at a node.
    Notice { client: usize, notice: Notice },
}

impl<'s> Run<'s> {
    fn new(scenario: &'s Scenario, seed: u64, series: Option<SeriesRecorder>) -> Self {
        let mut seeds = Random::from_seed(seed);
        let mut stream = || Random::from_seed(seeds.next_u64());
        let random = stream();
        let Senders {
            clients,
            seats,
            fleets,
        } = Senders::new(scenario, stream);
        Self {
            queue: Queue::new(),
            upstream: Upstream::new(&scenario.upstream),
            random,
            recorder: Recorder::new(scenario, clients.len()),
            clients,
            seats,
            fleets,
            series,
            observer: None,
            on_call: None,
            scenario,
        }
    }

    /// Runs to the end; `None` if `watch` stops it.
    fn run(
        mut self,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Option<(Figures, Option<SeriesRecorder>)> {
        let end = Timestamp::ZERO + self.scenario.duration;
        self.schedule_nodes();
        for client in 0..self.clients.len() {
            self.send_all(client, Timestamp::ZERO);
        }
        if let Some(series) = &self.series {
            self.queue
                .push(Timestamp::ZERO + series.step(), Event::SliceEnd);
        }
        let mut events: u64 = 0;
        while let Some((now, event)) = self.queue.pop()
            && now < end
        {
            events += 1;
            if events.is_multiple_of(EVENTS_PER_REPORT) {
                let passed = now.seconds_since(Timestamp::ZERO);
                let progress = Progress {
                    share: passed / self.scenario.duration.as_secs_f64(),
                    sent: self.recorder.sent_count(),
                };
                if watch(progress).is_break() {
                    return None;
                }
            }
            match event {
                Event::WakeUp { client } if self.clients[client].take_wake_up(now) => {
                    self.send_all(client, now);
                }
                Event::WakeUp { .. } => {}
                Event::AttemptEnd { client, id } => self.end_attempt(client, id, now),
                Event::SliceEnd => self.end_slice(now),
                Event::NodeWakeUp { client } => self.wake_node(client, now),
                Event::NodeChange { client } => self.change_node(client, now),
                Event::Call(message) => self.answer_call(message, now),
                Event::Reply(message, reply) => self.take_reply(&message, &reply, now),
                Event::NoReply(message) => self.give_up_call(&message, now),
                Event::Notice { client, notice } => self.take_notice(client, &notice, now),
            }
        }
        self.sample(end);
        Some(self.finish(end))
    }

    /// Sends everything that a client may send now, and schedules its next wake-up.
    fn send_all(&mut self, client: usize, now: Timestamp) {
        loop {
            match self.clients[client].next_action(now) {
                ClientAction::Send(id, cost) => self.send(client, id, cost, now),
                ClientAction::WaitUntil(until) => {
                    self.show(client, now, ClientEvent::Waits { until });
                    if let Some(at) = self.clients[client].set_wake_up(until) {
                        self.queue.push(at, Event::WakeUp { client });
                    }
                    break;
                }
            }
        }
        self.attend_node(client, now);
    }

    /// Requests do not overtake each other on the network, so the upstream can decide now what
    /// happens when the request arrives.
    fn send(&mut self, client: usize, id: AttemptId, cost: Option<u32>, now: Timestamp) {
        let settings = &self.scenario.upstream;
        let arrives = now + settings.network;
        let account = self.seats[client].account;
        let reply =
            self.upstream
                .receive_cost(account, cost.unwrap_or(1), arrives, &mut self.random);
        let (ends, end) = match reply {
            Reply::Response { at, response } => {
                (at + settings.network, AttemptEnd::Response(response))
            }
            Reply::Unreachable => (arrives + settings.network, AttemptEnd::Unreachable),
            Reply::Silent { timeout } => (now + timeout, AttemptEnd::TimedOut),
        };
        let attempt = Attempt {
            sent_at: now,
            end,
            cost,
        };
        let was_early = self.clients[client].sent(id, attempt);
        self.recorder.sent(settings, was_early, now);
        if let Some(series) = &mut self.series {
            series.sent(now);
        }
        // A breaker may be HalfOpen only as long as this attempt takes.
        self.record_state(client, now);
        self.queue.push(ends, Event::AttemptEnd { client, id });
        let class = AttemptClass::of(&end);
        self.show(client, now, ClientEvent::Sent { id, class, ends });
    }

    fn end_attempt(&mut self, client: usize, id: AttemptId, now: Timestamp) {
        let attempt = self.clients[client].attempt_ended(id, now);
        let class = AttemptClass::of(&attempt.end);
        let latency = now.since(attempt.sent_at);
        self.recorder.ended(client, class, latency, now);
        if class == AttemptClass::Accepted {
            self.recorder.add_cost(attempt.cost);
        }
        if let Some(series) = &mut self.series {
            series.ended(client, class, latency, now);
        }
        self.record_state(client, now);
        if self.observer.is_some() {
            let result = &attempt.result(now);
            self.show(client, now, ClientEvent::Ended { id, class, result });
        }
        self.send_all(client, now);
    }

    fn record_state(&mut self, client: usize, now: Timestamp) {
        if let Some(series) = &mut self.series {
            let state = self.clients[client].controller().state(now);
            series.record_state(client, &state, now);
        }
    }

    fn show(&mut self, client: usize, now: Timestamp, event: ClientEvent<'_>) {
        if let Some(observer) = &mut self.observer {
            let observed = &self.clients[client];
            observer.observe(&Observation {
                now,
                client,
                event,
                has_backlog: observed.load().has(now),
                gate: observed.controller().gate(),
            });
        }
    }

    fn end_slice(&mut self, now: Timestamp) {
        self.sample(now);
        if let Some(series) = &self.series {
            self.queue.push(now + series.step(), Event::SliceEnd);
        }
    }

    fn sample(&mut self, now: Timestamp) {
        if let Some(series) = &mut self.series {
            for (number, client) in self.clients.iter().enumerate() {
                series.sample(number, &client.controller().state(now), now);
            }
        }
    }

    fn finish(self, end: Timestamp) -> (Figures, Option<SeriesRecorder>) {
        let controllers = self.clients.iter().map(Client::controller);
        let mut at_end = FinalState {
            bans: self.upstream.bans(),
            max_client_bans: self.upstream.max_client_bans(),
            breaker_opened: 0,
            max_queue: self.upstream.max_queue(),
            failure_cost: FailureCost::default(),
            store_calls: (!self.fleets.is_empty())
                .then(|| self.fleets.iter().map(Fleet::calls).sum()),
            explanations: controllers.map(|of| of.explanation(end)).collect(),
        };
        for client in &self.clients {
            at_end.breaker_opened += client.controller().breaker_opened();
            at_end.failure_cost += client.failure_cost();
        }
        let loads: Vec<_> = self.clients.iter().map(Client::load).collect();
        let figures = self.recorder.figures(self.scenario, &loads, at_end);
        (figures, self.series)
    }
}

#[cfg(test)]
mod tests;
