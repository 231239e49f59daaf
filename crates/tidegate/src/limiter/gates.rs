//! What a limiter does at its gates: take permits, bring them back, change settings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::{self, Gate, GateSettings, GateSummary, ResponseBody};
use policy::hosts::{HostPattern, Hosts};
use policy::line::Tickets;
use policy::outcome::{Outcome, Verdict};
use policy::pool::GateState;
use policy::random::Random;
use policy::time::Timestamp;

use super::Limiter;
use crate::ask::{Ask, Refusal};
use crate::event::Event;
use crate::permit::Permit;
use crate::registry::{GateLocation, Shard};
use crate::settings::HostSettings;
use crate::sync::{MutexGuard, lock};
use crate::waking::wake_all;

impl Limiter {
    /// The permit is made in the one place where it is needed: handed on through the types of
    /// other answers it would be written and read back several times, and waited for each time.
    #[inline(always)]
    pub(crate) fn try_acquire_one(&self, key: &str, cost: u32) -> Result<Permit<'_>, Refusal> {
        let now = self.inner.clock.now();
        if !self.wants_every_event()
            && let Some((mut shard, location)) = self.inner.registry.find(key)
            && let Some(permit) = shard.acquire_at_once(location.slot, cost, now)
        {
            drop(shard);
            return Ok(Permit::new(self, location, permit));
        }
        self.try_acquire_slow_path(key, cost, now)
    }

    #[inline(never)]
    fn try_acquire_slow_path(
        &self,
        key: &str,
        cost: u32,
        now: Timestamp,
    ) -> Result<Permit<'_>, Refusal> {
        let answer = self.take(key, cost, now);
        self.emit_decision(key, &answer, now);
        answer
    }

    /// A permit of every gate of the ask, or of none.
    pub(super) fn try_acquire_all(&self, ask: &Ask<'_>) -> Result<Permit<'_>, Refusal> {
        let now = self.inner.clock.now();
        let answer = self.take_all(ask.keys(), ask.cost, now);
        match &answer {
            Ok(_) => self.emit_admitted(ask, Duration::ZERO, now),
            Err((key, refusal)) => self.emit_refused(key, refusal, now),
        }
        match answer {
            Ok(permit) => Ok(permit.expect("an ask has a key")),
            Err((_, refusal)) => Err(refusal),
        }
    }

    /// Permits of all these gates as one, `None` if there are no gates; else of none, with the gate
    /// that refused.
    pub(super) fn take_all<'a, 'k>(
        &'a self,
        keys: impl Iterator<Item = &'k str>,
        cost: u32,
        now: Timestamp,
    ) -> Result<Option<Permit<'a>>, (&'k str, Refusal)> {
        let mut all: Option<Permit<'a>> = None;
        for key in keys {
            match (self.take(key, cost, now), &mut all) {
                (Ok(permit), Some(all)) => all.join(permit),
                (Ok(permit), None) => all = Some(permit),
                (Err(refusal), _) => {
                    if let Some(all) = all {
                        all.give_back();
                    }
                    return Err((key, refusal));
                }
            }
        }
        Ok(all)
    }

    /// A permit of one gate, if there is one now. Emits no event.
    pub(super) fn take(&self, key: &str, cost: u32, now: Timestamp) -> Result<Permit<'_>, Refusal> {
        let (shard, location) = self.gate_of(key, now)?;
        let answer = self.at_gate(shard, location, now, |shard, now| {
            shard.try_acquire(location.slot, cost, now)
        });
        answer.map(|permit| Permit::new(self, location, permit))
    }

    /// The gate that asks for `key` go to.
    pub(super) fn gate_of(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<(MutexGuard<'_, Shard>, GateLocation), Refusal> {
        match self.inner.registry.find(key) {
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
    ) -> Result<(MutexGuard<'_, Shard>, GateLocation), Refusal> {
        let eviction_interval = self.eviction_interval();
        let shared_key = self.shared_key(key);
        let key = shared_key.as_deref().unwrap_or(key);
        let found = self.inner.registry.find_or_insert(key, now);
        match &found {
            Ok(_) => self.schedule_eviction(eviction_interval, now),
            Err(_) => self.inner.registry.count_no_room(),
        }
        found
    }

    /// The gate that asks for `key` go to, if it is there.
    pub(super) fn known_gate(&self, key: &str) -> Option<(MutexGuard<'_, Shard>, GateLocation)> {
        self.inner
            .registry
            .find(key)
            .or_else(|| self.inner.registry.find(&self.shared_key(key)?))
    }

    /// The key of the gate that all hosts of a pattern share, if `key` is of one that does.
    pub(super) fn shared_key(&self, key: &str) -> Option<String> {
        let hosts = lock(&self.inner.hosts);
        let index = hosts.index_for(key);
        let pattern = hosts.pattern(index).filter(|_| hosts.get(index).share);
        pattern.map(HostPattern::to_string)
    }

    #[inline(always)]
    pub(crate) fn settle(
        &self,
        location: GateLocation,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
    ) {
        let now = self.inner.clock.now();
        let mut shard = self.inner.registry.lock(location.shard);
        if self.inner.listener.is_none() && !shard.is_waited_for(location.slot) {
            shard.settle(location.slot, permit, outcome, verdict, now);
        } else {
            self.settle_observed(shard, location, outcome, verdict, now, |shard, now| {
                shard.settle(location.slot, permit, outcome, verdict, now);
            });
        }
    }

    /// The same at the head of a response whose body is still to come. `body` has it before any
    /// listener is called, which may panic.
    pub(crate) fn settle_head(
        &self,
        location: GateLocation,
        permit: gate::Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        body: &mut Option<ResponseBody>,
    ) {
        let now = self.inner.clock.now();
        let shard = self.inner.registry.lock(location.shard);
        self.settle_observed(shard, location, outcome, verdict, now, |shard, now| {
            *body = Some(shard.settle_head(location.slot, permit, outcome, verdict, now));
        });
    }

    /// The body of a response has ended: its place in flight is free.
    pub(crate) fn finish(&self, location: GateLocation, body: ResponseBody) {
        let now = self.inner.clock.now();
        let mut shard = self.inner.registry.lock(location.shard);
        if shard.is_waited_for(location.slot) {
            self.at_gate(shard, location, now, |shard, now| {
                shard.finish(location.slot, body, now);
            });
        } else {
            shard.finish(location.slot, body, now);
        }
    }

    /// Settles where a line may move on, or a listener may get events.
    fn settle_observed(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
        settle: impl FnOnce(&mut Shard, Timestamp),
    ) {
        if self.wants_every_event() || shard.is_waited_for(location.slot) {
            self.settle_slow_path(shard, location, outcome, verdict, now, settle);
            return;
        }
        let before = shard.summary(location.slot, now);
        settle(&mut shard, now);
        let is_changed = !before.same_hold_and_breaker(&shard.summary(location.slot, now));
        if is_changed && self.inner.listener.is_some() {
            self.emit_gate_changes(shard, location, &before, now);
        }
    }

    /// The gate's line is not empty, or there is a listener.
    #[cold]
    fn settle_slow_path(
        &self,
        shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
        settle: impl FnOnce(&mut Shard, Timestamp),
    ) {
        let key = self.key_if_listening(&shard, location);
        let seen = self.at_gate(shard, location, now, |shard, now| {
            let before = shard.summary(location.slot, now);
            settle(shard, now);
            let after = key.is_some().then(|| shard.look(location.slot, now));
            after.map(|after| (before, after))
        });
        if let (Some(key), Some((before, after))) = (key, seen) {
            let event = Event::Settled {
                key: &key,
                verdict,
                latency: outcome.latency,
            };
            if self.wants_every_event() {
                self.emit(now, &event);
            }
            self.emit_changes(&key, &before, &after, now);
        }
    }

    /// A hold or a breaker has changed, and there is a listener.
    #[cold]
    fn emit_gate_changes(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        before: &GateSummary,
        now: Timestamp,
    ) {
        let key = shard.key(location.slot).to_owned();
        let after = shard.look(location.slot, now);
        drop(shard);
        self.emit_changes(&key, before, &after, now);
    }

    pub(crate) fn abandon(&self, location: GateLocation, permit: gate::Permit) {
        let now = self.inner.clock.now();
        let shard = self.inner.registry.lock(location.shard);
        let key = self.key_if_listening(&shard, location);
        self.at_gate(shard, location, now, |shard, now| {
            shard.abandon(location.slot, permit, now);
        });
        if let Some(key) = key
            && self.wants_every_event()
        {
            self.emit(now, &Event::Abandoned { key: &key });
        }
    }

    pub(crate) fn give_back(&self, location: GateLocation, permit: gate::Permit) {
        let now = self.inner.clock.now();
        let shard = self.inner.registry.lock(location.shard);
        self.at_gate(shard, location, now, |shard, now| {
            shard.give_back(location.slot, permit, now);
        });
    }

    /// Does something to a gate, serves its line before and after it, and unlocks.
    pub(super) fn at_gate<T>(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        now: Timestamp,
        act: impl FnOnce(&mut Shard, Timestamp) -> T,
    ) -> T {
        let now = shard.time_at(location.slot, now);
        let mut wakers = Vec::new();
        shard.catch_up(location.slot, now, &mut wakers);
        let was_waited_for = shard.is_waited_for(location.slot);
        let done = act(&mut shard, now);
        if was_waited_for || shard.is_waited_for(location.slot) {
            shard.serve(location.slot, now, &mut wakers);
        }
        self.set_alarm(location.shard, &mut shard);
        drop(shard);
        self.inner.clock.catch_up();
        wake_all(wakers);
        done
    }

    pub(super) fn peek_one(&self, key: &str, ask: &Ask<'_>, now: Timestamp) -> Result<(), Refusal> {
        match self.known_gate(key) {
            Some((mut shard, location)) => {
                let now = shard.time_at(location.slot, now);
                shard.peek(location.slot, ask, now)
            }
            None => self.peek_new(key, ask, now),
        }
    }

    /// What a new gate would say.
    fn peek_new(&self, key: &str, ask: &Ask<'_>, now: Timestamp) -> Result<(), Refusal> {
        let answer = self.with_settings(key, |settings| {
            let ask = ask.at_gate(settings, now);
            Gate::new(settings, now).peek(settings, &Tickets::new(), &ask, now)
        });
        answer.map_err(|(reason, until)| Refusal::new(reason, until, now))
    }

    /// Counts a wait that is over, if it was long enough to be noticed.
    pub(super) fn count_wait(&self, location: GateLocation, waited: Duration) {
        if !waited.is_zero() {
            let mut shard = self.inner.registry.lock(location.shard);
            let throttled_after =
                shard.with_gate(location.slot, |_, settings, _| settings.throttled_after());
            if waited > throttled_after {
                shard.counts.throttled += 1;
            }
        }
    }

    /// Calls `look` with the settings for `key`.
    pub(crate) fn with_settings<T>(&self, key: &str, look: impl FnOnce(&GateSettings) -> T) -> T {
        let hosts = Arc::clone(&lock(&self.inner.hosts));
        look(&hosts.find(key).gate)
    }

    /// When the gate of an ask's first key would let it out, and how many are in flight there.
    pub(crate) fn gate_state(&self, ask: &Ask<'_>, now: Timestamp) -> GateState {
        let (answer, in_flight) = match self.known_gate(ask.key) {
            Some((mut shard, location)) => {
                let now = shard.time_at(location.slot, now);
                let answer = shard.peek(location.slot, ask, now);
                let in_flight = shard.with_gate(location.slot, |gate, _, _| gate.in_flight());
                (answer, in_flight)
            }
            None => (self.peek_new(ask.key, ask, now), 0),
        };
        GateState {
            opens_at: match answer {
                Ok(()) => now,
                Err(refusal) => refusal.until().unwrap_or(Timestamp::MAX),
            },
            in_flight,
        }
    }

    /// Attempts in flight at the gate of `key`.
    pub(crate) fn in_flight(&self, key: &str) -> u32 {
        self.known_gate(key).map_or(0, |(mut shard, location)| {
            shard.with_gate(location.slot, |gate, _, _| gate.in_flight())
        })
    }

    /// A person ends the isolation of the gate of `key`, if it is Isolated.
    pub(crate) fn end_isolation(&self, key: &str) {
        self.override_gate(key, |gate, settings, now| {
            if gate.breaker_state(now) == BreakerState::Isolated {
                gate.release(settings, now);
            }
        });
    }

    /// Overrides the gate of `key`. `false` if there is none.
    pub(super) fn override_gate(
        &self,
        key: &str,
        act: fn(&mut Gate, &GateSettings, Timestamp),
    ) -> bool {
        let now = self.inner.clock.now();
        match self.known_gate(key) {
            Some((shard, location)) => {
                self.act(shard, location, act, now);
                true
            }
            None => false,
        }
    }

    /// Overrides the gate of `key`; if there is none it is made.
    pub(super) fn override_or_insert(
        &self,
        key: &str,
        act: fn(&mut Gate, &GateSettings, Timestamp),
    ) -> Result<(), Refusal> {
        let now = self.inner.clock.now();
        let (shard, location) = self.gate_of(key, now)?;
        self.act(shard, location, act, now);
        Ok(())
    }

    fn act(
        &self,
        shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        act: fn(&mut Gate, &GateSettings, Timestamp),
        now: Timestamp,
    ) {
        let key = self.key_if_listening(&shard, location);
        let (before, after) = self.at_gate(shard, location, now, |shard, now| {
            let before = shard.summary(location.slot, now);
            shard.with_gate(location.slot, |gate, settings, _| act(gate, settings, now));
            (before, shard.look(location.slot, now))
        });
        if let Some(key) = key {
            self.emit_changes(&key, &before, &after, now);
        }
    }

    /// A generator of its own for each call, so that they do not wait for each other.
    pub(crate) fn random(&self) -> Random {
        Random::from_seed(lock(&self.inner.seeds).next_u64())
    }

    /// An ordinary request is about to be sent: it pays for a part of a retry at its gate.
    pub(crate) fn deposit(&self, location: GateLocation, now: Timestamp) {
        let mut shard = self.inner.registry.lock(location.shard);
        let budget = shard.retry_budget(location.slot, &self.inner.budget_settings, now);
        budget.deposit(&self.inner.budget_settings, now);
    }

    /// Takes a retry out of the budget of a gate; if there is none, says when there is, if ever.
    pub(crate) fn withdraw(
        &self,
        location: GateLocation,
        now: Timestamp,
    ) -> Result<(), Option<Timestamp>> {
        let settings = &self.inner.budget_settings;
        let mut shard = self.inner.registry.lock(location.shard);
        let budget = shard.retry_budget(location.slot, settings, now);
        if budget.withdraw(settings, now) {
            self.inner.retries.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        Err(budget.next_at(settings, now))
    }

    /// When the gate of `key` last had a success.
    pub(crate) fn last_success(&self, key: &str) -> Option<Timestamp> {
        let (mut shard, location) = self.known_gate(key)?;
        shard.with_gate(location.slot, |gate, _, _| gate.last_success())
    }

    /// Gives the gate of `key` the settings of `host`, now and whenever settings change.
    pub(crate) fn alias_host(&self, key: &str, host: &str) {
        let before = lock(&self.inner.aliases).insert(key.to_owned(), host.to_owned());
        if before.as_deref() != Some(host) {
            self.change_alias(key, |hosts| hosts.alias(key, host));
        }
    }

    /// `key` has no settings of a host any more: it is not used.
    pub(crate) fn forget_alias(&self, key: &str) {
        if lock(&self.inner.aliases).remove(key).is_some() {
            self.change_alias(key, |hosts| {
                hosts.forget_alias(key);
            });
        }
    }

    /// Changes which settings `key` has, and puts its gate under them; no other gate is looked at.
    fn change_alias(&self, key: &str, change: impl FnOnce(&mut Hosts<HostSettings>)) {
        let mut present = lock(&self.inner.hosts);
        let mut hosts = present.as_ref().clone();
        change(&mut hosts);
        let hosts = Arc::new(hosts);
        *present = Arc::clone(&hosts);
        let now = self.inner.clock.now();
        let mut wakers = Vec::new();
        self.inner
            .registry
            .adopt_key(&hosts, key, now, &mut wakers, |number, shard| {
                self.set_alarm(number, shard);
            });
        drop(present);
        self.inner.clock.catch_up();
        wake_all(wakers);
    }

    /// Changes settings and puts all gates under them. `false` if `change` says that it changed
    /// nothing.
    pub(super) fn change_settings(
        &self,
        change: impl FnOnce(&mut Hosts<HostSettings>) -> bool,
    ) -> bool {
        let mut present = lock(&self.inner.hosts);
        let mut hosts = present.as_ref().clone();
        if !change(&mut hosts) {
            return false;
        }
        for (key, host) in &*lock(&self.inner.aliases) {
            hosts.alias(key, host);
        }
        let hosts = &Arc::new(hosts);
        *present = Arc::clone(hosts);
        let now = self.inner.clock.now();
        let mut wakers = Vec::new();
        // Under the lock of the settings, so that two changes cannot cross on their way.
        self.inner
            .registry
            .adopt(hosts, now, &mut wakers, |number, shard| {
                self.set_alarm(number, shard);
            });
        drop(present);
        self.inner.clock.catch_up();
        wake_all(wakers);
        true
    }

    /// Calls `look` with every gate, a few under one lock.
    pub(super) fn each_gate(
        &self,
        mut look: impl FnMut(&str, &mut Gate, &GateSettings, &Tickets, Timestamp),
    ) {
        for number in 0..self.inner.registry.shards() {
            let mut from = 0;
            loop {
                let now = self.inner.clock.now();
                let mut shard = self.inner.registry.lock(number);
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
}

/// Some ten microseconds: too short to delay other asks.
const GATES_PER_LOCK: usize = 128;
