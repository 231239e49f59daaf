//! What everything that sends has in common: the limiter, the pools, and what is kept about
//! requests.
//!
//! One engine is made from the settings and lives as long as the process. What a reload may change
//! is in [`Served`], which is replaced whole: a request that has begun goes on with what it began
//! with. Gates outlive that, because the limiter keeps them by key.

mod control;
mod happening;
mod hub;
mod overlay;
mod remote;
mod served;
mod trails;

use std::sync::Arc;

use arc_swap::ArcSwap;
use store::Store;
use tidegate::event::{Event, Listener};
use tidegate::{Clock, Limiter};

pub use control::{ControlError, NewEndpoint, Wrong};
pub use happening::Happening;
pub(crate) use happening::{millis, unix_millis};
pub use hub::{Hub, Next, Subscription};
pub use remote::Remote;
pub use served::{Route, Served};
pub use trails::{NoRequestId, RequestId, Told, Trails};

use crate::settings::Settings;
use crate::upstream::{Addresses, Connector, Upstream};
use control::Control;
use overlay::Overlay;

/// What everything that sends has in common.
#[derive(Debug)]
pub struct Engine {
    limiter: Limiter,
    hub: Arc<Hub>,
    control: Control,
    connector: Connector,
    served: ArcSwap<Served>,
    trails: Trails,
    store: Store,
    workers: usize,
}

impl Engine {
    /// An engine for these settings, with so many workers.
    pub fn new(settings: Arc<Settings>, store: Store, workers: usize) -> Arc<Self> {
        let clock = Clock::system();
        let hub = Hub::new(clock.clone());
        let hears = Arc::clone(&hub);
        let limiter = Limiter::builder()
            .clock(clock)
            .listener(move |at, event: &Event<'_>| hears.on_event(at, event))
            .hosts(settings.gates.clone())
            .retry_budget(settings.retry_budget.clone())
            .build();
        let connector = Connector::new(Addresses::new(settings.network.allow.clone()));
        let trails = Trails::new(workers, settings.trails.keep);
        let served = Served::new(settings, &limiter, workers, None, &Overlay::default());
        Arc::new(Self {
            limiter,
            hub,
            control: Control::default(),
            connector,
            served: ArcSwap::from_pointee(served),
            trails,
            store,
            workers,
        })
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

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// What worker number `worker` sends through.
    pub fn upstream(&self, worker: usize) -> Upstream {
        let allowed = self.served().settings().network.allow.clone();
        let connector = self.connector.permitting(Addresses::new(allowed));
        Upstream::new(connector, worker)
    }

    /// Serves by other settings from now on. Gates and endpoints keep what they have learned, and
    /// what people changed at run time stays changed.
    pub fn reload(&self, settings: Arc<Settings>) {
        self.limiter.set_settings(settings.gates.clone());
        self.serve(settings, &self.control.overlay());
    }

    /// Serves `settings` with what was changed at run time laid over them.
    fn serve(&self, settings: Arc<Settings>, overlay: &Overlay) {
        let before = self.served();
        let served = Served::new(
            settings,
            &self.limiter,
            self.workers,
            Some(&before),
            overlay,
        );
        self.served.store(Arc::new(served));
    }
}
