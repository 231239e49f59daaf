//! Mocks on real sockets. Times are those of a clock that is moved by hand, unless a test says
//! otherwise, so that nothing depends on how busy the machine is.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod about;
mod endpoints;
mod limits;
mod scripts;
mod styles;
mod support;
mod transport;
#[path = "../wire/mod.rs"]
mod wire;
