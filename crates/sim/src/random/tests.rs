//! Determinism, ranges, and counts.

use std::time::Duration;

use policy::time::Timestamp;

use super::*;
use crate::load::Backlog;
use crate::upstream::Kind;

const SEEDS: [u64; 3] = [1, 2, u64::MAX];
const PER_SEED: u64 = 300;

fn all() -> impl Iterator<Item = Scenario> {
    SEEDS
        .into_iter()
        .flat_map(|seed| (0..PER_SEED).map(move |index| scenario(seed, index)))
}

#[test]
fn scenarios_depend_on_seed_and_index_alone() {
    assert_eq!(scenario_text(7, 3), scenario_text(7, 3));
    let mut texts: Vec<String> = SEEDS
        .into_iter()
        .flat_map(|seed| (0..PER_SEED).map(move |index| scenario_text(seed, index)))
        .map(|text| text.lines().skip(1).collect())
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len() as u64, SEEDS.len() as u64 * PER_SEED);
}

#[test]
fn first_scenarios_are_pinned() {
    // Recorded results name a set by its seed only.
    assert_eq!(
        [0, 1, 2].map(|index| describe(&scenario(1, index))),
        [
            "bucket 1.617/s burst 1, latency 28ms, spread 0.4903, network 50ms, to 0.5964/s at 195s, \
             300s",
            "window 809 in 30s, Retry-After, headers, latency 13ms, spread 0.1336, network 40ms, \
             to 3614 at 90s, to 228 at 210s, outage 121s..131s, backlog 15.93/s, 300s",
            "slots 13 x 24ms queue 100, spread 0.5452, network 1.029ms, to 19 at 137s, \
             outage 111s..128s, 13 clients, 300s",
        ]
    );
}

#[test]
fn rates_and_durations_are_in_range() {
    for scenario in all() {
        let about = describe(&scenario);
        let upstream = &scenario.upstream;
        let clients = scenario.client_count() as f64;
        let times = upstream.steps.iter().map(|step| step.at);
        for at in std::iter::once(Timestamp::ZERO).chain(times) {
            let rate = upstream.rate_at(at);
            let min = if clients > 1.0 { 0.45 * clients } else { 0.09 };
            assert!((min..2020.0).contains(&rate), "{about}: {rate}");
            let in_flight = match upstream.kind_at(at) {
                Kind::Slots { slots, .. } => f64::from(slots),
                _ => rate * upstream.latency.as_secs_f64(),
            };
            let network = 2.0 * rate * upstream.network.as_secs_f64();
            assert!(in_flight + network <= 160.0 * clients, "{about}");
        }
        let rate = upstream.rate_at(Timestamp::ZERO);
        let requests = rate * scenario.duration.as_secs_f64();
        assert!(requests >= 90.0 * clients, "{about}: {requests}");
        assert!(requests <= 610_000.0, "{about}: {requests}");
        assert!(scenario.duration >= Duration::from_secs(300), "{about}");
    }
}

#[test]
fn every_limit_can_be_met() {
    for scenario in all() {
        let about = describe(&scenario);
        let clients = scenario.client_count() as u64;
        match scenario.upstream.kind {
            Kind::Bucket { rate, burst } => {
                assert!(burst >= 0.019 * rate && burst >= 1.0, "{about}");
                assert!(burst >= 2.0 || !scenario.upstream.headers, "{about}");
                assert!(clients == 1 || burst >= 2.0 * clients as f64, "{about}");
            }
            Kind::Window {
                quota,
                period,
                phase,
            } => {
                assert!(quota >= 2 * clients, "{about}");
                let settled = scenario.duration - Duration::from_secs(60);
                assert!(settled >= 5 * period, "{about}");
                if period > Duration::from_secs(5) {
                    let is_whole =
                        |time: Duration| time.as_nanos().is_multiple_of(period.as_nanos());
                    assert!(is_whole(settled), "{about}");
                    assert!(is_whole(phase + Duration::from_secs(60)), "{about}");
                }
            }
            Kind::Slots { slots, queue, .. } => {
                assert!(slots <= 100 && queue >= slots && queue >= 10, "{about}");
            }
        }
        if scenario.upstream.ban.is_some() {
            assert_eq!(clients, 1, "{about}");
        }
    }
}

#[test]
fn families_and_troubles_all_occur() {
    let all: Vec<Scenario> = all().collect();
    let check = |low: f64, high: f64, holds: &dyn Fn(&Scenario) -> bool| {
        let count = all.iter().filter(|scenario| holds(scenario)).count();
        let share = count as f64 / all.len() as f64;
        assert!((low..high).contains(&share), "{share} not in {low}..{high}");
    };
    check(0.45, 0.55, &|of| {
        matches!(of.upstream.kind, Kind::Bucket { .. })
    });
    check(0.25, 0.35, &|of| {
        matches!(of.upstream.kind, Kind::Window { .. })
    });
    check(0.15, 0.25, &|of| {
        matches!(of.upstream.kind, Kind::Slots { .. })
    });
    check(0.2, 0.3, &|of| of.client_count() > 1);
    check(0.15, 0.25, &|of| !of.upstream.steps.is_empty());
    check(0.2, 0.3, &|of| of.upstream.failure_rate > 0.0);
    check(0.08, 0.16, &|of| !of.upstream.outages.is_empty());
    check(0.05, 0.13, &|of| of.upstream.ban.is_some());
    check(0.1, 0.2, &|of| of.clients[0].backlog != Backlog::Endless);
    check(0.1, 0.3, &|of| of.upstream.headers);
    check(0.15, 0.4, &|of| of.upstream.retry_after);
}

#[test]
fn results_keep_the_order_of_the_scenarios() {
    let scenarios: Vec<Scenario> = (0..5).map(|index| short(scenario(1, index))).collect();
    let mut counts = Vec::new();
    let figures = simulate_all(&scenarios, &mut |done| counts.push(done));
    let single = scenarios
        .iter()
        .map(|scenario| simulate(scenario, scenario.seed));
    assert_eq!(figures, single.collect::<Vec<_>>());
    assert_eq!(counts, [1, 2, 3, 4, 5]);
}

fn short(scenario: Scenario) -> Scenario {
    Scenario {
        duration: Duration::from_secs(5),
        ..scenario
    }
}
