//! Waiting works under every executor, and no wake-up is lost among many tasks.

#![cfg(feature = "tokio")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate::{
    Ask, AttemptResult, CallError, Clock, GateOptions, GateSettings, Limiter, Outcome, Pool,
    Timestamp,
};

fn ok() -> Outcome {
    Outcome::status(200, Duration::from_millis(5))
}

/// Asks fifty times, by hand and by a call, for more than the gate gives at once.
async fn ask_often(limiter: Limiter) -> Result<u32, CallError<u32>> {
    let mut sent = 0;
    for _ in 0..25 {
        if let Ok(permit) = limiter.acquire_owned("api.example.com").await {
            permit.settle(&ok());
            sent += 1;
        }
        let call = limiter.call("api.example.com");
        let called = call.run(async |attempt| AttemptResult::new(1, attempt.status(200)));
        sent += called.await?.value;
    }
    Ok(sent)
}

fn fast() -> Limiter {
    Limiter::builder().gate(GateSettings::fixed(2000.0)).build()
}

#[test]
fn waits_under_smol() {
    let limiter = fast();
    let tasks: Vec<_> = (0..4)
        .map(|_| smol::spawn(ask_often(limiter.clone())))
        .collect();
    for task in tasks {
        assert_eq!(smol::block_on(task).unwrap(), 50);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn waits_under_a_current_thread_runtime() {
    let limiter = fast();
    let tasks: Vec<_> = (0..4)
        .map(|_| tokio::spawn(ask_often(limiter.clone())))
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 50);
    }
}

#[test]
fn waits_without_an_executor() {
    let limiter = fast();
    for _ in 0..50 {
        limiter
            .acquire_blocking("api.example.com")
            .unwrap()
            .settle(&ok());
    }
}

/// Requests per second of each gate.
const RATE: f64 = 250.0;

const TASKS: usize = 2000;

#[tokio::test(start_paused = true)]
async fn two_thousand_tasks_use_every_token_for_twenty_seconds() {
    let clock = Clock::tokio();
    let limiter = Limiter::builder()
        .gate(GateSettings::fixed(RATE))
        .clock(clock.clone())
        .build();
    let pool = Pool::new("pool", &limiter);
    for name in ["a", "b"] {
        assert!(pool.add(name, "pool.example.com", ()));
    }
    let end = clock.now() + Duration::from_secs(20);
    let counts: Arc<[AtomicU32; 4]> = Arc::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let (limiter, pool, counts) = (limiter.clone(), pool.clone(), Arc::clone(&counts));
            let kind = number % 4;
            tokio::spawn(async move {
                while ask(kind, &limiter, &pool, end).await {
                    counts[kind].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let counts: Vec<u32> = counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect();
    let tokens = |gates: f64| gates * RATE * 20.0 * 0.95;
    // One gate, a pair of gates, the first of two gates, and a pool of two.
    for (count, gates) in counts.iter().zip([1.0, 1.0, 2.0, 2.0]) {
        assert!(f64::from(*count) >= tokens(gates), "{counts:?}");
    }
    for view in limiter.snapshot(tidegate::Sort::Admitted, 10).gates {
        assert_eq!(
            (view.gate.waiting, view.gate.in_flight),
            (0, 0),
            "{}",
            view.key
        );
    }
}

/// Asks in one of four ways, each at gates of its own. `false` when the time is up.
async fn ask(kind: usize, limiter: &Limiter, pool: &Pool<()>, end: Timestamp) -> bool {
    let permit = match kind {
        0 => limiter.acquire(Ask::new("one").until(end)).await,
        1 => {
            limiter
                .acquire(Ask::new("pair/a").also(&["pair/b"]).until(end))
                .await
        }
        2 => limiter
            .acquire_any(&["any/a", "any/b"], Ask::any().until(end))
            .await
            .map(|(_, permit)| permit),
        _ => {
            let Ok(permit) = pool.acquire(Ask::any().until(end)).await else {
                return false;
            };
            tokio::task::yield_now().await;
            permit.settle(&ok());
            return true;
        }
    };
    let Ok(permit) = permit else {
        return false;
    };
    // Others find it in flight.
    tokio::task::yield_now().await;
    permit.settle(&ok());
    true
}

/// By the system's clock on several threads, where a wake-up may come while its task is being polled,
/// dropped or moved. In each round every task asks once; one whose wake-up is lost never ends.
///
/// `TIDEGATE_WAKEUP_SECONDS=20` runs longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_thousand_tasks_on_several_threads_lose_no_wake_up() {
    let seconds = std::env::var("TIDEGATE_WAKEUP_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(2));
    let mut options = GateOptions::default();
    for (name, value) in [
        ("strategy", "fixed"),
        ("initial_rate", "20_000"),
        ("max_rate", "20_000"),
        ("max_in_flight", "8"),
    ] {
        options.set(name, value).expect("a valid setting");
    }
    let limiter = Limiter::builder().gate(options.build().unwrap()).build();
    let pool = Pool::new("pool", &limiter);
    for name in ["a", "b"] {
        assert!(pool.add(name, "pool.example.com", ()));
    }
    let clock = limiter.clock().clone();
    let (started, mut rounds) = (clock.now(), 0);
    while clock.now().since(started) < length {
        rounds += 1;
        let end = clock.now() + Duration::from_secs(25);
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let (limiter, pool) = (limiter.clone(), pool.clone());
                tokio::spawn(async move {
                    let asked = ask(number % 4, &limiter, &pool, end);
                    if number % 7 == 0 {
                        // Given up while it waits, or just when it is admitted.
                        let soon = Duration::from_micros(number as u64);
                        return tokio::time::timeout(soon, asked).await.unwrap_or(true);
                    }
                    asked.await
                })
            })
            .collect();
        let all = async {
            let mut done = 0;
            for task in tasks {
                done += usize::from(task.await.unwrap());
            }
            done
        };
        let done = tokio::time::timeout(Duration::from_secs(20), all).await;
        assert_eq!(done, Ok(TASKS), "in round {rounds}");
    }
    for view in limiter.snapshot(tidegate::Sort::Admitted, 10).gates {
        let left = (view.gate.waiting, view.gate.in_flight);
        assert_eq!(left, (0, 0), "{} after {rounds} rounds", view.key);
    }
}
