//! Waiting under many interleavings of threads.
//!
//! Each test is one small scenario, run some thousand times by a scheduler that decides at every
//! lock which thread runs next: once at random, once with few but well placed switches (PCT), which
//! finds interleavings that random switching is unlikely to. A future that is never woken is a
//! deadlock, which the checker reports, with the schedule that led to it and how to repeat it.
//!
//! A thread like any other moves the time, so it may move before, between and after the steps of the
//! others.

#![cfg(shuttle)]

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use policy::hosts::HostPattern;
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};
use tidegate::{Ask, GateOptions, GateSettings, Limiter, ManualClock, Outcome, Reason};

const ROUNDS: usize = 1000;

/// How many well placed switches PCT makes: enough for every fault known of locks.
const SWITCHES: usize = 4;

fn check(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    let again = Arc::clone(&scenario);
    shuttle::check_random(move || scenario(), ROUNDS);
    shuttle::check_pct(move || again(), ROUNDS, SWITCHES);
}

const KEY: &str = "api.example.com";

fn settings(set: &[(&str, &str)]) -> GateSettings {
    let mut options = GateOptions::default();
    for (name, value) in [("strategy", "fixed"), ("shards", "1")].iter().chain(set) {
        options.set(name, value).expect("a setting of a test");
    }
    options.build().expect("settings of a test fit together")
}

fn limiter(set: &[(&str, &str)]) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(settings(set))
        .clock(clock.clock())
        .build();
    (clock, limiter)
}

/// Plenty of tokens, and one attempt at a time.
const ONE_AT_A_TIME: &[(&str, &str)] = &[("initial_rate", "5000"), ("max_in_flight", "1")];

/// One token per second; a new gate has one.
const ONE_PER_SECOND: &[(&str, &str)] = &[("initial_rate", "1")];

fn ok() -> Outcome {
    Outcome::status(200, Duration::from_millis(1))
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn spawn(act: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::spawn(act)
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

/// Nothing is in flight and nothing is in line.
fn assert_idle(limiter: &Limiter, key: &str) {
    let gate = limiter.gate(key).map(|view| view.gate);
    let load = gate.map(|gate| (gate.in_flight, gate.waiting));
    assert!(matches!(load, None | Some((0, 0))), "{key}: {load:?}");
}

/// Polls once, without a waker.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn freed_place_in_flight_wakes_a_waiting_ask() {
    check(|| {
        let (_, limiter) = limiter(ONE_AT_A_TIME);
        let under_way = Arc::new(AtomicUsize::new(0));
        let threads = [(); 3].map(|()| {
            let (limiter, under_way) = (limiter.clone(), Arc::clone(&under_way));
            spawn(move || {
                let permit = block_on(limiter.acquire(KEY)).expect("it may wait");
                assert_eq!(under_way.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                under_way.fetch_sub(1, Ordering::SeqCst);
                permit.settle(&ok());
            })
        });
        join(threads);
        assert_idle(&limiter, KEY);
        let gate = limiter.gate(KEY).expect("it was just used").gate;
        assert_eq!(gate.admitted, 3);
    });
}

#[test]
fn owned_asks_wait_beside_asks_that_fail_fast() {
    check(|| {
        let (_, limiter) = limiter(ONE_AT_A_TIME);
        let owned = [(); 2].map(|()| {
            let asked = limiter.acquire_owned(KEY);
            spawn(move || {
                let permit = block_on(asked).expect("it may wait");
                permit.settle(&ok());
            })
        });
        let hasty = limiter.clone();
        let hasty = spawn(move || {
            // Nothing wakes it later: it is ready at once, one way or the other.
            let asked = hasty.acquire(Ask::new(KEY).fail_fast());
            if let Ok(permit) = block_on(asked) {
                permit.settle(&ok());
            }
        });
        join(owned.into_iter().chain([hasty]));
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn waiting_ask_is_woken_when_its_token_is_due() {
    check(|| {
        let (clock, limiter) = limiter(ONE_PER_SECOND);
        limiter.try_acquire(KEY).expect("a new gate").settle(&ok());
        let waits = limiter.clone();
        let waits = spawn(move || {
            let permit = block_on(waits.acquire(KEY)).expect("it may wait");
            permit.settle(&ok());
        });
        let time = spawn(move || {
            clock.advance(Duration::from_millis(500));
            clock.advance(Duration::from_millis(500));
        });
        join([waits, time]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn every_ask_gets_a_token_in_any_order() {
    check(|| {
        let (clock, limiter) = limiter(&[("initial_rate", "5000")]);
        limiter.try_acquire(KEY).expect("a new gate").settle(&ok());
        let threads = [(); 3].map(|()| {
            let limiter = limiter.clone();
            spawn(move || {
                let permit = limiter.try_acquire(KEY);
                permit.expect("ten are left").settle(&ok());
            })
        });
        let time = spawn(move || clock.advance(secs(1)));
        join(threads);
        join([time]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn known_limit_holds_in_any_order_of_asks() {
    check(|| {
        let (clock, limiter) = limiter(&[("initial_rate", "5000"), ("limits", "2/1s")]);
        limiter.isolate(KEY).expect("a new gate");
        limiter.release(KEY);
        let left = Arc::new(Mutex::new(Vec::new()));
        let threads = [1, 2, 1].map(|cost| {
            let (limiter, left) = (limiter.clone(), Arc::clone(&left));
            spawn(move || {
                let ask = Ask::new(KEY).cost(cost).within(Duration::ZERO);
                for _ in 0..2 {
                    if let Ok(permit) = block_on(limiter.acquire(ask)) {
                        let at = permit.admitted_at();
                        left.lock().expect("no thread panics").push((at, cost));
                        permit.settle(&ok());
                    }
                }
            })
        });
        let time = spawn(move || {
            for _ in 0..4 {
                clock.advance(Duration::from_millis(500));
            }
        });
        join(threads);
        join([time]);
        let left = left.lock().expect("no thread panics");
        for &(end, _) in left.iter() {
            let stretch = left
                .iter()
                .filter(|(at, _)| *at <= end && *at + secs(1) > end);
            let units: u32 = stretch.map(|(_, cost)| cost).sum();
            assert!(units <= 2, "{left:?}");
        }
    });
}

#[test]
fn asks_leave_in_order() {
    check(|| {
        let (clock, limiter) = limiter(ONE_PER_SECOND);
        limiter.try_acquire(KEY).expect("a new gate").settle(&ok());
        let waits = limiter.clone();
        let mut waits = Box::pin(async move {
            let permit = waits.acquire(KEY).await.expect("it may wait");
            permit.settle(&ok());
        });
        assert!(poll_once(waits.as_mut()).is_pending(), "it is in line");
        let waits = spawn(move || block_on(waits));
        let asks = limiter.clone();
        let asks = spawn(move || {
            for _ in 0..3 {
                assert!(
                    asks.try_acquire(KEY).is_err(),
                    "there is one token, and not for it"
                );
            }
        });
        let time = spawn(move || clock.advance(secs(1)));
        join([waits, asks, time]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn a_dropped_future_passes_on_what_it_was_given() {
    check(|| {
        let (_, limiter) = limiter(ONE_AT_A_TIME);
        let permit = limiter.try_acquire(KEY).expect("a new gate").into_owned();
        let gives_up = limiter.clone();
        let gives_up = spawn(move || {
            let mut future = pin!(gives_up.acquire(KEY));
            let _ = poll_once(future.as_mut());
            thread::yield_now();
        });
        let waits = limiter.clone();
        let waits = spawn(move || {
            let permit = block_on(waits.acquire(KEY)).expect("it may wait");
            permit.settle(&ok());
        });
        let settles = spawn(move || {
            permit.settle(&ok());
        });
        join([gives_up, waits, settles]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn a_dropped_future_passes_on_its_token_when_time_comes() {
    check(|| {
        let (clock, limiter) = limiter(ONE_PER_SECOND);
        limiter.try_acquire(KEY).expect("a new gate").settle(&ok());
        let gives_up = limiter.clone();
        let gives_up = spawn(move || {
            let mut future = pin!(gives_up.acquire(KEY));
            // It may have its permit at once if time came first, and gives it back then too.
            if let Poll::Ready(Ok(permit)) = poll_once(future.as_mut()) {
                permit.give_back();
            }
        });
        let waits = limiter.clone();
        let waits = spawn(move || {
            let permit = block_on(waits.acquire(KEY)).expect("it may wait");
            permit.settle(&ok());
        });
        let time = spawn(move || clock.advance(secs(1)));
        join([gives_up, waits, time]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn permit_of_a_leaked_future_passes_to_the_next_ask() {
    check(|| {
        let (clock, limiter) = limiter(ONE_AT_A_TIME);
        let permit = limiter.try_acquire(KEY).expect("a new gate").into_owned();
        let leaked = limiter.clone();
        let leaks = spawn(move || {
            // Owns the limiter, for it is never dropped.
            let mut future = Box::pin(async move { leaked.acquire(KEY).await.is_ok() });
            let _ = poll_once(future.as_mut());
            std::mem::forget(future);
        });
        let waits = limiter.clone();
        let waits = spawn(move || {
            let permit = block_on(waits.acquire(KEY)).expect("it may wait");
            permit.settle(&ok());
        });
        permit.settle(&ok());
        join([leaks]);
        // Twice, because the waiting ask may itself collect too late, and is behind it then.
        clock.advance(secs(5));
        clock.advance(secs(5));
        join([waits]);
        // It may have been the last in line.
        clock.advance(secs(5));
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn waiting_ask_leaves_or_expires_at_its_deadline() {
    check(|| {
        let (clock, limiter) = limiter(ONE_AT_A_TIME);
        let permit = limiter.try_acquire(KEY).expect("a new gate").into_owned();
        let waits = limiter.clone();
        let waits = spawn(
            move || match block_on(waits.acquire(Ask::new(KEY).within(secs(1)))) {
                Ok(permit) => {
                    permit.settle(&ok());
                }
                // The one permit may still be out, or be back and not collected in time.
                Err(refusal) => assert!(
                    matches!(refusal.reason(), Reason::InFlight | Reason::Deadline),
                    "{refusal}"
                ),
            },
        );
        let settles = spawn(move || {
            permit.settle(&ok());
        });
        let time = spawn(move || clock.advance(secs(1)));
        join([waits, settles, time]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn release_of_an_isolated_gate_admits_waiting_asks() {
    check(|| {
        let (clock, limiter) = limiter(ONE_PER_SECOND);
        limiter.try_acquire(KEY).expect("a new gate").settle(&ok());
        let waits = limiter.clone();
        let waits = spawn(move || {
            // Refused only if the gate was isolated before it asked.
            match block_on(waits.acquire(KEY)) {
                Ok(permit) => {
                    permit.settle(&ok());
                }
                Err(refusal) => assert_eq!(refusal.reason(), Reason::BreakerOpen),
            }
        });
        let person = limiter.clone();
        let person = spawn(move || {
            person.isolate(KEY).expect("there is such a gate");
            person.release(KEY);
        });
        let time = spawn(move || clock.advance(secs(2)));
        join([waits, person, time]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn asks_for_several_gates_in_other_orders_do_not_wait_for_each_other() {
    check(|| {
        let (_, limiter) = limiter(ONE_AT_A_TIME);
        let threads = [("a", ["b"]), ("b", ["a"])].map(|(key, also)| {
            let limiter = limiter.clone();
            spawn(move || {
                let ask = Ask::new(key).also(&also);
                let permit = block_on(limiter.acquire(ask)).expect("it may wait");
                permit.settle(&ok());
            })
        });
        join(threads);
        for key in ["a", "b"] {
            assert_idle(&limiter, key);
        }
    });
}

#[test]
fn acquire_any_takes_one_permit_and_returns_the_others() {
    check(|| {
        let (_, limiter) = limiter(ONE_AT_A_TIME);
        let settles = ["a", "b"].map(|key| {
            let permit = limiter.try_acquire(key).expect("a new gate").into_owned();
            spawn(move || {
                permit.settle(&ok());
            })
        });
        let threads = [(); 2].map(|()| {
            let limiter = limiter.clone();
            spawn(move || {
                let any = limiter.acquire_any(&["a", "b"], Ask::new(""));
                let (_, permit) = block_on(any).expect("it may wait");
                permit.settle(&ok());
            })
        });
        join(settles);
        join(threads);
        for key in ["a", "b"] {
            assert_idle(&limiter, key);
        }
    });
}

#[test]
fn waiting_ask_leaves_when_new_settings_allow_it() {
    check(|| {
        let (_, limiter) = limiter(ONE_AT_A_TIME);
        let permit = limiter.try_acquire(KEY).expect("a new gate");
        let waits = limiter.clone();
        let waits = spawn(move || {
            let permit = block_on(waits.acquire(KEY)).expect("it may wait");
            permit.settle(&ok());
        });
        let person = limiter.clone();
        let person = spawn(move || {
            let wider = settings(&[("initial_rate", "5000"), ("max_in_flight", "2")]);
            assert_eq!(person.set_host(KEY.parse().expect("a host"), wider), Ok(()));
        });
        join([waits, person]);
        permit.settle(&ok());
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn of_two_changes_of_settings_none_is_lost() {
    check(|| {
        let (_, limiter) = limiter(&[]);
        let threads = ["a.example.com", "b.example.com"].map(|host| {
            let limiter = limiter.clone();
            let pattern: HostPattern = host.parse().expect("a host");
            spawn(move || {
                assert_eq!(
                    limiter.set_host(pattern, settings(&[("max_in_flight", "7")])),
                    Ok(())
                );
            })
        });
        join(threads);
        for host in ["a.example.com", "b.example.com"] {
            assert_eq!(limiter.settings(host).gate.max_in_flight(), 7, "{host}");
        }
    });
}

#[test]
fn idle_gates_go_however_they_came() {
    check(|| {
        let (clock, limiter) = limiter(&[("idle_after", "10s")]);
        limiter.try_acquire("a").expect("a new gate").settle(&ok());
        let asks = limiter.clone();
        let asks = spawn(move || {
            asks.try_acquire("b").expect("a new gate").settle(&ok());
        });
        let moves = clock.clone();
        let time = spawn(move || {
            moves.advance(secs(5));
            moves.advance(secs(5));
            moves.advance(secs(5));
        });
        join([asks, time]);
        clock.advance(secs(60));
        assert_eq!(limiter.gates(), 0);
    });
}

#[test]
fn there_is_always_room_if_a_gate_can_go() {
    check(|| {
        let (_, limiter) = limiter(&[("max_gates", "2"), ("initial_rate", "5000")]);
        let threads = [["a", "b"], ["c", "d"]].map(|keys| {
            let limiter = limiter.clone();
            spawn(move || {
                for key in keys {
                    let permit = limiter
                        .try_acquire(key)
                        .expect("the other holds one at most");
                    assert!(
                        limiter.gates() <= 4,
                        "two, and two that are about to be evicted"
                    );
                    permit.settle(&ok());
                }
            })
        });
        join(threads);
        assert!(limiter.gates() <= 2);
    });
}

#[test]
fn a_gate_does_not_go_while_anyone_needs_it() {
    check(|| {
        let (clock, limiter) = limiter(&[("idle_after", "1s"), ("initial_rate", "1000")]);
        let uses = limiter.clone();
        let uses = spawn(move || {
            for _ in 0..2 {
                let permit = block_on(uses.acquire(KEY)).expect("it may wait");
                permit.settle(&ok());
            }
        });
        let evicts = limiter.clone();
        let evicts = spawn(move || {
            evicts.evict_idle();
            evicts.evict_idle();
        });
        let moves = clock.clone();
        let time = spawn(move || moves.advance(secs(1)));
        join([uses, evicts, time]);
        assert_idle(&limiter, KEY);
    });
}

#[test]
fn a_limiter_may_go_while_its_alarms_ring() {
    check(|| {
        let (clock, limiter) = limiter(ONE_PER_SECOND);
        limiter.try_acquire(KEY).expect("a new gate").settle(&ok());
        let ends = spawn(move || {
            let mut future = Box::pin(limiter.acquire(KEY));
            let _ = poll_once(future.as_mut());
            drop(future);
            drop(limiter);
        });
        let moves = clock.clone();
        let time = spawn(move || moves.advance(secs(1)));
        join([ends, time]);
        clock.advance(secs(1000));
        assert_eq!(clock.next_alarm(), None, "nothing is left");
    });
}
