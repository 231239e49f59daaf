//! TOML files, read against the definitions of their settings.
//!
//! A file becomes a tree in which every value has its location ([`document`]); the environment and
//! flags may replace values of it. Definitions of sections ([`schema`]) say which names there are,
//! and a [`Reader`] checks each value by its definition and hands it to the options it belongs to.
//! No step stops at a problem: all of them are reported, each with its location.
//!
//! Settings and scenarios are both read by this, so that a mistake in either is reported alike.
//! Serde is not used: it stops at the first problem and loses the location of contradictions between
//! two values.

pub mod document;
mod problem;
mod reader;
pub mod schema;

pub use self::problem::{Location, Problem, join, shortened};
pub use self::reader::{Context, Reader, Resolve};
