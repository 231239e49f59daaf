//! Every decision of Tidegate, as plain state machines.
//!
//! Nothing in this crate reads a clock, does IO, spawns, sleeps or draws its own random numbers:
//! `now` and random bits come in as arguments, a decision comes out. That is why the same code
//! decides in the product, in the simulator and in `tidegate replay`, and why the same settings,
//! the same seed and the same events always give the same trace.

pub mod backoff;
pub mod breaker;
pub mod bucket;
pub mod budget;
pub mod classify;
pub mod duration;
pub mod failure_queue;
pub mod gate;
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
