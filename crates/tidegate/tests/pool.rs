//! Pools: which endpoint an attempt uses, and what its gate and its ladder learn.

mod drive;

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use drive::{drive, gate};
use policy::hint::{Hint, Source};
use policy::item::TerminalReason;
use policy::ladder::{Disabled, LadderOptions, LadderRecord, LadderSettings};
use policy::outcome::{Failure, Outcome, Phase};
use policy::pool::Balance;
use policy::time::Timestamp;
use tidegate::call::CallDecision;
use tidegate::event::Event;
use tidegate::{Ask, Attempt, AttemptResult, Limiter, ManualClock, Pool, PoolRefusal, Reason};

fn pool(set: &[(&str, &str)], names: &[&str]) -> (ManualClock, Pool<()>) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(gate(set))
        .clock(clock.clock())
        .seed(3)
        .build();
    let pool = Pool::new("llm", &limiter);
    for name in names {
        assert!(pool.add(name, "llm.example.com", ()));
    }
    (clock, pool)
}

const FAST: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1000")];
const SLOW: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1")];

fn status(status: u16) -> Outcome {
    Outcome::status(status, Duration::from_millis(20))
}

fn any() -> Ask<'static> {
    Ask::any()
}

/// Takes a permit, settles it, and returns its endpoint.
fn send(clock: &ManualClock, pool: &Pool<()>, outcome: &Outcome) -> String {
    let permit = drive(clock, pool.acquire(any())).expect("a permit");
    let name = permit.endpoint().name().to_owned();
    permit.settle(outcome);
    name
}

#[test]
fn spreads_requests_and_names_gates_after_pool_and_endpoint() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    assert_eq!(send(&clock, &pool, &status(200)), "a");
    assert_eq!(send(&clock, &pool, &status(200)), "b");
    let gate = pool.limiter().gate("llm/a").unwrap().gate;
    assert_eq!((gate.admitted, gate.succeeded, gate.in_flight), (1, 1, 0));
}

#[test]
fn undirected_429_after_twenty_successes_pauses_unless_adaptive() {
    for (strategy, paused) in [("adaptive", false), ("aimd", true), ("fixed", true)] {
        let (clock, pool) = pool(&[("strategy", strategy)], &["a", "b"]);
        for _ in 0..40 {
            send(&clock, &pool, &status(200));
        }
        let refused = send(&clock, &pool, &status(429));
        let views = pool.view();
        let view = views.iter().find(|view| *view.name == *refused).unwrap();
        assert_eq!(view.paused_until.is_some(), paused, "{strategy}");
        assert_eq!(view.consecutive_errors, u32::from(paused), "{strategy}");
        assert_eq!(view.last_error.as_deref(), Some("HTTP 429"), "{strategy}");
    }
}

#[test]
fn error_pauses_the_endpoint_and_is_settled_at_its_gate() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    assert_eq!(send(&clock, &pool, &status(429)), "a");
    let view = &pool.view()[0];
    assert_eq!(view.paused_until, Some(Timestamp::from_secs(30)));
    assert_eq!(view.consecutive_errors, 1);
    assert_eq!(view.last_error.as_deref(), Some("HTTP 429"));
    assert_eq!(pool.limiter().gate("llm/a").unwrap().gate.throttled, 1);
    for _ in 0..5 {
        assert_eq!(send(&clock, &pool, &status(200)), "b");
    }
}

#[test]
fn waits_for_the_earliest_when_all_are_paused() {
    let (clock, pool) = pool(
        &[
            ("strategy", "fixed"),
            ("initial_rate", "1000"),
            ("max_wait", "60s"),
        ],
        &["a", "b"],
    );
    send(&clock, &pool, &status(503));
    clock.advance(Duration::from_secs(5));
    send(&clock, &pool, &status(503));
    assert_eq!(send(&clock, &pool, &status(200)), "a");
    assert_eq!(pool.limiter().clock().now(), Timestamp::from_secs(30));
}

#[test]
fn refuses_at_once_when_deadline_precedes_turn() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    send(&clock, &pool, &status(503));
    send(&clock, &pool, &status(503));
    let asked = pool.acquire(any().within(Duration::from_secs(10)));
    let refusal = drive(&clock, asked).unwrap_err();
    let until = Some(Timestamp::from_secs(30));
    assert_eq!(refusal, PoolRefusal::Paused { until });
    assert_eq!(
        (refusal.reason().as_str(), refusal.until()),
        ("paused", until)
    );
    assert_eq!(pool.limiter().clock().now(), Timestamp::ZERO);
}

#[test]
fn first_gate_to_admit_is_used() {
    let (clock, pool) = pool(SLOW, &["a", "b"]);
    assert_eq!(send(&clock, &pool, &status(200)), "a");
    clock.advance(Duration::from_millis(400));
    assert_eq!(send(&clock, &pool, &status(200)), "b");
    assert_eq!(send(&clock, &pool, &status(200)), "a");
    assert_eq!(pool.limiter().clock().now(), Timestamp::from_millis(998));
    assert_eq!(pool.limiter().gate("llm/b").unwrap().gate.waiting, 0);
}

#[test]
fn enabling_an_endpoint_wakes_waiters() {
    let (clock, pool) = pool(
        &[
            ("strategy", "fixed"),
            ("initial_rate", "1000"),
            ("max_wait", "60s"),
        ],
        &["a", "b"],
    );
    send(&clock, &pool, &status(503));
    send(&clock, &pool, &status(503));
    let mut waiting = pin!(pool.acquire(any()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    assert!(pool.enable("b"));
    let Poll::Ready(Ok(permit)) = waiting.as_mut().poll(&mut context) else {
        panic!("expected a permit");
    };
    assert_eq!(permit.endpoint().name(), "b");
}

#[test]
fn ended_wait_leaves_no_waker_behind() {
    struct TestWaker;
    impl Wake for TestWaker {
        fn wake(self: Arc<Self>) {}
    }
    let (clock, pool) = pool(SLOW, &["a"]);
    send(&clock, &pool, &status(200));
    let mine = Arc::new(TestWaker);
    for is_dropped in [true, false] {
        let waker = Waker::from(Arc::clone(&mine));
        let mut context = Context::from_waker(&waker);
        let mut waiting = Box::pin(pool.acquire(any()));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        if !is_dropped {
            clock.advance(Duration::from_secs(1));
            let Poll::Ready(Ok(permit)) = waiting.as_mut().poll(&mut context) else {
                panic!("expected a permit");
            };
            permit.settle(&status(200));
        }
    }
    assert_eq!(Arc::strong_count(&mine), 1, "the pool holds no waker");
}

#[test]
fn recovering_endpoint_gets_one_request_at_a_time() {
    let (clock, pool) = pool(
        &[
            ("strategy", "fixed"),
            ("initial_rate", "1000"),
            ("max_wait", "60s"),
        ],
        &["a", "b"],
    );
    pool.disable("b");
    send(&clock, &pool, &status(503));
    clock.advance(Duration::from_secs(30));
    let first = drive(&clock, pool.acquire(any())).unwrap();
    let mut second = pin!(pool.acquire(any()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    first.settle(&status(200));
    assert!(second.as_mut().poll(&mut context).is_ready());
}

#[test]
fn pool_without_endpoints_refuses_at_once() {
    let (clock, pool) = pool(FAST, &[]);
    let refusal = drive(&clock, pool.acquire(any())).unwrap_err();
    assert_eq!(refusal, PoolRefusal::NoEndpoint);
    pool.add("a", "llm.example.com", ());
    pool.disable("a");
    assert_eq!(pool.view()[0].disabled, Some(Disabled::Person));
    let refusal = drive(&clock, pool.acquire(any())).unwrap_err();
    assert_eq!(refusal, PoolRefusal::NoEndpoint);
    assert!(pool.remove("a") && !pool.remove("a"));
}

#[test]
fn refusal_has_the_reason_of_the_gate() {
    let (clock, pool) = pool(SLOW, &["a"]);
    send(&clock, &pool, &status(200));
    let asked = pool.acquire(any().within(Duration::from_millis(100)));
    let PoolRefusal::Gate(refusal) = drive(&clock, asked).unwrap_err() else {
        panic!("expected the gate's refusal");
    };
    assert_eq!(refusal.reason(), Reason::Deadline);
}

#[test]
fn dropped_permit_releases_gate_and_endpoint() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    let permit = drive(&clock, pool.acquire(any())).unwrap();
    assert_eq!(pool.view()[0].in_flight, 1);
    drop(permit);
    assert_eq!(pool.view()[0].in_flight, 0);
    assert_eq!(pool.limiter().gate("llm/a").unwrap().gate.in_flight, 0);
}

#[test]
fn endpoints_use_the_settings_of_their_host() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .host(
            "b.example.com".parse().unwrap(),
            gate(&[("initial_rate", "7")]),
        )
        .clock(clock.clock())
        .build();
    let pool = Pool::with(
        "llm",
        &limiter,
        Balance::RoundRobin,
        LadderSettings::default(),
    );
    pool.add("a", "a.example.com", ());
    pool.add("b", "b.example.com", ());
    send(&clock, &pool, &status(404));
    send(&clock, &pool, &status(404));
    let rate = |key: &str| limiter.gate(key).unwrap().gate.rate;
    assert_eq!((rate("llm/a"), rate("llm/b")), (2.0, 7.0));
    let set = limiter.set_host(
        "a.example.com".parse().unwrap(),
        gate(&[("strategy", "fixed"), ("initial_rate", "5")]),
    );
    assert_eq!(set, Ok(()));
    assert_eq!((rate("llm/a"), rate("llm/b")), (5.0, 7.0));
}

#[test]
fn restore_keeps_pauses() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    send(&clock, &pool, &status(429));
    clock.advance(Duration::from_secs(10));
    let records = pool.records();
    let (clock, restarted) = self::pool(FAST, &[]);
    for (name, record) in records {
        restarted.restore(&name, "llm.example.com", (), record);
    }
    assert_eq!(
        restarted.view()[0].paused_until,
        Some(Timestamp::from_secs(20))
    );
    assert_eq!(send(&clock, &restarted, &status(200)), "b");
}

#[test]
fn call_fails_over_to_another_endpoint() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    let tried = RefCell::new(Vec::new());
    let called = drive(
        &clock,
        pool.call().run(|attempt, endpoint| {
            tried.borrow_mut().push(endpoint.name().to_owned());
            let status = if endpoint.name() == "a" { 503 } else { 200 };
            async move { AttemptResult::new((), attempt.status(status)) }
        }),
    )
    .unwrap();
    assert_eq!(called.sent, 2);
    assert_eq!(*tried.borrow(), ["a", "b"]);
    assert_eq!(pool.view()[0].consecutive_errors, 1);
}

/// The endpoints of a call's attempts and its duration; `a` determines how the first one fails.
fn attempts_of_failover(
    clock: &ManualClock,
    pool: &Pool<()>,
    a: impl Fn(&Attempt) -> Outcome,
) -> (Vec<String>, Duration) {
    let began = pool.limiter().clock().now();
    let tried = RefCell::new(Vec::new());
    let run = pool.call().run(|attempt, endpoint| {
        tried.borrow_mut().push(endpoint.name().to_owned());
        let outcome = match endpoint.name() {
            "a" => a(&attempt),
            _ => attempt.status(200),
        };
        async move { AttemptResult::new((), outcome) }
    });
    drive(clock, run).expect("the other endpoint succeeds");
    (
        tried.into_inner(),
        pool.limiter().clock().now().since(began),
    )
}

#[test]
fn failover_does_not_wait_for_the_hint_of_the_first_endpoint() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    let hour =
        |attempt: &Attempt| Outcome::throttled(attempt.elapsed(), Some(Duration::from_secs(3600)));
    let tried = ["a".to_owned(), "b".to_owned()];
    assert_eq!(
        attempts_of_failover(&clock, &pool, hour),
        (tried.to_vec(), Duration::ZERO)
    );
}

#[test]
fn avoids_the_endpoint_that_just_failed() {
    // Transport failures do not climb the ladder, and `first` prefers the first of the list.
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .build();
    let pool = Pool::with("llm", &limiter, Balance::First, LadderSettings::default());
    for name in ["a", "b"] {
        assert!(pool.add(name, "llm.example.com", ()));
    }
    let broken = |attempt: &Attempt| {
        Outcome::failure(Failure::Connect, Phase::Connecting, attempt.elapsed())
    };
    let tried = ["a".to_owned(), "b".to_owned()];
    assert_eq!(
        attempts_of_failover(&clock, &pool, broken),
        (tried.to_vec(), Duration::ZERO)
    );
}

/// What a call through a pool waited for first, and until when.
fn first_delay(clock: &ManualClock, pool: &Pool<()>) -> Option<(String, Option<Timestamp>)> {
    let call = pool.call();
    let run = call.run(async |attempt, _| AttemptResult::new((), attempt.status(200)));
    let called = drive(clock, run).expect("it may wait");
    let first = &called.trail.steps()[0].decision;
    match first {
        CallDecision::Waiting { until, .. } => Some((first.to_string(), *until)),
        _ => None,
    }
}

#[test]
fn trail_of_a_pool_call_has_each_wait_with_its_end() {
    let settings = [
        ("strategy", "fixed"),
        ("initial_rate", "1"),
        ("max_wait", "60s"),
    ];
    let (clock, pool) = pool(&settings, &["a", "b"]);
    assert_eq!(first_delay(&clock, &pool), None, "no wait");

    // Both gates lack a token, the first one for a shorter time.
    clock.advance(Duration::from_millis(400));
    assert_eq!(first_delay(&clock, &pool), None);
    let by_rate = "waits at `llm`: rate".to_owned();
    let until = Some(Timestamp::from_millis(998));
    assert_eq!(first_delay(&clock, &pool), Some((by_rate.clone(), until)));

    // One is paused and the other only lacks a token; then both are paused.
    send(&clock, &pool, &status(503));
    let (reason, until) = first_delay(&clock, &pool).expect("it waits for a token");
    assert_eq!(reason, by_rate);
    assert!(
        until
            < pool
                .view()
                .iter()
                .filter_map(|view| view.paused_until)
                .max()
    );
    send(&clock, &pool, &status(503));
    let until = pool
        .view()
        .iter()
        .filter_map(|view| view.paused_until)
        .min();
    let by_pause = "waits at `llm`: paused".to_owned();
    assert_eq!(first_delay(&clock, &pool), Some((by_pause, until)));
}

#[test]
fn immediate_refusal_is_not_recorded_as_a_wait() {
    let (clock, pool) = pool(SLOW, &["a"]);
    send(&clock, &pool, &status(200));
    let call = pool.call().within(Duration::from_millis(100));
    let run = call.run(async |attempt, _| AttemptResult::new((), attempt.status(200)));
    let error = drive(&clock, run).unwrap_err();
    let steps: Vec<String> = error
        .trail
        .steps()
        .iter()
        .map(|step| step.decision.to_string())
        .collect();
    assert_eq!(steps, ["refused by `llm`: deadline", "over: expired"]);
}

#[test]
fn call_through_empty_pool_fails_at_once() {
    let (clock, pool) = pool(FAST, &[]);
    let run = pool
        .call()
        .run(|attempt, _| async move { AttemptResult::new((), attempt.status(200)) });
    let error = drive(&clock, run).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Disabled, 0));
}

#[test]
fn unsent_attempt_does_not_change_its_endpoint() {
    let (clock, pool) = pool(SLOW, &["a"]);
    let unsent = pool.call().run(async |_, _| AttemptResult::unsent(()));
    assert_eq!(drive(&clock, unsent).unwrap().sent, 0);
    let view = &pool.view()[0];
    assert_eq!((view.in_flight, view.consecutive_errors), (0, 0));
    send(&clock, &pool, &status(200));
    assert_eq!(pool.limiter().clock().now(), Timestamp::ZERO);
}

#[test]
fn error_text_climbs_the_ladder_like_a_status() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    let mut options = LadderOptions::default();
    options.set("texts", "overloaded").unwrap();
    pool.set_protection(options.build().unwrap());
    let permit = drive(&clock, pool.acquire(any())).unwrap();
    let outcome = status(400);
    let verdict = outcome.classify().verdict;
    permit.settle_as(&outcome, verdict, "the model is overloaded");
    assert_eq!(
        pool.view()[0].last_error.as_deref(),
        Some("the model is overloaded")
    );
    assert!(pool.view()[0].paused_until.is_some());
}

#[test]
fn hint_determines_the_length_of_the_pause() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    let hint = Hint {
        wait: Some(Duration::from_secs(7)),
        ..Hint::default()
    };
    send(&clock, &pool, &status(429).with_hint(hint));
    assert_eq!(pool.view()[0].paused_until, Some(Timestamp::from_secs(7)));
}

#[test]
fn adding_a_taken_name_changes_nothing() {
    let clock = ManualClock::new();
    let fixed = |rate: &str| gate(&[("strategy", "fixed"), ("initial_rate", rate)]);
    let limiter = Limiter::builder()
        .host("a.example.com".parse().unwrap(), fixed("7"))
        .host("b.example.com".parse().unwrap(), fixed("9"))
        .clock(clock.clock())
        .build();
    let pool = Pool::new("llm", &limiter);
    assert!(pool.add("a", "a.example.com", ()));
    assert!(!pool.add("a", "b.example.com", ()));
    send(&clock, &pool, &status(200));
    let rate = limiter.gate("llm/a").unwrap().gate.rate;
    assert!((rate - 7.0).abs() < 1e-9, "{rate}");
    assert!(pool.remove("a"));
    let default = limiter.settings("other.example.com");
    assert_eq!(limiter.settings("llm/a"), default, "nothing is left of it");
    assert_eq!(limiter.settings("a.example.com").gate, fixed("7"));
}

/// Counts wakeups.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn neutral_probe_wakes_waiters_and_ordinary_response_does_not() {
    let (clock, pool) = pool(PATIENT, &["a", "b"]);
    pool.disable("b");
    let ordinary = drive(&clock, pool.acquire(any())).unwrap();
    send(&clock, &pool, &status(503));
    clock.advance(Duration::from_secs(30));
    let probe = drive(&clock, pool.acquire(any())).unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut waiting = pin!(pool.acquire(any()));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(probe);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "its place is free");
    assert!(waiting.as_mut().poll(&mut context).is_ready());
    drop(ordinary);

    let (clock, pool) = self::pool(SLOW, &["a", "b"]);
    let permits = [
        drive(&clock, pool.acquire(any())).unwrap(),
        drive(&clock, pool.acquire(any())).unwrap(),
    ];
    let mut waiting = pin!(pool.acquire(any()));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    for permit in permits {
        permit.settle(&status(200));
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "nothing has changed");
}

#[test]
fn success_after_a_rejected_request_wakes_no_waiter() {
    let (clock, pool) = pool(SLOW, &["a", "b"]);
    let take = || drive(&clock, pool.acquire(any())).unwrap();
    let (rejected, _other) = (take(), take());
    clock.advance(Duration::from_secs(1));
    let succeeds = take();
    assert_eq!(rejected.endpoint().name(), succeeds.endpoint().name());
    let _other = take();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut waiting = pin!(pool.acquire(any()));
    let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    rejected.settle(&status(404));
    assert!(pool.view()[0].last_error.is_some());
    succeeds.settle(&status(200));
    assert!(pool.view()[0].last_error.is_none());
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
}

const PATIENT: &[(&str, &str)] = &[
    ("strategy", "fixed"),
    ("initial_rate", "1000"),
    ("max_wait", "60s"),
];

#[test]
fn emits_events_of_endpoints() {
    let clock = ManualClock::new();
    let names = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let names = Arc::clone(&names);
        move |_: Timestamp, event: &Event<'_>| {
            if event.name().starts_with("endpoint") {
                names
                    .lock()
                    .expect("no test panics here")
                    .push(event.name());
            }
        }
    };
    let limiter = Limiter::builder()
        .gate(gate(PATIENT))
        .clock(clock.clock())
        .listener(listener)
        .build();
    let mut options = LadderOptions::default();
    options.set("disable_after", "2").unwrap();
    options.set("enabled", "true").unwrap();
    let protection = options.build().unwrap();
    let pool = Pool::with("llm", &limiter, Balance::First, protection.clone());
    assert_eq!(
        (pool.balance(), pool.protection()),
        (Balance::First, protection)
    );
    pool.add("a", "a.example.com", ());
    for answer in [200, 503, 200, 503, 503] {
        send(&clock, &pool, &status(answer));
    }
    let expected = [
        "endpoint_paused",
        "endpoint_enabled",
        "endpoint_paused",
        "endpoint_disabled",
    ];
    assert_eq!(*names.lock().unwrap(), expected);
}

#[test]
fn success_of_another_request_delays_giving_up() {
    let long = [
        ("strategy", "fixed"),
        ("initial_rate", "1000"),
        ("max_wait", "600s"),
    ];
    let (clock, pool) = pool(&long, &["a"]);
    let hint = |wait: u64| Hint {
        wait: Some(Duration::from_secs(wait)),
        ..Hint::default()
    };
    let made = RefCell::new(0);
    let called = drive(
        &clock,
        pool.call().run(|attempt, _| {
            *made.borrow_mut() += 1;
            let outcome = match *made.borrow() {
                3 => attempt.status(200),
                _ => attempt.status(429).with_hint(hint(200)),
            };
            // Another request succeeds meanwhile.
            pool.limiter()
                .try_acquire("llm/a")
                .map(|permit| permit.settle(&status(200)))
                .ok();
            async move { AttemptResult::new((), outcome) }
        }),
    );
    assert_eq!(called.unwrap().sent, 3, "400 s, and no give-up after 300");
}

/// Collects the endpoint events of a pool's limiter.
fn endpoint_events(
    set: &[(&str, &str)],
    names: &[&str],
) -> (ManualClock, Pool<u32>, Arc<Mutex<Vec<String>>>) {
    let clock = ManualClock::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let seen = Arc::clone(&seen);
        move |_: Timestamp, event: &Event<'_>| {
            if let Event::EndpointEnabled { endpoint, .. }
            | Event::EndpointPaused { endpoint, .. }
            | Event::EndpointDisabled { endpoint, .. } = event
            {
                let seen_now = format!("{} {endpoint}", event.name());
                seen.lock().expect("no test panics here").push(seen_now);
            }
        }
    };
    let limiter = Limiter::builder()
        .gate(gate(set))
        .clock(clock.clock())
        .listener(listener)
        .build();
    let pool = Pool::new("llm", &limiter);
    for name in names {
        assert!(pool.add(name, "llm.example.com", 1));
    }
    (clock, pool, seen)
}

fn settle_with(clock: &ManualClock, pool: &Pool<u32>, outcome: &Outcome) {
    let permit = drive(clock, pool.acquire(any())).expect("a permit");
    permit.settle(outcome);
}

#[test]
fn enabled_event_follows_only_pause_or_disable() {
    let (clock, pool, seen) = endpoint_events(FAST, &["a", "b"]);
    let take = || std::mem::take(&mut *seen.lock().unwrap());
    pool.disable("b");
    assert_eq!(take(), ["endpoint_disabled b"]);
    settle_with(&clock, &pool, &status(404));
    assert!(pool.view()[0].last_error.is_some());
    settle_with(&clock, &pool, &status(200));
    assert_eq!(pool.view()[0].last_error, None);
    pool.enable("a");
    assert_eq!(take(), [""; 0], "nothing was paused");
    settle_with(&clock, &pool, &status(429));
    clock.advance(Duration::from_secs(31));
    settle_with(&clock, &pool, &status(200));
    pool.enable("b");
    assert_eq!(
        take(),
        [
            "endpoint_paused a",
            "endpoint_enabled a",
            "endpoint_enabled b"
        ]
    );
}

#[test]
fn paused_event_has_the_source_of_the_wait() {
    let clock = ManualClock::new();
    let sources = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let sources = Arc::clone(&sources);
        move |_: Timestamp, event: &Event<'_>| {
            if let Event::EndpointPaused { source, .. } = event {
                sources.lock().unwrap().push(*source);
            }
        }
    };
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .listener(listener)
        .build();
    let pool = Pool::new("llm", &limiter);
    for name in ["a", "b"] {
        assert!(pool.add(name, "llm.example.com", 1));
    }
    settle_with(&clock, &pool, &status(503));
    let hint = Hint {
        wait: Some(Duration::from_secs(20)),
        source: Some(Source::RetryAfter),
        ..Hint::default()
    };
    settle_with(&clock, &pool, &status(503).with_hint(hint));
    let sources = sources.lock().unwrap();
    assert_eq!(*sources, [Source::Assumed, Source::RetryAfter]);
}

#[test]
fn enabling_ends_isolation_by_exhausted_quota() {
    for names in [&["a", "b"][..], &["a"]] {
        let (clock, pool, _) = endpoint_events(FAST, names);
        let permit = drive(&clock, pool.acquire(any())).expect("a permit");
        let exhausted = Some(policy::outcome::Verdict::QuotaExhausted);
        permit.settle_as(&status(429), exhausted, "insufficient_quota");
        let breaker = || pool.limiter().gate("llm/a").unwrap().gate.breaker.as_str();
        assert_eq!(breaker(), "isolated");
        assert!(pool.enable("a"));
        assert_eq!(breaker(), "closed");
        assert_eq!(pool.view()[0].disabled, None);
    }
}

#[test]
fn update_in_place_preserves_attempts_in_flight_and_learned_state() {
    let (clock, pool, _) = endpoint_events(FAST, &["a", "b"]);
    let under_way = drive(&clock, pool.acquire(any())).expect("a permit");
    assert_eq!(
        (under_way.endpoint().name(), *under_way.endpoint().data()),
        ("a", 1)
    );
    settle_with(&clock, &pool, &status(429));
    let paused = pool.view()[1].paused_until;
    assert!(paused.is_some());

    let mut options = LadderOptions::default();
    options.set("pauses", "5s").unwrap();
    pool.update(Balance::First, options.build().unwrap());
    assert!(pool.replace("a", "llm.example.com", 2) && pool.replace("b", "llm.example.com", 2));
    assert!(!pool.replace("c", "llm.example.com", 2));
    assert!(pool.add("c", "llm.example.com", 2));
    pool.reorder(&["c", "b", "a"]);

    let names: Vec<String> = pool.view().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["c", "b", "a"]);
    assert_eq!(pool.view()[1].paused_until, paused, "it is still paused");
    assert_eq!(pool.view()[2].in_flight, 1);
    assert_eq!(*pool.endpoint("a").unwrap().data(), 2);
    assert_eq!(pool.balance(), Balance::First);
    under_way.settle(&status(503));
    let view = &pool.view()[2];
    assert_eq!((view.in_flight, view.consecutive_errors), (0, 1));
    assert_eq!(
        view.paused_until,
        Some(Timestamp::from_secs(5)),
        "uses the new settings"
    );
    assert_eq!(pool.limiter().gate("llm/a").unwrap().gate.failed, 1);
}

#[test]
fn streaming_response_counts_as_load_of_its_endpoint() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    let permit = drive(&clock, pool.acquire(any())).expect("a permit");
    assert_eq!(permit.endpoint().name(), "a");
    let ok = status(200);
    let in_flight = permit.settle_head(&ok, ok.classify().verdict, "");
    assert_eq!(pool.view()[0].in_flight, 1);
    for _ in 0..3 {
        assert_eq!(send(&clock, &pool, &status(200)), "b");
    }
    drop(in_flight);
    assert_eq!(pool.view()[0].in_flight, 0);
    assert_eq!(send(&clock, &pool, &status(200)), "a");
}

#[test]
fn attempts_in_flight_are_exact_after_many_successes() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    let held = drive(&clock, pool.acquire(any())).expect("a permit");
    assert_eq!(held.endpoint().name(), "a");
    // More than are counted at once without the lock.
    for _ in 0..3000 {
        clock.advance(Duration::from_millis(1));
        assert_eq!(send(&clock, &pool, &status(200)), "b");
    }
    let in_flight = |pool: &Pool<()>| [0, 1].map(|index: usize| pool.view()[index].in_flight);
    assert_eq!(in_flight(&pool), [1, 0]);
    held.settle(&status(200));
    assert_eq!(in_flight(&pool), [0, 0]);
}

#[test]
fn success_clears_an_error_that_does_not_pause() {
    let (clock, pool) = pool(FAST, &["a"]);
    let last_error = |pool: &Pool<()>| pool.view()[0].last_error.clone();
    let mut protection = LadderOptions::default();
    protection.set("enabled", "true").unwrap();
    pool.set_protection(protection.build().unwrap());
    send(&clock, &pool, &status(200));
    send(&clock, &pool, &status(404));
    assert_eq!(last_error(&pool).as_deref(), Some("HTTP 404"));
    send(&clock, &pool, &status(200));
    assert_eq!(last_error(&pool), None);
}

#[test]
fn pool_finds_its_gates_after_they_were_evicted_and_others_took_their_place() {
    let settings: Vec<_> = [("idle_after", "10s"), ("shards", "1")]
        .into_iter()
        .chain(FAST.iter().copied())
        .collect();
    let (clock, pool) = pool(&settings, &["a", "b"]);
    for _ in 0..4 {
        send(&clock, &pool, &status(200));
    }
    clock.advance(Duration::from_secs(60));
    let limiter = pool.limiter();
    assert!(limiter.gate("llm/a").is_none(), "it was idle");
    for key in ["x", "y"] {
        let permit = limiter.try_acquire(key).expect("a new gate admits");
        permit.settle(&status(200));
    }
    for _ in 0..4 {
        send(&clock, &pool, &status(200));
    }
    for (key, succeeded) in [("llm/a", 2), ("llm/b", 2), ("x", 1), ("y", 1)] {
        let gate = limiter.gate(key).expect("it was used").gate;
        assert_eq!(gate.succeeded, succeeded, "{key}");
    }
}

#[test]
fn panicking_listener_leaves_no_attempt_in_flight() {
    let clock = ManualClock::new();
    let panics = |_: Timestamp, event: &Event<'_>| {
        if matches!(event, Event::Settled { .. }) {
            std::panic::resume_unwind(Box::new("meant"));
        }
    };
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .on_event(panics)
        .build();
    let pool = Pool::new("llm", &limiter);
    assert!(pool.add("a", "llm.example.com", ()));
    let permit = drive(&clock, pool.acquire(any())).expect("a permit");
    let settle = std::panic::AssertUnwindSafe(|| permit.settle(&status(200)));
    assert!(std::panic::catch_unwind(settle).is_err());
    assert_eq!(pool.view()[0].in_flight, 0);
}

#[test]
fn adopted_state_of_an_endpoint_decides_from_then_on() {
    let (clock, pool) = pool(FAST, &["a", "b"]);
    assert_eq!(send(&clock, &pool, &status(200)), "a");
    let paused = LadderRecord {
        consecutive_errors: 1,
        pause: Some(Duration::from_secs(30)),
        ..LadderRecord::default()
    };
    assert!(pool.adopt("a", paused.clone()));
    assert!(!pool.adopt("a", paused));
    assert_eq!(send(&clock, &pool, &status(200)), "b");
    assert_eq!(send(&clock, &pool, &status(200)), "b");
    // A success of an endpoint that recovers resets its ladder, not only one that has an error here.
    clock.advance(Duration::from_secs(31));
    assert_eq!(send(&clock, &pool, &status(200)), "a");
    assert_eq!(pool.view()[0].consecutive_errors, 0);
    assert!(!pool.adopt("c", LadderRecord::default()));
}
