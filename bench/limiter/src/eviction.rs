//! How long a slice of eviction holds a shard's lock, when every gate of a million may go.
//!
//! On a clock that is moved by hand. While it moves, the limiter makes its own rounds at exactly
//! their times; gates that are made a moment after a round began are not idle in the last round
//! before the clock stops, so all of them are left for the slices that are timed here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use tidegate::clock::{TimeSource, WakeGuard};
use tidegate::{Clock, Limiter, Timestamp, WallTime};

use crate::keys::write_key;
use crate::others::time_ready;
use crate::ours::{self, DEFAULT};

pub(crate) struct Eviction {
    /// The longest slice but for one in a hundred, in milliseconds.
    pub(crate) p99_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) longest_ms: f64,
    pub(crate) slices: usize,
    pub(crate) evicted_per_slice: f64,
}

/// The median of three runs: a slice is so short that another process on the same CPU shows in the
/// 99th percentile.
pub(crate) fn measure(gates: usize) -> Eviction {
    let mut times = [(); 3].map(|()| measure_once(gates));
    times.sort_by(|one, other| one.p99_ms.total_cmp(&other.p99_ms));
    let [_, middle, _] = times;
    middle
}

fn measure_once(gates: usize) -> Eviction {
    let now = SilentClock::default();
    let limiter = ours::builder(DEFAULT)
        .clock(Clock::custom(now.clone()))
        .build();
    let mut key = String::new();
    for number in 0..gates {
        write_key(&mut key, number);
        attempt(&limiter, &key);
    }
    // `idle_after` is two minutes.
    now.set(Duration::from_secs(121));
    let left = limiter.gates();
    assert!(left >= gates, "only {left} gates are left for the slices");
    let slices = time_slices(&limiter);
    assert_eq!(limiter.gates(), 0, "all gates were idle");
    summary(&slices, left)
}

/// A clock without timers, so that only the slices below evict.
#[derive(Clone, Debug, Default)]
struct SilentClock(Arc<AtomicU64>);

impl SilentClock {
    fn set(&self, now: Duration) {
        self.0.store(now.as_millis() as u64, Ordering::Relaxed);
    }
}

impl TimeSource for SilentClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_unix_millis(0)
    }

    fn wake_at(&self, _at: Timestamp, _waker: Waker) -> WakeGuard {
        Box::new(())
    }
}

/// Evicts until all shards have had their turn, from the first to the last.
fn time_slices(limiter: &Limiter) -> Vec<f64> {
    let mut slices = Vec::new();
    // The rounds have left off in the middle of the shards, so all of them are gone over again.
    for _ in 0..2 {
        loop {
            let (before, ready_before) = (limiter.gates(), time_ready());
            let started = Instant::now();
            let finished = limiter.evict_idle();
            let took = started.elapsed();
            let took = took.saturating_sub(time_ready().saturating_sub(ready_before));
            // A look at an empty shard is no slice, and would make the others look better.
            if limiter.gates() < before {
                slices.push(took.as_secs_f64() * 1e3);
            }
            if finished {
                break;
            }
        }
    }
    slices.sort_by(f64::total_cmp);
    slices
}

fn summary(slices: &[f64], evicted: usize) -> Eviction {
    let at = |share: f64| slices[((slices.len() - 1) as f64 * share).ceil() as usize];
    Eviction {
        p99_ms: at(0.99),
        median_ms: at(0.5),
        longest_ms: at(1.0),
        slices: slices.len(),
        evicted_per_slice: evicted as f64 / slices.len() as f64,
    }
}

fn attempt(limiter: &Limiter, key: &str) {
    let permit = limiter.try_acquire(key).expect("no attempt is refused");
    permit.settle(&ours::outcome());
}
