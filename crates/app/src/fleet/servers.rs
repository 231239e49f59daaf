//! What each server of the fleet has of a gate, for people who look.
//!
//! It is read from Redis over a connection of its own, made for this: people look rarely, and the
//! connection of the calls must not wait for them.

use std::time::Duration;

use policy::fleet::NodeId;
use store::{FleetMember, FleetServer, NodeShare};
use tokio::sync::mpsc::channel;
use tokio::time::timeout;

use crate::settings::Settings;

/// The servers that use the gate `key`, with their shares; nothing if gates are not shared.
///
/// # Errors
///
/// A text for people, if Redis does not answer.
pub(crate) async fn servers(settings: &Settings, key: &str) -> Result<Vec<NodeShare>, String> {
    let address = settings.storage.gates.as_ref();
    // The settings have checked it.
    let Some(address) = address.and_then(|address| address.expose().parse().ok()) else {
        return Ok(Vec::new());
    };
    // It does not enter the fleet.
    let onlooker = FleetMember {
        namespace: settings.storage.shared_gates.namespace.clone(),
        settings: String::new(),
        node: NodeId(0),
        about: String::new(),
    };
    let (messages, _none) = channel(1);
    let server = FleetServer::new(address, onlooker, messages);
    let mut server = server.map_err(|error| error.to_string())?;
    match timeout(MAX_READ, server.shares(key)).await {
        Ok(shares) => shares.map_err(|error| error.to_string()),
        Err(_) => Err(format!("{} does not answer", server.address())),
    }
}

/// Longer than a server takes that works; people wait for it.
const MAX_READ: Duration = Duration::from_secs(2);
