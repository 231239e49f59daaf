//! Limiters that share their gates, in virtual time, with the script of the store in Rust.

#![cfg(feature = "tokio")]
#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::fleet::{Claim, Ledger, NodeId, Notice, Reply, SharedCall, SharedGates};
use tidegate::hint::{Hint, Source};
use tidegate::{BreakerState, Clock, Limiter, Outcome, Timestamp};
use tokio::time::sleep;

const KEY: &str = "api.example.com";
const INTERVAL: Duration = Duration::from_millis(100);
const LEASE: Duration = Duration::from_secs(2);

/// A store on the network: every call takes 2 ms.
#[derive(Default)]
struct Store {
    ledgers: Mutex<BTreeMap<String, Ledger>>,
    is_silent: AtomicBool,
    calls: AtomicU32,
    nodes: Mutex<Vec<(NodeId, SharedGates)>>,
}

impl Store {
    async fn sync(&self, node: NodeId, calls: &[SharedCall], clock: &Clock) -> Option<Vec<Reply>> {
        sleep(Duration::from_millis(1)).await;
        if self.is_silent.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(250)).await;
            return None;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut replies = Vec::new();
        for call in calls {
            let (reply, notice) = self.answer(node, call, clock.now());
            replies.push(reply);
            if let Some(notice) = notice {
                for (_, gates) in self.nodes.lock().unwrap().iter() {
                    gates.noticed(&call.key, &notice);
                }
            }
        }
        sleep(Duration::from_millis(1)).await;
        Some(replies)
    }

    fn answer(&self, node: NodeId, call: &SharedCall, now: Timestamp) -> (Reply, Option<Notice>) {
        let mut ledgers = self.ledgers.lock().unwrap();
        let (settings, call, key) = (&call.settings, &call.call, &call.key);
        let ledger = ledgers
            .entry(key.clone())
            .or_insert_with(|| Ledger::new(settings, call.claim.as_ref(), now));
        ledger.sync(settings, node, call, now)
    }
}

/// An upstream that accepts 100 requests per second, ten at once.
struct Upstream {
    state: Mutex<(f64, Timestamp, Vec<Timestamp>)>,
    refused: AtomicU32,
    /// It answers 502 to everything.
    is_broken: AtomicBool,
    /// It did once, so that asks fail.
    has_broken: AtomicBool,
}

impl Upstream {
    fn new() -> Self {
        Self {
            state: Mutex::new((10.0, Timestamp::ZERO, Vec::new())),
            refused: AtomicU32::new(0),
            is_broken: AtomicBool::new(false),
            has_broken: AtomicBool::new(false),
        }
    }

    async fn send(&self, clock: &Clock) -> Outcome {
        sleep(Duration::from_millis(10)).await;
        let status = match self.accepts(clock.now()) {
            _ if self.is_broken.load(Ordering::Relaxed) => 502,
            true => 200,
            false => 429,
        };
        sleep(Duration::from_millis(60)).await;
        Outcome::status(status, Duration::from_millis(70))
    }

    fn accepts(&self, now: Timestamp) -> bool {
        let mut state = self.state.lock().unwrap();
        let (tokens, at, sent) = &mut *state;
        *tokens = (*tokens + 100.0 * now.seconds_since(*at)).min(10.0);
        *at = now;
        sent.push(now);
        let is_accepted = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(is_accepted));
        self.refused
            .fetch_add(u32::from(!is_accepted), Ordering::Relaxed);
        is_accepted
    }

    /// Requests in these seconds since the start.
    fn sent(&self, seconds: std::ops::Range<u64>) -> usize {
        let range = Timestamp::from_secs(seconds.start)..Timestamp::from_secs(seconds.end);
        let state = self.state.lock().unwrap();
        state.2.iter().filter(|at| range.contains(at)).count()
    }

    /// The most requests in any ten seconds from `from` on.
    fn worst_ten_seconds(&self, from: u64) -> usize {
        let state = self.state.lock().unwrap();
        let sent = &state.2;
        let starts = sent.iter().filter(|at| **at >= Timestamp::from_secs(from));
        let within = |start: &Timestamp| {
            let end = *start + Duration::from_secs(10);
            sent.iter().filter(|at| (*start..end).contains(at)).count()
        };
        starts.map(within).max().unwrap_or(0)
    }
}

struct Node {
    limiter: Limiter,
    gates: SharedGates,
    accepted: Arc<AtomicU32>,
}

/// A node with a driver.
fn node(number: u64, store: &Arc<Store>, clock: &Clock) -> Node {
    let id = NodeId(number);
    let limiter = Limiter::builder()
        .clock(clock.clone())
        .fleet(id, INTERVAL, LEASE)
        .build();
    let gates = limiter.shared_gates().unwrap();
    store.nodes.lock().unwrap().push((id, gates.clone()));
    let (store, driven, clock) = (Arc::clone(store), gates.clone(), clock.clone());
    tokio::spawn(async move {
        loop {
            let calls = driven.calls(32).await;
            match store.sync(id, &calls, &clock).await {
                Some(replies) => {
                    for (call, reply) in calls.into_iter().zip(&replies) {
                        driven.replied(call, reply);
                    }
                }
                None => calls.into_iter().for_each(|call| driven.unanswered(call)),
            }
        }
    });
    let ticked = gates.clone();
    tokio::spawn(async move {
        loop {
            sleep(INTERVAL).await;
            ticked.tick();
        }
    });
    Node {
        limiter,
        gates,
        accepted: Arc::default(),
    }
}

/// `count` callers of a node that send all the time.
fn load(node: &Node, upstream: &Arc<Upstream>, count: usize) {
    for _ in 0..count {
        let (limiter, upstream) = (node.limiter.clone(), Arc::clone(upstream));
        let accepted = Arc::clone(&node.accepted);
        tokio::spawn(async move {
            loop {
                let Ok(permit) = limiter.acquire(KEY).await else {
                    // Only an open breaker refuses.
                    assert!(upstream.has_broken.load(Ordering::Relaxed));
                    sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let outcome = upstream.send(limiter.clock()).await;
                if permit.settle(&outcome) == Some(tidegate::Verdict::Success) {
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn three_nodes_are_one_client() {
    let (store, upstream, clock) = (
        Arc::new(Store::default()),
        Arc::new(Upstream::new()),
        Clock::tokio(),
    );
    let nodes: Vec<Node> = (1..=3).map(|it| node(it, &store, &clock)).collect();
    nodes.iter().for_each(|node| load(node, &upstream, 20));
    sleep(Duration::from_secs(60)).await;
    let refused = upstream.refused.load(Ordering::Relaxed);
    let before: Vec<u32> = nodes
        .iter()
        .map(|node| node.accepted.load(Ordering::Relaxed))
        .collect();
    sleep(Duration::from_secs(60)).await;
    let accepted: Vec<u32> = nodes
        .iter()
        .zip(before)
        .map(|(node, before)| node.accepted.load(Ordering::Relaxed) - before)
        .collect();
    let total: u32 = accepted.iter().sum();
    assert!(total >= 5700, "{accepted:?}");
    let refused = upstream.refused.load(Ordering::Relaxed) - refused;
    assert!(refused < 30, "{refused} refused");
    let least = accepted.iter().min().unwrap();
    assert!(*least >= 1800, "{accepted:?}");
    let worst = upstream.worst_ten_seconds(60);
    assert!(worst <= 1050, "{worst}");
    let view = nodes[0].limiter.gate(KEY).unwrap();
    let fleet = view.fleet.unwrap();
    assert!((fleet.share - 1.0 / 3.0).abs() < 0.05, "{fleet:?}");
    assert!((80.0..=105.0).contains(&fleet.rate), "{fleet:?}");
    assert_eq!(view.strategy, tidegate::Strategy::Adaptive);
    let owners = nodes
        .iter()
        .filter(|node| node.limiter.gate(KEY).unwrap().fleet.unwrap().is_owner);
    assert_eq!(owners.count(), 1);
}

/// A caller of a node that asks so often per second, whatever becomes of it.
fn paced_load(node: &Node, upstream: &Arc<Upstream>, per_second: u32) {
    let (limiter, upstream) = (node.limiter.clone(), Arc::clone(upstream));
    let accepted = Arc::clone(&node.accepted);
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(1) / per_second).await;
            let (limiter, upstream) = (limiter.clone(), Arc::clone(&upstream));
            let accepted = Arc::clone(&accepted);
            tokio::spawn(async move {
                let permit = limiter.acquire(KEY).await.expect("no ask fails");
                let outcome = upstream.send(limiter.clock()).await;
                if permit.settle(&outcome) == Some(tidegate::Verdict::Success) {
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}

#[tokio::test(start_paused = true)]
async fn shares_follow_demand() {
    let (store, upstream, clock) = (
        Arc::new(Store::default()),
        Arc::new(Upstream::new()),
        Clock::tokio(),
    );
    let nodes: Vec<Node> = (1..=3).map(|it| node(it, &store, &clock)).collect();
    for (node, per_second) in nodes.iter().zip([10, 30]) {
        paced_load(node, &upstream, per_second);
    }
    load(&nodes[2], &upstream, 20);
    sleep(Duration::from_secs(60)).await;
    let count = || {
        let counts = nodes.iter().map(|it| it.accepted.load(Ordering::Relaxed));
        counts.collect::<Vec<u32>>()
    };
    let before = count();
    sleep(Duration::from_secs(60)).await;
    let accepted: Vec<u32> = count().iter().zip(before).map(|(a, b)| a - b).collect();
    // The first two get what they ask for, the third what is left of 100 per second.
    assert!((570..=610).contains(&accepted[0]), "{accepted:?}");
    assert!((1710..=1820).contains(&accepted[1]), "{accepted:?}");
    assert!(accepted.iter().sum::<u32>() >= 5400, "{accepted:?}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_seen_by_one_node_holds_all() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    let nodes: Vec<Node> = (1..=2).map(|it| node(it, &store, &clock)).collect();
    for node in &nodes {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    hold(&nodes[0], Duration::from_secs(7)).await;
    let asked = clock.now();
    sleep(Duration::from_millis(5)).await;
    let held = nodes[1].limiter.gate(KEY).unwrap().gate.hold;
    assert!(held.is_some(), "the message arrives at once");
    let _permit = nodes[1].limiter.acquire(KEY).await.unwrap();
    let waited = clock.now().since(asked);
    assert!(waited >= Duration::from_secs(7), "{waited:?}");
    assert!(waited < Duration::from_secs(9), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_survives_a_flush_of_the_store() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    let nodes: Vec<Node> = (1..=2).map(|it| node(it, &store, &clock)).collect();
    for node in &nodes {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    hold(&nodes[0], Duration::from_secs(3600)).await;
    sleep(Duration::from_secs(10)).await;
    store.ledgers.lock().unwrap().clear();
    // Without a request, nodes that know of a hold call once in a lease.
    sleep(Duration::from_secs(3)).await;
    let third = node(3, &store, &clock);
    let ask = third.limiter.acquire(KEY);
    let asked = tokio::time::timeout(Duration::from_secs(60), ask).await;
    assert!(
        !asked.is_ok_and(|permit| permit.is_ok()),
        "a node that joins later is held, too"
    );
    let until = third.limiter.gate(KEY).unwrap().gate.hold.unwrap().0;
    let left = until.since(clock.now());
    assert!(
        left <= Duration::from_secs(3600 - 13),
        "it is no longer: {left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_survives_a_flush_of_the_store() {
    let (store, upstream, clock) = (
        Arc::new(Store::default()),
        Arc::new(Upstream::new()),
        Clock::tokio(),
    );
    let nodes = open_breaker(&store, &upstream, &clock).await;
    sleep(Duration::from_millis(200)).await;
    for _ in 0..5 {
        store.ledgers.lock().unwrap().clear();
        let from = upstream.state.lock().unwrap().2.len();
        sleep(Duration::from_secs(4)).await;
        let sent = upstream.state.lock().unwrap().2.len() - from;
        assert!(sent <= 4, "{sent} in 4 s");
    }
    assert!(
        nodes
            .iter()
            .all(|node| breaker(node) != BreakerState::Closed)
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_at_one_node_ends_the_hold_of_all() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    let nodes: Vec<Node> = (1..=3).map(|it| node(it, &store, &clock)).collect();
    for node in &nodes[..2] {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    hold(&nodes[0], Duration::from_secs(3600)).await;
    // No request uses the key meanwhile.
    sleep(Duration::from_secs(60)).await;
    let is_held = |node: &Node| node.limiter.gate(KEY).unwrap().gate.hold.is_some();
    assert!(is_held(&nodes[0]) && is_held(&nodes[1]));
    // At a node that has not used the key at all.
    assert!(nodes[2].limiter.release(KEY));
    sleep(Duration::from_millis(10)).await;
    assert!(!is_held(&nodes[0]) && !is_held(&nodes[1]));
    let released = clock.now();
    for node in &nodes {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    let waited = clock.now().since(released);
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    sleep(Duration::from_secs(10)).await;
    assert!(!nodes.iter().any(is_held), "it does not come back");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_the_store_missed_at_first_arrives_later() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    let nodes: Vec<Node> = (1..=2).map(|it| node(it, &store, &clock)).collect();
    for node in &nodes {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    hold(&nodes[0], Duration::from_secs(3600)).await;
    sleep(Duration::from_secs(5)).await;
    store.is_silent.store(true, Ordering::Relaxed);
    nodes[0].limiter.release(KEY);
    let is_held = |node: &Node| node.limiter.gate(KEY).unwrap().gate.hold.is_some();
    sleep(Duration::from_secs(5)).await;
    assert!(!is_held(&nodes[0]), "it acts here at once");
    assert!(is_held(&nodes[1]));
    store.is_silent.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(3)).await;
    assert!(!is_held(&nodes[0]) && !is_held(&nodes[1]));
}

#[tokio::test(start_paused = true)]
async fn isolation_of_a_gate_is_that_of_the_fleet() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    let nodes: Vec<Node> = (1..=2).map(|it| node(it, &store, &clock)).collect();
    for node in &nodes {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    nodes[0].limiter.isolate(KEY).unwrap();
    sleep(Duration::from_millis(10)).await;
    let is_refused = |node: &Node| node.limiter.try_acquire(KEY).is_err();
    assert!(nodes.iter().all(is_refused));
    // A store that was flushed learns of it from the nodes.
    store.ledgers.lock().unwrap().clear();
    sleep(Duration::from_secs(60)).await;
    let third = node(3, &store, &clock);
    let joins = third.limiter.clone();
    let refused = tokio::time::timeout(Duration::from_secs(1), joins.acquire(KEY)).await;
    assert!(
        !refused.is_ok_and(|permit| permit.is_ok()),
        "a node that joins later is isolated, too"
    );
    nodes[1].limiter.reset(KEY);
    sleep(Duration::from_millis(50)).await;
    for node in nodes.iter().chain([&third]) {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
}

/// Gets a Retry-After of this length.
async fn hold(node: &Node, wait: Duration) {
    let permit = node.limiter.acquire(KEY).await.unwrap();
    let mut outcome = Outcome::status(429, Duration::from_millis(50));
    outcome.hint = Hint {
        wait: Some(wait),
        source: Some(Source::RetryAfter),
        ..Hint::default()
    };
    permit.settle(&outcome);
}

#[tokio::test(start_paused = true)]
async fn nodes_continue_with_their_shares_while_the_store_is_silent() {
    let (store, upstream, clock) = (
        Arc::new(Store::default()),
        Arc::new(Upstream::new()),
        Clock::tokio(),
    );
    let nodes: Vec<Node> = (1..=3).map(|it| node(it, &store, &clock)).collect();
    nodes.iter().for_each(|node| load(node, &upstream, 20));
    sleep(Duration::from_secs(60)).await;
    store.is_silent.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(1)).await;
    let status = nodes[0].gates.tick();
    assert_eq!((status.active, status.degraded), (1, 1));
    sleep(Duration::from_secs(29)).await;
    // The server comes back empty.
    store.ledgers.lock().unwrap().clear();
    store.is_silent.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(nodes[0].gates.tick().degraded, 0);
    let (during, after) = (upstream.sent(62..90), upstream.sent(95..120));
    assert!((1800..=2900).contains(&during), "{during}");
    assert!((2000..=2600).contains(&after), "{after}");
    let worst = upstream.worst_ten_seconds(55);
    assert!(worst <= 1050, "{worst}");
}

/// Eight nodes with load, and an upstream that broke until the breaker of the fleet was Open.
async fn open_breaker(store: &Arc<Store>, upstream: &Arc<Upstream>, clock: &Clock) -> Vec<Node> {
    let nodes: Vec<Node> = (1..=8).map(|it| node(it, store, clock)).collect();
    nodes.iter().for_each(|node| load(node, upstream, 5));
    sleep(Duration::from_secs(20)).await;
    upstream.is_broken.store(true, Ordering::Relaxed);
    upstream.has_broken.store(true, Ordering::Relaxed);
    for _ in 0..600 {
        if nodes.iter().all(|it| breaker(it) == BreakerState::Open) {
            return nodes;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("the breaker of the fleet is Open");
}

fn breaker(node: &Node) -> BreakerState {
    node.limiter.gate(KEY).unwrap().gate.breaker
}

#[tokio::test(start_paused = true)]
async fn nodes_probe_on_their_own_while_the_store_is_silent() {
    let (store, upstream, clock) = (
        Arc::new(Store::default()),
        Arc::new(Upstream::new()),
        Clock::tokio(),
    );
    let nodes = open_breaker(&store, &upstream, &clock).await;
    store.is_silent.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(3)).await;
    let from = clock.now().as_nanos() / 1_000_000_000;
    sleep(Duration::from_secs(60)).await;
    let probes = upstream.sent(from..from + 60);
    // One node alone would send 15, one after each open time of 4 s.
    assert!((4..=30).contains(&probes), "{probes} probes in a minute");
    // A probe closes only the breaker of its node.
    upstream.is_broken.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(180)).await;
    let states: Vec<_> = nodes.iter().map(breaker).collect();
    assert_eq!(states, [BreakerState::Closed; 8]);
    let from = clock.now().as_nanos() / 1_000_000_000;
    sleep(Duration::from_secs(30)).await;
    let sent = upstream.sent(from..from + 30);
    assert!((600..=3100).contains(&sent), "{sent} in 30 s");
    store.is_silent.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(20)).await;
    let states: Vec<_> = nodes.iter().map(breaker).collect();
    assert_eq!(states, [BreakerState::Closed; 8], "so does the fleet's");
}

#[tokio::test(start_paused = true)]
async fn the_fleet_trips_probes_with_one_request_and_closes() {
    let (store, upstream, clock) = (
        Arc::new(Store::default()),
        Arc::new(Upstream::new()),
        Clock::tokio(),
    );
    let nodes = open_breaker(&store, &upstream, &clock).await;
    // What was on its way arrives.
    sleep(Duration::from_millis(200)).await;
    let opened = clock.now();
    let mut sent = Vec::new();
    for _ in 0..300 {
        sleep(Duration::from_millis(100)).await;
        let state = upstream.state.lock().unwrap();
        sent = state.2.iter().filter(|at| **at > opened).copied().collect();
    }
    // After open times of 1 s up to 4 s there is one probe each.
    assert!((5..=12).contains(&sent.len()), "{sent:?}");
    let apart = sent.windows(2).map(|pair| pair[1].since(pair[0]));
    let least = apart.min().unwrap();
    assert!(least >= Duration::from_millis(1500), "{sent:?}");
    upstream.is_broken.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(40)).await;
    let states: Vec<_> = nodes.iter().map(breaker).collect();
    assert_eq!(states, [BreakerState::Closed; 8]);
}

#[tokio::test(start_paused = true)]
async fn a_restored_claim_is_used_until_the_store_answers() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    store.is_silent.store(true, Ordering::Relaxed);
    let node = node(1, &store, &clock);
    let claim = Claim {
        rate: 50.0,
        epoch: 9,
        share: 0.5,
        overrides: 0,
        is_isolated: false,
    };
    assert!(node.gates.restore(KEY, &claim));
    let start = clock.now();
    for _ in 0..50 {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    let took = clock.now().since(start).as_secs_f64();
    assert!((1.8..2.4).contains(&took), "{took}");
    assert_eq!(node.gates.claims(Duration::MAX), [(KEY.to_owned(), claim)]);
    store.is_silent.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    let _permit = node.limiter.acquire(KEY).await.unwrap();
    let fleet = node.limiter.gate(KEY).unwrap().fleet.unwrap();
    assert!(!fleet.is_degraded && fleet.epoch == 9, "{fleet:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_without_traffic_makes_no_calls() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    let node = node(1, &store, &clock);
    for _ in 0..3 {
        let permit = node.limiter.acquire(KEY).await.unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(50)));
    }
    sleep(Duration::from_secs(10)).await;
    let calls = store.calls.load(Ordering::Relaxed);
    assert_eq!(node.gates.tick(), tidegate::fleet::FleetStatus::default());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.calls.load(Ordering::Relaxed), calls);
    // A silence that is only its own is no degradation.
    let permit = node.limiter.acquire(KEY).await.unwrap();
    assert!(!node.limiter.gate(KEY).unwrap().fleet.unwrap().is_degraded);
    permit.settle(&Outcome::status(200, Duration::from_millis(50)));
}

#[tokio::test(start_paused = true)]
async fn calls_about_many_keys_are_few() {
    let (store, clock) = (Arc::new(Store::default()), Clock::tokio());
    let node = node(1, &store, &clock);
    for number in 0..30 {
        let limiter = node.limiter.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(7 * number)).await;
            loop {
                let permit = limiter.acquire(&*format!("host-{number}")).await.unwrap();
                sleep(Duration::from_millis(20)).await;
                permit.settle(&Outcome::status(200, Duration::from_millis(20)));
            }
        });
    }
    sleep(Duration::from_secs(20)).await;
    let before = store.calls.load(Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    let calls = store.calls.load(Ordering::Relaxed) - before;
    assert!(calls <= 1000, "{calls} in ten seconds");
}

#[test]
fn a_limiter_by_itself_shares_nothing() {
    assert!(Limiter::new().shared_gates().is_none());
}
