//! The gateway on real sockets: a mock or a raw upstream on one side, a raw client on the other.
//!
//! Times are those of the machine, so nothing is said about how long something takes at most: only
//! that it does not end too early, and, with a long timeout, that it ends.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod bodies;
mod certificates;
#[path = "../child/mod.rs"]
mod child;
mod client_limits;
#[path = "../collector/mod.rs"]
mod collector;
mod costs;
mod cross_site;
mod documents;
mod forward;
mod frames;
mod headers;
mod hostile;
mod http2_clients;
mod http2_servers;
mod leaving;
mod lifecycle;
mod listener_tls;
mod memory;
mod observing;
mod pools;
mod replay;
mod resting;
mod routing;
mod secrets;
mod slow;
mod support;
mod telemetry;
mod timeouts;
mod tls;
mod transports;
mod tunnels;
mod upgrades;
mod upstream_proxy;
mod waiting;
mod websocket;
#[path = "../wire/mod.rs"]
mod wire;
