//! A scenario, played: the same scenario and the same seed always come to the same.
//!
//! **Chance.** From the seed comes one stream of random numbers for the upstream and one for each
//! client, in this order. No client draws from another's, and what a client draws, if its strategy
//! draws at all, does not reach the upstream.
//!
//! **Observers** look at every event as it happens, for tests of what is promised of each. Nobody
//! pays for them who has none.

mod observe;

use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;

use crate::client::{self, Client, Ending, Flight, FlightId, Wish};
use crate::measure::{
    AfterFailures, Capacity, Class, Ends, Figures, Recorder, Series, SeriesRecorder,
};
use crate::scenario::Scenario;
pub(crate) use crate::simulate::observe::{Observer, Sight, What};
use crate::upstream::{Reply, Upstream};
use crate::world::Queue;

/// Plays a scenario to its end.
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

/// The same; `watch` is told now and then which share of the time has passed, from 0 to 1.
pub fn simulate_watched(scenario: &Scenario, seed: u64, watch: &mut dyn FnMut(f64)) -> Figures {
    Run::new(scenario, seed, None).play(watch).0
}

/// The same, with `observer` looking on.
pub(crate) fn simulate_observed(
    scenario: &Scenario,
    seed: u64,
    observer: &mut dyn Observer,
) -> Figures {
    let mut run = Run::new(scenario, seed, None);
    run.observer = Some(observer);
    run.play(&mut |_| {}).0
}

/// The same, and what happened over time in slices of `step`, at least a millisecond.
pub fn simulate_with_series(scenario: &Scenario, seed: u64, step: Duration) -> (Figures, Series) {
    let step = step.max(Duration::from_millis(1));
    let capacity = Capacity::of(&scenario.upstream);
    let clients = scenario.client_count();
    let series = SeriesRecorder::new(step, scenario.duration, &capacity, clients);
    let (figures, series) = Run::new(scenario, seed, Some(series)).play(&mut |_| {});
    let series = series.expect("whoever began with a series ends with it");
    (figures, series.finish())
}

struct Run<'s> {
    scenario: &'s Scenario,
    queue: Queue<Event>,
    upstream: Upstream,
    random: Random,
    clients: Vec<Client>,
    recorder: Recorder,
    series: Option<SeriesRecorder>,
    observer: Option<&'s mut dyn Observer>,
}

/// Some milliseconds of work, so that watching costs nothing and a bar still moves.
const EVENTS_PER_WORD: u64 = 1 << 14;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client wanted to be woken; it may have changed its mind.
    Wake { client: usize },
    /// A request of a client has ended.
    Ended { client: usize, id: FlightId },
    /// A slice of the series has ended.
    Slice,
}

impl<'s> Run<'s> {
    fn new(scenario: &'s Scenario, seed: u64, series: Option<SeriesRecorder>) -> Self {
        let mut seeds = Random::from_seed(seed);
        let mut stream = || Random::from_seed(seeds.next_u64());
        let random = stream();
        let kinds = scenario.clients.iter();
        let clients: Vec<_> = kinds
            .flat_map(|kind| (0..kind.count).map(move |_| kind))
            .map(|kind| Client::new(kind, stream()))
            .collect();
        Self {
            queue: Queue::new(),
            upstream: Upstream::new(&scenario.upstream),
            random,
            recorder: Recorder::new(scenario, clients.len()),
            clients,
            series,
            observer: None,
            scenario,
        }
    }

    fn play(mut self, watch: &mut dyn FnMut(f64)) -> (Figures, Option<SeriesRecorder>) {
        let end = Timestamp::ZERO + self.scenario.duration;
        for client in 0..self.clients.len() {
            self.serve(client, Timestamp::ZERO);
        }
        if let Some(series) = &self.series {
            self.queue
                .push(Timestamp::ZERO + series.step(), Event::Slice);
        }
        let mut events: u64 = 0;
        while let Some((now, event)) = self.queue.pop()
            && now < end
        {
            events += 1;
            if events.is_multiple_of(EVENTS_PER_WORD) {
                let passed = now.seconds_since(Timestamp::ZERO);
                watch(passed / self.scenario.duration.as_secs_f64());
            }
            match event {
                Event::Wake { client } if self.clients[client].wakes_at(now) => {
                    self.serve(client, now);
                }
                Event::Wake { .. } => {}
                Event::Ended { client, id } => self.ended(client, id, now),
                Event::Slice => self.slice(now),
            }
        }
        if self.series.is_some() {
            self.sample(end);
        }
        self.finish()
    }

    /// Lets everything leave that a client may send now, and notes when to ask it again.
    fn serve(&mut self, client: usize, now: Timestamp) {
        loop {
            match self.clients[client].wish(now) {
                Wish::Send(id) => self.send(client, id, now),
                Wish::Wake(at) => {
                    self.show(client, now, What::Waits { until: at });
                    if let Some(at) = self.clients[client].wake(at) {
                        self.queue.push(at, Event::Wake { client });
                    }
                    return;
                }
            }
        }
    }

    /// Nothing overtakes on the way, so the upstream may be asked now what will happen when the
    /// request arrives.
    fn send(&mut self, client: usize, id: FlightId, now: Timestamp) {
        let settings = &self.scenario.upstream;
        let arrives = now + settings.network;
        let (ends, ending) = match self.upstream.receive(client, arrives, &mut self.random) {
            Reply::Answered { at, answer } => (at + settings.network, Ending::Answered(answer)),
            Reply::Unreachable => (arrives + settings.network, Ending::Unreachable),
            Reply::Silent { timeout } => (now + timeout, Ending::TimedOut),
        };
        let flight = Flight {
            sent_at: now,
            ending,
        };
        let was_early = self.clients[client].sent(id, flight);
        self.recorder.sent(settings, was_early, now);
        if let Some(series) = &mut self.series {
            series.sent(now);
        }
        // A breaker may be HalfOpen for no longer than this request takes.
        self.note(client, now);
        self.queue.push(ends, Event::Ended { client, id });
        let class = Class::of(&ending);
        self.show(client, now, What::Sent { id, class, ends });
    }

    fn ended(&mut self, client: usize, id: FlightId, now: Timestamp) {
        let flight = self.clients[client].ended(id, now);
        let class = Class::of(&flight.ending);
        let latency = now.since(flight.sent_at);
        self.recorder.ended(client, class, latency, now);
        if let Some(series) = &mut self.series {
            series.ended(client, class, latency, now);
        }
        self.note(client, now);
        if self.observer.is_some() {
            let attempt = &client::judged(&flight, now);
            self.show(client, now, What::Ended { id, class, attempt });
        }
        self.serve(client, now);
    }

    fn note(&mut self, client: usize, now: Timestamp) {
        if let Some(series) = &mut self.series {
            let standing = self.clients[client].controller().standing(now);
            series.note(client, &standing, now);
        }
    }

    fn show(&mut self, client: usize, now: Timestamp, what: What<'_>) {
        if let Some(observer) = &mut self.observer {
            let who = &self.clients[client];
            observer.look(&Sight {
                now,
                client,
                what,
                has_fresh: who.load().has(now),
                gate: who.controller().gate(),
            });
        }
    }

    fn slice(&mut self, now: Timestamp) {
        self.sample(now);
        if let Some(series) = &self.series {
            self.queue.push(now + series.step(), Event::Slice);
        }
    }

    fn sample(&mut self, now: Timestamp) {
        if let Some(series) = &mut self.series {
            for (number, client) in self.clients.iter().enumerate() {
                series.sample(number, &client.controller().standing(now), now);
            }
        }
    }

    fn finish(self) -> (Figures, Option<SeriesRecorder>) {
        let opened = self
            .clients
            .iter()
            .map(|client| client.controller().breaker_opened());
        let mut after_failures = AfterFailures::default();
        for client in &self.clients {
            let AfterFailures { failures, sends } = client.after_failures();
            after_failures.failures += failures;
            after_failures.sends += sends;
        }
        let ends = Ends {
            bans: self.upstream.bans(),
            breaker_opened: opened.sum(),
            max_queue: self.upstream.max_queue(),
            after_failures,
        };
        let loads: Vec<_> = self.clients.iter().map(Client::load).collect();
        let figures = self.recorder.figures(self.scenario, &loads, ends);
        (figures, self.series)
    }
}

#[cfg(test)]
mod tests;
