//! Decision trails of the last requests, by their ids.
//!
//! Every worker writes into a ring of its own. An id says which worker's it is and which place in
//! its ring, so that a trail is found without an index; the random part keeps ids of one process
//! from naming requests of another.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::time::Timestamp;
use tidegate::call::Trail;

use crate::metrics::RequestOutcome;

/// Decision trails of the last requests.
#[derive(Debug)]
pub struct RequestTrails {
    salt: u32,
    rings: Box<[Ring]>,
}

#[derive(Debug)]
struct Ring {
    next: AtomicU64,
    /// Grows up to `capacity`. Requests end in another order than they begin in, so slots may be
    /// empty for a while.
    slots: Mutex<Vec<Option<RequestTrail>>>,
    capacity: usize,
}

/// The decision trail of one request. Nothing of what it carried, and no address.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTrail {
    /// Its id.
    pub id: RequestId,
    /// When it arrived.
    pub at: Timestamp,
    /// Its route; empty if there is none.
    pub route: Arc<str>,
    /// Its method.
    pub method: http::Method,
    /// The status it was answered with.
    pub status: u16,
    /// The endpoint that responded, if one did.
    pub endpoint: Option<Arc<str>>,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// How often it was sent.
    pub sent: u32,
    /// Every decision.
    pub decisions: Trail,
}

/// The id of a request, in headers, logs and problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    salt: u32,
    worker: u16,
    number: u64,
}

impl RequestTrails {
    /// Room for `capacity` trails in all.
    pub fn new(workers: usize, capacity: u32) -> Self {
        let workers = workers.max(1);
        let each = (capacity as usize).div_ceil(workers);
        let ring = |_| Ring {
            next: AtomicU64::new(0),
            slots: Mutex::new(Vec::new()),
            capacity: each,
        };
        Self {
            // The hasher of the standard library is seeded by the system.
            salt: u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(0),
            rings: (0..workers).map(ring).collect(),
        }
    }

    /// What the ids of this process begin with.
    pub fn process(&self) -> u32 {
        self.salt
    }

    /// An id for a new request of this worker.
    pub fn new_id(&self, worker: usize) -> RequestId {
        RequestId {
            salt: self.salt,
            worker: u16::try_from(worker).unwrap_or(u16::MAX),
            number: self.rings[worker].next.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Records a trail in place of the oldest.
    pub fn record(&self, trail: RequestTrail) {
        let Some(ring) = self.rings.get(usize::from(trail.id.worker)) else {
            return;
        };
        let Some(slot) = ring.slot(trail.id.number) else {
            return;
        };
        let mut slots = ring.lock();
        if slots.len() <= slot {
            slots.resize_with(slot + 1, || None);
        }
        // The request that began later stays, even if it ended first.
        let newest = slots[slot].as_ref().map(|old| old.id.number);
        if newest.is_none_or(|number| number < trail.id.number) {
            slots[slot] = Some(trail);
        }
    }

    /// The trail of a request, if it is still known.
    pub fn find(&self, id: RequestId) -> Option<RequestTrail> {
        let ring = self.rings.get(usize::from(id.worker))?;
        let slots = ring.lock();
        let trail = slots.get(ring.slot(id.number)?)?.as_ref();
        trail.filter(|trail| trail.id == id).cloned()
    }
}

impl RequestTrails {
    /// Trails that match, at most `limit`, newest first.
    pub fn recent(
        &self,
        limit: usize,
        matches: impl Fn(&RequestTrail) -> bool,
    ) -> Vec<RequestTrail> {
        let mut found = Vec::new();
        for ring in &self.rings {
            let of_ring = found.len();
            let mut number = ring.next.load(Ordering::Relaxed);
            let oldest = number.saturating_sub(ring.capacity as u64);
            while number > oldest && found.len() - of_ring < limit {
                // A worker waits for a few of them only.
                let slots = ring.lock();
                let first = number.saturating_sub(TRAILS_PER_LOCK).max(oldest);
                for number in (first..number).rev() {
                    let slot = ring.slot(number).and_then(|slot| slots.get(slot)?.as_ref());
                    let trail = slot.filter(|trail| trail.id.number == number && matches(trail));
                    found.extend(trail.filter(|_| found.len() - of_ring < limit).cloned());
                }
                number = first;
            }
        }
        found.sort_by_key(|trail| std::cmp::Reverse(trail.at));
        found.truncate(limit);
        found
    }
}

/// Trails that are looked at under one lock.
const TRAILS_PER_LOCK: u64 = 64;

impl Ring {
    fn slot(&self, number: u64) -> Option<usize> {
        let slot = number.checked_rem(self.capacity as u64)?;
        usize::try_from(slot).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<RequestTrail>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestId {
    /// As a number.
    pub(crate) fn bits(&self) -> u128 {
        let bits = u128::from(self.salt) << 64 | u128::from(self.worker) << 48;
        bits | u128::from(self.number & 0xffff_ffff_ffff)
    }

    /// As it is written. Every response carries it, so this avoids the formatting machinery.
    pub fn digits(&self) -> [u8; 24] {
        let bits = self.bits();
        std::array::from_fn(|place| {
            let digit = bits >> (4 * (23 - place)) & 0xf;
            b"0123456789abcdef"[digit as usize]
        })
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:08x}{:04x}{:012x}",
            self.salt, self.worker, self.number
        )
    }
}

/// A text that is not the id of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the id of a request: 24 digits of 0-9 and a-f")]
pub struct InvalidRequestId;

impl FromStr for RequestId {
    type Err = InvalidRequestId;

    fn from_str(text: &str) -> Result<Self, InvalidRequestId> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.len() != 24 || !is_hex {
            return Err(InvalidRequestId);
        }
        let part = |range| u64::from_str_radix(&text[range], 16).map_err(|_| InvalidRequestId);
        Ok(Self {
            salt: u32::try_from(part(0..8)?).map_err(|_| InvalidRequestId)?,
            worker: u16::try_from(part(8..12)?).map_err(|_| InvalidRequestId)?,
            number: part(12..24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(id: RequestId) -> RequestTrail {
        RequestTrail {
            id,
            at: Timestamp::ZERO,
            route: "llm".into(),
            method: http::Method::GET,
            status: 200,
            endpoint: None,
            outcome: RequestOutcome::Success,
            sent: 1,
            decisions: Trail::default(),
        }
    }

    #[test]
    fn parses_ids_as_they_are_displayed() {
        let trails = RequestTrails::new(3, 10);
        for id in [trails.new_id(0), trails.new_id(2), trails.new_id(2)] {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().as_bytes(), id.digits());
        }
        for wrong in [
            "",
            "xyz",
            "00000000000000000000000g",
            "0000000000000000000000000",
        ] {
            assert_eq!(wrong.parse::<RequestId>(), Err(InvalidRequestId));
        }
    }

    #[test]
    fn finds_the_last_trails() {
        let trails = RequestTrails::new(2, 10);
        let ids: Vec<RequestId> = (0..12).map(|_| trails.new_id(1)).collect();
        // Requests do not end in the order they began in.
        for id in ids.iter().rev() {
            trails.record(trail(*id));
        }
        let found: Vec<bool> = ids.iter().map(|id| trails.find(*id).is_some()).collect();
        assert_eq!(found.iter().filter(|found| **found).count(), 5);
        assert_eq!(trails.find(trails.new_id(0)), None);
    }

    #[test]
    fn lists_the_newest_that_match_of_all_workers() {
        let trails = RequestTrails::new(2, 400);
        for number in 0..300_u64 {
            let id = trails.new_id(usize::try_from(number % 2).unwrap());
            trails.record(RequestTrail {
                at: Timestamp::ZERO + std::time::Duration::from_secs(number),
                status: if number % 3 == 0 { 429 } else { 200 },
                ..trail(id)
            });
        }
        let found = trails.recent(4, |trail| trail.status == 429);
        let at: Vec<u64> = found
            .iter()
            .map(|trail| trail.at.since(Timestamp::ZERO).as_secs())
            .collect();
        assert_eq!(at, [297, 294, 291, 288]);
        assert_eq!(trails.recent(1000, |_| true).len(), 300);
        assert!(trails.recent(9, |_| false).is_empty());
        assert!(RequestTrails::new(1, 0).recent(9, |_| true).is_empty());
    }

    #[test]
    fn records_nothing_with_capacity_zero() {
        let trails = RequestTrails::new(1, 0);
        let id = trails.new_id(0);
        trails.record(trail(id));
        assert_eq!(trails.find(id), None);
    }
}
