//! A future may be dropped at any point. Nothing is lost by it: the next one leaves exactly
//! when it would have left without the dropped one, or at once if that time has passed.

use std::task::Poll;
use std::time::Duration;

use policy::time::Timestamp;
use tidegate::{Ask, Limiter, ManualClock};

use crate::support::{Caller, KEY, limiter, load, millis, ok, secs};

/// What happens to the future that will be dropped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Poll,
    /// Time moves on by so many milliseconds.
    Wait(u64),
}
use Step::{Poll as Polled, Wait};

/// It joins the line, is woken for nothing, gets its permit after a second and does not collect
/// it, not even within the five seconds it has.
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

/// The gates of the tests: one token per second, and all of them used up.
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

/// Plays the first `count` steps of a script to a future that `begin` makes, drops it, and says
/// when that was and when the ask at [`KEY`] left that came after it.
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
            // It comes right after the first, whatever that does.
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
    assert_eq!(next.wakes(), 1, "once, and not in vain");
    assert_eq!(load(&limiter, KEY), (0, 0));
    assert_eq!(load(&limiter, OTHER), (0, 0));
    (dropped_at, left.expect("the next one leaves"))
}

/// Advances time, alarm by alarm; woken futures collect at once and settle.
fn advance(clock: &ManualClock, by: Duration, next: &mut Caller<'_>, left: &mut Option<Timestamp>) {
    let target = clock.clock().now() + by;
    loop {
        if left.is_none() && next.is_woken() {
            let Poll::Ready(Ok(permit)) = next.poll() else {
                panic!("woken in vain");
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

/// Times of wake-ups at one gate lie at least this far apart.
const GRAIN: Duration = Duration::from_micros(500);

/// Drops the future after every prefix of the script.
fn nothing_is_lost(set: &[(&str, &str)], begin: impl for<'a> Fn(&'a Limiter) -> Caller<'a>) {
    let (_, alone) = leaves_after_drop(set, &[], &begin);
    for count in 0..=NEVER_COLLECTS.len() {
        let script = &NEVER_COLLECTS[..count];
        let (dropped_at, left) = leaves_after_drop(set, script, &begin);
        let second = alone + secs(1);
        let forfeited = alone + secs(5) + GRAIN;
        let latest = if dropped_at < alone {
            alone
        } else {
            // The token it did not collect is there when it is dropped or forfeits it; another
            // comes a second after the first.
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
fn a_dropped_acquire_loses_nothing() {
    for set in [ONE_PER_SECOND, ONE_AT_A_TIME] {
        nothing_is_lost(set, |limiter| Caller::new(limiter.acquire(KEY)));
    }
}

#[test]
fn a_dropped_acquire_of_several_keys_loses_nothing() {
    for set in [ONE_PER_SECOND, ONE_AT_A_TIME] {
        nothing_is_lost(set, |limiter| {
            Caller::new(limiter.acquire(Ask::new(KEY).also(&[OTHER])))
        });
        nothing_is_lost(set, |limiter| {
            Caller::new(limiter.acquire(Ask::new(OTHER).also(&[KEY])))
        });
    }
}

#[test]
fn a_dropped_acquire_any_loses_nothing() {
    for set in [ONE_PER_SECOND, ONE_AT_A_TIME] {
        nothing_is_lost(set, |limiter| any_of(limiter, &[KEY, OTHER]));
        nothing_is_lost(set, |limiter| any_of(limiter, &[OTHER, KEY]));
    }
}

fn any_of<'a>(limiter: &'a Limiter, keys: &'a [&'a str]) -> Caller<'a> {
    let permit = limiter.acquire_any(keys, Ask::new(""));
    Caller::new(async { permit.await.map(|(_, permit)| permit) })
}

#[test]
fn forfeited_permit_is_asked_for_anew() {
    let (clock, limiter) = used_up(ONE_AT_A_TIME);
    let mut slow = Caller::new(limiter.acquire(KEY));
    assert!(slow.poll().is_pending());
    clock.advance(secs(1));
    assert!(slow.is_woken());
    assert_eq!(load(&limiter, KEY), (1, 0));
    clock.advance(secs(6));
    assert_eq!(load(&limiter, KEY), (0, 0), "taken back");
    let Poll::Ready(Ok(permit)) = slow.poll() else {
        panic!("there is a token");
    };
    assert_eq!(load(&limiter, KEY), (1, 0));
    permit.settle(&ok());
    assert_eq!(load(&limiter, KEY), (0, 0));
}

#[test]
fn asking_anew_keeps_the_deadline() {
    let (clock, limiter) = used_up(ONE_AT_A_TIME);
    let mut slow = Caller::new(limiter.acquire(KEY));
    assert!(slow.poll().is_pending());
    clock.advance(secs(6));
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
fn a_future_that_was_never_polled_asked_nothing() {
    let (_, limiter) = used_up(ONE_PER_SECOND);
    let before = limiter.snapshot(tidegate::Sort::Key, 0).totals;
    drop(Caller::new(limiter.acquire("another")));
    drop(Caller::new(
        limiter.acquire(Ask::new("another").also(&["third"])),
    ));
    drop(any_of(&limiter, &["another", "third"]));
    assert_eq!(limiter.snapshot(tidegate::Sort::Key, 0).totals, before);
}
