//! Limits on cost besides the limit on requests.

use super::*;
use crate::hint::{Exceeded, Quota, Quotas};

impl Bench {
    fn ask_for(&mut self, cost: u32, seconds: f64) -> Decision {
        let ask = Ask {
            cost,
            ..Ask::until(at(seconds + 30.0))
        };
        self.ask_as(ask, seconds)
    }

    fn permit_for(&mut self, cost: u32, seconds: f64) -> Permit {
        match self.ask_for(cost, seconds) {
            Decision::Admit(permit) => permit,
            other => panic!("at {seconds}: {other:?}"),
        }
    }

    fn cost(&self, seconds: f64) -> CostSnapshot {
        let snapshot = self
            .gate
            .snapshot(&self.settings, &self.tickets, at(seconds));
        snapshot.cost.expect("costs are counted")
    }
}

fn used(cost: u32) -> Outcome {
    Outcome {
        used: Some(cost),
        ..answer(200)
    }
}

/// A response that says how many tokens of 10 000 remain until the reset, and that 50 requests do.
fn tokens_left(status: u16, remaining: u64, reset_seconds: u64) -> Outcome {
    let quota = |limit, remaining| Quota {
        limit: Some(limit),
        remaining,
        reset: Some(Duration::from_secs(reset_seconds)),
    };
    let mut outcome = quota_hint(status);
    outcome.hint.quotas = Some(Box::new(Quotas {
        tokens: quota(10_000, remaining),
        requests: Some(quota(100, 50)),
    }));
    outcome.hint.remaining = Some(remaining);
    outcome
}

fn quota_hint(status: u16) -> Outcome {
    answer(status).with_hint(Hint::default())
}

#[test]
fn gate_has_no_limit_on_cost_while_every_ask_costs_one() {
    let mut bench = Bench::new(&[]);
    for seconds in [0.0, 1.0, 2.0] {
        let permit = bench.permit(seconds);
        bench.settle(permit, seconds, &used(1), Verdict::Success);
    }
    assert!(bench.gate.extras.is_none());
    for strategy in ["aimd", "fixed"] {
        let mut bench = Bench::new(&[("strategy", strategy)]);
        let permit = bench.permit_for(3, 0.0);
        bench.settle(permit, 0.0, &used(5), Verdict::Success);
        assert!(bench.gate.extras.is_none(), "{strategy}");
    }
}

#[test]
fn request_takes_one_token_and_its_cost() {
    let mut bench = Bench::new(&[("initial_rate", "2")]);
    let first = bench.permit_for(500, 0.0);
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(0.0));
    assert!(snapshot.tokens.abs() < 0.01, "{}", snapshot.tokens);
    let cost = bench.cost(0.0);
    assert_eq!((cost.rate, cost.mean), (1000.0, 500.0));
    assert!(cost.available.abs() < 5.0, "{}", cost.available);
    bench.succeed(first, 0.1);
    // Ten times as expensive: admitted when the bucket is full, and the debt is waited for.
    let dear = bench.permit_for(5000, 1.0);
    assert!(bench.cost(1.0).available < -4000.0);
    let until = match bench.ask_for(500, 1.0) {
        Decision::Wait { until, .. } => until.unwrap().seconds_since(Timestamp::ZERO),
        other => panic!("{other:?}"),
    };
    assert!((until - 4.33).abs() < 0.1, "{until}");
    bench.succeed(dear, 1.1);
}

#[test]
fn given_back_cost_is_available_again() {
    let mut bench = Bench::new(&[]);
    let permit = bench.permit_for(500, 0.0);
    let before = bench.cost(0.0).available;
    bench.gate.give_back(&bench.settings, permit, at(0.0));
    assert!((bench.cost(0.0).available - before - 500.0).abs() < 5.0);
}

#[test]
fn refusal_lowers_the_rate_that_it_names_or_both() {
    let check = |outcome: &Outcome, lowers_requests: bool, lowers_cost: bool| {
        let mut bench = Bench::new(&[("initial_rate", "10")]);
        let permit = bench.permit_for(500, 0.0);
        bench.settle(permit, 0.1, outcome, Verdict::Throttled);
        assert_eq!(bench.gate.rate() < 10.0, lowers_requests, "{outcome:?}");
        assert_eq!(bench.cost(0.1).rate < 5000.0, lowers_cost, "{outcome:?}");
    };
    let named = |exceeded| {
        answer(429).with_hint(Hint {
            exceeded: Some(exceeded),
            ..Hint::default()
        })
    };
    check(&answer(429), true, true);
    check(&named(Exceeded::Requests), true, false);
    check(&named(Exceeded::Tokens), false, true);
    check(&tokens_left(429, 499, 60), false, true);
    check(&tokens_left(429, 500, 60), true, true);
}

#[test]
fn ask_above_the_remaining_tokens_waits_for_the_reset() {
    let mut bench = Bench::new(&[("initial_rate", "10")]);
    let permit = bench.permit_for(500, 0.0);
    let also = bench.permit_for(500, 0.2);
    bench.settle(permit, 0.3, &tokens_left(200, 1200, 20), Verdict::Success);
    // 1200 minus the 500 sent since are left.
    let wait = |decision| match decision {
        Decision::Wait { until, reason, .. } => format!("{reason} {}", format_until(until)),
        other => panic!("{other:?}"),
    };
    assert_eq!(wait(bench.ask_for(701, 1.0)), "rate 20.3");
    assert!(bench.gate.hold_until(at(1.0)).is_none(), "requests go on");
    bench.succeed(also, 1.1);
    assert_eq!(bench.admitted_by(30.0), [20.3]);
    // The server's own statement is certain, so an ask that cannot leave in time is refused at once.
    let permit = bench.permit_for(500, 21.0);
    bench.settle(permit, 21.1, &tokens_left(200, 0, 59), Verdict::Success);
    let refused = bench.ask_for(500, 21.2);
    assert!(
        matches!(refused, Decision::Refuse { reason: Reason::Deadline, until: Some(until) } if until == at(80.1)),
        "{refused:?}"
    );
}

#[test]
fn bucket_of_tokens_is_waited_for_only_as_long_as_it_takes() {
    let mut bench = Bench::new(&[("initial_rate", "10")]);
    // 200 tokens per second: the time until the bucket is full is that of the used part.
    for (seconds, remaining, reset) in [(0.0, 8000, 10), (1.0, 4000, 30), (2.0, 400, 48)] {
        let permit = bench.permit_for(500, seconds);
        bench.settle(
            permit,
            seconds,
            &tokens_left(200, remaining, reset),
            Verdict::Success,
        );
    }
    match bench.ask_for(1000, 2.5) {
        Decision::Wait {
            until: Some(until), ..
        } => assert_eq!(until, at(5.0)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn actual_costs_correct_the_estimates() {
    let mut bench = Bench::new(&[("initial_rate", "10")]);
    for number in 0..60 {
        let seconds = f64::from(number);
        let permit = bench.permit_for(500, seconds);
        bench.settle(permit, seconds, &used(1000), Verdict::Success);
    }
    let cost = bench.cost(60.0);
    assert!((cost.mean - 1000.0).abs() < 1.0, "{cost:?}");
    let before = cost.available;
    let permit = bench.permit_for(500, 60.0);
    let taken = before - bench.cost(60.0).available;
    assert!((taken - 1000.0).abs() < 1.0, "{taken}");
    // The body says that it was only 200.
    let body = bench.settle_head(permit, 60.0);
    bench
        .gate
        .correct_cost(&bench.settings, &body, 200, at(60.0));
    bench.gate.finish(&bench.settings, body, at(60.0));
    let taken = before - bench.cost(60.0).available;
    assert!((taken - 200.0).abs() < 1.0, "{taken}");
}

#[test]
fn unit_follows_the_mean_and_the_cost_per_second_stays() {
    let mut bench = Bench::new(&[("initial_rate", "10"), ("max_rate", "10")]);
    let permit = bench.permit_for(100, 0.0);
    bench.succeed(permit, 0.0);
    let before = bench.cost(0.0).rate;
    for number in 1..40 {
        let seconds = 20.0 * f64::from(number);
        let permit = bench.permit_for(900, seconds);
        bench.settle(permit, seconds, &answer(404), Verdict::Rejected);
    }
    assert_eq!(bench.cost(800.0).rate, before, "only accepted costs count");
    let mut last = before;
    for number in 40..80 {
        let seconds = 20.0 * f64::from(number);
        let permit = bench.permit_for(900, seconds);
        bench.succeed(permit, seconds);
        let rate = bench.cost(seconds).rate;
        assert!(rate >= last, "a new unit never lowers the rate");
        last = rate;
    }
    assert!((bench.cost(1600.0).mean - 900.0).abs() < 110.0);
}

#[test]
fn reset_and_another_strategy_forget_the_limit_on_cost() {
    let mut bench = Bench::new(&[("limits", "5000/1m")]);
    let _permit = bench.permit_for(500, 0.0);
    let adaptive = bench.settings.clone();
    let mut reset = bench.gate.clone();
    reset.reset(&adaptive, at(1.0));
    assert!(reset.cost().is_none() && reset.limits().is_some());
    let fixed = settings_of(&[("strategy", "fixed"), ("limits", "5000/1m")]);
    bench.gate.adopt(&adaptive, &fixed, at(1.0));
    assert!(bench.gate.cost().is_none() && bench.gate.limits().is_some());
}

#[test]
fn learned_limit_on_cost_survives_a_restart() {
    let mut bench = Bench::new(&[("initial_rate", "10"), ("limits", "5000/1m")]);
    let permit = bench.permit_for(500, 0.0);
    bench.settle(permit, 0.1, &answer(429), Verdict::Throttled);
    let before = bench.cost(0.1);
    let record = bench.gate.record(at(0.1));
    bench.gate = Gate::restore(&bench.settings, &record, at(100.0));
    let after = bench.cost(100.0);
    assert_eq!((after.rate, after.mean), (before.rate, before.mean));
    assert!(after.ceiling.is_some() && after.ceiling == before.ceiling);
    assert!(after.available <= 500.0);
    assert!(bench.gate.limits().is_some());
    let fixed = settings_of(&[("strategy", "fixed")]);
    assert!(Gate::restore(&fixed, &record, at(0.0)).cost().is_none());
}
