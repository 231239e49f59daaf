//! Acquire and settle at an endpoint of a pool, beside the same at a bare gate.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate::{Ask, Clock, Pool};

use crate::Effort;
use crate::contender::{Contender, warm_up};
use crate::keys::walk;
use crate::ours::{DEFAULT, Ours, builder, outcome};
use crate::throughput::{STEPS, Times, go_together, in_turns};

/// The times of a bare gate and of pools, in nanoseconds per attempt.
pub(crate) struct Pools {
    pub(crate) gate: Times,
    /// With 1, 8 and 64 endpoints.
    pub(crate) pools: [Times; 3],
    /// Two threads at one gate.
    pub(crate) gate_two_threads: Times,
    /// Two threads at one pool with 8 endpoints.
    pub(crate) pool_two_threads: Times,
}

pub(crate) const SIZES: [usize; 3] = [1, 8, 64];

pub(crate) fn measure(effort: Effort) -> Pools {
    let one = [walk(1, STEPS, 1)];
    let two = [walk(1, STEPS, 1), walk(1, STEPS, 2)];
    let gate = Ours::new(DEFAULT);
    warm_up(&gate, &one[0]);
    let pools = SIZES.map(PoolOf::new);
    for pool in &pools {
        warm_up(pool, &one[0]);
    }
    let [gate_times, first, second, third] = in_turns(effort, |index, time| match index {
        0 => go_together(&gate, &one, time),
        index => go_together(&pools[index - 1], &one, time),
    });
    // How often two threads meet at a lock differs from turn to turn by a factor of ten, so there are more.
    let contended = Effort {
        repeats: effort.repeats * 4 + 1,
        ..effort
    };
    let [gate_two_threads, pool_two_threads] = in_turns(contended, |index, time| match index {
        0 => go_together(&gate, &two, time),
        _ => go_together(&pools[1], &two, time),
    });
    Pools {
        gate: gate_times,
        pools: [first, second, third],
        gate_two_threads,
        pool_two_threads,
    }
}

/// A pool with so many endpoints.
pub(crate) struct PoolOf(Pool<()>);

impl PoolOf {
    pub(crate) fn new(endpoints: usize) -> Self {
        let limiter = builder(DEFAULT).clock(Clock::system()).build();
        let pool = Pool::new("pool", &limiter);
        for number in 0..endpoints {
            assert!(pool.add(&format!("endpoint-{number}"), "api.example.com", ()));
        }
        Self(pool)
    }
}

impl Contender for PoolOf {
    #[inline]
    fn attempt(&self, _: &String) -> bool {
        let acquire = pin!(self.0.acquire(Ask::any()));
        match acquire.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(permit)) => {
                permit.settle(&outcome());
                true
            }
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }
}
