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
