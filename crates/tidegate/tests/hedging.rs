//! Second attempts beside the first, in virtual time.

mod drive;

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drive::{drive, gate};
use tidegate::call::CallDecision;
use tidegate::event::Event;
use tidegate::{
    Attempt, AttemptResult, BudgetOptions, Call, CallError, CallResult, Clock, Failure, Hedge,
    Limiter, LimiterBuilder, ManualClock, Outcome, Pool, TerminalReason, Timestamp,
};

const KEY: &str = "api.example.com";
const HEDGE: Hedge = Hedge::After(Duration::from_millis(100));

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A limiter with a full retry budget and tokens for any number of attempts.
fn limiter(change: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let builder = Limiter::builder()
        .gate(gate(&[("strategy", "fixed"), ("initial_rate", "1000")]))
        .clock(clock.clock())
        .seed(7)
        .retry_budget(budget(1.0));
    let limiter = change(builder).build();
    (clock, limiter)
}

fn budget(ratio: f64) -> tidegate::BudgetSettings {
    let options = BudgetOptions {
        ratio: Some(ratio),
        min_per_second: Some(10),
    };
    options.build().expect("numbers within bounds")
}

/// What the attempts of a call do, by number: how long they take, and their status.
struct Server {
    clock: Clock,
    plan: Vec<(u64, u16)>,
    /// When which attempt was made.
    made: RefCell<Vec<(u32, u64)>>,
}

impl Server {
    fn new(limiter: &Limiter, plan: &[(u64, u16)]) -> Self {
        Self {
            clock: limiter.clock().clone(),
            plan: plan.to_vec(),
            made: RefCell::default(),
        }
    }

    async fn respond(&self, attempt: Attempt) -> AttemptResult<u32> {
        let index = attempt.number as usize - 1;
        let (time, status) = self.plan[index.min(self.plan.len() - 1)];
        let now = self.clock.now();
        self.made
            .borrow_mut()
            .push((attempt.number, now.as_nanos() / 1_000_000));
        self.clock.sleep_until(now + millis(time)).await;
        AttemptResult::new(attempt.number, attempt.status(status))
    }
}

type Ended = Result<CallResult<u32>, CallError<u32>>;

fn run(clock: &ManualClock, call: Call<'_>, server: &Server) -> Ended {
    drive(clock, call.run(|attempt| server.respond(attempt)))
}

fn at_millis(clock: &ManualClock) -> u64 {
    clock.clock().now().as_nanos() / 1_000_000
}

#[test]
fn second_attempt_that_answers_first_is_used_and_the_first_is_abandoned() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let (clock, limiter) = limiter(|builder| {
        builder.on_event(move |_, event: &Event<'_>| seen.lock().unwrap().push(event.name()))
    });
    let server = Server::new(&limiter, &[(5000, 200), (20, 200)]);
    let called = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
    assert_eq!((called.value, called.sent), (2, 2));
    assert_eq!(at_millis(&clock), 120);
    assert_eq!(*server.made.borrow(), [(1, 0), (2, 100)]);
    let totals = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    assert_eq!(
        (totals.hedges, totals.hedges_won, totals.retries),
        (1, 1, 0)
    );
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.in_flight, gate.succeeded, gate.failed), (0, 1, 0));
    let decisions: Vec<String> = called
        .trail
        .steps()
        .iter()
        .map(|step| step.decision.to_string())
        .collect();
    let expected = [
        "admitted by `api.example.com` at once",
        "no response after 100 ms, sent to `api.example.com` too",
        "attempt at `api.example.com` dropped after 120 ms: the other was first",
        "HTTP 200, success",
    ];
    assert_eq!(decisions, expected);
    let events = events.lock().unwrap();
    let expected = [
        "admitted",
        "admitted",
        "hedged",
        "hedge_won",
        "abandoned",
        "settled",
    ];
    assert_eq!(*events, expected);
}

#[test]
fn first_attempt_that_answers_first_is_used() {
    let (clock, limiter) = limiter(|builder| builder);
    let server = Server::new(&limiter, &[(150, 200), (500, 200)]);
    let called = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
    assert_eq!((called.value, called.sent, at_millis(&clock)), (1, 2, 150));
    let totals = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    assert_eq!((totals.hedges, totals.hedges_won), (1, 0));
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 0);
}

#[test]
fn attempt_answered_in_time_is_not_hedged() {
    let (clock, limiter) = limiter(|builder| builder);
    let server = Server::new(&limiter, &[(99, 200)]);
    let called = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
    assert_eq!((called.sent, at_millis(&clock)), (1, 99));
    assert_eq!(limiter.snapshot(tidegate::Sort::Key, 0).totals.hedges, 0);
}

#[test]
fn requests_that_must_not_run_twice_are_not_hedged() {
    let (clock, limiter) = limiter(|builder| builder);
    let server = Server::new(&limiter, &[(400, 200)]);
    for call in [
        limiter.call(KEY).method("POST"),
        limiter.call(KEY).method("POST").idempotency_key(),
        limiter.call(KEY).method("PATCH"),
    ] {
        assert_eq!(run(&clock, call.hedge(HEDGE), &server).unwrap().sent, 1);
    }
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let call = limiter.call(KEY).method(method).hedge(HEDGE);
        assert_eq!(run(&clock, call, &server).unwrap().sent, 2, "{method}");
    }
}

#[test]
fn failure_beside_a_running_attempt_is_learned_and_the_other_is_waited_for() {
    for (plan, used) in [([(300, 200), (50, 500)], 1), ([(120, 500), (300, 200)], 2)] {
        let (clock, limiter) = limiter(|builder| builder);
        let server = Server::new(&limiter, &plan);
        let called = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
        assert_eq!((called.value, called.sent), (used, 2));
        let gate = limiter.gate(KEY).unwrap().gate;
        assert_eq!((gate.in_flight, gate.succeeded, gate.failed), (0, 1, 1));
    }
}

#[test]
fn two_failed_attempts_count_as_one_of_the_maximum() {
    let (clock, limiter) = limiter(|builder| builder);
    let server = Server::new(&limiter, &[(200, 500), (200, 500), (10, 500)]);
    let error = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap_err();
    assert_eq!(error.reason, TerminalReason::Exhausted);
    let without = Server::new(&limiter, &[(10, 500)]);
    let plain = run(&clock, limiter.call("other.example.com"), &without).unwrap_err();
    assert_eq!(error.sent, plain.sent + 1);
}

#[test]
fn rejection_ends_the_race() {
    let (clock, limiter) = limiter(|builder| builder);
    let server = Server::new(&limiter, &[(5000, 200), (20, 404)]);
    let error = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap_err();
    assert_eq!(
        (error.reason, at_millis(&clock)),
        (TerminalReason::Rejected, 120)
    );
    assert_eq!(
        limiter.snapshot(tidegate::Sort::Key, 0).totals.hedges_won,
        0
    );
}

#[test]
fn no_second_attempt_while_the_gate_throttles_is_held_or_probes() {
    let hedges_after = |outcome: Outcome, wait: Duration| {
        let (clock, limiter) = limiter(|builder| builder.gate(gate(&[("initial_rate", "1000")])));
        let permit = limiter.try_acquire(KEY).unwrap();
        permit.settle(&outcome);
        clock.advance(wait);
        let server = Server::new(&limiter, &[(400, 200)]);
        run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
        limiter.snapshot(tidegate::Sort::Key, 0).totals.hedges
    };
    assert_eq!(
        hedges_after(Outcome::status(200, millis(20)), millis(50)),
        1
    );
    assert_eq!(
        hedges_after(Outcome::status(429, millis(20)), millis(50)),
        0
    );
    let directed = Outcome::throttled(millis(20), Some(Duration::from_secs(3)));
    assert_eq!(
        hedges_after(directed, millis(50)),
        0,
        "the call waits, then is sent once"
    );
    assert_eq!(
        hedges_after(Outcome::status(500, millis(20)), millis(50)),
        0
    );

    let (clock, limiter) = limiter(|builder| builder);
    for _ in 0..5 {
        clock.advance(millis(10));
        let permit = limiter.try_acquire(KEY).unwrap();
        permit.settle(&Outcome::failure(
            Failure::Reset,
            tidegate::Phase::Waiting,
            millis(20),
        ));
    }
    let server = Server::new(&limiter, &[(400, 200)]);
    let called = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
    assert_eq!(called.sent, 1, "it is a probe");
}

#[test]
fn no_second_attempt_without_a_permit_at_once() {
    let (clock, limiter) = limiter(|builder| {
        builder.gate(gate(&[
            ("strategy", "fixed"),
            ("initial_rate", "1000"),
            ("max_in_flight", "1"),
        ]))
    });
    let server = Server::new(&limiter, &[(400, 200)]);
    let called = run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
    assert_eq!((called.sent, at_millis(&clock)), (1, 400));
    let totals = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    assert_eq!(
        (totals.hedges, totals.denied),
        (0, 0),
        "no refusal is counted"
    );
}

#[test]
fn requests_pay_for_second_attempts_and_retries_keep_their_minimum() {
    let (clock, limiter) = limiter(|builder| builder.retry_budget(budget(0.2)));
    let server = Server::new(&limiter, &[(150, 200)]);
    for _ in 0..60 {
        run(&clock, limiter.call(KEY).hedge(HEDGE), &server).unwrap();
    }
    let totals = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    assert_eq!(totals.hedges, 12, "one in five");
}

#[test]
fn percentile_of_the_gate_sets_the_delay_and_does_not_sink() {
    let (clock, limiter) = limiter(|builder| builder);
    let call = || limiter.call(KEY).hedge(Hedge::AfterP95);
    // Every 40th response takes 2 s.
    let mut slow = 0;
    for number in 0..1000 {
        let first = if number % 40 == 39 { 2000 } else { 50 };
        let server = Server::new(&limiter, &[(first, 200), (50, 200)]);
        let before = at_millis(&clock);
        run(&clock, call(), &server).unwrap();
        slow += u32::from(at_millis(&clock) - before > 200);
        clock.advance(millis(10));
    }
    let totals = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    assert_eq!(slow, 0, "the first slow one comes after 20 samples");
    assert!((20..=60).contains(&totals.hedges), "{totals:?}");
    let p95 = limiter.gate(KEY).unwrap().gate.latency_p95.unwrap();
    assert!((millis(35)..millis(200)).contains(&p95), "{p95:?}");
}

#[test]
fn call_whose_time_is_up_abandons_both_attempts() {
    let (clock, limiter) = limiter(|builder| builder);
    let server = Server::new(&limiter, &[(5000, 200)]);
    let call = limiter.call(KEY).hedge(HEDGE).within(millis(400));
    let error = run(&clock, call, &server).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Expired, 2));
    assert_eq!(clock.clock().now(), Timestamp::from_millis(400));
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.in_flight, gate.succeeded, gate.failed), (0, 0, 0));
}

#[test]
fn each_attempt_has_its_own_timeout() {
    let (clock, limiter) = limiter(|builder| builder);
    let server = Server::new(&limiter, &[(5000, 200), (250, 200)]);
    let call = limiter.call(KEY).hedge(HEDGE).attempt_timeout(millis(300));
    let called = run(&clock, call, &server).unwrap();
    assert_eq!((called.value, called.sent, at_millis(&clock)), (2, 2, 350));
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.succeeded, gate.failed), (1, 1), "the first timed out");
}

#[test]
fn second_attempt_goes_to_another_endpoint() {
    let (clock, limiter) = limiter(|builder| builder);
    let pool = Pool::new("llm", &limiter);
    pool.add("a", "a.example.com", 5000_u64);
    pool.add("b", "b.example.com", 30_u64);
    let clock_of = limiter.clock();
    let mut winners = Vec::new();
    for _ in 0..4 {
        let call = pool.call().hedge(HEDGE);
        let called = drive(
            &clock,
            call.run(|attempt, endpoint| {
                let until = clock_of.now() + millis(*endpoint.data());
                async move {
                    clock_of.sleep_until(until).await;
                    AttemptResult::new(endpoint.name().to_owned(), attempt.status(200))
                }
            }),
        );
        let called = called.unwrap();
        winners.push(called.value);
        let is_hedged = |decision: &CallDecision| matches!(decision, CallDecision::Hedged { .. });
        let hedged = called
            .trail
            .steps()
            .iter()
            .filter(|s| is_hedged(&s.decision));
        assert_eq!(hedged.count(), called.sent as usize - 1);
    }
    assert_eq!(winners, ["b", "b", "b", "b"]);
    assert!(limiter.snapshot(tidegate::Sort::Key, 0).totals.hedges > 0);
    for view in limiter.snapshot(tidegate::Sort::Key, 9).gates {
        assert_eq!(view.gate.in_flight, 0, "{}", view.key);
    }
}
