//! Run-time changes, laid over what is configured.
//!
//! They are stored apart from the settings, as changes and not as their result, so that a new
//! configuration takes effect wherever nothing was changed. Of an endpoint that both have, the one
//! that was added at run time is used.

use std::collections::{BTreeMap, BTreeSet};

use policy::setting::SettingErrors;
use store::{AddedEndpoint, StoredState};
use tidegate::{LadderOptions, LadderSettings};

use crate::exchange::Trust;
use crate::settings::{self, EndpointSettings, Environment, PoolSettings, Settings};
use crate::tls::Transport;

/// All run-time changes, by pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    pools: BTreeMap<String, Changes>,
}

/// The changes of one pool.
#[derive(Clone, Debug, Default)]
struct Changes {
    /// Settings of the protection by name, as they are written.
    protection: BTreeMap<String, String>,
    added: Vec<EndpointSettings>,
    removed: BTreeSet<String>,
}

impl Overlay {
    /// The changes that were stored before a restart, and warnings about those that cannot be used.
    pub(super) fn restore(
        stored: &StoredState,
        settings: &Settings,
        environment: &dyn Environment,
    ) -> (Self, Vec<String>) {
        let mut overlay = Self::default();
        let mut warnings = Vec::new();
        for (pool, protection) in &stored.protections {
            match protection.settings() {
                Ok(_) => overlay.set_protection(pool, protection.values.clone()),
                Err(errors) => warnings.push(format!(
                    "the protection of pool `{pool}` is as configured, for what was set at run time cannot be read: {errors}"
                )),
            }
        }
        for removed in &stored.removed {
            overlay.remove(&removed.pool, &removed.name);
        }
        for added in &stored.added {
            match read_added(added, settings, environment) {
                Ok(endpoint) => overlay.add(&added.pool, endpoint),
                Err(why) => warnings.push(format!(
                    "endpoint `{}` of pool `{}`, which was added at run time, is left out: {why}",
                    added.name, added.pool
                )),
            }
        }
        (overlay, warnings)
    }

    /// The endpoints of a pool, and how far their addresses are trusted.
    pub(super) fn endpoints<'a>(
        &'a self,
        pool: &'a PoolSettings,
    ) -> Vec<(&'a EndpointSettings, Trust)> {
        let Some(changes) = self.pools.get(&pool.name) else {
            return configured(pool).collect();
        };
        let is_added = |name: &str| changes.added.iter().any(|added| added.name == name);
        let unchanged = configured(pool).filter(|(endpoint, _)| {
            !changes.removed.contains(&endpoint.name) && !is_added(&endpoint.name)
        });
        let added = changes.added.iter().map(|added| (added, Trust::Untrusted));
        unchanged.chain(added).collect()
    }

    /// How the endpoints of a pool are protected.
    pub(super) fn protection(&self, pool: &PoolSettings) -> LadderSettings {
        let changed = self.protection_changes(&pool.name);
        // What was stored may be of another version; what is set now was judged before.
        with_changes(&pool.protection, &changed).unwrap_or_else(|_| pool.protection.clone())
    }

    /// The changes of a pool's protection, by name.
    pub(super) fn protection_changes(&self, pool: &str) -> BTreeMap<String, String> {
        let changes = self.pools.get(pool);
        changes
            .map(|changes| changes.protection.clone())
            .unwrap_or_default()
    }

    pub(super) fn set_protection(&mut self, pool: &str, values: BTreeMap<String, String>) {
        self.of_pool(pool).protection = values;
    }

    pub(super) fn add(&mut self, pool: &str, endpoint: EndpointSettings) {
        let changes = self.of_pool(pool);
        changes.removed.remove(&endpoint.name);
        changes.added.retain(|added| added.name != endpoint.name);
        changes.added.push(endpoint);
    }

    /// An endpoint of the configuration is removed.
    pub(super) fn remove(&mut self, pool: &str, name: &str) {
        self.forget_added(pool, name);
        self.of_pool(pool).removed.insert(name.to_owned());
    }

    /// An endpoint that was added is removed.
    pub(super) fn forget_added(&mut self, pool: &str, name: &str) {
        let changes = self.of_pool(pool);
        changes.added.retain(|added| added.name != name);
    }

    fn of_pool(&mut self, pool: &str) -> &mut Changes {
        self.pools.entry(pool.to_owned()).or_default()
    }
}

fn configured(pool: &PoolSettings) -> impl Iterator<Item = (&EndpointSettings, Trust)> {
    let endpoints = pool.endpoints.iter();
    endpoints.map(|endpoint| (endpoint, Trust::Operator))
}

/// Settings of a protection with some of them changed.
pub(super) fn with_changes(
    protection: &LadderSettings,
    changed: &BTreeMap<String, String>,
) -> Result<LadderSettings, SettingErrors> {
    let mut options = LadderOptions::from(protection.clone());
    let problems = changed
        .iter()
        .filter_map(|(name, value)| options.set(name, value).err());
    match SettingErrors::of(problems.collect()) {
        Some(problems) => Err(problems),
        None => options.build(),
    }
}

fn read_added(
    added: &AddedEndpoint,
    settings: &Settings,
    environment: &dyn Environment,
) -> Result<EndpointSettings, String> {
    let url = settings::http_url(&added.url).map_err(|expected| format!("expected {expected}"))?;
    let mut headers = Vec::new();
    for (name, reference) in &added.headers {
        if !settings.allows_reference(reference.as_str()) {
            let reference = reference.as_str();
            return Err(format!("`server.secrets` does not allow `{reference}`"));
        }
        let secret = settings::follow(reference.as_str(), environment)?;
        let secret = secret.ok_or_else(|| format!("header `{name}` is no reference"))?;
        headers.push((name.clone(), secret));
    }
    Ok(EndpointSettings {
        name: added.name.clone(),
        url,
        headers,
        transport: Transport::default(),
    })
}
