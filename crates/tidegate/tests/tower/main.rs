//! The middleware, over services that are answered by hand and over real sockets.
#![cfg(feature = "tower")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod limit;
mod sockets;
mod support;
