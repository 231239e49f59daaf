//! What is served: the pools, and the rules for who may use them. Replaced whole by a reload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::classify::Rule;
use policy::key::endpoint_key;
use store::Store;
use tidegate::{LadderRecord, Limiter, Pool};

use super::overlay::Overlay;
use super::{Remote, Token};
use crate::metrics::{Metrics, RouteMetrics};
use crate::settings::{self, Settings, Size};
use crate::upstream::{Addresses, BodyBounds, Connector, Times, Upstream};

/// What is served now.
#[derive(Debug)]
pub struct Served {
    settings: Arc<Settings>,
    routes: BTreeMap<Box<str>, Arc<Route>>,
    tokens: BTreeMap<String, Arc<Token>>,
    upstream: Upstream,
    times: Times,
    bounds: BodyBounds,
}

/// A pool, and how requests to it are treated.
#[derive(Debug)]
pub struct Route {
    /// The endpoints.
    pub pool: Pool<Remote>,
    /// How long to wait between attempts, and how many there may be.
    pub backoff: BackoffSettings,
    /// Requests that may have been acted upon are sent again, too.
    pub retry_unsafe: bool,
    /// How long a caller is kept waiting who does not say.
    pub max_wait: Duration,
    /// What its requests carry besides, and what is refreshed when a server does not accept it.
    pub token: Option<Arc<Token>>,
    /// How its requests end.
    pub metrics: Arc<RouteMetrics>,
}

/// What pools are made with.
pub(super) struct Around<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) metrics: &'a Metrics,
    pub(super) connector: &'a Connector,
    pub(super) store: &'a Store,
    pub(super) workers: usize,
}

impl Served {
    /// Everything in `settings`, with what was changed at run time laid over it; endpoints keep
    /// what was known of them `before`.
    pub(super) fn new(
        settings: Arc<Settings>,
        around: &Around<'_>,
        before: Option<&Self>,
        overlay: &Overlay,
    ) -> Self {
        let http = &settings.http;
        let times = Times {
            connect: http.connect_timeout,
            first_byte: http.first_byte_timeout,
            idle: http.idle_timeout,
        };
        let bounds = BodyBounds {
            most: match http.max_body {
                Size::None => None,
                Size::Bytes(most) => Some(most),
            },
            kept: http.replay_buffer,
            idle: http.idle_timeout,
        };
        let addresses = Addresses::new(settings.network.allow.clone());
        let upstream = Upstream::new(around.connector.permitting(addresses));
        let tokens = tokens(&settings, around, &upstream, times, before);
        let routes = settings.pools.values().map(|pool| {
            let known = before.and_then(|before| before.routes.get(&*pool.name));
            let route = Route::new(
                pool,
                &settings,
                &tokens,
                around,
                known.map(|known| &**known),
                overlay,
            );
            (pool.name.as_str().into(), Arc::new(route))
        });
        Self {
            routes: routes.collect(),
            tokens,
            upstream,
            times,
            bounds,
            settings,
        }
    }

    /// The settings it was made from.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// The route of this name.
    pub fn route(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.get(name)
    }

    /// All routes by name.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Arc<Route>)> {
        self.routes.iter().map(|(name, route)| (&**name, route))
    }

    /// All credentials by name.
    pub(super) fn tokens(&self) -> &BTreeMap<String, Arc<Token>> {
        &self.tokens
    }

    /// What everything is sent through.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Times that bound an attempt.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// What bounds the body of a request.
    pub fn bounds(&self) -> BodyBounds {
        self.bounds
    }
}

impl Route {
    fn new(
        pool: &settings::Pool,
        settings: &Settings,
        tokens: &BTreeMap<String, Arc<Token>>,
        around: &Around<'_>,
        known: Option<&Self>,
        overlay: &Overlay,
    ) -> Self {
        let mut records: BTreeMap<String, LadderRecord> = known
            .map(|known| known.pool.records())
            .unwrap_or_default()
            .into_iter()
            .collect();
        overlay.add_records(&pool.name, &mut records);
        let protection = overlay.protection(pool);
        let live = Pool::with(&pool.name, around.limiter, pool.balance, protection);
        let mut max_wait = settings.gates.default_value().gate.max_wait();
        for (number, (endpoint, trust)) in overlay.endpoints(pool).into_iter().enumerate() {
            let host = endpoint.url.host_str().unwrap_or_default();
            let host_settings = settings.gates.find(host);
            if number == 0 {
                max_wait = host_settings.gate.max_wait();
            }
            let rules = rules(pool, settings, host);
            let counts = around
                .metrics
                .key(&endpoint_key(&pool.name, &endpoint.name));
            let Ok(remote) = Remote::new(endpoint, rules, trust, counts, around.workers) else {
                continue;
            };
            let record = records.remove(&endpoint.name).unwrap_or_default();
            live.restore(&endpoint.name, host, remote, record);
        }
        Self {
            pool: live,
            backoff: settings.backoffs[&pool.backoff].clone(),
            retry_unsafe: pool.retry_unsafe,
            max_wait,
            token: pool
                .credential
                .as_ref()
                .and_then(|name| tokens.get(name).cloned()),
            metrics: around.metrics.route(&pool.name),
        }
    }
}

/// What the owner of the settings knows of the answers of an endpoint: of the pool's, then of the
/// host's.
pub(super) fn rules(pool: &settings::Pool, settings: &Settings, host: &str) -> Arc<[Rule]> {
    let of_host = &settings.gates.find(host).rules;
    pool.rules.iter().chain(of_host.iter()).cloned().collect()
}

/// All credentials; one whose settings are as before keeps what it has.
fn tokens(
    settings: &Settings,
    around: &Around<'_>,
    upstream: &Upstream,
    times: Times,
    before: Option<&Served>,
) -> BTreeMap<String, Arc<Token>> {
    let credentials = settings.credentials.iter();
    let tokens = credentials.filter_map(|(name, credential)| {
        let known = before.and_then(|before| before.tokens.get(name));
        let token = match known.filter(|token| token.is_of(credential)) {
            Some(token) => Arc::clone(token),
            None => Arc::new(Token::new(
                name,
                credential,
                around.limiter,
                upstream,
                around.store,
                times,
            )?),
        };
        Some((name.clone(), token))
    });
    tokens.collect()
}
