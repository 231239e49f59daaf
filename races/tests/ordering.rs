//! What a permit orders: a task that holds the only place of a gate sees everything that earlier
//! holders wrote, whichever way they gave the place up.
//!
//! The library has no `unsafe`, so it cannot contain a data race; but it could admit a task without
//! an order to the one before it, by an atomic with too weak an ordering, and no other test would
//! notice on x86-64. Here the tasks write to memory that nothing but permits protects.

mod unprotected;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tidegate::{
    Ask, AttemptResult, Credential, GateSettings, Limiter, ManualClock, Outcome, Permit, Pool,
    Refresh,
};
use unprotected::{Unprotected, limiter_of};

const KEY: &str = "api.example.com";

const THREADS: usize = 4;

/// How often each thread acts.
const ROUNDS: usize = 250;

fn ok() -> Outcome {
    Outcome::status(200, Duration::from_millis(5))
}

/// Runs `act` some hundred times on each of several threads.
fn on_threads(act: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS).for_each(&act));
        }
    });
}

#[test]
fn holders_of_the_only_place_are_ordered() {
    let limiter = limiter_of(1);
    let counter = Unprotected::new(0);
    on_threads(|round| {
        let permit = limiter.acquire_blocking(KEY).unwrap();
        counter.change(|count| *count += 1);
        match round % 4 {
            0 => drop(permit.settle(&ok())),
            1 => permit.give_back(),
            2 => drop(permit.settle_head(&ok(), None)),
            _ => drop(permit),
        }
    });
    assert_eq!(counter.change(|count| *count), THREADS * ROUNDS);
}

#[test]
fn holder_that_fails_at_once_and_asks_again_is_ordered() {
    let limiter = limiter_of(1);
    let counter = Unprotected::new(0);
    on_threads(|_| {
        let permit = loop {
            match limiter.try_acquire(KEY) {
                Ok(permit) => break permit,
                Err(_) => thread::yield_now(),
            }
        };
        counter.change(|count| *count += 1);
        permit.settle(&ok());
    });
    assert_eq!(counter.change(|count| *count), THREADS * ROUNDS);
}

#[test]
fn permit_that_is_settled_on_another_thread_is_ordered() {
    let limiter = limiter_of(1);
    let counter = Unprotected::new(0);
    let (send, receive) = channel::<Permit<'static>>();
    thread::scope(|scope| {
        scope.spawn(|| {
            for permit in receive {
                counter.change(|count| *count += 1);
                permit.settle(&ok());
            }
        });
        for _ in 0..THREADS {
            let (send, limiter, counter) = (send.clone(), &limiter, &counter);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let permit = block_on(limiter.acquire_owned(KEY)).unwrap();
                    counter.change(|count| *count += 1);
                    send.send(permit).unwrap();
                }
            });
        }
        drop(send);
    });
    assert_eq!(counter.change(|count| *count), 2 * THREADS * ROUNDS);
}

#[test]
fn holders_of_a_shared_key_among_several_are_ordered() {
    let limiter = limiter_of(1);
    let counter = Unprotected::new(0);
    on_threads(|round| {
        let other = ["b", "c"][round % 2];
        let asked = limiter.acquire_blocking(Ask::new(KEY).also(&[other]));
        let permit = asked.unwrap();
        counter.change(|count| *count += 1);
        permit.settle(&ok());
    });
    assert_eq!(counter.change(|count| *count), THREADS * ROUNDS);
}

#[test]
fn holders_of_an_endpoint_are_ordered() {
    let limiter = limiter_of(1);
    let pool = Pool::new("pool", &limiter);
    for name in ["a", "b"] {
        assert!(pool.add(name, "pool.example.com", Unprotected::new(0)));
    }
    on_threads(|round| {
        let permit = block_on(pool.acquire(Ask::any())).unwrap();
        permit.endpoint().data().change(|count| *count += 1);
        // A plain success is settled without the lock of the pool, a 404 is not.
        let status = if round % 8 == 0 { 404 } else { 200 };
        permit.settle(&Outcome::status(status, Duration::from_millis(5)));
    });
    let counts = pool.endpoints().into_iter();
    let counts = counts.map(|endpoint| endpoint.data().change(|count| *count));
    assert_eq!(counts.sum::<usize>(), THREADS * ROUNDS);
}

#[test]
fn attempts_of_calls_are_ordered() {
    let limiter = limiter_of(1);
    let counter = Unprotected::new(0);
    on_threads(|_| {
        let call = limiter.call(KEY);
        let called = call.run(async |attempt| {
            counter.change(|count| *count += 1);
            AttemptResult::new((), attempt.status(200))
        });
        block_on(called).unwrap();
    });
    assert_eq!(counter.change(|count| *count), THREADS * ROUNDS);
}

#[test]
fn refreshes_of_a_credential_are_ordered() {
    let made = Arc::new(Unprotected::new(0));
    let make = {
        let made = Arc::clone(&made);
        move || {
            let made = Arc::clone(&made);
            async move {
                Ok::<_, std::io::Error>(made.change(|count| {
                    *count += 1;
                    *count
                }))
            }
        }
    };
    let credential = Credential::new("token", 0, make);
    on_threads(|_| {
        block_on(credential.refresh(credential.generation())).unwrap();
        assert!(*credential.current() > 0);
    });
    assert_eq!(made.change(|count| *count), *credential.current());
}

#[test]
fn waiter_sees_what_was_written_before_time_moved() {
    let time = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(GateSettings::fixed(1.0))
        .clock(time.clock())
        .build();
    let written: Vec<_> = (0..=ROUNDS).map(|_| Unprotected::new(false)).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            // One token per second and one at the start: the n-th admission, counted from 0, is
            // never before the n-th second.
            for second in 0..=ROUNDS {
                limiter.acquire_blocking(KEY).unwrap().settle(&ok());
                assert!(second == 0 || written[second].change(|is_written| *is_written));
            }
        });
        for written in &written[1..] {
            // Time that moves on before a woken thread runs would take its permit back.
            while limiter.gate(KEY).is_none_or(|view| view.gate.waiting == 0) {
                thread::yield_now();
            }
            written.change(|is_written| *is_written = true);
            time.advance(Duration::from_secs(1));
        }
    });
}

/// The output of `future`; the thread is parked while it waits.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
