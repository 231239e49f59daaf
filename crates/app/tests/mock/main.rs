//! Mocks on real sockets, with a manual clock unless a test says otherwise.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod endpoints;
mod limits;
mod scripts;
mod stats;
mod styles;
mod support;
mod transport;
#[path = "../wire/mod.rs"]
mod wire;
