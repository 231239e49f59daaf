//! What survives restarts: what is configured with run-time changes over it, and what gates,
//! endpoints and credentials have learned.
//!
//! At start, [`State::restore`] reads the store and makes pools and gates as they were. Afterwards
//! [changes](State::switch_endpoint) of a person are durable before they take effect, and
//! [`Persister`] writes what gates and endpoints learn behind the traffic. A reload replaces the
//! [`Configuration`]; pools and gates keep what they know.

mod bulk;
mod changes;
mod configuration;
mod credential;
mod endpoint;
mod intake;
mod operations;
mod overlay;
mod pending;
mod persist;
mod resolve;
mod shared;
mod watermark;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use policy::suggest::suggestion;
use store::jobs::{JobStore, JobTotals};
use store::operations::OperationQueue;
use store::{OpenError, Store, StoreError};
use tidegate::event::{Event, EventListener};
use tidegate::{Clock, Limiter, Timestamp};
use tokio::sync::Notify;

pub use bulk::{BulkDecision, BulkRequest, LeftOut, is_replay_safe};
pub(crate) use changes::PUBLIC;
pub use changes::{ChangeError, InvalidValue, NewEndpoint};
pub use configuration::{Configuration, UpstreamPool};
pub use credential::AccessToken;
pub use endpoint::UpstreamEndpoint;
pub use intake::{AcceptError, Accepted, OperationRequest, new_operation_id};
pub(crate) use intake::{new_id, new_slug};
pub use operations::{OperationError, ReadyLanes};
pub use persist::{PersistState, Persister};
pub use resolve::resolved_request;

use crate::core::Core;
use crate::log::Log;
use crate::metrics::{StateCollector, StateView};
use crate::settings::{PlainFiles, Settings};
use configuration::EndpointRecords;
use overlay::Overlay;
use persist::Persistence;
use shared::SharedState;

/// Opens the store in the data folder, encrypted if there is a key; operations may be in a database
/// that other machines share.
///
/// # Errors
///
/// If it cannot be used, or another process uses it.
pub(crate) fn open_store(settings: &Settings) -> Result<Store, OpenError> {
    let key = settings.storage.key.as_ref();
    // The settings have checked it.
    let keys = key.and_then(|key| key.expose().parse().ok());
    let keys = keys.unwrap_or_default();
    #[cfg(feature = "postgres")]
    if let Some(address) = &settings.storage.operations
        && let Ok(address) = address.expose().parse()
    {
        let clock = Clock::system();
        return Store::open_shared(&settings.server.data, keys, address, || clock.wall());
    }
    Store::open_encrypted(&settings.server.data, keys)
}

/// What survives restarts.
#[derive(Debug)]
pub struct State {
    core: Arc<Core>,
    store: Store,
    operations: Arc<dyn OperationQueue>,
    jobs: Arc<dyn JobStore>,
    ready_lanes: ReadyLanes,
    /// An operation has ended that is to be reported.
    report_due: Notify,
    configuration: ArcSwap<Configuration>,
    overlay: Mutex<Overlay>,
    /// Held by a change: they run one at a time.
    changing: tokio::sync::Mutex<()>,
    persistence: Persistence,
    shared: SharedState,
}

impl State {
    /// Reads the store, and makes pools, gates and credentials as they were. Comes before the
    /// first request, because a gate that exists already is not restored. Also returns warnings
    /// about what could not be restored.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub fn restore(
        core: Arc<Core>,
        settings: Arc<Settings>,
        store: Store,
    ) -> Result<(Arc<Self>, Vec<String>), StoreError> {
        let stored = store.load_at(|| core.clock().wall())?;
        let (overlay, mut warnings) = Overlay::restore(&stored, &settings, &PlainFiles);
        let unreadable = stored.unreadable.iter();
        warnings.extend(unreadable.map(|problem| {
            // A warning has one line.
            let problem = problem.to_string().replace("\nhint: ", "; ");
            format!("a stored refresh token is not used, the configured one is: {problem}")
        }));
        let max_hold = settings.gates.default_value().gate.max_hold();
        let now = core.clock().wall();
        let records: EndpointRecords = stored
            .endpoints
            .iter()
            .map(|endpoint| {
                let place = (endpoint.pool.clone(), endpoint.name.clone());
                (place, endpoint.record_at(now, max_hold))
            })
            .collect();
        let configuration = Configuration::new(settings, &core, &store, &overlay, &records);
        let state = Arc::new(Self {
            operations: store.operations(),
            jobs: store.jobs(),
            ready_lanes: ReadyLanes::default(),
            report_due: Notify::new(),
            store,
            configuration: ArcSwap::from_pointee(configuration),
            overlay: Mutex::new(overlay),
            changing: tokio::sync::Mutex::new(()),
            persistence: Persistence::default(),
            shared: SharedState::restored(&stored),
            core,
        });
        state.listen_to_pools();
        warnings.extend(state.left_behind());
        warnings.extend(state.jobs_left_behind());
        warnings.extend(state.changes_left_behind()?);
        let weak = Arc::downgrade(&state);
        state.operations.listen(Box::new(move |ready| {
            if let Some(state) = weak.upgrade() {
                state.ready_lanes.ready_elsewhere(ready);
            }
        }));
        state.restore_tokens(&stored);
        state.restore_gates(&stored);
        let logger = EventLogger(Arc::downgrade(&state));
        state.core.events().add(Arc::new(logger));
        let weak = Arc::downgrade(&state);
        let view = move || weak.upgrade().map(|state| state.view()).unwrap_or_default();
        state.core.metrics().register(StateCollector::new(view));
        Ok((state, warnings))
    }

    /// What everything that sends shares.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// All gates.
    pub fn limiter(&self) -> &Limiter {
        self.core.limiter()
    }

    /// The clock of the gates.
    pub fn clock(&self) -> &Clock {
        self.core.clock()
    }

    /// The log.
    pub fn log(&self) -> &Log {
        self.core.log()
    }

    /// Where it is stored.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What is configured now.
    pub fn configuration(&self) -> Arc<Configuration> {
        self.configuration.load_full()
    }

    /// A live pool.
    ///
    /// # Errors
    ///
    /// If there is no such pool.
    pub fn pool(&self, name: &str) -> Result<Arc<UpstreamPool>, ChangeError> {
        let configuration = self.configuration();
        if let Some(pool) = configuration.pool(name) {
            return Ok(Arc::clone(pool));
        }
        let names: Vec<&str> = configuration.pools().map(|(name, _)| name).collect();
        Err(ChangeError::NoPool {
            name: name.to_owned(),
            close: suggestion(name, &names).map(str::to_owned),
        })
    }

    /// Uses other settings from now on. Gates and endpoints keep what they have learned, and
    /// run-time changes stay.
    pub fn reload(&self, settings: Arc<Settings>) {
        self.core.reload(&settings);
        let overlay = self.overlay();
        let before = self.configuration();
        let new = Configuration::reloaded(settings, &self.core, &self.store, &overlay, &before);
        self.configuration.store(Arc::new(new));
    }

    /// How many jobs are stored, by status.
    pub fn job_totals(&self) -> JobTotals {
        self.jobs.totals()
    }

    /// What metrics show of it.
    fn view(&self) -> StateView {
        let configuration = self.configuration();
        let pools = configuration.pools();
        let fleet = self
            .core
            .fleet()
            .map(|fleet| fleet.view(self.clock().now()));
        let is_fleet_degraded = fleet.as_ref().is_some_and(|it| it.degraded.is_some());
        StateView {
            pools: pools
                .map(|(name, pool)| (name.to_owned(), pool.view()))
                .collect(),
            operations: self.operations.counts(),
            jobs: self.jobs.totals(),
            is_store_degraded: self.store.is_degraded() || is_fleet_degraded,
            fleet_silence: fleet.map(|fleet| fleet.silence),
        }
    }

    /// The run-time changes. Held while pools are changed, so that a reload does not replace a
    /// pool at the same time.
    fn overlay(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last error of the endpoint of an event.
    fn last_error(&self, event: &Event<'_>) -> Option<String> {
        let (Event::EndpointPaused { pool, endpoint, .. }
        | Event::EndpointDisabled { pool, endpoint, .. }) = event
        else {
            return None;
        };
        let configuration = self.configuration();
        let views = configuration.pool(pool)?.view();
        let view = views.into_iter().find(|view| view.name == *endpoint)?;
        view.last_error
    }
}

/// Logs the events that people should know of.
struct EventLogger(Weak<State>);

impl EventListener for EventLogger {
    fn on_event(&self, _at: Timestamp, event: &Event<'_>) {
        if let Some(state) = self.0.upgrade() {
            let last_error = state.last_error(event);
            state.log().limiter_event(event, last_error.as_deref());
        }
    }
}
