//! Clients that other people wrote, sent through the gateway: curl, Python's requests, OpenAI's
//! library, Node's fetch; and schemathesis over the admin API.
//!
//! Every test runs the real binary twice, as a mock and as a server, on free ports and with a folder
//! of its own, and ends both with SIGTERM. What a client makes of an answer is judged in its own
//! language, by the scripts beside this file; what the upstream saw is judged here. Clients that are
//! missing fail their tests: `scripts/install-clients` installs them.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod access;
mod client;
mod curl;
mod node;
mod openai;
mod requests;
mod schemathesis;
mod servers;
