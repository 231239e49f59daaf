//! The connection of a client, with the responses that hyper would make replaced by ours.
//!
//! What hyper cannot read it refuses by itself, with a bare 400, 414 or 431 that no service sees.
//! Clients of the gateway can rely on a problem document with a reason, so the connection
//! recognises such a response and writes another. It knows one by when it comes: hyper writes
//! although no request is being served and everything written before has been flushed. If a
//! response is still on its way, hyper's own is left as it is.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::framing::FramingScanner;
use super::lent::LentStream;
use super::marked_body::StreamBody;
use crate::stall::WriteTimeout;

/// What the service and the bytes of a connection know of each other.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    requests: AtomicU64,
    /// How many of them are over.
    finished: AtomicU64,
    /// Bytes of bodies that hyper has and the socket has not taken yet.
    unwritten: AtomicUsize,
    /// Wakes the task of the connection when the socket has taken more of them.
    waker: Mutex<Option<Waker>>,
    /// Is the client still there? See [`Serving::client_has_left`].
    client: AtomicU8,
    /// Bodies of responses over HTTP/2 that may not have ended.
    streams: Mutex<Vec<Weak<StreamBody>>>,
    /// Which request has conflicting framing, counted from 1; 0: none.
    conflict: AtomicU64,
    response: AtomicU8,
    /// How many requests were read, if the bytes so far end with the last of them. See
    /// [`ConnectionState::can_rest`].
    read: AtomicU64,
    is_refused: AtomicBool,
    /// Its bytes are those of a tunnel, and no HTTP.
    is_tunnel: AtomicBool,
}

/// Nothing is being served, and everything was flushed.
const IDLE: u8 = 0;
/// A request is being served, up to the end of its response's body.
const SERVING: u8 = 1;
/// hyper has all of a response, and may not have flushed it.
const FLUSHING: u8 = 2;

/// There are bytes behind the last whole request, it is not known where requests end, or the
/// connection is being closed.
const NOT_BETWEEN: u64 = u64::MAX;

/// Requests are those of HTTP/2, of which hyper reads everything that comes.
const ON_HTTP2: u64 = u64::MAX - 1;

/// Whether the client is still connected is not known, and no request needs it.
const UNASKED: u8 = 0;
/// It is asked for.
const ASKED: u8 = 1;
const IS_THERE: u8 = 2;
const HAS_LEFT: u8 = 3;

/// As much of a body as hyper may have unwritten before it gets another piece: with the largest piece,
/// less than 64 KiB for a client that does not read. hyper's own bound is that of heads as well, and
/// far higher.
const MAX_UNWRITTEN: usize = 16 << 10;

/// Shorter pieces are not counted, so that short responses need not pay for it. hyper has few of them
/// at a time.
const MIN_COUNTED: usize = 1 << 10;

/// Marks a request as served until it is dropped, which is to happen with its response's body.
#[derive(Debug)]
pub(super) struct Serving(Arc<ConnectionState>);

impl ConnectionState {
    /// How many requests there have been, if none is being served.
    pub(super) fn at_rest(&self) -> Option<u64> {
        let requests = self.requests.load(Ordering::Relaxed);
        (self.finished.load(Ordering::Relaxed) == requests).then_some(requests)
    }

    /// Is no request being served, and has the client all responses?
    pub(super) fn is_unused(&self) -> bool {
        self.at_rest().is_some() && self.response.load(Ordering::Relaxed) == IDLE
    }

    /// Can the connection do without hyper until the client sends more? Nothing is being served, the
    /// client has all responses, and all bytes that hyper has read were those of served requests.
    pub(super) fn can_rest(&self) -> bool {
        let read = self.read.load(Ordering::Relaxed);
        self.is_unused()
            && self.at_rest() == Some(read)
            && !self.is_refused.load(Ordering::Relaxed)
            && !self.is_tunnel.load(Ordering::Relaxed)
    }

    /// The socket has taken so many bytes.
    fn written(&self, length: usize) {
        let before = self.unwritten.load(Ordering::Relaxed);
        if before == 0 {
            return;
        }
        let left = before.saturating_sub(length);
        self.unwritten.store(left, Ordering::Relaxed);
        if before >= MAX_UNWRITTEN && left < MAX_UNWRITTEN {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(waker) = { waker }.take() {
                waker.wake();
            }
        }
    }

    /// Ends the bodies of HTTP/2 of which the client has read nothing for so long. Returns whether one is
    /// still held as long again after that.
    pub(super) fn end_stalled(&self, longest: Duration) -> bool {
        let mut is_held = false;
        self.streams().retain(|stream| {
            let stream = stream.upgrade();
            is_held |= stream
                .as_ref()
                .is_some_and(|stream| stream.end_if_stalled(longest));
            stream.is_some()
        });
        is_held
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Weak<StreamBody>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to serve the next request.
    pub(super) fn serve(self: &Arc<Self>) -> Serving {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.response.store(SERVING, Ordering::Relaxed);
        Serving(Arc::clone(self))
    }
}

impl Serving {
    /// Has the request both a length and an encoding? Then the connection is to be closed.
    pub(super) fn has_conflicting_framing(&self) -> bool {
        let number = self.0.requests.load(Ordering::Relaxed);
        let has_conflict = self.0.conflict.load(Ordering::Relaxed) == number;
        if has_conflict {
            self.0.is_refused.store(true, Ordering::Relaxed);
        }
        has_conflict
    }
}

impl Serving {
    /// Was more read than the requests that were served, so that hyper reads no further? It does not do
    /// that over HTTP/2.
    pub(super) fn has_more(&self) -> bool {
        let read = self.0.read.load(Ordering::Relaxed);
        read != self.0.requests.load(Ordering::Relaxed) && read != ON_HTTP2
    }

    /// Has the client of HTTP/1 closed its connection? hyper notices that when it reads, and it does
    /// not read while the body of a request is waited with. Only the connection can look, and hyper
    /// calls it between two polls of the request.
    pub(super) async fn client_has_left(&self) -> bool {
        let client = &self.0.client;
        client.store(ASKED, Ordering::Relaxed);
        let mut is_asked = false;
        poll_fn(|context| {
            if mem::replace(&mut is_asked, true) {
                return Poll::Ready(client.swap(UNASKED, Ordering::Relaxed) == HAS_LEFT);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// The connection becomes a tunnel: its bytes are passed on as they are, and it is served until the
    /// returned mark is dropped.
    pub(super) fn begin_tunnel(&self) -> Self {
        self.0.is_tunnel.store(true, Ordering::Relaxed);
        self.0.serve()
    }

    /// Lets the connection end this body if its client reads nothing.
    pub(super) fn add_stream(&self, stream: &Arc<StreamBody>) {
        let mut streams = self.0.streams();
        // As many as h2 allows at once are alive; those before are forgotten when the list is full.
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Arc::downgrade(stream));
    }

    /// Is there room for another piece of a body? If not, the task is woken when there is.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        if self.0.unwritten.load(Ordering::Relaxed) < MAX_UNWRITTEN {
            return Poll::Ready(());
        }
        let mut waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner);
        *waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// hyper has so many more bytes of a body.
    pub(super) fn count(&self, length: usize) {
        if length >= MIN_COUNTED {
            self.0.unwritten.fetch_add(length, Ordering::Relaxed);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::Relaxed);
        self.0.response.store(FLUSHING, Ordering::Relaxed);
    }
}

/// Knows of the other side without reading.
pub(super) trait Peer {
    /// Has the other side closed the connection?
    fn has_left(&self) -> bool;

    /// Ready when there is something to read, or the other side has closed the connection.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;
}

impl Peer for WriteTimeout<TcpStream> {
    fn has_left(&self) -> bool {
        // To a task that has used up its time, tokio would say that it does not know.
        let ready = pin!(unconstrained(self.get_ref().ready(Interest::READABLE)));
        let mut context = Context::from_waker(Waker::noop());
        matches!(ready.poll(&mut context), Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        // An error is found by reading.
        self.get_ref().poll_read_ready(context).map(drop)
    }
}

impl Peer for TlsStream<WriteTimeout<TcpStream>> {
    fn has_left(&self) -> bool {
        self.get_ref().0.has_left()
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.get_ref().0.poll_readable(context)
    }
}

/// The connection of a client. `refuse` makes the whole response, as bytes, that takes the place of
/// hyper's own with this status.
pub(super) struct ClientConnection<T, F> {
    inner: LentStream<T>,
    state: Arc<ConnectionState>,
    scanner: FramingScanner,
    refuse: F,
    refusal: Option<Bytes>,
    linger: Option<Linger>,
}

/// Reading on after a refusal: closing a socket with unread bytes resets the connection, and the
/// reset may overtake the response.
struct Linger {
    left: usize,
    end: Pin<Box<Sleep>>,
}

const MAX_LINGER: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 1 << 20;

impl<T, F> ClientConnection<T, F>
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Fn(StatusCode, &[u8]) -> Bytes,
{
    pub(super) fn new(inner: LentStream<T>, state: Arc<ConnectionState>, refuse: F) -> Self {
        Self {
            inner,
            state,
            scanner: FramingScanner::default(),
            refuse,
            refusal: None,
            linger: None,
        }
    }

    /// Takes a response that hyper made by itself. Returns whether these bytes are part of one.
    fn takes(&mut self, bytes: &[u8]) -> bool {
        if self.refusal.is_some() {
            return true;
        }
        if self.state.response.load(Ordering::Relaxed) != IDLE || self.scanner.is_http2() {
            return false;
        }
        if self.state.is_tunnel.load(Ordering::Relaxed) {
            return false;
        }
        let status = bytes
            .strip_prefix(b"HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        let Some(status) = status.and_then(|status| StatusCode::from_bytes(status).ok()) else {
            return false;
        };
        self.state.is_refused.store(true, Ordering::Relaxed);
        self.refusal = Some((self.refuse)(status, bytes));
        true
    }

    fn poll_write_refusal(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(refusal) = &mut self.refusal else {
            return Poll::Ready(Ok(()));
        };
        while refusal.has_remaining() {
            let written = ready!(Pin::new(self.inner.get_mut()).poll_write(context, refusal))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            refusal.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Linger {
            left: MAX_LINGER_BYTES,
            end: Box::pin(sleep(MAX_LINGER)),
        });
        let mut bytes = [0; 4096];
        while linger.left > 0 {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(self.inner.get_mut()).poll_read(context, &mut buffer) {
                Poll::Pending => return linger.end.as_mut().poll(context),
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    linger.left = linger.left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl<T, F> AsyncRead for ClientConnection<T, F>
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Fn(StatusCode, &[u8]) -> Bytes + Unpin,
{
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(this.inner.get_mut()).poll_read(context, buffer);
        if this.state.is_tunnel.load(Ordering::Relaxed) {
            return read;
        }
        this.scanner.scan(&buffer.filled()[before..]);
        if let Some(conflict) = this.scanner.conflict() {
            this.state.conflict.store(conflict, Ordering::Relaxed);
        }
        let whole = match this.scanner.is_http2() {
            true => ON_HTTP2,
            false => this.scanner.whole_requests().unwrap_or(NOT_BETWEEN),
        };
        this.state.read.store(whole, Ordering::Relaxed);
        read
    }
}

impl<T, F> AsyncWrite for ClientConnection<T, F>
where
    T: AsyncRead + AsyncWrite + Peer + Unpin,
    F: Fn(StatusCode, &[u8]) -> Bytes + Unpin,
{
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.takes(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = ready!(Pin::new(this.inner.get_mut()).poll_write(context, bytes))?;
        this.state.written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.takes(slices.first().map_or(&[], |slice| slice)) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = ready!(Pin::new(this.inner.get_mut()).poll_write_vectored(context, slices))?;
        this.state.written(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.get_ref().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_refusal(context))?;
        ready!(Pin::new(this.inner.get_mut()).poll_flush(context))?;
        let response = &this.state.response;
        if response.load(Ordering::Relaxed) == FLUSHING {
            response.store(IDLE, Ordering::Relaxed);
        }
        if this.state.client.load(Ordering::Relaxed) == ASKED {
            let client = match this.inner.get_ref().has_left() {
                true => HAS_LEFT,
                false => IS_THERE,
            };
            this.state.client.store(client, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.state.read.store(NOT_BETWEEN, Ordering::Relaxed);
        ready!(this.poll_write_refusal(context))?;
        if this.linger.is_none() {
            ready!(Pin::new(this.inner.get_mut()).poll_shutdown(context))?;
        }
        if this.state.is_refused.load(Ordering::Relaxed) {
            ready!(this.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}
