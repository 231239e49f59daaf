//! Every shipped scenario against every strategy: within loose bounds of what is known about them,
//! so that a change of a model, of a figure or of a strategy is seen. A failure prints the table
//! and the seed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write;

use sim::client::{Baseline, Driver, Strategy};
use sim::measure::Figures;
use sim::scenario::{Scenario, Shipped};
use sim::simulate::simulate;

const SEEDS: [u64; 2] = [1, 2];

/// What is expected: bounds on goodput from a minute on and on the share refused, in per cent.
struct Row(&'static str, (f64, f64), (f64, f64));

#[test]
fn adaptive_finds_every_limit() {
    check(
        |scenario| scenario.with_strategy(Strategy::Adaptive),
        &[
            Row("o1", (97.0, 101.0), (0.0, 0.6)),
            Row("o2", (99.0, 101.0), (0.5, 2.5)),
            Row("o3", (99.0, 101.0), (0.0, 0.5)),
            Row("o4", (92.0, 100.0), (0.0, 0.0)),
            Row("o5", (91.0, 100.0), (0.0, 0.5)),
            Row("o6", (90.0, 100.0), (0.0, 0.0)),
            Row("o7", (95.0, 100.0), (0.0, 0.5)),
            Row("o8", (99.0, 101.0), (0.0, 1.0)),
            Row("o8-4", (99.0, 101.0), (0.0, 3.0)),
            Row("o8-8", (99.0, 101.0), (0.0, 6.0)),
            Row("o8-16", (99.0, 101.0), (0.0, 10.0)),
            Row("o9", (75.0, 100.0), (0.0, 12.0)),
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
                    assert!(figures.outages[0].sent < 60);
                    assert!(figures.outages[0].recovery_s.unwrap() < 6.0);
                }
                "o8" => assert!(figures.jain.unwrap() > 0.98),
                "o8-16" => assert!(figures.jain.unwrap() > 0.6),
                _ => {}
            }
        },
    );
}

#[test]
fn answers_whose_times_vary_much_are_taken_for_no_queue() {
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
fn aimd_is_held_back_by_its_maximum() {
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
fn aimd_without_it_falls_to_random_failures() {
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
fn whoever_knows_the_rate_is_hardly_ever_refused() {
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
            // A gate's bucket holds a little more than one token at first.
            Row("o9", (99.0, 100.5), (0.0, 0.7)),
        ],
        |_, _| {},
    );
}

#[test]
fn naive_retries_reach_everything_and_are_refused_half_of_the_time() {
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
                "a fifth is refused for ever"
            ),
            "o9" => assert_eq!(figures.bans, 5),
            _ => {}
        },
    );
}

#[test]
fn cubic_reaches_limits_that_refuse_and_nothing_that_fails() {
    check(
        |scenario| scenario.with_strategy(Strategy::Baseline(Baseline::Cubic)),
        &[
            Row("o1", (97.0, 101.0), (1.0, 4.0)),
            Row("o2", (99.0, 101.0), (6.5, 12.5)),
            Row("o3", (99.0, 101.0), (3.0, 9.0)),
            Row("o4", (45.0, 53.0), (0.3, 1.5)),
            Row("o5", (85.0, 92.0), (0.3, 1.5)),
            Row("o7", (90.0, 96.0), (0.5, 2.0)),
            Row("o8", (98.0, 101.0), (1.0, 4.0)),
            Row("o9", (2.0, 5.0), (99.0, 100.0)),
        ],
        |name, figures| match name {
            "o4" => assert!((300.0..400.0).contains(&figures.mean_latency_ms.unwrap())),
            "o7" => assert!(figures.outages[0].sent > 2000),
            "o8" => assert!(figures.jain.unwrap() > 0.99),
            "o9" => assert_eq!(figures.bans, 5),
            _ => {}
        },
    );
}

#[test]
fn autothrottle_sends_one_at_a_time_whatever_the_limit() {
    check(
        |scenario| scenario.with_strategy(Strategy::Baseline(Baseline::AutoThrottle)),
        &[
            Row("o1", (19.0, 23.0), (0.0, 0.0)),
            Row("o2", (99.0, 101.0), (2.0, 7.0)),
            Row("o3", (33.0, 38.0), (0.0, 0.0)),
            Row("o4", (3.0, 5.0), (0.0, 0.0)),
            Row("o5", (6.0, 8.0), (0.0, 0.0)),
            Row("o6", (1.0, 3.0), (0.0, 0.0)),
            Row("o7", (9.0, 12.0), (0.0, 0.0)),
            Row("o9", (2.0, 5.0), (99.0, 100.0)),
        ],
        |name, figures| match name {
            "o7" => assert!((80..115).contains(&figures.outages[0].sent)),
            "o9" => assert_eq!(figures.bans, 5),
            _ => {}
        },
    );
}

#[test]
fn epochs_in_small_steps_are_safe_and_slow() {
    check(
        |scenario| scenario.with_strategy(Strategy::Baseline(Baseline::EpochsGentle)),
        &[
            Row("o1", (91.0, 97.0), (0.1, 0.5)),
            Row("o2", (97.0, 100.5), (0.4, 1.0)),
            Row("o3", (97.0, 100.5), (0.0, 0.4)),
            Row("o4", (92.0, 98.0), (0.0, 0.0)),
            Row("o5", (84.0, 90.0), (0.0, 0.3)),
            Row("o6", (90.0, 96.0), (0.0, 0.0)),
            Row("o7", (89.0, 95.0), (0.0, 0.3)),
            Row("o8", (93.0, 98.0), (0.1, 0.6)),
            Row("o8-16", (97.0, 101.0), (2.0, 5.0)),
            Row("o9", (70.0, 77.0), (4.0, 8.0)),
        ],
        |name, figures| {
            check_form(name, figures);
            match name {
                "o5" => assert!((16.0..26.0).contains(&figures.steps[1].settle_s.unwrap())),
                "o7" => assert!(figures.outages[0].recovery_s.unwrap() < 13.0),
                "o8-16" => assert!(figures.jain.unwrap() > 0.8),
                _ => {}
            }
        },
    );
}

#[test]
fn epochs_in_large_steps_find_limits_quickly() {
    check(
        |scenario| scenario.with_strategy(Strategy::Baseline(Baseline::EpochsBrisk)),
        &[
            Row("o1", (97.0, 101.0), (0.2, 0.6)),
            Row("o2", (97.0, 100.5), (1.0, 2.0)),
            Row("o3", (97.0, 100.5), (0.0, 0.4)),
            Row("o4", (92.0, 98.0), (0.0, 0.0)),
            Row("o5", (91.0, 97.0), (0.0, 0.3)),
            Row("o6", (90.0, 96.0), (0.0, 0.0)),
            Row("o7", (95.0, 101.0), (0.0, 0.3)),
            Row("o8", (97.0, 101.0), (0.2, 0.7)),
            Row("o8-16", (97.0, 101.0), (4.0, 9.0)),
            Row("o9", (78.0, 84.0), (6.0, 11.0)),
        ],
        |name, figures| {
            check_form(name, figures);
            match name {
                "o5" => assert!(figures.steps[1].settle_s.unwrap() < 11.0),
                "o7" => assert!(figures.outages[0].recovery_s.unwrap() < 6.0),
                "o8-16" => assert!(figures.jain.unwrap() > 0.6),
                _ => {}
            }
        },
    );
}

#[test]
fn a_model_of_the_limit_is_best_where_answers_tell_much() {
    check(
        |scenario| scenario.with_strategy(Strategy::Baseline(Baseline::Model)),
        &[
            Row("o1", (96.0, 101.0), (0.2, 0.6)),
            Row("o2", (97.0, 100.5), (0.8, 1.8)),
            Row("o3", (96.0, 100.5), (0.0, 0.0)),
            Row("o4", (95.0, 101.0), (0.0, 0.0)),
            Row("o5", (93.0, 99.0), (0.0, 0.3)),
            Row("o6", (93.0, 99.0), (0.0, 0.0)),
            Row("o7", (95.0, 101.0), (0.0, 0.5)),
            Row("o8", (96.0, 101.0), (0.2, 0.8)),
            Row("o8-16", (97.0, 101.0), (2.0, 6.0)),
            Row("o9", (84.0, 90.0), (4.0, 8.0)),
        ],
        |name, figures| {
            check_form(name, figures);
            match name {
                "o5" => assert!(figures.steps[1].settle_s.unwrap() < 13.0),
                "o7" => assert!(figures.outages[0].recovery_s.unwrap() < 6.0),
                "o8-16" => assert!(figures.jain.unwrap() > 0.65),
                _ => {}
            }
        },
    );
}

/// What `epochs` and `model` have in common: nobody is banned, and queues and outages are seen.
fn check_form(name: &str, figures: &Figures) {
    assert_eq!((figures.bans, figures.early_after_hint), (0, 0), "{name}");
    match name {
        "o4" => assert!(figures.mean_latency_ms.unwrap() < 140.0),
        "o6" => assert_eq!(figures.breaker_opened, 0),
        "o7" => assert!(figures.outages[0].sent < 35, "{}", figures.outages[0].sent),
        "o8" => assert!(figures.jain.unwrap() > 0.97),
        _ => {}
    }
}

fn check(change: impl Fn(Scenario) -> Scenario, rows: &[Row], more: impl Fn(&str, &Figures)) {
    let mut table = String::new();
    let mut wrong = 0;
    for Row(name, goodput, refused) in rows {
        let scenario = change(Shipped::find(name).unwrap().scenario());
        for seed in SEEDS {
            let figures = simulate(&scenario, seed);
            let reached = 100.0 * figures.goodput_ratio_settled.unwrap();
            let share = 100.0 * figures.refused_ratio.unwrap();
            let within = |value: f64, bounds: &(f64, f64)| bounds.0 <= value && value <= bounds.1;
            let is_right = within(reached, goodput) && within(share, refused);
            wrong += u32::from(!is_right);
            let mark = if is_right { ' ' } else { '!' };
            writeln!(
                table,
                "{mark} {name:6} seed {seed}: goodput {reached:6.2} in {goodput:?}, refused {share:5.2} in {refused:?}"
            )
            .unwrap();
            if is_right {
                more(name, &figures);
            }
        }
    }
    assert_eq!(wrong, 0, "\n{table}");
}
