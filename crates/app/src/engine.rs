//! What everything that sends has in common: the limiter, the pools, and what is kept about
//! requests.
//!
//! One engine is made from the settings and lives as long as the process. What a reload may change
//! is in [`Served`], which is replaced whole: a request that has begun goes on with what it began
//! with. Gates outlive that, because the limiter keeps them by key.

mod control;
mod happening;
mod hub;
mod keep;
mod overlay;
mod remote;
mod served;
mod token;
mod trails;

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use store::Store;
use tidegate::event::{Event, Listener};
use tidegate::{Clock, HostSettings, Hosts, Limiter, Timestamp};

pub use control::{ControlError, NewEndpoint, Wrong};
pub use happening::Happening;
pub(crate) use happening::{millis, unix_millis};
pub use hub::{Hub, Next, Subscription};
pub use keep::{KeepState, Keeping};
pub use remote::Remote;
use served::Around;
pub use served::{Route, Served};
pub use token::Token;
pub use trails::{NoRequestId, RequestId, Told, Trails};

use crate::log::{Line, Log};
use crate::metrics::{self, Metrics};
use crate::settings::Settings;
use crate::upstream::{Addresses, Connector};
use control::Control;
use keep::Keeper;
use overlay::Overlay;

/// What everything that sends has in common.
#[derive(Debug)]
pub struct Engine {
    limiter: Limiter,
    hub: Arc<Hub>,
    control: Control,
    keeper: Keeper,
    connector: Connector,
    served: ArcSwap<Served>,
    trails: Trails,
    store: Store,
    metrics: Metrics,
    log: Log,
    workers: usize,
}

impl Engine {
    /// An engine for these settings, with so many workers.
    pub fn new(
        settings: Arc<Settings>,
        store: Store,
        log: Log,
        clock: Clock,
        workers: usize,
    ) -> Arc<Self> {
        let hub = Hub::new(clock.clone());
        let limiter = Limiter::builder()
            .clock(clock)
            .listener(Hears(Arc::clone(&hub)))
            .hosts(gate_settings(&settings))
            .retry_budget(settings.retry_budget)
            .build();
        let connector = Connector::new(Addresses::default());
        let trails = Trails::new(workers, settings.trails.keep);
        let metrics = Metrics::new();
        let around = Around {
            limiter: &limiter,
            metrics: &metrics,
            connector: &connector,
            store: &store,
            workers,
        };
        let served = Served::new(settings, &around, None, &Overlay::default());
        let engine = Arc::new(Self {
            limiter,
            hub,
            control: Control::default(),
            keeper: Keeper::default(),
            connector,
            served: ArcSwap::from_pointee(served),
            trails,
            store,
            metrics,
            log,
            workers,
        });
        engine.hub.add(Arc::new(Logging(Arc::downgrade(&engine))));
        engine
    }

    /// All gates.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Where events go.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// What is served now.
    pub fn served(&self) -> Arc<Served> {
        self.served.load_full()
    }

    /// Decision trails of requests.
    pub fn trails(&self) -> &Trails {
        &self.trails
    }

    /// What survives a restart.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What is counted, and how everything is now, as Prometheus reads it.
    pub fn render_metrics(&self) -> String {
        let served = self.served();
        let pools = served.routes();
        let pools: Vec<_> = pools
            .map(|(name, route)| (name.to_owned(), route.pool.view()))
            .collect();
        self.metrics.render(&metrics::Sources {
            limiter: &self.limiter,
            pools: &pools,
            is_store_degraded: self.store.is_degraded(),
            log: &self.log,
        })
    }

    /// Where lines for people go.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Serves by other settings from now on. Gates and endpoints keep what they have learned, and
    /// what people changed at run time stays changed.
    pub fn reload(&self, settings: Arc<Settings>) {
        self.limiter.set_settings(gate_settings(&settings));
        self.serve(settings, &self.control.overlay());
    }

    /// Serves `settings` with what was changed at run time laid over them.
    fn serve(&self, settings: Arc<Settings>, overlay: &Overlay) {
        let before = self.served();
        let around = Around {
            limiter: &self.limiter,
            metrics: &self.metrics,
            connector: &self.connector,
            store: &self.store,
            workers: self.workers,
        };
        let served = Served::new(settings, &around, Some(&before), overlay);
        self.served.store(Arc::new(served));
    }
}

/// The hub, as the limiter knows it.
struct Hears(Arc<Hub>);

impl Listener for Hears {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        self.0.on_event(at, event);
    }

    fn wants_everything(&self) -> bool {
        self.0.wants_everything()
    }
}

/// Writes a line for every event that people should know of.
struct Logging(Weak<Engine>);

impl Listener for Logging {
    fn on_event(&self, _at: Timestamp, event: &Event<'_>) {
        let Some(line) = Line::from_event(event) else {
            return;
        };
        if let Some(engine) = self.0.upgrade() {
            let last_error = engine.last_error(event);
            engine
                .log
                .write(&line.with_last_error(last_error.as_deref()));
        }
    }
}

impl Engine {
    /// What the endpoint of an event said last.
    fn last_error(&self, event: &Event<'_>) -> Option<String> {
        let (Event::EndpointPaused { pool, endpoint, .. }
        | Event::EndpointDisabled { pool, endpoint, .. }) = event
        else {
            return None;
        };
        let served = self.served();
        let views = served.route(pool)?.pool.view();
        let view = views.into_iter().find(|view| view.name == *endpoint)?;
        view.last_error
    }
}

/// What is configured for every host, with the longest time that an attempt may wait for a response:
/// until then a probe of a breaker is not lost.
fn gate_settings(settings: &Settings) -> Hosts<HostSettings> {
    let http = &settings.http;
    let timeout = http.connect_timeout + http.first_byte_timeout;
    let mut hosts = settings.gates.clone();
    for host in hosts.values_mut() {
        host.gate.set_response_timeout(timeout);
    }
    hosts
}
