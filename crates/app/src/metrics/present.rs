//! The present state of gates, endpoints, the store and the log, read at each scrape.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::GateSnapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use store::jobs::JobTotals;
use store::operations::OperationCounts;
use tidegate::pool::EndpointView;
use tidegate::{GateView, Limiter, Snapshot, Sort};

use super::family::{self, Family, Sample};
use super::{Metrics, OTHER};
use crate::log::Log;
use crate::observe::{Observers, Signal};

/// The gates of a limiter.
#[derive(Debug)]
pub struct GateCollector(Limiter);

impl GateCollector {
    /// Reads the gates of this limiter.
    pub fn new(limiter: Limiter) -> Self {
        Self(limiter)
    }
}

impl Collector for GateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Snapshot {
            totals, mut gates, ..
        } = self.0.snapshot(Sort::Admitted, Metrics::MAX_SHOWN);
        let now = self.0.clock().now();
        // By key and not by rank, so that samples stay in their place.
        gates.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        family::GATES.encode(&mut encoder, [([], Sample::Number(totals.gates))])?;
        family::GATES_EVICTED.encode(&mut encoder, [([], Sample::Number(totals.evicted))])?;
        let mut floats = |family: &Family, value: &dyn Fn(&GateSnapshot) -> f64| {
            let samples = gates.iter();
            let samples = samples.map(|view| ([&*view.key], Sample::Float(value(&view.gate))));
            family.encode(&mut encoder, samples)
        };
        floats(&family::GATE_RATE, &|gate| gate.rate)?;
        floats(&family::GATE_ERROR_RATE, &|gate| gate.window.error_rate())?;
        floats(&family::HOLD, &|gate| {
            gate.hold.map_or(0.0, |(until, _)| until.seconds_since(now))
        })?;
        let mut counts = |family: &Family, total: u64, value: fn(&GateSnapshot) -> u32| {
            family.encode(&mut encoder, with_other(&gates, total, value))
        };
        counts(&family::GATE_IN_FLIGHT, totals.in_flight, |gate| {
            gate.in_flight
        })?;
        counts(&family::GATE_WAITING, totals.waiting, |gate| gate.waiting)?;
        let breakers = gates.iter().flat_map(|view| {
            STATES.map(|state| {
                let is_in = Sample::Number((view.gate.breaker == state).into());
                ([&*view.key, state.as_str()], is_in)
            })
        });
        family::BREAKER.encode(&mut encoder, breakers)
    }
}

/// One for each gate, and what is left of the total for all that are not shown.
fn with_other(
    gates: &[GateView],
    total: u64,
    value: fn(&GateSnapshot) -> u32,
) -> impl Iterator<Item = ([&str; 1], Sample<'_>)> {
    let count = move |view: &GateView| u64::from(value(&view.gate));
    let shown: u64 = gates.iter().map(count).sum();
    let other = ([OTHER], Sample::Number(total.saturating_sub(shown)));
    let other = (gates.len() >= Metrics::MAX_SHOWN).then_some(other);
    let each = gates
        .iter()
        .map(move |view| ([&*view.key], Sample::Number(count(view))));
    each.chain(other)
}

const STATES: [BreakerState; 4] = [
    BreakerState::Closed,
    BreakerState::Open,
    BreakerState::HalfOpen,
    BreakerState::Isolated,
];

/// What a [`StateCollector`] shows.
#[derive(Clone, Debug, Default)]
pub struct StateView {
    /// Pools by name, with their endpoints.
    pub pools: Vec<(String, Vec<EndpointView>)>,
    /// Stored operations.
    pub operations: OperationCounts,
    /// Stored jobs.
    pub jobs: JobTotals,
    /// Whether state cannot be stored at present, or gates do without the server that they share.
    pub is_store_degraded: bool,
    /// For how long that server has not answered; `None` if gates are not shared.
    pub fleet_silence: Option<Duration>,
}

/// Endpoints, operations, jobs and the store.
pub struct StateCollector<F>(F);

impl<F: Fn() -> StateView> StateCollector<F> {
    /// Calls `read` at each scrape.
    pub fn new(read: F) -> Self {
        Self(read)
    }
}

impl<F> fmt::Debug for StateCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateCollector")
    }
}

impl<F: Fn() -> StateView + Send + Sync + 'static> Collector for StateCollector<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = (self.0)();
        let mut endpoints = |family: &Family, is: fn(&EndpointView) -> bool| {
            let samples = state.pools.iter().flat_map(|(pool, endpoints)| {
                endpoints.iter().map(move |endpoint| {
                    let is = Sample::Number(is(endpoint).into());
                    ([&**pool, &*endpoint.name], is)
                })
            });
            family.encode(&mut encoder, samples)
        };
        endpoints(&family::ENDPOINT_ENABLED, |endpoint| {
            endpoint.disabled.is_none()
        })?;
        endpoints(&family::ENDPOINT_PAUSED, |endpoint| {
            endpoint.paused_until.is_some()
        })?;
        let operations = state.operations.all();
        let operations = operations.map(|(state, count)| ([state], Sample::Number(count)));
        family::OPERATIONS.encode(&mut encoder, operations)?;
        let jobs = state.jobs.all();
        let jobs = jobs.map(|(status, count)| ([status.as_str()], Sample::Number(count)));
        family::JOBS.encode(&mut encoder, jobs)?;
        let is_degraded = Sample::Number(state.is_store_degraded.into());
        family::STORE_DEGRADED.encode(&mut encoder, [([], is_degraded)])?;
        let silence = state.fleet_silence.into_iter();
        let silence = silence.map(|silence| ([], Sample::Float(silence.as_secs_f64())));
        family::STORE_SILENCE.encode(&mut encoder, silence)
    }
}

/// The dropped lines of a log.
#[derive(Debug)]
pub struct LogCollector(Log);

impl LogCollector {
    /// Reads this log.
    pub fn new(log: Log) -> Self {
        Self(log)
    }
}

impl Collector for LogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        family::LOG_DROPPED.encode(&mut encoder, [([], Sample::Number(self.0.dropped()))])
    }
}

/// The memory of bodies that are kept for sending them again.
pub struct ReplayCollector<F>(F);

impl<F: Fn() -> u64> ReplayCollector<F> {
    /// Calls `read` for the number of bytes at each scrape.
    pub fn new(read: F) -> Self {
        Self(read)
    }
}

impl<F> fmt::Debug for ReplayCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplayCollector")
    }
}

impl<F: Fn() -> u64 + Send + Sync + 'static> Collector for ReplayCollector<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        family::REPLAY_BYTES.encode(&mut encoder, [([], Sample::Number((self.0)()))])
    }
}

/// What the access log and the exporter of telemetry could not write.
#[derive(Debug)]
pub struct ObserverCollector(Arc<Observers>);

impl ObserverCollector {
    /// Reads these observers.
    pub fn new(observers: Arc<Observers>) -> Self {
        Self(observers)
    }
}

impl Collector for ObserverCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let dropped = Sample::Number(self.0.access_lines_dropped());
        family::ACCESS_LOG_DROPPED.encode(&mut encoder, [([], dropped)])?;
        let Some(spans) = self.0.spans() else {
            return Ok(());
        };
        let dropped = Sample::Number(spans.dropped());
        family::SPANS_DROPPED.encode(&mut encoder, [([], dropped)])?;
        let failures = Signal::ALL.map(|signal| {
            let count = Sample::Number(spans.failures(signal));
            ([signal.as_str()], count)
        });
        family::OTLP_FAILURES.encode(&mut encoder, failures)
    }
}
