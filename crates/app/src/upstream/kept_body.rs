//! What is kept of a request's body for sending it again.
//!
//! A piece that was read is a slice of the buffer that it was read into, and keeps all of that in
//! memory: thousands of pieces of a few bytes each would keep thousands of buffers. So short pieces are
//! copied to blocks of our own; only long ones are kept as they are.

use bytes::{Bytes, BytesMut};

/// Pieces of a body, in memory that is in proportion to their length.
#[derive(Debug, Default)]
pub(super) struct KeptBody {
    blocks: Vec<Bytes>,
    /// Short pieces, which become a block.
    tail: BytesMut,
}

/// A short piece may be a slice of a longer read, of up to 32 KiB over HTTP/1; hyper's reads of HTTP/2
/// begin with 8 KiB.
const MIN_PIECE: usize = 4 << 10;

/// A block of short pieces. The first few bytes do not take as much: it grows.
const MAX_BLOCK: usize = 64 << 10;

impl KeptBody {
    /// Keeps this piece as well.
    pub(super) fn push(&mut self, piece: &Bytes) {
        let is_first = self.blocks.is_empty() && self.tail.is_empty();
        // Most bodies have one piece, and are not copied.
        if is_first || piece.len() >= MIN_PIECE {
            self.end_block();
            self.blocks.push(piece.clone());
            return;
        }
        if self.tail.len() + piece.len() > MAX_BLOCK {
            self.end_block();
        }
        self.tail.extend_from_slice(piece);
    }

    /// Makes everything so far readable as blocks.
    pub(super) fn end_block(&mut self) {
        if !self.tail.is_empty() {
            self.blocks.push(std::mem::take(&mut self.tail).freeze());
        }
    }

    /// A block that was ended, by its number.
    pub(super) fn block(&self, number: usize) -> Option<&Bytes> {
        self.blocks.get(number)
    }

    /// How many blocks were ended.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A buffer that counts itself as long as something keeps it.
    struct Counted(Vec<u8>, Arc<AtomicUsize>);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Keeps pieces of these lengths, each from a buffer of its own. Returns the blocks, and how many of
    /// the buffers are kept.
    fn keep(lengths: &[usize]) -> (KeptBody, usize) {
        let buffers = Arc::new(AtomicUsize::new(0));
        let mut kept = KeptBody::default();
        for (number, length) in lengths.iter().enumerate() {
            buffers.fetch_add(1, Ordering::Relaxed);
            let bytes = vec![u8::try_from(number % 251).unwrap(); *length];
            kept.push(&Bytes::from_owner(Counted(bytes, Arc::clone(&buffers))));
        }
        kept.end_block();
        (kept, buffers.load(Ordering::Relaxed))
    }

    #[test]
    fn short_pieces_keep_no_buffers_of_others() {
        let (kept, buffers) = keep(&[16; 10_000]);
        assert_eq!(buffers, 1);
        assert_eq!(kept.blocks(), 1 + (9_999 * 16_usize).div_ceil(MAX_BLOCK));
        let (kept, buffers) = keep(&[16, MIN_PIECE, 16, MIN_PIECE]);
        assert_eq!((kept.blocks(), buffers), (4, 3));
    }

    #[test]
    fn blocks_are_the_pieces_in_their_order() {
        let lengths = [5, 1, MAX_BLOCK - 1, 1, 1, MIN_PIECE, 1, 2, 0, MIN_PIECE - 1];
        let (kept, _) = keep(&lengths);
        let mut expected = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            expected.resize(expected.len() + length, u8::try_from(number).unwrap());
        }
        let blocks: Vec<u8> = (0..kept.blocks())
            .flat_map(|number| kept.block(number).unwrap().to_vec())
            .collect();
        assert_eq!(blocks, expected);
        assert_eq!(kept.block(kept.blocks()), None);
    }
}
