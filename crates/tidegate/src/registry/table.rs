//! Maps the hash of a key to its slot.
//!
//! An open-addressing table: one array of `u64`s, each half of a hash and a slot index, probed
//! linearly up to the first empty word. A lookup nearly always touches one cache line, where tables
//! with separate metadata and values touch two, and with a million keys each is a cache miss. The
//! stored half of the hash rejects most other keys without reading their text, and allows resizing
//! and removing without reading any.

use super::slab::SlotIndex;

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Empty, or a power-of-two number of words of which at least a quarter is zero.
    words: Box<[u64]>,
    len: usize,
}

impl Table {
    /// The slot of the key with this hash for which `is_it` returns `true`.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(SlotIndex) -> bool) -> Option<SlotIndex> {
        let mut place = self.home(hash);
        loop {
            let word = *self.words.get(place)?;
            if word == EMPTY {
                return None;
            }
            if is_tagged(word, hash) && is_it(slot(word)) {
                return Some(slot(word));
            }
            place = self.next(place);
        }
    }

    /// Inserts the slot of a key that is not in the table.
    pub(super) fn insert(&mut self, hash: u64, index: SlotIndex) {
        if (self.len + 1) * 4 > self.words.len() * 3 {
            self.resize((self.words.len() * 2).max(MIN_WORDS));
        }
        self.len += 1;
        self.put(word_of(hash, index));
    }

    /// Removes the slot of a key.
    pub(super) fn remove(&mut self, hash: u64, index: SlotIndex) {
        let wanted = word_of(hash, index);
        let mut place = self.home(hash);
        while self.words.get(place).is_some_and(|word| *word != wanted) {
            if self.words[place] == EMPTY {
                return;
            }
            place = self.next(place);
        }
        if self.words.is_empty() {
            return;
        }
        self.len -= 1;
        self.close_gap(place);
        if self.len * 8 < self.words.len() && self.words.len() > MIN_WORDS {
            self.resize(self.words.len() / 2);
        }
    }

    /// Moves words back into the gap at `gap`, so that every probe sequence stays contiguous.
    fn close_gap(&mut self, mut gap: usize) {
        let mut place = gap;
        loop {
            place = self.next(place);
            let word = self.words[place];
            if word == EMPTY {
                break;
            }
            let mask = self.mask();
            let from_home = place.wrapping_sub(self.home(word)) & mask;
            let from_gap = place.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.words[gap] = word;
                gap = place;
            }
        }
        self.words[gap] = EMPTY;
    }

    fn resize(&mut self, size: usize) {
        let words = std::mem::replace(&mut self.words, vec![EMPTY; size].into());
        for word in words {
            if word != EMPTY {
                self.put(word);
            }
        }
    }

    fn put(&mut self, word: u64) {
        let mut place = self.home(word);
        while self.words[place] != EMPTY {
            place = self.next(place);
        }
        self.words[place] = word;
    }

    /// Where probing starts for a hash, or for a word made from it.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.mask()
    }

    #[inline(always)]
    fn next(&self, place: usize) -> usize {
        (place + 1) & self.mask()
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.words.len().wrapping_sub(1)
    }
}

/// An empty word. Stored slots are offset by one.
const EMPTY: u64 = 0;

/// One cache line of words.
const MIN_WORDS: usize = 8;

/// The upper half of the hash, and the slot plus one.
fn word_of(hash: u64, index: SlotIndex) -> u64 {
    hash & TAG | (u64::from(index) + 1)
}

#[inline(always)]
fn is_tagged(word: u64, hash: u64) -> bool {
    (word ^ hash) & TAG == 0
}

const TAG: u64 = 0xffff_ffff_0000_0000;

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn slot(word: u64) -> SlotIndex {
    (word as u32).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Hashes that collide often: few home positions, few tags, some at the end of the array.
    fn hash() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..6,
            Just(7),
            Just(15),
            Just(u64::from(u32::MAX)),
            0_u64..1 << 32
        ]
        .prop_map(|upper| upper << 32 | 0xabcd)
    }

    proptest! {
        #[test]
        fn finds_each_entry_until_it_is_removed(
            steps in prop::collection::vec((hash(), any::<bool>(), any::<prop::sample::Index>()), 1..400),
        ) {
            let mut table = Table::default();
            let mut model: BTreeMap<SlotIndex, u64> = BTreeMap::new();
            let mut named = 0;
            for (hash, adds, which) in steps {
                if adds || model.is_empty() {
                    table.insert(hash, named);
                    model.insert(named, hash);
                    named += 1;
                } else {
                    let (&index, &hash) = model.iter().nth(which.index(model.len())).unwrap();
                    table.remove(hash, index);
                    model.remove(&index);
                }
                prop_assert_eq!(table.len, model.len());
                for (&index, &hash) in &model {
                    prop_assert_eq!(table.find(hash, |slot| slot == index), Some(index));
                }
                let empty = table.words.iter().filter(|word| **word == EMPTY).count();
                prop_assert!(empty * 4 >= table.words.len(), "a search must end");
            }
        }
    }

    #[test]
    fn missing_key_is_neither_found_nor_removed() {
        let mut table = Table::default();
        assert_eq!(table.find(7, |_| true), None);
        table.remove(7, 0);
        table.insert(1 << 32, 4);
        table.remove(1 << 32, 5);
        table.remove(2 << 32, 4);
        assert_eq!(table.find(1 << 32, |_| true), Some(4));
        assert_eq!(
            table.find(9 << 32, |_| true),
            None,
            "same home, different tag"
        );
    }

    #[test]
    fn empty_table_frees_its_memory() {
        let mut table = Table::default();
        for index in 0..10_000 {
            table.insert(u64::from(index) << 32, index);
        }
        assert_eq!(table.words.len(), 16_384);
        for index in 0..10_000 {
            table.remove(u64::from(index) << 32, index);
        }
        assert_eq!(table.words.len(), MIN_WORDS);
    }
}
