//! What people write in TOML files: a tree of it, and what is wrong with it.
//!
//! Settings and scenarios are read by different code into different types, but a person who made a
//! mistake in one should be told in the same way as in the other.

pub mod document;
pub mod problem;
