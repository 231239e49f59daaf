//! Transfers that are too slow: a clock for each, and a write timeout for connections.
//!
//! A peer that stops reading fills the buffers between, and the writer waits, with a place in flight,
//! a body in memory and a connection on the other side. Timeouts of bodies do not notice, because a
//! body is not polled meanwhile. So the connection has a timeout. One that starts anew with every byte
//! would let a peer take a byte a minute for ever: here a byte adds only the time that it may take at
//! the lowest rate.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::descriptors::UpstreamDescriptor;
use crate::settings::ByteRate;

/// Watches one transfer: how long it may still wait for its peer. Waiting uses that time up, and bytes
/// add to it what they may take at the lowest rate.
#[derive(Debug)]
pub(crate) struct RateWatch {
    rate: ByteRate,
    /// The longest wait, also for a peer that was fast before.
    longest: Duration,
    left: Duration,
    /// Since when it waits.
    since: Option<Instant>,
    /// Made when it first has to wait, which most do not.
    timer: Option<Pin<Box<Sleep>>>,
}

impl RateWatch {
    /// A transfer at `rate` or above, without a pause longer than `longest`. With a rate of zero every
    /// byte is as good as many.
    pub(crate) fn new(rate: ByteRate, longest: Duration) -> Self {
        Self {
            rate,
            longest,
            left: longest,
            since: None,
            timer: None,
        }
    }

    /// The same, of a peer that has moved nothing yet and may wait no longer than `first` before it does.
    pub(crate) fn with_first_wait(self, first: Duration) -> Self {
        Self {
            left: first.min(self.longest),
            ..self
        }
    }

    /// So many bytes have come or gone.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.pause();
        if self.left < self.longest {
            let added = match self.rate {
                ByteRate(0) => self.longest,
                ByteRate(rate) => Duration::from_nanos(nanoseconds(bytes, rate)),
            };
            self.left = self.left.saturating_add(added).min(self.longest);
        }
    }

    /// What follows is no wait for the peer.
    pub(crate) fn pause(&mut self) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
    }

    /// It waits for its peer. Ready when it has waited for too long.
    pub(crate) fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_new = self.since.is_none();
        let since = *self.since.get_or_insert_with(Instant::now);
        let end = since + self.left;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if is_new && timer.deadline() != end {
            timer.as_mut().reset(end);
        }
        timer.as_mut().poll(context)
    }
}

/// How long so many bytes take at `rate`.
fn nanoseconds(bytes: usize, rate: u64) -> u64 {
    (bytes as u64).saturating_mul(1_000_000_000) / rate
}

/// A connection whose writes time out.
#[derive(Debug)]
pub(crate) struct WriteTimeout<T> {
    inner: T,
    watch: RateWatch,
    _descriptor: Option<UpstreamDescriptor>,
}

impl<T> WriteTimeout<T> {
    /// A write that makes no progress for `timeout` fails, or one that goes on more slowly than
    /// `rate`.
    pub(crate) fn new(inner: T, rate: ByteRate, timeout: Duration) -> Self {
        Self {
            inner,
            watch: RateWatch::new(rate, timeout),
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

    pub(crate) fn get_ref(&self) -> &T {
        &self.inner
    }

    fn watch(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(length)) => self.watch.moved(length),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                ready!(self.watch.poll_expired(context));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
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
        let written = inner.poll_write_vectored(context, slices);
        self.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    /// Virtual time: nothing is slept.
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(test);
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Writes so many bytes to a peer that reads one after each pause.
    async fn write(rate: u64, pause: Duration, count: usize) -> io::Result<DuplexStream> {
        let (near, mut far) = duplex(1);
        let mut near = WriteTimeout::new(near, ByteRate(rate), 10 * SECOND);
        let reading = async {
            for _ in 0..count {
                sleep(pause).await;
                if far.read_u8().await.is_err() {
                    break;
                }
            }
            far
        };
        let bytes = vec![b'x'; count];
        let writing = async {
            let written = near.write_all(&bytes).await;
            drop(near);
            written
        };
        let (written, far) = tokio::join!(writing, reading);
        written.map(|()| far)
    }

    #[test]
    fn tolerates_slow_readers_and_times_out_stalled_ones() {
        run(async {
            write(0, 9 * SECOND, 100).await.unwrap();
            let stalled = write(0, 11 * SECOND, 3).await.unwrap_err();
            assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn times_out_readers_below_the_lowest_rate() {
        run(async {
            // A byte every half second, as demanded, and one every two seconds.
            write(2, SECOND / 2, 1000).await.unwrap();
            let since = Instant::now();
            let slow = write(2, 2 * SECOND, 1000).await.unwrap_err();
            assert_eq!(slow.kind(), io::ErrorKind::TimedOut);
            let waited = since.elapsed();
            assert!((10..20).contains(&waited.as_secs()), "{waited:?}");
        });
    }

    #[test]
    fn waits_less_for_peers_that_have_moved_nothing() {
        run(async {
            let watch = RateWatch::new(ByteRate(10), 10 * SECOND);
            let mut watch = watch.with_first_wait(SECOND);
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(watch.poll_expired(&mut context).is_pending());
            watch.moved(50);
            assert!(watch.poll_expired(&mut context).is_pending());
            sleep(5 * SECOND).await;
            assert!(watch.poll_expired(&mut context).is_pending());
            sleep(2 * SECOND).await;
            assert!(watch.poll_expired(&mut context).is_ready());
        });
    }

    #[test]
    fn time_that_is_no_wait_for_the_peer_does_not_count() {
        run(async {
            let mut watch = RateWatch::new(ByteRate(1), 10 * SECOND);
            let mut context = Context::from_waker(std::task::Waker::noop());
            for _ in 0..100 {
                assert!(watch.poll_expired(&mut context).is_pending());
                watch.pause();
                sleep(9 * SECOND).await;
            }
            assert!(watch.poll_expired(&mut context).is_pending());
            sleep(11 * SECOND).await;
            assert!(watch.poll_expired(&mut context).is_ready());
        });
    }
}
