//! How fast the limiter is, beside the crates that people would use in its stead.
//!
//! Everything is measured in one run and in turns, so that a machine which is slow for a while is
//! slow for all. Memory is measured in a process of its own, where nothing else is in the way.
//! `scripts/bench-limiter` runs this, and `scripts/count-instructions` its workloads.

mod allocations;
mod contender;
mod eviction;
mod keys;
mod memory;
mod others;
mod ours;
mod peers;
mod pools;
mod report;
mod throughput;
mod waiters;
mod workload;

use std::alloc::System;
use std::process::ExitCode;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Counts allocations, for all measurements: a limiter that allocates pays for it here as well.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => measure(Effort::FULL),
        ["--quick"] => measure(Effort::QUICK),
        ["pools"] => report::print_pools(&pools::measure(Effort::QUICK)),
        [memory::ARGUMENT, keys] => return memory::measure_here(keys),
        ["work", name, keys, operations] => return workload::run(name, keys, operations),
        _ => return report::usage(),
    }
    ExitCode::SUCCESS
}

fn measure(effort: Effort) {
    let throughput = throughput::measure(effort);
    let results = report::Results {
        throughput,
        pools: pools::measure(effort),
        allocations_per_operation: allocations::measure(),
        bytes_per_key: memory::measure_in_child(effort.most_keys),
        waiters: waiters::measure(effort.waiting),
        eviction: eviction::measure(effort.most_keys),
    };
    report::print(&results);
}

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// One turn of one contender.
    pub(crate) turn: Duration,
    /// How often each has its turn; odd, so that there is one in the middle.
    pub(crate) repeats: usize,
    /// Those who wait, once everybody does.
    pub(crate) waiting: Duration,
    /// What stands for a million.
    pub(crate) most_keys: usize,
}

impl Effort {
    /// Long enough that a turn of the scheduler does not show.
    const FULL: Self = Self {
        turn: Duration::from_millis(400),
        repeats: 5,
        waiting: Duration::from_secs(5),
        most_keys: 1_000_000,
    };

    /// To try something out. The numbers wander by a tenth.
    const QUICK: Self = Self {
        turn: Duration::from_millis(60),
        repeats: 3,
        waiting: Duration::from_secs(1),
        most_keys: 1_000_000,
    };
}
