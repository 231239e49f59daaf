//! Leaked futures and permits, which are never polled, settled or dropped again.

use std::mem::forget;

use tidegate::{Ask, Limiter};

use crate::support::{Caller, KEY, limiter, load, millis, ok, secs};

const ONE_PER_SECOND: &[(&str, &str)] = &[
    ("strategy", "fixed"),
    ("initial_rate", "1"),
    ("max_in_flight", "1"),
];

fn leak(limiter: &Limiter, ask: Ask<'static>) {
    let mut leaked = Caller::new(limiter.acquire(ask));
    assert!(leaked.poll().is_pending());
    forget(leaked);
}

#[test]
fn leaked_waiter_delays_the_next_until_its_permit_is_taken_back() {
    let (clock, limiter) = limiter(ONE_PER_SECOND);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    leak(&limiter, Ask::new(KEY));
    let mut next = Caller::new(limiter.acquire(KEY));
    assert!(next.poll().is_pending());
    clock.advance(secs(1));
    assert_eq!(load(&limiter, KEY), (1, 1), "the leaked one has a permit");
    clock.advance(millis(4997));
    assert!(!next.is_woken());
    clock.advance(millis(2));
    assert!(next.is_woken());
    assert!(next.poll().is_ready());
}

#[test]
fn given_back_tokens_add_up_for_larger_costs() {
    let (clock, limiter) = limiter(&[
        ("strategy", "fixed"),
        ("initial_rate", "1"),
        ("max_in_flight", "1"),
        ("max_wait", "1h"),
    ]);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    leak(&limiter, Ask::new(KEY));
    let mut dear = Caller::new(limiter.acquire(Ask::new(KEY).cost(20)));
    assert!(dear.poll().is_pending());
    for _ in 0..60 {
        clock.advance(secs(1));
    }
    assert!(dear.is_woken(), "long before its deadline");
    assert!(dear.poll().is_ready());
}

#[test]
fn leaked_waiter_leaves_the_line_at_its_deadline() {
    let (clock, limiter) = limiter(ONE_PER_SECOND);
    let permit = limiter.try_acquire(KEY).unwrap();
    leak(&limiter, Ask::new(KEY).within(secs(10)));
    assert_eq!(load(&limiter, KEY), (1, 1));
    clock.advance(secs(10));
    assert_eq!(load(&limiter, KEY), (1, 0));
    permit.settle(&ok());
}

#[test]
fn gate_with_leaked_waiters_is_evicted() {
    let (clock, limiter) = limiter(ONE_PER_SECOND);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    leak(&limiter, Ask::new(KEY));
    for _ in 0..300 {
        clock.advance(secs(1));
    }
    assert_eq!(limiter.gates(), 0);
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn leaked_acquire_any_returns_all_permits() {
    let (clock, limiter) = limiter(ONE_PER_SECOND);
    for key in ["a", "b"] {
        limiter.try_acquire(key).unwrap().settle(&ok());
    }
    let mut leaked = Caller::new(limiter.acquire_any(&["a", "b"], Ask::any()));
    assert!(leaked.poll().is_pending());
    forget(leaked);
    clock.advance(secs(1));
    assert_eq!((load(&limiter, "a"), load(&limiter, "b")), ((1, 0), (1, 0)));
    clock.advance(secs(5));
    assert_eq!((load(&limiter, "a"), load(&limiter, "b")), ((0, 0), (0, 0)));
}

/// A leaked permit is indistinguishable from a long attempt, so it stays in flight until the
/// process ends, even after a reset.
#[test]
fn leaked_permit_stays_in_flight() {
    let (clock, limiter) = limiter(ONE_PER_SECOND);
    forget(limiter.try_acquire(KEY).unwrap());
    clock.advance(secs(100_000));
    assert!(limiter.reset(KEY));
    assert_eq!(load(&limiter, KEY), (1, 0));
    assert_eq!(limiter.gates(), 1, "and keeps its gate");
    assert!(limiter.try_acquire(KEY).is_err());
}
