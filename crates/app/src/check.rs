//! The worst case of every route, and warnings about settings.
//!
//! Attempts, waits and the traffic that retries add to an outage multiply. They are computed here from
//! the same policies that will run, without running them.

mod never;

use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::budget::BudgetSettings;

use crate::settings::{PoolSettings, Settings};

/// The result of checking settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Every route, with its worst case.
    pub routes: Vec<Route>,
    /// What has no effect, can never happen, or is dangerous.
    pub warnings: Vec<Warning>,
}

/// A route and the worst case of one request on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// What kind of route.
    pub kind: RouteKind,
    /// Its name: of the pool, the host or the type.
    pub name: String,
    /// The backoff it uses.
    pub backoff: String,
    /// How many endpoints share its requests.
    pub endpoints: usize,
    /// Sends that count as attempts, the first included, over all endpoints together.
    pub attempts: u32,
    /// All sends, with those that do not count: one after each refresh of a credential. Sends after a
    /// wait that a server named do not count either; time bounds them.
    pub sends: u32,
    /// The shortest and the longest that one request waits between its attempts.
    pub waits: (Duration, Duration),
    /// A first estimate of all waits: the delays of all sends before jitter and maximum.
    pub estimate_total: Duration,
    /// What retries add to the traffic.
    pub amplification: Amplification,
    /// What ends the waits that a server names.
    pub bound: Bound,
}

/// What kind of route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// `[pool.NAME]`.
    Pool,
    /// A host through its gate, as fetching and jobs use it.
    Gate,
    /// HTTP_PROXY mode.
    Forward,
    /// `[operation.TYPE]`.
    Operation,
}

impl RouteKind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Gate => "gate",
            Self::Forward => "forward",
            Self::Operation => "operation",
        }
    }
}

/// How much traffic comes out of one request when everything fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amplification {
    /// Sends per request over time, within the retry budget.
    pub sustained: f64,
    /// Sends per request while the budget's minimum covers all retries.
    pub peak: u32,
    /// That holds up to so many requests per second.
    pub peak_below: f64,
}

/// What ends waits that a server names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A caller waits this long at most.
    MaxWait(Duration),
    /// An operation is given up after this.
    ExpiresAfter(Duration),
}

/// A valid setting that is probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The section or setting.
    pub key: String,
    /// What is wrong with it, as a sentence without a full stop.
    pub what: String,
}

/// Computes worst cases and warnings.
pub fn check(settings: &Settings) -> Report {
    let mut routes = Vec::new();
    routes.extend(pools(settings));
    routes.extend(gates(settings));
    routes.extend(forward(settings));
    routes.extend(operations(settings));
    Report {
        routes,
        warnings: never::warnings(settings),
    }
}

fn pools(settings: &Settings) -> impl Iterator<Item = Route> + '_ {
    settings.pools.values().map(|pool| Route {
        kind: RouteKind::Pool,
        name: pool.name.clone(),
        endpoints: pool.endpoints.len(),
        bound: Bound::MaxWait(max_wait(settings, pool)),
        ..route(settings, &pool.backoff, pool.credential.as_deref())
    })
}

/// How long a caller of a pool may wait: the longest of its endpoints' gates.
fn max_wait(settings: &Settings, pool: &PoolSettings) -> Duration {
    let endpoints = pool.endpoints.iter();
    let hosts = endpoints.filter_map(|endpoint| endpoint.url.host_str());
    let waits = hosts.map(|host| settings.gate_for(host).max_wait());
    waits.max().unwrap_or_default()
}

/// Fetching and jobs go to any host: one row for those with settings of their own, one for the rest.
fn gates(settings: &Settings) -> impl Iterator<Item = Route> + '_ {
    let hosts = settings.gates.iter();
    let hosts = hosts.map(|(pattern, host)| (pattern.to_string(), &host.gate));
    let rest = ("*".to_owned(), &settings.gates.default_value().gate);
    hosts.chain([rest]).map(|(name, gate)| Route {
        kind: RouteKind::Gate,
        name,
        bound: Bound::MaxWait(gate.max_wait()),
        ..route(settings, "crawl", None)
    })
}

fn forward(settings: &Settings) -> Option<Route> {
    let is_on = !settings.forward.allow.is_empty();
    let max_wait = settings.gates.default_value().gate.max_wait();
    is_on.then(|| Route {
        kind: RouteKind::Forward,
        name: "*".to_owned(),
        bound: Bound::MaxWait(max_wait),
        ..route(settings, "standard", None)
    })
}

fn operations(settings: &Settings) -> impl Iterator<Item = Route> + '_ {
    settings.operations.iter().map(|(name, operation)| Route {
        kind: RouteKind::Operation,
        name: name.clone(),
        bound: Bound::ExpiresAfter(operation.expires_after),
        ..route(
            settings,
            &operation.backoff,
            operation.credential.as_deref(),
        )
    })
}

/// What every route has in common.
fn route(settings: &Settings, name: &str, credential: Option<&str>) -> Route {
    let backoff = backoff(settings, name);
    let attempts = backoff.max_attempts();
    let credential = credential.and_then(|name| settings.credentials.get(name));
    let refreshes = credential.is_some_and(|credential| credential.refresh.is_some());
    Route {
        kind: RouteKind::Gate,
        name: String::new(),
        backoff: name.to_owned(),
        endpoints: 1,
        attempts,
        // Each attempt may be preceded by one that was refused with 401.
        sends: if refreshes {
            attempts.saturating_mul(2)
        } else {
            attempts
        },
        waits: backoff.total_bounds(),
        estimate_total: backoff.estimate_total(),
        amplification: amplification(attempts, &settings.retry_budget),
        bound: Bound::MaxWait(Duration::ZERO),
    }
}

/// A backoff by its name; the names that settings have are all there.
fn backoff(settings: &Settings, name: &str) -> BackoffSettings {
    settings.backoffs.get(name).cloned().unwrap_or_default()
}

fn amplification(attempts: u32, budget: &BudgetSettings) -> Amplification {
    let retries = f64::from(attempts.saturating_sub(1));
    let minimum = f64::from(budget.min_per_second());
    let has_retries = minimum > 0.0 && attempts > 1;
    Amplification {
        sustained: 1.0 + budget.ratio().min(retries),
        peak: if has_retries { attempts } else { 1 },
        peak_below: if has_retries { minimum / retries } else { 0.0 },
    }
}

#[cfg(test)]
mod tests;
