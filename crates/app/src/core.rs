//! What everything that sends shares: the clock, the gates, the connections to upstreams, events,
//! metrics and the log.
//!
//! One core is made from the settings and lives as long as the process. It knows nothing of who
//! uses it: senders, `state`, `admin` and `demo` depend on it, never the other way round.

mod events;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use policy::key::endpoint_key;
use tidegate::event::{Event, EventListener};
use tidegate::fleet::NodeId;
use tidegate::{Clock, HostSettings, Hosts, Limiter, Timestamp};

use events::Forwarder;
pub use events::{EventHub, EventKinds, NextEvent, PublishedEvent, Subscription};
pub(crate) use events::{disabled_text, millis, unix_millis};

use crate::descriptors::{self, Descriptors};
use crate::fleet::FleetHealth;
use crate::log::{Log, Logs};
use crate::metrics::{GateCollector, LogCollector, Metrics, ObserverCollector, ReplayCollector};
use crate::observe::Observers;
use crate::settings::Settings;
use crate::upstream::{ReplayMemory, Upstream};

/// What everything that sends shares.
#[derive(Debug)]
pub struct Core {
    limiter: Limiter,
    events: Arc<EventHub>,
    upstream: Upstream,
    descriptors: Arc<Descriptors>,
    replay_memory: Arc<ReplayMemory>,
    metrics: Metrics,
    log: Log,
    observers: Arc<Observers>,
    workers: usize,
    job_slots: usize,
    fleet: Option<Arc<FleetHealth>>,
}

impl Core {
    /// A core for these settings; `workers` is the number of threads that send. Its gates are its own.
    pub fn new(settings: &Settings, log: Log, clock: Clock, workers: usize) -> Arc<Self> {
        Self::build(settings, log, clock, workers, None)
    }

    /// The same for a server: if the settings name a fleet, its gates are shared, and admit next to
    /// nothing until a [`FleetWorker`](crate::fleet::FleetWorker) makes their calls.
    pub fn of_server(settings: &Settings, log: Log, clock: Clock, workers: usize) -> Arc<Self> {
        let is_shared = settings.storage.gates.is_some();
        let node = is_shared.then(|| NodeId(RandomState::new().hash_one(0)));
        Self::build(settings, log, clock, workers, node)
    }

    fn build(
        settings: &Settings,
        log: Log,
        clock: Clock,
        workers: usize,
        node: Option<NodeId>,
    ) -> Arc<Self> {
        let events = EventHub::new(clock.clone());
        let shared = &settings.storage.shared_gates;
        let fleet = node.map(|_| FleetHealth::new(shared.gates_interval, clock.now()));
        let mut limiter = Limiter::builder()
            .clock(clock)
            .listener(Forwarder(Arc::clone(&events)))
            .hosts(gate_settings(settings))
            .retry_budget(settings.retry_budget);
        if let Some(node) = node {
            limiter = limiter.fleet(node, shared.gates_interval, shared.gates_lease);
        }
        let limiter = limiter.build();
        let job_slots = settings.jobs.max_running as usize;
        let metrics = Metrics::new();
        let descriptors = Arc::new(Descriptors::new(descriptors::limit()));
        metrics.register(GateCollector::new(limiter.clone()));
        metrics.register(LogCollector::new(log.clone()));
        let replay_memory = Arc::new(ReplayMemory::new(settings.http.replay_memory()));
        let memory = Arc::clone(&replay_memory);
        metrics.register(ReplayCollector::new(move || memory.used()));
        let observers = Arc::new(Observers::new(limiter.clock().clone(), log.clone()));
        metrics.register(ObserverCollector::new(Arc::clone(&observers)));
        Arc::new(Self {
            limiter,
            events,
            // One more for operations, one for each job that runs, and one for telemetry.
            upstream: Upstream::new(workers + 2 + job_slots, Arc::clone(&descriptors)),
            descriptors,
            replay_memory,
            metrics,
            log,
            observers,
            workers,
            job_slots,
            fleet: fleet.map(Arc::new),
        })
    }

    /// The same for a command of its own, with a log, on the system's clock.
    pub fn with_logs(settings: &Settings, logs: Logs, workers: usize) -> Arc<Self> {
        let clock = Clock::system();
        let log = Log::new(logs.sink, logs.format, logs.filter, &clock);
        Self::new(settings, log, clock, workers)
    }

    /// The memory of bodies that are kept for sending them again.
    pub(crate) fn replay_memory(&self) -> &Arc<ReplayMemory> {
        &self.replay_memory
    }

    /// All gates.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The clock of the gates.
    pub fn clock(&self) -> &Clock {
        self.limiter.clock()
    }

    /// Where events go.
    pub fn events(&self) -> &Arc<EventHub> {
        &self.events
    }

    /// The client of all upstreams, for `exchange`.
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The shares that connections have of the process's descriptors.
    pub(crate) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// What is counted and measured.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What is recorded of requests.
    pub fn observers(&self) -> &Arc<Observers> {
        &self.observers
    }

    /// Whether the server of the fleet answers; `None` if gates are not shared.
    pub fn fleet(&self) -> Option<&Arc<FleetHealth>> {
        self.fleet.as_ref()
    }

    /// Logs holds and breakers from now on, for commands without a server.
    pub fn log_gates(&self) {
        self.events.add(Arc::new(GateLogger(self.log.clone())));
    }

    /// How many threads send.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The number under which operations have their connections.
    pub(crate) fn operations_worker(&self) -> usize {
        self.workers
    }

    /// How many jobs can run at once.
    pub(crate) fn job_slots(&self) -> usize {
        self.job_slots
    }

    /// The number under which the job in a slot, counted from 0, has its connections.
    pub(crate) fn job_worker(&self, slot: usize) -> usize {
        self.workers + 1 + slot
    }

    /// The number under which the exporter of telemetry has its connections.
    pub(crate) fn telemetry_worker(&self) -> usize {
        self.workers + 1 + self.job_slots
    }

    /// Uses other settings of gates from now on. Gates keep what they have learned.
    pub(crate) fn reload(&self, settings: &Settings) {
        self.limiter.set_settings(gate_settings(settings));
    }
}

/// Logs what gates do that people should know of.
struct GateLogger(Log);

impl EventListener for GateLogger {
    fn on_event(&self, _at: Timestamp, event: &Event<'_>) {
        self.0.limiter_event(event, None);
    }
}

/// What is configured for every host, with the longest time that an attempt may wait for a response:
/// until then a probe of a breaker is not lost. Several pools may have endpoints at one host, so it is
/// the longest of all pools.
fn gate_settings(settings: &Settings) -> Hosts<HostSettings> {
    let http = &settings.http;
    let of_pools = settings.pools.values().map(|pool| {
        let connect = pool.timeouts.connect.unwrap_or(http.connect_timeout);
        let first_byte = pool.timeouts.first_byte;
        connect + first_byte.unwrap_or(http.first_byte_timeout)
    });
    let timeout = http.connect_timeout + http.first_byte_timeout;
    let timeout = of_pools.fold(timeout, Duration::max);
    let mut hosts = settings.gates.clone();
    for host in hosts.values_mut() {
        host.gate.set_response_timeout(timeout);
    }
    // All at once: one by one, each would copy all settings.
    for pool in settings.pools.values() {
        for endpoint in &pool.endpoints {
            if let Some(host) = endpoint.url.host_str() {
                hosts.alias(&endpoint_key(&pool.name, &endpoint.name), host);
            }
        }
    }
    hosts
}
