//! The limiter: every permit of a process comes from one.
//!
//! It puts the gates of [`policy`] behind a clock, a registry and async waiting, and decides
//! nothing itself. One call of [`Limiter::try_acquire`] is one read of the clock, one hash and one
//! lock; settling hashes no more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use policy::budget::BudgetSettings;
use policy::classify::Rule;
use policy::gate::{Gate, GateOverride, GateRecord};
use policy::hosts::{HostPattern, Hosts};
use policy::random::Random;
use policy::time::Timestamp;

use crate::ask::{Ask, Refusal};
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
mod notify;
mod snapshot;
mod wait;
mod wakeups;

pub use builder::LimiterBuilder;
pub use snapshot::{GateView, Snapshot, Sort, Totals};

/// Gives out permits, for any number of keys. Cheap to clone; clones are the same limiter.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, Outcome};
///
/// let limiter = Limiter::new();
/// match limiter.try_acquire("api.example.com") {
///     Ok(permit) => {
///         // … send the request, then say what came of it:
///         permit.settle(&Outcome::status(200, Duration::from_millis(80)));
///     }
///     Err(refusal) => println!("{refusal}"),
/// }
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

/// What all clones of a limiter, its permits and its alarms share.
///
/// Locks are taken in one order, settings before shards before the clock, and wakers and listeners
/// are called when none is held.
struct Inner {
    clock: Clock,
    registry: Registry,
    hosts: Mutex<Arc<Hosts<HostSettings>>>,
    listener: Option<Arc<dyn EventListener>>,
    /// Seeds of the generators of calls.
    seeds: Mutex<Random>,
    budget_settings: BudgetSettings,
    /// Keys that have the settings of a host by another name.
    aliases: Mutex<BTreeMap<String, String>>,
    retries: AtomicU64,
    /// The alarm of the next search for idle gates, while there are gates.
    eviction_alarm: Mutex<Option<Alarm>>,
}

impl Limiter {
    /// A limiter with default settings for every key, on the system's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A limiter with other settings.
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
        } = builder;
        let hosts = Arc::new(hosts);
        let inner = Inner {
            clock: clock.unwrap_or_default(),
            registry: Registry::new(&hosts),
            hosts: Mutex::new(hosts),
            listener,
            seeds: Mutex::new(seeds),
            budget_settings: budget,
            aliases: Mutex::new(BTreeMap::new()),
            retries: AtomicU64::new(0),
            eviction_alarm: Mutex::new(None),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The clock that it and everything behind it lives by.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// A permit, if there is one now; never waits, however long the ask would.
    ///
    /// ```
    /// # use tidegate::{Limiter, Reason};
    /// let limiter = Limiter::new();
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

    /// A permit as soon as there is one: waits in line, for a hold or an open breaker too, until
    /// the ask's deadline.
    ///
    /// Dropping the future gives its place back at once. A future that is neither polled nor
    /// dropped delays others for no longer than its deadline and five seconds.
    pub async fn acquire<'k>(&self, ask: impl Into<Ask<'k>>) -> Result<Permit<'_>, Refusal> {
        self.acquire_noting(ask.into(), &mut None).await
    }

    /// A permit of whichever of these gates lets it through first, and which that is: the place of
    /// its key in the list. The key of `ask` itself is not looked at.
    ///
    /// It waits in all their lines at once, and leaves the others when one has let it through. The
    /// refusal, if all refuse, is that of the gate to ask again first.
    pub async fn acquire_any<'k>(
        &self,
        keys: &[&'k str],
        ask: Ask<'k>,
    ) -> Result<(usize, Permit<'_>), Refusal> {
        self.wait_for_any(keys.iter().copied(), ask).await
    }

    /// A request through the gate of `ask`, with retries: see [`Call`].
    pub fn call<'a>(&'a self, ask: impl Into<Ask<'a>>) -> Call<'a> {
        Call::new(self, ask.into())
    }

    /// Polls the status of a job through the gate of `ask`: see [`Polling`].
    pub fn poll<'a>(&'a self, ask: impl Into<Ask<'a>>) -> Polling<'a> {
        Polling::new(self, ask.into())
    }

    /// What [`Limiter::acquire`] would say, without taking anything: `Ok` if it would be admitted
    /// at once, else why it would wait or be refused, and until when.
    pub fn peek<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<(), Refusal> {
        let (ask, now) = (ask.into(), self.inner.clock.now());
        let refusals = ask
            .keys()
            .filter_map(|key| self.peek_one(key, &ask, now).err());
        // Of several, the one that is last to let it through.
        let last = refusals.max_by_key(|refusal| refusal.until().unwrap_or(Timestamp::MAX));
        last.map_or(Ok(()), Err)
    }

    /// Makes a gate refuse every ask, until [`Limiter::release`] or [`Limiter::reset`]. Creates the
    /// gate if there is none; an error only if there is no room for it.
    pub fn isolate(&self, key: &str) -> Result<(), Refusal> {
        self.override_or_insert(key, Gate::isolate)
    }

    /// Ends hold, open breaker and isolation; asks that wait leave at the learned rate.
    /// `false` if there is no such gate.
    pub fn release(&self, key: &str) -> bool {
        self.override_gate(key, Gate::release)
    }

    /// Resets a gate to its initial state; what is in flight or in line stays. `false` if there is no
    /// such gate.
    pub fn reset(&self, key: &str) -> bool {
        self.override_gate(key, Gate::reset)
    }

    /// The settings for `key`.
    pub fn settings(&self, key: &str) -> HostSettings {
        lock(&self.inner.hosts).find(key).clone()
    }

    /// The rules for the responses of `key`'s host.
    pub fn rules(&self, key: &str) -> Arc<[Rule]> {
        Arc::clone(&lock(&self.inner.hosts).find(key).rules)
    }

    /// Replaces all settings. Gates keep what they have learned, as far as the new settings allow;
    /// asks that wait stay in line. `shards` alone stays as it was built.
    pub fn set_settings(&self, hosts: Hosts<HostSettings>) {
        self.change_settings(|present| {
            *present = hosts;
            true
        });
    }

    /// Changes the settings of one host, or of all below one.
    ///
    /// Returns `false`, and changes nothing, if [`Hosts::MAX_HOSTS`] hosts have settings of their own
    /// already.
    pub fn set_host(&self, pattern: HostPattern, settings: impl Into<HostSettings>) -> bool {
        self.change_settings(|hosts| hosts.insert(pattern, settings.into()).is_some())
    }

    /// The keys and records of all gates, for a store. Locks for a few gates at a time.
    pub fn records(&self) -> Vec<(String, GateRecord)> {
        let mut records = Vec::new();
        self.each_gate(|key, gate, _, _, now| {
            records.push((key.to_owned(), gate.record(now)));
        });
        records
    }

    /// The record of the gate of `key`, for a store; `None` if there is none.
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

    /// The key and the record of a gate as they would be after an override, to store them before it
    /// takes effect. `None` if there is no such gate; isolating creates one.
    ///
    /// The key differs from `key` if hosts share a gate.
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
        if change != GateOverride::Isolate {
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

    /// Restores a gate from its record. `false` if there is one of that key already, or no room.
    pub fn restore(&self, key: &str, record: &GateRecord) -> bool {
        let eviction_interval = self.eviction_interval();
        let now = self.inner.clock.now();
        let is_new = self.inner.registry.restore(key, record, now);
        if is_new {
            self.schedule_eviction(eviction_interval, now);
        }
        is_new
    }

    /// Looks at some hundred gates for those unused for `idle_after`, and forgets
    /// them: less than a millisecond. `true` when all have been looked at once since the last
    /// `true`.
    ///
    /// The limiter does this by itself, a part of all gates every second or so. Call it to have
    /// memory back sooner.
    pub fn evict_idle(&self) -> bool {
        self.evict_slice().finished
    }

    /// How many gates there are.
    pub fn gates(&self) -> usize {
        self.inner.registry.len()
    }
}

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
