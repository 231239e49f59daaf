//! Waiting: order, pace, deadlines and cancellation, on a manual clock.

use std::task::Poll;
use std::time::Duration;

use policy::outcome::Verdict;
use policy::time::Timestamp;
use tidegate::{Ask, Reason};

use crate::support::{Caller, KEY, limiter, load, ok, secs};

#[test]
fn waiters_leave_in_order_at_the_rate_with_one_wakeup_each() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "500")]);
    let mut callers: Vec<Caller<'_>> = (0..1000)
        .map(|_| Caller::new(limiter.acquire(KEY)))
        .collect();
    let mut left = Vec::new();
    for (number, caller) in callers.iter_mut().enumerate() {
        match caller.poll() {
            Poll::Ready(answer) => {
                answer.unwrap().settle(&ok());
                left.push(number);
            }
            Poll::Pending => {}
        }
    }
    assert_eq!(left.len(), 2, "the burst is 1 + 500 * 2 ms");
    while left.len() < 1000 {
        let next = clock.next_alarm().unwrap();
        clock.advance_to(next);
        for (number, caller) in callers.iter_mut().enumerate() {
            if caller.is_woken() {
                let Poll::Ready(answer) = caller.poll() else {
                    panic!("spurious wakeup");
                };
                answer.unwrap().settle(&ok());
                left.push(number);
            }
        }
    }
    assert!(left.is_sorted());
    let wakeups: usize = callers.iter().map(Caller::wakeups).sum();
    assert_eq!(wakeups, 998);
    let took = limiter.clock().now().since(Timestamp::ZERO);
    assert!(took <= Duration::from_millis(1998), "{took:?}");
    assert!(took >= Duration::from_millis(1995), "{took:?}");
}

#[test]
fn dropped_waiter_leaves_the_line_at_once() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut first = Caller::new(limiter.acquire(KEY));
    let mut second = Caller::new(limiter.acquire(KEY));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    drop(first);
    clock.advance(Duration::from_millis(999));
    assert!(second.is_woken(), "the burst of 1.002 makes it 998 ms");
    assert!(second.poll().is_ready());
    permit.settle(&ok());
}

#[test]
fn dropped_admitted_waiter_returns_its_token() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let mut first = Caller::new(limiter.acquire(KEY));
    let mut second = Caller::new(limiter.acquire(KEY));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    assert!(second.is_woken(), "its token was given back");
    assert!(matches!(second.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn refuses_a_waiter_at_its_deadline() {
    let (clock, limiter) = limiter(&[("max_in_flight", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    clock.advance(Duration::from_secs(10));
    let mut caller = Caller::new(limiter.acquire(Ask::new(KEY).within(Duration::from_secs(3))));
    assert!(caller.poll().is_pending());
    clock.advance(Duration::from_millis(2999));
    assert!(!caller.is_woken());
    clock.advance(Duration::from_millis(1));
    assert!(caller.is_woken());
    let Poll::Ready(Err(refusal)) = caller.poll() else {
        panic!("expected a refusal");
    };
    assert_eq!(refusal.reason(), Reason::InFlight);
    permit.settle(&ok());
}

#[test]
fn settling_admits_the_next_waiter() {
    let (clock, limiter) = limiter(&[("max_in_flight", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    clock.advance(Duration::from_secs(10));
    let mut caller = Caller::new(limiter.acquire(KEY));
    assert!(caller.poll().is_pending());
    permit.settle(&ok());
    assert!(caller.is_woken());
    assert!(matches!(caller.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn leaked_waiter_forfeits_its_permit() {
    let (clock, limiter) = limiter(&[
        ("strategy", "fixed"),
        ("initial_rate", "1"),
        ("max_in_flight", "1"),
    ]);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let mut leaked = Caller::new(limiter.acquire(KEY));
    assert!(leaked.poll().is_pending());
    std::mem::forget(leaked);
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 1);
    clock.advance(Duration::from_secs(100));
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 0);
    assert!(limiter.try_acquire(KEY).is_ok());
}

#[test]
fn acquire_of_several_keys_is_all_or_nothing() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    limiter.try_acquire("account").unwrap().settle(&ok());
    let mut caller = Caller::new(limiter.acquire(Ask::new("host").also(&["account"])));
    assert!(caller.poll().is_pending());
    assert_eq!(
        limiter.gate("host").unwrap().gate.in_flight,
        0,
        "holds nothing while waiting"
    );
    assert!(
        limiter.peek("host").is_ok(),
        "and its token is available to others"
    );
    clock.advance(Duration::from_secs(1));
    assert!(caller.is_woken());
    let Poll::Ready(Ok(permit)) = caller.poll() else {
        panic!("expected a permit");
    };
    assert_eq!(limiter.gate("host").unwrap().gate.in_flight, 1);
    assert_eq!(limiter.gate("account").unwrap().gate.in_flight, 1);
    permit.settle(&ok());
    assert_eq!(limiter.gate("account").unwrap().gate.in_flight, 0);
}

#[test]
fn acquire_any_takes_the_earliest_gate() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    limiter.try_acquire("a").unwrap().settle(&ok());
    clock.advance(Duration::from_millis(500));
    limiter.try_acquire("b").unwrap().settle(&ok());
    let keys = ["b", "a"];
    let mut any = Caller::new(limiter.acquire_any(&keys, Ask::any()));
    assert!(any.poll().is_pending());
    clock.advance(Duration::from_millis(500));
    assert!(any.is_woken());
    let Poll::Ready(Ok((index, permit))) = any.poll() else {
        panic!("expected a permit");
    };
    assert_eq!(index, 1);
    permit.settle(&ok());
    assert_eq!(limiter.gate("b").unwrap().gate.waiting, 0);
}

#[test]
fn asks_for_several_gates_do_not_starve_each_other() {
    let (clock, limiter) = limiter(&[
        ("strategy", "fixed"),
        ("initial_rate", "1"),
        ("max_wait", "1h"),
    ]);
    for key in ["a", "b", "c"] {
        limiter.try_acquire(key).unwrap().settle(&ok());
    }
    let others = [["b"], ["c"], ["a"]];
    let mut callers: Vec<Option<Caller<'_>>> = (0..30)
        .map(|number| {
            let ask = Ask::new(["a", "b", "c"][number % 3]).also(&others[number % 3]);
            Some(Caller::new(limiter.acquire(ask)))
        })
        .collect();
    for caller in callers.iter_mut().flatten() {
        assert!(caller.poll().is_pending());
    }
    let is_woken = |place: &Option<Caller<'_>>| place.as_ref().is_some_and(Caller::is_woken);
    let mut passes = 0;
    for _ in 0..60 {
        clock.advance(Duration::from_secs(1));
        // Polls all woken futures before those that they wake, like an executor.
        while callers.iter().any(is_woken) {
            passes += 1;
            assert!(passes < 1000, "they pass tokens round for ever");
            let woken: Vec<bool> = callers.iter().map(is_woken).collect();
            for (place, _) in callers.iter_mut().zip(woken).filter(|(_, woken)| *woken) {
                let answer = place.as_mut().map(Caller::poll);
                if let Some(Poll::Ready(answer)) = answer {
                    answer.unwrap().settle(&ok());
                    *place = None;
                }
            }
        }
    }
    // Two tokens each from three gates at one per second: twenty seconds if none is lost.
    assert_eq!(callers.iter().flatten().count(), 0, "all left");
}

#[test]
fn duplicate_key_counts_once() {
    let (_, limiter) = limiter(&[]);
    let mut caller = Caller::new(limiter.acquire(Ask::new(KEY).also(&[KEY, KEY])));
    let Poll::Ready(Ok(permit)) = caller.poll() else {
        panic!("a new gate has a token");
    };
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 1);
    permit.settle(&ok());
}

#[test]
fn response_is_in_flight_until_its_guard_is_dropped() {
    let fast = [
        ("strategy", "fixed"),
        ("initial_rate", "1000"),
        ("max_in_flight", "1"),
    ];
    let (clock, limiter) = limiter(&fast);
    let both = Ask::new(KEY).also(&["account"]);
    let permit = limiter.try_acquire(both).unwrap();
    let in_flight = permit.settle_head(&ok(), Some(Verdict::Success));
    assert_eq!(limiter.gate(KEY).unwrap().gate.succeeded, 1, "learned");
    assert_eq!(load(&limiter, KEY), (1, 0));
    assert_eq!(load(&limiter, "account"), (1, 0));
    clock.advance(secs(1));
    let mut caller = Caller::new(limiter.acquire(KEY));
    assert!(caller.poll().is_pending());
    drop(in_flight);
    assert!(matches!(caller.poll(), Poll::Ready(Ok(_))));
    assert_eq!(load(&limiter, "account"), (0, 0));
}
