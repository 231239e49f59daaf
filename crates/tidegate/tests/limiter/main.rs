//! The limiter's public interface, on a manual clock; only the tests of the system clock use real
//! time.

mod asking;
mod cancellation;
mod clocks;
mod eviction;
mod leaks;
mod panics;
mod stress;
mod support;
mod waiting;
mod wakers;
