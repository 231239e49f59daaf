//! Every baseline over the shipped scenarios: within loose bounds of what is known about it.

use std::time::Duration;

use sim::measure::Figures;
use sim::scenario::{Scenario, Shipped};
use sim::simulate::{simulate, simulate_with_series};

use super::{BASELINES, drive};
use bounds::{Row, check};

#[path = "../../../tests/bounds/mod.rs"]
mod bounds;

fn by(name: &'static str) -> impl Fn(Scenario) -> Scenario {
    move |scenario| drive(scenario, name).unwrap()
}

#[test]
fn gives_equal_figures_for_equal_seeds_with_and_without_a_series() {
    for name in BASELINES.map(|baseline| baseline.name) {
        for upstream in ["o2", "o5", "o7", "o8-4"] {
            let mut scenario = by(name)(Shipped::find(upstream).unwrap().scenario());
            scenario.duration = Duration::from_secs(100);
            let figures = simulate(&scenario, 7);
            let (again, _) = simulate_with_series(&scenario, 7, Duration::from_millis(100));
            assert_eq!(figures, again, "{upstream} {name}");
            assert_ne!(figures, simulate(&scenario, 8), "{upstream} {name}");
        }
    }
}

#[test]
fn sends_refused_and_failed_requests_until_all_are_accepted() {
    let text = "[upstream]\nkind = \"bucket\"\nrate = 20\nburst = 2\nfailure_rate = 0.1\n\
                [[client]]\nmax_in_flight = 16\nbacklog = \"200\"\n";
    for name in BASELINES.map(|baseline| baseline.name) {
        let scenario = Scenario::read("test", text.as_bytes()).unwrap();
        let figures = simulate(&by(name)(scenario), 1);
        assert_eq!(figures.accepted, 200, "{name}");
        assert!(figures.failed > 0, "{name}");
        assert_eq!(
            figures.sent,
            figures.accepted + figures.refused + figures.failed
        );
    }
}

#[test]
fn cubic_is_within_bounds() {
    check(
        by("cubic"),
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
fn autothrottle_is_within_bounds() {
    check(
        by("autothrottle"),
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
fn epochs_gentle_is_within_bounds() {
    check(
        by("epochs-gentle"),
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
            check_design(name, figures);
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
fn epochs_brisk_is_within_bounds() {
    check(
        by("epochs-brisk"),
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
            check_design(name, figures);
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
fn model_is_within_bounds() {
    check(
        by("model"),
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
            check_design(name, figures);
            match name {
                "o5" => assert!(figures.steps[1].settle_s.unwrap() < 13.0),
                "o7" => assert!(figures.outages[0].recovery_s.unwrap() < 6.0),
                "o8-16" => assert!(figures.jain.unwrap() > 0.65),
                _ => {}
            }
        },
    );
}

/// Bounds of both `epochs` and `model`: no bans; queues and outages are detected.
fn check_design(name: &str, figures: &Figures) {
    assert_eq!((figures.bans, figures.early_after_hint), (0, 0), "{name}");
    match name {
        "o4" => assert!(figures.mean_latency_ms.unwrap() < 140.0),
        "o6" => assert_eq!(figures.breaker_opened, 0),
        "o7" => assert!(figures.outages[0].sent < 35, "{}", figures.outages[0].sent),
        "o8" => assert!(figures.jain.unwrap() > 0.97),
        _ => {}
    }
}
