//! Operations over real sockets: delivered, sent again, failed, and what survives a restart.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

#[path = "../collector/mod.rs"]
mod collector;
mod conflict;
mod credential;
mod delivery;
mod failing;
mod respond_async;
mod support;
mod traces;
mod waits;
mod webhook;
#[path = "../wire/mod.rs"]
mod wire;
