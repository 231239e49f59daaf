//! Many tasks that wait for the endpoints of one pool: how long they wait, in virtual time.

mod drive;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use drive::{drive, gate};
use policy::random::Random;
use tidegate::{Ask, Limiter, ManualClock, Outcome, Pool};

/// A task of [`drive_all`] that is ready to be polled.
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

/// Runs all tasks to their end, each polled only when it is woken. Those that are ready at the same
/// time are polled in random order, as by the threads of an executor.
fn drive_all(clock: &ManualClock, mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    let queue = Arc::new(Mutex::new((0..tasks.len()).collect::<VecDeque<_>>()));
    let mut left = tasks.len();
    let mut random = Random::from_seed(5);
    let mut done = vec![false; tasks.len()];
    while left > 0 {
        let next = {
            let mut queue = queue.lock().expect("not poisoned");
            let ready = queue.len() as u64;
            let any = usize::try_from(random.below(ready.max(1))).expect("an index");
            queue.swap_remove_back(any)
        };
        let Some(task) = next else {
            let next = clock.next_alarm().expect("a pending task has set an alarm");
            clock.advance_to(next);
            continue;
        };
        let queue = Arc::clone(&queue);
        let waker = Waker::from(Arc::new(Ready { task, queue }));
        let mut context = Context::from_waker(&waker);
        if !done[task] && tasks[task].as_mut().poll(&mut context).is_ready() {
            done[task] = true;
            left -= 1;
        }
    }
}

fn pool(clock: &ManualClock, endpoints: usize, set: &[(&str, &str)]) -> Pool<()> {
    let limiter = Limiter::builder()
        .gate(gate(set))
        .clock(clock.clock())
        .seed(3)
        .build();
    let pool = Pool::new("llm", &limiter);
    for number in 0..endpoints {
        assert!(pool.add(&format!("e{number}"), "llm.example.com", ()));
    }
    pool
}

fn outcome(status: u16) -> Outcome {
    Outcome::status(status, Duration::from_millis(20))
}

/// The waits of 500 tasks that send 20 requests each through 3 endpoints with 100/s each, of which
/// every `rejected`-th is answered with 404.
fn waits_of_500_tasks(rejected: usize) -> Vec<Duration> {
    let clock = ManualClock::new();
    let pool = pool(
        &clock,
        3,
        &[
            ("strategy", "fixed"),
            ("initial_rate", "100"),
            ("max_wait", "60s"),
        ],
    );
    let now = || pool.limiter().clock().now();
    let (sent, waits) = (RefCell::new(0), RefCell::new(Vec::new()));
    let task = async || {
        for _ in 0..20 {
            let asked = now();
            let permit = pool.acquire(Ask::any()).await.expect("a permit");
            waits.borrow_mut().push(now().since(asked));
            pool.limiter()
                .clock()
                .sleep_until(now() + Duration::from_millis(20))
                .await;
            *sent.borrow_mut() += 1;
            let is_rejected = rejected > 0 && *sent.borrow() % rejected == 0;
            permit.settle(&outcome(if is_rejected { 404 } else { 200 }));
        }
    };
    let tasks = (0..500).map(|_| Box::pin(task()) as Pin<Box<dyn Future<Output = ()> + '_>>);
    drive_all(&clock, tasks.collect());
    let mut waits = waits.into_inner();
    waits.sort_unstable();
    waits
}

#[test]
fn rejected_requests_do_not_lengthen_the_waits_of_others() {
    let p99 = |waits: Vec<Duration>| waits[waits.len() * 99 / 100];
    let all_accepted = p99(waits_of_500_tasks(0));
    let some_rejected = p99(waits_of_500_tasks(50));
    // 500 tasks at 300/s.
    let expected = Duration::from_millis(1800);
    assert!(all_accepted < expected, "{all_accepted:?}");
    assert!(
        some_rejected < expected,
        "{some_rejected:?} with 2 % of 404"
    );
}

#[test]
fn looking_again_keeps_the_place_in_line() {
    let clock = ManualClock::new();
    let pool = pool(&clock, 2, &[("strategy", "fixed"), ("initial_rate", "1")]);
    for _ in 0..2 {
        let permit = drive(&clock, pool.acquire(Ask::any())).expect("a permit");
        permit.settle(&outcome(200));
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(pool.acquire(Ask::any()));
    let mut second = Box::pin(pool.acquire(Ask::any()));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    pool.disable("e1");
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(first.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(second.as_mut().poll(&mut context).is_pending(), "behind");
    assert!(first.as_mut().poll(&mut context).is_ready());
}
