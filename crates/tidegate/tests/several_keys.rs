//! Asks for several gates at once beside asks for one of them, in virtual time.

mod drive;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use drive::{drive, gate};
use policy::time::Timestamp;
use tidegate::{Ask, Limiter, ManualClock, Outcome};

struct Ready {
    task: usize,
    queue: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.queue
            .lock()
            .expect("not poisoned")
            .push_back(self.task);
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs tasks, each polled when it is woken, until `end`.
fn drive_until(clock: &ManualClock, end: Timestamp, mut tasks: Vec<Task<'_>>) {
    let queue = Arc::new(Mutex::new((0..tasks.len()).collect::<VecDeque<_>>()));
    loop {
        let next = queue.lock().expect("not poisoned").pop_front();
        if let Some(task) = next {
            let queue = Arc::clone(&queue);
            let waker = Waker::from(Arc::new(Ready { task, queue }));
            let polled = tasks[task].as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending(), "no task ends");
            continue;
        }
        let next = clock.next_alarm().expect("tasks wait for the clock");
        if next > end {
            return;
        }
        clock.advance_to(next);
    }
}

const FAST: &str = "fast.example.com";
const SLOW: &str = "slow.example.com";

fn limiter(fast: &[(&str, &str)], slow: &[(&str, &str)]) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .host(FAST.parse().expect("a host"), gate(fast))
        .host(SLOW.parse().expect("a host"), gate(slow))
        .clock(clock.clock())
        .build();
    (clock, limiter)
}

/// Admissions in ten seconds of some tasks that ask for `fast` alone, and of 100 that ask for both.
fn admissions(limiter: &Limiter, clock: &ManualClock, asking_alone: usize) -> (u32, u32) {
    let (alone, both) = (Cell::new(0), Cell::new(0));
    let task = async |ask: Ask<'static>, count: &Cell<u32>| {
        while limiter.clock().now() < Timestamp::MAX {
            let Ok(permit) = limiter.acquire(ask).await else {
                continue;
            };
            count.set(count.get() + 1);
            let end = limiter.clock().now() + Duration::from_millis(20);
            limiter.clock().sleep_until(end).await;
            permit.settle(&Outcome::status(200, Duration::from_millis(20)));
        }
    };
    let alone_tasks = (0..asking_alone).map(|_| Box::pin(task(Ask::new(FAST), &alone)) as Task<'_>);
    let ask = Ask::new(FAST).also(&[SLOW]);
    let both_tasks = (0..100).map(|_| Box::pin(task(ask, &both)) as Task<'_>);
    let tasks = alone_tasks.chain(both_tasks).collect();
    drive_until(clock, Timestamp::from_secs(10), tasks);
    (alone.get(), both.get())
}

#[test]
fn asks_for_two_gates_neither_block_the_faster_nor_starve() {
    let fast = [
        ("strategy", "fixed"),
        ("initial_rate", "600"),
        ("max_in_flight", "20"),
        ("max_wait", "60s"),
    ];
    let slow = [
        ("strategy", "fixed"),
        ("initial_rate", "10"),
        ("max_wait", "60s"),
    ];
    let (clock, limiter) = limiter(&fast, &slow);
    let (alone, both) = admissions(&limiter, &clock, 100);
    assert!(both >= 85, "{both} of 100 for both gates");
    assert!(alone >= 5400, "{alone} of 5900 for the fast gate alone");
}

#[test]
fn long_line_of_the_faster_gate_does_not_starve_asks_for_two() {
    let fixed = |rate| {
        [
            ("strategy", "fixed"),
            ("initial_rate", rate),
            ("max_wait", "60s"),
        ]
    };
    let (clock, limiter) = limiter(&fixed("600"), &fixed("10"));
    // Their line at the fast gate takes five seconds.
    let (alone, both) = admissions(&limiter, &clock, 3000);
    assert!(both >= 40, "{both} of 50 after their first turn");
    assert!(alone >= 5400, "{alone} of 5900 for the fast gate alone");
}

#[test]
fn waiting_for_one_gate_holds_no_place_of_the_other() {
    let fixed = [("strategy", "fixed"), ("initial_rate", "1")];
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "100")], &fixed);
    drive(&clock, limiter.acquire(SLOW)).unwrap().give_back();
    let _first = drive(&clock, limiter.acquire(SLOW)).unwrap();
    let ask = Ask::new(FAST).also(&[SLOW]);
    let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(limiter.acquire(ask))).collect();
    let mut context = Context::from_waker(Waker::noop());
    for step in 0..900 {
        for asked in &mut waiting {
            assert!(asked.as_mut().poll(&mut context).is_pending());
        }
        let in_flight = limiter.gate(FAST).unwrap().gate.in_flight;
        assert_eq!(in_flight, 0, "after {step} ms");
        clock.advance(Duration::from_millis(1));
    }
}
