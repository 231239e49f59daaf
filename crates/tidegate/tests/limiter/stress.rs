//! Random operations on many threads while another thread advances time: the guarantees hold
//! throughout, and nothing is left at the end.
//!
//! Each test has a seed, printed on failure. It repeats what every thread does, but not how the
//! threads interleave.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use policy::hint::Hint;
use policy::random::Random;
use policy::time::Timestamp;
use tidegate::{Ask, Limiter, ManualClock, Outcome, Permit, Refusal, Sort};

use crate::support::{Caller, limiter, load, millis, ok, secs, settings};

const THREADS: u64 = 8;

/// The number of steps of each thread.
const STEPS: usize = 1500;

/// State shared by all threads of a test.
struct World {
    clock: ManualClock,
    limiter: Limiter,
    keys: Vec<String>,
    /// Attempts in flight at each key, as counted by the threads: never more than the limiter's
    /// count.
    under_way: Vec<AtomicU32>,
    max_in_flight: u32,
    /// The longest time step, in milliseconds.
    longest_tick: u64,
    /// The departure time and cost of each ticket, by key.
    left: Vec<Mutex<Vec<(Timestamp, u32)>>>,
    asked: AtomicU64,
    admitted: AtomicU64,
    refused: AtomicU64,
    given_up: AtomicU64,
}

/// A permit, with its keys and its cost.
struct Held<'a> {
    permit: Permit<'a>,
    keys: Vec<usize>,
}

/// A waiting future and its ask.
struct Waiting<'a> {
    caller: Caller<'a, (Vec<usize>, Permit<'a>)>,
    cost: u32,
}

impl World {
    fn new(set: &[(&str, &str)], keys: usize, max_in_flight: u32) -> Self {
        let (clock, limiter) = limiter(set);
        Self {
            clock,
            limiter,
            keys: (0..keys)
                .map(|key| format!("host-{key}.example.com"))
                .collect(),
            under_way: (0..keys).map(|_| AtomicU32::new(0)).collect(),
            max_in_flight,
            longest_tick: 20,
            left: (0..keys).map(|_| Mutex::default()).collect(),
            asked: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    /// Runs `act` on all threads while time advances, then lets all waiting futures finish.
    fn run<'a>(
        &'a self,
        seed: u64,
        act: impl Fn(&'a Self, &mut Random, &mut Vec<Held<'a>>, &mut Vec<Waiting<'a>>) + Sync,
    ) {
        let result = catch_unwind(AssertUnwindSafe(|| self.run_threads(seed, &act)));
        assert!(result.is_ok(), "with seed {seed}, as said above");
    }

    fn run_threads<'a>(
        &'a self,
        seed: u64,
        act: &(impl Fn(&'a Self, &mut Random, &mut Vec<Held<'a>>, &mut Vec<Waiting<'a>>) + Sync),
    ) {
        let is_over = AtomicBool::new(false);
        let barrier = Barrier::new(usize::try_from(THREADS).expect("a few") + 1);
        let ticks = AtomicU64::new(0);
        thread::scope(|scope| {
            let time = scope.spawn(|| {
                let mut random = Random::from_seed(seed);
                while !is_over.load(Ordering::SeqCst) {
                    self.clock.advance(millis(random.below(self.longest_tick)));
                    ticks.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                }
            });
            for number in 0..THREADS {
                let (barrier, ticks) = (&barrier, &ticks);
                scope.spawn(move || {
                    let mut random = Random::from_seed(seed ^ (number + 1).wrapping_mul(0x9E37));
                    let (mut held, mut waiting) = (Vec::new(), Vec::new());
                    // A panic must not leave the other threads at the barrier.
                    let mut result = catch_unwind(AssertUnwindSafe(|| {
                        for step in 0..STEPS {
                            act(self, &mut random, &mut held, &mut waiting);
                            // Otherwise the test would finish before the first tick.
                            let tick = ticks.load(Ordering::SeqCst);
                            while step % 4 == 0 && ticks.load(Ordering::SeqCst) == tick {
                                thread::yield_now();
                            }
                        }
                        held.drain(..).for_each(|held| self.return_permit(held, 0));
                    }));
                    barrier.wait();
                    for _ in 0..DRAINS {
                        barrier.wait();
                        barrier.wait();
                        if result.is_ok() {
                            result = catch_unwind(AssertUnwindSafe(|| {
                                self.collect_woken(&mut waiting, &mut held);
                                held.drain(..).for_each(|held| self.return_permit(held, 0));
                            }));
                        }
                        barrier.wait();
                    }
                    if let Err(panic) = result {
                        resume_unwind(panic);
                    }
                    assert!(waiting.is_empty(), "{} are stuck", waiting.len());
                });
            }
            barrier.wait();
            is_over.store(true, Ordering::SeqCst);
            time.join().expect("the clock thread does not panic");
            // From now on only woken futures are polled.
            for _ in 0..DRAINS {
                barrier.wait();
                self.clock.advance(DRAIN);
                barrier.wait();
                barrier.wait();
            }
        });
        self.assert_nothing_is_left();
    }

    fn key(&self, random: &mut Random) -> usize {
        usize::try_from(random.below(self.keys.len() as u64)).expect("an index")
    }

    fn take<'a>(&self, permit: Permit<'a>, keys: Vec<usize>, cost: u32) -> Held<'a> {
        self.admitted.fetch_add(1, Ordering::SeqCst);
        for &key in &keys {
            let now = self.under_way[key].fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= self.max_in_flight, "{now} under way");
        }
        // A permit of several gates does not show when each gate granted it.
        if let [key] = keys[..] {
            let mut left = self.left[key].lock().expect("no test panics here");
            left.push((permit.admitted_at(), cost));
        }
        Held { permit, keys }
    }

    fn return_permit(&self, held: Held<'_>, how: u64) {
        for &key in &held.keys {
            self.under_way[key].fetch_sub(1, Ordering::SeqCst);
        }
        let latency = millis(20);
        match how {
            0..=5 => {
                held.permit.settle(&ok());
            }
            6 => drop(held.permit),
            7 => {
                held.permit.settle(&Outcome::status(503, latency));
            }
            _ => {
                let hint = Hint {
                    wait: Some(millis(200)),
                    ..Hint::default()
                };
                let outcome = Outcome::status(429, latency).with_hint(hint);
                held.permit.settle(&outcome);
            }
        }
    }

    fn answer<'a>(
        &self,
        answer: Result<(Vec<usize>, Permit<'a>), Refusal>,
        cost: u32,
    ) -> Option<Held<'a>> {
        match answer {
            Ok((keys, permit)) => Some(self.take(permit, keys, cost)),
            Err(_) => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
    }

    /// Asks, and collects the permit or waits.
    fn begin<'a>(
        &self,
        future: impl Future<Output = Result<(Vec<usize>, Permit<'a>), Refusal>> + Send + 'a,
        cost: u32,
        held: &mut Vec<Held<'a>>,
        waiting: &mut Vec<Waiting<'a>>,
    ) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut caller = Caller::new(future);
        match caller.poll() {
            Poll::Ready(answer) => held.extend(self.answer(answer, cost)),
            Poll::Pending => waiting.push(Waiting { caller, cost }),
        }
    }

    fn collect_woken<'a>(&self, waiting: &mut Vec<Waiting<'a>>, held: &mut Vec<Held<'a>>) {
        waiting.retain_mut(|waits| {
            if !waits.caller.is_woken() {
                return true;
            }
            match waits.caller.poll() {
                Poll::Ready(answer) => {
                    held.extend(self.answer(answer, waits.cost));
                    false
                }
                Poll::Pending => true,
            }
        });
    }

    fn give_up<'a>(&self, random: &mut Random, waiting: &mut Vec<Waiting<'a>>) {
        if !waiting.is_empty() {
            let index = random.below(waiting.len() as u64);
            drop(waiting.swap_remove(usize::try_from(index).expect("an index")));
            self.given_up.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn assert_nothing_is_left(&self) {
        for key in &self.keys {
            assert_eq!(load(&self.limiter, key), (0, 0), "{key}");
        }
        let [asked, admitted, refused, given_up] =
            [&self.asked, &self.admitted, &self.refused, &self.given_up]
                .map(|count| count.load(Ordering::SeqCst));
        assert_eq!(asked, admitted + refused + given_up, "every ask ends once");
        assert!(admitted > 100, "something happened: {admitted}");
    }

    /// Checks that at most `count` left at each key in any interval of `period`.
    fn assert_limit(&self, count: u32, period: Duration) {
        for left in &self.left {
            let mut left = left.lock().expect("no test panics here").clone();
            left.sort();
            let (mut first, mut sum) = (0, 0);
            for &(at, cost) in &left {
                sum += cost;
                while left[first].0 + period <= at {
                    sum -= left[first].1;
                    first += 1;
                }
                assert!(sum <= count, "{sum} in a stretch that ends at {at:?}");
            }
        }
    }
}

/// The time steps at the end: longer in total than every wait of a test.
const DRAIN: Duration = Duration::from_millis(500);
const DRAINS: usize = 200;

fn ask<'a>(world: &'a World, random: &mut Random) -> (usize, u32, Ask<'a>) {
    let key = world.key(random);
    let cost = [1, 1, 1, 2][usize::try_from(random.below(4)).expect("an index")];
    let ask = Ask::new(&world.keys[key]).cost(cost);
    let ask = match random.below(4) {
        0 => ask.background(),
        1 => ask.within(millis(random.below(3000))),
        _ => ask,
    };
    (key, cost, ask)
}

/// Performs a random operation.
fn random_operation<'a>(
    world: &'a World,
    random: &mut Random,
    held: &mut Vec<Held<'a>>,
    waiting: &mut Vec<Waiting<'a>>,
) {
    let limiter = &world.limiter;
    match random.below(100) {
        0..=19 => {
            let key = world.key(random);
            world.asked.fetch_add(1, Ordering::SeqCst);
            let answer = limiter.try_acquire(&world.keys[key]);
            let answer = answer.map(|permit| (vec![key], permit));
            held.extend(world.answer(answer, 1));
        }
        20..=39 if waiting.len() < 16 => {
            let (key, cost, ask) = ask(world, random);
            let future = async move { Ok((vec![key], limiter.acquire(ask).await?)) };
            world.begin(future, cost, held, waiting);
        }
        40..=47 if waiting.len() < 16 => {
            let (key, cost, ask) = ask(world, random);
            let other = world.key(random);
            let future = async move {
                let also = [world.keys[other].as_str()];
                // Owned, because `also` does not outlive this block.
                let permit = limiter.acquire(ask.also(&also)).await?.into_owned();
                let keys = if key == other {
                    vec![key]
                } else {
                    vec![key, other]
                };
                Ok((keys, permit))
            };
            world.begin(future, cost, held, waiting);
        }
        48..=53 if waiting.len() < 16 => {
            let (first, second) = (world.key(random), world.key(random));
            let future = async move {
                let keys = [world.keys[first].as_str(), world.keys[second].as_str()];
                let (index, permit) = limiter.acquire_any(&keys, Ask::new(keys[0])).await?;
                Ok((vec![[first, second][index]], permit.into_owned()))
            };
            world.begin(future, 1, held, waiting);
        }
        54..=75 => world.collect_woken(waiting, held),
        76..=81 => world.give_up(random, waiting),
        82 => drop(limiter.snapshot(
            Sort::ALL[usize::try_from(random.below(6)).expect("an index")],
            3,
        )),
        83 => drop(limiter.records()),
        84 => {
            limiter.evict_idle();
        }
        85 => {
            let key = &world.keys[world.key(random)];
            let _ = limiter.isolate(key);
            limiter.release(key);
        }
        86 => {
            limiter.reset(&world.keys[world.key(random)]);
        }
        87 => {
            let _ = limiter.peek(world.keys[world.key(random)].as_str());
        }
        _ => {}
    }
    while held.len() > usize::try_from(random.below(4)).expect("a few") {
        let index = usize::try_from(random.below(held.len() as u64)).expect("an index");
        world.return_permit(held.swap_remove(index), random.below(10));
    }
}

#[test]
fn random_operations_on_few_keys() {
    let set = [
        ("initial_rate", "200"),
        ("max_rate", "1000"),
        ("limits", "40/1s"),
        ("max_in_flight", "6"),
        ("shards", "2"),
    ];
    let world = World::new(&set, 3, 6);
    let narrow = [set[0], set[1], set[2], ("max_in_flight", "4"), set[4]];
    world.run(1, |world, random, held, waiting| {
        if random.below(200) == 0 {
            let set = if random.below(2) == 0 { &set } else { &narrow };
            let host = world.keys[world.key(random)].parse().expect("a host");
            world.limiter.set_host(host, settings(set)).unwrap();
        }
        random_operation(world, random, held, waiting);
    });
    world.assert_limit(40, secs(1));
}

/// A thread that reads the clock just before it jumps uses a stale time.
#[test]
fn known_limits_hold_when_time_jumps() {
    let set = [
        ("initial_rate", "200"),
        ("max_rate", "1000"),
        ("limits", "6/1s"),
        ("max_in_flight", "6"),
        ("shards", "2"),
    ];
    let world = World {
        longest_tick: 400,
        ..World::new(&set, 3, 6)
    };
    world.run(5, random_operation);
    world.assert_limit(6, secs(1));
}

#[test]
fn random_operations_on_more_keys_than_max_gates() {
    let set = [
        ("initial_rate", "50"),
        ("max_in_flight", "4"),
        ("max_gates", "100"),
        ("idle_after", "2s"),
        ("shards", "4"),
    ];
    let world = World::new(&set, 300, 4);
    world.run(2, |world, random, held, waiting| {
        random_operation(world, random, held, waiting);
        let most = 100 + usize::try_from(THREADS).expect("a few");
        assert!(world.limiter.gates() <= most);
    });
    assert!(world.limiter.gates() <= 100);
    for _ in 0..20 {
        world.clock.advance(secs(1));
    }
    let snapshot = world.limiter.snapshot(Sort::Key, 400);
    let open: Vec<&str> = snapshot
        .gates
        .iter()
        .map(|view| view.key.as_str())
        .collect();
    assert_eq!(world.limiter.gates(), open.len());
    assert_eq!(snapshot.totals.gates, open.len() as u64);
}

#[test]
fn evicts_all_idle_gates() {
    let set = [
        ("idle_after", "2s"),
        ("shards", "8"),
        ("initial_rate", "50"),
    ];
    let world = World::new(&set, 200, u32::MAX);
    world.run(3, |world, random, held, waiting| match random.below(4) {
        0 if waiting.len() < 16 => {
            let (key, cost, ask) = ask(world, random);
            let future = async move { Ok((vec![key], world.limiter.acquire(ask).await?)) };
            world.begin(future, cost, held, waiting);
        }
        1 => world.give_up(random, waiting),
        2 => {
            world.limiter.evict_idle();
        }
        _ => {
            world.collect_woken(waiting, held);
            held.drain(..).for_each(|held| world.return_permit(held, 0));
        }
    });
    world.clock.advance(secs(20));
    assert_eq!(world.limiter.gates(), 0);
    assert_eq!(world.clock.next_alarm(), None, "nothing is left to do");
}

#[test]
fn totals_match_the_operations() {
    let set = [
        ("initial_rate", "100"),
        ("max_in_flight", "8"),
        ("max_waiting", "10"),
        ("idle_after", "1h"),
    ];
    let world = World::new(&set, 4, 8);
    world.run(4, |world, random, held, waiting| {
        match random.below(5) {
            0 => {
                let key = world.key(random);
                world.asked.fetch_add(1, Ordering::SeqCst);
                let answer = world.limiter.try_acquire(&world.keys[key]);
                held.extend(world.answer(answer.map(|permit| (vec![key], permit)), 1));
            }
            1 | 2 if waiting.len() < 16 => {
                let (key, cost, ask) = ask(world, random);
                let future = async move { Ok((vec![key], world.limiter.acquire(ask).await?)) };
                world.begin(future, cost, held, waiting);
            }
            3 if random.below(4) == 0 => world.give_up(random, waiting),
            _ => world.collect_woken(waiting, held),
        }
        while held.len() > 2 {
            world.return_permit(held.swap_remove(0), random.below(7));
        }
    });
    let totals = world.limiter.snapshot(Sort::Key, 0).totals;
    let [asked, refused, given_up] =
        [&world.asked, &world.refused, &world.given_up].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(totals.requests, asked);
    // A future dropped before it collects its refusal counts as denied too.
    assert!(totals.denied >= refused, "{totals:?}, refused {refused}");
    assert!(totals.denied <= refused + given_up, "{totals:?}");
}

/// Virtual time advances when no task is ready, so a task that hangs is still there an hour later.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn thousands_of_tasks_with_timeouts_and_aborts() {
    let limiter = Limiter::builder()
        .gate(settings(&[
            ("strategy", "fixed"),
            ("initial_rate", "100"),
            ("max_in_flight", "10"),
        ]))
        .clock(tidegate::Clock::tokio())
        .build();
    let keys = ["a", "b", "c"];
    let mut random = Random::from_seed(6);
    let mut tasks = tokio::task::JoinSet::new();
    let mut aborts = Vec::new();
    for number in 0..3000_usize {
        let limiter = limiter.clone();
        let (timeout, work) = (millis(random.below(20_000)), millis(random.below(200)));
        let task = tasks.spawn(async move {
            let key = keys[number % 3];
            let also = [keys[(number + 1) % 3]];
            let permit = match number % 7 {
                0 => limiter.acquire(Ask::new(key).also(&also)).await,
                1 => {
                    let any = limiter.acquire_any(&keys, Ask::new(key)).await;
                    any.map(|(_, permit)| permit)
                }
                2 | 3 => match tokio::time::timeout(timeout, limiter.acquire(key)).await {
                    Ok(answer) => answer,
                    Err(_) => return false,
                },
                _ => limiter.acquire(Ask::new(key).within(timeout)).await,
            };
            let Ok(permit) = permit else { return false };
            tokio::time::sleep(work).await;
            permit.settle(&ok());
            true
        });
        if random.below(10) == 0 {
            aborts.push(task);
        }
        tokio::time::sleep(millis(random.below(3))).await;
        if random.below(20) == 0 {
            aborts.drain(..).for_each(|task| task.abort());
        }
    }
    let mut admitted = 0;
    let all = async {
        while let Some(task) = tasks.join_next().await {
            admitted += usize::from(task.unwrap_or(false));
        }
    };
    let ended = tokio::time::timeout(secs(3600), all).await;
    assert!(ended.is_ok(), "some are stuck");
    assert!(admitted > 1000, "{admitted}");
    for key in keys {
        assert_eq!(load(&limiter, key), (0, 0), "{key}");
    }
}
