//! The limiter's operations on gates: taking permits, returning them, changing settings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::classify::Rule;
use policy::gate::{self, Gate, GateOverride, GateSettings, GateSummary, ResponseBody};
use policy::hosts::{HostPattern, Hosts};
use policy::line::Tickets;
use policy::outcome::{Outcome, Verdict};
use policy::random::Random;
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::Limiter;
use crate::ask::{Ask, Refusal};
use crate::event::Event;
use crate::permit::Permit;
use crate::registry::{GateLocation, LocationHint, Shard, SlotIndex};
use crate::settings::HostSettings;
use crate::sync::{MutexGuard, lock};
use crate::waking::wake_all;

impl Limiter {
    /// The permit is built in the one place where it is used. Passing it through the result types
    /// of several functions would write and read it back each time, with a stall on every read.
    #[inline(always)]
    pub(crate) fn try_acquire_one(&self, key: &str, cost: u32) -> Result<Permit<'_>, Refusal> {
        let now = self.inner.clock.now();
        if self.is_quick()
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
        // Not in the caller, where its code costs local gates a quarter of their time.
        if self.inner.registry.fleet().is_some()
            && !self.wants_every_event()
            && let Some((mut shard, location)) = self.inner.registry.find(key)
            && let Some(permit) = shard.acquire_shared_at_once(location.slot, cost, now)
        {
            drop(shard);
            return Ok(Permit::new(self, location, permit));
        }
        let decision = self.take(key, cost, now);
        self.emit_decision(key, &decision, now);
        decision
    }

    /// A permit from every gate of the ask, or from none.
    pub(super) fn try_acquire_all(&self, ask: &Ask<'_>) -> Result<Permit<'_>, Refusal> {
        let now = self.inner.clock.now();
        let decision = self.take_all(ask.keys(), ask.cost, now);
        match &decision {
            Ok(_) => self.emit_admitted(ask, Duration::ZERO, now),
            Err((key, refusal)) => self.emit_refused(key, refusal, now),
        }
        match decision {
            Ok(permit) => Ok(permit.expect("an ask has a key")),
            Err((_, refusal)) => Err(refusal),
        }
    }

    /// Takes permits from all these gates as one, or from none and returns the gate that refused.
    /// `None` if there are no gates.
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

    /// A permit of one gate, if available now. Emits no event.
    pub(super) fn take(&self, key: &str, cost: u32, now: Timestamp) -> Result<Permit<'_>, Refusal> {
        let (shard, location) = self.gate_of(key, now)?;
        let decision = self.at_gate(shard, location, now, |shard, now| {
            shard.try_acquire(location.slot, cost, now)
        });
        decision.map(|permit| Permit::new(self, location, permit))
    }

    /// The gate for asks for `key`.
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

    /// For a key without a gate: finds the gate it shares, or creates its own.
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

    /// The gate for asks for `key`, if it exists.
    pub(super) fn known_gate(&self, key: &str) -> Option<(MutexGuard<'_, Shard>, GateLocation)> {
        self.inner
            .registry
            .find(key)
            .or_else(|| self.inner.registry.find(&self.shared_key(key)?))
    }

    /// The key of the gate shared by all hosts of a pattern, if `key` belongs to such a pattern.
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
    ) -> Option<Verdict> {
        let now = self.inner.clock.now();
        let mut shard = self.inner.registry.lock(location.shard);
        let is_plain = self.inner.listener.is_none() && !shard.is_shared();
        if is_plain && !shard.is_waited_for(location.slot) {
            shard.settle(location.slot, permit, outcome, verdict, now)
        } else {
            self.settle_observed(shard, location, outcome, now, |shard, now| {
                shard.settle(location.slot, permit, outcome, verdict, now)
            })
        }
    }

    /// Settles at the head of a response whose body has not ended. `body` is set before any
    /// listener is called, because a listener may panic.
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
        self.settle_observed(shard, location, outcome, now, |shard, now| {
            let settled = shard.settle_head(location.slot, permit, outcome, verdict, now);
            body.insert(settled).verdict()
        });
    }

    /// Corrects the cost of an attempt; asks may be able to leave now.
    pub(crate) fn correct_cost(&self, location: GateLocation, body: &ResponseBody, used: u32) {
        let now = self.inner.clock.now();
        let shard = self.inner.registry.lock(location.shard);
        self.at_gate(shard, location, now, |shard, now| {
            shard.correct_cost(location.slot, body, used, now);
        });
    }

    /// Ends the body of a response and releases its slot in flight.
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

    /// Settles where asks may be waiting or a listener may get events. Returns the verdict of
    /// `settle`.
    fn settle_observed(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        outcome: &Outcome,
        now: Timestamp,
        settle: impl FnOnce(&mut Shard, Timestamp) -> Option<Verdict>,
    ) -> Option<Verdict> {
        if self.wants_every_event() || shard.is_waited_for(location.slot) {
            return self.settle_slow_path(shard, location, outcome, now, settle);
        }
        if self.inner.listener.is_none() && shard.is_shared() {
            let verdict = settle(&mut shard, now);
            if shard.is_to_be_scheduled(location.slot) {
                let mut wakers = Vec::new();
                shard.schedule_call(location.slot, now, &mut wakers);
                drop(shard);
                wake_all(wakers);
            }
            return verdict;
        }
        let before = shard.summary(location.slot, now);
        let verdict = settle(&mut shard, now);
        let is_changed = !before.same_hold_and_breaker(&shard.summary(location.slot, now));
        let mut wakers = Vec::new();
        if shard.is_to_be_scheduled(location.slot) {
            shard.schedule_call(location.slot, now, &mut wakers);
        }
        if is_changed && self.inner.listener.is_some() {
            self.emit_gate_changes(shard, location, &before, now);
        } else {
            drop(shard);
        }
        wake_all(wakers);
        verdict
    }

    /// Settles when asks are waiting or there is a listener.
    #[cold]
    fn settle_slow_path(
        &self,
        shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        outcome: &Outcome,
        now: Timestamp,
        settle: impl FnOnce(&mut Shard, Timestamp) -> Option<Verdict>,
    ) -> Option<Verdict> {
        let key = self.key_if_listening(&shard, location);
        let (verdict, seen) = self.at_gate(shard, location, now, |shard, now| {
            let before = shard.summary(location.slot, now);
            let verdict = settle(shard, now);
            let after = key.is_some().then(|| shard.look(location.slot, now));
            (verdict, after.map(|after| (before, after)))
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
        verdict
    }

    /// Reports a changed hold or breaker to the listener.
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
        self.abandon_as(location, |shard, now| {
            shard.abandon(location.slot, permit, now);
        });
    }

    /// Returns a permit without an outcome, by `abandon`.
    pub(super) fn abandon_as(
        &self,
        location: GateLocation,
        abandon: impl FnOnce(&mut Shard, Timestamp),
    ) {
        let now = self.inner.clock.now();
        let shard = self.inner.registry.lock(location.shard);
        let key = self.key_if_listening(&shard, location);
        self.at_gate(shard, location, now, abandon);
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

    /// Runs `act` on a gate, serves its line before and after, and unlocks.
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
        } else {
            shard.schedule_call(location.slot, now, &mut wakers);
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
            // Only the store knows what a shared gate would decide, and a gate has to ask it.
            None if self.inner.registry.fleet().is_some() => {
                let (mut shard, location) = self.gate_of(key, now)?;
                shard.peek(location.slot, ask, now)
            }
            None => self.peek_new(key, ask, now),
        }
    }

    /// What a newly created gate would decide.
    fn peek_new(&self, key: &str, ask: &Ask<'_>, now: Timestamp) -> Result<(), Refusal> {
        let decision = self.with_settings(key, |settings| {
            let ask = ask.at_gate(settings, now);
            Gate::new(settings, now).peek(settings, &Tickets::new(), &ask, now)
        });
        decision.map_err(|(reason, until)| Refusal::new(reason, until, now))
    }

    /// Counts a finished wait if it was longer than `throttled_after`.
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

    /// The classification rules for responses from `key`'s host; `None` if there are none. Takes the
    /// lock of the key's gate, and one of all gates only if it has none. Counts no reference to an
    /// empty list, which all keys share.
    pub(crate) fn rules_if_any(&self, key: &str) -> Option<Arc<[Rule]>> {
        let of = |host: &HostSettings| (!host.rules.is_empty()).then(|| Arc::clone(&host.rules));
        if let Some((shard, location)) = self.inner.registry.find(key) {
            return of(shard.host_settings(location.slot));
        }
        of(lock(&self.inner.hosts).find(key))
    }

    /// Calls `look` with the settings for `key`.
    pub(crate) fn with_settings<T>(&self, key: &str, look: impl FnOnce(&GateSettings) -> T) -> T {
        let hosts = Arc::clone(&lock(&self.inner.hosts));
        look(&hosts.find(key).gate)
    }

    /// A permit of the gate of `key`, if available now; otherwise when the gate would admit the ask,
    /// [`Timestamp::MAX`] if that is unknown. A gate that does not admit it counts no refusal.
    #[inline(always)]
    pub(crate) fn acquire_or_until(
        &self,
        key: &str,
        hint: &LocationHint,
        ask: &Ask<'_>,
        now: Timestamp,
    ) -> Result<Permit<'_>, Timestamp> {
        if !self.wants_every_event()
            && let Some((mut shard, location)) = self.inner.registry.find_near(key, hint)
            && let Some(permit) = shard.acquire_at_once(location.slot, ask.cost, now)
        {
            drop(shard);
            return Ok(Permit::new(self, location, permit));
        }
        self.peek_one(key, ask, now)
            .and_then(|()| self.try_acquire_slow_path(key, ask.cost, now))
            .map_err(|refusal| refusal.until().unwrap_or(Timestamp::MAX))
    }

    /// A permit of one gate of several, if available now. Emits no event and counts no refusal.
    pub(super) fn acquire_or_refusal(
        &self,
        key: &str,
        ask: &Ask<'_>,
        now: Timestamp,
    ) -> Result<Permit<'_>, Refusal> {
        self.peek_one(key, ask, now)?;
        let (shard, location) = self.gate_of(key, now)?;
        let decision = self.at_gate(shard, location, now, |shard, now| {
            shard.try_acquire_as(location.slot, ask, now)
        });
        decision.map(|permit| Permit::new(self, location, permit))
    }

    /// The rate of the gate of `key`. Creates the gate if it does not exist.
    pub(super) fn rate(&self, key: &str) -> Result<f64, Refusal> {
        let now = self.inner.clock.now();
        let (mut shard, location) = self.gate_of(key, now)?;
        Ok(shard.summary(location.slot, now).rate)
    }

    /// The strategy of a gate that has a permit out.
    pub(crate) fn strategy_at(&self, location: GateLocation) -> Strategy {
        let mut shard = self.inner.registry.lock(location.shard);
        shard.strategy(location.slot)
    }

    /// The deadline of an ask made at `now`, by the settings of the gate of `key`.
    pub(crate) fn deadline(&self, key: &str, ask: &Ask<'_>, now: Timestamp) -> Timestamp {
        let deadline = |settings: &GateSettings| ask.at_gate(settings, now).deadline;
        match self.inner.registry.find(key) {
            Some((mut shard, location)) => {
                shard.with_gate(location.slot, |_, settings, _| deadline(settings))
            }
            None => self.with_settings(key, deadline),
        }
    }

    /// The number of attempts in flight at the gate of `key`.
    pub(crate) fn in_flight(&self, key: &str) -> u32 {
        self.known_gate(key).map_or(0, |(mut shard, location)| {
            shard.with_gate(location.slot, |gate, _, _| gate.in_flight())
        })
    }

    /// Ends the isolation of the gate of `key`, if it is Isolated.
    pub(crate) fn end_isolation(&self, key: &str) {
        let now = self.inner.clock.now();
        let is_isolated = self.known_gate(key).is_some_and(|(mut shard, location)| {
            shard.with_gate(location.slot, |gate, _, _| {
                gate.breaker_state(now) == BreakerState::Isolated
            })
        });
        if is_isolated {
            self.override_gate(key, GateOverride::Release);
        }
    }

    /// Overrides the gate of `key`. Returns `false` if it does not exist. In a fleet it exists if another
    /// node has it, which only the store knows, so that it is created here.
    pub(super) fn override_gate(&self, key: &str, change: GateOverride) -> bool {
        let now = self.inner.clock.now();
        match self.known_gate(key) {
            None if self.inner.registry.fleet().is_some() => {
                self.override_or_insert(key, change).is_ok()
            }
            Some((shard, location)) => {
                self.act(shard, location, change, now);
                true
            }
            None => false,
        }
    }

    /// Overrides the gate of `key`, creating it if it does not exist.
    pub(super) fn override_or_insert(
        &self,
        key: &str,
        change: GateOverride,
    ) -> Result<(), Refusal> {
        let now = self.inner.clock.now();
        let (shard, location) = self.gate_of(key, now)?;
        self.act(shard, location, change, now);
        Ok(())
    }

    fn act(
        &self,
        shard: MutexGuard<'_, Shard>,
        location: GateLocation,
        change: GateOverride,
        now: Timestamp,
    ) {
        let key = self.key_if_listening(&shard, location);
        let (before, after) = self.at_gate(shard, location, now, |shard, now| {
            let before = shard.summary(location.slot, now);
            shard.override_gate(location.slot, change, now);
            (before, shard.look(location.slot, now))
        });
        if let Some(key) = key {
            self.emit(now, &Event::GateOverridden { key: &key, change });
            self.emit_changes(&key, &before, &after, now);
        }
    }

    /// A separate random generator for each call, so that calls do not contend for one.
    pub(crate) fn random(&self) -> Random {
        Random::from_seed(lock(&self.inner.seeds).next_u64())
    }

    /// Counts a first attempt, which adds to the gate's retry budget.
    pub(crate) fn deposit(&self, location: GateLocation, now: Timestamp) {
        let mut shard = self.inner.registry.lock(location.shard);
        let budget = shard.retry_budget(location.slot, &self.inner.budget_settings, now);
        budget.deposit(&self.inner.budget_settings, now);
    }

    /// Takes a retry from a gate's budget. If the budget is used up, returns when a retry is
    /// possible, if ever.
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

    /// The time of the last success at the gate of `key`.
    pub(crate) fn last_success(&self, key: &str) -> Option<Timestamp> {
        let (mut shard, location) = self.known_gate(key)?;
        shard.with_gate(location.slot, |gate, _, _| gate.last_success())
    }

    /// Makes the gate of `key` use the settings of `host`, now and after every change of settings.
    pub(crate) fn alias_host(&self, key: &str, host: &str) {
        let before = lock(&self.inner.aliases).insert(key.to_owned(), host.to_owned());
        if before.as_deref() == Some(host) {
            return;
        }
        // A change copies all settings, so thousands of endpoints with the same ones make none.
        let is_same = {
            let hosts = lock(&self.inner.hosts);
            hosts.index_for(key) == hosts.index_for(host)
        };
        if !is_same {
            self.change_alias(key, |hosts| hosts.alias(key, host));
        }
    }

    /// Removes the alias of `key`, which is no longer used.
    pub(crate) fn forget_alias(&self, key: &str) {
        if lock(&self.inner.aliases).remove(key).is_some() {
            self.change_alias(key, |hosts| {
                hosts.forget_alias(key);
            });
        }
    }

    /// Changes which settings `key` uses and applies them to its gate only.
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

    /// Changes settings and applies them to all gates. Returns `false` if `change` reports that
    /// nothing changed.
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
        // Under the settings lock, so that two concurrent changes are applied in order.
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

    /// Calls `look` with every gate, holding each lock for a few gates at a time.
    pub(super) fn each_gate(&self, mut look: impl FnMut(&mut Shard, SlotIndex, Timestamp)) {
        for number in 0..self.inner.registry.shards() {
            let mut from = 0;
            loop {
                let now = self.inner.clock.now();
                let mut shard = self.inner.registry.lock(number);
                let next = shard.look_at_some(from, GATES_PER_LOCK, |shard, index| {
                    look(shard, index, now);
                });
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
    }
}

/// Takes about ten microseconds, too short to delay other asks noticeably.
const GATES_PER_LOCK: usize = 128;

#[cfg(test)]
mod tests {
    use policy::ladder::LadderSettings;
    use policy::pool::Balance;

    use super::*;
    use crate::block_on::block_on;
    use crate::call::AttemptResult;
    use crate::clock::ManualClock;
    use crate::pool::Pool;

    #[test]
    fn aliases_with_the_same_settings_copy_none() {
        let mut hosts = Hosts::new(HostSettings::default());
        let other = HostSettings::default();
        hosts.insert("b.example.com".parse().unwrap(), other);
        let limiter = Limiter::builder().hosts(hosts).build();
        let present = || Arc::clone(&lock(&limiter.inner.hosts));
        let before = present();
        for number in 0..100 {
            limiter.alias_host(&format!("pool/{number}"), "a.example.com");
        }
        assert!(Arc::ptr_eq(&before, &present()));
        limiter.alias_host("pool/1", "b.example.com");
        assert!(!Arc::ptr_eq(&before, &present()));
        let index = |host| present().index_for(host);
        assert_eq!(index("pool/1"), index("b.example.com"));
        // They last over a change of settings.
        limiter.set_settings(before.as_ref().clone());
        assert_eq!(index("pool/1"), index("b.example.com"));
    }

    /// The result of `act` in a thread of its own, while this one holds every lock of the limiter
    /// that all of its gates share; `None` if it waits for one of them.
    fn beside_all_locks<T: Send + 'static>(
        limiter: &Limiter,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = std::sync::mpsc::channel();
        let _hosts = lock(&limiter.inner.hosts);
        let _seeds = lock(&limiter.inner.seeds);
        let _aliases = lock(&limiter.inner.aliases);
        let _eviction = lock(&limiter.inner.eviction_alarm);
        std::thread::spawn(move || done.send(act()));
        result.recv_timeout(Duration::from_secs(5)).ok()
    }

    #[test]
    fn granted_asks_and_calls_take_no_lock_of_all_gates_and_copy_no_settings() {
        let fast = GateSettings::fixed(1e6);
        let limiter = Limiter::builder().gate(fast).build();
        let pool = Pool::new("llm", &limiter);
        for name in ["a", "b", "c"] {
            pool.add(name, "llm.example.com", ());
        }
        let settings = Arc::downgrade(&lock(&limiter.inner.hosts));
        let copies = settings.strong_count();
        let work = {
            let limiter = limiter.clone();
            move |times: u32| {
                let ok = Outcome::status(200, Duration::from_millis(1));
                for _ in 0..times {
                    let permit = limiter.acquire_blocking("api.example.com").unwrap();
                    permit.settle(&ok);
                    assert!(limiter.rules("api.example.com").is_empty());
                    let permit = block_on(pool.acquire(Ask::any())).unwrap();
                    permit.settle(&ok);
                    let called = pool.call().run(async |attempt, _| {
                        AttemptResult::new(settings.strong_count(), attempt.status(200))
                    });
                    assert_eq!(block_on(called).unwrap().value, copies);
                }
                times
            }
        };
        // The gates are made here.
        work(5);
        assert_eq!(beside_all_locks(&limiter, move || work(5)), Some(5));
    }

    #[test]
    fn rules_are_those_of_the_host_before_and_after_its_gate_is_made() {
        let limiter = Limiter::new();
        let rules: Arc<[Rule]> = Arc::new([Rule::new(Verdict::Throttled)]);
        let settings = HostSettings {
            rules: Arc::clone(&rules),
            ..HostSettings::default()
        };
        let pattern: HostPattern = "*.example.com".parse().unwrap();
        limiter.set_host(pattern.clone(), settings).unwrap();
        for _ in 0..2 {
            assert_eq!(limiter.rules("api.example.com"), rules);
            assert!(limiter.rules("example.org").is_empty());
            for key in ["api.example.com", "example.org"] {
                limiter.try_acquire(key).unwrap().give_back();
            }
        }
        limiter.set_host(pattern, HostSettings::default()).unwrap();
        assert!(limiter.rules("api.example.com").is_empty());
    }

    #[test]
    fn pool_does_not_ask_a_gate_again_that_has_just_refused() {
        let clock = ManualClock::new();
        let limiter = Limiter::builder()
            .host(
                "slow.example.com".parse().unwrap(),
                GateSettings::fixed(1.0),
            )
            .host(
                "fast.example.com".parse().unwrap(),
                GateSettings::fixed(1e6),
            )
            .clock(clock.clock())
            .build();
        let protection = LadderSettings::default();
        let pool = Pool::with("llm", &limiter, Balance::First, protection);
        pool.add("slow", "slow.example.com", ());
        let shard_of = |key: &str| {
            limiter.try_acquire(key).unwrap().give_back();
            limiter.inner.registry.find(key).unwrap().1.shard
        };
        // Its gate has another lock than that of the slow one.
        let mut names = (0..).map(|number| format!("fast{number}"));
        let is_apart = |name: &String| shard_of(&format!("llm/{name}")) != shard_of("llm/slow");
        let fast = names.find(is_apart).unwrap();
        pool.add(&fast, "fast.example.com", ());
        drop(limiter.try_acquire("llm/slow").unwrap());
        let name = |pool: &Pool<()>| {
            let permit = block_on(pool.acquire(Ask::any())).unwrap();
            permit.endpoint().name().to_owned()
        };
        assert_eq!(
            name(&pool),
            fast,
            "the only token of the slow gate is taken"
        );

        clock.advance(Duration::from_millis(1));
        let (done, result) = std::sync::mpsc::channel();
        let slow = limiter.inner.registry.find("llm/slow").unwrap();
        let asking = pool.clone();
        std::thread::spawn(move || done.send(name(&asking)));
        let chosen = result.recv_timeout(Duration::from_secs(5));
        assert_eq!(chosen.as_deref(), Ok(&*fast), "it waits for the slow gate");
        drop(slow);

        clock.advance(Duration::from_secs(1));
        let name = block_on(pool.acquire(Ask::any())).unwrap();
        assert_eq!(
            name.endpoint().name(),
            "slow",
            "asked again when it has a token"
        );
    }
}
