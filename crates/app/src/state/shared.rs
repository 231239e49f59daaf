//! What other servers change about pools, when they share a database: states of endpoints, and what
//! people changed at run time.
//!
//! The store says that something may have changed; then all of it is read, which is small, and what is
//! new is applied as a reload applies a configuration. Of two servers that write the state of an
//! endpoint, the later one counts: the other one adopts it, and results of its requests from before
//! change nothing any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::time::WallTime;
use store::{AddedEndpoint, Protection, RemovedEndpoint, SharedPools, StoreError, StoredState};
use tokio::sync::Notify;

use super::overlay::Overlay;
use super::{Configuration, State};
use crate::settings::PlainFiles;

/// What is known of what other servers changed.
#[derive(Debug)]
pub(super) struct SharedState {
    /// Something may have changed.
    due: Notify,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The versions of states that were applied, by pool and name.
    versions: BTreeMap<(String, String), u64>,
    changes: Changes,
}

/// Run-time changes as they are stored.
type Changes = (
    BTreeMap<String, Protection>,
    Vec<AddedEndpoint>,
    Vec<RemovedEndpoint>,
);

impl SharedState {
    /// What was applied at the start.
    pub(super) fn restored(stored: &StoredState) -> Self {
        let (protections, added) = (stored.protections.clone(), stored.added.clone());
        let seen = Seen {
            versions: BTreeMap::new(),
            changes: (protections, added, stored.removed.clone()),
        };
        Self {
            due: Notify::new(),
            seen: Mutex::new(seen),
        }
    }
}

impl State {
    pub(super) fn listen_to_pools(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.store().listen_to_pools(Box::new(move || {
            if let Some(state) = weak.upgrade() {
                state.shared.due.notify_one();
            }
        }));
    }

    /// A warning if people changed pools before these were shared.
    pub(super) fn changes_left_behind(&self) -> Result<Option<String>, StoreError> {
        if !self.store().shares_operations() {
            return Ok(None);
        }
        let own = self.store().load()?;
        let is_left =
            !(own.protections.is_empty() && own.added.is_empty() && own.removed.is_empty());
        Ok(is_left.then(|| LEFT_BEHIND.to_owned()))
    }

    /// Applies what other servers change about pools, for ever. Returns at once if none share them.
    pub async fn follow_pools(self: &Arc<Self>) {
        loop {
            let Some(pools) = self.store().shared_pools() else {
                return;
            };
            match pools.await {
                Ok(pools) => {
                    let changing = self.changing.lock().await;
                    self.apply_pools(pools);
                    drop(changing);
                    self.shared.due.notified().await;
                }
                // The store is degraded, which health and metrics say.
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    fn apply_pools(&self, pools: SharedPools) {
        let mut seen = self
            .shared
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = self.clock().wall();
        let states = pools.endpoints;
        let changes = (pools.protections, pools.added, pools.removed);
        if seen.changes != changes {
            self.apply_changes(&changes);
            seen.changes = changes;
        }
        for shared in states {
            let place = (shared.pool.clone(), shared.name.clone());
            let is_new = seen.versions.insert(place, shared.version) != Some(shared.version);
            if is_new && !shared.is_own {
                self.adopt_endpoint(&shared.stored_at(now), now);
            }
        }
    }

    fn adopt_endpoint(&self, stored: &store::StoredEndpoint, now: WallTime) {
        let configuration = self.configuration();
        let Some(pool) = configuration.pool(&stored.pool) else {
            return;
        };
        let max_hold = configuration
            .settings()
            .gates
            .default_value()
            .gate
            .max_hold();
        let record = stored.record_at(now, max_hold);
        // Before it is adopted, so that it is not written again as a change of this server.
        self.persistence.watermarks().insert_endpoint(stored);
        pool.adopt(&stored.name, record);
    }

    fn apply_changes(&self, (protections, added, removed): &Changes) {
        let stored = StoredState {
            protections: protections.clone(),
            added: added.clone(),
            removed: removed.clone(),
            ..StoredState::default()
        };
        let mut overlay = self.overlay();
        let before = self.configuration();
        let settings = Arc::clone(before.settings());
        let (new, _) = Overlay::restore(&stored, &settings, &PlainFiles);
        *overlay = new;
        let configuration =
            Configuration::reloaded(settings, &self.core, &self.store, &overlay, &before);
        self.configuration.store(Arc::new(configuration));
    }
}

const LEFT_BEHIND: &str = "run-time changes of pools in the data folder are not used, those in the \
                           database of `storage.operations` are: make them again if they are missing";

/// The wait after a read that failed.
const RETRY: Duration = Duration::from_secs(2);
