//! Reads TOML files against the definitions of their settings.
//!
//! A file becomes a tree of values with locations ([`document`]); the environment and flags may
//! replace values. Definitions of sections ([`schema`]) list the allowed names, and a [`Reader`]
//! checks each value against its definition and passes it to its options. No step stops at a
//! problem: all are reported, each with its location.
//!
//! Settings and scenarios are both read by this crate, so that problems are reported the same way.
//! Serde is not used: it stops at the first problem and loses the location of contradictions
//! between two values.

pub mod document;
mod problem;
mod reader;
pub mod schema;

pub use self::problem::{Location, Problem, join, shortened};
pub use self::reader::{Context, Reader, Resolve};
