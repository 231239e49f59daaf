//! What is counted and measured, in the text format of Prometheus.
//!
//! Who sends requests looks its handles up once, [`Metrics::route`] and [`Metrics::key`], and then
//! adds to plain atomics: no lock, no search and no memory for a request. What a gate or an
//! endpoint is like now is not counted here but read when somebody asks, see [`Sources`].
//!
//! Labels have bounds. Routes are named in the settings, words are closed lists, and of keys, which
//! others may invent, at most [`Metrics::MOST_SHOWN`] are shown by name: the rest is `_other`.

use std::sync::Arc;

use tidegate::Limiter;
use tidegate::call::Trail;
use tidegate::pool::EndpointView;

use crate::log::Log;

mod calls;
mod counter;
mod family;
mod histogram;
mod keys;
mod now;
mod outcome;
mod reference;
mod routes;
mod text;

pub use keys::KeyMetrics;
pub use outcome::RequestOutcome;
pub use reference::reference;
pub use routes::RouteMetrics;

use calls::Calls;
use keys::Keys;
use routes::Routes;
use text::Exposition;

/// Everything that is counted. One for a program; share it by an [`Arc`].
///
/// ```
/// use app::metrics::{Metrics, RequestOutcome};
///
/// let metrics = Metrics::new();
/// let route = metrics.route("llm"); // once
/// route.request(RequestOutcome::Success); // for each request
/// ```
#[derive(Debug, Default)]
pub struct Metrics {
    routes: Routes,
    keys: Keys,
    calls: Calls,
}

/// What is read when somebody asks, and not counted here.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// Whose gates.
    pub limiter: &'a Limiter,
    /// Pools by name, with what can be seen of their endpoints.
    pub pools: &'a [(String, Vec<EndpointView>)],
    /// Can what has to survive a restart not be written down now?
    pub is_store_degraded: bool,
    /// Whose lines may be dropped.
    pub log: &'a Log,
}

/// The label of all that are not shown by name.
const OTHER: &str = "_other";

impl Metrics {
    /// So many keys are shown by name, those with the most attempts; the others are `_other`.
    pub const MOST_SHOWN: usize = 100;

    /// So many keys are counted apart; beyond, all share one count, that of `_other`.
    pub const MOST_KEYS: usize = 10_000;

    /// So many routes are counted apart; beyond, all share one count, that of `_other`.
    pub const MOST_ROUTES: usize = 1_000;

    /// The route of requests that have none.
    pub const NO_ROUTE: &str = "_none";

    /// What [`Metrics::render`] gives, for the header `Content-Type`.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Nothing is counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where requests of a route are counted: to be looked up once and kept.
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        self.routes.named(name)
    }

    /// Where attempts at a gate are counted: to be looked up once and kept.
    pub fn key(&self, key: &str) -> Arc<KeyMetrics> {
        self.keys.named(key)
    }

    /// Counts the waits and retries of a call that has ended: `sent` so often, the last time with
    /// success or not. One that was admitted at once and answered well costs next to nothing.
    pub fn call(&self, trail: &Trail, sent: u32, succeeded: bool) {
        self.calls.count(trail, sent, succeeded);
    }

    /// Everything, as text. The same state gives the same bytes.
    pub fn render(&self, sources: &Sources<'_>) -> String {
        let mut out = Exposition::default();
        self.routes.render(&mut out);
        self.keys.render(&mut out);
        self.calls.render(&mut out);
        now::render(sources, &mut out);
        out.end()
    }
}

#[cfg(test)]
mod tests;
