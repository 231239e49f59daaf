//! A pool whose endpoints have gates: probing for hidden limits must not climb the ladders.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use policy::gate::{Ask, Decision, Gate, GateSettings, Permit};
use policy::ladder::{EndpointResult, LadderOptions, LadderSettings};
use policy::line::Tickets;
use policy::outcome::Outcome;
use policy::pool::{Balance, Choice, EndpointId, Lease, Pool};
use policy::random::Random;
use policy::time::Timestamp;
use sim::upstream::{Kind, Reply, Upstream, UpstreamSettings};
use sim::world::Queue;

const RATE: f64 = 50.0;
const NETWORK: Duration = Duration::from_millis(10);
const END: Timestamp = Timestamp::from_secs(300);

/// Two endpoints with a hidden limit each, and an endless backlog.
struct World {
    protection: LadderSettings,
    settings: GateSettings,
    pool: Pool,
    endpoints: Vec<(EndpointId, Gate, Upstream)>,
    tickets: Tickets,
    /// Responses, and times to try again.
    events: Queue<Option<Response>>,
    random: Random,
    accepted: u32,
}

struct Response {
    endpoint: usize,
    permit: Permit,
    lease: Lease,
    status: u16,
    latency: Duration,
}

impl World {
    fn new(protection: &[(&str, &str)], seed: u64) -> Self {
        let mut options = LadderOptions::default();
        for (name, value) in protection {
            options.set(name, value).unwrap();
        }
        let settings = GateSettings::default();
        let upstream = UpstreamSettings {
            kind: Kind::Bucket {
                rate: RATE,
                burst: 10.0,
            },
            cost: None,
            retry_after: false,
            headers: false,
            latency: Duration::from_millis(70),
            latency_spread: 0.25,
            refuse_latency: Duration::from_millis(15),
            network: NETWORK,
            failure_rate: 0.0,
            steps: Vec::new(),
            outages: Vec::new(),
            ban: None,
        };
        let mut pool = Pool::new(Balance::default());
        let endpoints = ["a", "b"].map(|name| {
            let gate = Gate::new(&settings, Timestamp::ZERO);
            (pool.add(name).unwrap(), gate, Upstream::new(&upstream))
        });
        Self {
            protection: options.build().unwrap(),
            settings,
            pool,
            endpoints: endpoints.into(),
            tickets: Tickets::new(),
            events: Queue::new(),
            random: Random::from_seed(seed),
            accepted: 0,
        }
    }

    /// The share of both capacities that was accepted.
    fn goodput(mut self) -> f64 {
        let (mut now, mut looks_at) = (Timestamp::ZERO, END);
        while now < END {
            if let Some(until) = self.send(now)
                && (until < looks_at || looks_at <= now)
            {
                looks_at = until;
                self.events.push(until, None);
            }
            let (at, event) = self.events.pop().unwrap_or((END, None));
            now = at;
            if let Some(response) = event {
                self.settle(response, now);
            }
        }
        f64::from(self.accepted) / (2.0 * RATE * END.seconds_since(Timestamp::ZERO))
    }

    /// Sends what may leave now; returns when to try again, if known.
    fn send(&mut self, now: Timestamp) -> Option<Timestamp> {
        let ask = Ask::until(now);
        loop {
            let Self {
                settings,
                tickets,
                endpoints,
                ..
            } = self;
            let leaves_at = |endpoint: &policy::pool::Endpoint| {
                let (_, gate, _) = endpoints
                    .iter_mut()
                    .find(|(id, ..)| *id == endpoint.id())
                    .unwrap();
                let peeked = gate.peek(settings, tickets, &ask, now);
                peeked.map_or_else(|(_, until)| until.unwrap_or(Timestamp::MAX), |()| now)
            };
            let lease = match self.pool.choose(&self.protection, now, leaves_at) {
                Choice::Send(lease) => lease,
                Choice::Wait { until, .. } => return until,
                Choice::NoEndpoint => return None,
            };
            self.dial(lease, &ask, now);
        }
    }

    fn dial(&mut self, lease: Lease, ask: &Ask, now: Timestamp) {
        let mut endpoints = self.endpoints.iter();
        let endpoint = endpoints
            .position(|(id, ..)| *id == lease.endpoint())
            .unwrap();
        let (_, gate, upstream) = &mut self.endpoints[endpoint];
        let decision = gate.acquire(&self.settings, &mut self.tickets, ask, now);
        let Decision::Admit(permit) = decision else {
            panic!("{decision:?} although the gate said it would admit");
        };
        let reply = upstream.receive(0, now + NETWORK, &mut self.random);
        let Reply::Response { at, response } = reply else {
            panic!("{reply:?} without an outage");
        };
        let response = Response {
            endpoint,
            permit,
            lease,
            status: response.status,
            latency: (at + NETWORK).since(now),
        };
        self.events.push(at + NETWORK, Some(response));
    }

    fn settle(&mut self, response: Response, now: Timestamp) {
        self.accepted += u32::from(response.status == 200);
        let outcome = Outcome::status(response.status, response.latency);
        let verdict = outcome.classify().verdict;
        let (_, gate, _) = &mut self.endpoints[response.endpoint];
        gate.settle(&self.settings, response.permit, &outcome, verdict, now);
        let ended = EndpointResult::response(response.status, verdict, "", &outcome.hint)
            .with_strategy(self.settings.strategy());
        self.pool
            .settle(&self.protection, response.lease, &ended, now);
    }
}

#[test]
fn uses_both_hidden_limits_of_a_pool_despite_probing() {
    let mut sum = 0.0;
    for seed in 0..5 {
        let share = World::new(&[], seed).goodput();
        assert!(share >= 0.85, "seed {seed}: {share}");
        sum += share;
        let share = World::new(&[("probing_after", "0")], seed).goodput();
        assert!(share < 0.1, "seed {seed}, every 429 climbs: {share}");
    }
    assert!(sum / 5.0 >= 0.95, "{sum} of 5");
}
