//! Waiting for something shared to change: an endpoint of a pool, a credential.
//!
//! Run as `waiting.rs` is. Time does not move here, so that only the change can wake a future: a
//! missed wake-up is a deadlock.

#![cfg(shuttle)]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;
use tidegate::{Ask, Credential, GateOptions, Limiter, ManualClock, Outcome, Pool, Refresh};

const ROUNDS: usize = 1000;

/// How many well placed switches PCT makes: enough for every fault known of locks.
const SWITCHES: usize = 4;

fn check(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    let again = Arc::clone(&scenario);
    shuttle::check_random(move || scenario(), ROUNDS);
    shuttle::check_pct(move || again(), ROUNDS, SWITCHES);
}

/// Polls once, without a waker.
fn poll_once<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn status(status: u16) -> Outcome {
    Outcome::status(status, Duration::from_millis(1))
}

/// A pool of two endpoints with plenty of tokens.
fn pool(set: &[(&str, &str)]) -> Pool<()> {
    let mut options = GateOptions::default();
    let common = [
        ("shards", "1"),
        ("strategy", "fixed"),
        ("initial_rate", "5000"),
        ("max_wait", "60s"),
    ];
    for (name, value) in common.iter().chain(set) {
        options.set(name, value).expect("a setting of a test");
    }
    let gate = options.build().expect("settings of a test fit together");
    let clock = ManualClock::new();
    let limiter = Limiter::builder().gate(gate).clock(clock.clock()).build();
    let pool = Pool::new("llm", &limiter);
    for name in ["a", "b"] {
        assert!(pool.add(name, "llm.example.com", ()));
    }
    pool
}

/// A pool whose two endpoints are paused.
fn paused() -> Arc<Pool<()>> {
    let pool = pool(&[]);
    for _ in 0..2 {
        let permit = block_on(pool.acquire(Ask::new(""))).expect("a new endpoint");
        permit.settle(&status(503));
    }
    Arc::new(pool)
}

#[test]
fn enabling_an_endpoint_wakes_waiting_asks() {
    check(|| {
        let pool = paused();
        let waits = Arc::clone(&pool);
        let waits = thread::spawn(move || {
            let permit = block_on(waits.acquire(Ask::new(""))).expect("it may wait");
            permit.settle(&status(200));
        });
        let leaves = Arc::clone(&pool);
        let leaves = thread::spawn(move || {
            let mut future = pin!(leaves.acquire(Ask::new("")));
            // It may have its permit at once if the endpoint was enabled first.
            if let Poll::Ready(Ok(permit)) = poll_once(future.as_mut()) {
                permit.give_back();
            }
        });
        let person = thread::spawn(move || assert!(pool.enable("b")));
        for thread in [waits, leaves, person] {
            thread.join().expect("no thread panics");
        }
    });
}

#[test]
fn asks_at_a_pool_pass_each_other_the_places_of_its_endpoints() {
    check(|| {
        let pool = pool(&[("max_in_flight", "1")]);
        let senders = [(); 3].map(|()| {
            let pool = pool.clone();
            thread::spawn(move || {
                let permit = block_on(pool.acquire(Ask::any())).expect("it may wait");
                permit.settle(&status(200));
            })
        });
        // Asks look again after each change, and keep their places.
        let person = pool.clone();
        let person = thread::spawn(move || {
            assert!(person.disable("b") && person.enable("b"));
        });
        for thread in senders.into_iter().chain([person]) {
            thread.join().expect("no thread panics");
        }
        assert!(pool.view().iter().all(|endpoint| endpoint.in_flight == 0));
    });
}

#[test]
fn successes_without_the_lock_and_errors_are_counted_once() {
    check(|| {
        let pool = pool(&[]);
        let statuses = [[200, 503], [200, 404], [200, 200]];
        let senders = statuses.map(|statuses| {
            let pool = pool.clone();
            thread::spawn(move || {
                for each in statuses {
                    let acquired = pin!(pool.acquire(Ask::any()));
                    // Both endpoints may be paused by then.
                    if let Poll::Ready(Ok(permit)) = poll_once(acquired) {
                        permit.settle(&status(each));
                    }
                }
            })
        });
        for thread in senders {
            thread.join().expect("no thread panics");
        }
        let endpoints = pool.view();
        assert!(endpoints.iter().all(|endpoint| endpoint.in_flight == 0));
        let errors: u32 = endpoints
            .iter()
            .map(|endpoint| endpoint.consecutive_errors)
            .sum();
        assert_eq!(
            errors, 1,
            "a success does not end a pause that started after it"
        );
    });
}

#[test]
fn waiting_call_takes_over_a_cancelled_refresh() {
    check(|| {
        let credential = Arc::new(Credential::new("crm", 0, || {
            let mut is_asked = false;
            poll_fn(move |context| {
                if is_asked {
                    return Poll::Ready(Ok::<_, &str>(1));
                }
                is_asked = true;
                context.waker().wake_by_ref();
                Poll::Pending
            })
        }));
        let cancelled = Arc::clone(&credential);
        let cancelled = thread::spawn(move || {
            let mut refresh = cancelled.refresh(0);
            let _ = poll_once(refresh.as_mut());
        });
        let waits = [(); 2].map(|()| {
            let credential = Arc::clone(&credential);
            thread::spawn(move || block_on(credential.refresh(0)).expect("it succeeds"))
        });
        cancelled.join().expect("no thread panics");
        for thread in waits {
            thread.join().expect("no thread panics");
        }
        assert_eq!(credential.generation(), 1);
    });
}
