//! Live pools: interchangeable endpoints, each behind its own gate.
//!
//! [`policy::pool`] chooses the next endpoint; the endpoint's gate decides when it may send. A pool
//! permit holds both, and settling it updates both: the gate learns the pace, and the endpoint's
//! ladder counts errors. Each response is counted once.
//!
//! Choosing takes the pool's lock and no gate's: the pool remembers which gates would not admit an
//! ask, and for how long that need not be asked again. Only the gate of the chosen endpoint is
//! locked.
//!
//! If no endpoint is ready, an ask waits for whichever comes first: a permit from any gate that
//! only lacks tokens, the end of the earliest pause, or any change by a person or a response. When
//! it looks again after a change, it keeps its place in the lines of endpoints that stay usable.
//!
//! A pool is updated in place: settings, order and endpoint data can change while requests are in
//! flight. Their results are still counted, and gates and ladders keep their state.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use policy::classify::rejects_credential;
use policy::key::endpoint_key;
use policy::ladder::{Disabled, EndpointResult, Ladder, LadderRecord, LadderSettings, LadderStep};
use policy::outcome::{Outcome, UpstreamResponse, Verdict};
use policy::pool::{self, Balance, EndpointId, GateState, Lease};
use policy::rate::Strategy;
use policy::time::Timestamp;

use crate::ask::Ask;
use crate::call::Call;
use crate::credential::Refresh;
use crate::event::Event;
use crate::limiter::Limiter;
use crate::registry::LocationHint;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::waiters::Waiters;

mod load;
mod permit;
mod refusal;
mod wait;

pub(crate) use load::BodyGuard;
pub use permit::PoolPermit;
pub use refusal::{PoolRefusal, RefusalReason};
pub(crate) use wait::Selection;

use load::Load;
use wait::ChooseResult;

/// Interchangeable endpoints. `E` is caller data for each endpoint, such as an address, a client or
/// a credential.
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
/// let permit = pool.acquire(Ask::any()).await?;
/// let url = permit.endpoint().data();
/// // … send the request there, then:
/// permit.settle(&Outcome::status(200, Duration::from_millis(300)));
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone; clones share one state.
pub struct Pool<E> {
    shared: Arc<Shared<E>>,
    credential_of: CredentialOf<E>,
}

/// State shared by all clones of a pool.
struct Shared<E> {
    name: Box<str>,
    limiter: Limiter,
    state: Mutex<PoolState<E>>,
    /// Asks that wait for a change in which endpoints are usable.
    waiters: Waiters,
}

/// Finds the credential of an endpoint in its data.
type CredentialOf<E> = fn(&E) -> Option<&dyn Refresh>;

struct PoolState<E> {
    pool: pool::Pool<Member<E>>,
    protection: LadderSettings,
    /// Incremented whenever the set of usable endpoints may have changed.
    changes: u64,
}

/// An endpoint as the pool stores it.
struct Member<E> {
    endpoint: Arc<Endpoint<E>>,
    /// That of the endpoint, here so that choosing reads no endpoint but the chosen one.
    load: Arc<Load>,
    /// Before this time the pool does not ask its gate, which would not admit.
    not_before: Timestamp,
}

impl<E> Member<E> {
    fn new(endpoint: Endpoint<E>) -> Self {
        Self {
            load: Arc::clone(&endpoint.load),
            endpoint: Arc::new(endpoint),
            not_before: Timestamp::ZERO,
        }
    }
}

/// One member of a pool.
pub struct Endpoint<E> {
    pub(crate) id: EndpointId,
    name: Arc<str>,
    key: Arc<str>,
    load: Arc<Load>,
    location: LocationHint,
    data: E,
}

impl<E> Endpoint<E> {
    /// The endpoint's name within its pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same name, for records that outlive it.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The key of the endpoint's gate: `pool/endpoint`.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Caller data.
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

/// A snapshot of an endpoint; by default one that is enabled and has done nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointView {
    /// The endpoint's name.
    pub name: String,
    /// Why it is disabled; `None` if it is enabled.
    pub disabled: Option<Disabled>,
    /// How long it has been disabled; `None` if it is enabled, or that is not known.
    pub disabled_for: Option<Duration>,
    /// When its pause ends; `None` if it is not paused.
    pub paused_until: Option<Timestamp>,
    /// How long ago its pause started; `None` if it is not paused, or that is not known.
    pub paused_for: Option<Duration>,
    /// Whether its pause is over and nothing has succeeded since.
    pub is_recovering: bool,
    /// Consecutive errors.
    pub consecutive_errors: u32,
    /// The last error message, for display.
    pub last_error: Option<String>,
    /// Requests in flight, counted until the end of the response body.
    pub in_flight: u32,
}

impl<E> Pool<E> {
    /// Creates an empty pool with default protection and balance.
    pub fn new(name: &str, limiter: &Limiter) -> Self {
        Self::with(name, limiter, Balance::default(), LadderSettings::default())
    }

    /// Creates an empty pool.
    pub fn with(
        name: &str,
        limiter: &Limiter,
        balance: Balance,
        protection: LadderSettings,
    ) -> Self {
        let shared = Shared {
            name: name.into(),
            limiter: limiter.clone(),
            state: Mutex::new(PoolState {
                pool: pool::Pool::new(balance),
                protection,
                changes: 0,
            }),
            waiters: Waiters::default(),
        };
        Self {
            shared: Arc::new(shared),
            credential_of: |_| None,
        }
    }

    /// Endpoints have credentials of their own, which `of` finds in their data. When one answers
    /// 401, a [call](Self::call) refreshes its credential once and resends there; if that does not
    /// help, it moves to another endpoint.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Credential, Limiter, Pool};
    ///
    /// struct Account {
    ///     token: Credential<String>,
    /// }
    ///
    /// let limiter = Limiter::new();
    /// let pool = Pool::new("crm", &limiter).credentials(|account: &Account| Some(&account.token));
    /// # async fn new_token() -> std::io::Result<String> { Ok(String::new()) }
    /// let token = Credential::new("first", "…".to_owned(), new_token);
    /// pool.add("first", "crm.example.com", Account { token });
    /// ```
    pub fn credentials(self, of: fn(&E) -> Option<&dyn Refresh>) -> Self {
        Self {
            credential_of: of,
            ..self
        }
    }

    pub(crate) fn credential_of<'e>(&self, endpoint: &'e Endpoint<E>) -> Option<&'e dyn Refresh> {
        (self.credential_of)(&endpoint.data)
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The limiter that owns the endpoints' gates.
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }

    /// Appends an endpoint. Its gate uses the settings of `host`. Returns `false` if the name is
    /// taken or the pool is full.
    pub fn add(&self, name: &str, host: &str, data: E) -> bool {
        self.restore(name, host, data, LadderRecord::default())
    }

    /// Adds an endpoint with the state in `record`, for example from before a restart.
    pub fn restore(&self, name: &str, host: &str, data: E, record: LadderRecord) -> bool {
        let key = endpoint_key(&self.shared.name, name);
        let now = self.shared.limiter.clock().now();
        let mut state = lock(&self.shared.state);
        let member = |id| {
            Member::new(Endpoint {
                id,
                name: name.into(),
                key: key.as_str().into(),
                load: Arc::new(Load::default()),
                location: LocationHint::default(),
                data,
            })
        };
        let Some(id) = state.pool.insert_with(name, record, now, member) else {
            return false;
        };
        publish_clear(&state.pool, id);
        drop(state);
        // After the name was taken, and without the lock: it may wake asks waiting at the gate.
        self.shared.limiter.alias_host(&key, host);
        self.notify_change(lock(&self.shared.state));
        true
    }

    /// Replaces an endpoint's data and the host whose settings its gate uses. The gate and the
    /// ladder keep their state; attempts in flight finish with the old data. Returns `false` if no
    /// endpoint has that name.
    pub fn replace(&self, name: &str, host: &str, data: E) -> bool {
        let key = endpoint_key(&self.shared.name, name);
        let mut state = lock(&self.shared.state);
        let id = state.pool.find(name).map(pool::Endpoint::id);
        let Some(member) = id.and_then(|id| state.pool.data_mut(id)) else {
            return false;
        };
        let known = &member.endpoint;
        *member = Member::new(Endpoint {
            id: known.id,
            name: Arc::clone(&known.name),
            key: Arc::clone(&known.key),
            load: Arc::clone(&known.load),
            location: LocationHint::default(),
            data,
        });
        drop(state);
        self.shared.limiter.alias_host(&key, host);
        self.notify_change(lock(&self.shared.state));
        true
    }

    /// Changes balance and protection, starting with the next response.
    pub fn update(&self, balance: Balance, protection: LadderSettings) {
        let mut state = lock(&self.shared.state);
        state.pool.set_balance(balance);
        state.protection = protection;
        self.notify_change(state);
    }

    /// Moves the endpoints with these names to the front, in this order; the others keep their
    /// order.
    pub fn reorder(&self, names: &[&str]) {
        let mut state = lock(&self.shared.state);
        state.pool.reorder(names);
        self.notify_change(state);
    }

    /// Removes an endpoint. Results of its attempts in flight are ignored. Returns `false` if no
    /// endpoint has that name.
    pub fn remove(&self, name: &str) -> bool {
        let is_removed = self.change_endpoint(name, |state, id| state.pool.remove(id));
        if is_removed {
            let key = endpoint_key(&self.shared.name, name);
            self.shared.limiter.forget_alias(&key);
        }
        is_removed
    }

    /// Enables an endpoint on behalf of a person: clears its error state and ends an isolation of
    /// its gate, such as a used-up quota causes. Returns `false` if no endpoint has that name.
    pub fn enable(&self, name: &str) -> bool {
        // The gate first: asks that wait ask it again as soon as the endpoint is enabled.
        if self.endpoint(name).is_some() {
            let key = endpoint_key(&self.shared.name, name);
            self.shared.limiter.end_isolation(&key);
        }
        let mut was_out = false;
        let is_known = self.change_endpoint(name, |state, id| {
            let endpoint = state.pool.get(id);
            was_out = endpoint.is_some_and(|endpoint| is_out(endpoint.ladder()));
            state.pool.enable(id)
        });
        if was_out {
            let event = Event::EndpointEnabled {
                pool: &self.shared.name,
                endpoint: name,
            };
            let now = self.shared.limiter.clock().now();
            self.shared.limiter.emit(now, &event);
        }
        is_known
    }

    /// Disables an endpoint until a person enables it. Returns `false` if no endpoint has that
    /// name.
    pub fn disable(&self, name: &str) -> bool {
        let now = self.shared.limiter.clock().now();
        let is_known = self.change_endpoint(name, |state, id| state.pool.disable(id, now));
        if is_known {
            let event = Event::EndpointDisabled {
                pool: &self.shared.name,
                endpoint: name,
                why: Disabled::Person,
            };
            self.shared.limiter.emit(now, &event);
        }
        is_known
    }

    /// Takes the state of an endpoint that another process has written. Results of attempts that began
    /// before count no more, if that changes something. Returns whether it does.
    pub fn adopt(&self, name: &str, record: LadderRecord) -> bool {
        let now = self.shared.limiter.clock().now();
        let mut state = lock(&self.shared.state);
        let Some(id) = state.pool.find(name).map(pool::Endpoint::id) else {
            return false;
        };
        let before = state.pool.get(id).map(|it| it.ladder().clone());
        count_returned(&mut state.pool, id);
        let is_changed = state.pool.adopt(id, record, now);
        publish_clear(&state.pool, id);
        let after = state.pool.get(id).map(|it| it.ladder().clone());
        self.notify_change(state);
        if let (true, Some(before), Some(after)) = (is_changed, before, after) {
            self.emit_adopted(name, &before, &after, now);
        }
        is_changed
    }

    fn emit_adopted(&self, name: &str, before: &Ladder, after: &Ladder, now: Timestamp) {
        let pool = &self.shared.name;
        let event = match (after.disabled(), after.paused_until()) {
            (Some(why), _) if before.disabled() != after.disabled() => Event::EndpointDisabled {
                pool,
                endpoint: name,
                why,
            },
            (None, Some(until)) if until > now => Event::EndpointPaused {
                pool,
                endpoint: name,
                until,
                errors: after.consecutive_errors(),
                source: policy::hint::Source::Assumed,
            },
            (None, None) if is_out(before) => Event::EndpointEnabled {
                pool,
                endpoint: name,
            },
            _ => return,
        };
        self.shared.limiter.emit(now, &event);
    }

    /// The protection settings of the endpoints.
    pub fn protection(&self) -> LadderSettings {
        lock(&self.shared.state).protection.clone()
    }

    /// Changes the protection settings, starting with the next response.
    pub fn set_protection(&self, protection: LadderSettings) {
        let mut state = lock(&self.shared.state);
        state.protection = protection;
        self.notify_change(state);
    }

    /// How the pool chooses an endpoint.
    pub fn balance(&self) -> Balance {
        lock(&self.shared.state).pool.balance()
    }

    /// Snapshots of all endpoints, in list order.
    pub fn view(&self) -> Vec<EndpointView> {
        let now = self.shared.limiter.clock().now();
        let state = lock(&self.shared.state);
        let endpoints = state.pool.endpoints().iter();
        let mut views: Vec<EndpointView> = endpoints.map(|endpoint| view(endpoint, now)).collect();
        drop(state);
        for view in &mut views {
            let key = endpoint_key(&self.shared.name, &view.name);
            let at_gate = self.shared.limiter.in_flight(&key);
            view.in_flight = view.in_flight.max(at_gate);
        }
        views
    }

    /// All endpoints, in list order.
    pub fn endpoints(&self) -> Vec<Arc<Endpoint<E>>> {
        let state = lock(&self.shared.state);
        let endpoints = state.pool.endpoints().iter();
        endpoints
            .map(|endpoint| Arc::clone(&endpoint.data().endpoint))
            .collect()
    }

    /// The endpoint with this name.
    pub fn endpoint(&self, name: &str) -> Option<Arc<Endpoint<E>>> {
        let state = lock(&self.shared.state);
        let endpoint = state.pool.find(name)?;
        Some(Arc::clone(&endpoint.data().endpoint))
    }

    /// Each endpoint's name and the record to persist for it.
    pub fn records(&self) -> Vec<(String, LadderRecord)> {
        let now = self.shared.limiter.clock().now();
        let state = lock(&self.shared.state);
        let endpoints = state.pool.endpoints().iter();
        endpoints
            .map(|endpoint| (endpoint.name().to_owned(), endpoint.ladder().record(now)))
            .collect()
    }

    /// Waits for a permit from the first endpoint that is chosen and may send. The key of the ask
    /// is ignored; the endpoints' gates are asked instead.
    pub async fn acquire(&self, ask: Ask<'_>) -> Result<PoolPermit<'_, E>, PoolRefusal> {
        // Most asks end here: the permit is made where it is returned, without a future around it.
        match self.try_choose(&ask, |_| true) {
            ChooseResult::Send(permit) => Ok(permit),
            ChooseResult::NoEndpoint => Err(PoolRefusal::NoEndpoint),
            ChooseResult::Wait(waits) => {
                let mut delayed = None;
                let wait = self.wait(ask, Selection::default(), waits, &mut delayed);
                // Boxed, so that the future is small for those that need not wait.
                Box::pin(wait).await
            }
        }
    }

    /// Sends a request to any of the endpoints, with retries; see [`Call`].
    ///
    /// ```
    /// # async fn example(pool: &tidegate::Pool<String>) {
    /// # async fn fetch(url: &str) -> http::Response<String> { http::Response::new(String::new()) }
    /// let called = pool
    ///     .call()
    ///     .run(async |attempt, endpoint| {
    ///         let response = fetch(endpoint.data()).await;
    ///         let outcome = attempt.response(response.status().as_u16(), response.headers());
    ///         attempt.classify(outcome, response.into_body())
    ///     })
    ///     .await;
    /// # }
    /// ```
    pub fn call(&self) -> Call<'_, Self> {
        self.call_with(Ask::any())
    }

    /// Like [`call`](Self::call), with the cost, the class and the wait of `ask`. Its keys are
    /// ignored.
    ///
    /// ```
    /// # fn example(pool: &tidegate::Pool<String>) {
    /// use tidegate::Ask;
    ///
    /// let call = pool.call_with(Ask::any().cost(250).background());
    /// # }
    /// ```
    pub fn call_with<'a>(&'a self, ask: Ask<'a>) -> Call<'a, Self> {
        Call::through_pool(self, ask)
    }

    pub(crate) fn last_success(&self) -> Option<Timestamp> {
        let endpoints = self.endpoints();
        let successes = endpoints
            .iter()
            .filter_map(|endpoint| self.shared.limiter.last_success(&endpoint.key));
        successes.max()
    }

    fn change_endpoint(
        &self,
        name: &str,
        act: impl FnOnce(&mut PoolState<E>, EndpointId) -> bool,
    ) -> bool {
        let mut state = lock(&self.shared.state);
        let Some(id) = state.pool.find(name).map(pool::Endpoint::id) else {
            return false;
        };
        let has_acted = act(&mut state, id);
        publish_clear(&state.pool, id);
        self.notify_change(state);
        has_acted
    }

    /// Returns a lease with the outcome of its attempt. `strategy` is that of its gate if the
    /// verdict is `Throttled`.
    fn settle(
        &self,
        lease: Lease,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        strategy: Option<Strategy>,
        text: &str,
        is_credential_rejected: bool,
    ) {
        let result = result_of(outcome, verdict, text);
        let is_rejected = is_credential_rejected || rejects_account(outcome, verdict, text);
        let result = result.with_credential_rejected(is_rejected);
        let result = strategy.map_or(result, |strategy| result.with_strategy(strategy));
        let id = lease.endpoint();
        self.climb(id, |pool, protection, now| {
            pool.settle(protection, lease, &result, now)
        });
    }

    /// Counts the credential of an endpoint as rejected by an attempt that was settled before that
    /// was known.
    pub(crate) fn reject_credential(
        &self,
        id: EndpointId,
        epoch: u32,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        text: &str,
    ) {
        let result = result_of(outcome, verdict, text);
        self.climb(id, |pool, protection, now| {
            pool.reject_credential(protection, id, epoch, &result, now)
        });
    }

    /// Takes a step of the ladder of an endpoint and reports what it changed.
    fn climb(
        &self,
        id: EndpointId,
        act: impl FnOnce(&mut pool::Pool<Member<E>>, &LadderSettings, Timestamp) -> LadderStep,
    ) {
        let now = self.shared.limiter.clock().now();
        let mut state = lock(&self.shared.state);
        let PoolState {
            pool, protection, ..
        } = &mut *state;
        count_returned(pool, id);
        let Some(endpoint) = pool.get(id) else {
            return;
        };
        let ladder = endpoint.ladder();
        let (was_out, was_recovering) = (is_out(ladder), ladder.is_recovering(now));
        let step = act(pool, protection, now);
        publish_clear(pool, id);
        let has_changed = match step {
            LadderStep::Paused { .. }
            | LadderStep::DisabledByErrors { .. }
            | LadderStep::DisabledByQuota => true,
            LadderStep::Cleared => was_out,
            LadderStep::Late
            | LadderStep::Unchanged
            | LadderStep::NotCounted
            | LadderStep::Probed => false,
        };
        if !has_changed && !was_recovering {
            return;
        }
        let after = pool.get(id).filter(|_| has_changed);
        let after = after.map(|after| view(after, now));
        self.notify_change(state);
        if let Some(after) = after {
            self.emit_step(step, &after, now);
        }
    }

    fn abandon(&self, lease: Lease) {
        let now = self.shared.limiter.clock().now();
        let mut state = lock(&self.shared.state);
        let endpoint = state.pool.get(lease.endpoint());
        let was_recovering = endpoint.is_some_and(|endpoint| endpoint.ladder().is_recovering(now));
        state.pool.abandon(lease);
        if was_recovering {
            self.notify_change(state);
        }
    }

    fn emit_step(&self, step: LadderStep, after: &EndpointView, now: Timestamp) {
        let (pool, endpoint) = (&*self.shared.name, &*after.name);
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
            (None, LadderStep::Cleared, _) => Event::EndpointEnabled { pool, endpoint },
            _ => return,
        };
        self.shared.limiter.emit(now, &event);
    }

    /// Unlocks the state and wakes all waiting asks so that they choose again.
    fn notify_change(&self, mut state: MutexGuard<'_, PoolState<E>>) {
        state.changes += 1;
        drop(state);
        self.shared.waiters.wake_all();
    }
}

// Not derived: `E` need not be `Clone`.
impl<E> Clone for Pool<E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            credential_of: self.credential_of,
        }
    }
}

impl<E> fmt::Debug for Pool<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.shared.name)
            .field("endpoints", &self.view())
            .finish_non_exhaustive()
    }
}

/// The result of an attempt for the ladder.
fn result_of<'t>(outcome: &Outcome, verdict: Option<Verdict>, text: &'t str) -> EndpointResult<'t> {
    match outcome.response {
        UpstreamResponse::Status(status) => {
            EndpointResult::response(status, verdict, text, &outcome.hint)
        }
        UpstreamResponse::Failed { failure, .. } => EndpointResult::failure(failure, text),
    }
}

/// Whether a response rejects the account of the endpoint. A 401 may still be about a token that
/// only has to be refreshed.
fn rejects_account(outcome: &Outcome, verdict: Option<Verdict>, text: &str) -> bool {
    match outcome.response {
        UpstreamResponse::Status(status) if verdict == Some(Verdict::Rejected) => {
            rejects_credential(status, verdict, text.as_bytes())
        }
        UpstreamResponse::Status(_) | UpstreamResponse::Failed { .. } => false,
    }
}

/// Whether an endpoint was paused or disabled and has neither succeeded nor been enabled since.
fn is_out(ladder: &Ladder) -> bool {
    !ladder.is_enabled() || ladder.paused_until().is_some()
}

/// The state of an endpoint's gate, as far as the pool knows it.
#[inline]
fn gate_state<E>(endpoint: &pool::Endpoint<Member<E>>) -> GateState {
    let member = endpoint.data();
    GateState {
        opens_at: member.not_before,
        in_flight: Some(member.load.in_flight(endpoint.in_flight())),
    }
}

/// Counts the successes that were returned without the lock.
fn count_returned<E>(pool: &mut pool::Pool<Member<E>>, id: EndpointId) {
    let load = pool.get(id).map(|endpoint| &endpoint.data().load);
    if let Some(returned) = load.map(|load| load.take_returned()) {
        pool.settle_successes(id, returned);
    }
}

/// Lets successes be returned without the lock, or no longer.
fn publish_clear<E>(pool: &pool::Pool<Member<E>>, id: EndpointId) {
    if let Some(endpoint) = pool.get(id) {
        let is_clear = endpoint.ladder().is_clear();
        endpoint.data().load.set_clear(is_clear);
    }
}

fn view<E>(endpoint: &pool::Endpoint<Member<E>>, now: Timestamp) -> EndpointView {
    let ladder: &Ladder = endpoint.ladder();
    let paused_until = ladder.paused_until().filter(|until| *until > now);
    EndpointView {
        name: endpoint.name().to_owned(),
        disabled: ladder.disabled(),
        disabled_for: ladder.disabled_for(now),
        paused_until,
        paused_for: paused_until.and_then(|_| ladder.paused_for(now)),
        is_recovering: ladder.is_recovering(now),
        consecutive_errors: ladder.consecutive_errors(),
        last_error: ladder.last_error().map(str::to_owned),
        in_flight: endpoint.data().load.attempts(endpoint.in_flight()),
    }
}
