//! The three clocks: their time, and when alarms fire.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use policy::time::{Timestamp, WallTime};
use tidegate::clock::{TimeSource, WakeGuard};
use tidegate::{Ask, AttemptResult, Clock, Limiter, ManualClock, Outcome, Permit};

use crate::support::{Caller, KEY, Woken, limiter, millis, ok, secs, sender, settings};

fn poll(sleep: Pin<&mut impl Future<Output = ()>>, waker: &Waker) -> Poll<()> {
    sleep.poll(&mut Context::from_waker(waker))
}

/// Records its name and the time when woken.
struct Notes {
    name: u32,
    clock: Clock,
    notes: Arc<Mutex<Vec<(u32, Timestamp)>>>,
}

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        let note = (self.name, self.clock.now());
        self.notes.lock().expect("no test panics").push(note);
    }
}

#[test]
fn wakes_sleepers_in_order_at_their_own_time() {
    let manual = ManualClock::new();
    let notes = Arc::default();
    let mut sleeps = Vec::new();
    let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
    for (name, wakes_at) in [(1, 30), (2, 10), (3, 30), (4, 20), (5, 90)] {
        let clock = manual.clock();
        let mut sleep = Box::pin(clock.sleep_until(at(wakes_at)));
        let notes = Arc::clone(&notes);
        let waker = Waker::from(Arc::new(Notes { name, clock, notes }));
        assert!(poll(sleep.as_mut(), &waker).is_pending());
        sleeps.push(sleep);
    }
    assert_eq!(manual.next_alarm(), Some(at(10)));
    manual.advance(millis(50));
    assert_eq!(
        *notes.lock().unwrap(),
        [(2, at(10)), (4, at(20)), (1, at(30)), (3, at(30))]
    );
    assert_eq!(manual.next_alarm(), Some(at(90)));
    assert_eq!(manual.clock().now(), at(50));
}

#[test]
fn sleep_ends_at_its_time_and_not_before() {
    let manual = ManualClock::new();
    let clock = manual.clock();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut sleep = pin!(clock.sleep_until(Timestamp::ZERO + secs(1)));
    assert!(poll(sleep.as_mut(), &waker).is_pending());
    manual.advance(secs(1) - Duration::from_nanos(1));
    assert_eq!(woken.count(), 0);
    assert!(poll(sleep.as_mut(), &waker).is_pending());
    manual.advance(Duration::from_nanos(1));
    assert_eq!(woken.count(), 1, "polling twice set one alarm");
    assert!(poll(sleep.as_mut(), &waker).is_ready());
}

#[test]
fn sleep_until_a_past_time_does_not_wait() {
    let manual = ManualClock::new();
    manual.advance(secs(1));
    let clock = manual.clock();
    let mut sleep = pin!(clock.sleep_until(Timestamp::ZERO + secs(1)));
    assert!(poll(sleep.as_mut(), Waker::noop()).is_ready());
    assert_eq!(manual.next_alarm(), None);
}

#[test]
fn dropped_sleep_cancels_its_alarm() {
    let manual = ManualClock::new();
    let woken = Arc::new(Woken::default());
    let mut sleep = Box::pin(manual.clock().sleep_until(Timestamp::ZERO + secs(1)));
    assert!(poll(sleep.as_mut(), &Waker::from(Arc::clone(&woken))).is_pending());
    drop(sleep);
    assert_eq!(manual.next_alarm(), None);
    assert_eq!(Arc::strong_count(&woken), 1, "the waker is dropped too");
    manual.advance(secs(2));
    assert_eq!(woken.count(), 0);
}

#[test]
fn sleep_wakes_the_last_task_that_polled_it() {
    let manual = ManualClock::new();
    let clock = manual.clock();
    let [first, second] = [(); 2].map(|()| Arc::new(Woken::default()));
    let mut sleep = pin!(clock.sleep_until(Timestamp::ZERO + secs(1)));
    assert!(poll(sleep.as_mut(), &Waker::from(Arc::clone(&first))).is_pending());
    assert!(poll(sleep.as_mut(), &Waker::from(Arc::clone(&second))).is_pending());
    manual.advance(secs(1));
    assert_eq!((first.count(), second.count()), (0, 1));
}

#[test]
fn time_never_goes_back() {
    let manual = ManualClock::new();
    manual.advance(secs(5));
    manual.advance_to(Timestamp::ZERO + secs(1));
    assert_eq!(manual.clock().now(), Timestamp::ZERO + secs(5));
}

#[test]
fn converts_past_and_future_times_to_wall_time() {
    let manual = ManualClock::new();
    manual.advance(secs(3600));
    let clock = manual.clock();
    let (now, wall) = (clock.now(), clock.wall().as_unix_millis());
    assert_eq!(wall, 1_767_225_600_000 + 3_600_000, "2026-01-01T01:00:00Z");
    let at = |at| clock.wall_at(at).as_unix_millis();
    assert_eq!(at(now), wall);
    assert_eq!(at(now + millis(1500)), wall + 1500);
    assert_eq!(at(Timestamp::ZERO), wall - 3_600_000);
    let furthest = at(Timestamp::MAX);
    assert!(furthest > wall, "and at the end of time: {furthest}");
}

#[test]
fn system_clock_wakes_waiters() {
    let clock = Clock::system();
    let (waker, woken) = sender();
    let at = clock.now() + millis(3);
    let mut sleep = pin!(clock.sleep_until(at));
    if poll(sleep.as_mut(), &waker).is_pending() {
        assert_eq!(woken.recv_timeout(secs(60)), Ok(()));
        assert!(clock.now() >= at);
    }
    assert!(poll(sleep.as_mut(), &waker).is_ready());
}

#[test]
fn system_clock_fires_an_earlier_alarm_set_later() {
    let clock = Clock::system();
    let [(late, _late), (soon, woken)] = [sender(), sender()];
    let mut sleeps = pin!(clock.sleep_until(clock.now() + secs(3600)));
    assert!(poll(sleeps.as_mut(), &late).is_pending());
    let mut sleep = pin!(clock.sleep_until(clock.now() + millis(3)));
    if poll(sleep.as_mut(), &soon).is_pending() {
        assert_eq!(woken.recv_timeout(secs(60)), Ok(()));
    }
}

#[test]
fn dropped_sleep_of_the_system_clock_drops_its_waker() {
    let clock = Clock::system();
    let (waker, woken) = sender();
    let mut sleep = Box::pin(clock.sleep_until(clock.now() + secs(3600)));
    assert!(poll(sleep.as_mut(), &waker).is_pending());
    drop((waker, sleep));
    assert_eq!(woken.try_recv(), Err(TryRecvError::Disconnected));
}

#[cfg(feature = "tokio")]
mod tokio_clock {
    use tidegate::{Ask, Limiter};
    use tokio::time::Instant;

    use super::*;
    use crate::support::{KEY, load, ok, settings};

    fn limiter(set: &[(&str, &str)]) -> Limiter {
        Limiter::builder()
            .gate(settings(set))
            .clock(Clock::tokio())
            .build()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_asks_at_one_per_second_take_no_real_time() {
        let limiter = limiter(&[
            ("strategy", "fixed"),
            ("initial_rate", "1"),
            ("max_wait", "1h"),
        ]);
        let began = Instant::now();
        for _ in 0..101 {
            limiter.acquire(KEY).await.unwrap().settle(&ok());
        }
        // The first leaves at once, and tokio's timers have a resolution of a millisecond.
        let took = began.elapsed();
        assert!(took >= millis(99_998), "{took:?}");
        assert!(took <= millis(100_200), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_ends_at_its_time() {
        let clock = Clock::tokio();
        let (began, wall) = (clock.now(), clock.wall().as_unix_millis());
        clock.sleep_until(began + secs(3600)).await;
        let took = clock.now().since(began);
        assert!(
            (secs(3600)..=secs(3600) + millis(1)).contains(&took),
            "{took:?}"
        );
        let passed = clock.wall().as_unix_millis() - wall;
        assert!((3_600_000..=3_600_001).contains(&passed), "{passed}");
    }

    #[tokio::test(start_paused = true)]
    async fn timed_out_ask_leaves_the_line() {
        let limiter = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
        limiter.acquire(KEY).await.unwrap().settle(&ok());
        let given_up = tokio::time::timeout(millis(500), limiter.acquire(KEY)).await;
        assert!(given_up.is_err());
        assert_eq!(load(&limiter, KEY), (0, 0));
        let began = Instant::now();
        limiter.acquire(KEY).await.unwrap().settle(&ok());
        assert!(began.elapsed() <= millis(501), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn refuses_at_the_deadline() {
        let limiter = limiter(&[("max_in_flight", "1")]);
        let permit = limiter.acquire(KEY).await.unwrap();
        let began = Instant::now();
        let refused = limiter.acquire(Ask::new(KEY).within(secs(7))).await;
        assert!(refused.is_err());
        let took = began.elapsed();
        assert!((secs(7)..=secs(7) + millis(2)).contains(&took), "{took:?}");
        permit.settle(&ok());
    }
}

/// How many of ten asks at one per second have a permit after ten seconds.
fn admitted_in_ten_seconds(step: Duration) -> usize {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    limiter.try_acquire(KEY).expect("a token").settle(&ok());
    let mut callers: Vec<_> = (0..10).map(|_| Caller::new(limiter.acquire(KEY))).collect();
    for caller in &mut callers {
        assert!(caller.poll().is_pending());
    }
    let mut permits = Vec::new();
    let end = clock.clock().now() + secs(10);
    while clock.clock().now() < end {
        clock.advance(step);
        callers.retain_mut(|caller| match caller.poll() {
            Poll::Ready(permit) => {
                permits.push(permit.expect("a permit"));
                false
            }
            Poll::Pending => true,
        });
    }
    permits.len()
}

#[test]
fn one_long_advance_admits_as_many_as_small_steps() {
    assert_eq!(admitted_in_ten_seconds(millis(100)), 10);
    assert_eq!(admitted_in_ten_seconds(secs(10)), 10);
}

#[test]
fn end_of_time_does_not_hang() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut waiting = Caller::new(limiter.acquire(KEY));
    assert!(waiting.poll().is_pending());
    clock.advance(Duration::MAX);
    assert!(waiting.poll().is_ready());
    let late = limiter.try_acquire(KEY);
    let mut last = Caller::new(limiter.acquire(KEY));
    let _ = last.poll();
    clock.advance(Duration::MAX);
    drop((late, permit, last));
    assert_eq!(clock.clock().now(), Timestamp::MAX);
}

#[test]
fn custom_clock_tells_the_time_and_wakes() {
    /// The time of another clock, an hour later.
    struct Later(ManualClock);

    impl TimeSource for Later {
        fn now(&self) -> Timestamp {
            self.0.clock().now() + secs(3600)
        }

        fn wall(&self) -> WallTime {
            self.0.clock().wall()
        }

        fn wake_at(&self, at: Timestamp, waker: Waker) -> WakeGuard {
            let at = Timestamp::ZERO + at.since(Timestamp::ZERO + secs(3600));
            let clock = self.0.clock();
            let mut sleep = Box::pin(clock.sleep_until(at));
            let polled = sleep.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            Box::new(sleep)
        }
    }

    let manual = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(settings(&[("strategy", "fixed"), ("initial_rate", "1")]))
        .clock(Clock::custom(Later(manual.clone())))
        .build();
    assert_eq!(limiter.clock().now(), Timestamp::from_secs(3600));
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let mut waiting = Caller::new(limiter.acquire(KEY));
    assert!(waiting.poll().is_pending());
    manual.advance(secs(1));
    assert!(waiting.is_woken());
    assert!(waiting.poll().is_ready());
}

#[cfg(target_os = "linux")]
#[test]
fn all_limiters_of_a_process_share_one_timer_thread() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        let names = names.filter_map(Result::ok);
        names.filter(|name| name.trim() == "tidegate-clock").count()
    };
    let limiters: Vec<Limiter> = (0..20).map(|_| Limiter::new()).collect();
    for limiter in &limiters {
        limiter.try_acquire(KEY).unwrap().settle(&ok());
    }
    // A thread takes its name itself, some time after it was started.
    while threads() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(threads(), 1);
}

#[test]
fn ask_that_is_granted_at_once_reads_the_clock_once() {
    /// Stands a little later at every read, as a real clock does.
    struct Counted(Arc<AtomicU64>);

    impl TimeSource for Counted {
        fn now(&self) -> Timestamp {
            let reads = self.0.fetch_add(1, Ordering::SeqCst);
            Timestamp::ZERO + secs(reads)
        }

        fn wall(&self) -> WallTime {
            WallTime::from_unix_millis(0)
        }

        fn wake_at(&self, _: Timestamp, _: Waker) -> WakeGuard {
            Box::new(())
        }
    }

    let reads = Arc::new(AtomicU64::new(0));
    let limiter = Limiter::builder()
        .clock(Clock::custom(Counted(Arc::clone(&reads))))
        .build();
    let read_by = |act: &mut dyn FnMut()| {
        act();
        let before = reads.load(Ordering::SeqCst);
        act();
        reads.load(Ordering::SeqCst) - before
    };
    let mut tries = || std::mem::forget(limiter.try_acquire(KEY).unwrap());
    assert_eq!(read_by(&mut tries), 1);
    let mut waits = || {
        let mut asked = Caller::new(limiter.acquire(KEY));
        std::mem::forget(asked.poll());
    };
    assert_eq!(read_by(&mut waits), 1);
    let throttled = limiter.snapshot(tidegate::Sort::Key, 0).totals.throttled;
    assert_eq!(throttled, 0, "none of them waited");
}

/// What the ten asks of a scenario came to in twenty seconds, advanced in steps of `step`: admitted,
/// refused for their deadline, still waiting; and the rate of the gate.
fn after_twenty_seconds(scenario: &Scenario, step: Duration) -> ([usize; 3], f64) {
    let (clock, limiter) = limiter(scenario.settings);
    let _held = (scenario.prepare)(&limiter);
    let asks = (1..=10).map(|number| {
        let ask = Ask::new(KEY).within(secs(number) + millis(50));
        Caller::new(limiter.acquire(ask))
    });
    let mut callers: Vec<_> = asks.collect();
    let (mut admitted, mut refused) = (Vec::new(), 0);
    let end = clock.clock().now() + secs(20);
    loop {
        callers.retain_mut(|caller| match caller.poll() {
            Poll::Ready(Ok(permit)) => {
                admitted.push(permit);
                false
            }
            Poll::Ready(Err(_)) => {
                refused += 1;
                false
            }
            Poll::Pending => true,
        });
        if clock.clock().now() >= end {
            break;
        }
        clock.advance(step);
    }
    let gate = limiter.gate(KEY).expect("a gate in use is kept").gate;
    ([admitted.len(), refused, callers.len()], gate.rate)
}

struct Scenario {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// What happens before; the permits are held.
    prepare: fn(&Limiter) -> Vec<Permit<'_>>,
    /// How many are admitted.
    admitted: usize,
}

#[test]
fn long_advance_over_deadlines_holds_and_probes_is_like_small_steps() {
    fn settle(limiter: &Limiter, outcomes: &[Outcome]) {
        for outcome in outcomes {
            limiter.try_acquire(KEY).unwrap().settle(outcome);
        }
    }
    let scenarios = [
        Scenario {
            name: "deadlines behind an attempt in flight",
            settings: &[("max_in_flight", "1")],
            prepare: |limiter| vec![limiter.try_acquire(KEY).unwrap()],
            admitted: 0,
        },
        Scenario {
            name: "a hold of five seconds",
            settings: &[("strategy", "fixed"), ("initial_rate", "10")],
            prepare: |limiter| {
                settle(limiter, &[Outcome::throttled(millis(40), Some(secs(5)))]);
                Vec::new()
            },
            admitted: 6,
        },
        Scenario {
            name: "an open breaker, and its three probes",
            settings: &[
                ("strategy", "fixed"),
                ("initial_rate", "1000"),
                ("open_first", "4s"),
                ("consecutive_failures", "1"),
            ],
            prepare: |limiter| {
                settle(limiter, &[Outcome::overloaded(millis(40))]);
                Vec::new()
            },
            admitted: 3,
        },
        Scenario {
            name: "a learned rate",
            settings: &[("initial_rate", "0.5")],
            prepare: |limiter| {
                settle(limiter, &[ok()]);
                Vec::new()
            },
            admitted: 6,
        },
    ];
    for scenario in scenarios {
        let small = after_twenty_seconds(&scenario, millis(50));
        let long = after_twenty_seconds(&scenario, secs(20));
        assert_eq!(small, long, "{}", scenario.name);
        assert_eq!(small.0[0], scenario.admitted, "{}", scenario.name);
    }
}

#[test]
fn clock_at_the_end_of_time_does_not_hang() {
    struct Ended;

    impl TimeSource for Ended {
        fn now(&self) -> Timestamp {
            Timestamp::MAX
        }

        fn wall(&self) -> WallTime {
            WallTime::from_unix_millis(i64::MAX)
        }

        fn wake_at(&self, _: Timestamp, _: Waker) -> WakeGuard {
            Box::new(())
        }
    }

    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let limiter = Limiter::builder().clock(Clock::custom(Ended)).build();
        for wait in [None, Some(secs(7))] {
            if let Poll::Ready(Ok(permit)) = Caller::new(limiter.acquire(KEY)).poll() {
                permit.settle(&Outcome::throttled(millis(40), wait));
            }
            let mut waiting = Caller::new(limiter.acquire(KEY));
            let _ = waiting.poll();
            let _ = limiter.try_acquire(KEY);
            limiter.evict_idle();
            let _ = limiter.clock().wall_at(Timestamp::ZERO);
        }
        let call = limiter.call(KEY).within(secs(1));
        let run = call.run(async |attempt| AttemptResult::new((), attempt.status(502)));
        let mut run = pin!(run);
        let _ = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        done.send(())
    });
    assert_eq!(ended.recv_timeout(secs(20)), Ok(()));
}
