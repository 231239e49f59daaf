//! Gates by key, in shards with a lock each.
//!
//! A lookup costs one hash, one lock and one search of an array of `u64`s; it does not allocate.
//! Permits and seats refer to their gate by [`GateLocation`], so returning them does not hash. A
//! gate with attempts in flight or asks in line is never removed, so a location stays valid while
//! it is in use.
//!
//! Eviction checks a few slots at a time: on each insertion that grows the registry, and
//! periodically. At `max_gates` the least recently used gate of a sample is evicted. With
//! [`SAMPLE`] gates or fewer, that is the least recently used of all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use policy::gate::{GateRecord, Reason};
use policy::hosts::Hosts;
use policy::time::Timestamp;

use crate::ask::Refusal;
use crate::settings::HostSettings;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, lock};

mod hash;
mod members;
mod seats;
mod shard;
mod slab;
mod table;
mod text;

pub(crate) use members::{FleetNode, Schedule};
pub(crate) use seats::SeatId;
pub(crate) use shard::{AskResult, DueCall, SeatTaken, Shard};
pub(crate) use slab::SlotIndex;

use hash::KeyHash;
use members::GateHosts;

/// The location of a gate in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateLocation {
    pub(crate) shard: u32,
    pub(crate) slot: SlotIndex,
}

impl GateLocation {
    #[inline]
    fn new(shard: u32, slot: SlotIndex) -> Self {
        Self { shard, slot }
    }

    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.shard) << 32 | u64::from(self.slot)
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the halves of a packed location"
    )]
    fn unpack(packed: u64) -> Self {
        Self::new((packed >> 32) as u32, packed as u32)
    }
}

/// Where the gate of one key was found last, for owners that ask for the same key again and again.
#[derive(Debug)]
pub(crate) struct LocationHint(AtomicU64);

impl Default for LocationHint {
    /// No gate has been found yet: there is no such shard.
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

#[derive(Debug)]
pub(crate) struct Registry {
    shards: Box<[Padded]>,
    hasher: KeyHash,
    gates: AtomicUsize,
    max_gates: AtomicUsize,
    /// The next shard to search for idle gates.
    eviction_shard: AtomicUsize,
    fleet: Option<FleetNode>,
}

/// A shard aligned to two cache lines, because CPUs prefetch cache lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl Registry {
    /// A registry without gates; in a fleet, all of its gates are shared.
    pub(crate) fn new(hosts: &Arc<Hosts<HostSettings>>, fleet: Option<FleetNode>) -> Self {
        let settings = &hosts.default_value().gate;
        let applied = GateHosts::new(hosts, fleet.as_ref());
        let shard = || Shard::new(&applied, fleet.as_ref());
        let shards = std::iter::repeat_with(|| Padded(Mutex::new(shard())));
        Self {
            shards: shards.take(settings.shards()).collect(),
            hasher: KeyHash::random(),
            gates: AtomicUsize::new(0),
            max_gates: AtomicUsize::new(settings.max_gates()),
            eviction_shard: AtomicUsize::new(0),
            fleet,
        }
    }

    /// The node of a fleet that shares all gates.
    pub(crate) fn fleet(&self) -> Option<&FleetNode> {
        self.fleet.as_ref()
    }

    /// The number of gates.
    pub(crate) fn len(&self) -> usize {
        self.gates.load(Ordering::Relaxed)
    }

    pub(crate) fn shards(&self) -> u32 {
        u32::try_from(self.shards.len()).expect("settings allow 65536 shards")
    }

    #[inline]
    pub(crate) fn lock(&self, shard: u32) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard as usize].0)
    }

    /// The gate of `key`, if it exists.
    // Always inlined: returning the guard through memory costs a store-to-load stall.
    #[inline(always)]
    pub(crate) fn find(&self, key: &str) -> Option<(MutexGuard<'_, Shard>, GateLocation)> {
        let hash = self.hasher.hash(key);
        let number = self.shard_of(hash);
        let shard = self.lock(number);
        let slot = shard.find(hash, key)?;
        Some((shard, GateLocation::new(number, slot)))
    }

    /// The gate of `key`, if it exists, which is looked for at `hint` first: that saves to hash the
    /// key. The gate may have been evicted since and another one be there, so keys are compared.
    #[inline(always)]
    pub(crate) fn find_near(
        &self,
        key: &str,
        hint: &LocationHint,
    ) -> Option<(MutexGuard<'_, Shard>, GateLocation)> {
        let location = GateLocation::unpack(hint.0.load(Ordering::Relaxed));
        if let Some(shard) = self.shards.get(location.shard as usize) {
            let shard = lock(&shard.0);
            if shard.has(location.slot, key) {
                return Some((shard, location));
            }
        }
        self.find_and_note(key, hint)
    }

    #[cold]
    fn find_and_note(
        &self,
        key: &str,
        hint: &LocationHint,
    ) -> Option<(MutexGuard<'_, Shard>, GateLocation)> {
        let found = self.find(key)?;
        hint.0.store(found.1.pack(), Ordering::Relaxed);
        Some(found)
    }

    /// The gate of `key`, created if it does not exist.
    pub(crate) fn find_or_insert(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<(MutexGuard<'_, Shard>, GateLocation), Refusal> {
        match self.find(key) {
            Some(found) => Ok(found),
            None => self.insert(key, None, now),
        }
    }

    /// Restores a gate from its record. Returns `false` if the gate exists already or there is no
    /// room for it.
    pub(crate) fn restore(&self, key: &str, record: &GateRecord, now: Timestamp) -> bool {
        self.find(key).is_none() && self.insert(key, Some(record), now).is_ok()
    }

    #[cold]
    fn insert(
        &self,
        key: &str,
        record: Option<&GateRecord>,
        now: Timestamp,
    ) -> Result<(MutexGuard<'_, Shard>, GateLocation), Refusal> {
        let refused = || Refusal::new(Reason::TooManyGates, None, now);
        if key.len() > text::MAX_KEY {
            // Before another gate is evicted for it.
            return Err(refused());
        }
        let hash = self.hasher.hash(key);
        let number = self.shard_of(hash);
        let before = self.gates.fetch_add(1, Ordering::Relaxed);
        if before >= self.max_gates.load(Ordering::Relaxed) && !self.make_room(number, now) {
            self.gates.fetch_sub(1, Ordering::Relaxed);
            return Err(refused());
        }
        let mut shard = self.lock(number);
        // Another thread may have inserted it first.
        let known = shard.find(hash, key);
        let slot = known.or_else(|| {
            let swept = shard.evict_idle(&self.hasher, SWEEP, now);
            self.gates.fetch_sub(swept.evicted, Ordering::Relaxed);
            shard.insert(hash, key, record, now)
        });
        if known.is_some() || slot.is_none() {
            self.gates.fetch_sub(1, Ordering::Relaxed);
        }
        let slot = slot.ok_or_else(refused)?;
        Ok((shard, GateLocation::new(number, slot)))
    }

    /// Counts an ask refused for lack of room for its gate. Any shard will do, because only the sum
    /// over shards is reported.
    pub(crate) fn count_no_room(&self) {
        let counts = &mut self.lock(0).counts;
        counts.requests += 1;
        counts.denied += 1;
    }

    /// Evicts the least recently used evictable gate. Returns `false` if no gate is evictable.
    fn make_room(&self, first: u32, now: Timestamp) -> bool {
        // Another thread may use the gate before it is locked again; then pick another one.
        while let Some(location) = self.least_recently_used(first, now) {
            if self
                .lock(location.shard)
                .evict(&self.hasher, location.slot, now)
            {
                self.gates.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    fn least_recently_used(&self, first: u32, now: Timestamp) -> Option<GateLocation> {
        let mut best: Option<(Timestamp, GateLocation)> = None;
        let mut looked = 0;
        for step in 0..self.shards() {
            if looked >= SAMPLE && best.is_some() {
                break;
            }
            let number = first.wrapping_add(step) % self.shards();
            let shard = self.lock(number);
            let oldest = shard.least_recently_used(SAMPLE, now);
            looked += shard.len().min(SAMPLE);
            if let Some((used, slot)) = oldest
                && best.is_none_or(|(oldest, _)| used < oldest)
            {
                best = Some((used, GateLocation::new(number, slot)));
            }
        }
        best.map(|(_, location)| location)
    }

    /// Searches at most [`SLICE`] slots for idle gates. `Slice` says whether all shards have been
    /// searched.
    pub(crate) fn evict_slice(&self, now: Timestamp) -> Slice {
        let eviction_shard = self.eviction_shard.load(Ordering::Relaxed) % self.shards.len();
        let mut shard = lock(&self.shards[eviction_shard].0);
        let swept = shard.evict_idle(&self.hasher, SLICE, now);
        drop(shard);
        self.gates.fetch_sub(swept.evicted, Ordering::Relaxed);
        if swept.finished {
            self.eviction_shard
                .store(eviction_shard + 1, Ordering::Relaxed);
        }
        Slice {
            evicted: swept.evicted,
            shard_finished: swept.finished,
            finished: swept.finished && eviction_shard + 1 == self.shards.len(),
        }
    }

    /// Applies new settings to all gates, shard by shard.
    pub(crate) fn adopt(
        &self,
        hosts: &Arc<Hosts<HostSettings>>,
        now: Timestamp,
        wakers: &mut Vec<Waker>,
        mut served: impl FnMut(u32, &mut Shard),
    ) {
        let max_gates = hosts.default_value().gate.max_gates();
        self.max_gates.store(max_gates, Ordering::Relaxed);
        let hosts = GateHosts::new(hosts, self.fleet.as_ref());
        for number in 0..self.shards() {
            let mut shard = self.lock(number);
            shard.adopt(&hosts, now, wakers);
            served(number, &mut shard);
        }
    }

    /// Applies new settings to the gate of `key`. The settings of all other keys keep their
    /// indexes.
    pub(crate) fn adopt_key(
        &self,
        hosts: &Arc<Hosts<HostSettings>>,
        key: &str,
        now: Timestamp,
        wakers: &mut Vec<Waker>,
        mut served: impl FnMut(u32, &mut Shard),
    ) {
        let hash = self.hasher.hash(key);
        let of_key = self.shard_of(hash);
        let hosts = GateHosts::new(hosts, self.fleet.as_ref());
        for number in 0..self.shards() {
            let mut shard = self.lock(number);
            shard.set_hosts(&hosts);
            if number == of_key
                && let Some(slot) = shard.find(hash, key)
            {
                shard.adopt_one(slot, now, wakers);
                served(number, &mut shard);
            }
        }
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only the bits of a small mask are kept"
    )]
    fn shard_of(&self, hash: u64) -> u32 {
        // The lower half; the table uses the upper one.
        hash as u32 & (self.shards.len() as u32 - 1)
    }
}

/// The result of one eviction slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) evicted: usize,
    pub(crate) shard_finished: bool,
    pub(crate) finished: bool,
}

/// Slots checked per inserted key. More than the one it takes, so that keys used only once do not
/// accumulate.
const SWEEP: usize = 2;

/// Gates compared when one has to be evicted.
const SAMPLE: usize = 256;

/// Slots checked per slice: about 0.1 ms if all of them are evicted.
const SLICE: usize = 512;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use policy::gate::GateOptions;
    use proptest::prelude::*;

    use super::*;

    fn registry(set: &[(&str, &str)]) -> Registry {
        let mut options = GateOptions::default();
        for (name, value) in set {
            options.set(name, value).expect("a setting of a test");
        }
        let gate = options.build().expect("settings of a test fit together");
        Registry::new(&Arc::new(Hosts::new(HostSettings::from(gate))), None)
    }

    /// A key long enough that a few hundred of them are worth compacting.
    fn key(number: u16) -> String {
        format!("{number}-{}", "x".repeat(usize::from(number % 97)))
    }

    fn touch(registry: &Registry, key: &str, now: Timestamp) -> GateLocation {
        let found = registry.find_or_insert(key, now);
        let (mut shard, location) = found.expect("there is room");
        if let Ok(permit) = shard.try_acquire(location.slot, 1, now) {
            shard.abandon(location.slot, permit, now);
        }
        location
    }

    /// Runs two full passes, because insertions move the cursor and the first pass may start in the
    /// middle.
    fn evict_all(registry: &Registry, now: Timestamp) {
        for _ in 0..2 {
            while !registry.evict_slice(now).finished {}
        }
    }

    fn key_at(registry: &Registry, key: &str) -> Option<String> {
        let (shard, location) = registry.find(key)?;
        Some(shard.key(location.slot).to_owned())
    }

    #[derive(Clone, Debug)]
    enum Step {
        Touch(u16),
        /// Inserts this many new keys.
        Flood(u16),
        Advance(u64),
        EvictAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..200_u16).prop_map(Step::Touch),
            1 => (200..600_u16).prop_map(Step::Flood),
            3 => (0..8_u64).prop_map(Step::Advance),
            1 => Just(Step::EvictAll),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn finds_each_key_until_it_is_idle(
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let registry = registry(&[("idle_after", "10s"), ("shards", "2")]);
            let mut used: BTreeMap<String, Timestamp> = BTreeMap::new();
            let mut now = Timestamp::ZERO;
            for step in steps {
                match step {
                    Step::Touch(number) => {
                        touch(&registry, &key(number), now);
                        used.insert(key(number), now);
                    }
                    Step::Flood(count) => for number in 200..count {
                        touch(&registry, &key(number), now);
                        used.insert(key(number), now);
                    },
                    Step::Advance(secs) => now = now + Duration::from_secs(secs),
                    Step::EvictAll => {
                        evict_all(&registry, now);
                        used.retain(|_, used| now.since(*used) < Duration::from_secs(10));
                        prop_assert_eq!(registry.len(), used.len());
                    }
                }
                for (key, used) in &used {
                    let found = key_at(&registry, key);
                    let is_idle = now.since(*used) >= Duration::from_secs(10);
                    prop_assert!(found.as_deref() == Some(key) || found.is_none() && is_idle);
                }
            }
            prop_assert_eq!(key_at(&registry, "never used"), None);
        }
    }

    #[test]
    fn evicting_keys_releases_memory() {
        let registry = registry(&[("idle_after", "10s"), ("shards", "1")]);
        for number in 0..20_000 {
            touch(&registry, &key(number), Timestamp::ZERO);
        }
        let later = Timestamp::from_secs(10);
        let kept = touch(&registry, "kept", later);
        evict_all(&registry, later);
        assert_eq!(registry.len(), 1);
        assert_eq!(
            registry.find("kept").map(|(_, location)| location),
            Some(kept)
        );
        let text = registry.lock(0).room();
        assert!(text < 8192, "{text} bytes of text");
    }

    #[test]
    fn keys_used_once_do_not_accumulate() {
        let registry = registry(&[("idle_after", "10s"), ("shards", "1")]);
        let mut now = Timestamp::ZERO;
        for number in 0..10_000 {
            now = now + Duration::from_millis(100);
            touch(&registry, &format!("{number}"), now);
        }
        // A hundred keys are not idle yet, and each insertion checks two slots.
        assert!(registry.len() <= 250, "{}", registry.len());
    }
}
