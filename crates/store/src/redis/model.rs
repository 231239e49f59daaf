//! The script, compared with its model `policy::fleet::Ledger` on random histories.

use std::time::Duration;

use policy::breaker::{BreakerRecord, BreakerState};
use policy::fleet::{
    Claim, FleetSettings, Ledger, Left, ProbeResult, RateDecision, Refusal, RefusalKind, Trip,
};
use policy::gate::{GateOverride, GateRecord};
use policy::random::Random;
use policy::time::Timestamp;
use tokio::sync::mpsc::channel;

use super::tests::{member, runtime};
use super::*;
use crate::private_redis::PrivateRedis;

#[test]
fn script_answers_and_publishes_what_its_model_does() {
    let redis = PrivateRedis::start();
    for seed in 0..HISTORIES {
        runtime().block_on(compare(&redis, seed));
    }
}

const HISTORIES: u64 = 60;

async fn compare(redis: &PrivateRedis, seed: u64) {
    let mut random = Random::from_seed(seed);
    let (sender, mut messages) = channel(100);
    let mut nodes = Vec::new();
    // One key for each history.
    let key = format!("{seed:x}");
    for number in 1..=3 {
        let address = redis.url().parse().unwrap();
        nodes.push(FleetServer::new(address, member("a", number), sender.clone()).unwrap());
    }
    nodes[0]
        .subscribe(std::slice::from_ref(&key))
        .await
        .unwrap();
    let mut expected_messages = Vec::new();
    let settings = settings(&mut random);
    let mut ledger = None;
    let mut now = 1_000_000_000_u64;
    let mut epoch = 1;
    for step in 0..60 {
        now += match random.below(10) {
            0 => random.below(3_000_000),
            1 => 0,
            _ => random.below(120_000),
        };
        if random.below(15) == 0 {
            // The clock is set back.
            now -= random.below(3) * random.below(5_000_000);
        }
        let number = usize::try_from(random.below(3)).unwrap();
        let node = NodeId(u64::try_from(number).unwrap() + 1);
        let server = &mut nodes[number];
        match random.below(40) {
            0 => {
                server.release(std::slice::from_ref(&key)).await.unwrap();
                if let Some(ledger) = &mut ledger {
                    Ledger::release(ledger, node);
                }
                continue;
            }
            1 => {
                let base = server.base(&key);
                redis.command(&[
                    "DEL",
                    &format!("{base}:h"),
                    &format!("{base}:l"),
                    &format!("{base}:r"),
                ]);
                ledger = None;
            }
            _ => {}
        }
        let call = call(&mut random, epoch);
        let at = Timestamp::from_nanos(now * 1000);
        let ledger = ledger.get_or_insert_with(|| Ledger::new(&settings, call.claim.as_ref(), at));
        let (expected, notice) = ledger.sync(&settings, node, &call, at);
        let calls = [KeyCall {
            key: key.clone(),
            settings,
            call,
        }];
        let answer = server.sync_at(&calls, None, Some(now)).await.unwrap();
        assert_eq!(answer.server_time, now);
        assert_eq!(
            answer.replies,
            [expected],
            "seed {seed}, step {step}: {calls:?}"
        );
        expected_messages.extend(notice.map(|notice| FleetMessage::Notice {
            key: key.clone(),
            notice,
        }));
        epoch = answer.replies[0].epoch;
    }
    // What was published comes before the answer to a later call.
    nodes[0].join().await.unwrap();
    let published: Vec<FleetMessage> = std::iter::from_fn(|| messages.try_recv().ok()).collect();
    assert_eq!(published, expected_messages, "seed {seed}");
}

fn settings(random: &mut Random) -> FleetSettings {
    FleetSettings {
        interval: Duration::from_millis(50 + random.below(200)),
        lease: Duration::from_secs(2),
        initial_rate: [0.05, 2.0, 100.0, 5000.0][index(random, 4)],
        min_rate: [0.01, 1.0][index(random, 2)],
        open_first: Duration::from_millis(300),
        open_for: Duration::from_secs(4),
        trip_window: Duration::from_secs(10),
        half_open_probes: u8::try_from(1 + random.below(3)).unwrap(),
        probe_lost_after: Duration::from_secs(1),
    }
}

fn call(random: &mut Random, epoch: u32) -> Call {
    let mut seldom = |of: u64| random.below(of) == 0;
    let (refused, held, left, trip, probe) =
        (seldom(8), seldom(20), seldom(8), seldom(8), seldom(4));
    let (back, claims, decides) = (seldom(10), !seldom(3), seldom(3));
    let small = |random: &mut Random, below| u32::try_from(random.below(below)).unwrap();
    let micros = |random: &mut Random, below| Duration::from_micros(random.below(below));
    let near = |random: &mut Random| (epoch + small(random, 3)).saturating_sub(1);
    Call {
        demand: [0.0, 0.3, 20.0, 90.0, 7000.0][index(random, 5)],
        want: small(random, 40),
        held: small(random, 5),
        sent: small(random, 20),
        sent_freely: small(random, 3),
        skipped: small(random, 4),
        accepted: small(random, 20),
        latency_sum: micros(random, 2_000_000),
        late_accepted: small(random, 3),
        late_refused: small(random, 3),
        refusal: refused.then(|| Refusal {
            epoch: near(random),
            kind: [
                RefusalKind::Undirected,
                RefusalKind::Directed(Duration::from_secs(2)),
                RefusalKind::Banned,
                RefusalKind::Failed,
            ][index(random, 4)],
            age: micros(random, 200_000),
            serial: random.below(3) * random.below(100),
        }),
        hold_for: if held {
            micros(random, 1_000_000)
        } else {
            Duration::ZERO
        },
        left: left.then(|| Left {
            remaining: small(random, 50),
            reset: Duration::from_secs(1) + micros(random, 3_000_000),
            serial: random.below(3) * random.below(200),
        }),
        trip: trip.then(|| Trip {
            is_decisive: random.below(4) == 0,
        }),
        probe: probe.then(|| {
            [
                ProbeResult::Succeeded,
                ProbeResult::Failed,
                ProbeResult::Unknown,
            ][index(random, 3)]
        }),
        back: if back { 12.5 } else { 0.0 },
        claim: claims.then(|| Claim {
            rate: [1.0, 40.0, 90.0][index(random, 3)],
            epoch: near(random),
            share: [0.0, 0.25, 0.5, 0.9][index(random, 4)],
            overrides: small(random, 4),
            is_isolated: random.below(6) == 0,
        }),
        fence: small(random, 3),
        decision: decides.then(|| RateDecision {
            fence: 1 + small(random, 3),
            rate: [0.5, 12.0, 110.0][index(random, 3)],
            lowers: random.below(2) == 0,
            refusals: random.below(3),
            hold_for: micros(random, 300_000),
            is_blind: random.below(3) == 0,
            record: record(random),
        }),
        overriding: match random.below(20) {
            0 => Some(GateOverride::Isolate),
            1 => Some(GateOverride::Release),
            2 => Some(GateOverride::Reset),
            _ => None,
        },
    }
}

fn record(random: &mut Random) -> GateRecord {
    GateRecord {
        rate: 12.5,
        ceiling: (random.below(2) == 0).then_some(14.25),
        banned_above: None,
        hold: None,
        hold_source: None,
        breaker: BreakerRecord {
            state: BreakerState::Closed,
            open_for: Duration::ZERO,
            openings: 0,
        },
        cost: None,
    }
}

fn index(random: &mut Random, below: u64) -> usize {
    usize::try_from(random.below(below)).unwrap()
}
