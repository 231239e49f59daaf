//! A store whose contents end with the process.
//!
//! Changes are applied at once, so that what is saved is there when [`Memory::save`] returns. It is
//! also what the file is compared with in tests: the few lines of [`apply`] say what every change
//! means.

mod jobs;
mod operations;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::StoreState;
use crate::change::Change;
use crate::error::StoreError;
use crate::faulty::Faults;
use crate::record::{
    AddedEndpoint, Protection, RemovedEndpoint, RotatedToken, StoredEndpoint, StoredGate,
    StoredState,
};
use crate::save::SaveFuture;
use jobs::Jobs;
use operations::Operations;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    content: Mutex<(Content, StoreState)>,
    operations: Operations,
    jobs: Jobs,
    faults: Faults,
}

/// What is stored, such that every row can be found.
#[derive(Clone, Debug, Default)]
struct Content {
    gates: BTreeMap<String, StoredGate>,
    endpoints: BTreeMap<(String, String), StoredEndpoint>,
    protections: BTreeMap<String, Protection>,
    added: Vec<AddedEndpoint>,
    removed: BTreeSet<RemovedEndpoint>,
    rotated: BTreeMap<String, RotatedToken>,
}

impl Memory {
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn with(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// As after a restart of the process.
    #[cfg(test)]
    pub(crate) fn restart(&self) {
        self.operations.restart();
    }

    pub(crate) fn load(&self) -> Result<StoredState, StoreError> {
        let content = self.lock().0.clone();
        Ok(StoredState {
            gates: content.gates.into_values().collect(),
            endpoints: content.endpoints.into_values().collect(),
            protections: content.protections,
            added: content.added,
            removed: content.removed.into_iter().collect(),
            rotated: content.rotated.into_values().collect(),
            unreadable: Vec::new(),
        })
    }

    pub(crate) fn save(&self, changes: Vec<Change>) -> SaveFuture {
        let rows = changes.len() as u64;
        let mut content = self.lock();
        let result = self.faults.next_call();
        match &result {
            Ok(()) => {
                content.1.written += rows;
                changes
                    .into_iter()
                    .for_each(|change| apply(&mut content.0, change));
            }
            Err(_) => content.1.lost += rows,
        }
        content.1.degraded = result.clone().err();
        drop(content);
        SaveFuture::ready(result)
    }

    pub(crate) fn state(&self) -> StoreState {
        self.lock().1.clone()
    }

    fn lock(&self) -> MutexGuard<'_, (Content, StoreState)> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What every change means.
fn apply(content: &mut Content, change: Change) {
    match change {
        Change::Gate(gate) => {
            content.gates.insert(gate.key.clone(), gate);
        }
        Change::ForgetGate { key } => {
            content.gates.remove(&key);
        }
        Change::ForgetGatesBefore(at) => content.gates.retain(|_, gate| gate.at >= at),
        Change::Endpoint(endpoint) => {
            let place = (endpoint.pool.clone(), endpoint.name.clone());
            content.endpoints.insert(place, endpoint);
        }
        Change::ForgetEndpoint { pool, name } => {
            content.endpoints.remove(&(pool, name));
        }
        Change::Protection { pool, protection } => {
            match protection {
                Some(protection) => content.protections.insert(pool, protection),
                None => content.protections.remove(&pool),
            };
        }
        Change::EndpointAdded(endpoint) => add(content, endpoint),
        Change::EndpointRemoved { pool, name } => {
            content.added.retain(|added| !is(added, &pool, &name));
            content.removed.insert(RemovedEndpoint { pool, name });
        }
        Change::EndpointAsConfigured { pool, name } => {
            content.added.retain(|added| !is(added, &pool, &name));
            content.removed.remove(&RemovedEndpoint { pool, name });
        }
        Change::Rotated(rotated) => {
            let credential = rotated.credential.clone();
            content.rotated.insert(credential, rotated);
        }
        Change::ForgetRotated { credential } => {
            content.rotated.remove(&credential);
        }
    }
}

/// One that is there already stays at its place in the order.
fn add(content: &mut Content, endpoint: AddedEndpoint) {
    content.removed.remove(&RemovedEndpoint {
        pool: endpoint.pool.clone(),
        name: endpoint.name.clone(),
    });
    let mut all = content.added.iter_mut();
    match all.find(|added| is(added, &endpoint.pool, &endpoint.name)) {
        Some(added) => *added = endpoint,
        None => content.added.push(endpoint),
    }
}

fn is(added: &AddedEndpoint, pool: &str, name: &str) -> bool {
    added.pool == pool && added.name == name
}
