//! The file on a real disk: what was acknowledged outlives a process that is killed, and a disk that is
//! full, read-only or damaged.
//!
//! A process can neither kill itself and go on nor make its own disk bad, so tests run this binary as
//! a child that does one test only.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(unix)]
mod bad;
mod crash;
mod support;
