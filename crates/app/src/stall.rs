//! A write timeout for connections.
//!
//! A peer that stops reading fills the buffers between, and the writer waits, with a place in flight,
//! a body in memory and a connection on the other side. Timeouts of bodies do not notice, because a
//! body is not polled meanwhile. So the connection has a timeout: a write without progress for too
//! long is an error.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::descriptors::UpstreamDescriptor;

/// A connection whose writes time out.
#[derive(Debug)]
pub(crate) struct WriteTimeout<T> {
    inner: T,
    timeout: Duration,
    /// Made when a write has to wait, which most do not.
    stall: Option<Pin<Box<Sleep>>>,
    _descriptor: Option<UpstreamDescriptor>,
}

impl<T> WriteTimeout<T> {
    /// A write that makes no progress for `timeout` fails.
    pub(crate) fn new(inner: T, timeout: Duration) -> Self {
        Self {
            inner,
            timeout,
            stall: None,
            _descriptor: None,
        }
    }

    /// The same connection, to an upstream: it uses this descriptor.
    pub(crate) fn holding(self, descriptor: UpstreamDescriptor) -> Self {
        Self {
            _descriptor: Some(descriptor),
            ..self
        }
    }

    fn watch<R>(
        &mut self,
        written: Poll<io::Result<R>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let timeout = self.timeout;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let inner = Pin::new(&mut self.inner);
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = match slices {
            [bytes] => inner.poll_write(context, bytes),
            _ if length <= MAX_COPIED => {
                let mut copied = [0; MAX_COPIED];
                inner.poll_write(context, copy(slices, &mut copied))
            }
            _ => inner.poll_write_vectored(context, slices),
        };
        self.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(shut, context)
    }
}

/// A head with a short body. To copy it takes less time than a vectored write takes more than one of
/// a single buffer.
const MAX_COPIED: usize = 1024;

/// Copies all bytes to one buffer, in which there is room for them.
fn copy<'a>(slices: &[IoSlice<'_>], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut length = 0;
    for slice in slices {
        let end = length + slice.len();
        buffer[length..end].copy_from_slice(slice);
        length = end;
    }
    &buffer[..length]
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[test]
    fn tolerates_slow_readers_and_times_out_stalled_ones() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let (near, mut far) = duplex(1);
            let mut near = WriteTimeout::new(near, Duration::from_secs(10));
            let reading = async {
                for _ in 0..3 {
                    sleep(Duration::from_secs(9)).await;
                    far.read_u8().await.unwrap();
                }
                far
            };
            let (written, _far) = tokio::join!(near.write_all(b"abc"), reading);
            written.unwrap();
            near.write_all(b"d").await.unwrap();
            let stalled = near.write_all(b"e").await;
            assert_eq!(stalled.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
