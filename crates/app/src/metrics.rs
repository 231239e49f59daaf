//! What is counted and measured, for Prometheus.
//!
//! Counters and histograms are those of `prometheus-client`. A sender looks its handles up once,
//! [`Metrics::route`] and [`Metrics::key`], and then counts without a search or memory for a
//! request. The present state of gates and endpoints is not counted but read at each scrape, by
//! collectors that its owners [register](Metrics::register).
//!
//! The output is the text format of Prometheus, version 0.0.4, which every scraper reads. The library
//! writes OpenMetrics, which differs in the names of counters' families (without `_total`) and the
//! last line `# EOF`; so counters are encoded under their whole names, and that line is left out.
//!
//! Labels have bounds: routes are named in the settings, words are closed lists, and of keys, which
//! requests may invent, at most [`Metrics::MAX_SHOWN`] are shown by name and the rest as `_other`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::gate::Reason;
use policy::item::{DelaySource, ResendReason, TerminalReason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use tidegate::RefusalReason;
use tidegate::call::Trail;

mod calls;
mod family;
mod keys;
mod outcome;
mod present;
mod reference;
mod routes;

pub use keys::KeyMetrics;
pub use outcome::RequestOutcome;
pub use present::{
    GateCollector, LogCollector, ObserverCollector, ReplayCollector, StateCollector, StateView,
};
pub use reference::reference;
pub use routes::RouteMetrics;

use calls::Calls;
use keys::Keys;
use routes::Routes;

/// Everything that is counted and measured.
///
/// ```
/// use app::metrics::{Metrics, RequestOutcome};
///
/// let metrics = Metrics::new();
/// let route = metrics.route("llm"); // once
/// route.request(RequestOutcome::Success); // for each request
/// assert!(metrics.render().contains("tidegate_requests_total{route=\"llm\",outcome=\"success\"} 1\n"));
/// ```
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    routes: Arc<Routes>,
    keys: Arc<Keys>,
    calls: Arc<Calls>,
}

/// The label of everything that is not shown by name.
const OTHER: &str = "_other";

impl Metrics {
    /// How many keys are shown by name: those with the most attempts.
    pub const MAX_SHOWN: usize = 100;

    /// How many keys are counted apart; the others share the count of `_other`.
    pub const MAX_KEYS: usize = 10_000;

    /// How many routes are counted apart; the others share the count of `_other`.
    pub const MAX_ROUTES: usize = 1_000;

    /// The route of requests that have none.
    pub const NO_ROUTE: &str = "_none";

    /// The `Content-Type` of [`Metrics::render`].
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Nothing is counted yet.
    pub fn new() -> Self {
        let (routes, keys, calls) = <(Arc<Routes>, Arc<Keys>, Arc<Calls>)>::default();
        let metrics = Self {
            registry: Mutex::default(),
            routes: Arc::clone(&routes),
            keys: Arc::clone(&keys),
            calls: Arc::clone(&calls),
        };
        metrics.register(routes);
        metrics.register(keys);
        metrics.register(calls);
        metrics
    }

    /// Adds what `collector` encodes to every rendering.
    pub fn register(&self, collector: impl Collector) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(collector));
    }

    /// Where requests of a route are counted: to be looked up once and kept.
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        self.routes.named(name)
    }

    /// Where attempts at a gate are counted: to be looked up once and kept.
    pub fn key(&self, key: &str) -> Arc<KeyMetrics> {
        self.keys.named(key)
    }

    /// Counts the waits and retries of a call that has ended after `sent` attempts. A call that was
    /// admitted at once and succeeded with its first attempt costs next to nothing.
    pub fn call(&self, trail: &Trail, sent: u32, succeeded: bool) {
        self.calls.count(trail, sent, succeeded);
    }

    /// Counts a wait at a gate.
    pub fn waited(&self, reason: Reason, time: Duration) {
        self.calls.waited(RefusalReason::Gate(reason), time);
    }

    /// Counts an operation or a URL that is to be sent again.
    pub fn item_retry(&self, delay: Duration, source: DelaySource, reason: ResendReason) {
        self.calls.retry(delay, source, reason);
    }

    /// Counts a URL that has ended after `sent` attempts, or for a reason.
    pub fn url_ended(&self, sent: u32, result: Result<(), TerminalReason>) {
        self.calls.url_ended(sent, result);
    }

    /// Counts an operation that has ended after `sent` attempts: delivered so long after it was
    /// accepted, or not, for a reason.
    pub fn operation_ended(&self, sent: u32, result: Result<Duration, TerminalReason>) {
        self.calls.ended(sent, result);
    }

    /// Counts a result of an operation that came too late, because its claim was lost.
    pub fn claim_lost(&self) {
        self.calls.claim_lost();
    }

    /// Everything as text. The same state gives the same bytes.
    pub fn render(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing into a string cannot fail.
        _ = encode_registry(&mut text, &registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
