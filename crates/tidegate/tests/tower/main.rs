//! The middleware, over a mock service and over real sockets.
#![cfg(feature = "tower")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../drive/mod.rs"]
mod drive;
mod limit;
mod retry;
mod sockets;
mod support;
