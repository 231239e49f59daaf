//! The attempt loop, with every kind of outcome.

mod drive;

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use drive::{drive, gate};
use policy::backoff::BackoffSettings;
use policy::budget::BudgetOptions;
use policy::hint::Hint;
use policy::item::{ItemKind, TerminalReason};
use policy::jitter::RetryAfterJitter;
use policy::outcome::{Failure, Outcome, Phase, UpstreamResponse, Verdict};
use policy::preset::Preset;
use policy::time::Timestamp;
use tidegate::call::{CallDecision, TrailStep};
use tidegate::event::{Event, EventListener};
use tidegate::{
    AttemptResult, Call, CallError, CallResult, Clock, Credential, Limiter, ManualClock, Pool,
    Reason, RefusalReason,
};

fn limiter(set: &[(&str, &str)]) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(gate(set))
        .clock(clock.clock())
        .seed(7)
        .build();
    (clock, limiter)
}

const KEY: &str = "api.example.com";
const FAST: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1000")];

fn latency() -> Duration {
    Duration::from_millis(20)
}

/// Runs a call whose attempts have these outcomes; the last one repeats.
fn run(
    clock: &ManualClock,
    call: Call<'_>,
    outcomes: &[Outcome],
) -> Result<CallResult<usize>, CallError<usize>> {
    let made = Cell::new(0);
    drive(
        clock,
        call.run(async |_| {
            let index = made.get().min(outcomes.len() - 1);
            made.set(made.get() + 1);
            AttemptResult::new(index, outcomes[index].clone())
        }),
    )
}

fn status(status: u16) -> Outcome {
    Outcome::status(status, latency())
}

fn directed(status: u16, wait: u64) -> Outcome {
    let hint = Hint {
        wait: Some(Duration::from_secs(wait)),
        ..Hint::default()
    };
    Outcome::status(status, latency()).with_hint(hint)
}

#[test]
fn success_ends_the_call() {
    let (clock, limiter) = limiter(FAST);
    let called = run(&clock, limiter.call(KEY), &[status(200)]).unwrap();
    assert_eq!((called.value, called.sent), (0, 1));
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 0);
}

#[test]
fn retries_failures_up_to_max_attempts() {
    let (clock, limiter) = limiter(FAST);
    let error = run(&clock, limiter.call(KEY), &[status(502)]).unwrap_err();
    assert_eq!(error.reason, TerminalReason::Exhausted);
    assert_eq!((error.sent, error.last), (5, Some(0)));
    let took = limiter.clock().now().since(Timestamp::ZERO).as_secs_f64();
    assert!(
        (7.5..22.5).contains(&took),
        "waits 1, 2, 4 and 8 s with ±50 % jitter: {took}"
    );
    assert_eq!(
        limiter.snapshot(tidegate::Sort::Admitted, 1).totals.retries,
        4
    );
}

#[test]
fn returns_the_last_response() {
    let (clock, limiter) = limiter(FAST);
    let outcomes = [status(502), status(502), status(404)];
    let error = run(&clock, limiter.call(KEY), &outcomes).unwrap_err();
    assert_eq!(error.reason, TerminalReason::Rejected);
    assert_eq!(error.last, Some(2));
    assert!(!error.may_succeed_later());
    assert_eq!(
        error.to_string(),
        "rejected after 3 attempts; last: HTTP 404, rejected"
    );
}

#[test]
fn drops_the_response_before_the_next_attempt() {
    let (clock, limiter) = limiter(FAST);
    let connection = Arc::new(());
    let called = limiter.call(KEY).run(async |attempt| {
        let held_by_others = Arc::strong_count(&connection) - 1;
        assert_eq!(held_by_others, 0, "at attempt {}", attempt.number);
        let answer = if attempt.number < 3 { 502 } else { 200 };
        AttemptResult::new(Arc::clone(&connection), attempt.status(answer))
    });
    assert_eq!(drive(&clock, called).unwrap().sent, 3);
}

#[test]
fn returns_the_response_when_not_resent() {
    let (clock, limiter) = limiter(FAST);
    let call = limiter.call(KEY).within(Duration::from_secs(60));
    let run = call.run(async |attempt| {
        limiter.isolate(KEY).unwrap();
        AttemptResult::new("the upstream's words", attempt.status(502))
    });
    let error = drive(&clock, run).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::BreakerOpen, 1));
    assert_eq!(error.last, Some("the upstream's words"));
}

#[test]
fn honours_named_waits_without_counting_attempts() {
    let (clock, limiter) = limiter(FAST);
    let mut outcomes = vec![directed(429, 20); 9];
    outcomes.push(status(200));
    let call = limiter.call(KEY);
    let called = run(&clock, call, &outcomes).unwrap();
    assert_eq!(called.sent, 10);
    let took = limiter.clock().now().since(Timestamp::ZERO).as_secs();
    assert!((180..=225).contains(&took), "{took}");
    assert!(called.trail.waited() >= Duration::from_secs(180));
}

#[test]
fn unsafe_request_is_not_resent_if_the_server_may_have_acted() {
    let (clock, limiter) = limiter(FAST);
    let error = run(&clock, limiter.call(KEY).method("POST"), &[status(502)]).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Exhausted, 1));
    let unsent = Outcome::failure(Failure::Connect, Phase::Connecting, latency());
    let called = run(
        &clock,
        limiter.call(KEY).method("POST"),
        &[unsent, status(201)],
    )
    .unwrap();
    assert_eq!(called.sent, 2);
    let call = limiter.call(KEY).method("POST").idempotency_key();
    assert_eq!(
        run(&clock, call, &[status(502), status(201)]).unwrap().sent,
        2
    );
}

#[test]
fn refuses_at_once_when_fixed_rate_passes_deadline() {
    let (clock, limiter) = limiter(FAST);
    let call = limiter.call(KEY).within(Duration::from_secs(10));
    let error = run(&clock, call, &[directed(503, 60)]).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Expired, 1));
    assert!(
        limiter.clock().now() < Timestamp::from_secs(1),
        "fails without waiting"
    );
    // The gate is held now, so the next call sends nothing.
    let call = limiter.call(KEY).within(Duration::from_secs(10));
    let error = run(&clock, call, &[status(200)]).unwrap_err();
    assert_eq!(
        (error.reason, error.sent, error.last),
        (TerminalReason::Expired, 0, None)
    );
    assert!(error.may_succeed_later());
}

#[test]
fn ask_without_time_is_admitted_by_a_free_gate() {
    // The system clock advances between the start of a call and its ask.
    let gates = gate(&[("strategy", "adaptive"), ("initial_rate", "2")]);
    let limiter = Limiter::builder()
        .gate(gates)
        .clock(Clock::system())
        .build();
    let pool = Pool::new("llm", &limiter);
    assert!(pool.add("a", "llm.example.com", ()));
    let mut context = Context::from_waker(Waker::noop());
    let call = limiter.call(KEY).within(Duration::ZERO);
    let mut run = pin!(call.run(async |attempt| AttemptResult::new((), attempt.status(200))));
    let Poll::Ready(called) = run.as_mut().poll(&mut context) else {
        panic!("it waits");
    };
    assert_eq!(called.unwrap().sent, 1);
    let call = pool.call().within(Duration::ZERO);
    let mut run = pin!(call.run(async |attempt, _| AttemptResult::new((), attempt.status(200))));
    let Poll::Ready(called) = run.as_mut().poll(&mut context) else {
        panic!("it waits");
    };
    assert_eq!(called.unwrap().sent, 1);
}

#[test]
fn unsent_attempt_returns_its_permit_and_ends_the_call() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    let unsent = limiter
        .call(KEY)
        .run(async |_| AttemptResult::unsent("no such file"));
    let called = drive(&clock, unsent).unwrap();
    assert_eq!((called.value, called.sent), ("no such file", 0));
    let step = called.trail.steps().last().unwrap().decision.to_string();
    assert_eq!(step, "not sent after all");
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.in_flight, gate.succeeded, gate.failed), (0, 0, 0));
    // The only token is still available.
    limiter.try_acquire(KEY).unwrap().settle(&status(200));
}

#[test]
fn unsent_probe_returns_its_slot() {
    let (clock, limiter) = limiter(&[
        ("strategy", "fixed"),
        ("initial_rate", "1000"),
        ("consecutive_failures", "2"),
    ]);
    for _ in 0..2 {
        limiter.try_acquire(KEY).unwrap().settle(&status(500));
    }
    let unsent = limiter.call(KEY).run(async |_| AttemptResult::unsent(()));
    drive(&clock, unsent).unwrap();
    let probe = limiter.try_acquire(KEY).expect("the next ask is the probe");
    assert!(probe.is_probe());
    probe.settle(&status(200));
}

#[test]
fn waits_for_an_open_breaker() {
    let (clock, limiter) = limiter(&[
        ("strategy", "fixed"),
        ("initial_rate", "1000"),
        ("consecutive_failures", "2"),
    ]);
    let outcomes = [status(500), status(500), status(200)];
    let called = run(&clock, limiter.call(KEY), &outcomes).unwrap();
    assert_eq!(called.sent, 3);
}

#[test]
fn gives_up_on_an_isolated_gate() {
    let (clock, limiter) = limiter(FAST);
    limiter.isolate(KEY).unwrap();
    let error = run(&clock, limiter.call(KEY), &[status(200)]).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::BreakerOpen, 0));
    let took = limiter.clock().now().since(Timestamp::ZERO).as_secs();
    assert!((290..=300).contains(&took), "{took}");
}

#[test]
fn gives_up_only_without_any_success() {
    let (clock, limiter) = limiter(FAST);
    let error = run(&clock, limiter.call(KEY), &[directed(429, 200)]).unwrap_err();
    assert_eq!(error.reason, TerminalReason::GaveUp);
    assert_eq!(error.sent, 2);
}

#[test]
fn kind_keeps_unset_time_bounds() {
    let (clock, limiter) = limiter(FAST);
    limiter.isolate(KEY).unwrap();
    let call = limiter.call(KEY).kind(ItemKind::of("PUT"));
    let error = run(&clock, call, &[status(200)]).unwrap_err();
    assert_eq!(error.reason, TerminalReason::BreakerOpen);

    let began = limiter.clock().now();
    let within = limiter.call(KEY).within(Duration::from_secs(10));
    let call = within.kind(ItemKind::of("PUT"));
    let error = run(&clock, call, &[status(200)]).unwrap_err();
    assert_eq!(error.reason, TerminalReason::BreakerOpen);
    assert!(limiter.clock().now().since(began) <= Duration::from_secs(10));

    let own = ItemKind {
        give_up_after: Some(Duration::from_secs(60)),
        ..ItemKind::of("PUT")
    };
    let began = limiter.clock().now();
    let error = run(&clock, limiter.call(KEY).kind(own), &[status(200)]).unwrap_err();
    assert_eq!(error.reason, TerminalReason::BreakerOpen);
    assert!(limiter.clock().now().since(began) <= Duration::from_secs(60));
}

#[test]
fn waits_without_bound_until_the_gate_is_free() {
    let (clock, limiter) = limiter(FAST);
    limiter.isolate(KEY).unwrap();
    let call = limiter.call(KEY).give_up_after(None);
    let mut run = pin!(call.run(async |attempt| AttemptResult::new((), attempt.status(200))));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1000 {
        assert!(run.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_secs(60));
    }
    limiter.release(KEY);
    drive(&clock, run).unwrap();
}

#[test]
fn refreshes_an_expired_credential_once_for_all_calls() {
    let (clock, limiter) = limiter(FAST);
    let refreshes = Arc::new(AtomicU32::new(0));
    let credential = {
        let refreshes = Arc::clone(&refreshes);
        Credential::new("crm", 0_u32, move || {
            let number = refreshes.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok::<_, &str>(number) }
        })
    };
    let token_must_be_new = async || {
        limiter
            .call(KEY)
            .credential(&credential)
            .run(async |attempt| {
                let answer = if *credential.current() == 0 { 401 } else { 200 };
                AttemptResult::new((), attempt.status(answer))
            })
            .await
    };
    let called = drive(&clock, token_must_be_new()).unwrap();
    assert_eq!(called.sent, 2);
    drive(&clock, token_must_be_new()).unwrap();
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
    let steps = called.trail.steps().iter();
    assert!(
        steps
            .clone()
            .any(|step| step.decision == CallDecision::Refreshed { succeeded: true })
    );
}

#[test]
fn fails_when_the_refreshed_credential_is_rejected() {
    let (clock, limiter) = limiter(FAST);
    let credential = Credential::new("crm", (), async || Ok::<_, &str>(()));
    let call = limiter.call(KEY).credential(&credential);
    let error = run(&clock, call, &[status(401)]).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::AuthFailed, 2));
    let error = run(&clock, limiter.call(KEY), &[status(401)]).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::AuthFailed, 1));
}

#[test]
fn retries_wait_for_the_retry_budget() {
    let clock = ManualClock::new();
    let budget = BudgetOptions {
        ratio: Some(0.0),
        min_per_second: Some(1),
    };
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .retry_budget(budget.build().unwrap())
        .build();
    let backoff = no_wait();
    let call = limiter.call(KEY).backoff(&backoff);
    let error = run(&clock, call, &[status(502)]).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Exhausted, 5));
    let took = limiter.clock().now().since(Timestamp::ZERO).as_secs();
    assert!(
        took >= 3,
        "one retry was available, three had to wait: {took}"
    );
}

#[test]
fn retry_budget_is_per_key() {
    let clock = ManualClock::new();
    let budget = BudgetOptions {
        ratio: Some(0.0),
        min_per_second: Some(4),
    };
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .retry_budget(budget.build().unwrap())
        .build();
    let backoff = no_wait();
    let took = |key: &str| {
        let before = limiter.clock().now();
        let error = run(&clock, limiter.call(key).backoff(&backoff), &[status(429)]).unwrap_err();
        let is_no_budget = |step: &&TrailStep| match &step.decision {
            CallDecision::Refused {
                key: of, reason, ..
            } => {
                assert_eq!((&**of, reason.as_str()), (key, "retry_budget"));
                true
            }
            _ => false,
        };
        let waits = error.trail.steps().iter().filter(is_no_budget).count();
        assert_eq!((error.reason, error.sent), (TerminalReason::Exhausted, 5));
        (limiter.clock().now().since(before) > latency(), waits > 0)
    };
    assert_eq!(took("one.example.com"), (false, false));
    assert_eq!(
        took("one.example.com"),
        (true, true),
        "its budget is used up"
    );
    assert_eq!(took("two.example.com"), (false, false));
}

#[test]
fn without_budget_returns_the_first_response() {
    let clock = ManualClock::new();
    let budget = BudgetOptions {
        ratio: Some(0.0),
        min_per_second: Some(0),
    };
    let limiter = Limiter::builder()
        .clock(clock.clock())
        .retry_budget(budget.build().unwrap())
        .build();
    let error = run(&clock, limiter.call(KEY), &[status(502)]).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Exhausted, 1));
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 0);
}

#[test]
fn emits_one_failed_event_per_call() {
    let failed = Arc::new(Mutex::new(Vec::new()));
    let clock = ManualClock::new();
    let listener = {
        let failed = Arc::clone(&failed);
        move |_, event: &Event<'_>| {
            if let Event::Failed { key, sent, reason } = *event {
                failed.lock().unwrap().push((key.to_owned(), sent, reason));
            }
        }
    };
    let no_retries = BudgetOptions {
        ratio: Some(0.0),
        min_per_second: Some(0),
    };
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .retry_budget(no_retries.build().unwrap())
        .listener(listener)
        .build();
    let take = || std::mem::take(&mut *failed.lock().unwrap());
    let once = |sent, reason| vec![(KEY.to_owned(), sent, reason)];

    run(&clock, limiter.call(KEY), &[status(404)]).unwrap_err();
    assert_eq!(take(), once(1, TerminalReason::Rejected));
    run(&clock, limiter.call(KEY), &[status(401)]).unwrap_err();
    assert_eq!(take(), once(1, TerminalReason::AuthFailed));
    run(&clock, limiter.call(KEY), &[status(409)]).unwrap_err();
    assert_eq!(take(), once(1, TerminalReason::Conflict));
    run(&clock, limiter.call(KEY), &[status(502)]).unwrap_err();
    assert_eq!(take(), once(1, TerminalReason::Exhausted), "no budget");
    limiter.isolate(KEY).unwrap();
    let call = limiter.call(KEY).within(Duration::from_secs(1));
    run(&clock, call, &[status(200)]).unwrap_err();
    assert_eq!(take(), once(0, TerminalReason::BreakerOpen));

    let pool: Pool<()> = Pool::new(KEY, &limiter);
    let call = pool.call();
    let run = call.run(async |attempt, _| AttemptResult::new((), attempt.status(200)));
    drive(&clock, run).unwrap_err();
    assert_eq!(take(), once(0, TerminalReason::Disabled));
}

/// The error message of a call with these settings and outcomes.
fn end(set: &[(&str, &str)], budget: BudgetOptions, outcomes: &[Outcome]) -> String {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(gate(set))
        .clock(clock.clock())
        .retry_budget(budget.build().expect("a valid budget"))
        .seed(7)
        .build();
    let call = limiter.call(KEY).within(Duration::from_secs(40));
    let ended = run(&clock, call, outcomes);
    ended.expect_err("it cannot succeed").to_string()
}

#[test]
fn message_has_reason_and_last_outcome() {
    let ends = [
        (
            vec![status(404)],
            "rejected after 1 attempt; last: HTTP 404, rejected",
        ),
        (
            vec![status(409)],
            "conflict after 1 attempt; last: HTTP 409, conflict",
        ),
        (
            vec![status(401)],
            "auth_failed after 1 attempt; last: HTTP 401, unauthorized",
        ),
        (
            vec![status(502)],
            "exhausted after 5 attempts; last: HTTP 502, overloaded",
        ),
        (
            vec![Outcome::failure(
                Failure::Connect,
                Phase::Connecting,
                latency(),
            )],
            "exhausted after 5 attempts; last: connect failed, unreachable",
        ),
        (
            vec![directed(429, 60)],
            "expired after 1 attempt; last: HTTP 429, throttled",
        ),
        (
            vec![status(502), directed(503, 60)],
            "expired after 2 attempts; last: HTTP 503, throttled",
        ),
    ];
    for (outcomes, expected) in ends {
        assert_eq!(end(FAST, BudgetOptions::default(), &outcomes), expected);
    }
    let none = BudgetOptions {
        ratio: Some(0.0),
        min_per_second: Some(0),
    };
    assert_eq!(
        end(FAST, none, &[status(502)]),
        "exhausted after 1 attempt; last: refused by `api.example.com`: retry_budget"
    );
    let slow = [("strategy", "fixed"), ("initial_rate", "0.01")];
    assert_eq!(
        end(&slow, BudgetOptions::default(), &[status(502)]),
        "expired after 1 attempt; last: refused by `api.example.com`: deadline"
    );
}

#[test]
fn message_of_unsent_call_names_the_refusal() {
    let (clock, limiter) = limiter(FAST);
    limiter.isolate(KEY).unwrap();
    let error = run(&clock, limiter.call(KEY), &[status(200)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "breaker_open: never sent; last: refused by `api.example.com`: breaker_open"
    );
    let pool: Pool<()> = Pool::new("llm", &limiter);
    let call = pool.call();
    let run = call.run(async |attempt, _| AttemptResult::new((), attempt.status(200)));
    let error = drive(&clock, run).unwrap_err();
    assert_eq!(
        error.to_string(),
        "disabled: never sent; last: refused by `llm`: no_endpoint"
    );
}

#[test]
fn message_says_that_the_refresh_failed() {
    let (clock, limiter) = limiter(FAST);
    let credential = Credential::new("crm", (), async || Err("no such account"));
    let call = limiter.call(KEY).credential(&credential);
    assert_eq!(
        run(&clock, call, &[status(401)]).unwrap_err().to_string(),
        "auth_failed after 1 attempt; last: the credential could not be refreshed"
    );
}

#[test]
fn trail_has_every_decision() {
    let (clock, limiter) = limiter(&[]);
    let outcomes = [directed(429, 2), status(200)];
    let called = run(&clock, limiter.call(KEY), &outcomes).unwrap();
    let steps: Vec<String> = called
        .trail
        .steps()
        .iter()
        .map(|step| step.decision.to_string())
        .collect();
    assert_eq!(steps[0], "admitted by `api.example.com` at once");
    assert_eq!(steps[1], "HTTP 429, throttled");
    assert!(
        steps[2].starts_with("again in ") && steps[2].ends_with("by retry_after: throttled"),
        "{}",
        steps[2]
    );
    assert_eq!(steps.last().unwrap(), "HTTP 200, success");
}

#[test]
fn trail_has_each_wait_with_its_end() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    limiter.try_acquire(KEY).unwrap().settle(&status(200));
    let called = run(&clock, limiter.call(KEY), &[status(200)]).unwrap();
    let CallDecision::Waiting { reason, until, .. } = &called.trail.steps()[0].decision else {
        panic!("expected a wait, not {:?}", called.trail.steps()[0]);
    };
    assert_eq!(*reason, RefusalReason::Gate(Reason::Rate));
    assert_eq!(*until, Some(Timestamp::from_millis(998)));
}

#[tokio::test]
async fn call_can_be_spawned() {
    let limiter = Limiter::new();
    let task = tokio::spawn(async move {
        let backoff = Preset::Aggressive.settings();
        let call = limiter.call("spawned.example.com").backoff(&backoff);
        let called = call.run(async |attempt| AttemptResult::new("done", attempt.status(200)));
        called.await.map(|called| called.value)
    });
    assert_eq!(task.await.unwrap().unwrap(), "done");
}

fn no_wait() -> BackoffSettings {
    let mut options = policy::backoff::BackoffOptions::default();
    for (name, value) in [("base", "1ms"), ("max", "1ms"), ("jitter", "none")] {
        options.set(name, value).expect("a valid setting");
    }
    options.build().expect("consistent settings")
}

#[test]
fn unsafe_request_ends_with_its_response() {
    let (clock, limiter) = limiter(FAST);
    let run = limiter
        .call(KEY)
        .run(async |attempt| AttemptResult::new("busy", attempt.status(503)).last());
    let error = drive(&clock, run).expect_err("it has one attempt");
    assert_eq!((error.reason, error.sent), (TerminalReason::Exhausted, 1));
    assert_eq!(error.last, Some("busy"));
    // Being the last attempt does not make a success fail.
    let run = limiter
        .call(KEY)
        .run(async |attempt| AttemptResult::new("fine", attempt.status(200)).last());
    assert_eq!(drive(&clock, run).expect("a success").value, "fine");
}

#[test]
fn watcher_sees_every_step_of_the_trail() {
    let (clock, limiter) = limiter(FAST);
    let seen = Mutex::new(Vec::new());
    let watcher = |step: &TrailStep| seen.lock().expect("no test panics here").push(step.clone());
    let outcomes = [status(503), directed(429, 2), status(200)];
    let called = run(&clock, limiter.call(KEY).watch(&watcher), &outcomes).expect("a success");
    assert_eq!(called.sent, 3);
    assert_eq!(
        seen.into_inner().expect("no test panics here"),
        called.trail.steps()
    );
}

/// A listener for changes, and for every event while `closely` is set.
struct ChangesOnly {
    wants_everything: Arc<AtomicBool>,
    names: Arc<Mutex<Vec<&'static str>>>,
}

impl EventListener for ChangesOnly {
    fn on_event(&self, _: Timestamp, event: &Event<'_>) {
        self.names
            .lock()
            .expect("no test panics here")
            .push(event.name());
    }

    fn wants_everything(&self) -> bool {
        self.wants_everything.load(Ordering::Relaxed)
    }
}

#[test]
fn listener_without_every_event_gets_changes_only() {
    let clock = ManualClock::new();
    let (closely, names) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .listener(ChangesOnly {
            wants_everything: Arc::clone(&closely),
            names: Arc::clone(&names),
        })
        .build();
    let settle = |outcome: &Outcome| limiter.try_acquire(KEY).expect("a token").settle(outcome);
    let take = || std::mem::take(&mut *names.lock().expect("no test panics here"));
    settle(&status(200));
    assert!(take().is_empty());
    settle(&directed(429, 2));
    assert_eq!(take(), ["hold_started"]);
    clock.advance(Duration::from_secs(3));
    closely.store(true, Ordering::Relaxed);
    settle(&status(200));
    assert_eq!(take(), ["admitted", "settled"]);
}

/// The result of a call whose attempts have these statuses, each with an unread body.
fn stream(
    clock: &ManualClock,
    call: Call<'_>,
    statuses: &[u16],
) -> Result<CallResult<u16>, CallError<u16>> {
    let mut statuses = statuses.iter().copied();
    drive(
        clock,
        call.run(|attempt| {
            let status = statuses.next().expect("an attempt that the test knows of");
            async move { AttemptResult::new(status, attempt.status(status)).with_body() }
        }),
    )
}

#[test]
fn last_response_is_in_flight_while_its_body_is_read() {
    let one = [
        ("strategy", "fixed"),
        ("initial_rate", "1000"),
        ("max_in_flight", "1"),
    ];
    let (clock, limiter) = limiter(&one);
    let in_flight = || limiter.gate(KEY).unwrap().gate.in_flight;
    // The retry needs the slot of the first attempt.
    let called = stream(&clock, limiter.call(KEY), &[503, 200]).unwrap();
    assert_eq!((called.value, called.sent, in_flight()), (200, 2, 1));
    drop(called.in_flight);
    assert_eq!(in_flight(), 0);
    let error = stream(&clock, limiter.call(KEY), &[404]).unwrap_err();
    assert_eq!((error.last, in_flight()), (Some(404), 1));
    drop(error.in_flight);
    assert_eq!(in_flight(), 0);
}

#[test]
fn ban_is_waited_for_and_the_request_sent_again() {
    let (clock, limiter) = limiter(&[("max_wait", "10m")]);
    let before = clock.clock().now();
    let called = run(
        &clock,
        limiter.call(KEY),
        &[status(429), status(403), status(200)],
    );
    let called = called.unwrap();
    assert_eq!((called.value, called.sent), (2, 3));
    let verdicts = called
        .trail
        .steps()
        .iter()
        .filter_map(|step| match step.decision {
            CallDecision::Settled { verdict, .. } => verdict,
            _ => None,
        });
    let verdicts: Vec<_> = verdicts.map(Verdict::as_str).collect();
    assert_eq!(verdicts, ["throttled", "throttled", "success"]);
    let took = clock.clock().now().since(before);
    assert!(
        took >= Duration::from_secs(30),
        "the pause of a ban: {took:?}"
    );
    let banned_again = stream(&clock, limiter.call(KEY), &[403, 200]).unwrap();
    assert_eq!((banned_again.value, banned_again.sent), (200, 2));
    clock.advance(Duration::from_secs(600));
    let error = run(&clock, limiter.call(KEY), &[status(403)]).unwrap_err();
    assert_eq!(error.reason, TerminalReason::Rejected);
}

#[test]
fn breaker_closes_on_responses_that_take_minutes() {
    let clock = ManualClock::new();
    let mut settings = gate(&[("consecutive_failures", "1"), ("half_open_probes", "1")]);
    settings.set_response_timeout(Duration::from_secs(300));
    let limiter = Limiter::builder()
        .gate(settings)
        .clock(clock.clock())
        .build();
    limiter.try_acquire(KEY).unwrap().settle(&status(500));
    clock.advance(Duration::from_secs(5));
    let probe = limiter.try_acquire(KEY).unwrap();
    clock.advance(Duration::from_secs(200));
    assert_eq!(
        limiter.try_acquire(KEY).unwrap_err().reason(),
        Reason::BreakerOpen
    );
    probe.settle(&status(200));
    let state = limiter.gate(KEY).unwrap().gate.breaker;
    assert_eq!(state.as_str(), "closed");
}

/// Waits for so long in virtual time, then responds with 200.
async fn slow(clock: Clock, time: Duration, attempt: tidegate::Attempt) -> AttemptResult<u16> {
    clock.sleep_until(clock.now() + time).await;
    AttemptResult::new(200, attempt.status(200))
}

#[test]
fn within_ends_a_running_attempt() {
    let (clock, limiter) = limiter(FAST);
    let call = limiter.call(KEY).within(Duration::from_secs(10));
    let run = call.run(|attempt| slow(clock.clock(), Duration::from_secs(60), attempt));
    let error = drive(&clock, run).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Expired, 1));
    let message = "expired after 1 attempt; last: no response before its time was up";
    assert_eq!(error.to_string(), message);
    assert_eq!(clock.clock().now(), Timestamp::from_secs(10));
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!(
        (gate.in_flight, gate.consecutive_failures),
        (0, 0),
        "abandoned"
    );
}

#[test]
fn within_ends_a_refresh() {
    let (clock, limiter) = limiter(FAST);
    let hangs = clock.clock();
    let credential = Credential::new("crm", (), move || {
        let clock = hangs.clone();
        async move {
            clock
                .sleep_until(clock.now() + Duration::from_secs(60))
                .await;
            Err("too late")
        }
    });
    let call = limiter.call(KEY).within(Duration::from_secs(10));
    let call = call.credential(&credential);
    let run = call.run(async |attempt| AttemptResult::new(401, attempt.status(401)));
    let error = drive(&clock, run).unwrap_err();
    assert_eq!(error.reason, TerminalReason::Expired);
    assert_eq!(error.last, Some(401));
    assert_eq!(clock.clock().now(), Timestamp::from_secs(10));
}

#[test]
fn attempt_timeout_counts_as_a_timeout_and_opens_the_breaker() {
    let (clock, limiter) = limiter(&[
        ("strategy", "fixed"),
        ("initial_rate", "1000"),
        ("consecutive_failures", "3"),
        ("open_first", "60s"),
        ("open_for", "60s"),
    ]);
    let call = limiter.call(KEY).attempt_timeout(Duration::from_secs(2));
    let call = call.within(Duration::from_secs(30));
    let run = call.run(|attempt| slow(clock.clock(), Duration::from_secs(60), attempt));
    let error = drive(&clock, run).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::BreakerOpen, 3));
    assert_eq!(error.last, None, "no attempt returned a value");
    let steps = error.trail.steps().iter().map(|step| &step.decision);
    let failures = steps.filter_map(|decision| match decision {
        CallDecision::Settled { response, .. } => Some(*response),
        _ => None,
    });
    let timeout = UpstreamResponse::Failed {
        failure: Failure::Timeout,
        phase: Phase::Waiting,
    };
    assert_eq!(failures.collect::<Vec<_>>(), [timeout; 3]);
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.consecutive_failures, gate.in_flight), (3, 0));
}

#[test]
fn unsafe_request_is_not_resent_after_its_attempt_timed_out() {
    let (clock, limiter) = limiter(FAST);
    let call = limiter.call(KEY).method("POST");
    let call = call.attempt_timeout(Duration::from_secs(2));
    let run = call.run(|attempt| slow(clock.clock(), Duration::from_secs(60), attempt));
    let error = drive(&clock, run).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Exhausted, 1));
    assert_eq!(clock.clock().now(), Timestamp::from_secs(2));
}

#[test]
fn kind_with_expiry_bounds_the_last_send_but_not_a_running_attempt() {
    let (clock, limiter) = limiter(FAST);
    let kind = ItemKind {
        expires_after: Some(Duration::from_secs(10)),
        ..ItemKind::of("GET")
    };
    let call = limiter.call(KEY).kind(kind);
    let run = call.run(|attempt| slow(clock.clock(), Duration::from_secs(60), attempt));
    assert_eq!(drive(&clock, run).unwrap().value, 200);
}

#[test]
fn call_dropped_during_an_attempt_counts_as_abandoned() {
    let clock = ManualClock::new();
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&names);
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .on_event(move |_, event| seen.lock().unwrap().push(event.name()))
        .build();
    let call = limiter.call(KEY);
    let mut run =
        Box::pin(call.run(|attempt| slow(clock.clock(), Duration::from_secs(60), attempt)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(run.as_mut().poll(&mut context).is_pending());
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 1);
    drop(run);
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!(
        (gate.in_flight, gate.failed, gate.consecutive_failures),
        (0, 0, 0)
    );
    assert_eq!(*names.lock().unwrap(), ["admitted", "abandoned"]);
}

#[test]
fn retry_after_is_honoured_with_jitter_of_a_tenth_whatever_the_backoff() {
    for backoff in [None, Some(Preset::Aggressive.settings())] {
        for seed in 0..20 {
            let clock = ManualClock::new();
            let limiter = Limiter::builder()
                .gate(gate(FAST))
                .clock(clock.clock())
                .seed(seed)
                .build();
            let call = limiter.call(KEY);
            let call = backoff
                .as_ref()
                .map_or(call, |backoff| call.backoff(backoff));
            let run = call.run(async |attempt| {
                let (status, headers) = match attempt.number {
                    1 => (429, [("Retry-After", "10")]),
                    _ => (200, [("Server", "x")]),
                };
                AttemptResult::new((), attempt.response(status, headers))
            });
            assert_eq!(drive(&clock, run).unwrap().sent, 2);
            let waited = clock.clock().now().since(Timestamp::ZERO);
            let expected = Duration::from_secs(10)..=Duration::from_millis(11_050);
            assert!(expected.contains(&waited), "{waited:?}");
        }
    }
}

#[test]
fn retry_after_jitter_of_a_call_can_be_set() {
    let (clock, limiter) = limiter(FAST);
    let jitter = RetryAfterJitter::UpTo(Duration::ZERO);
    let call = limiter.call(KEY).retry_after_jitter(jitter);
    let run = call.run(async |attempt| {
        let status = if attempt.number == 1 { 429 } else { 200 };
        AttemptResult::new((), attempt.response(status, [("retry-after", "10")]))
    });
    drive(&clock, run).unwrap();
    let waited = clock.clock().now().since(Timestamp::ZERO);
    assert!(waited < Duration::from_millis(10_010), "{waited:?}");
}
