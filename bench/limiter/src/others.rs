//! Time that others had the CPU while a thread of ours was ready to go on.
//!
//! It is taken off what is measured, so that a busy machine gives nearly the numbers of a quiet one;
//! only caches stay shared. On a machine with nothing else to do it is nothing.

use std::fs;
use std::time::Duration;

/// How long this thread has been ready without a CPU until now, as Linux counts it; zero where that
/// is not known.
pub(crate) fn time_ready() -> Duration {
    let counts = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = counts.split(' ').nth(1);
    let nanos = nanos.and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
