//! Gates in chunks, named by small numbers.
//!
//! A chunk never moves, so growing copies nothing, and an empty one is given back whole: after a
//! flood of keys the memory goes with them. Sixty-four slots to a chunk, because one word then
//! says which of them are taken.

use policy::gate::Gate;
use policy::hosts::HostIndex;

use super::text::TextRef;

/// What the registry keeps for one key: 256 bytes, four cache lines. A lookup and an ask that is
/// granted touch the first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(super) key: TextRef,
    pub(super) settings: HostIndex,
    pub(super) gate: Gate,
}

/// Names a slot.
pub(crate) type SlotIndex = u32;

#[derive(Debug, Default)]
pub(super) struct Slab {
    chunks: Vec<Option<Chunk>>,
    /// No chunk before this one has room.
    first_with_room: usize,
    len: usize,
}

#[derive(Debug)]
struct Chunk {
    /// A bit for each slot that is taken.
    taken: u64,
    slots: Box<[Option<Slot>]>,
}

impl Slab {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, index: SlotIndex) -> Option<&Slot> {
        let (chunk, slot) = position(index);
        self.chunks.get(chunk)?.as_ref()?.slots.get(slot)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: SlotIndex) -> Option<&mut Slot> {
        let (chunk, slot) = position(index);
        let chunk = self.chunks.get_mut(chunk)?.as_mut()?;
        chunk.slots.get_mut(slot)?.as_mut()
    }

    pub(super) fn insert(&mut self, slot: Slot) -> SlotIndex {
        let number = self.chunk_with_room();
        let chunk = self.chunks[number].get_or_insert_with(Chunk::new);
        let free = chunk.taken.trailing_ones() as usize;
        chunk.taken |= 1 << free;
        chunk.slots[free] = Some(slot);
        self.len += 1;
        to_index(number * CHUNK + free)
    }

    pub(super) fn remove(&mut self, index: SlotIndex) -> Option<Slot> {
        let (number, free) = position(index);
        let place = self.chunks.get_mut(number)?;
        let chunk = place.as_mut()?;
        let slot = chunk.slots.get_mut(free)?.take()?;
        chunk.taken &= !(1 << free);
        if chunk.taken == 0 {
            *place = None;
        }
        self.len -= 1;
        self.first_with_room = self.first_with_room.min(number);
        while matches!(self.chunks.last(), Some(None)) {
            self.chunks.pop();
        }
        Some(slot)
    }

    /// The next slot at or after `from` that is taken.
    pub(super) fn next(&self, from: SlotIndex) -> Option<(SlotIndex, &Slot)> {
        let (mut number, mut bit) = position(from);
        while let Some(place) = self.chunks.get(number) {
            let taken = place.as_ref().map_or(0, |chunk| chunk.taken);
            let left = taken & (u64::MAX << bit);
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
        let has_room =
            |place: &Option<Chunk>| place.as_ref().is_none_or(|chunk| chunk.taken != u64::MAX);
        let places = self.chunks.iter().enumerate();
        let found = places
            .skip(self.first_with_room)
            .find(|(_, place)| has_room(place));
        let number = found.map_or(self.chunks.len(), |(number, _)| number);
        if number == self.chunks.len() {
            self.chunks.push(None);
        }
        self.first_with_room = number;
        number
    }
}

impl Chunk {
    fn new() -> Self {
        let slots = std::iter::repeat_with(|| None).take(CHUNK).collect();
        Self { taken: 0, slots }
    }
}

/// As many as a word has bits.
const CHUNK: usize = u64::BITS as usize;

#[inline]
fn position(index: SlotIndex) -> (usize, usize) {
    let index = index as usize;
    (index / CHUNK, index % CHUNK)
}

fn to_index(index: usize) -> SlotIndex {
    SlotIndex::try_from(index).expect("gates are bounded far below 2^32")
}
