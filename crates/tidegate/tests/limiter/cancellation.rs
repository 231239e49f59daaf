//! A future may be dropped at any point without losing a token: the next ask leaves exactly when it
//! would have left without the dropped one, or at once if that time has passed.

use std::task::Poll;
use std::time::Duration;

use policy::time::Timestamp;
use tidegate::{Ask, Limiter, ManualClock};

use crate::support::{Caller, KEY, limiter, load, millis, ok, secs};

/// A step of the future that will be dropped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Poll,
    /// Advances time by this many milliseconds.
    Wait(u64),
}
use Step::{Poll as Polled, Wait};

/// Joins the line, is polled spuriously, gets its permit after a second and does not collect it
/// within five seconds.
const NEVER_COLLECTS: &[Step] = &[
    Polled,
    Wait(400),
    Polled,
    Wait(500),
    Polled,
    Wait(98),
    Wait(1),
    Wait(1000),
    Wait(3000),
    Wait(2000),
    Wait(5000),
];

/// Gates with one token per second, all used up.
const ONE_PER_SECOND: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1")];
const ONE_AT_A_TIME: &[(&str, &str)] = &[
    ("strategy", "fixed"),
    ("initial_rate", "1"),
    ("max_in_flight", "1"),
];
const OTHER: &str = "account:42";

fn used_up(set: &[(&str, &str)]) -> (ManualClock, Limiter) {
    let (clock, limiter) = limiter(set);
    for key in [KEY, OTHER] {
        let permit = limiter.try_acquire(key).expect("a new gate has a token");
        permit.settle(&ok());
    }
    (clock, limiter)
}

/// Runs the first `count` steps of a script on the future of `begin`, drops it, and returns when
/// that was and when the next ask at [`KEY`] left.
fn leaves_after_drop(
    set: &[(&str, &str)],
    script: &[Step],
    begin: impl for<'a> Fn(&'a Limiter) -> Caller<'a>,
) -> (Timestamp, Timestamp) {
    let (clock, limiter) = used_up(set);
    let mut dropped = begin(&limiter);
    let mut next = Caller::new(limiter.acquire(KEY));
    let mut left = None;
    for (number, step) in script.iter().enumerate() {
        match step {
            Polled => assert!(dropped.poll().is_pending(), "step {number}"),
            Wait(by) => advance(&clock, millis(*by), &mut next, &mut left),
        }
        if number == 0 {
            // It joins right after the first.
            assert!(next.poll().is_pending());
        }
    }
    if script.is_empty() {
        assert!(next.poll().is_pending());
    }
    let dropped_at = limiter.clock().now();
    drop(dropped);
    advance(&clock, Duration::ZERO, &mut next, &mut left);
    advance(&clock, secs(20), &mut next, &mut left);
    assert_eq!(next.wakeups(), 1, "once, and not in vain");
    assert_eq!(load(&limiter, KEY), (0, 0));
    assert_eq!(load(&limiter, OTHER), (0, 0));
    (dropped_at, left.expect("the next ask leaves"))
}

/// Advances time, alarm by alarm; woken futures collect and settle at once.
fn advance(clock: &ManualClock, by: Duration, next: &mut Caller<'_>, left: &mut Option<Timestamp>) {
    let target = clock.clock().now() + by;
    loop {
        if left.is_none() && next.is_woken() {
            let Poll::Ready(Ok(permit)) = next.poll() else {
                panic!("spurious wakeup");
            };
            *left = Some(permit.admitted_at());
            permit.settle(&ok());
        }
        match clock.next_alarm().filter(|at| *at <= target) {
            Some(at) => clock.advance_to(at),
            None => break,
        }
    }
    clock.advance_to(target);
}

/// The minimum time between wakeups of one gate.
const GRAIN: Duration = Duration::from_micros(500);

/// Drops the future after every prefix of the script.
fn check_no_token_is_lost(set: &[(&str, &str)], begin: impl for<'a> Fn(&'a Limiter) -> Caller<'a>) {
    let (_, alone) = leaves_after_drop(set, &[], &begin);
    for count in 0..=NEVER_COLLECTS.len() {
        let script = &NEVER_COLLECTS[..count];
        let (dropped_at, left) = leaves_after_drop(set, script, &begin);
        let second = alone + secs(1);
        let forfeited = alone + secs(5) + GRAIN;
        let latest = if dropped_at < alone {
            alone
        } else {
            // The token it did not collect is returned when the future is dropped or forfeits it;
            // another one is refilled a second after the first.
            let freed = dropped_at.min(forfeited);
            if set == ONE_AT_A_TIME {
                freed
            } else {
                freed.min(second)
            }
        };
        assert!(
            alone <= left && left <= latest + GRAIN,
            "dropped after {script:?} at {dropped_at:?}: left {left:?}, expected {latest:?}"
        );
    }
}

#[test]
fn dropping_acquire_loses_no_token() {
    for set in [ONE_PER_SECOND, ONE_AT_A_TIME] {
        check_no_token_is_lost(set, |limiter| Caller::new(limiter.acquire(KEY)));
    }
}

#[test]
fn dropping_acquire_of_several_keys_loses_no_token() {
    for set in [ONE_PER_SECOND, ONE_AT_A_TIME] {
        check_no_token_is_lost(set, |limiter| {
            Caller::new(limiter.acquire(Ask::new(KEY).also(&[OTHER])))
        });
        check_no_token_is_lost(set, |limiter| {
            Caller::new(limiter.acquire(Ask::new(OTHER).also(&[KEY])))
        });
    }
}

#[test]
fn dropping_acquire_any_loses_no_token() {
    for set in [ONE_PER_SECOND, ONE_AT_A_TIME] {
        check_no_token_is_lost(set, |limiter| any_of(limiter, &[KEY, OTHER]));
        check_no_token_is_lost(set, |limiter| any_of(limiter, &[OTHER, KEY]));
    }
}

fn any_of<'a>(limiter: &'a Limiter, keys: &'a [&'a str]) -> Caller<'a> {
    let permit = limiter.acquire_any(keys, Ask::any());
    Caller::new(async { permit.await.map(|(_, permit)| permit) })
}

#[test]
fn asks_again_after_a_forfeited_permit() {
    let (clock, limiter) = used_up(ONE_AT_A_TIME);
    let mut slow = Caller::new(limiter.acquire(KEY));
    assert!(slow.poll().is_pending());
    clock.advance(secs(1));
    assert!(slow.is_woken());
    assert_eq!(load(&limiter, KEY), (1, 0));
    clock.advance(secs(6));
    assert_eq!(load(&limiter, KEY), (0, 0), "taken back");
    let Poll::Ready(Ok(permit)) = slow.poll() else {
        panic!("a token is available");
    };
    assert_eq!(load(&limiter, KEY), (1, 0));
    permit.settle(&ok());
    assert_eq!(load(&limiter, KEY), (0, 0));
}

#[test]
fn asking_again_keeps_the_deadline() {
    let (clock, limiter) = used_up(ONE_AT_A_TIME);
    let mut slow = Caller::new(limiter.acquire(KEY));
    assert!(slow.poll().is_pending());
    clock.advance(secs(1));
    clock.advance(secs(5));
    let permit = limiter.try_acquire(KEY).unwrap();
    assert!(slow.poll().is_pending(), "it asks once more");
    clock.advance(secs(23));
    assert!(!slow.is_woken());
    clock.advance(secs(1));
    assert!(slow.is_woken(), "30 s after it asked first");
    assert!(matches!(slow.poll(), Poll::Ready(Err(_))));
    let totals = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    assert_eq!((totals.requests, totals.denied), (4, 1));
    permit.settle(&ok());
}

#[test]
fn unpolled_future_does_not_ask() {
    let (_, limiter) = used_up(ONE_PER_SECOND);
    let before = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    drop(Caller::new(limiter.acquire("another")));
    drop(Caller::new(
        limiter.acquire(Ask::new("another").also(&["third"])),
    ));
    drop(any_of(&limiter, &["another", "third"]));
    assert_eq!(limiter.snapshot(tidegate::Sort::Key, 0).totals, before);
}
