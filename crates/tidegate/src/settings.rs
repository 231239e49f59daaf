//! What gates work with, by host.

use std::sync::Arc;

use policy::classify::Rule;
use policy::gate::GateSettings;

/// What the gates of a host, or of all hosts below one, work with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSettings {
    /// The gates' own settings.
    pub gate: GateSettings,
    /// All hosts of the pattern have one gate together, and the pattern is its key.
    pub share: bool,
    /// Rules for the responses of its hosts. For code that judges with the whole
    /// answer at hand; [`Permit::settle`](crate::Permit::settle) knows only its outcome.
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
