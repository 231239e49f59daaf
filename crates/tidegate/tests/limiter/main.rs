//! The limiter as its callers see it, from outside and by a clock that is moved by hand: nothing
//! here waits for real time but the one test of the real clock.

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
