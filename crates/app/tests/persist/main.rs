//! Persistence with real stores, some of which fail on purpose.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod failing;
mod support;
mod writing;
