//! Every decision of Tidegate, as plain state machines.
//!
//! Nothing in this crate reads a clock, does IO, spawns, sleeps or draws its own random numbers:
//! `now` and random bits are arguments, and the result is a decision. The product, the simulator
//! and `tidegate replay` therefore share the same code, and the same settings, seed and events
//! always give the same trace.

pub mod backoff;
pub mod breaker;
pub mod bucket;
pub mod budget;
pub mod classify;
mod cost;
pub mod duration;
pub mod failure_queue;
pub mod fleet;
pub mod gate;
pub mod hedge;
pub mod hint;
pub mod hosts;
pub mod item;
pub mod jitter;
mod json;
pub mod key;
pub mod ladder;
pub mod latency;
pub mod limits;
pub mod line;
pub mod merge;
pub mod operation;
pub mod outcome;
pub mod poll;
pub mod pool;
pub mod preset;
pub mod random;
pub mod rate;
pub mod rules;
pub mod setting;
pub mod suggest;
pub mod text;
pub mod time;
pub mod window;
