//! What the command `tidegate` runs.
//!
//! Settings, read from file, environment and flags into types that cannot be wrong; the gateway, the
//! admin API and everything else that sends by the decisions of `policy`. Nothing here parses
//! arguments or prints.

mod access_log;
pub mod admin;
mod base64;
pub mod check;
mod client_body;
pub mod core;
pub mod demo;
pub mod descriptors;
pub mod exchange;
pub mod fetch;
pub mod fleet;
pub mod gateway;
mod host_check;
mod http1;
pub mod jobs;
mod listener;
pub mod log;
pub mod metrics;
pub mod mock;
pub mod observe;
pub mod operations;
pub mod poll;
pub mod redact;
mod replaceable;
pub mod run;
pub mod server;
mod service_manager;
pub mod settings;
mod stall;
pub mod state;
pub mod telemetry;
mod temporary;
mod timer;
pub mod tls;
mod upstream;
mod whole_body;
