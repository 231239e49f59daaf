//! Gates shared with other processes: a fleet of nodes that is one client to its upstreams.
//!
//! A limiter built with [`LimiterBuilder::fleet`](crate::LimiterBuilder::fleet) is one node. Its gates
//! admit by what the fleet's store allows: send times that were reserved for this node, or its part of
//! the fleet's rate. The store is any server that runs the script whose rules are in
//! [`Ledger`]; a task of the program makes the calls:
//!
//! ```no_run
//! # async fn sync(_calls: &[tidegate::fleet::SharedCall]) -> Option<Vec<tidegate::fleet::Reply>> { None }
//! # async fn run() {
//! use std::time::Duration;
//! use tidegate::Limiter;
//! use tidegate::fleet::NodeId;
//!
//! let limiter = Limiter::builder()
//!     .fleet(NodeId(7), Duration::from_millis(100), Duration::from_secs(2))
//!     .build();
//! let gates = limiter.shared_gates().expect("it was built for a fleet");
//! loop {
//!     let calls = gates.calls(32).await;
//!     match sync(&calls).await {
//!         Some(replies) => {
//!             for (call, reply) in calls.into_iter().zip(&replies) {
//!                 gates.replied(call, reply);
//!             }
//!         }
//!         None => calls.into_iter().for_each(|call| gates.unanswered(call)),
//!     }
//! }
//! # }
//! ```
//!
//! Beside that loop, call [`SharedGates::tick`] every interval, and [`SharedGates::noticed`] with what
//! the store publishes. `tidegate serve` does all of this with a Redis server.

pub use crate::limiter::{FleetStatus, SharedCall, SharedGates};
pub use policy::fleet::{
    Call as FleetCall, Claim, FleetSettings, Ledger, MemberView, NodeId, Notice, Reply,
    SharedSettings,
};
