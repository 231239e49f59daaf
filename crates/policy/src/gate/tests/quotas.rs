//! Quotas that response headers tell.

use super::*;
use crate::rate::CeilingSource;

impl Bench {
    /// How the limit was learned, as far as it is known.
    fn ceiling_source(&self) -> Option<CeilingSource> {
        self.gate.learned(&self.settings, at(0.0))?.source
    }
}

/// A gate at 100 per second that has sent one request.
fn bench() -> (Bench, Permit) {
    let mut bench = Bench::new(&[("initial_rate", "100")]);
    let permit = bench.permit(0.0);
    (bench, permit)
}

#[test]
fn admits_what_remains_at_full_rate_and_then_holds() {
    let (mut bench, first) = bench();
    bench.settle(first, 0.1, &quota(200, 4, 10), Verdict::Success);
    assert_eq!(bench.gate.rate(), 100.0);
    for hundredths in 11..=14 {
        assert_eq!(bench.gate.hold_until(at(0.1)), None);
        let _ = bench.permit(f64::from(hundredths) / 100.0);
    }
    assert_eq!(bench.decide(0.15), "wait hold 10.1");
    let _ = bench.admitted_by(10.2);
    assert_eq!(bench.decide(10.3), "admit", "the quota is renewed");
}

#[test]
fn requests_in_flight_are_part_of_what_remains() {
    let (mut bench, first) = bench();
    let _ = [0.02, 0.04, 0.06].map(|seconds| bench.permit(seconds));
    bench.settle(first, 0.1, &quota(200, 4, 10), Verdict::Success);
    let _ = bench.permit(0.2);
    assert_eq!(bench.decide(0.3), "wait hold 10.1");
}

#[test]
fn last_requests_are_spread_over_two_responses_if_others_use_the_quota() {
    let (mut bench, first) = bench();
    let second = bench.permit(0.02);
    bench.settle(first, 0.1, &quota(200, 99, 10), Verdict::Success);
    bench.settle(second, 0.12, &quota(200, 4, 10), Verdict::Success);
    let rate = bench.gate.rate();
    assert!((rate - 16.0).abs() < 1e-5, "four in 2.5 × 100 ms: {rate}");
    let third = bench.permit(0.3);
    bench.settle(third, 0.4, &quota(200, 400, 10), Verdict::Success);
    assert_eq!(bench.gate.rate(), 100.0, "it is renewed");
    assert_eq!(bench.gate.record(at(0.4)).rate, 100.0);
    assert_eq!(bench.gate.why, Why::QuotaRenewed);
}

#[test]
fn quota_that_others_use_up_is_a_window() {
    let (mut bench, first) = bench();
    let second = bench.permit(0.02);
    bench.settle(first, 0.1, &quota(200, 99, 10), Verdict::Success);
    assert_eq!(bench.ceiling_source(), None);
    bench.settle(second, 0.12, &quota(200, 0, 10), Verdict::Success);
    assert_eq!(bench.ceiling_source(), Some(CeilingSource::Window));
    assert_eq!(bench.decide(0.2), "wait hold 10.12");
}

#[test]
fn holds_until_the_earliest_end_that_was_named() {
    let (mut bench, first) = bench();
    let second = bench.permit(0.02);
    bench.settle(first, 0.1, &quota(200, 4, 10), Verdict::Success);
    // Rounded up by the server, as all times in whole seconds are.
    bench.settle(second, 0.9, &quota(200, 3, 10), Verdict::Success);
    let _ = [1.0, 1.1, 1.2].map(|seconds| bench.permit(seconds));
    assert_eq!(bench.decide(1.3), "wait hold 10.1");
}

#[test]
fn quota_of_seconds_is_paced() {
    let (mut bench, first) = bench();
    bench.settle(first, 0.1, &quota(200, 18, 2), Verdict::Success);
    let rate = bench.gate.rate();
    assert!((rate - 0.99 * 19.0 / 1.9).abs() < 1e-2, "{rate}");
    assert_eq!(bench.gate.record(at(0.1)).rate, 100.0, "what was learned");
}

#[test]
fn refusal_at_the_end_of_a_known_quota_is_the_end_of_a_window() {
    let refused = |knows_quota: bool| {
        let (mut bench, first) = bench();
        let second = bench.permit(0.02);
        if knows_quota {
            bench.settle(first, 0.1, &quota(200, 900, 3), Verdict::Success);
        } else {
            bench.succeed(first, 0.1);
        }
        let mut refusal = quota(429, 0, 3);
        refusal.hint.wait = refusal.hint.reset;
        bench.settle(second, 0.15, &refusal, Verdict::Throttled);
        assert_eq!(bench.gate.hold_until(at(0.15)), Some(at(3.15)));
        bench.ceiling_source()
    };
    assert_eq!(refused(true), Some(CeilingSource::Window));
    assert_eq!(
        refused(false),
        Some(CeilingSource::Estimated),
        "3 s are no window"
    );
}

#[test]
fn response_to_an_earlier_request_is_outdated() {
    let (mut bench, first) = bench();
    let second = bench.permit(0.02);
    bench.settle(second, 0.1, &quota(200, 4, 10), Verdict::Success);
    bench.settle(first, 0.12, &quota(200, 99, 10), Verdict::Success);
    for hundredths in 13..=16 {
        let _ = bench.permit(f64::from(hundredths) / 100.0);
    }
    assert_eq!(bench.decide(0.2), "wait hold 10.1");
}

#[test]
fn release_forgets_the_quota() {
    let (mut bench, first) = bench();
    bench.settle(first, 0.1, &quota(200, 1, 10), Verdict::Success);
    let _ = bench.permit(0.2);
    bench.gate.release(&bench.settings, at(0.3));
    assert_eq!(bench.decide(0.3), "admit");
    assert_eq!(bench.decide(0.4), "admit");
}

#[test]
fn numbers_of_requests_wrap_around() {
    let number = u32::MAX - 1;
    let follow = |known, number, remaining| {
        let ends = (at(10.0), Source::RetryAfter);
        Quota::follow(known, number, remaining, ends, at(0.0))
    };
    let (quota, change) = follow(None, number, 3);
    assert_eq!(change, quota::Change::None);
    assert_eq!(
        (quota.left(number), quota.left(1), quota.left(5)),
        (3, 0, 0)
    );
    let (quota, change) = follow(Some(quota), 0, 1);
    assert_eq!(change, quota::Change::None);
    let (quota, change) = follow(Some(quota), 0, u64::MAX);
    assert_eq!(change, quota::Change::Renewed);
    assert!(quota.left(0) > 1_000_000_000);
}
