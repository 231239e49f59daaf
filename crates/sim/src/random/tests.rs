//! Determinism, ranges, and counts.

use std::time::Duration;

use policy::time::Timestamp;

use super::*;
use crate::client::Strategy;
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
fn every_step_changes_the_limit() {
    for scenario in all() {
        let upstream = &scenario.upstream;
        let mut before = upstream.rate_at(Timestamp::ZERO);
        for step in &upstream.steps {
            let rate = upstream.rate_at(step.at);
            assert!((rate / before).ln().abs() > 0.09, "{}", describe(&scenario));
            before = rate;
        }
    }
}

#[test]
fn client_that_knows_the_limit_does_well() {
    let known = |mut scenario: Scenario| {
        scenario.upstream.steps.clear();
        let rate = scenario.upstream.rate_at(Timestamp::ZERO) / scenario.client_count() as f64;
        (rate < 20.0).then(|| scenario.with_strategy(Strategy::Fixed(0.97 * rate)))
    };
    let scenarios: Vec<Scenario> = (0..70)
        .filter_map(|index| known(scenario(1, index)))
        .collect();
    assert!(scenarios.len() > 30);
    let figures = simulate_all(&scenarios, &mut |_| {});
    let results = scenarios.iter().zip(&figures);
    for (scenario, figures) in results {
        let verdict = Verdict::new(scenario, figures);
        assert!(
            verdict.shortfall() <= 0.0,
            "{}: {verdict:?}",
            describe(scenario)
        );
        assert_eq!(verdict.bans, 0, "{}", describe(scenario));
    }
}

/// A verdict that is good in every respect.
const GOOD: Verdict = Verdict {
    goodput_ratio: Some(0.95),
    goodput_ratio_settled: Some(0.97),
    refused_ratio: Some(0.01),
    refused_bound: 0.02,
    bans: 0,
    max_client_bans: 0,
    time_to_90_s: Some(3.0),
    jain: None,
};

#[test]
fn shortfall_adds_goodput_refusals_and_bans() {
    let check = |verdict: Verdict, expected: f64| {
        let shortfall = verdict.shortfall();
        assert!((shortfall - expected).abs() < 1e-9, "{shortfall}");
    };
    check(GOOD, 0.0);
    check(
        Verdict {
            goodput_ratio_settled: Some(0.5),
            refused_ratio: Some(0.04),
            ..GOOD
        },
        0.4 + 0.1,
    );
    check(
        Verdict {
            goodput_ratio_settled: None,
            refused_ratio: None,
            max_client_bans: 3,
            ..GOOD
        },
        0.9 + 2.0,
    );
    let banned_once = Verdict {
        bans: 1,
        max_client_bans: 1,
        ..GOOD
    };
    check(banned_once, 0.0);
}

#[test]
fn bound_of_refused_depends_on_the_rate_per_client() {
    let bound = |rate, clients, backlog| {
        let text = format!(
            "[upstream]\nkind = \"bucket\"\nrate = {rate}\n\
             [[client]]\ncount = {clients}\nbacklog = \"{backlog}\"\n"
        );
        let scenario = Scenario::read("test", text.as_bytes()).unwrap();
        Verdict::new(&scenario, &simulate(&short(scenario.clone()), 1)).refused_bound
    };
    let check = |bound: f64, expected: f64| assert!((bound - expected).abs() < 1e-9);
    check(bound(2.0, 1, "endless"), 0.02);
    check(bound(1.9, 1, "endless"), 0.06);
    check(bound(7.0, 4, "endless"), 0.06);
    check(bound(100.0, 1, "1.5/s"), 0.06);
}

#[test]
fn verdict_of_another_build_is_read_from_its_json() {
    let scenario = scenario(1, 2);
    let clients = scenario.client_count();
    let figures = simulate(&short(scenario.clone()), 1);
    let output = serde_json::to_string(&crate::measure::Summary::of(&figures)).unwrap();
    let read = Verdict::from_json(&scenario, &output).unwrap();
    assert_eq!(read, Verdict::new(&scenario, &figures));
    // Without the bans of each client, at least one has this many.
    let output = output.replace("\"bans\":0", &format!("\"bans\":{}", clients + 1));
    let read = Verdict::from_json(&scenario, &output).unwrap();
    assert_eq!(read.max_client_bans, 2);
    assert!(Verdict::from_json(&scenario, "{}").is_err());
}

#[test]
fn distribution_counts_upstreams() {
    let verdicts: Vec<Verdict> = (1..=10)
        .map(|number| Verdict {
            goodput_ratio_settled: Some(f64::from(number) / 10.0),
            time_to_90_s: (number > 2).then_some(f64::from(number)),
            max_client_bans: u64::from(number == 1) * 2,
            bans: u64::from(number == 1) * 2,
            refused_ratio: Some(if number == 1 { 0.03 } else { 0.01 }),
            ..GOOD
        })
        .collect();
    let distribution = Distribution::of(&verdicts);
    let Distribution {
        upstreams,
        goodput_90,
        goodput_60,
        refused_within_bound,
        banned_twice,
        goodput_90_whole_run,
        bans,
        never_at_90,
        ..
    } = distribution;
    assert_eq!((upstreams, goodput_90, goodput_60), (10, 2, 5));
    assert_eq!((refused_within_bound, banned_twice, bans), (9, 1, 2));
    assert_eq!((goodput_90_whole_run, never_at_90), (10, 2));
    assert_eq!(
        distribution.goodput_ratio_settled,
        Some(Percentiles {
            min: 0.1,
            p10: 0.1,
            p50: 0.5,
            p90: 0.9,
            max: 1.0
        })
    );
    assert_eq!(distribution.jain, None);
    assert_eq!(
        distribution.goals().map(|goal| goal.is_met),
        [false, false, true, false]
    );
    assert_eq!(worst(&verdicts), [0, 1, 2, 3, 4, 5, 6, 7]);
    let empty = Distribution::of(&[]);
    assert_eq!(empty.goodput_ratio, None);
    assert!(empty.goals()[3].is_met && !empty.goals()[0].is_met);
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
