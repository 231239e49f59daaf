//! The hash of a key.
//!
//! Keys may come from outside, so the hash is seeded: without the seed an attacker cannot choose
//! keys that collide. The standard library's hasher is seeded too, but takes longer than everything
//! else in an ask.

use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

#[derive(Debug)]
pub(crate) struct KeyHash(RapidSecrets);

impl KeyHash {
    /// Creates a hasher with a random seed.
    pub(crate) fn random() -> Self {
        Self(RapidSecrets::seed(RandomState::new().hash_one(0)))
    }

    #[inline]
    pub(crate) fn hash(&self, key: &str) -> u64 {
        rapidhash_v3_seeded(key.as_bytes(), &self.0)
    }
}
