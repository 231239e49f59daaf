//! The limiter: every permit of a process comes from one.
//!
//! It puts the gates of [`policy`] behind a clock, a registry and async waiting, and decides
//! nothing itself. One call of [`Limiter::try_acquire`] is one read of the clock, one hash and one
//! lock; settling hashes no more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use policy::budget::{BudgetSettings, RetryBudget};
use policy::gate::{self, Gate, GateRecord, GateSettings};
use policy::hosts::{HostPattern, Hosts};
use policy::line::Tickets;
use policy::outcome::{Outcome, Verdict};
use policy::random::Random;
use policy::time::Timestamp;

use crate::ask::{Ask, Refusal};
use crate::call::Call;
use crate::clock::{Alarm, Clock};
use crate::event::{Event, Listener};
use crate::permit::Permit;
use crate::registry::{Place, Registry, Shard};
use crate::settings::HostSettings;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::waking::wake_all;

mod bell;
mod builder;
mod snapshot;
mod telling;
mod wait;

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
    shared: Arc<Shared>,
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
            chance,
        } = builder;
        let clock = clock.unwrap_or_default();
        let now = clock.now();
        let hosts = Arc::new(hosts);
        let shared = Arc::new_cyclic(|me| Shared {
            clock,
            registry: Registry::new(&hosts),
            hosts: Mutex::new(hosts),
            listener,
            chance: Mutex::new(chance),
            budget: Mutex::new(RetryBudget::new(&budget, now)),
            budget_settings: budget,
            aliases: Mutex::new(BTreeMap::new()),
            retries: AtomicU64::new(0),
            round: Mutex::new(None),
            me: Weak::clone(me),
        });
        Self { shared }
    }

    /// The clock that it and everything behind it lives by.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// A permit for one token, if there is one now; never waits.
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
    pub fn try_acquire(&self, key: &str) -> Result<Permit<'_>, Refusal> {
        self.shared.try_acquire(key, 1)
    }

    /// A permit as soon as there is one: waits in line, for a hold or an open breaker too, until
    /// the ask's deadline.
    ///
    /// Dropping the future gives its place back at once. A future that is neither polled nor
    /// dropped holds nobody up for longer than its deadline and five seconds.
    pub async fn acquire<'k>(&self, ask: impl Into<Ask<'k>>) -> Result<Permit<'_>, Refusal> {
        let ask = ask.into();
        if ask.also.is_empty() {
            self.shared.wait(ask).await
        } else {
            self.shared.wait_for_all(ask).await
        }
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
        self.shared.wait_for_any(keys.iter().copied(), ask).await
    }

    /// Something that somebody wants done through the gate of `ask`, with retries: see [`Call`].
    pub fn call<'a>(&'a self, ask: impl Into<Ask<'a>>) -> Call<'a> {
        Call::new(self, ask.into())
    }

    /// What [`Limiter::acquire`] would say, without taking anything: `Ok` if it would be admitted
    /// at once, else why it would wait or be refused, and until when.
    pub fn peek<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<(), Refusal> {
        self.shared.peek(&ask.into())
    }

    /// A person closes a gate to everyone, until [`Limiter::release`] or [`Limiter::reset`]. Makes
    /// the gate if there is none; an error only if there is no room for it.
    pub fn isolate(&self, key: &str) -> Result<(), Refusal> {
        self.shared.interfere_or_insert(key, Gate::isolate)
    }

    /// A person ends hold, open breaker and isolation at once; those who wait leave at pace.
    /// `false` if there is no such gate.
    pub fn release(&self, key: &str) -> bool {
        self.shared.interfere(key, Gate::release)
    }

    /// A person makes a gate as new; who is in flight or in line stays. `false` if there is no such
    /// gate.
    pub fn reset(&self, key: &str) -> bool {
        self.shared.interfere(key, Gate::reset)
    }

    /// The settings for `key`.
    pub fn settings(&self, key: &str) -> HostSettings {
        lock(&self.shared.hosts).find(key).clone()
    }

    /// Replaces all settings. Gates keep what they have learned, as far as the new settings allow;
    /// those who wait stay in line. `shards` alone stays as it was built.
    pub fn set_settings(&self, hosts: Hosts<HostSettings>) {
        self.shared.change_settings(|present| {
            *present = hosts;
            true
        });
    }

    /// Changes the settings of one host, or of all below one.
    ///
    /// Returns `false`, and changes nothing, if [`Hosts::MOST`] hosts have settings of their own
    /// already.
    pub fn set_host(&self, pattern: HostPattern, settings: impl Into<HostSettings>) -> bool {
        self.shared
            .change_settings(|hosts| hosts.insert(pattern, settings.into()).is_some())
    }

    /// What must survive a restart, of every gate, with its key. Locks for a few gates at a time.
    pub fn records(&self) -> Vec<(String, GateRecord)> {
        let mut records = Vec::new();
        self.shared.each_gate(|key, gate, _, _, now| {
            records.push((key.to_owned(), gate.record(now)));
        });
        records
    }

    /// A gate as it was written down. `false` if there is one of that key already, or no room.
    pub fn restore(&self, key: &str, record: &GateRecord) -> bool {
        let now = self.shared.clock.now();
        let is_restored = self.shared.registry.restore(key, record, now);
        if is_restored {
            self.shared.begin_rounds(self.shared.round_after(), now);
        }
        is_restored
    }

    /// What can be seen now: totals, and the first `limit` gates in the order of `sort`. Locks for
    /// a few gates at a time, so that traffic goes on meanwhile.
    pub fn snapshot(&self, sort: Sort, limit: usize) -> Snapshot {
        self.shared.snapshot(sort, limit)
    }

    /// What can be seen of one gate.
    pub fn gate(&self, key: &str) -> Option<GateView> {
        self.shared.view(key)
    }

    /// Looks at some hundred gates for those that nobody has used for `idle_after`, and forgets
    /// them: less than a millisecond. `true` when all have been looked at once since the last
    /// `true`.
    ///
    /// The limiter does this by itself, a part of all gates every second or so. Call it to have
    /// memory back sooner.
    pub fn evict_idle(&self) -> bool {
        self.shared.evict_slice().finished
    }

    /// How many gates there are.
    pub fn gates(&self) -> usize {
        self.shared.registry.len()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
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
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}

/// What all clones of a limiter, its permits and its alarms share.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    registry: Registry,
    hosts: Mutex<Arc<Hosts<HostSettings>>>,
    listener: Option<Arc<dyn Listener>>,
    /// Where the random numbers of calls come from.
    chance: Mutex<Random>,
    budget: Mutex<RetryBudget>,
    budget_settings: BudgetSettings,
    /// Keys that have the settings of a host by another name.
    aliases: Mutex<BTreeMap<String, String>>,
    retries: AtomicU64,
    /// The alarm for the next round of eviction, while there are gates.
    round: Mutex<Option<Alarm>>,
    me: Weak<Self>,
}

impl Shared {
    pub(crate) fn to_arc(&self) -> Arc<Self> {
        let me = self.me.upgrade();
        me.expect("whoever borrows from a limiter keeps it alive")
    }

    /// The permit is made in the one place where it is needed: handed on through the types of
    /// other answers it would be written and read back several times, and waited for each time.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, key: &str, cost: u32) -> Result<Permit<'_>, Refusal> {
        let now = self.clock.now();
        if self.listener.is_none()
            && let Some((mut shard, place)) = self.registry.find(key)
            && let Some(permit) = shard.acquire_at_once(place.slot, cost, now)
        {
            drop(shard);
            return Ok(Permit::new(self, place, permit));
        }
        self.try_acquire_the_long_way(key, cost, now)
    }

    #[inline(never)]
    fn try_acquire_the_long_way(
        &self,
        key: &str,
        cost: u32,
        now: Timestamp,
    ) -> Result<Permit<'_>, Refusal> {
        let (mut shard, place) = self.gate_of(key, now)?;
        let answer = shard.try_acquire(place.slot, cost, now);
        drop(shard);
        // A permit already, so that it is given back should the listener panic.
        let answer = answer.map(|permit| Permit::new(self, place, permit));
        if self.listener.is_some() {
            self.tell_answer(key, &answer, now);
        }
        answer
    }

    /// The gate that asks for `key` go to.
    #[inline(always)]
    fn gate_of(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<(MutexGuard<'_, Shard>, Place), Refusal> {
        match self.registry.find(key) {
            Some(found) => Ok(found),
            None => self.new_gate(key, now),
        }
    }

    /// A key that has no gate: either it shares one, or it gets one.
    #[cold]
    fn new_gate(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<(MutexGuard<'_, Shard>, Place), Refusal> {
        let round_after = self.round_after();
        let shared_key = self.shared_key(key);
        let key = shared_key.as_deref().unwrap_or(key);
        let found = self.registry.find_or_insert(key, now)?;
        self.begin_rounds(round_after, now);
        Ok(found)
    }

    /// The key of the gate that all hosts of a pattern share, if `key` is of one that does.
    fn shared_key(&self, key: &str) -> Option<String> {
        let hosts = lock(&self.hosts);
        let index = hosts.index_for(key);
        let pattern = hosts.pattern(index).filter(|_| hosts.get(index).share);
        pattern.map(HostPattern::to_string)
    }

    #[inline(always)]
    pub(crate) fn settle(
        &self,
        place: Place,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
    ) {
        let now = self.clock.now();
        if self.listener.is_some() {
            self.settle_and_tell(place, permit, outcome, verdict, now);
            return;
        }
        let mut shard = self.registry.lock(place.shard);
        if shard.settle(place.slot, permit, outcome, verdict, now) {
            self.serve(shard, place, now);
        }
    }

    pub(crate) fn abandon(&self, place: Place, permit: gate::Permit) {
        let now = self.clock.now();
        let mut shard = self.registry.lock(place.shard);
        shard.abandon(place.slot, permit, now);
        let key = self.key_if_heard(&shard, place);
        self.unlock(shard, place, now);
        if let Some(key) = key {
            self.tell(now, &Event::Abandoned { key: &key });
        }
    }

    pub(crate) fn give_back(&self, place: Place, permit: gate::Permit) {
        let now = self.clock.now();
        let mut shard = self.registry.lock(place.shard);
        shard.give_back(place.slot, permit, now);
        self.unlock(shard, place, now);
    }

    fn peek(&self, ask: &Ask<'_>) -> Result<(), Refusal> {
        let now = self.clock.now();
        let keys = std::iter::once(ask.key).chain(ask.also.iter().copied());
        let answers = keys.map(|key| self.peek_one(key, ask, now));
        // Of several, the one that is last to let it through.
        let last = answers
            .filter_map(Result::err)
            .max_by_key(|refusal| refusal.until().unwrap_or(Timestamp::MAX));
        last.map_or(Ok(()), Err)
    }

    fn peek_one(&self, key: &str, ask: &Ask<'_>, now: Timestamp) -> Result<(), Refusal> {
        let shared_key = self.shared_key(key);
        let key = shared_key.as_deref().unwrap_or(key);
        match self.registry.find(key) {
            Some((mut shard, place)) => shard.peek(place.slot, ask, now),
            None => self.peek_new(key, ask, now),
        }
    }

    /// What a gate would say that nobody has used yet.
    fn peek_new(&self, key: &str, ask: &Ask<'_>, now: Timestamp) -> Result<(), Refusal> {
        let settings = self.settings_of(key);
        let ask = ask.at_gate(&settings, now);
        let answer = Gate::new(&settings, now).peek(&settings, &Tickets::new(), &ask, now);
        answer.map_err(|(reason, until)| Refusal::new(reason, until, now))
    }

    /// Counts a wait that is over, if it was long enough to be noticed.
    fn note_wait(&self, place: Place, waited: Duration) {
        if !waited.is_zero() {
            let mut shard = self.registry.lock(place.shard);
            let throttled_after =
                shard.with_gate(place.slot, |_, settings, _| settings.throttled_after());
            if waited > throttled_after {
                shard.counts.throttled += 1;
            }
        }
    }

    pub(crate) fn settings_of(&self, key: &str) -> GateSettings {
        lock(&self.hosts).find(key).gate.clone()
    }

    fn interfere(&self, key: &str, act: fn(&mut Gate, &GateSettings, Timestamp)) -> bool {
        let now = self.clock.now();
        match self.registry.find(key) {
            Some((shard, place)) => {
                self.act(shard, place, act, now);
                true
            }
            None => false,
        }
    }

    fn interfere_or_insert(
        &self,
        key: &str,
        act: fn(&mut Gate, &GateSettings, Timestamp),
    ) -> Result<(), Refusal> {
        let now = self.clock.now();
        let round_after = self.round_after();
        let (shard, place) = self.registry.find_or_insert(key, now)?;
        self.begin_rounds(round_after, now);
        self.act(shard, place, act, now);
        Ok(())
    }

    fn act(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        place: Place,
        act: fn(&mut Gate, &GateSettings, Timestamp),
        now: Timestamp,
    ) {
        let key = self.key_if_heard(&shard, place);
        let before = shard.look(place.slot, now);
        shard.with_gate(place.slot, |gate, settings, _| act(gate, settings, now));
        let after = shard.look(place.slot, now);
        self.unlock(shard, place, now);
        if let Some(key) = key {
            self.tell_change(&key, &before, &after, now);
        }
    }

    /// A generator of its own for each call, so that they do not wait for each other.
    pub(crate) fn random(&self) -> Random {
        Random::from_seed(lock(&self.chance).next_u64())
    }

    /// An ordinary request is about to be sent: it pays for a part of a retry.
    pub(crate) fn pay_in(&self, now: Timestamp) {
        lock(&self.budget).deposit(&self.budget_settings, now);
    }

    /// Takes a retry out of the budget of all retries; if there is none, says when there is, if
    /// ever.
    pub(crate) fn withdraw(&self, now: Timestamp) -> Result<(), Option<Timestamp>> {
        let mut budget = lock(&self.budget);
        if budget.withdraw(&self.budget_settings, now) {
            self.retries.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        Err(budget.next_at(&self.budget_settings, now))
    }

    /// When the gate of `key` last had a success.
    pub(crate) fn last_success(&self, key: &str) -> Option<Timestamp> {
        let (mut shard, place) = self.registry.find(key)?;
        shard.with_gate(place.slot, |gate, _, _| gate.last_success())
    }

    /// Gives the gate of `key` the settings of `host`, now and whenever settings change.
    pub(crate) fn name_host(&self, key: &str, host: &str) {
        lock(&self.aliases).insert(key.to_owned(), host.to_owned());
        self.change_settings(|_| true);
    }

    /// Changes settings and puts all gates under them. `false` if `change` says that it changed
    /// nothing.
    fn change_settings(&self, change: impl FnOnce(&mut Hosts<HostSettings>) -> bool) -> bool {
        let mut present = lock(&self.hosts);
        let mut hosts = present.as_ref().clone();
        if !change(&mut hosts) {
            return false;
        }
        for (key, host) in &*lock(&self.aliases) {
            hosts.alias(key, host);
        }
        let hosts = &Arc::new(hosts);
        *present = Arc::clone(hosts);
        let now = self.clock.now();
        let mut wakers = Vec::new();
        // Under the lock of the settings, so that two changes cannot cross on their way.
        self.registry
            .adopt(hosts, now, &mut wakers, |number, shard| {
                self.set_alarm(number, shard);
            });
        drop(present);
        self.clock.catch_up();
        wake_all(wakers);
        true
    }

    /// Calls `look` with every gate, a few under one lock.
    fn each_gate(&self, mut look: impl FnMut(&str, &mut Gate, &GateSettings, &Tickets, Timestamp)) {
        for number in 0..self.registry.shards() {
            let mut from = 0;
            loop {
                let now = self.clock.now();
                let mut shard = self.registry.lock(number);
                let next =
                    shard.look_at_some(from, GATES_PER_LOCK, |key, gate, settings, tickets| {
                        look(key, gate, settings, tickets, now);
                    });
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
    }

    /// Ends a change to a gate: if someone waits there, they may leave now.
    #[inline(always)]
    fn unlock(&self, shard: MutexGuard<'_, Shard>, place: Place, now: Timestamp) {
        if shard.is_waited_for(place.slot) {
            self.serve(shard, place, now);
        }
    }

    #[cold]
    fn serve(&self, mut shard: MutexGuard<'_, Shard>, place: Place, now: Timestamp) {
        let mut wakers = Vec::new();
        shard.serve(place.slot, now, &mut wakers);
        self.set_alarm(place.shard, &mut shard);
        drop(shard);
        self.clock.catch_up();
        wake_all(wakers);
    }
}

/// Some ten microseconds: nobody who asks meanwhile notices.
const GATES_PER_LOCK: usize = 128;
