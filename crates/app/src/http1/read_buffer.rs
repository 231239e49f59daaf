//! Reads from a connection, without memory that lasts between two reads.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Reads what has come. Of a short message it is read to the stack and copied from there: that takes
/// less time than to allocate a buffer in which a long one has room.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffer {
    /// Where long bodies are read to.
    long: BytesMut,
    /// More came with the last read than a short one takes.
    reads_more: bool,
}

/// As much as is read at once to the stack.
const SHORT_READ: usize = 4 << 10;

/// The same on a connection whose last message was longer.
const MEDIUM_READ: usize = 32 << 10;

/// From here on a body is read to memory of its own, without a copy.
const LONG: u64 = 8 << 10;

/// As much as is read at once then: so much of a body is in memory for a peer that does not read.
const MAX_LONG_READ: usize = 32 << 10;

impl ReadBuffer {
    /// Reads what has come; nothing at the end. The next `run` bytes are known to be data of a body.
    pub(crate) fn poll_read<T: AsyncRead + Unpin + ?Sized>(
        &mut self,
        io: &mut T,
        run: u64,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Bytes>> {
        if run >= LONG {
            return self.poll_read_long(io, run, context);
        }
        let read = match self.reads_more {
            false => poll_read_by::<SHORT_READ, T>(io, context),
            true => poll_read_by::<MEDIUM_READ, T>(io, context),
        };
        let read = ready!(read)?;
        self.reads_more = read.len() >= SHORT_READ;
        Poll::Ready(Ok(read))
    }

    fn poll_read_long<T: AsyncRead + Unpin + ?Sized>(
        &mut self,
        io: &mut T,
        run: u64,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Bytes>> {
        let room = usize::try_from(run).map_or(MAX_LONG_READ, |run| run.min(MAX_LONG_READ));
        self.long.reserve(room);
        let length = ready!(pin!(io.read_buf(&mut self.long)).poll(context))?;
        // Little must not hold the memory of much while it waits to be passed on.
        if length < room / 2 {
            let copy = Bytes::copy_from_slice(&self.long);
            self.long = BytesMut::new();
            return Poll::Ready(Ok(copy));
        }
        Poll::Ready(Ok(self.long.split().freeze()))
    }

    /// Gives memory back that only long bodies need.
    pub(crate) fn release(&mut self) {
        self.long = BytesMut::new();
    }
}

/// Reads up to `N` bytes. Not inlined, so that other functions need not have the room on their stack.
#[inline(never)]
fn poll_read_by<const N: usize, T: AsyncRead + Unpin + ?Sized>(
    io: &mut T,
    context: &mut Context<'_>,
) -> Poll<io::Result<Bytes>> {
    let mut space = [MaybeUninit::uninit(); N];
    let mut read = ReadBuf::uninit(&mut space);
    ready!(Pin::new(io).poll_read(context, &mut read))?;
    Poll::Ready(Ok(Bytes::copy_from_slice(read.filled())))
}
