//! Which gates are evicted, which are not, and what remains of them.

use policy::hint::Hint;
use tidegate::{Ask, Limiter, Outcome, Reason, Sort};

use crate::support::{Caller, KEY, limiter, millis, ok, secs};

const OTHER: &str = "account:42";

fn use_once(limiter: &Limiter, key: &str) {
    let permit = limiter.try_acquire(key).expect("there is room and a token");
    permit.settle(&ok());
}

fn keys(limiter: &Limiter) -> Vec<String> {
    let gates = limiter.snapshot(Sort::Key, usize::MAX).gates;
    gates.into_iter().map(|view| view.key).collect()
}

#[test]
fn idle_gate_is_evicted() {
    let (clock, limiter) = limiter(&[("idle_after", "10s")]);
    use_once(&limiter, KEY);
    clock.advance(millis(9999));
    while !limiter.evict_idle() {}
    assert_eq!(keys(&limiter), [KEY]);
    clock.advance(millis(1));
    while !limiter.evict_idle() {}
    assert_eq!(limiter.gates(), 0);
    let totals = limiter.snapshot(Sort::Key, 0).totals;
    assert_eq!((totals.evicted, totals.accepted), (1, 1));
}

#[test]
fn selects_a_part_of_the_gates_and_counts_all_that_match() {
    let (_clock, limiter) = limiter(&[]);
    for number in 0..100 {
        use_once(&limiter, &format!("{number:02}"));
    }
    limiter.isolate("50").expect("there is room");
    let odd = |key: &str, _: &_| {
        let number: u32 = key.parse().ok()?;
        (number % 2 == 1).then(|| f64::from(number / 10))
    };
    let selected = limiter.select(3, 4, odd);
    let keys: Vec<&str> = selected.gates.iter().map(|view| &*view.key).collect();
    assert_eq!(keys, ["97", "99", "81", "83"], "highest first, ties by key");
    assert_eq!(selected.matching, 50);
    let totals = selected.totals;
    assert_eq!((totals.gates, totals.open, totals.isolated), (100, 1, 1));
    assert_eq!(
        (totals.accepted, totals.refused, totals.failed),
        (100, 0, 0)
    );
    assert!(limiter.select(50, 4, odd).gates.is_empty());
}

#[test]
fn evicts_idle_gates_in_the_background() {
    let (clock, limiter) = limiter(&[("idle_after", "10s")]);
    for number in 0..1000 {
        use_once(&limiter, &format!("{number}"));
    }
    clock.advance(secs(15));
    assert_eq!(limiter.gates(), 0, "within one and a half times as long");
    assert_eq!(clock.next_alarm(), None, "and no further pass is scheduled");
}

#[test]
fn evicts_restored_gates_in_the_background() {
    let (_, former) = limiter(&[]);
    use_once(&former, KEY);
    let (clock, limiter) = limiter(&[("idle_after", "10s")]);
    for (key, record) in former.records() {
        assert!(limiter.restore(&key, &record));
    }
    assert_eq!(limiter.gates(), 1);
    clock.advance(secs(15));
    assert_eq!(limiter.gates(), 0);
}

/// Creates a gate of each kind that must not be evicted, calls `act`, and releases them.
fn with_unevictable_gates(limiter: &Limiter, act: impl FnOnce()) {
    let in_flight = limiter.try_acquire("in flight").expect("a new gate");
    use_once(limiter, "waited for");
    let mut waits = Caller::new(limiter.acquire("waited for"));
    assert!(waits.poll().is_pending());
    limiter.isolate("isolated").expect("there is room");
    let hint = Hint {
        wait: Some(secs(60)),
        ..Hint::default()
    };
    let told_to_wait = Outcome::status(429, millis(1)).with_hint(hint);
    let held = limiter.try_acquire("held").expect("a new gate");
    held.settle(&told_to_wait);
    act();
    drop((in_flight, waits));
}

const UNEVICTABLE: [&str; 4] = ["held", "in flight", "isolated", "waited for"];

#[test]
fn does_not_evict_busy_held_or_isolated_gates_as_idle() {
    let (clock, limiter) = limiter(&[
        ("idle_after", "1s"),
        ("strategy", "fixed"),
        ("initial_rate", "0.05"),
    ]);
    with_unevictable_gates(&limiter, || {
        clock.advance(secs(10));
        while !limiter.evict_idle() {}
        assert_eq!(keys(&limiter), UNEVICTABLE);
    });
}

#[test]
fn does_not_evict_busy_held_or_isolated_gates_at_max_gates() {
    let (_, limiter) = limiter(&[
        ("max_gates", "4"),
        ("strategy", "fixed"),
        ("initial_rate", "0.05"),
    ]);
    with_unevictable_gates(&limiter, || {
        let refusal = limiter.try_acquire(OTHER).unwrap_err();
        assert_eq!(refusal.reason(), Reason::TooManyGates);
        let totals = limiter.snapshot(Sort::Key, 0).totals;
        assert!(totals.denied > 0 && totals.denied < totals.requests);
        let mut waits = Caller::new(limiter.acquire(OTHER));
        assert!(matches!(
            waits.poll(),
            std::task::Poll::Ready(Err(refusal)) if refusal.reason() == Reason::TooManyGates
        ));
        assert!(limiter.isolate(OTHER).is_err());
        assert_eq!(keys(&limiter), UNEVICTABLE);
    });
    use_once(&limiter, OTHER);
    assert_eq!(limiter.gates(), 4, "one of those that went back to normal");
    for key in ["account:42", "held", "isolated"] {
        assert!(limiter.gate(key).is_some(), "{key}");
    }
}

#[test]
fn refuses_too_long_keys_without_evicting_a_gate() {
    let (_, limiter) = limiter(&[("max_gates", "1")]);
    use_once(&limiter, KEY);
    let refusal = limiter.try_acquire(&"k".repeat(65_536)).unwrap_err();
    assert_eq!(refusal.reason(), Reason::TooManyGates);
    assert_eq!(keys(&limiter), [KEY]);
    use_once(&limiter, &"k".repeat(65_535));
}

#[test]
fn evicts_least_recently_used_gate_at_max_gates() {
    let (clock, limiter) = limiter(&[("max_gates", "3"), ("shards", "8")]);
    for key in ["a", "b", "c", "a", "d", "b", "e"] {
        clock.advance(secs(1));
        use_once(&limiter, key);
        assert!(limiter.gates() <= 3);
    }
    // d replaced b, b replaced c, e replaced a.
    assert_eq!(keys(&limiter), ["b", "d", "e"]);
}

#[test]
fn totals_include_evicted_gates() {
    let (_, limiter) = limiter(&[("max_gates", "1")]);
    for number in 0..10 {
        use_once(&limiter, &format!("{number}"));
    }
    let totals = limiter.snapshot(Sort::Key, 0).totals;
    assert_eq!((totals.requests, totals.gates, totals.evicted), (10, 1, 9));
}

#[test]
fn uncollected_refusal_survives_eviction_of_its_gate() {
    let (clock, limiter) = limiter(&[("max_gates", "1"), ("max_in_flight", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut refused = Caller::new(limiter.acquire(Ask::new(KEY).within(secs(1))));
    assert!(refused.poll().is_pending());
    clock.advance(secs(1));
    assert!(refused.is_woken());
    permit.settle(&ok());
    use_once(&limiter, OTHER);
    assert!(limiter.gate(KEY).is_none(), "it made room");
    drop(refused);
    assert!(limiter.try_acquire(OTHER).is_err(), "nothing is poisoned");
}
