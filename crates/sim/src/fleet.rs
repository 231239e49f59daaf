//! Fleets: nodes that share the limit of an upstream through a store.
//!
//! Every node is a client with the production policy: a gate and a [`policy::fleet::Member`]. The
//! store runs [`policy::fleet::Ledger`], which a test compares with the script of the real one. What
//! is modelled here is what lies between them: messages take time and get lost, the store is away or
//! loses what it knows, nodes are cut off from it, and nodes start and stop.
//!
//! The upstream sees a fleet as one client: all nodes send with the same key.

mod settings;
mod store;

pub use settings::{
    Cut, FleetSettings, NodeRange, StoreOptions, StoreOutage, StoreSettings, StoreValues,
};
pub(crate) use store::{Delivery, REPLY_TIMEOUT, Store};
