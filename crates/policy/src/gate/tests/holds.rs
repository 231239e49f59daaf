//! Holds: "not before", by a server or a used-up quota.

use super::*;

#[test]
fn directed_wait_holds_and_asks_leave_at_the_rate_afterwards() {
    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 10);
    assert_eq!(bench.gate.rate(), 1.0);
    assert_eq!(bench.decide(1.0), "wait hold 10");
    assert_eq!(bench.decide(1.0), "wait hold 11");
    assert_eq!(bench.decide(9.0), "wait hold 12");
    assert_eq!(bench.admitted_by(20.0), [10.0, 11.0, 12.0]);
}

#[test]
fn tokens_saved_during_a_hold_do_not_burst_without_waiters() {
    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 10);
    assert_eq!(bench.decide(10.5), "admit", "one saved token");
    assert_eq!(
        bench.decide(10.5),
        "wait rate 11",
        "half a token was refilled since the end of the hold"
    );
}

#[test]
fn hold_only_grows() {
    let mut bench = Bench::aimd(&[]);
    let [first, second, third] = [0.0; 3].map(|seconds| bench.permit(seconds));
    bench.settle(first, 0.1, &directed(429, 60), Verdict::Throttled);
    bench.settle(second, 0.2, &directed(429, 1), Verdict::Throttled);
    assert_eq!(bench.gate.hold_until(at(0.2)), Some(at(60.1)));
    bench.succeed(third, 0.3);
    assert_eq!(
        bench.gate.hold_until(at(0.3)),
        Some(at(60.1)),
        "a late success does not shorten it"
    );
}

#[test]
fn refuses_at_once_when_hold_exceeds_deadline_or_max_hold() {
    let mut bench = Bench::aimd(&[]);
    assert_eq!(bench.decide(0.0), "admit");
    bench.throttle(0.0, 31);
    assert_eq!(bench.decide(0.5), "refuse deadline 31");
    assert_eq!(
        bench.decide(1.0),
        "wait hold 31",
        "an ask whose deadline is the end of the hold waits"
    );
    bench.throttle_held(1.0, 7200);
    assert_eq!(bench.decide(1.0), "refuse hold 7201");
    assert_eq!(
        bench.gate.waiting(&bench.tickets),
        1,
        "tickets in line stay"
    );
}

#[test]
fn success_with_nothing_remaining_only_holds_until_the_reset() {
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &quota(200, 0, 20), Verdict::Success);
    assert_eq!(bench.gate.hold_until(at(0.0)), Some(at(20.0)));
    assert_eq!((bench.gate.rate(), bench.state(0.0)), (2.25, "closed"));
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &directed(202, 20), Verdict::Success);
    assert_eq!(
        bench.gate.hold_until(at(0.0)),
        None,
        "that is about one resource, not about pace"
    );
}

#[test]
fn adaptive_subtracts_requests_sent_since_from_remaining() {
    let mut bench = Bench::new(&[("initial_rate", "100")]);
    let first = bench.permit(0.0);
    for step in 1..=3 {
        let _ = bench.permit(f64::from(step));
    }
    bench.settle(first, 4.0, &quota(200, 4, 10), Verdict::Success);
    assert_eq!(bench.gate.hold_until(at(4.0)), None);
    let second = bench.permit(4.5);
    bench.settle(second, 5.0, &quota(200, 0, 10), Verdict::Success);
    assert_eq!(bench.gate.hold_until(at(5.0)), Some(at(15.0)));
}

#[test]
fn quota_exhausted_holds_until_the_reset_or_isolates() {
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &quota(429, 0, 900), Verdict::QuotaExhausted);
    assert_eq!(
        (bench.state(0.0), bench.gate.hold_until(at(0.0))),
        ("closed", Some(at(900.0)))
    );

    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &answer(429), Verdict::QuotaExhausted);
    assert_eq!(bench.state(1e6), "isolated");
    assert_eq!(bench.decide(1e6), "refuse breaker_open -");
    bench.gate.reset(&bench.settings, at(1e6));
    assert_eq!(bench.decide(1e6), "admit");
}

#[test]
fn waits_when_deadline_equals_end_of_hold() {
    let mut bench = Bench::aimd(&[("max_hold", "30s")]);
    bench.throttle(0.0, 30);
    assert_eq!(bench.decide(0.0), "wait hold 30");
    assert_eq!(
        bench
            .gate
            .next_wake(&bench.settings, &bench.tickets, at(1.0)),
        Some(at(30.0))
    );
    assert_eq!(bench.gate.expire_next(&mut bench.tickets, at(29.0)), None);
    assert_eq!(bench.admitted_by(30.0), [30.0]);
}

#[test]
fn adaptive_does_not_grow_into_an_exhausted_window() {
    let rate_after = |remaining| {
        let mut bench = Bench::new(&[]);
        let permit = bench.permit(0.0);
        bench.settle(permit, 0.0, &quota(200, remaining, 10), Verdict::Success);
        bench.gate.rate()
    };
    assert_eq!((rate_after(1), rate_after(0)), (3.0, 2.0));
    let mut bench = Bench::new(&[]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &quota(429, 0, 10), Verdict::Throttled);
    assert_eq!(bench.gate.rate(), 1.0, "a refusal is one all the same");
}

#[test]
fn first_of_two_holds_with_equal_end_is_reported() {
    let mut bench = Bench::aimd(&[]);
    let [first, second] = [0.0; 2].map(|seconds| bench.permit(seconds));
    bench.settle(first, 0.0, &directed(429, 5), Verdict::Throttled);
    let mut same = directed(429, 5);
    same.hint.source = Some(Source::Body);
    bench.settle(second, 0.0, &same, Verdict::Throttled);
    let hold = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(0.0))
        .hold;
    assert_eq!(hold, Some((at(5.0), Source::RetryAfter)));
}

/// A fast bucket says that nothing remains and has a token again before the response arrives.
#[test]
fn adaptive_ignores_a_reset_within_a_quarter_of_the_latency() {
    let hold = |reset_millis, strategy| {
        let mut bench = Bench::new(&[("strategy", strategy)]);
        let permit = bench.permit(0.0);
        let mut outcome = quota(200, 0, 0);
        outcome.latency = Duration::from_millis(100);
        outcome.hint.reset = Some(Duration::from_millis(reset_millis));
        bench.settle(permit, 0.1, &outcome, Verdict::Success);
        bench.gate.hold_until(at(0.1)).is_some()
    };
    assert_eq!([24, 25].map(|reset| hold(reset, "adaptive")), [false, true]);
    assert!(hold(24, "aimd"));
}
