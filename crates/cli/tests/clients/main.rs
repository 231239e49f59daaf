//! Clients of other projects, through the gateway: curl, OpenSSL, Python's requests, OpenAI's library,
//! Node's fetch; some of them, git, pip and apt with the gateway as their proxy; schemathesis over the admin
//! API; promtool over the alert rules; and programs that `tidegate run` runs: curl, Wget, git and yt-dlp, against a server that answers
//! as a test says.
//!
//! Every test of the gateway runs the real binary twice, as a mock and as a server, on free ports and
//! with a folder of its own, and stops both with SIGTERM. Scripts beside this file check, in the client's language,
//! what the client got; tests check what the upstream got. A missing client fails its tests;
//! `scripts/install-clients` installs them.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod access;
mod alerts;
mod client;
mod curl;
mod forward;
mod node;
mod openai;
mod operations;
mod packs;
mod report;
mod requests;
mod run;
mod schemathesis;
mod scripted;
mod servers;
mod tls;
mod yt_dlp;
