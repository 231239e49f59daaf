//! Figures of hand-written runs.

use super::*;
use crate::client::{ClientSettings, Strategy};
use crate::load::Backlog;
use crate::upstream::{Outage, Step, UpstreamResponse};

const LATENCY: Duration = Duration::from_millis(100);

fn bucket(rate: f64) -> Kind {
    Kind::Bucket { rate, burst: 1.0 }
}

fn scenario(upstream: UpstreamSettings) -> Scenario {
    Scenario::of(upstream, vec![ClientSettings::of(Strategy::Adaptive)])
}

/// Records results of `class` from `from` to before `to`, `per_second` of them.
fn record(recorder: &mut Recorder, class: AttemptClass, per_second: u64, from: u64, to: u64) {
    for number in from * per_second..to * per_second {
        let at = Timestamp::from_millis(number * 1000 / per_second);
        recorder.ended(0, class, LATENCY, at);
    }
}

fn figures(scenario: &Scenario, recorder: Recorder, backlog: Backlog) -> Figures {
    let load = Load::new(backlog, Timestamp::ZERO);
    let at_end = FinalState {
        max_client_bans: 0,
        bans: 0,
        breaker_opened: 0,
        max_queue: None,
        failure_cost: FailureCost::default(),
        store_calls: None,
        explanations: vec![None],
    };
    recorder.figures(scenario, &[&load], at_end)
}

fn check(figure: Option<f64>, expected: f64) {
    let figure = figure.expect("a figure");
    assert!(
        (figure - expected).abs() < 1e-9,
        "{figure}, expected {expected}"
    );
}

#[test]
fn goodput_is_accepted_over_capacity_in_total_and_from_60_s() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let mut recorder = Recorder::new(&scenario, 1);
    record(&mut recorder, AttemptClass::Accepted, 5, 0, 60);
    record(&mut recorder, AttemptClass::Accepted, 8, 60, 300);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(figures.goodput_ratio, (300.0 + 1920.0) / 3000.0);
    check(figures.goodput_ratio_settled, 0.8);
    assert_eq!(figures.accepted, 2220);
    assert_eq!(figures.time_to_90_s, None);
}

#[test]
fn goodput_counts_only_offered_requests() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let run = |backlog, per_second, to| {
        let mut recorder = Recorder::new(&scenario, 1);
        record(&mut recorder, AttemptClass::Accepted, per_second, 0, to);
        let figures = figures(&scenario, recorder, backlog);
        (figures.goodput_ratio, figures.goodput_ratio_settled)
    };
    let (all, settled) = run(Backlog::PerSecond(4.0), 4, 300);
    check(all, 1.0);
    check(settled, 1.0);
    let (all, settled) = run(Backlog::Total(100), 10, 10);
    check(all, 1.0);
    assert_eq!(settled, None, "nothing was left to send");
    // Of 600, 60 were left after a minute at 9/s, and capacity is more than that.
    check(run(Backlog::Total(600), 9, 60).1, 0.0);
}

#[test]
fn finds_the_first_interval_with_90_percent_on_the_grid() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let mut recorder = Recorder::new(&scenario, 1);
    record(&mut recorder, AttemptClass::Accepted, 10, 7, 300);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    // From 6.5 s on, 4.5 of 5 seconds carry everything.
    check(figures.time_to_90_s, 6.5);
}

#[test]
fn interval_covers_a_window_and_is_longer_for_low_rates() {
    let window = |quota, period| Kind::Window {
        quota,
        period: Duration::from_secs(period),
        phase: Duration::ZERO,
    };
    let check = |kind, seconds| {
        let width = interval(
            &Scenario::of(UpstreamSettings::of(kind), Vec::new()),
            Timestamp::ZERO,
        );
        assert_eq!(width, Duration::from_secs(seconds), "{kind:?}");
    };
    check(bucket(1.0), 5);
    check(bucket(0.9), 40);
    check(window(600, 60), 60);
    check(window(600, 2), 5);
    check(window(1, 10), 40);
}

#[test]
fn counts_requests_in_an_outage_and_finds_the_recovery() {
    let upstream = UpstreamSettings {
        outages: vec![Outage {
            from: Timestamp::from_secs(60),
            to: Timestamp::from_secs(90),
            timeout_share: 0.0,
            timeout: Duration::from_secs(5),
            status: None,
        }],
        ..UpstreamSettings::of(bucket(10.0))
    };
    let scenario = scenario(upstream);
    let mut recorder = Recorder::new(&scenario, 1);
    for second in [0, 59, 60, 61, 89, 90, 91] {
        recorder.sent(
            &scenario.upstream,
            second == 61,
            Timestamp::from_secs(second),
        );
    }
    record(&mut recorder, AttemptClass::Accepted, 10, 0, 60);
    record(&mut recorder, AttemptClass::Failed, 1, 60, 90);
    record(&mut recorder, AttemptClass::Accepted, 10, 93, 300);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(figures.goodput_ratio, 2670.0 / 2700.0);
    assert_eq!(
        (figures.sent, figures.failed, figures.early_after_hint),
        (7, 30, 1)
    );
    assert_eq!(figures.outages[0].sent, 3);
    check(figures.outages[0].recovery_s, 2.5);
}

#[test]
fn step_down_settles_once_few_requests_are_refused() {
    let at = Timestamp::from_secs;
    let steps = [(60, 2.0), (120, 20.0)].map(|(second, rate)| Step {
        at: at(second),
        kind: bucket(rate),
    });
    let upstream = UpstreamSettings {
        steps: steps.to_vec(),
        ..UpstreamSettings::of(bucket(10.0))
    };
    let scenario = scenario(upstream);
    let mut recorder = Recorder::new(&scenario, 1);
    record(&mut recorder, AttemptClass::Accepted, 10, 0, 60);
    record(&mut recorder, AttemptClass::Accepted, 2, 60, 120);
    record(&mut recorder, AttemptClass::Refused, 2, 60, 70);
    record(&mut recorder, AttemptClass::Accepted, 10, 120, 300);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(Some(figures.steps[0].at_s), 60.0);
    // One of eleven may be refused: the interval from 69.1 s on contains the one at 69.5 s.
    check(figures.steps[0].settle_s, 9.1);
    assert_eq!(
        figures.steps[1].settle_s, None,
        "half of the new rate is not enough"
    );
}

#[test]
fn latencies_cover_accepted_requests_from_60_s() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let mut recorder = Recorder::new(&scenario, 1);
    recorder.ended(
        0,
        AttemptClass::Accepted,
        Duration::from_secs(9),
        Timestamp::from_secs(59),
    );
    recorder.ended(
        0,
        AttemptClass::Refused,
        Duration::from_secs(9),
        Timestamp::from_secs(60),
    );
    for millis in 1..=200 {
        recorder.ended(
            0,
            AttemptClass::Accepted,
            Duration::from_millis(millis),
            Timestamp::from_secs(60),
        );
    }
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(figures.mean_latency_ms, 100.5);
    check(figures.p99_latency_ms, 198.0);
}

#[test]
fn figures_that_do_not_apply_are_none() {
    let mut scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    scenario.duration = Duration::from_secs(50);
    let recorder = Recorder::new(&scenario, 1);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(figures.goodput_ratio, 0.0);
    assert_eq!(figures.goodput_ratio_settled, None);
    assert_eq!((figures.refused_ratio, figures.jain), (None, None));
    assert_eq!(
        (figures.mean_latency_ms, figures.p99_latency_ms),
        (None, None)
    );
    assert_eq!((figures.time_to_90_s, figures.max_queue), (None, None));
}

#[test]
fn jain_is_1_for_equal_shares_and_1_over_n_for_one_client() {
    check(jain(&[7, 7, 7]), 1.0);
    check(jain(&[9, 0, 0]), 1.0 / 3.0);
    check(jain(&[1, 3]), 16.0 / 20.0);
    assert_eq!(jain(&[5]), None);
    assert_eq!(jain(&[0, 0]), None);
}

#[test]
fn classifies_attempts_by_status() {
    let class = |status| {
        AttemptClass::of(&AttemptEnd::Response(UpstreamResponse {
            status,
            retry_after: None,
            limit: None,
            tokens: None,
        }))
    };
    assert_eq!([200, 302].map(class), [AttemptClass::Accepted; 2]);
    assert_eq!([429, 403, 503].map(class), [AttemptClass::Refused; 3]);
    assert_eq!([500, 502, 404].map(class), [AttemptClass::Failed; 3]);
    let none = [AttemptEnd::Unreachable, AttemptEnd::TimedOut];
    assert_eq!(
        none.map(|end| AttemptClass::of(&end)),
        [AttemptClass::Failed; 2]
    );
}
