//! Decision trails of the last requests, by their ids.
//!
//! Every worker writes into a ring of its own. An id says which worker's it is and which place in
//! its ring, so that a trail is found without an index; the random part keeps ids of one process
//! from naming requests of another.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use policy::time::Timestamp;
use tidegate::call::Trail;

use crate::metrics::RequestOutcome;

/// What was decided about the last requests.
#[derive(Debug)]
pub struct Trails {
    salt: u32,
    rings: Box<[Ring]>,
}

#[derive(Debug)]
struct Ring {
    next: AtomicU64,
    /// Grows up to `most`. Requests end in another order than they begin in, so places may be
    /// empty for a while.
    kept: Mutex<Vec<Option<Told>>>,
    most: usize,
}

/// What is kept of one request. Nothing of what it carried, and no address.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Its id.
    pub id: RequestId,
    /// When it came.
    pub at: Timestamp,
    /// Its route.
    pub route: Box<str>,
    /// Its method.
    pub method: http::Method,
    /// The status it was answered with.
    pub status: u16,
    /// The endpoint that answered, if one did.
    pub endpoint: Option<Box<str>>,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// How often it was sent.
    pub sent: u32,
    /// Every decision.
    pub trail: Trail,
}

/// The name of a request, in headers, logs and problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    salt: u32,
    worker: u16,
    number: u64,
}

impl Trails {
    /// Keeps `most` trails in all.
    pub fn new(workers: usize, most: u32) -> Self {
        let workers = workers.max(1);
        let each = (most as usize).div_ceil(workers);
        let ring = |_| Ring {
            next: AtomicU64::new(0),
            kept: Mutex::new(Vec::new()),
            most: each,
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

    /// A name for a new request of this worker.
    pub fn name(&self, worker: usize) -> RequestId {
        RequestId {
            salt: self.salt,
            worker: u16::try_from(worker).unwrap_or(u16::MAX),
            number: self.rings[worker].next.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Keeps what was decided; the oldest goes for it.
    pub fn keep(&self, told: Told) {
        let Some(ring) = self.rings.get(usize::from(told.id.worker)) else {
            return;
        };
        let Some(place) = ring.place(told.id.number) else {
            return;
        };
        let mut kept = ring.lock();
        if kept.len() <= place {
            kept.resize_with(place + 1, || None);
        }
        // Whoever began later stays, also if it has ended first.
        let newest = kept[place].as_ref().map(|old| old.id.number);
        if newest.is_none_or(|number| number < told.id.number) {
            kept[place] = Some(told);
        }
    }

    /// What was decided about a request, if that is still known.
    pub fn find(&self, id: RequestId) -> Option<Told> {
        let ring = self.rings.get(usize::from(id.worker))?;
        let kept = ring.lock();
        let told = kept.get(ring.place(id.number)?)?.as_ref();
        told.filter(|told| told.id == id).cloned()
    }
}

impl Ring {
    fn place(&self, number: u64) -> Option<usize> {
        let place = number.checked_rem(self.most as u64)?;
        usize::try_from(place).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Told>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestId {
    /// As it is written. Every answer carries it, so this is not left to formatting.
    pub fn digits(&self) -> [u8; 24] {
        let bits = u128::from(self.salt) << 64 | u128::from(self.worker) << 48;
        let bits = bits | u128::from(self.number & 0xffff_ffff_ffff);
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

/// It is no id of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the id of a request: 24 digits of 0-9 and a-f")]
pub struct NoRequestId;

impl FromStr for RequestId {
    type Err = NoRequestId;

    fn from_str(text: &str) -> Result<Self, NoRequestId> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.len() != 24 || !is_hex {
            return Err(NoRequestId);
        }
        let part = |range| u64::from_str_radix(&text[range], 16).map_err(|_| NoRequestId);
        Ok(Self {
            salt: u32::try_from(part(0..8)?).map_err(|_| NoRequestId)?,
            worker: u16::try_from(part(8..12)?).map_err(|_| NoRequestId)?,
            number: part(12..24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(id: RequestId) -> Told {
        Told {
            id,
            at: Timestamp::ZERO,
            route: "llm".into(),
            method: http::Method::GET,
            status: 200,
            endpoint: None,
            outcome: RequestOutcome::Success,
            sent: 1,
            trail: Trail::default(),
        }
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let trails = Trails::new(3, 10);
        for id in [trails.name(0), trails.name(2), trails.name(2)] {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().as_bytes(), id.digits());
        }
        for wrong in [
            "",
            "xyz",
            "00000000000000000000000g",
            "0000000000000000000000000",
        ] {
            assert_eq!(wrong.parse::<RequestId>(), Err(NoRequestId));
        }
    }

    #[test]
    fn the_last_ones_are_kept_and_found() {
        let trails = Trails::new(2, 10);
        let ids: Vec<RequestId> = (0..12).map(|_| trails.name(1)).collect();
        // As requests end: not in the order they began in.
        for id in ids.iter().rev() {
            trails.keep(told(*id));
        }
        let found: Vec<bool> = ids.iter().map(|id| trails.find(*id).is_some()).collect();
        assert_eq!(found.iter().filter(|found| **found).count(), 5);
        assert_eq!(trails.find(trails.name(0)), None);
    }

    #[test]
    fn none_are_kept_where_none_are_wanted() {
        let trails = Trails::new(1, 0);
        let id = trails.name(0);
        trails.keep(told(id));
        assert_eq!(trails.find(id), None);
    }
}
