//! The admin API: the state of everything, and changes by a person, as JSON over HTTP.
//!
//! It has its own listener and thread, so that it responds while the gateway is busy, and its own
//! token, so that a client's token gives no access here. Every call but those about health needs the token in
//! `DATA/admin-token`, or the cookie that a browser got for it. Handlers only translate: what can be
//! changed is in [`crate::state`]. The console's files are served here too.
//!
//! The document at `/openapi.json` is made from the handlers themselves.

mod api;
pub mod bodies;
mod body;
pub mod client;
mod console;
mod demo;
mod events;
mod explain;
mod gates;
mod guard;
mod health;
mod jobs;
mod key_path;
mod listen;
pub mod moving;
mod operations;
mod pools;
mod problem;
mod protection;
mod query;
mod recorder;
mod reference;
mod samples;
mod settings;
mod sign_in;
mod simulate;
mod summary;
mod test_tool;
mod token;
mod waiting;

pub use demo::TourGuide;
pub use gates::gate_list;
pub use listen::{Admin, AdminError};
pub use reference::reference;
pub use token::{Token, TokenError};

/// The document that describes every call, as JSON.
pub fn document() -> String {
    api::document()
}
