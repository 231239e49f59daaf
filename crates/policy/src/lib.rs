//! Every decision of Tidegate, as plain state machines.
//!
//! Nothing in this crate reads a clock, does IO, spawns, sleeps or draws its own random numbers:
//! `now` and random bits come in as arguments, a decision comes out. That is why the same code
//! decides in the product, in the simulator and in `tidegate replay`, and why the same settings,
//! the same seed and the same events always give the same trace.

pub mod classify;
pub mod hint;
mod json;
pub mod outcome;
pub mod text;
pub mod time;
