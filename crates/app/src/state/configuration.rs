//! What is configured, live: pools, credentials and the client that sends. A reload makes another
//! one and takes over every pool and credential that is still configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::classify::Rule;
use policy::key::endpoint_key;
use store::Store;
use tidegate::{LadderRecord, Pool};

use super::overlay::Overlay;
use super::{AccessToken, UpstreamEndpoint};
use crate::core::Core;
use crate::exchange::{DestinationError, Exchange, Trust};
use crate::settings::{EndpointSettings, PoolSettings, PoolTimeouts, Settings};

/// A live pool.
pub type UpstreamPool = Pool<UpstreamEndpoint>;

/// The states of endpoints from before a restart, by pool and name.
pub(super) type EndpointRecords = BTreeMap<(String, String), LadderRecord>;

/// What is configured, with run-time changes over it.
#[derive(Debug)]
pub struct Configuration {
    settings: Arc<Settings>,
    pools: BTreeMap<Box<str>, Arc<UpstreamPool>>,
    credentials: BTreeMap<String, Arc<AccessToken>>,
    exchange: Exchange,
    /// Of pools with timeouts of their own.
    pool_exchanges: BTreeMap<Box<str>, Exchange>,
}

impl Configuration {
    /// The configuration of a process that starts: endpoints begin with `records`.
    pub(super) fn new(
        settings: Arc<Settings>,
        core: &Core,
        store: &Store,
        overlay: &Overlay,
        records: &EndpointRecords,
    ) -> Self {
        let mut new = Self::without_pools(settings, core, store, None);
        for pool in Arc::clone(&new.settings).pools.values() {
            let record = |name: &str| {
                let place = (pool.name.clone(), name.to_owned());
                records.get(&place).cloned()
            };
            let live = make_pool(pool, &new, core, overlay, record);
            new.pools.insert(pool.name.as_str().into(), live);
        }
        new
    }

    /// The configuration after a reload: pools are updated in place.
    pub(super) fn reloaded(
        settings: Arc<Settings>,
        core: &Core,
        store: &Store,
        overlay: &Overlay,
        before: &Self,
    ) -> Self {
        let mut new = Self::without_pools(settings, core, store, Some(before));
        let (network, former) = (&new.settings.network, &before.settings.network);
        let is_same_network = network == former;
        let is_same_proxy = network.proxy == former.proxy;
        if !is_same_proxy {
            new.exchange.forget_all();
        } else if !is_same_network || new.settings.forward != before.settings.forward {
            new.exchange.forget_untrusted();
        }
        for pool in Arc::clone(&new.settings).pools.values() {
            let live = match before.pools.get(&*pool.name) {
                Some(live) => {
                    let kept = KeptConnections {
                        untrusted: is_same_network,
                        trusted: is_same_proxy,
                    };
                    update_pool(live, pool, &new, core, overlay, kept);
                    Arc::clone(live)
                }
                None => make_pool(pool, &new, core, overlay, |_| None),
            };
            new.pools.insert(pool.name.as_str().into(), live);
        }
        for (name, pool) in &before.pools {
            if !new.pools.contains_key(name) {
                // Drops the settings of their gates.
                for endpoint in pool.endpoints() {
                    pool.remove(endpoint.name());
                }
            }
        }
        new
    }

    fn without_pools(
        settings: Arc<Settings>,
        core: &Core,
        store: &Store,
        before: Option<&Self>,
    ) -> Self {
        let exchange = Exchange::new(core, &settings);
        let credentials = settings
            .credentials
            .iter()
            .filter_map(|(name, credential)| {
                let known = before.and_then(|before| before.credentials.get(name));
                if let Some(known) = known.filter(|token| token.is_of(credential)) {
                    return Some((name.clone(), Arc::clone(known)));
                }
                let token = AccessToken::new(name, credential, core, &exchange, store)?;
                Some((name.clone(), Arc::new(token)))
            });
        let own = settings.pools.values();
        let own = own.filter(|pool| pool.timeouts != PoolTimeouts::default());
        let pool_exchanges = own.map(|pool| {
            let name = pool.name.as_str().into();
            (name, exchange.with_timeouts(pool.timeouts))
        });
        Self {
            pools: BTreeMap::new(),
            credentials: credentials.collect(),
            pool_exchanges: pool_exchanges.collect(),
            exchange,
            settings,
        }
    }

    /// The settings it was made from.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Option<&Arc<UpstreamPool>> {
        self.pools.get(name)
    }

    /// All pools by name.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &Arc<UpstreamPool>)> {
        self.pools.iter().map(|(name, pool)| (&**name, pool))
    }

    /// The credential of this name.
    pub fn credential(&self, name: &str) -> Option<&Arc<AccessToken>> {
        self.credentials.get(name)
    }

    pub(super) fn credentials(&self) -> impl Iterator<Item = &Arc<AccessToken>> {
        self.credentials.values()
    }

    /// What makes attempts, with the timeouts and allowed addresses of the settings.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// The same, with the timeouts of this pool.
    pub fn exchange_of(&self, pool: &str) -> &Exchange {
        self.pool_exchanges.get(pool).unwrap_or(&self.exchange)
    }

    /// Puts an endpoint that is added at run time into its pool.
    pub(super) fn add_endpoint(
        &self,
        core: &Core,
        pool: &UpstreamPool,
        endpoint: &EndpointSettings,
    ) -> Result<(), DestinationError> {
        let configured = self.settings.pools.get(pool.name());
        let rules = configured.map_or_else(
            || [].into(),
            |configured| rules(configured, &self.settings, endpoint),
        );
        self.add_to(pool, endpoint, rules, Trust::Untrusted, core, None)
    }

    fn add_to(
        &self,
        pool: &UpstreamPool,
        endpoint: &EndpointSettings,
        rules: Arc<[Rule]>,
        trust: Trust,
        core: &Core,
        record: Option<LadderRecord>,
    ) -> Result<(), DestinationError> {
        let data = self.make_endpoint(pool, endpoint, rules, trust, core)?;
        let record = record.unwrap_or_default();
        pool.restore(&endpoint.name, host(endpoint), data, record);
        Ok(())
    }

    fn make_endpoint(
        &self,
        pool: &UpstreamPool,
        endpoint: &EndpointSettings,
        rules: Arc<[Rule]>,
        trust: Trust,
        core: &Core,
    ) -> Result<UpstreamEndpoint, DestinationError> {
        let key = endpoint_key(pool.name(), &endpoint.name);
        let metrics = core.metrics().key(&key);
        let (url, transport) = (&endpoint.url, &endpoint.transport);
        let destination = self.exchange.destination_of(url, trust, transport)?;
        Ok(UpstreamEndpoint::new(
            endpoint,
            destination,
            rules,
            trust,
            metrics,
        ))
    }
}

fn make_pool(
    pool: &PoolSettings,
    configuration: &Configuration,
    core: &Core,
    overlay: &Overlay,
    record: impl Fn(&str) -> Option<LadderRecord>,
) -> Arc<UpstreamPool> {
    let protection = overlay.protection(pool);
    let live = Pool::with(&pool.name, core.limiter(), pool.balance, protection);
    for (endpoint, trust) in overlay.endpoints(pool) {
        let rules = rules(pool, &configuration.settings, endpoint);
        // The parsers of settings and changes let no URL through that has no server.
        let record = record(&endpoint.name);
        _ = configuration.add_to(&live, endpoint, rules, trust, core, record);
    }
    Arc::new(live)
}

/// Which endpoints may keep their connections after a reload.
#[derive(Clone, Copy)]
struct KeptConnections {
    /// Those whose addresses are checked.
    untrusted: bool,
    /// Those that the operator wrote.
    trusted: bool,
}

/// Makes a live pool as it is configured now, in place: endpoints that stay keep their gate, their
/// ladder and their requests in flight.
fn update_pool(
    live: &UpstreamPool,
    pool: &PoolSettings,
    configuration: &Configuration,
    core: &Core,
    overlay: &Overlay,
    kept: KeptConnections,
) {
    live.update(pool.balance, overlay.protection(pool));
    let wanted = overlay.endpoints(pool);
    for known in live.endpoints() {
        let mut names = wanted.iter().map(|(endpoint, _)| &endpoint.name);
        if !names.any(|name| name == known.name()) {
            live.remove(known.name());
        }
    }
    for (endpoint, trust) in &wanted {
        let rules = rules(pool, &configuration.settings, endpoint);
        let Some(known) = live.endpoint(&endpoint.name) else {
            _ = configuration.add_to(live, endpoint, rules, *trust, core, None);
            continue;
        };
        // An open connection may lead to an address that is not allowed any more.
        let is_kept = match trust {
            Trust::Operator => kept.trusted,
            Trust::Untrusted | Trust::Client => kept.untrusted,
        };
        if is_kept && known.data().is_same(endpoint, &rules, *trust) {
            continue;
        }
        if let Ok(data) = configuration.make_endpoint(live, endpoint, rules, *trust, core) {
            live.replace(&endpoint.name, host(endpoint), data);
        }
    }
    let names: Vec<&str> = wanted
        .iter()
        .map(|(endpoint, _)| endpoint.name.as_str())
        .collect();
    live.reorder(&names);
}

fn host(endpoint: &EndpointSettings) -> &str {
    endpoint.url.host_str().unwrap_or_default()
}

/// The rules for the responses of an endpoint: those of the pool, then those of its host.
fn rules(pool: &PoolSettings, settings: &Settings, endpoint: &EndpointSettings) -> Arc<[Rule]> {
    let of_host = &settings.gates.find(host(endpoint)).rules;
    pool.rules.iter().chain(of_host.iter()).cloned().collect()
}
