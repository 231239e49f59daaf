//! What all workers of the gateway share: routes, trails, and whether the gateway is draining.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, header};
use tidegate::Timestamp;

use super::routes::Routes;
use super::trails::RequestTrails;
use crate::descriptors;
use crate::metrics::{Metrics, RouteMetrics};
use crate::state::State;

/// What all workers share.
#[derive(Debug)]
pub(super) struct SharedGateway {
    pub(super) state: Arc<State>,
    routes: ArcSwap<Routes>,
    trails: Arc<RequestTrails>,
    via: HeaderValue,
    is_draining: AtomicBool,
    /// When it was last logged that no descriptors are left, in seconds of the clock, counted from 1.
    no_descriptors_logged: AtomicU64,
    no_route: Arc<RouteMetrics>,
}

/// In seconds: every request fails meanwhile, and one line says it.
const NO_DESCRIPTORS_INTERVAL: u64 = 10;

impl SharedGateway {
    pub(super) fn new(state: Arc<State>, address: SocketAddr) -> Self {
        let core = state.core();
        let routes = Routes::new(state.configuration(), core.metrics(), address, None);
        let trails = RequestTrails::new(core.workers(), routes.settings().trails.keep);
        Self {
            via: routes.exchange().via().clone(),
            is_draining: AtomicBool::new(false),
            no_descriptors_logged: AtomicU64::new(0),
            no_route: core.metrics().route(Metrics::NO_ROUTE),
            trails: Arc::new(trails),
            routes: ArcSwap::from_pointee(routes),
            state,
        }
    }

    /// Serves what is configured now.
    pub(super) fn reload(&self, address: SocketAddr) {
        let metrics = self.state.core().metrics();
        let configuration = self.state.configuration();
        let memory = self.state.core().replay_memory();
        memory.set_most(configuration.settings().http.replay_memory());
        let routes = Routes::new(configuration, metrics, address, Some(&self.routes()));
        self.routes.store(Arc::new(routes));
    }

    pub(super) fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    pub(super) fn trails(&self) -> &Arc<RequestTrails> {
        &self.trails
    }

    /// Where requests without a route are counted.
    pub(super) fn no_route(&self) -> &RouteMetrics {
        &self.no_route
    }

    /// The `Via` of every request that is passed on.
    pub(super) fn via(&self) -> &HeaderValue {
        &self.via
    }

    /// Has a request with these headers passed this gateway before?
    pub(super) fn has_passed(&self, headers: &HeaderMap) -> bool {
        let ours = self.via.as_bytes();
        let values = headers.get_all(header::VIA).iter();
        let mut parts = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        parts.any(|part| part.trim_ascii() == ours)
    }

    /// Logs that no descriptors are left, unless that was logged a moment ago.
    pub(super) fn log_no_descriptors(&self) {
        let now = self.state.clock().now().since(Timestamp::ZERO).as_secs() + 1;
        let last = self.no_descriptors_logged.load(Ordering::Relaxed);
        let is_due = last == 0 || now >= last + NO_DESCRIPTORS_INTERVAL;
        let swap = |from| {
            let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
            let logged = &self.no_descriptors_logged;
            logged.compare_exchange(from, now, set, fetch).is_ok()
        };
        if is_due && swap(last) {
            self.state.log().no_descriptors(descriptors::limit());
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    pub(super) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }
}
