//! The shipped scenarios of single policies: times and counts of requests, and pauses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use policy::breaker::BreakerState;
use sim::measure::{Figures, Series};
use sim::scenario::Shipped;
use sim::simulate::simulate_with_series;

/// Runs a scenario with its own seed. Also returns the times of its requests in seconds, exact to
/// `step`.
fn run(name: &str, step: Duration) -> (Figures, Series, Vec<f64>) {
    run_with_seed(name, step, Shipped::find(name).unwrap().scenario().seed)
}

fn run_with_seed(name: &str, step: Duration, seed: u64) -> (Figures, Series, Vec<f64>) {
    let scenario = Shipped::find(name).unwrap().scenario();
    let (figures, series) = simulate_with_series(&scenario, seed, step);
    let mut times = Vec::new();
    for (index, slice) in series.slices.iter().enumerate() {
        let at = index as f64 * step.as_secs_f64();
        times.extend((0..slice.sent).map(|_| at));
    }
    (figures, series, times)
}

const FINE: Duration = Duration::from_millis(10);
const COARSE: Duration = Duration::from_secs(1);

fn gaps(times: &[f64]) -> Vec<f64> {
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The gaps are `expected` plus a response time of less than `slack`.
fn assert_gaps(times: &[f64], expected: &[f64], slack: f64) {
    let gaps = gaps(times);
    assert_eq!(gaps.len(), expected.len(), "{times:?}");
    for (gap, expected) in gaps.iter().zip(expected) {
        let over = gap - expected;
        assert!((-0.011..slack).contains(&over), "{times:?}: {expected}");
    }
}

#[test]
fn polls_every_3_s_then_2_5_s_then_2_s() {
    let (figures, _, times) = run("poll-normal", FINE);
    assert!((12..=20).contains(&figures.sent), "{figures:?}");
    assert_eq!(figures.accepted, figures.sent, "nothing else is answered");
    let end = times.last().unwrap();
    assert!((30.0..60.0).contains(end), "{times:?}");
    let stages = [vec![3.0; 5], vec![2.5; 7], vec![2.0; 6]].concat();
    assert_gaps(&times, &stages, 0.25);
}

#[test]
fn poll_waits_2_4_and_8_s_after_429s_and_then_recovers() {
    let (figures, series, times) = run("poll-limited", FINE);
    assert!((15..=25).contains(&figures.sent), "{figures:?}");
    assert_eq!(figures.refused, 3);
    let end = times.last().unwrap();
    assert!((40.0..90.0).contains(end), "{times:?}");
    // The fifteenth, sixteenth and seventeenth are refused.
    assert_gaps(&times[14..18], &[2.0, 4.0, 8.0], 0.06);
    assert_gaps(&times[17..19], &[2.0], 0.25);
    let slowed = &series.clients[0].holds;
    assert_eq!(slowed.len(), 3, "once for each refusal: {slowed:?}");
}

#[test]
fn standard_preset_waits_about_1_2_4_and_8_s() {
    let ranges = [(0.5, 1.5), (1.0, 3.0), (2.0, 6.0), (4.0, 12.0)];
    let mut came_back = 0;
    for seed in 0..50 {
        let (figures, _, times) = run_with_seed("backoff-outage-standard", FINE, seed);
        for (gap, (least, most)) in gaps(&times).iter().zip(ranges) {
            let delay = gap - 0.02;
            assert!(
                (least - 0.011..most + 0.011).contains(&delay),
                "{seed}: {times:?}"
            );
        }
        assert!(figures.sent <= 5);
        came_back += figures.accepted;
    }
    assert!(
        came_back > 40,
        "the last attempt is 7.5 to 22.5 s after the first: {came_back}"
    );
}

#[test]
fn every_preset_stops_after_max_attempts() {
    for seed in 0..20 {
        let (figures, _, times) = run_with_seed("backoff-outage-exhausted", FINE, seed);
        assert_eq!((figures.sent, figures.accepted), (5 + 5 + 5 + 7, 0));
        // Background waits for 2, 4, 8, 16, 32 and at most 60 s, each with ±50 % jitter.
        let end = *times.last().unwrap();
        assert!((61.0..154.0).contains(&end), "{end}");
    }
}

#[test]
fn retry_after_replaces_the_backoff() {
    for seed in 0..20 {
        let (figures, _, times) = run_with_seed("backoff-outage-retry-after", FINE, seed);
        assert_eq!((figures.sent, figures.accepted, figures.refused), (2, 1, 1));
        assert_eq!(figures.early_after_hint, 0);
        // 120 s from the response on, plus 0 to 5 s.
        assert!((120.0..125.1).contains(&times[1]), "{times:?}");
    }
}

#[test]
fn jitter_spreads_clients_refused_at_once() {
    let (figures, series, times) = run("backoff-many", FINE);
    assert_eq!(
        (figures.sent, figures.accepted, figures.refused),
        (150, 100, 50)
    );
    assert_eq!(figures.early_after_hint, 0);
    let again = &times[100..];
    assert!(
        again.iter().all(|at| (60.0..65.1).contains(at)),
        "{again:?}"
    );
    let together = series.slices.iter().skip(100).map(|slice| slice.sent).max();
    assert!(together.unwrap() <= 4, "in a hundredth of a second");
}

#[test]
fn gap_is_the_base_without_failures() {
    let (figures, _, times) = run("queue-empty", FINE);
    assert_eq!(figures.sent, 10);
    assert_gaps(&times, &[30.0; 9], 0.25);
}

#[test]
fn one_failure_doubles_the_gap() {
    let (_, _, times) = run("queue-single-failure", FINE);
    assert_gaps(&times[..4], &[60.0, 30.0, 30.0], 0.25);
}

#[test]
fn every_failure_adds_the_base_to_the_gap() {
    let (figures, _, times) = run("queue-many-failures", FINE);
    assert_eq!((figures.sent, figures.failed), (6, 6));
    assert_gaps(&times, &[60.0, 90.0, 120.0, 150.0, 180.0], 0.03);
}

#[test]
fn every_success_removes_the_base_from_the_gap() {
    let (_, _, times) = run("queue-successes", FINE);
    let gaps = [
        60.0, 90.0, 120.0, 150.0, 180.0, 150.0, 120.0, 90.0, 60.0, 30.0, 30.0,
    ];
    assert_gaps(&times[..12], &gaps, 0.25);
}

#[test]
fn expired_failure_shortens_the_present_gap() {
    let (_, _, times) = run("queue-aging", FINE);
    // 150 s after four failures; but the first expires after 30 s of them, the second after 90 s.
    assert_gaps(&times, &[60.0, 90.0, 120.0, 90.0], 0.03);
}

#[test]
fn full_queue_limits_the_gap() {
    let (figures, _, times) = run("queue-full", COARSE);
    assert!(figures.sent > 150, "{figures:?}");
    let gaps = gaps(&times);
    assert!((gaps[98] - 3000.0).abs() < 1.5 && (gaps[99] - 3030.0).abs() < 1.5);
    assert!(gaps[100..].iter().all(|gap| (gap - 3030.0).abs() < 1.5));
}

#[test]
fn one_error_pauses_for_30_s() {
    let (figures, series, times) = run("protection-single-error", FINE);
    assert_eq!((figures.refused, figures.accepted), (1, 1));
    assert_gaps(&times, &[30.0], 0.05);
    assert_eq!(series.clients[0].holds.len(), 1);
}

#[test]
fn consecutive_errors_pause_longer_each_time() {
    let (figures, _, times) = run("protection-repeated-errors", FINE);
    assert_eq!((figures.refused, figures.accepted), (3, 1));
    assert_gaps(&times, &[30.0, 60.0, 120.0], 0.05);
}

#[test]
fn success_restarts_the_ladder() {
    let (figures, series, times) = run("protection-success-recovery", FINE);
    assert_eq!((figures.refused, figures.accepted), (3, 2));
    assert_gaps(&times[..3], &[30.0, 60.0], 0.05);
    assert_gaps(&times[3..], &[30.0], 0.05);
    assert_eq!(series.clients[0].holds.len(), 3);
}

#[test]
fn fifth_error_disables() {
    let (figures, _, times) = run("protection-auto-disable", FINE);
    assert_eq!((figures.sent, figures.refused), (5, 5));
    assert_gaps(&times, &[30.0, 60.0, 120.0, 300.0], 0.05);
}

#[test]
fn paused_endpoint_does_not_delay_the_others() {
    let (figures, series, times) = run("protection-other-endpoints", FINE);
    assert_eq!((figures.refused, figures.accepted), (1, 60));
    assert!(times[1] < 0.05, "the other endpoint at once: {times:?}");
    assert!(series.clients[0].holds.is_empty());
}

#[test]
fn aimd_rises_by_0_25_with_every_fast_response() {
    let (figures, series, _) = run("aimd-fast", FINE);
    let mut accepted = 0;
    for (slice, rate) in series.slices.iter().zip(&series.clients[0].rates) {
        accepted += slice.accepted;
        let expected = (2.0 + 0.25 * f64::from(accepted)).min(8.0);
        assert!((rate.unwrap() - expected).abs() < 1e-9);
    }
    assert_eq!((figures.refused, figures.breaker_opened), (0, 0));
}

#[test]
fn aimd_falls_to_min_rate_at_a_slow_server() {
    let (figures, series, _) = run("aimd-slow", COARSE);
    let rates = &series.clients[0].rates;
    assert!((rates.last().unwrap().unwrap() - 0.25).abs() < 1e-9);
    let rises = |pair: &[Option<f64>]| pair[1] > pair[0];
    assert!(!rates.windows(2).any(rises), "{rates:?}");
    assert_eq!(figures.breaker_opened, 0, "slow is no failure");
}

#[test]
fn aimd_stays_near_an_unknown_limit() {
    let (figures, series, _) = run("aimd-throttling", COARSE);
    let accepted = figures.accepted as f64 / figures.sent as f64;
    assert!(accepted > 0.9, "{figures:?}");
    assert_eq!(figures.breaker_opened, 0);
    let rates = series.clients[0].rates.iter().flatten();
    assert!(rates.clone().all(|rate| (0.25..=8.0).contains(rate)));
    let most = series
        .slices
        .iter()
        .skip(60)
        .map(|slice| slice.refused)
        .max();
    assert!(most.unwrap() <= 3, "no bursts of refusals");
}

#[test]
fn aimd_opens_within_5_s_of_failures_and_recovers() {
    let (figures, series, _) = run("aimd-failing", FINE);
    let seconds = |at: policy::time::Timestamp| at.seconds_since(policy::time::Timestamp::ZERO);
    let bands = &series.clients[0].breaker;
    let first = bands.first().unwrap();
    assert!((60.0..65.0).contains(&seconds(first.from)), "{bands:?}");
    let open = bands.iter().filter(|band| band.what == BreakerState::Open);
    for band in open.clone() {
        let length = seconds(band.to) - seconds(band.from);
        assert!((15.0..15.1).contains(&length), "{bands:?}");
    }
    assert_eq!(figures.breaker_opened, open.count() as u64);
    let last = seconds(bands.last().unwrap().to);
    assert!((120.0..140.0).contains(&last), "{bands:?}");
    // Two or three before it opens, and three at each of three attempts to close.
    assert!(figures.outages[0].sent <= 40, "{figures:?}");
}
