//! Gates in chunks, addressed by `u32` indexes.
//!
//! A chunk never moves, so growing copies nothing. Empty chunks are freed, which releases memory
//! after a flood of keys. A chunk has 64 slots, so that one word holds its occupancy bitmap.

use policy::gate::Gate;
use policy::hosts::HostIndex;

use super::text::TextRef;

/// A gate and its key: four cache lines. A lookup and a granted ask touch only the first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(super) key: TextRef,
    pub(super) settings: HostIndex,
    pub(super) gate: Gate,
}

/// Index of a slot.
pub(crate) type SlotIndex = u32;

#[derive(Debug, Default)]
pub(super) struct Slab {
    chunks: Vec<Chunk>,
    /// No chunk before this one has a free slot.
    first_with_room: usize,
    len: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Occupancy bitmap.
    taken: u64,
    /// `None` while all slots are free.
    slots: Option<Box<[Option<Slot>; CHUNK]>>,
}

impl Slab {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn get(&self, index: SlotIndex) -> Option<&Slot> {
        let (chunk, slot) = position(index);
        self.chunks.get(chunk)?.slots.as_ref()?[slot].as_ref()
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: SlotIndex) -> Option<&mut Slot> {
        let (chunk, slot) = position(index);
        self.chunks.get_mut(chunk)?.slots.as_mut()?[slot].as_mut()
    }

    pub(super) fn insert(&mut self, slot: Slot) -> SlotIndex {
        let number = self.chunk_with_room();
        let chunk = &mut self.chunks[number];
        let free = chunk.taken.trailing_ones() as usize;
        chunk.taken |= 1 << free;
        let empty = || Box::new([const { None }; CHUNK]);
        chunk.slots.get_or_insert_with(empty)[free] = Some(slot);
        self.len += 1;
        to_index(number * CHUNK + free)
    }

    pub(super) fn remove(&mut self, index: SlotIndex) -> Option<Slot> {
        let (number, free) = position(index);
        let chunk = self.chunks.get_mut(number)?;
        let slot = chunk.slots.as_mut()?[free].take()?;
        chunk.taken &= !(1 << free);
        if chunk.taken == 0 {
            chunk.slots = None;
        }
        self.len -= 1;
        self.first_with_room = self.first_with_room.min(number);
        while self.chunks.last().is_some_and(|chunk| chunk.taken == 0) {
            self.chunks.pop();
        }
        Some(slot)
    }

    /// The first occupied slot at or after `from`.
    pub(super) fn next(&self, from: SlotIndex) -> Option<(SlotIndex, &Slot)> {
        let (mut number, mut bit) = position(from);
        while let Some(chunk) = self.chunks.get(number) {
            let left = chunk.taken & (u64::MAX << bit);
            if left != 0 {
                let index = to_index(number * CHUNK + left.trailing_zeros() as usize);
                return self.get(index).map(|slot| (index, slot));
            }
            number += 1;
            bit = 0;
        }
        None
    }

    fn chunk_with_room(&mut self) -> usize {
        let chunks = self.chunks.iter().enumerate();
        let mut with_room = chunks
            .skip(self.first_with_room)
            .filter(|(_, chunk)| chunk.taken != u64::MAX);
        let number = with_room
            .next()
            .map_or(self.chunks.len(), |(number, _)| number);
        if number == self.chunks.len() {
            self.chunks.push(Chunk::default());
        }
        self.first_with_room = number;
        number
    }
}

/// One slot per bit of the bitmap.
const CHUNK: usize = u64::BITS as usize;

#[inline(always)]
fn position(index: SlotIndex) -> (usize, usize) {
    let index = index as usize;
    (index / CHUNK, index % CHUNK)
}

fn to_index(index: usize) -> SlotIndex {
    SlotIndex::try_from(index).expect("gates are bounded far below 2^32")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use policy::gate::GateSettings;
    use policy::hosts::Hosts;
    use policy::time::Timestamp;
    use proptest::prelude::*;

    use super::super::text::Text;
    use super::*;

    /// A slot that is distinguishable by the position of its key.
    fn slot(text: &mut Text) -> Slot {
        let hosts = Hosts::new(());
        Slot {
            key: text.insert("k").expect("there is room"),
            settings: hosts.index_for(""),
            gate: Gate::new(&GateSettings::default(), Timestamp::ZERO),
        }
    }

    #[test]
    fn gate_takes_as_much_memory_as_the_documentation_says() {
        assert_eq!(size_of::<Option<Slot>>(), 256);
        assert_eq!(std::mem::offset_of!(Slot, gate), 8);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8),
        Remove(SlotIndex),
        Next(SlotIndex),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => (1..80_u8).prop_map(Step::Insert),
            40 => (0..300_u32).prop_map(Step::Remove),
            5 => (0..300_u32).prop_map(Step::Next),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn behaves_like_a_map_that_reuses_the_lowest_free_index(
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let (mut slab, mut text) = (Slab::default(), Text::default());
            let mut model: BTreeMap<SlotIndex, TextRef> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(count) => for _ in 0..count {
                        let slot = slot(&mut text);
                        let key = slot.key;
                        let index = slab.insert(slot);
                        let free = (0..).find(|index| !model.contains_key(index));
                        prop_assert_eq!(Some(index), free);
                        model.insert(index, key);
                    },
                    Step::Remove(index) => {
                        let removed = slab.remove(index).map(|slot| slot.key);
                        prop_assert_eq!(removed, model.remove(&index));
                    }
                    Step::Next(from) => {
                        let next = slab.next(from).map(|(index, slot)| (index, slot.key));
                        let expected = model.range(from..).next();
                        prop_assert_eq!(next, expected.map(|(index, key)| (*index, *key)));
                    }
                }
                prop_assert_eq!(slab.len(), model.len());
            }
            for (index, key) in &model {
                prop_assert_eq!(slab.get(*index).map(|slot| slot.key), Some(*key));
            }
        }
    }

    fn with_slots(slab: &Slab) -> usize {
        let chunks = slab.chunks.iter();
        chunks.filter(|chunk| chunk.slots.is_some()).count()
    }

    #[test]
    fn frees_empty_chunks() {
        let (mut slab, mut text) = (Slab::default(), Text::default());
        for _ in 0..10 * CHUNK {
            slab.insert(slot(&mut text));
        }
        assert_eq!(with_slots(&slab), 10);
        let one_in_the_middle = to_index(5 * CHUNK + 7);
        for index in 0..to_index(10 * CHUNK) {
            if index != one_in_the_middle {
                slab.remove(index);
            }
        }
        assert_eq!(with_slots(&slab), 1);
        assert_eq!(slab.chunks.len(), 6, "nothing is kept behind the last");
        slab.remove(one_in_the_middle);
        assert!(slab.chunks.is_empty());
        assert_eq!(slab.insert(slot(&mut text)), 0);
    }
}
