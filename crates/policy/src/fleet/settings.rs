//! The settings of a shared gate: of the node's gate, of the controller, and of the fleet.

use std::time::Duration;

use crate::gate::GateSettings;
use crate::rate::Strategy;

/// What all nodes of a fleet must agree on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetSettings {
    /// The time between two calls of a node. With 250 ms, eight nodes lose 3 % of goodput.
    pub interval: Duration,
    /// A node that did not call for this long has no share, and is no owner. A reply may ask a node
    /// to call again only after half of it.
    pub lease: Duration,
    /// The rate of a key that no node has claimed, in requests per second.
    pub initial_rate: f64,
    /// The rate is never lower.
    pub min_rate: f64,
    /// The first open time of the breaker of the fleet.
    pub open_first: Duration,
    /// Later open times grow up to this.
    pub open_for: Duration,
    /// A trip of the breaker of one node counts for this long.
    pub trip_window: Duration,
    /// So many probes must succeed until the breaker of the fleet closes.
    pub half_open_probes: u8,
    /// A probe without a result is given to another node after this.
    pub probe_lost_after: Duration,
}

/// The settings of a gate whose key is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedSettings {
    /// Of the gate on each node: it does not learn a rate.
    pub gate: GateSettings,
    /// Of the controller that the key's owner runs.
    pub controller: GateSettings,
    /// Of the fleet.
    pub fleet: FleetSettings,
}

impl SharedSettings {
    /// The default time between two calls of a node.
    pub const INTERVAL: Duration = Duration::from_millis(100);
    /// The default length of a lease.
    pub const LEASE: Duration = Duration::from_secs(2);

    /// Shares the key of a gate with these settings. Known limits bound the rate of the fleet, and
    /// also what each node sends.
    pub fn new(settings: &GateSettings, interval: Duration, lease: Duration) -> Self {
        let limited = settings
            .limits
            .iter()
            .map(|limit| f64::from(limit.count()) / limit.period().as_secs_f64())
            .fold(settings.max_rate, f64::min);
        let mut controller = settings.clone();
        controller.max_rate = limited;
        controller.min_rate = settings.min_rate.min(limited);
        controller.initial_rate = settings.initial_rate.min(limited);
        controller.limits = Box::default();
        let mut gate = settings.clone();
        gate.strategy = Strategy::Fixed;
        let breaker = &settings.breaker;
        Self {
            fleet: FleetSettings {
                interval,
                lease,
                initial_rate: controller.initial_rate,
                min_rate: controller.min_rate,
                open_first: breaker.open_first,
                open_for: breaker.open_for,
                trip_window: breaker.window,
                half_open_probes: breaker.half_open_probes,
                probe_lost_after: breaker.probe_lost_after,
            },
            gate,
            controller,
        }
    }
}
