//! What is to be written next to a connection: heads, and pieces of bodies.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// What is to be written next. A short piece is copied behind what comes before it, so that a head and a
/// short body are one write of one buffer; a long one is written from where it is.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    /// Heads, sizes of chunks and short pieces. Its memory is used for one message after the other.
    text: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// What follows it: a long piece.
    piece: Bytes,
    /// What follows that: the end of a chunk.
    after: &'static [u8],
    has_written: bool,
}

/// To copy a piece of this length takes less time than a vectored write takes more than one of a single
/// buffer.
const MAX_COPIED: usize = 1024;

/// As much text as waits to be written before no further piece is taken.
const MAX_TEXT: usize = 8 << 10;

/// Memory that a connection holds between messages. Most heads are shorter.
const MAX_KEPT: usize = 1024;

impl WriteBuffer {
    /// Where text is put that is written next. Only if no long piece waits before it.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        debug_assert!(
            self.piece.is_empty(),
            "it would be written before the piece"
        );
        &mut self.text
    }

    /// Adds a piece of a body, and what ends it. Only if no long piece waits before it.
    pub(crate) fn push(&mut self, piece: Bytes, after: &'static [u8]) {
        let text = self.text();
        if piece.len() <= MAX_COPIED {
            text.extend_from_slice(&piece);
            text.extend_from_slice(after);
        } else {
            (self.piece, self.after) = (piece, after);
        }
    }

    /// Has it no room for another piece?
    pub(crate) fn is_full(&self) -> bool {
        !self.piece.is_empty() || !self.after.is_empty() || self.text.len() >= MAX_TEXT
    }

    /// Is there nothing to be written?
    pub(crate) fn is_empty(&self) -> bool {
        self.written == self.text.len() && self.piece.is_empty() && self.after.is_empty()
    }

    /// Was any byte written since the last message began?
    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Begins with another message: nothing of the last one is written any more.
    pub(crate) fn begin(&mut self) {
        self.clear();
        self.has_written = false;
    }

    /// Forgets what is to be written.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(MAX_KEPT);
        (self.written, self.piece, self.after) = (0, Bytes::new(), b"");
    }

    /// Writes everything. Ready when the connection has all of it.
    pub(crate) fn poll_write<T: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        io: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let text = &self.text[self.written..];
            let io = Pin::new(&mut *io);
            let writing = match self.piece.is_empty() && self.after.is_empty() {
                true => io.poll_write(context, text),
                false => {
                    let slices = [text, &self.piece, self.after].map(IoSlice::new);
                    io.poll_write_vectored(context, &slices)
                }
            };
            match ready!(writing)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => self.advance(length),
            }
        }
        Pin::new(io).poll_flush(context)
    }

    fn advance(&mut self, length: usize) {
        self.has_written = true;
        let of_text = length.min(self.text.len() - self.written);
        self.written += of_text;
        let of_piece = (length - of_text).min(self.piece.len());
        self.piece.advance(of_piece);
        self.after = &self.after[length - of_text - of_piece..];
        if self.written == self.text.len() {
            self.text.clear();
            self.written = 0;
        }
    }
}
