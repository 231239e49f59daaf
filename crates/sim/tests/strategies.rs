//! Every strategy over the shipped scenarios, within loose bounds, to notice changes of an upstream
//! model, a figure or a strategy. A failure prints the table and the seed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounds;

use bounds::{Row, SEEDS, check};
use sim::client::{Driver, Strategy};
use sim::scenario::Shipped;
use sim::simulate::simulate;

#[test]
fn adaptive_finds_every_limit() {
    check(
        |scenario| scenario.with_strategy(Strategy::Adaptive),
        &[
            Row("o1", (97.0, 101.0), (0.0, 0.6)),
            Row("o2", (99.0, 101.0), (0.5, 1.5)),
            Row("o3", (99.0, 101.0), (0.0, 0.5)),
            Row("o4", (92.0, 100.0), (0.0, 0.0)),
            Row("o5", (91.0, 100.0), (0.0, 0.5)),
            Row("o6", (96.0, 100.0), (0.0, 0.0)),
            Row("o7", (95.0, 100.0), (0.0, 0.5)),
            Row("o8", (99.0, 101.0), (0.0, 1.0)),
            Row("o8-4", (99.0, 101.0), (0.0, 1.6)),
            Row("o8-8", (99.0, 101.0), (0.0, 2.5)),
            Row("o8-16", (99.0, 101.0), (0.0, 4.5)),
            Row("o9", (80.0, 100.0), (0.0, 10.0)),
        ],
        |name, figures| {
            assert_eq!((figures.bans, figures.early_after_hint), (0, 0), "{name}");
            match name {
                "o1" => assert!(figures.time_to_90_s.unwrap() < 4.0),
                "o4" => assert!(figures.mean_latency_ms.unwrap() < 150.0),
                "o5" => {
                    assert!(figures.steps[0].settle_s.unwrap() < 4.0);
                    assert!(figures.steps[1].settle_s.unwrap() < 15.0);
                }
                "o6" => assert_eq!(figures.breaker_opened, 0),
                "o7" => {
                    assert!(figures.outages[0].sent < 40);
                    assert!(figures.outages[0].recovery_s.unwrap() < 6.0);
                }
                "o8" => assert!(figures.jain.unwrap() > 0.98),
                "o8-16" => assert!(figures.jain.unwrap() > 0.85),
                _ => {}
            }
        },
    );
}

#[test]
fn adaptive_does_not_mistake_varying_latency_for_a_queue() {
    for (name, before) in [("o4", 35.7), ("o6", 34.5)] {
        let mut scenario = Shipped::find(name).unwrap().scenario();
        scenario.upstream.latency_spread = 0.6;
        for seed in SEEDS {
            let settled = simulate(&scenario, seed).goodput_ratio_settled.unwrap();
            let goodput = 100.0 * settled;
            assert!(
                goodput > 80.0,
                "{name}, seed {seed}: {goodput}, and {before} once"
            );
        }
    }
}

#[test]
fn aimd_stays_below_its_default_max_rate() {
    check(
        |scenario| scenario.with_strategy(Strategy::Aimd),
        &[
            Row("o1", (15.0, 17.0), (0.0, 0.0)),
            Row("o2", (79.0, 81.0), (0.0, 0.0)),
            Row("o3", (26.0, 28.0), (0.0, 0.0)),
            Row("o4", (3.0, 5.0), (0.0, 0.0)),
            Row("o5", (4.0, 6.0), (0.0, 0.0)),
            Row("o6", (0.5, 2.0), (0.0, 0.0)),
            Row("o7", (6.0, 9.0), (0.0, 0.0)),
            Row("o9", (5.0, 25.0), (60.0, 90.0)),
        ],
        |_, _| {},
    );
}

#[test]
fn aimd_with_high_max_rate_collapses_under_random_failures() {
    check(
        |mut scenario| {
            let mut options = Strategy::Aimd.gate_options().unwrap();
            options.set("max_rate", "1000").unwrap();
            let settings = options.build().unwrap();
            for client in &mut scenario.clients {
                client.driver = Driver::Gate(settings.clone());
            }
            scenario
        },
        &[
            Row("o1", (93.0, 98.0), (0.3, 1.5)),
            Row("o2", (98.0, 101.0), (0.5, 2.5)),
            Row("o6", (1.0, 4.0), (0.0, 0.0)),
            Row("o7", (75.0, 90.0), (0.0, 1.0)),
            Row("o8-16", (97.0, 101.0), (2.0, 8.0)),
        ],
        |_, _| {},
    );
}

#[test]
fn fixed_at_the_true_rate_is_hardly_refused() {
    let at = policy::time::Timestamp::ZERO;
    check(
        |scenario| {
            let rate = scenario.upstream.rate_at(at) / scenario.client_count() as f64;
            scenario.with_strategy(Strategy::Fixed(rate))
        },
        &[
            Row("o1", (99.5, 100.5), (0.0, 0.0)),
            Row("o2", (99.5, 100.5), (0.0, 0.0)),
            Row("o3", (99.5, 100.5), (0.0, 0.0)),
            Row("o4", (99.0, 100.5), (0.0, 0.0)),
            Row("o6", (96.0, 98.0), (0.0, 0.0)),
            Row("o7", (97.0, 100.5), (0.0, 0.0)),
            Row("o8-16", (99.5, 100.5), (0.0, 0.0)),
            // A gate's bucket initially holds a little more than one token.
            Row("o9", (99.0, 100.5), (0.0, 0.7)),
        ],
        |_, _| {},
    );
}

#[test]
fn naive_retries_reach_full_goodput_with_half_refused() {
    check(
        |scenario| {
            let mut scenario = scenario.with_strategy(Strategy::None);
            for client in &mut scenario.clients {
                client.max_in_flight = 32;
            }
            scenario
        },
        &[
            Row("o1", (99.0, 101.0), (48.0, 56.0)),
            Row("o2", (99.0, 101.0), (40.0, 50.0)),
            Row("o3", (99.0, 101.0), (29.0, 37.0)),
            Row("o4", (99.0, 101.0), (0.0, 0.0)),
            Row("o5", (98.0, 101.0), (26.0, 34.0)),
            Row("o6", (58.0, 65.0), (0.0, 0.0)),
            Row("o7", (98.0, 101.0), (37.0, 46.0)),
            Row("o9", (2.0, 5.0), (99.0, 100.0)),
        ],
        |name, figures| match name {
            "o5" => assert_eq!(
                figures.steps[0].settle_s, None,
                "a fifth is refused forever"
            ),
            "o9" => assert_eq!(figures.bans, 5),
            _ => {}
        },
    );
}
