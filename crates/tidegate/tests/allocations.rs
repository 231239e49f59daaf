//! A granted ask and its success allocate nothing, and a listener costs nothing where there is none.
//! Failures and quotas in headers allocate once.
//!
//! One test in a process of its own: allocations of other threads would be counted too.

use std::alloc::System;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use policy::gate::GateOptions;
use policy::hint::Hint;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate::event::{Event, EventListener};
use tidegate::{Ask, GateSettings, Limiter, LimiterBuilder, ManualClock, Outcome, Pool, Timestamp};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How often `act` allocates, called a hundred times.
fn allocations(mut act: impl FnMut()) -> usize {
    let region = Region::new(ALLOCATOR);
    for _ in 0..100 {
        act();
    }
    let change = region.change();
    change.allocations + change.reallocations
}

/// Allocations of a hundred attempts at a gate, of a hundred that may wait, of a hundred that are dropped,
/// and of a hundred through a pool of three.
fn attempts(change: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> [usize; 4] {
    let clock = ManualClock::new();
    let fast = GateSettings::fixed(1_000_000.0);
    let builder = Limiter::builder().gate(fast).clock(clock.clock());
    let limiter = change(builder).build();
    let pool = Pool::new("llm", &limiter);
    for name in ["a", "b", "c"] {
        assert!(pool.add(name, "llm.example.com", ()));
    }
    let ok = Outcome::status(200, Duration::from_millis(20));
    let at_gate = || {
        clock.advance(Duration::from_millis(1));
        let permit = limiter.try_acquire("api.example.com").expect("a token");
        permit.settle(&ok);
    };
    let may_wait = || {
        clock.advance(Duration::from_millis(1));
        let mut context = Context::from_waker(Waker::noop());
        let acquire = pin!(limiter.acquire("api.example.com"));
        let Poll::Ready(Ok(permit)) = acquire.poll(&mut context) else {
            panic!("expected a permit at once");
        };
        permit.settle(&ok);
    };
    let dropped = || {
        clock.advance(Duration::from_millis(1));
        drop(limiter.try_acquire("api.example.com").expect("a token"));
    };
    let through_pool = || {
        clock.advance(Duration::from_millis(1));
        let mut context = Context::from_waker(Waker::noop());
        let acquire = pin!(pool.acquire(Ask::any()));
        let Poll::Ready(Ok(permit)) = acquire.poll(&mut context) else {
            panic!("expected a permit at once");
        };
        permit.settle(&ok);
    };
    // The gates are made here.
    for _ in 0..100 {
        at_gate();
        may_wait();
        dropped();
        through_pool();
    }
    [
        allocations(at_gate),
        allocations(may_wait),
        allocations(dropped),
        allocations(through_pool),
    ]
}

/// Allocations of a hundred attempts of which every third fails, and of a hundred whose responses tell a
/// quota, each at a gate that had only plain successes before.
fn failures_and_quotas() -> [usize; 2] {
    let clock = ManualClock::new();
    let mut fast = GateOptions::default();
    fast.set("initial_rate", "1000").expect("a rate");
    let fast = fast.build().expect("valid settings");
    let limiter = Limiter::builder().gate(fast).clock(clock.clock()).build();
    let attempt = |key: &str, outcome: &Outcome| {
        clock.advance(Duration::from_millis(1));
        limiter.try_acquire(key).expect("a token").settle(outcome);
    };
    let ok = Outcome::status(200, Duration::from_millis(20));
    for key in ["failures", "quotas"] {
        attempt(key, &ok);
    }
    let failed = Outcome::status(500, Duration::from_millis(20));
    let quota = ok.clone().with_hint(Hint {
        remaining: Some(1000),
        reset: Some(Duration::from_secs(60)),
        ..Hint::default()
    });
    let mut count = 0;
    let failures = allocations(|| {
        count += 1;
        attempt("failures", if count % 3 == 0 { &failed } else { &ok });
    });
    [failures, allocations(|| attempt("quotas", &quota))]
}

/// A listener for holds, breakers and endpoints.
struct ChangesOnly;

impl EventListener for ChangesOnly {
    fn on_event(&self, _at: Timestamp, _event: &Event<'_>) {}

    fn wants_everything(&self) -> bool {
        false
    }
}

#[test]
fn attempts_allocate_nothing_unless_a_listener_wants_each_of_them() {
    assert_eq!(attempts(|builder| builder), [0; 4]);
    let [at_gate, may_wait, _, through_pool] = attempts(|builder| builder.listener(ChangesOnly));
    assert_eq!((at_gate, may_wait, through_pool), (0, 0, 0));
    let everything = attempts(|builder| builder.on_event(|_, _| {}));
    assert!(everything.iter().all(|count| *count > 0), "keys are copied");
    assert_eq!(failures_and_quotas(), [1, 1]);
}
