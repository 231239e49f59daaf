//! The breaker of a gate: opening, probing, closing.

use super::*;

#[test]
fn five_failures_open_and_three_successes_close() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    assert_eq!(bench.decide(34.9), "refuse breaker_open 35");
    assert_eq!(
        (bench.state(34.9), bench.state(35.0)),
        ("open", "half_open")
    );
    let probes = [35.0; 3].map(|seconds| bench.permit(seconds));
    assert!(probes.iter().all(Permit::is_probe));
    assert_eq!(bench.decide(35.0), "refuse breaker_open -");
    for (i, probe) in probes.into_iter().enumerate() {
        assert_eq!(bench.state(36.0), "half_open", "after {i}");
        bench.succeed(probe, 36.0);
    }
    assert_eq!(bench.state(36.0), "closed");
    assert_eq!(
        bench.gate.window(&bench.settings, at(36.0)).total,
        0,
        "the window is cleared"
    );
}

#[test]
fn closing_discards_tokens_saved_for_probes() {
    let mut bench = Bench::aimd(&[("increase", "0.001")]);
    bench.trip();
    for _ in 0..3 {
        let probe = bench.permit(35.0);
        bench.succeed(probe, 35.0);
    }
    assert_eq!(bench.state(35.0), "closed");
    assert!(
        bench.decide(35.0).starts_with("wait rate"),
        "no saved token is left"
    );
}

#[test]
fn successful_probes_do_not_count_as_growth_during_the_outage() {
    let mut bench = Bench::new(&[("strategy", "adaptive"), ("initial_rate", "8")]);
    bench.throttle(0.0, 1);
    for seconds in 2..6 {
        let permit = bench.permit(f64::from(seconds));
        bench.succeed(permit, f64::from(seconds));
    }
    for seconds in 6..11 {
        let permit = bench.permit(f64::from(seconds));
        bench.fail(permit, f64::from(seconds));
    }
    assert_eq!(
        (bench.state(10.0), bench.state(60.0)),
        ("open", "half_open")
    );
    let before = bench.gate.rate();
    let probe = bench.permit(60.0);
    bench.succeed(probe, 60.0);
    assert_eq!(bench.state(60.0), "half_open");
    let step = bench.gate.rate() - before;
    assert!(
        step < 0.5 / before + 1e-9,
        "expected the initial rate, got {step}"
    );
}

#[test]
fn aimd_rises_and_adaptive_restarts_lower_after_closing() {
    let rate_after_closing = |strategy: &str| {
        let mut bench = Bench::new(&[
            ("strategy", strategy),
            ("initial_rate", "8"),
            ("half_open_probes", "1"),
        ]);
        bench.trip();
        let before = bench.gate.rate();
        let probe = bench.permit(60.0);
        bench.succeed(probe, 60.0);
        assert_eq!(bench.state(60.0), "closed");
        (before, bench.gate.rate())
    };
    assert_eq!(rate_after_closing("aimd"), (0.25, 0.5));
    assert_eq!(rate_after_closing("adaptive"), (8.0, 4.0));
    assert_eq!(rate_after_closing("fixed"), (8.0, 8.0));
}

#[test]
fn failed_probe_reopens_and_other_probes_are_late() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let [first, second, third] = [35.0; 3].map(|seconds| bench.permit(seconds));
    bench.fail(first, 36.0);
    assert_eq!(bench.decide(36.0), "refuse breaker_open 51");
    bench.succeed(second, 37.0);
    bench.fail(third, 38.0);
    assert_eq!(
        bench.decide(38.0),
        "refuse breaker_open 51",
        "they change nothing"
    );
    assert_eq!(bench.gate.consecutive_failures(), 6);
}

#[test]
fn neutral_and_abandoned_probes_return_their_slot() {
    let mut bench = Bench::aimd(&[("half_open_probes", "1")]);
    bench.trip();
    let probe = bench.permit(35.0);
    bench.settle(probe, 35.0, &answer(404), Verdict::Rejected);
    assert_eq!(bench.state(39.0), "half_open");
    let probe = bench.permit(39.0);
    bench.settle(probe, 39.0, &answer(401), Verdict::Unauthorized);
    let probe = bench.permit(43.0);
    bench
        .gate
        .settle(&bench.settings, probe, &answer(101), None, at(43.0));
    let probe = bench.permit(47.0);
    bench.gate.abandon(&bench.settings, probe, at(47.0));
    let probe = bench.permit(51.0);
    bench.succeed(probe, 51.0);
    assert_eq!(bench.state(51.0), "closed");
}

#[test]
fn throttled_probe_starts_an_epoch_and_other_probes_return_their_slot() {
    let mut bench = Bench::new(&[("initial_rate", "100"), ("half_open_probes", "2")]);
    for step in 0..5 {
        let permit = bench.permit(f64::from(step));
        bench.fail(permit, f64::from(step));
    }
    let [first, second] = [10.0, 11.0].map(|seconds| bench.permit(seconds));
    bench.settle(first, 11.0, &answer(429), Verdict::Throttled);
    bench.succeed(second, 11.1);
    assert_eq!(bench.state(11.1), "half_open");
    let [third, fourth] = [12.0, 13.0].map(|seconds| bench.permit(seconds));
    bench.succeed(third, 14.0);
    bench.succeed(fourth, 14.0);
    assert_eq!(bench.state(14.0), "closed", "the late success was none");
}

#[test]
fn gives_up_lost_probes() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let lost = [35.0; 3].map(|seconds| bench.permit(seconds));
    assert_eq!(bench.decide(154.0), "refuse breaker_open -");
    let probe = bench.permit(155.0);
    for late in lost {
        bench.succeed(late, 156.0);
    }
    assert_eq!(
        bench.state(156.0),
        "half_open",
        "they were given up, so their successes do not count"
    );
    bench.fail(probe, 157.0);
    assert_eq!(bench.state(157.0), "open");
}

#[test]
fn open_times_grow_and_reset_after_closing() {
    let mut bench = Bench::new(&[
        ("initial_rate", "1000"),
        ("half_open_probes", "1"),
        ("consecutive_failures", "1"),
    ]);
    let mut now = 0.0;
    let mut stays = Vec::new();
    for _ in 0..5 {
        let permit = bench.permit(now);
        bench.fail(permit, now);
        let until = bench.gate.breaker.open_until(at(now)).unwrap();
        stays.push((until.since(at(now)).as_secs_f64() * 1000.0).round());
        now = until.seconds_since(Timestamp::ZERO);
    }
    assert_eq!(stays, [1000.0, 1600.0, 2560.0, 4000.0, 4000.0]);
    let probe = bench.permit(now);
    bench.succeed(probe, now);
    let permit = bench.permit(now + 1.0);
    bench.fail(permit, now + 1.0);
    assert_eq!(
        bench.gate.breaker.open_until(at(now + 1.0)),
        Some(at(now + 2.0))
    );
}

#[test]
fn waiters_stay_when_the_breaker_opens_and_leave_as_probes() {
    let mut bench = Bench::aimd(&[
        ("consecutive_failures", "1"),
        ("max_in_flight", "1"),
        ("half_open_probes", "1"),
    ]);
    let in_flight = bench.permit(0.0);
    assert_eq!(bench.decide(0.0), "wait in_flight -");
    bench.fail(in_flight, 1.0);
    assert_eq!(bench.decide(15.9), "refuse breaker_open 16");
    assert_eq!(
        bench.decide(16.0),
        "refuse breaker_open -",
        "the ticket in line is the probe"
    );
    assert_eq!(bench.admitted_by(16.0), [16.0]);
}

#[test]
fn ask_waits_for_the_breaker_if_its_deadline_allows() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let ask_until = |deadline| Ask {
        waits_for_breaker: true,
        ..Ask::until(at(deadline))
    };
    assert!(matches!(
        bench.ask_as(ask_until(34.0), 21.0),
        Decision::Refuse { reason: Reason::BreakerOpen, until: Some(until) } if until == at(35.0)
    ));
    for expected in [Some(35.0), Some(35.0), Some(35.0), None, None] {
        assert!(matches!(
            bench.ask_as(ask_until(60.0), 21.0),
            Decision::Wait { reason: Reason::BreakerOpen, until, .. } if until == expected.map(at)
        ));
    }
    assert_eq!(bench.admitted_by(50.0), [35.0; 3], "as many as probe");
    assert!(matches!(
        bench.ask_as(ask_until(60.0), 50.0),
        Decision::Wait {
            reason: Reason::BreakerOpen,
            until: None,
            ..
        }
    ));
}

#[test]
fn closes_on_responses_just_within_the_timeout() {
    let mut bench = Bench::aimd(&[]);
    bench
        .settings
        .set_response_timeout(Duration::from_secs(300));
    bench.trip();
    let probes = [35.0; 3].map(|seconds| bench.permit(seconds));
    assert_eq!(bench.decide(334.9), "refuse breaker_open -");
    for probe in probes {
        bench.succeed(probe, 334.9);
    }
    assert_eq!(bench.state(334.9), "closed");
}

#[test]
fn probe_is_lost_after_response_timeout_and_at_least_two_minutes() {
    let lost_after = |timeout: u64| {
        let mut bench = Bench::aimd(&[("half_open_probes", "1")]);
        bench
            .settings
            .set_response_timeout(Duration::from_secs(timeout));
        bench.trip();
        let _lost = bench.permit(35.0);
        let is_free = |bench: &mut Bench, seconds: f64| bench.decide(seconds) == "admit";
        let seconds = (36..1000).map(f64::from);
        let mut free = seconds.filter(|seconds| is_free(&mut bench, *seconds));
        free.next().unwrap() - 35.0
    };
    assert_eq!(lost_after(1), 120.0);
    assert_eq!(lost_after(120), 120.0);
    assert_eq!(lost_after(300), 300.0);
}

#[test]
fn adaptive_sends_one_probe_first_and_the_next_after_its_success_or_the_open_time() {
    let mut bench = Bench::new(&[("initial_rate", "100")]);
    for step in 0..5 {
        let permit = bench.permit(f64::from(step));
        bench.fail(permit, f64::from(step));
    }
    assert_eq!((bench.state(4.9), bench.state(5.0)), ("open", "half_open"));
    let first = bench.permit(5.0);
    assert_eq!(bench.decide(5.9), "refuse breaker_open -");
    assert_eq!(bench.decide(6.0), "admit", "as long as it was open");
    bench.succeed(first, 6.1);
    assert_eq!(bench.decide(6.1), "refuse breaker_open -", "one is out");
    assert_eq!(bench.decide(7.0), "admit");
}

#[test]
fn timeout_of_a_probe_does_not_undo_the_success_of_a_later_one() {
    let mut bench = Bench::new(&[("initial_rate", "100")]);
    for step in 0..5 {
        let permit = bench.permit(f64::from(step));
        bench.fail(permit, f64::from(step));
    }
    let [slow, later] = [5.0, 6.0].map(|seconds| bench.permit(seconds));
    bench.succeed(later, 7.0);
    bench.fail(slow, 10.0);
    assert_eq!(bench.state(10.0), "half_open");
    let last = bench.permit(10.0);
    bench.fail(last, 10.1);
    assert_eq!(bench.state(10.1), "open");
}
