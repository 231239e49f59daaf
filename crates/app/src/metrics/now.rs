//! What gates, endpoints, the store and the log are like at the moment of looking.

use policy::breaker::BreakerState;
use policy::gate::GateSnapshot;
use policy::time::Timestamp;
use tidegate::pool::EndpointView;
use tidegate::{GateView, Limiter, Snapshot, Sort};

use super::family::{self, Family};
use super::text::Exposition;
use super::{Metrics, OTHER, Sources};

pub(super) fn render(sources: &Sources<'_>, out: &mut Exposition) {
    gates(sources.limiter, out);
    endpoints(sources.pools, out);
    out.family(&family::STORE_DEGRADED)
        .switch(&[], sources.is_store_degraded);
    out.family(&family::LOG_DROPPED)
        .number(&[], sources.log.dropped());
}

fn gates(limiter: &Limiter, out: &mut Exposition) {
    let Snapshot { totals, mut gates } = limiter.snapshot(Sort::Admitted, Metrics::MOST_SHOWN);
    let now = limiter.clock().now();
    // By key and not by rank, so that samples keep their place from one look to the next.
    gates.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    out.family(&family::GATES).number(&[], totals.gates);
    out.family(&family::GATES_EVICTED)
        .number(&[], totals.evicted);
    floats(&gates, &family::GATE_RATE, out, |gate| gate.rate);
    let in_flight = |gate: &GateSnapshot| gate.in_flight;
    counts(
        &gates,
        totals.in_flight,
        &family::GATE_IN_FLIGHT,
        out,
        in_flight,
    );
    let waiting = |gate: &GateSnapshot| gate.waiting;
    counts(&gates, totals.waiting, &family::GATE_WAITING, out, waiting);
    floats(&gates, &family::GATE_ERROR_RATE, out, |gate| {
        gate.window.error_rate()
    });
    breakers(&gates, out);
    floats(&gates, &family::HOLD, out, |gate| hold_left(gate, now));
}

fn floats(
    gates: &[GateView],
    family: &'static Family,
    out: &mut Exposition,
    value: impl Fn(&GateSnapshot) -> f64,
) {
    let mut samples = out.family(family);
    for view in gates {
        samples.float(&[&view.key], value(&view.gate));
    }
}

/// One for each gate, and what is left of the total for all that are not shown.
fn counts(
    gates: &[GateView],
    total: u64,
    family: &'static Family,
    out: &mut Exposition,
    value: impl Fn(&GateSnapshot) -> u32,
) {
    let mut samples = out.family(family);
    let mut left = total;
    for view in gates {
        let count = u64::from(value(&view.gate));
        samples.number(&[&view.key], count);
        left = left.saturating_sub(count);
    }
    if gates.len() >= Metrics::MOST_SHOWN {
        samples.number(&[OTHER], left);
    }
}

fn breakers(gates: &[GateView], out: &mut Exposition) {
    let mut samples = out.family(&family::BREAKER);
    for view in gates {
        for state in STATES {
            let is_in = view.gate.breaker == state;
            samples.switch(&[&view.key, state.as_str()], is_in);
        }
    }
}

const STATES: [BreakerState; 4] = [
    BreakerState::Closed,
    BreakerState::Open,
    BreakerState::HalfOpen,
    BreakerState::Isolated,
];

fn hold_left(gate: &GateSnapshot, now: Timestamp) -> f64 {
    gate.hold.map_or(0.0, |(until, _)| until.seconds_since(now))
}

fn endpoints(pools: &[(String, Vec<EndpointView>)], out: &mut Exposition) {
    let each = |family: &'static Family, out: &mut Exposition, is: fn(&EndpointView) -> bool| {
        let mut samples = out.family(family);
        for (pool, endpoints) in pools {
            for endpoint in endpoints {
                samples.switch(&[pool, &endpoint.name], is(endpoint));
            }
        }
    };
    each(&family::ENDPOINT_ENABLED, out, |endpoint| {
        endpoint.disabled.is_none()
    });
    each(&family::ENDPOINT_PAUSED, out, |endpoint| {
        endpoint.paused_until.is_some()
    });
}
