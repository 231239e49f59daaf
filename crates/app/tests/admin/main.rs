//! The admin API over real sockets: responses, refusals, and what survives a restart.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod access;
mod canaries;
mod changes;
#[expect(dead_code, reason = "tests of the gateway use the rest")]
#[path = "../child/mod.rs"]
mod child;
mod described;
mod jobs;
mod looking;
mod operations;
mod recording;
mod schema;
mod settings;
mod sign_in;
mod simulate;
mod support;
mod tls;
