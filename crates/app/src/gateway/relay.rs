//! Passes bytes both ways between a client and a server, unread: after `CONNECT`, and after a 101.
//!
//! A relay ends with its connections. If one side says that it sends no more, the other may go on. If no
//! byte moves in either direction for the idle timeout, both are closed; they would otherwise last for
//! as long as two peers that died silently.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tidegate::InFlight;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use super::serving::{ClientUpgrade, Serving};
use super::worker::Worker;

/// Relays in a task of its own once the client has its response. Until the end the connection is open
/// and served, and the request in flight.
pub(super) fn spawn<T>(
    worker: &Worker,
    serving: &Serving,
    client: ClientUpgrade,
    server: T,
    in_flight: Option<InFlight>,
    idle: Duration,
) where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let ends_with_it = (in_flight, serving.hold(), worker.count_connection());
    tokio::spawn(async move {
        // Otherwise the client has disconnected before it had the response.
        match client {
            ClientUpgrade::Http1(ticket) => {
                if let Some(client) = ticket.responded().await {
                    relay(client, server, idle).await;
                }
            }
            ClientUpgrade::Http2(stream) => {
                if let Ok(client) = stream.await {
                    relay(TokioIo::new(client), server, idle).await;
                }
            }
        }
        drop(ends_with_it);
    });
}

/// As much as is in memory for each direction.
const BUFFER: usize = 8 << 10;

/// Passes bytes both ways until both sides are done, one breaks off, or none has moved for `idle`, and
/// at most twice as long.
async fn relay<A, B>(client: A, server: B, idle: Duration)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moved = AtomicU64::new(0);
    let mut client = Counted {
        inner: client,
        moved: &moved,
    };
    let mut server = Counted {
        inner: server,
        moved: &moved,
    };
    tokio::select! {
        // An error ends the relay, and both sides see that.
        _ = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER) => {}
        () = silence(&moved, idle) => {}
    }
}

async fn silence(moved: &AtomicU64, idle: Duration) {
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::time::sleep(idle).await;
        if moved.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// One side, whose bytes are counted. Those written count too: a peer that reads slowly may take longer
/// than `idle` for what is in a buffer.
struct Counted<'a, T> {
    inner: T,
    moved: &'a AtomicU64,
}

impl<T> Counted<'_, T> {
    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.count(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.count(written);
        Poll::Ready(Ok(written))
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
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    /// A relay between two peers, which are returned.
    fn start() -> (DuplexStream, DuplexStream, JoinHandle<()>) {
        let ((near, client), (server, far)) = (duplex(64), duplex(64));
        (near, far, tokio::spawn(relay(client, server, IDLE)))
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(test);
    }

    async fn pass(from: &mut DuplexStream, to: &mut DuplexStream) {
        from.write_all(b"ping").await.unwrap();
        let mut read = [0; 4];
        to.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"ping");
    }

    #[test]
    fn ends_when_silent_and_not_while_one_direction_is_used() {
        run(async {
            for is_upstream in [true, false] {
                let (mut near, mut far, relaying) = start();
                // For ten times as long as a silence may be.
                for _ in 0..12 {
                    tokio::time::sleep(Duration::from_secs(50)).await;
                    match is_upstream {
                        true => pass(&mut far, &mut near).await,
                        false => pass(&mut near, &mut far).await,
                    }
                }
                let since = Instant::now();
                relaying.await.unwrap();
                let waited = since.elapsed();
                assert!(waited >= IDLE && waited <= 2 * IDLE, "{waited:?}");
                assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
                assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
            }
        });
    }

    #[test]
    fn a_slow_reader_of_what_was_sent_before_is_no_silence() {
        run(async {
            let (mut near, mut far, relaying) = start();
            // As much as fits into the buffers of both sides; the writer is done at once.
            far.write_all(&[7; 1000]).await.unwrap();
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                near.read_exact(&mut [0; 40]).await.unwrap();
            }
            assert!(!relaying.is_finished());
        });
    }

    #[test]
    fn one_side_may_go_on_when_the_other_has_ended() {
        run(async {
            let (mut near, mut far, relaying) = start();
            near.shutdown().await.unwrap();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
            pass(&mut far, &mut near).await;
            drop(far);
            relaying.await.unwrap();
            assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
        });
    }
}
