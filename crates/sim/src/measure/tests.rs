//! Figures of runs that are written by hand.

use super::*;
use crate::client::{ClientSettings, Strategy};
use crate::load::Backlog;
use crate::upstream::{Answer, Outage, Step};

const LATENCY: Duration = Duration::from_millis(100);

fn bucket(rate: f64) -> Kind {
    Kind::Bucket { rate, burst: 1.0 }
}

fn scenario(upstream: UpstreamSettings) -> Scenario {
    Scenario::of(upstream, vec![ClientSettings::of(Strategy::Adaptive)])
}

/// Answers of `class` from `from` to before `to`, `per_second` of them, in tenths of seconds so
/// that borders are exact.
fn answers(recorder: &mut Recorder, class: Class, per_second: u64, from: u64, to: u64) {
    for number in from * per_second..to * per_second {
        let at = Timestamp::from_millis(number * 1000 / per_second);
        recorder.ended(0, class, LATENCY, at);
    }
}

fn figures(scenario: &Scenario, recorder: Recorder, backlog: Backlog) -> Figures {
    let load = Load::new(backlog, Timestamp::ZERO);
    let ends = Ends {
        bans: 0,
        breaker_opened: 0,
        max_queue: None,
        after_failures: AfterFailures::default(),
    };
    recorder.figures(scenario, &[&load], ends)
}

fn check(figure: Option<f64>, expected: f64) {
    let figure = figure.expect("a figure");
    assert!(
        (figure - expected).abs() < 1e-9,
        "{figure}, expected {expected}"
    );
}

#[test]
fn goodput_is_what_was_accepted_over_capacity_in_all_and_from_a_minute_on() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let mut recorder = Recorder::new(&scenario, 1);
    answers(&mut recorder, Class::Accepted, 5, 0, 60);
    answers(&mut recorder, Class::Accepted, 8, 60, 300);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(figures.goodput_ratio, (300.0 + 1920.0) / 3000.0);
    check(figures.goodput_ratio_settled, 0.8);
    assert_eq!(figures.accepted, 2220);
    assert_eq!(figures.time_to_90_s, None);
}

#[test]
fn what_was_never_offered_cannot_be_accepted() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let run = |backlog, per_second, to| {
        let mut recorder = Recorder::new(&scenario, 1);
        answers(&mut recorder, Class::Accepted, per_second, 0, to);
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
fn the_first_stretch_with_90_percent_is_found_on_the_grid() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let mut recorder = Recorder::new(&scenario, 1);
    answers(&mut recorder, Class::Accepted, 10, 7, 300);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    // From 6.5 s on, 4.5 of 5 seconds carry everything.
    check(figures.time_to_90_s, 6.5);
}

#[test]
fn a_stretch_is_a_whole_window_or_long_where_requests_are_rare() {
    let window = |quota, period| Kind::Window {
        quota,
        period: Duration::from_secs(period),
        phase: Duration::ZERO,
    };
    let check = |kind, seconds| {
        let width = width(&UpstreamSettings::of(kind), Timestamp::ZERO);
        assert_eq!(width, Duration::from_secs(seconds), "{kind:?}");
    };
    check(bucket(1.0), 5);
    check(bucket(0.9), 40);
    check(window(600, 60), 60);
    check(window(600, 2), 5);
    check(window(1, 10), 40);
}

#[test]
fn an_outage_has_its_requests_and_its_recovery() {
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
    answers(&mut recorder, Class::Accepted, 10, 0, 60);
    answers(&mut recorder, Class::Failed, 1, 60, 90);
    answers(&mut recorder, Class::Accepted, 10, 93, 300);
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
fn a_step_down_has_settled_only_once_little_is_refused() {
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
    answers(&mut recorder, Class::Accepted, 10, 0, 60);
    answers(&mut recorder, Class::Accepted, 2, 60, 120);
    answers(&mut recorder, Class::Refused, 2, 60, 70);
    answers(&mut recorder, Class::Accepted, 10, 120, 300);
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(Some(figures.steps[0].at_s), 60.0);
    // One of eleven may be refused: the stretch from 69.1 s on has the one at 69.5 s.
    check(figures.steps[0].settle_s, 9.1);
    assert_eq!(
        figures.steps[1].settle_s, None,
        "half of the new rate is never enough"
    );
}

#[test]
fn latencies_are_those_of_accepted_requests_from_a_minute_on() {
    let scenario = scenario(UpstreamSettings::of(bucket(10.0)));
    let mut recorder = Recorder::new(&scenario, 1);
    recorder.ended(
        0,
        Class::Accepted,
        Duration::from_secs(9),
        Timestamp::from_secs(59),
    );
    recorder.ended(
        0,
        Class::Refused,
        Duration::from_secs(9),
        Timestamp::from_secs(60),
    );
    for millis in 1..=200 {
        recorder.ended(
            0,
            Class::Accepted,
            Duration::from_millis(millis),
            Timestamp::from_secs(60),
        );
    }
    let figures = figures(&scenario, recorder, Backlog::Endless);
    check(figures.mean_latency_ms, 100.5);
    check(figures.p99_latency_ms, 198.0);
}

#[test]
fn what_does_not_apply_is_none() {
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
fn fairness_is_one_among_equals_and_one_over_n_if_one_has_all() {
    check(jain(&[7, 7, 7]), 1.0);
    check(jain(&[9, 0, 0]), 1.0 / 3.0);
    check(jain(&[1, 3]), 16.0 / 20.0);
    assert_eq!(jain(&[5]), None);
    assert_eq!(jain(&[0, 0]), None);
}

#[test]
fn answers_are_classed_by_their_status() {
    let class = |status| {
        Class::of(&Ending::Answered(Answer {
            status,
            retry_after: None,
            pace: None,
        }))
    };
    assert_eq!([200, 302].map(class), [Class::Accepted; 2]);
    assert_eq!([429, 403, 503].map(class), [Class::Refused; 3]);
    assert_eq!([500, 502, 404].map(class), [Class::Failed; 3]);
    let none = [Ending::Unreachable, Ending::TimedOut];
    assert_eq!(none.map(|ending| Class::of(&ending)), [Class::Failed; 2]);
}
