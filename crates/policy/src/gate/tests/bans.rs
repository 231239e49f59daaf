//! A 403 after refusals is a ban.

use super::*;

/// A gate at 100 per second that was refused without a hint at 0 s.
fn refused() -> Bench {
    let mut bench = Bench::new(&[("initial_rate", "100")]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &answer(429), Verdict::Throttled);
    bench
}

/// Sends a request that is answered with 403.
fn forbid(bench: &mut Bench, seconds: f64) {
    let permit = bench.permit(seconds);
    bench.settle(permit, seconds, &answer(403), Verdict::Rejected);
}

fn hold_seconds(bench: &Bench, seconds: f64) -> Option<f64> {
    let until = bench.gate.hold_until(at(seconds))?;
    Some(until.seconds_since(at(seconds)))
}

#[test]
fn pauses_grow_while_the_ban_lasts() {
    let mut bench = refused();
    let mut now = 1.0;
    for pause in [30.0, 60.0, 120.0, 300.0, 600.0, 600.0] {
        forbid(&mut bench, now);
        assert_eq!(hold_seconds(&bench, now), Some(pause));
        now += pause;
    }
}

#[test]
fn sends_one_request_at_a_time_until_one_is_accepted() {
    let mut bench = refused();
    forbid(&mut bench, 1.0);
    let probe = bench.permit(31.0);
    assert_eq!(bench.decide(40.0), "wait in_flight -");
    bench.succeed(probe, 40.0);
    assert_eq!(bench.gate.hold_until(at(40.0)), None);
}

#[test]
fn rate_never_exceeds_half_of_what_provoked_it_until_a_reset() {
    let mut bench = refused();
    forbid(&mut bench, 1.0);
    let record = bench.gate.record(at(31.0));
    assert_eq!(record.banned_above, Some(45.0), "0.9 of the ceiling of 50");
    let restored = Gate::restore(&bench.settings, &record, at(31.0));
    for gate in [bench.gate.clone(), restored] {
        bench.gate = gate;
        for step in 0..20_000 {
            let seconds = 100.0 + f64::from(step) * 0.02;
            if let Decision::Admit(permit) = bench.ask(seconds) {
                bench.succeed(permit, seconds);
            }
        }
        assert_eq!(bench.gate.rate(), 45.0);
    }
    bench.gate.reset(&bench.settings, at(600.0));
    assert_eq!(bench.gate.record(at(600.0)).banned_above, None);
}

#[test]
fn later_refusal_halves_the_highest_rate_again() {
    let mut bench = refused();
    forbid(&mut bench, 1.0);
    let probe = bench.permit(31.0);
    bench.succeed(probe, 31.0);
    let rate = bench.gate.rate();
    let permit = bench.permit(40.0);
    bench.settle(permit, 40.0, &answer(429), Verdict::Throttled);
    assert_eq!(bench.gate.record(at(40.0)).banned_above, Some(rate / 2.0));
}

#[test]
fn returns_throttled_for_a_ban_also_to_permits_of_an_earlier_epoch() {
    fn settle(bench: &mut Bench, permit: Permit, status: u16) -> Option<Verdict> {
        let outcome = answer(status);
        let verdict = outcome.classify().verdict;
        bench
            .gate
            .settle(&bench.settings, permit, &outcome, verdict, at(1.3))
    }
    let mut bench = refused();
    let permits = [1.0, 1.1, 1.2].map(|seconds| bench.permit(seconds));
    let [missing, first, second] = permits;
    assert_eq!(settle(&mut bench, missing, 404), Some(Verdict::Rejected));
    assert_eq!(settle(&mut bench, first, 403), Some(Verdict::Throttled));
    let epoch = bench.gate.epoch();
    assert_eq!(settle(&mut bench, second, 403), Some(Verdict::Throttled));
    assert_eq!(bench.gate.epoch(), epoch, "not a second ban");
    let mut never_refused = Bench::new(&[]);
    let permit = never_refused.permit(0.0);
    let verdict = settle(&mut never_refused, permit, 403);
    assert_eq!(verdict, Some(Verdict::Rejected));
}

#[test]
fn ban_met_by_a_request_of_an_earlier_epoch_pauses_and_bounds_the_rate_once() {
    let mut bench = Bench::new(&[("initial_rate", "100")]);
    let [refused, first, second] = [0.0, 0.1, 0.2].map(|seconds| bench.permit(seconds));
    let outcome = directed(429, 2);
    bench.settle(refused, 0.3, &outcome, Verdict::Throttled);
    let (rate, epoch) = (bench.gate.rate(), bench.gate.epoch());
    bench.settle(first, 0.4, &answer(403), Verdict::Rejected);
    let bound = bench.gate.record(at(0.4)).banned_above.unwrap();
    assert_eq!((bench.gate.rate(), bench.gate.epoch()), (rate, epoch));
    assert_eq!(hold_seconds(&bench, 0.4), Some(30.0));
    bench.settle(second, 0.5, &answer(403), Verdict::Rejected);
    assert_eq!(bench.gate.record(at(0.5)).banned_above, Some(bound));
    assert_eq!(hold_seconds(&bench, 0.4), Some(30.0), "not a second ban");
    let permit = bench.permit(31.0);
    bench.succeed(permit, 31.0);
    assert_eq!(bench.gate.rate(), bound);
}

#[test]
fn is_no_ban_without_a_refusal_long_after_one_or_with_other_strategies() {
    let is_ban = |mut bench: Bench, seconds: f64| {
        forbid(&mut bench, seconds);
        bench.gate.hold_until(at(seconds)).is_some()
    };
    assert!(!is_ban(Bench::new(&[]), 1.0));
    assert!(is_ban(refused(), 119.0));
    assert!(!is_ban(refused(), 121.0));
    let mut aimd = Bench::aimd(&[]);
    let permit = aimd.permit(0.0);
    aimd.settle(permit, 0.0, &answer(429), Verdict::Throttled);
    assert!(!is_ban(aimd, 1.0));
}
