//! The routes of the gateway: one for each pool. Made anew from the configuration by a reload, while
//! the pools themselves stay.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;

use super::forward::ForwardRoute;
use super::guard::Guard;
use crate::exchange::{BodyBounds, Exchange};
use crate::metrics::{Metrics, RouteMetrics};
use crate::settings::{Settings, Size};
use crate::state::{AccessToken, Configuration, UpstreamPool};

/// All routes, what bounds their requests, and which requests are served at all.
#[derive(Debug)]
pub struct Routes {
    configuration: Arc<Configuration>,
    routes: BTreeMap<Box<str>, Arc<Route>>,
    bounds: BodyBounds,
    guard: Guard,
    /// `None`: forward mode is off.
    forward: Option<ForwardRoute>,
}

/// How a route is called in metrics, logs and trails, and where its requests are counted.
#[derive(Debug)]
pub struct RouteLabel {
    /// The name of its pool, or of a mode.
    pub name: Arc<str>,
    /// What retries are logged with: the pool, or a host.
    pub key: Arc<str>,
    /// How its requests end.
    pub metrics: Arc<RouteMetrics>,
}

impl RouteLabel {
    pub(super) fn new(name: &str, key: Arc<str>, metrics: Arc<RouteMetrics>) -> Arc<Self> {
        let name = name.into();
        Arc::new(Self { name, key, metrics })
    }
}

/// A pool, and how requests to it are treated.
#[derive(Debug)]
pub struct Route {
    /// The name of its pool.
    pub name: Arc<str>,
    /// The endpoints.
    pub pool: Arc<UpstreamPool>,
    /// How long to wait between attempts, and how many there may be.
    pub backoff: BackoffSettings,
    /// Requests that the server may have acted upon are sent again, too.
    pub retry_unsafe: bool,
    /// How long a caller waits that does not say.
    pub max_wait: Duration,
    /// The token of its requests, refreshed when a server does not accept it.
    pub token: Option<Arc<AccessToken>>,
    /// Its name elsewhere, and how its requests end.
    pub label: Arc<RouteLabel>,
    /// What makes its attempts, with the timeouts of the pool.
    pub exchange: Exchange,
    /// What bounds the body of a request to it.
    pub bounds: BodyBounds,
}

impl Routes {
    /// A route for every pool of the configuration, for a gateway that listens on `address`. What
    /// clients have sent under those `before` still counts.
    pub(super) fn new(
        configuration: Arc<Configuration>,
        metrics: &Metrics,
        address: SocketAddr,
        before: Option<&Self>,
    ) -> Self {
        let settings = configuration.settings();
        let guard = Guard::new(settings, address, before.map(|before| &before.guard));
        let forward = ForwardRoute::new(settings, metrics);
        let http = &configuration.settings().http;
        let bounds = BodyBounds {
            most: match http.max_body {
                Size::None => None,
                Size::Bytes(most) => Some(most),
            },
            kept: http.replay_buffer(),
            idle: http.idle_timeout,
            min_rate: http.min_body_rate,
        };
        let routes = configuration.pools().filter_map(|(name, pool)| {
            let route = Route::new(name, pool, &configuration, bounds, metrics)?;
            Some((name.into(), Arc::new(route)))
        });
        Self {
            routes: routes.collect(),
            bounds,
            guard,
            forward,
            configuration,
        }
    }

    /// The settings they were made from.
    pub fn settings(&self) -> &Arc<Settings> {
        self.configuration.settings()
    }

    /// The route of this name.
    pub fn route(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.get(name)
    }

    /// All routes by name.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Arc<Route>)> {
        self.routes.iter().map(|(name, route)| (&**name, route))
    }

    /// What makes their attempts.
    pub fn exchange(&self) -> &Exchange {
        self.configuration.exchange()
    }

    /// How requests of forward mode are treated, if it is on.
    pub(super) fn forward(&self) -> Option<&ForwardRoute> {
        self.forward.as_ref()
    }

    /// Decides which requests are served.
    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// What bounds the body of a request.
    pub fn bounds(&self) -> BodyBounds {
        self.bounds
    }
}

impl Route {
    fn new(
        name: &str,
        pool: &Arc<UpstreamPool>,
        configuration: &Configuration,
        bounds: BodyBounds,
        metrics: &Metrics,
    ) -> Option<Self> {
        let settings = configuration.settings();
        let configured = settings.pools.get(name)?;
        let endpoints = pool.endpoints();
        let gate = match endpoints.first() {
            Some(first) => settings.gates.find(first.data().host()),
            None => settings.gates.default_value(),
        };
        let credential = configured.credential.as_ref();
        let exchange = configuration.exchange_of(name).clone();
        let shared_name: Arc<str> = name.into();
        Some(Self {
            bounds: BodyBounds {
                idle: exchange.timeouts().idle,
                ..bounds
            },
            exchange,
            label: RouteLabel::new(name, Arc::clone(&shared_name), metrics.route(name)),
            name: shared_name,
            pool: Arc::clone(pool),
            backoff: settings.backoffs[&configured.backoff]
                .clone()
                .with_retry_after_jitter(configured.retry_after_jitter),
            retry_unsafe: configured.retry_unsafe,
            max_wait: gate.gate.max_wait(),
            token: credential.and_then(|name| configuration.credential(name).cloned()),
        })
    }
}
