//! Gates that several servers share through Redis: a fleet that is one client to its upstreams.
//!
//! The gates know what to say and when ([`tidegate::fleet`]); `store` knows how to say it to Redis. The
//! thread here connects them: it makes the calls, applies replies and messages, and says when the
//! server is silent. No request waits for it: while Redis does not answer, gates continue with the
//! last share of this node.

#[cfg(feature = "redis")]
mod calls;
mod health;
#[cfg(feature = "redis")]
mod servers;
#[cfg(feature = "redis")]
mod shares;
#[cfg(feature = "redis")]
mod worker;

pub use health::{FleetHealth, FleetView, HealthChange};
#[cfg(feature = "redis")]
pub(crate) use servers::servers;
#[cfg(feature = "redis")]
pub use worker::{FleetStartError, FleetWorker};

use crate::settings::Settings;

/// What the rate of a gate without settings of its own depends on: all nodes of a fleet must agree on it.
/// Settings of single hosts may differ while they are rolled out.
pub(crate) fn agreed_gate(settings: &Settings) -> String {
    let gate = &settings.gates.default_value().gate;
    let (min, max) = gate.rate_bounds();
    let limits = gate.known_limits().iter().map(ToString::to_string);
    let limits: Vec<String> = limits.collect();
    format!(
        "strategy={} initial_rate={} min_rate={min} max_rate={max} limits={}",
        gate.strategy().as_str(),
        gate.initial_rate(),
        limits.join(","),
    )
}
