//! Gate settings by host.

use std::sync::Arc;

use policy::classify::Rule;
use policy::gate::GateSettings;

/// Settings of a host's gates, or of those of all its subdomains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSettings {
    /// The settings of each gate.
    pub gate: GateSettings,
    /// All hosts of the pattern share one gate, with the pattern as its key.
    pub share: bool,
    /// Classification rules for responses from these hosts. Only used by code that classifies whole
    /// responses; [`Permit::settle`](crate::Permit::settle) sees only the outcome.
    pub rules: Arc<[Rule]>,
}

impl From<GateSettings> for HostSettings {
    fn from(gate: GateSettings) -> Self {
        Self {
            gate,
            share: false,
            rules: Arc::default(),
        }
    }
}
