//! Panics in callers, wakers and listeners: the limiter keeps working for all others, and nothing
//! is leaked.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use policy::time::Timestamp;
use tidegate::event::Event;
use tidegate::{Ask, Clock, Limiter, ManualClock};

use crate::support::{Caller, KEY, limiter, load, millis, ok, secs, sender, settings};

/// Panics without a message on stderr, because the panic is intended.
fn panic_quietly() -> ! {
    resume_unwind(Box::new("meant"))
}

/// Calls `act`, which has to panic.
fn expect_panic<T>(act: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
}

#[test]
fn panicking_caller_returns_its_permit() {
    let (clock, limiter) = limiter(&[("max_in_flight", "1")]);
    let mut next = Caller::new(limiter.acquire(KEY));
    expect_panic(|| {
        let _permit = limiter.try_acquire(KEY).unwrap();
        clock.advance(secs(10));
        assert!(next.poll().is_pending());
        panic_quietly();
    });
    assert!(next.is_woken());
    assert!(next.poll().is_ready());
    assert_eq!(load(&limiter, KEY), (0, 0));
}

#[test]
fn panicking_caller_returns_permits_of_all_gates() {
    let (_, limiter) = limiter(&[]);
    expect_panic(|| {
        let mut all = Caller::new(limiter.acquire(Ask::new(KEY).also(&["a", "b"])));
        let _permit = all.poll();
        assert_eq!(load(&limiter, "b"), (1, 0));
        panic_quietly();
    });
    for key in [KEY, "a", "b"] {
        assert_eq!(load(&limiter, key), (0, 0), "{key}");
    }
}

#[test]
fn future_dropped_by_a_panic_leaves_the_line() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let mut next = Caller::new(limiter.acquire(KEY));
    expect_panic(|| {
        let mut first = Caller::new(limiter.acquire(KEY));
        assert!(first.poll().is_pending());
        assert!(next.poll().is_pending());
        panic_quietly();
    });
    assert_eq!(load(&limiter, KEY), (0, 1));
    clock.advance(secs(1));
    assert!(next.is_woken());
}

/// A waker that panics.
struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic_quietly();
    }
}

fn panicking_waker() -> Waker {
    Waker::from(Arc::new(PanickingWaker))
}

#[test]
fn panicking_waker_does_not_stop_other_wakers() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1000")]);
    while let Ok(permit) = limiter.try_acquire(KEY) {
        permit.settle(&ok());
    }
    let mut first = Caller::new(limiter.acquire(KEY));
    let mut second = Caller::new(limiter.acquire(KEY));
    assert!(first.poll_with(&panicking_waker()).is_pending());
    assert!(second.poll().is_pending());
    clock.advance(secs(1));
    assert!(second.is_woken());
    assert!(first.poll().is_ready() && second.poll().is_ready());
}

#[test]
fn panicking_waker_does_not_reach_settle() {
    let (clock, limiter) = limiter(&[("max_in_flight", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    clock.advance(secs(10));
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll_with(&panicking_waker()).is_pending());
    permit.settle(&ok());
    assert!(waits.poll().is_ready());
}

#[test]
fn panicking_waker_does_not_stop_the_system_clock() {
    let clock = Clock::system();
    let soon = clock.now() + millis(1);
    let mut first = pin!(clock.sleep_until(soon));
    let mut second = pin!(clock.sleep_until(soon));
    let (waker, woken) = sender();
    let first = first
        .as_mut()
        .poll(&mut Context::from_waker(&panicking_waker()));
    let second = second.as_mut().poll(&mut Context::from_waker(&waker));
    if first.is_pending() && second.is_pending() {
        assert_eq!(woken.recv_timeout(secs(60)), Ok(()));
    }
}

/// A limiter whose listener panics at events selected by `at`, while `is_on`.
fn with_listener(
    set: &[(&str, &str)],
    at: impl Fn(&Event<'_>) -> bool + Send + Sync + 'static,
) -> (ManualClock, Limiter, Arc<AtomicBool>) {
    let clock = ManualClock::new();
    let is_on = Arc::new(AtomicBool::new(true));
    let heeds = Arc::clone(&is_on);
    let limiter = Limiter::builder()
        .gate(settings(set))
        .clock(clock.clock())
        .listener(move |_: Timestamp, event: &Event<'_>| {
            if heeds.load(Ordering::SeqCst) && at(event) {
                panic_quietly();
            }
        })
        .build();
    (clock, limiter, is_on)
}

#[test]
fn listener_panic_on_admission_returns_the_permit() {
    let (_, limiter, _) = with_listener(&[], |event| matches!(event, Event::Admitted { .. }));
    expect_panic(|| limiter.try_acquire(KEY));
    assert_eq!(load(&limiter, KEY), (0, 0));
    expect_panic(|| Caller::new(limiter.acquire("another")).poll());
    assert_eq!(load(&limiter, "another"), (0, 0));
}

#[test]
fn listener_panic_when_a_waiter_leaves_returns_its_permit() {
    let (clock, limiter, _) = with_listener(
        &[],
        |event| matches!(event, Event::Admitted { waited, .. } if !waited.is_zero()),
    );
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let mut waits = Caller::new(limiter.acquire(KEY));
    assert!(waits.poll().is_pending());
    clock.advance(secs(1));
    expect_panic(|| waits.poll());
    assert_eq!(load(&limiter, KEY), (0, 0));
}

#[test]
fn panic_in_waiting_event_leaves_the_line_empty() {
    let (_, limiter, _) = with_listener(&[], |event| matches!(event, Event::Waiting { .. }));
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    expect_panic(|| Caller::new(limiter.acquire(KEY)).poll());
    assert_eq!(load(&limiter, KEY), (0, 0));
}

#[test]
fn listener_panic_at_one_gate_returns_the_other_permits() {
    let first = |event: &Event<'_>| {
        matches!(
            event,
            Event::Settled { key: KEY, .. } | Event::Abandoned { key: KEY }
        )
    };
    let (clock, limiter, is_on) = with_listener(&[], first);
    for is_settled in [true, false] {
        let mut all = Caller::new(limiter.acquire(Ask::new(KEY).also(&["a", "b"])));
        let Poll::Ready(Ok(permit)) = all.poll() else {
            panic!("tokens are available");
        };
        is_on.store(true, Ordering::SeqCst);
        expect_panic(|| {
            if is_settled {
                permit.settle(&ok()).is_some()
            } else {
                drop(permit);
                true
            }
        });
        is_on.store(false, Ordering::SeqCst);
        for key in [KEY, "a", "b"] {
            assert_eq!(load(&limiter, key), (0, 0), "{key}, settled: {is_settled}");
        }
        clock.advance(secs(10));
    }
}
