//! `tidegate fetch` as a process: hosts that do not answer beside others, a long queue, and a site from
//! a real generator compared with what wget2 finds.
//!
//! A missing wget2 fails its test; `scripts/install-clients` installs it.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod crawl;
mod frontier;
mod isolation;
mod pace;
mod server;
mod support;
