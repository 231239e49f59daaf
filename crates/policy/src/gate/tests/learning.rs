//! The effect of outcomes on rate and window, and epochs.

use super::*;

#[test]
fn aimd_rises_stays_and_falls_by_latency() {
    let mut bench = Bench::aimd(&[]);
    let mut rate_after = |seconds: f64, millis| {
        let permit = bench.permit(seconds);
        let outcome = Outcome::status(200, Duration::from_millis(millis));
        bench.settle(permit, seconds, &outcome, Verdict::Success);
        bench.gate.rate()
    };
    assert_eq!(rate_after(1.0, 0), 2.25);
    assert_eq!(rate_after(2.0, 999), 2.5);
    assert_eq!(rate_after(3.0, 1000), 2.5);
    assert_eq!(rate_after(4.0, 1999), 2.5);
    assert_eq!(rate_after(5.0, 2000), 1.25);
}

#[test]
fn ten_parallel_refusals_are_one_event() {
    for strategy in ["aimd", "adaptive"] {
        let mut bench = Bench::new(&[
            ("strategy", strategy),
            ("initial_rate", "100"),
            ("max_rate", "100"),
            ("min_rate", "0.1"),
        ]);
        let permits: Vec<Permit> = (0..10).map(|i| bench.permit(f64::from(i))).collect();
        let mut rates = Vec::new();
        for permit in permits {
            bench.settle(permit, 10.0, &answer(429), Verdict::Throttled);
            rates.push(bench.gate.rate());
        }
        assert_eq!(rates, [50.0; 10], "{strategy}");
        assert_eq!(bench.state(10.0), "closed", "{strategy}");
        let counted = u16::from(strategy == "aimd");
        assert_eq!(bench.gate.consecutive_failures(), counted, "{strategy}");
    }
}

#[test]
fn decrease_at_the_minimum_starts_an_epoch() {
    let mut bench = Bench::aimd(&[("initial_rate", "0.25")]);
    let epoch = bench.gate.epoch();
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &answer(429), Verdict::Throttled);
    assert_eq!((bench.gate.rate(), bench.gate.epoch()), (0.25, epoch + 1));
}

#[test]
fn each_verdict_moves_rate_and_breaker_as_documented() {
    let check = |strategy: &str, status: u16, verdict: Verdict, rate: f64, counts: (u32, u32)| {
        let mut bench = Bench::new(&[("strategy", strategy), ("initial_rate", "2")]);
        let permit = bench.permit(0.0);
        bench.settle(permit, 0.0, &answer(status), verdict);
        let window = bench.gate.window(&bench.settings, at(0.0));
        assert_eq!(bench.gate.rate(), rate, "{strategy} {status} {verdict:?}");
        assert_eq!(
            (window.total, window.failed),
            counts,
            "{strategy} {status} {verdict:?}"
        );
    };
    check("aimd", 200, Verdict::Success, 2.25, (1, 0));
    check("aimd", 429, Verdict::Throttled, 1.0, (1, 1));
    check("aimd", 503, Verdict::Overloaded, 1.0, (1, 1));
    check("aimd", 500, Verdict::Overloaded, 1.0, (1, 1));
    check("aimd", 0, Verdict::Unreachable, 1.0, (1, 1));
    check("aimd", 404, Verdict::Rejected, 2.0, (1, 0));
    check("aimd", 401, Verdict::Unauthorized, 2.0, (0, 0));
    check("aimd", 409, Verdict::Conflict, 2.0, (0, 0));
    check("aimd", 403, Verdict::QuotaExhausted, 2.0, (0, 0));
    check("adaptive", 200, Verdict::Success, 3.0, (1, 0));
    check("adaptive", 429, Verdict::Throttled, 1.0, (0, 0));
    check("adaptive", 503, Verdict::Overloaded, 1.0, (1, 1));
    check("adaptive", 500, Verdict::Overloaded, 2.0, (1, 1));
    check("adaptive", 0, Verdict::Unreachable, 2.0, (1, 1));
    check("adaptive", 404, Verdict::Rejected, 2.0, (1, 0));
    check("fixed", 200, Verdict::Success, 2.0, (1, 0));
    check("fixed", 429, Verdict::Throttled, 2.0, (0, 0));
    check("fixed", 503, Verdict::Overloaded, 2.0, (1, 1));
}

#[test]
fn directed_responses_do_not_count_in_the_breaker() {
    let mut bench = Bench::aimd(&[("consecutive_failures", "1")]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &directed(500, 1), Verdict::Overloaded);
    assert_eq!((bench.state(0.0), bench.gate.rate()), ("closed", 1.0));
    assert_eq!(bench.gate.hold_until(at(0.0)), Some(at(1.0)));
    bench.throttle(1.0, 1);
    assert_eq!(bench.gate.window(&bench.settings, at(1.0)).total, 0);
}

#[test]
fn undirected_throttling_counts_in_aimd_breaker_if_configured() {
    for (wanted, state) in [("true", "open"), ("false", "closed")] {
        let mut bench = Bench::aimd(&[("consecutive_failures", "1"), ("count_throttled", wanted)]);
        let permit = bench.permit(0.0);
        bench.settle(permit, 0.0, &answer(429), Verdict::Throttled);
        assert_eq!(bench.state(0.0), state);
    }
}

#[test]
fn first_refusal_after_an_outage_says_little_about_the_rate_before() {
    let mut bench = Bench::new(&[("initial_rate", "20")]);
    let mut seconds = 0.0;
    for _ in 0..60 {
        let permit = bench.permit(seconds);
        bench.succeed(permit, seconds + 0.02);
        seconds += 0.05;
    }
    let permit = bench.permit(seconds);
    bench.settle(permit, seconds, &directed(502, 19), Verdict::Overloaded);
    let rate = bench.gate.rate();
    let permit = bench.permit(seconds + 20.0);
    bench.settle(permit, seconds + 20.0, &answer(429), Verdict::Throttled);
    assert!(
        bench.gate.rate() > 0.15 * rate,
        "{rate} fell to {}",
        bench.gate.rate()
    );
}
