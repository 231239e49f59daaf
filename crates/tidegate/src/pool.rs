//! Live pools: endpoints that can do the same work, each behind a gate of its own.
//!
//! [`policy::pool`] decides which endpoint is next, and its gate when it may send. A permit of a
//! pool holds both, and settling it updates both: the gate learns the pace and the endpoint's
//! ladder the errors, each from every response once.
//!
//! An ask that finds no endpoint ready waits for the earliest: in the lines of all gates that only
//! lack a token, for the end of the first pause, and for any change by a person or a response,
//! whichever comes first.
//!
//! A pool is updated in place: settings, order and data of its endpoints may change while requests
//! are under way. Their results are still counted, and gates and ladders keep what they know.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use policy::gate::GateSettings;
use policy::key::endpoint_key;
use policy::ladder::{Disabled, EndpointResult, Ladder, LadderRecord, LadderSettings, LadderStep};
use policy::outcome::{Outcome, UpstreamResponse, Verdict};
use policy::pool::{self, Balance, EndpointId, Lease};
use policy::rate::Strategy;
use policy::time::Timestamp;

use crate::ask::Ask;
use crate::call::Call;
use crate::event::Event;
use crate::limiter::Limiter;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::waiters::Waiters;

mod permit;
mod refusal;
mod wait;

pub use permit::PoolPermit;
pub use refusal::{PoolRefusal, RefusalReason};

/// Endpoints that can do the same work. `E` is the user's own data for each: an address, a client, a
/// credential.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tidegate::{Ask, Limiter, Outcome, Pool};
///
/// let limiter = Limiter::new();
/// let pool = Pool::new("llm", &limiter);
/// pool.add("a", "a.example.com", "https://a.example.com/v1");
/// pool.add("b", "b.example.com", "https://b.example.com/v1");
///
/// let permit = pool.acquire(Ask::new("")).await?;
/// let url = permit.endpoint().data();
/// // … send there, then:
/// permit.settle(&Outcome::status(200, Duration::from_millis(300)));
/// # Ok(())
/// # }
/// ```
pub struct Pool<E> {
    name: Box<str>,
    limiter: Limiter,
    state: Mutex<PoolState<E>>,
    /// Asks that wait for a change in which endpoints can be used.
    waiters: Waiters,
}

struct PoolState<E> {
    pool: pool::Pool,
    protection: LadderSettings,
    endpoints: BTreeMap<EndpointId, Arc<Endpoint<E>>>,
    /// Incremented whenever it changes which endpoints can be used.
    changes: u64,
}

/// One member of a pool.
pub struct Endpoint<E> {
    pub(crate) id: EndpointId,
    name: Arc<str>,
    key: Arc<str>,
    data: E,
}

impl<E> Endpoint<E> {
    /// What it is called in its pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same name, for records that outlive it.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The key of its gate: `pool/endpoint`.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The user's data for it.
    pub fn data(&self) -> &E {
        &self.data
    }
}

impl<E> fmt::Debug for Endpoint<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// What can be seen of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// What it is called.
    pub name: String,
    /// Why it is disabled; `None` if it is not.
    pub disabled: Option<Disabled>,
    /// The end of its pause, while that lasts.
    pub paused_until: Option<Timestamp>,
    /// Errors in a row.
    pub consecutive_errors: u32,
    /// The last error, for people.
    pub last_error: Option<String>,
    /// Requests under way, until the end of the response's body.
    pub in_flight: u32,
}

impl<E> Pool<E> {
    /// A pool without endpoints, with default protection and balance.
    pub fn new(name: &str, limiter: &Limiter) -> Self {
        Self::with(name, limiter, Balance::default(), LadderSettings::default())
    }

    /// A pool without endpoints.
    pub fn with(
        name: &str,
        limiter: &Limiter,
        balance: Balance,
        protection: LadderSettings,
    ) -> Self {
        Self {
            name: name.into(),
            limiter: limiter.clone(),
            state: Mutex::new(PoolState {
                pool: pool::Pool::new(balance),
                protection,
                endpoints: BTreeMap::new(),
                changes: 0,
            }),
            waiters: Waiters::default(),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limiter that its endpoints' gates are in.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Adds an endpoint at the end of the list. Its gate has the settings of `host`. `false` if the
    /// name is taken or the pool is full.
    pub fn add(&self, name: &str, host: &str, data: E) -> bool {
        self.restore(name, host, data, LadderRecord::default())
    }

    /// Adds an endpoint with what is known of it, such as before a restart.
    pub fn restore(&self, name: &str, host: &str, data: E, record: LadderRecord) -> bool {
        let key = endpoint_key(&self.name, name);
        let now = self.limiter.clock().now();
        let mut state = lock(&self.state);
        let Some(id) = state.pool.restore(name, record, now) else {
            return false;
        };
        let endpoint = Endpoint {
            id,
            name: name.into(),
            key: key.as_str().into(),
            data,
        };
        state.endpoints.insert(id, Arc::new(endpoint));
        drop(state);
        // After the name was taken, and without the lock: it may wake asks that wait at the gate.
        self.limiter.alias_host(&key, host);
        self.notify_change(lock(&self.state));
        true
    }

    /// Changes an endpoint's data, and the host whose settings its gate has. The gate and the ladder
    /// keep their state; attempts in flight end with the data they began with. `false`
    /// if there is no endpoint of that name.
    pub fn replace(&self, name: &str, host: &str, data: E) -> bool {
        let key = endpoint_key(&self.name, name);
        let mut state = lock(&self.state);
        let id = state.pool.find(name).map(pool::Endpoint::id);
        let Some(known) = id.and_then(|id| state.endpoints.get_mut(&id)) else {
            return false;
        };
        *known = Arc::new(Endpoint {
            id: known.id,
            name: known.name.clone(),
            key: Arc::clone(&known.key),
            data,
        });
        drop(state);
        self.limiter.alias_host(&key, host);
        self.notify_change(lock(&self.state));
        true
    }

    /// Changes how it chooses and how its endpoints are protected, from the next response on.
    pub fn update(&self, balance: Balance, protection: LadderSettings) {
        let mut state = lock(&self.state);
        state.pool.set_balance(balance);
        state.protection = protection;
        self.notify_change(state);
    }

    /// Puts the endpoints of these names first, in this order; the others follow as they were.
    pub fn reorder(&self, names: &[&str]) {
        let mut state = lock(&self.state);
        state.pool.reorder(names);
        self.notify_change(state);
    }

    /// Removes an endpoint; what is under way through it ends without effect. `false` if there is
    /// none of that name.
    pub fn remove(&self, name: &str) -> bool {
        let is_removed = self.change_endpoint(name, |state, id| {
            state.endpoints.remove(&id);
            state.pool.remove(id)
        });
        if is_removed {
            let key = endpoint_key(&self.name, name);
            self.limiter.forget_alias(&key);
        }
        is_removed
    }

    /// A person enables an endpoint: all its error state is cleared, and if its gate is Isolated,
    /// as a used-up quota leaves it, that ends too. `false` if there is none of that name.
    pub fn enable(&self, name: &str) -> bool {
        let mut was_out = false;
        let is_known = self.change_endpoint(name, |state, id| {
            was_out = state.is_out(id);
            state.pool.enable(id)
        });
        if is_known {
            let key = endpoint_key(&self.name, name);
            self.limiter.end_isolation(&key);
        }
        if was_out {
            let event = Event::EndpointEnabled {
                pool: &self.name,
                endpoint: name,
            };
            let now = self.limiter.clock().now();
            self.limiter.emit(now, &event);
        }
        is_known
    }

    /// A person disables an endpoint, until a person enables it. `false` if there is none of that
    /// name.
    pub fn disable(&self, name: &str) -> bool {
        let is_known = self.change_endpoint(name, |state, id| state.pool.disable(id));
        if is_known {
            let event = Event::EndpointDisabled {
                pool: &self.name,
                endpoint: name,
                why: Disabled::Person,
            };
            let now = self.limiter.clock().now();
            self.limiter.emit(now, &event);
        }
        is_known
    }

    /// How endpoints are protected.
    pub fn protection(&self) -> LadderSettings {
        lock(&self.state).protection.clone()
    }

    /// Changes how endpoints are protected, from the next response on.
    pub fn set_protection(&self, protection: LadderSettings) {
        let mut state = lock(&self.state);
        state.protection = protection;
        self.notify_change(state);
    }

    /// How it chooses.
    pub fn balance(&self) -> Balance {
        lock(&self.state).pool.balance()
    }

    /// What can be seen of its endpoints, in the order of the list.
    pub fn view(&self) -> Vec<EndpointView> {
        let now = self.limiter.clock().now();
        let state = lock(&self.state);
        let endpoints = state.pool.endpoints().iter();
        let mut views: Vec<EndpointView> = endpoints.map(|endpoint| view(endpoint, now)).collect();
        drop(state);
        for view in &mut views {
            let key = endpoint_key(&self.name, &view.name);
            let at_gate = self.limiter.in_flight(&key);
            view.in_flight = view.in_flight.max(at_gate);
        }
        views
    }

    /// Its endpoints, in the order of the list.
    pub fn endpoints(&self) -> Vec<Arc<Endpoint<E>>> {
        let state = lock(&self.state);
        let ids = state.pool.endpoints().iter().map(pool::Endpoint::id);
        ids.filter_map(|id| state.endpoints.get(&id).cloned())
            .collect()
    }

    /// The endpoint of this name.
    pub fn endpoint(&self, name: &str) -> Option<Arc<Endpoint<E>>> {
        let state = lock(&self.state);
        let id = state.pool.find(name)?.id();
        state.endpoints.get(&id).cloned()
    }

    /// What must survive a restart, of each endpoint by name.
    pub fn records(&self) -> Vec<(String, LadderRecord)> {
        let now = self.limiter.clock().now();
        let state = lock(&self.state);
        let endpoints = state.pool.endpoints().iter();
        let record =
            |endpoint: &pool::Endpoint| (endpoint.name().to_owned(), endpoint.ladder().record(now));
        endpoints.map(record).collect()
    }

    /// A permit of whichever endpoint is chosen and may send first. The key of the ask is not
    /// looked at; the gates of the endpoints are asked.
    pub async fn acquire(&self, ask: Ask<'_>) -> Result<PoolPermit<'_, E>, PoolRefusal> {
        self.acquire_noting(ask, None, &mut None).await
    }

    /// A request to any of the endpoints, with retries: see [`Call`].
    ///
    /// ```
    /// # async fn example(pool: &tidegate::Pool<String>) {
    /// use tidegate::AttemptResult;
    ///
    /// # async fn fetch(url: &str) -> (u16, String) { (200, String::new()) }
    /// let called = pool
    ///     .call()
    ///     .run(async |attempt, endpoint| {
    ///         let (status, body) = fetch(endpoint.data()).await;
    ///         AttemptResult::new(body, attempt.status(status))
    ///     })
    ///     .await;
    /// # }
    /// ```
    pub fn call(&self) -> Call<'_, Self> {
        Call::through_pool(self)
    }

    pub(crate) fn last_success(&self) -> Option<Timestamp> {
        let endpoints: Vec<Arc<Endpoint<E>>> =
            lock(&self.state).endpoints.values().cloned().collect();
        let limiter = &self.limiter;
        let successes = endpoints
            .iter()
            .filter_map(|endpoint| limiter.last_success(&endpoint.key));
        successes.max()
    }

    fn change_endpoint(
        &self,
        name: &str,
        act: impl FnOnce(&mut PoolState<E>, EndpointId) -> bool,
    ) -> bool {
        let mut state = lock(&self.state);
        let Some(id) = state.pool.find(name).map(pool::Endpoint::id) else {
            return false;
        };
        let has_acted = act(&mut state, id);
        self.notify_change(state);
        has_acted
    }

    /// Brings a lease back with what came of it.
    fn settle(
        &self,
        endpoint: &Endpoint<E>,
        lease: Lease,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        text: &str,
    ) {
        let now = self.limiter.clock().now();
        let ended = match outcome.response {
            UpstreamResponse::Status(status) => {
                let ended = EndpointResult::response(status, verdict, text, &outcome.hint);
                // Only there does it matter whether the gate looks for its limit.
                match verdict {
                    Some(Verdict::Throttled) => ended.with_strategy(self.strategy(&endpoint.key)),
                    _ => ended,
                }
            }
            UpstreamResponse::Failed { failure, .. } => EndpointResult::failure(failure, text),
        };
        let mut state = lock(&self.state);
        let was_recovering = state.is_recovering(endpoint.id, now);
        let was_out = state.is_out(endpoint.id);
        let PoolState {
            pool, protection, ..
        } = &mut *state;
        let step = pool.settle(protection, lease, &ended, now);
        let has_changed = !matches!(
            step,
            LadderStep::Late | LadderStep::Unchanged | LadderStep::NotCounted | LadderStep::Probed
        );
        if !was_recovering && !has_changed {
            return;
        }
        let after = pool.get(endpoint.id).filter(|_| has_changed);
        let after = after.map(|after| view(after, now));
        self.notify_change(state);
        if let Some(after) = after {
            self.emit_step(step, &after, was_out, now);
        }
    }

    fn strategy(&self, key: &str) -> Strategy {
        self.limiter.with_settings(key, GateSettings::strategy)
    }

    fn abandon(&self, lease: Lease) {
        let now = self.limiter.clock().now();
        let mut state = lock(&self.state);
        let was_recovering = state.is_recovering(lease.endpoint(), now);
        state.pool.abandon(lease);
        if was_recovering {
            self.notify_change(state);
        }
    }

    fn emit_step(&self, step: LadderStep, after: &EndpointView, was_out: bool, now: Timestamp) {
        let (pool, endpoint) = (&*self.name, &*after.name);
        let event = match (after.disabled, step, after.paused_until) {
            (Some(why), ..) => Event::EndpointDisabled {
                pool,
                endpoint,
                why,
            },
            (None, LadderStep::Paused { source, .. }, Some(until)) => Event::EndpointPaused {
                pool,
                endpoint,
                until,
                errors: after.consecutive_errors,
                source,
            },
            (None, LadderStep::Cleared, _) if was_out => Event::EndpointEnabled { pool, endpoint },
            _ => return,
        };
        self.limiter.emit(now, &event);
    }

    /// Unlocks, and makes all asks that wait look again.
    fn notify_change(&self, mut state: MutexGuard<'_, PoolState<E>>) {
        state.changes += 1;
        drop(state);
        self.waiters.wake_all();
    }
}

impl<E> PoolState<E> {
    /// Has it been paused or disabled, and neither succeeded nor been enabled since?
    fn is_out(&self, id: EndpointId) -> bool {
        let endpoint = self.pool.get(id);
        endpoint.is_some_and(|endpoint| {
            let ladder = endpoint.ladder();
            !ladder.is_enabled() || ladder.paused_until().is_some()
        })
    }

    /// Does one request at a time go through it until one succeeds?
    fn is_recovering(&self, id: EndpointId, now: Timestamp) -> bool {
        let endpoint = self.pool.get(id);
        endpoint.is_some_and(|endpoint| endpoint.ladder().is_recovering(now))
    }
}

impl<E> fmt::Debug for Pool<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.name)
            .field("endpoints", &self.view())
            .finish_non_exhaustive()
    }
}

fn view(endpoint: &pool::Endpoint, now: Timestamp) -> EndpointView {
    let ladder: &Ladder = endpoint.ladder();
    EndpointView {
        name: endpoint.name().to_owned(),
        disabled: ladder.disabled(),
        paused_until: ladder.paused_until().filter(|until| *until > now),
        consecutive_errors: ladder.consecutive_errors(),
        last_error: ladder.last_error().map(str::to_owned),
        in_flight: endpoint.in_flight(),
    }
}
