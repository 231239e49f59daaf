//! Behaviour of the gate, one rule at a time, in virtual time.

#![expect(clippy::float_cmp, reason = "values that floats hold exactly")]

use std::time::Duration;

use super::*;
use crate::hint::Hint;
use crate::outcome::{Failure, Phase};

/// A gate with its line and a person who asks and answers at given seconds.
struct Bench {
    settings: GateSettings,
    tickets: Tickets,
    gate: Gate,
}

impl Bench {
    fn new(settings: &[(&str, &str)]) -> Self {
        let settings = settings_of(settings);
        let gate = Gate::new(&settings, Timestamp::ZERO);
        Self {
            settings,
            tickets: Tickets::new(),
            gate,
        }
    }

    fn aimd(more: &[(&str, &str)]) -> Self {
        Self::new(&[&[("strategy", "aimd")], more].concat())
    }

    fn ask(&mut self, seconds: f64) -> Decision {
        let deadline = at(seconds) + self.settings.max_wait;
        self.ask_as(Ask::until(deadline), seconds)
    }

    fn ask_as(&mut self, ask: Ask, seconds: f64) -> Decision {
        self.gate
            .acquire(&self.settings, &mut self.tickets, &ask, at(seconds))
    }

    /// `admit`, or the reason and the second.
    fn says(&mut self, seconds: f64) -> String {
        match self.ask(seconds) {
            Decision::Admit(_) => "admit".to_owned(),
            Decision::Wait { until, reason, .. } => format!("wait {reason} {}", shown(until)),
            Decision::Refuse { reason, until } => format!("refuse {reason} {}", shown(until)),
        }
    }

    fn permit(&mut self, seconds: f64) -> Permit {
        match self.ask(seconds) {
            Decision::Admit(permit) => permit,
            other => panic!("at {seconds}: {other:?}"),
        }
    }

    fn settle(&mut self, permit: Permit, seconds: f64, outcome: &Outcome, verdict: Verdict) {
        self.gate
            .settle(&self.settings, permit, outcome, Some(verdict), at(seconds));
    }

    fn succeed(&mut self, permit: Permit, seconds: f64) {
        self.settle(permit, seconds, &answer(200), Verdict::Success);
    }

    fn fail(&mut self, permit: Permit, seconds: f64) {
        self.settle(permit, seconds, &answer(500), Verdict::Overloaded);
    }

    /// Five attempts at five seconds' distance that fail.
    fn trip(&mut self) {
        for attempt in 0..5 {
            let seconds = f64::from(attempt) * 5.0;
            let permit = self.permit(seconds);
            self.fail(permit, seconds);
        }
        assert_eq!(self.gate.breaker_state(at(20.0)), BreakerState::Open);
    }

    fn throttle(&mut self, seconds: f64, wait_seconds: u64) {
        let permit = self.permit(seconds);
        self.settle(
            permit,
            seconds,
            &directed(429, wait_seconds),
            Verdict::Throttled,
        );
    }

    fn admitted_by(&mut self, seconds: f64) -> Vec<f64> {
        let mut left = Vec::new();
        while let Some(due) = self.gate.next_admission(&self.settings, &self.tickets) {
            if due > at(seconds) {
                break;
            }
            let admitted = self.gate.admit_next(&self.settings, &mut self.tickets, due);
            assert!(admitted.is_some(), "who is due at {due:?} leaves then");
            left.push(due.seconds_since(Timestamp::ZERO));
        }
        left
    }

    fn state(&self, seconds: f64) -> &'static str {
        self.gate.breaker_state(at(seconds)).as_str()
    }
}

fn settings_of(settings: &[(&str, &str)]) -> GateSettings {
    let mut options = GateOptions::default();
    for (name, value) in settings {
        options.set(name, value).unwrap();
    }
    options.build().unwrap()
}

fn at(seconds: f64) -> Timestamp {
    Timestamp::ZERO.after_seconds(seconds)
}

fn shown(until: Option<Timestamp>) -> String {
    until.map_or_else(
        || "-".to_owned(),
        |until| until.seconds_since(Timestamp::ZERO).to_string(),
    )
}

fn answer(status: u16) -> Outcome {
    Outcome::status(status, Duration::from_millis(100))
}

fn directed(status: u16, wait_seconds: u64) -> Outcome {
    let wait = Some(Duration::from_secs(wait_seconds));
    answer(status).with_hint(Hint {
        wait,
        source: Some(Source::RetryAfter),
        ..Hint::default()
    })
}

fn quota(status: u16, remaining: u64, reset_seconds: u64) -> Outcome {
    let reset = Some(Duration::from_secs(reset_seconds));
    let hint = Hint {
        remaining: Some(remaining),
        reset,
        source: Some(Source::RetryAfter),
        ..Hint::default()
    };
    answer(status).with_hint(hint)
}

#[test]
fn a_gate_is_four_cache_lines() {
    assert_eq!(size_of::<Gate>(), 256);
    assert_eq!(align_of::<Gate>(), 64);
    assert!(
        std::mem::offset_of!(Gate, breaker) + 16 <= 64,
        "what a granted ask touches is in the first"
    );
    assert!(size_of::<Permit>() <= 32);
}

#[test]
fn admits_from_a_full_bucket_then_makes_wait_in_order() {
    let mut bench = Bench::aimd(&[]);
    for _ in 0..4 {
        assert_eq!(bench.says(0.0), "admit");
    }
    assert_eq!(bench.says(0.0), "wait rate 0.5");
    assert_eq!(bench.says(0.0), "wait rate 1");
    assert_eq!(bench.says(0.25), "wait rate 1.5");
    assert_eq!(bench.admitted_by(2.0), [0.5, 1.0, 1.5]);
}

#[test]
fn nobody_overtakes_those_who_wait() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    assert_eq!(bench.says(0.0), "admit");
    assert_eq!(bench.says(0.0), "wait rate 0.5");
    assert_eq!(
        bench.says(0.6),
        "wait rate 1.1",
        "a token is there, but not this one's turn"
    );
    assert_eq!(bench.admitted_by(2.0), [0.6, 1.1]);
}

#[test]
fn a_line_longer_than_allowed_refuses() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_waiting", "1")]);
    assert_eq!(bench.says(0.0), "admit");
    assert_eq!(bench.says(0.0), "wait rate 0.5");
    assert_eq!(bench.says(0.0), "refuse queue_full -");
}

#[test]
fn an_ask_that_cannot_wait_is_refused_with_the_time() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_wait", "0s")]);
    assert_eq!(bench.says(0.0), "admit");
    assert_eq!(bench.says(0.0), "refuse rate 0.5");
    assert_eq!(bench.gate.waiting(&bench.tickets), 0);
}

#[test]
fn peeking_takes_nothing() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let ask = Ask::until(at(30.0));
    for _ in 0..3 {
        assert_eq!(
            bench
                .gate
                .peek(&bench.settings, &bench.tickets, &ask, at(0.0)),
            Ok(())
        );
    }
    assert_eq!(bench.says(0.0), "admit");
    let until = Some(at(0.5));
    assert_eq!(
        bench
            .gate
            .peek(&bench.settings, &bench.tickets, &ask, at(0.0)),
        Err((Reason::Rate, until))
    );
    assert_eq!(bench.gate.waiting(&bench.tickets), 0);
}

#[test]
fn a_directed_wait_holds_and_callers_leave_at_pace_afterwards() {
    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 10);
    assert_eq!(bench.gate.rate(), 1.0);
    assert_eq!(bench.says(1.0), "wait hold 10");
    assert_eq!(bench.says(1.0), "wait hold 11");
    assert_eq!(bench.says(9.0), "wait hold 12");
    assert_eq!(bench.admitted_by(20.0), [10.0, 11.0, 12.0]);
}

#[test]
fn tokens_saved_during_a_hold_do_not_leave_together_even_if_nobody_waited() {
    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 10);
    assert_eq!(bench.says(10.5), "admit", "one token was kept");
    assert_eq!(
        bench.says(10.5),
        "wait rate 11",
        "half a token came since the hold's end"
    );
}

#[test]
fn a_hold_only_grows() {
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
fn holds_past_the_deadline_or_max_hold_are_answered_at_once() {
    let mut bench = Bench::aimd(&[]);
    assert_eq!(bench.says(0.0), "admit");
    bench.throttle(0.0, 31);
    assert_eq!(bench.says(0.5), "refuse deadline 31");
    assert_eq!(
        bench.says(1.0),
        "wait hold 31",
        "who can wait just so long does"
    );
    bench.throttle_held(1.0, 7200);
    assert_eq!(bench.says(1.0), "refuse hold 7201");
    assert_eq!(
        bench.gate.waiting(&bench.tickets),
        1,
        "who waits already stays"
    );
}

impl Bench {
    /// A refusal of a request that was under way before the hold began.
    fn throttle_held(&mut self, seconds: f64, wait_seconds: u64) {
        let permit = Permit {
            admitted_at: at(0.0),
            epoch: 0,
            number: 1,
            cost: 1,
            probe: None,
        };
        self.settle(
            permit,
            seconds,
            &directed(429, wait_seconds),
            Verdict::Throttled,
        );
    }
}

#[test]
fn waiters_who_would_wait_in_vain_are_told_at_once() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let under_way = bench.permit(0.0);
    assert_eq!(bench.says(0.0), "wait rate 0.5");
    assert_eq!(bench.gate.expire_next(&mut bench.tickets, at(0.1)), None);
    bench.settle(under_way, 0.1, &directed(429, 3600), Verdict::Throttled);
    assert_eq!(
        bench
            .gate
            .next_wake(&bench.settings, &bench.tickets, at(0.1)),
        Some(at(0.1))
    );
    assert!(
        bench
            .gate
            .expire_next(&mut bench.tickets, at(0.1))
            .is_some()
    );
    assert_eq!(
        bench
            .gate
            .next_wake(&bench.settings, &bench.tickets, at(0.1)),
        None
    );
}

#[test]
fn deadlines_pass_in_the_line() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_rate", "0.25"), ("max_wait", "5s")]);
    assert_eq!(bench.says(0.0), "admit");
    assert_eq!(bench.says(0.0), "wait rate 4");
    assert_eq!(
        bench.says(0.0),
        "wait rate 8",
        "being learned: it may get faster"
    );
    assert_eq!(bench.admitted_by(4.0), [4.0]);
    assert_eq!(
        bench
            .gate
            .next_wake(&bench.settings, &bench.tickets, at(4.0)),
        Some(at(5.0))
    );
    assert!(
        bench
            .gate
            .expire_next(&mut bench.tickets, at(5.0))
            .is_some()
    );
}

#[test]
fn a_fixed_rate_is_known_so_a_hopeless_ask_is_refused() {
    let mut bench = Bench::new(&[
        ("strategy", "fixed"),
        ("initial_rate", "0.1"),
        ("max_wait", "15s"),
    ]);
    assert_eq!(bench.says(0.0), "admit");
    assert!(bench.says(0.0).starts_with("wait rate 9.99"));
    assert!(bench.says(0.0).starts_with("refuse deadline 19.99"));
}

#[test]
fn a_known_limit_is_kept_as_well_and_refuses_what_is_hopeless() {
    let mut bench = Bench::aimd(&[("limits", "3/1m"), ("max_wait", "59s")]);
    for _ in 0..3 {
        assert_eq!(bench.says(0.0), "admit");
    }
    assert_eq!(bench.says(0.5), "refuse deadline 60");
    assert_eq!(bench.says(1.0), "wait rate 60");
    assert_eq!(bench.admitted_by(60.0), [60.0]);
}

#[test]
fn a_cost_takes_so_many_tokens_and_may_be_corrected() {
    let mut bench = Bench::aimd(&[("limits", "20/1m")]);
    let costly = |cost| Ask {
        cost,
        ..Ask::until(at(30.0))
    };
    let Decision::Admit(permit) = bench.ask_as(costly(3), 0.0) else {
        panic!()
    };
    assert_eq!(
        bench
            .gate
            .snapshot(&bench.settings, &bench.tickets, at(0.0))
            .tokens,
        1.0
    );
    bench.settle(
        permit,
        0.0,
        &Outcome {
            used: Some(5),
            ..answer(404)
        },
        Verdict::Rejected,
    );
    assert_eq!(
        bench
            .gate
            .snapshot(&bench.settings, &bench.tickets, at(0.0))
            .tokens,
        -1.0
    );
    let refused = bench.ask_as(costly(21), 0.0);
    assert!(
        matches!(
            refused,
            Decision::Refuse {
                reason: Reason::Rate,
                until: None
            }
        ),
        "never fits"
    );
    let Decision::Admit(_) = bench.ask_as(costly(0), 1.0) else {
        panic!("zero counts as one")
    };
}

#[test]
fn attempts_under_way_are_bounded_and_a_settle_lets_the_next_leave() {
    let mut bench = Bench::aimd(&[("max_in_flight", "2")]);
    let first = bench.permit(0.0);
    let second = bench.permit(0.0);
    assert_eq!(bench.says(0.0), "wait in_flight -");
    assert_eq!(bench.admitted_by(9.0), [] as [f64; 0]);
    bench.succeed(first, 3.0);
    assert_eq!(bench.admitted_by(9.0), [3.0]);
    bench.gate.abandon(&bench.settings, second, at(4.0));
    assert_eq!(bench.gate.in_flight(), 1);
}

#[test]
fn a_disabled_gate_admits_everyone_and_learns_nothing() {
    let mut bench = Bench::aimd(&[("enabled", "false")]);
    for _ in 0..100 {
        let permit = bench.permit(0.0);
        bench.settle(permit, 0.0, &directed(429, 60), Verdict::Throttled);
    }
    assert_eq!(
        (bench.gate.rate(), bench.gate.hold_until(at(0.0))),
        (2.0, None)
    );
}

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
fn a_decrease_at_the_minimum_begins_an_epoch_too() {
    let mut bench = Bench::aimd(&[("initial_rate", "0.25")]);
    let epoch = bench.gate.epoch;
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &answer(429), Verdict::Throttled);
    assert_eq!((bench.gate.rate(), bench.gate.epoch), (0.25, epoch + 1));
}

#[test]
fn what_each_verdict_does_to_rate_and_breaker() {
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
fn directed_answers_are_not_in_the_breaker() {
    let mut bench = Bench::aimd(&[("consecutive_failures", "1")]);
    let permit = bench.permit(0.0);
    bench.settle(permit, 0.0, &directed(500, 1), Verdict::Overloaded);
    assert_eq!((bench.state(0.0), bench.gate.rate()), ("closed", 1.0));
    assert_eq!(bench.gate.hold_until(at(0.0)), Some(at(1.0)));
    bench.throttle(1.0, 1);
    assert_eq!(bench.gate.window(&bench.settings, at(1.0)).total, 0);
}

#[test]
fn undirected_throttling_counts_in_the_breaker_of_aimd_only_if_wanted() {
    for (wanted, state) in [("true", "open"), ("false", "closed")] {
        let mut bench = Bench::aimd(&[("consecutive_failures", "1"), ("count_throttled", wanted)]);
        let permit = bench.permit(0.0);
        bench.settle(permit, 0.0, &answer(429), Verdict::Throttled);
        assert_eq!(bench.state(0.0), state);
    }
}

#[test]
fn nothing_remaining_on_a_success_holds_until_the_reset_and_no_more() {
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
fn adaptive_counts_what_it_sent_since_against_what_remains() {
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
fn an_exhausted_quota_holds_until_the_reset_or_isolates() {
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
    assert_eq!(bench.says(1e6), "refuse breaker_open -");
    bench.gate.reset(&bench.settings, at(1e6));
    assert_eq!(bench.says(1e6), "admit");
}

#[test]
fn five_failures_in_a_row_open_and_three_successes_close() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    assert_eq!(bench.says(34.9), "refuse breaker_open 35");
    assert_eq!(
        (bench.state(34.9), bench.state(35.0)),
        ("open", "half_open")
    );
    let probes = [35.0; 3].map(|seconds| bench.permit(seconds));
    assert!(probes.iter().all(Permit::is_probe));
    assert_eq!(bench.says(35.0), "refuse breaker_open -");
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
fn tokens_saved_for_probes_are_not_for_everyone() {
    let mut bench = Bench::aimd(&[("half_open_probes", "2"), ("increase", "0.001")]);
    bench.trip();
    let probe = bench.permit(35.0);
    bench.succeed(probe, 35.0);
    let probe = bench.permit(35.0);
    bench.succeed(probe, 35.0);
    assert_eq!(bench.state(35.0), "closed");
    assert!(bench.gate.bucket.tokens() <= 1.0);
    assert!(bench.says(35.0).starts_with("wait rate"));
}

#[test]
fn a_failed_probe_opens_again_and_the_other_probes_come_too_late() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let [first, second, third] = [35.0; 3].map(|seconds| bench.permit(seconds));
    bench.fail(first, 36.0);
    assert_eq!(bench.says(36.0), "refuse breaker_open 51");
    bench.succeed(second, 37.0);
    bench.fail(third, 38.0);
    assert_eq!(
        bench.says(38.0),
        "refuse breaker_open 51",
        "they change nothing"
    );
    assert_eq!(bench.gate.consecutive_failures(), 6);
}

#[test]
fn neutral_and_abandoned_probes_give_their_place_back() {
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
fn a_throttled_probe_begins_an_epoch_and_its_siblings_give_their_place_back() {
    let mut bench = Bench::new(&[("initial_rate", "100"), ("half_open_probes", "2")]);
    for step in 0..5 {
        let permit = bench.permit(f64::from(step));
        bench.fail(permit, f64::from(step));
    }
    let [first, second] = [10.0; 2].map(|seconds| bench.permit(seconds));
    bench.settle(first, 10.0, &answer(429), Verdict::Throttled);
    bench.succeed(second, 10.1);
    assert_eq!(bench.state(10.1), "half_open");
    let [third, fourth] = [11.0, 12.0].map(|seconds| bench.permit(seconds));
    bench.succeed(third, 13.0);
    bench.succeed(fourth, 13.0);
    assert_eq!(bench.state(13.0), "closed", "the late success was none");
}

#[test]
fn lost_probes_are_given_up_after_a_while() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let lost = [35.0; 3].map(|seconds| bench.permit(seconds));
    assert_eq!(bench.says(154.0), "refuse breaker_open -");
    let probe = bench.permit(155.0);
    for late in lost {
        bench.succeed(late, 156.0);
    }
    assert_eq!(
        bench.state(156.0),
        "half_open",
        "they were given up; their successes say nothing"
    );
    bench.fail(probe, 157.0);
    assert_eq!(bench.state(157.0), "open");
}

#[test]
fn open_times_grow_and_start_anew_after_closing() {
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
fn who_waits_when_the_breaker_opens_stays_and_leaves_first_as_a_probe() {
    let mut bench = Bench::aimd(&[
        ("consecutive_failures", "1"),
        ("max_in_flight", "1"),
        ("half_open_probes", "1"),
    ]);
    let under_way = bench.permit(0.0);
    assert_eq!(bench.says(0.0), "wait in_flight -");
    bench.fail(under_way, 1.0);
    assert_eq!(bench.says(15.9), "refuse breaker_open 16");
    assert_eq!(
        bench.says(16.0),
        "refuse breaker_open -",
        "the probe is taken by who waits"
    );
    assert_eq!(bench.admitted_by(16.0), [16.0]);
}

#[test]
fn an_ask_may_wait_for_the_breaker_if_its_deadline_allows() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let patient = |deadline| Ask {
        waits_for_breaker: true,
        ..Ask::until(at(deadline))
    };
    assert!(matches!(
        bench.ask_as(patient(34.0), 21.0),
        Decision::Refuse { reason: Reason::BreakerOpen, until: Some(until) } if until == at(35.0)
    ));
    for _ in 0..5 {
        assert!(matches!(
            bench.ask_as(patient(60.0), 21.0),
            Decision::Wait { reason: Reason::BreakerOpen, until: Some(until), .. } if until >= at(35.0)
        ));
    }
    assert_eq!(bench.admitted_by(50.0), [35.0; 3], "as many as probe");
    assert!(matches!(
        bench.ask_as(patient(60.0), 50.0),
        Decision::Wait {
            reason: Reason::BreakerOpen,
            until: None,
            ..
        }
    ));
}

#[test]
fn an_isolated_gate_refuses_until_released() {
    let mut bench = Bench::aimd(&[]);
    let under_way = bench.permit(0.0);
    bench.gate.isolate(&bench.settings, at(1.0));
    bench.succeed(under_way, 2.0);
    assert_eq!(bench.says(3.0), "refuse breaker_open -");
    assert!(!bench.gate.is_evictable(at(3.0)));
    bench.gate.release(&bench.settings, at(4.0));
    assert_eq!(bench.says(4.0), "admit");
    assert_eq!(bench.says(4.0), "wait rate 4.5", "released, but at pace");
}

#[test]
fn a_person_ends_a_hold() {
    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 1_000_000);
    bench.gate.release(&bench.settings, at(5.0));
    assert_eq!(bench.gate.rate(), 1.0, "what was learned stays");
    assert_eq!(bench.says(5.0), "admit");
}

#[test]
fn a_reset_keeps_those_in_flight_and_in_line() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("limits", "5/1h")]);
    let permit = bench.permit(0.0);
    bench.says(0.0);
    bench.gate.reset(&bench.settings, at(0.1));
    assert_eq!(
        (bench.gate.in_flight(), bench.gate.waiting(&bench.tickets)),
        (1, 1)
    );
    bench.fail(permit, 0.2);
    assert_eq!(
        bench.gate.rate(),
        2.0,
        "an outcome from before the reset teaches nothing"
    );
    assert!(bench.gate.limits.is_some());
}

#[test]
fn only_a_quiet_gate_may_be_forgotten() {
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    assert!(!bench.gate.is_idle(&bench.settings, at(1e6)), "in flight");
    bench.settle(permit, 0.0, &directed(429, 3600), Verdict::Throttled);
    assert!(!bench.gate.is_idle(&bench.settings, at(120.0)), "held");
    assert!(bench.gate.is_idle(&bench.settings, at(3600.0)));
    assert!(bench.gate.is_evictable(at(3600.0)));
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    assert!(
        !bench.gate.is_idle(&bench.settings, at(1e6)),
        "half-open is not Closed"
    );
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    bench.succeed(permit, 0.0);
    assert!(!bench.gate.is_idle(&bench.settings, at(119.9)));
    assert!(bench.gate.is_idle(&bench.settings, at(120.0)));
}

#[test]
fn a_record_brings_everything_back_that_matters() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let record = bench.gate.record(at(21.0));
    let later = 1000.0;
    bench.gate = Gate::restore(&bench.settings, &record, at(later));
    assert_eq!(bench.gate.rate(), 0.25);
    assert_eq!(bench.says(later), "refuse breaker_open 1014");

    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 60);
    let record = bench.gate.record(at(10.0));
    bench.gate = Gate::restore(&bench.settings, &record, at(later));
    assert_eq!(bench.gate.hold_until(at(later)), Some(at(later + 50.0)));
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(later));
    assert_eq!(snapshot.hold, Some((at(later + 50.0), Source::RetryAfter)));

    let mad = GateRecord {
        rate: f64::NAN,
        ceiling: Some(f64::INFINITY),
        ..record
    };
    assert_eq!(Gate::restore(&bench.settings, &mad, at(0.0)).rate(), 2.0);
    let fast = GateRecord {
        rate: 1e12,
        ..record
    };
    assert_eq!(Gate::restore(&bench.settings, &fast, at(0.0)).rate(), 8.0);
}

#[test]
fn a_snapshot_tells_what_a_person_wants_to_know() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let permit = bench.permit(0.0);
    bench.says(0.0);
    let failure = Outcome::failure(
        Failure::Connect,
        Phase::Connecting,
        Duration::from_millis(5),
    );
    bench.settle(permit, 0.25, &failure, Verdict::Unreachable);
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(0.25));
    assert_eq!(
        (snapshot.in_flight, snapshot.waiting, snapshot.admitted),
        (0, 1, 1)
    );
    assert_eq!(
        (snapshot.succeeded, snapshot.throttled, snapshot.failed),
        (0, 0, 1)
    );
    assert_eq!(
        (
            snapshot.rate,
            snapshot.tokens,
            snapshot.consecutive_failures
        ),
        (1.0, 0.5, 1)
    );
    assert_eq!(
        (snapshot.breaker, snapshot.breaker_until),
        (BreakerState::Closed, None)
    );
    assert_eq!((snapshot.latency_p95, snapshot.window.failed), (None, 1));
    assert_eq!(
        snapshot.why.to_string(),
        "lowered: the server failed or could not be reached"
    );
}

#[test]
fn a_clock_that_steps_back_is_no_reason_to_panic_or_to_send() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    assert_eq!(bench.says(100.0), "admit");
    assert_eq!(bench.says(50.0), "wait rate 100.5");
}
