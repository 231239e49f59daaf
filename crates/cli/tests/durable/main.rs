//! What survives: the real binary with a real data folder, stopped, killed and started again.
//!
//! Upstreams are mocks in this process, on ports of their own. Nothing is said about how fast things
//! are: what has to come is waited for, for long, and what must not be earlier has only that bound.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod faults;
mod fleet;
mod full_disk;
mod jobs;
mod killed;
mod operations;
mod partition;
mod refused;
mod restarted;
mod shared;
mod shared_jobs;
mod stopped;
mod support;
