//! The limiter, the source of every permit in a process.
//!
//! It adds a clock, a registry and async waiting to the gates of [`policy`]; it makes no decisions
//! of its own. [`Limiter::try_acquire`] reads the clock once, hashes the key once and takes one
//! lock. Settling does not hash.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use policy::budget::BudgetSettings;
use policy::classify::Rule;
use policy::gate::{Gate, GateOverride, GateRecord, GateSettings};
use policy::hosts::{HostPattern, Hosts};
use policy::random::Random;
use policy::time::Timestamp;

use crate::ask::{Ask, OwnedAsk, Refusal};
use crate::block_on::block_on;
use crate::call::Call;
use crate::clock::{Alarm, Clock};
use crate::event::EventListener;
use crate::permit::Permit;
use crate::poll::Polling;
use crate::registry::Registry;
use crate::settings::HostSettings;
use crate::sync::{Mutex, lock};

mod builder;
mod gates;
mod hedge;
mod notify;
mod shared;
mod snapshot;
mod wait;
mod wakeups;

pub use builder::LimiterBuilder;
pub use shared::{FleetStatus, SharedCall, SharedGates};
pub use snapshot::{GateView, Snapshot, Sort, Totals};
pub(crate) use wait::Wait;

/// Issues permits for any number of keys. Cheap to clone; clones share one state. A key is any text
/// of up to 65,535 bytes; a longer one is refused with
/// [`Reason::TooManyGates`](crate::Reason::TooManyGates).
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, Outcome};
///
/// let limiter = Limiter::new();
/// match limiter.try_acquire("api.example.com") {
///     Ok(permit) => {
/// // … send the request, then report the outcome:
///         permit.settle(&Outcome::status(200, Duration::from_millis(80)));
///     }
///     Err(refusal) => println!("{refusal}"),
/// }
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

/// State shared by all clones of a limiter, its permits and its alarms.
///
/// Lock order: settings, then shards, then the schedule of calls, then the clock. Wakers and listeners are called with no lock
/// held.
struct Inner {
    clock: Clock,
    registry: Registry,
    hosts: Mutex<Arc<Hosts<HostSettings>>>,
    listener: Option<Arc<dyn EventListener>>,
    /// Whether its gates are local and there is no listener: one test on the path of most asks.
    is_plain: bool,
    /// Seeds the random generator of each call.
    seeds: Mutex<Random>,
    budget_settings: BudgetSettings,
    /// Keys that use the settings of a host with another name.
    aliases: Mutex<BTreeMap<String, String>>,
    retries: AtomicU64,
    hedges: AtomicU64,
    hedges_won: AtomicU64,
    /// Alarm for the next eviction pass; set only while there are gates.
    eviction_alarm: Mutex<Option<Alarm>>,
}

impl Limiter {
    /// Creates a limiter with default settings for every key and the system clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures a limiter.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }

    fn from_builder(builder: LimiterBuilder) -> Self {
        let LimiterBuilder {
            clock,
            hosts,
            listener,
            budget,
            seeds,
            fleet,
            ..
        } = builder;
        let hosts = Arc::new(hosts);
        let inner = Inner {
            is_plain: listener.is_none() && fleet.is_none(),
            clock: clock.unwrap_or_default(),
            registry: Registry::new(&hosts, fleet),
            hosts: Mutex::new(hosts),
            listener,
            seeds: Mutex::new(seeds),
            budget_settings: budget,
            aliases: Mutex::new(BTreeMap::new()),
            retries: AtomicU64::new(0),
            hedges: AtomicU64::new(0),
            hedges_won: AtomicU64::new(0),
            eviction_alarm: Mutex::new(None),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The clock used for every decision and wait.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Takes a permit if one is available now. Never waits, whatever the ask allows.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Reason};
    /// // The time of this one stands still.
    /// let limiter = Limiter::builder().clock(ManualClock::new().clock()).build();
    /// let permit = limiter.try_acquire("api.example.com").unwrap();
    /// let refusal = limiter.try_acquire("api.example.com").unwrap_err();
    /// assert_eq!(refusal.reason(), Reason::Rate);
    /// assert!(refusal.wait().unwrap().as_millis() <= 500);
    /// ```
    #[inline(always)]
    pub fn try_acquire<'k>(&self, ask: impl Into<Ask<'k>>) -> Result<Permit<'_>, Refusal> {
        let ask = ask.into();
        if ask.also.is_empty() {
            self.try_acquire_one(ask.key, ask.cost)
        } else {
            self.try_acquire_all(&ask)
        }
    }

    /// Waits in line for a permit until the ask's deadline, also through a hold or an open breaker.
    ///
    /// Dropping the future leaves the line at once. A future that is neither polled nor dropped
    /// delays others until its deadline plus five seconds at most.
    pub async fn acquire<'k>(&self, ask: impl Into<Ask<'k>>) -> Result<Permit<'_>, Refusal> {
        self.acquire_noting(ask.into(), &mut None).await
    }

    /// Like [`acquire`](Self::acquire), with a future and a permit that borrow nothing, for a task of
    /// its own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Outcome};
    ///
    /// let limiter = Limiter::new();
    /// let asked = limiter.acquire_owned("api.example.com");
    /// let task = tokio::spawn(async move {
    ///     let permit = asked.await?;
    ///     // … send the request …
    ///     permit.settle(&Outcome::status(200, Duration::from_millis(80)));
    ///     Ok::<_, tidegate::Refusal>(())
    /// });
    /// task.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_owned<'k>(&self, ask: impl Into<Ask<'k>>) -> AcquireOwned {
        let (limiter, ask) = (self.clone(), OwnedAsk::from(ask.into()));
        Box::pin(async move {
            let also: Vec<&str> = ask.also.iter().map(String::as_str).collect();
            let permit = limiter.acquire(ask.borrowed(&also)).await?;
            Ok(permit.into_owned())
        })
    }

    /// Like [`acquire`](Self::acquire), for code without an executor: blocks the thread until the
    /// permit is issued or the ask is refused. Do not call it in an async task, whose thread may be
    /// the one that would wake it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Outcome};
    ///
    /// let limiter = Limiter::new();
    /// for _ in 0..2 {
    ///     let permit = limiter.acquire_blocking("api.example.com")?;
    ///     // … send the request …
    ///     permit.settle(&Outcome::status(200, Duration::from_millis(80)));
    /// }
    /// # Ok::<(), tidegate::Refusal>(())
    /// ```
    pub fn acquire_blocking<'k>(&self, ask: impl Into<Ask<'k>>) -> Result<Permit<'_>, Refusal> {
        block_on(self.acquire(ask))
    }

    /// Waits for a permit from any of these gates and returns it with the index of its key in the
    /// list. The key of `ask` itself is ignored.
    ///
    /// It waits in all lines at once and leaves the others when one gate admits it. If all gates
    /// refuse, it returns the refusal with the earliest retry time.
    pub async fn acquire_any<'k>(
        &self,
        keys: &[&'k str],
        ask: Ask<'k>,
    ) -> Result<(usize, Permit<'_>), Refusal> {
        self.wait_for_any(keys.iter().copied(), ask).await
    }

    /// Sends a request through the gate of `ask`, with retries; see [`Call`].
    pub fn call<'a>(&'a self, ask: impl Into<Ask<'a>>) -> Call<'a> {
        Call::new(self, ask.into())
    }

    /// Polls the status of a job through the gate of `ask`; see [`Polling`].
    pub fn poll<'a>(&'a self, ask: impl Into<Ask<'a>>) -> Polling<'a> {
        Polling::new(self, ask.into())
    }

    /// What [`Limiter::acquire`] would decide, without taking a permit: `Ok` if it would be
    /// admitted at once, otherwise why it would wait or be refused, and until when.
    pub fn peek<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<(), Refusal> {
        let (ask, now) = (ask.into(), self.inner.clock.now());
        let refusals = ask
            .keys()
            .filter_map(|key| self.peek_one(key, &ask, now).err());
        // With several keys, the gate that admits last decides.
        let last = refusals.max_by_key(|refusal| refusal.until().unwrap_or(Timestamp::MAX));
        last.map_or(Ok(()), Err)
    }

    /// Makes a gate refuse every ask until [`Limiter::release`] or [`Limiter::reset`]. Creates the
    /// gate if it does not exist; fails only if there is no room for it.
    ///
    /// In a [fleet](crate::fleet) all nodes do so; likewise with [`Limiter::release`] and
    /// [`Limiter::reset`], which create the gate, too.
    pub fn isolate(&self, key: &str) -> Result<(), Refusal> {
        self.override_or_insert(key, GateOverride::Isolate)
    }

    /// Ends a hold, an open breaker or isolation. Waiting asks leave at the learned rate. Returns
    /// `false` if the gate does not exist.
    pub fn release(&self, key: &str) -> bool {
        self.override_gate(key, GateOverride::Release)
    }

    /// Resets a gate to its initial state. Attempts in flight and waiting asks stay. Returns
    /// `false` if the gate does not exist.
    pub fn reset(&self, key: &str) -> bool {
        self.override_gate(key, GateOverride::Reset)
    }

    /// The settings for `key`.
    pub fn settings(&self, key: &str) -> HostSettings {
        lock(&self.inner.hosts).find(key).clone()
    }

    /// The settings that the gate of `key` has now; `None` if the gate does not exist.
    pub fn gate_settings(&self, key: &str) -> Option<GateSettings> {
        let (mut shard, location) = self.known_gate(key)?;
        Some(shard.with_gate(location.slot, |_, settings, _| settings.clone()))
    }

    /// The classification rules for responses from `key`'s host.
    pub fn rules(&self, key: &str) -> Arc<[Rule]> {
        self.rules_if_any(key).unwrap_or_default()
    }

    /// Replaces all settings. Gates keep their learned state within the new bounds, and waiting
    /// asks stay in line. `shards` cannot change after the limiter is built.
    pub fn set_settings(&self, hosts: Hosts<HostSettings>) {
        self.change_settings(|present| {
            *present = hosts;
            true
        });
    }

    /// Changes the settings of one host, of all its subdomains, or of other keys, see
    /// [`HostPattern`].
    ///
    /// # Errors
    ///
    /// If [`Hosts::MAX_HOSTS`] patterns have their own settings already. Nothing changes then.
    pub fn set_host(
        &self,
        pattern: HostPattern,
        settings: impl Into<HostSettings>,
    ) -> Result<(), TooManyHosts> {
        let is_set = self.change_settings(|hosts| hosts.insert(pattern, settings.into()).is_some());
        is_set.then_some(()).ok_or(TooManyHosts)
    }

    /// Changes the settings of one key, which need not be a host.
    ///
    /// # Errors
    ///
    /// As [`set_host`](Self::set_host).
    pub fn set_key(
        &self,
        key: &str,
        settings: impl Into<HostSettings>,
    ) -> Result<(), TooManyHosts> {
        self.set_host(HostPattern::key(key), settings)
    }

    /// Changes the settings of all keys that begin with `prefix` and have none of their own.
    ///
    /// # Errors
    ///
    /// As [`set_host`](Self::set_host).
    pub fn set_key_prefix(
        &self,
        prefix: &str,
        settings: impl Into<HostSettings>,
    ) -> Result<(), TooManyHosts> {
        self.set_host(HostPattern::key_prefix(prefix), settings)
    }

    /// Keys and records of all gates, for persistence. Holds each lock for a few gates at a time.
    pub fn records(&self) -> Vec<(String, GateRecord)> {
        let mut records = Vec::new();
        self.each_gate(|shard, index, now| {
            let record = shard.with_gate(index, |gate, _, _| gate.record(now));
            records.push((shard.key(index).to_owned(), record));
        });
        records
    }

    /// The record of the gate of `key`, for persistence; `None` if the gate does not exist.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new();
    /// assert_eq!(limiter.record("api.example.com"), None);
    /// limiter.try_acquire("api.example.com")?;
    /// assert_eq!(limiter.record("api.example.com").unwrap().rate, 2.0);
    /// # Ok::<(), tidegate::Refusal>(())
    /// ```
    pub fn record(&self, key: &str) -> Option<GateRecord> {
        let now = self.inner.clock.now();
        let (mut shard, location) = self.known_gate(key)?;
        let now = shard.time_at(location.slot, now);
        Some(shard.with_gate(location.slot, |gate, _, _| gate.record(now)))
    }

    /// The key and record a gate would have after an override, so that they can be persisted before
    /// the override takes effect. `None` if the gate does not exist and the override does not
    /// create it; isolating does, and in a fleet every override.
    ///
    /// The returned key differs from `key` if hosts share a gate.
    pub fn record_after(&self, key: &str, change: GateOverride) -> Option<(String, GateRecord)> {
        let now = self.inner.clock.now();
        if let Some((mut shard, location)) = self.known_gate(key) {
            let now = shard.time_at(location.slot, now);
            let record = shard.with_gate(location.slot, |gate, settings, _| {
                let mut gate = gate.clone();
                change.apply(&mut gate, settings, now);
                gate.record(now)
            });
            return Some((shard.key(location.slot).to_owned(), record));
        }
        if change != GateOverride::Isolate && self.inner.registry.fleet().is_none() {
            return None;
        }
        let record = self.with_settings(key, |settings| {
            let mut gate = Gate::new(settings, now);
            change.apply(&mut gate, settings, now);
            gate.record(now)
        });
        let key = self.shared_key(key).unwrap_or_else(|| key.to_owned());
        Some((key, record))
    }

    /// Restores a gate from its record. Returns `false` if the gate exists already or there is no
    /// room for it.
    pub fn restore(&self, key: &str, record: &GateRecord) -> bool {
        let eviction_interval = self.eviction_interval();
        let now = self.inner.clock.now();
        let is_new = self.inner.registry.restore(key, record, now);
        if is_new {
            self.schedule_eviction(eviction_interval, now);
        }
        is_new
    }

    /// Checks a few hundred gates and evicts those unused for `idle_after`. Takes less than a
    /// millisecond. Returns `true` once every gate has been checked since the last `true`.
    ///
    /// The limiter does this in the background, for a part of the gates about every second. Call it
    /// to release memory sooner.
    pub fn evict_idle(&self) -> bool {
        self.evict_slice().finished
    }

    /// The number of gates.
    pub fn gates(&self) -> usize {
        self.inner.registry.len()
    }
}

/// Resolves to a permit that borrows nothing, see [`Limiter::acquire_owned`].
pub type AcquireOwned = Pin<Box<dyn Future<Output = Result<Permit<'static>, Refusal>> + Send>>;

/// [`Hosts::MAX_HOSTS`] hosts, keys and prefixes have their own settings already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} hosts and keys have their own settings already", Hosts::<()>::MAX_HOSTS)]
pub struct TooManyHosts;

impl Default for Limiter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("gates", &self.gates())
            .field("clock", &self.inner.clock)
            .finish_non_exhaustive()
    }
}
