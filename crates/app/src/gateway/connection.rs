//! The connection of a client, with the responses that hyper would make replaced by ours.
//!
//! What hyper cannot read it refuses by itself, with a bare 400, 414 or 431 that no service sees.
//! Clients of the gateway can rely on a problem document with a reason, so the connection
//! recognises such a response and writes another. It knows one by when it comes: hyper writes
//! although no request is being served and everything written before has been flushed. If a
//! response is still on its way, hyper's own is left as it is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::framing::FramingScanner;

/// What the service and the bytes of a connection know of each other.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    requests: AtomicU64,
    /// Which request has conflicting framing, counted from 1; 0: none.
    conflict: AtomicU64,
    response: AtomicU8,
    is_refused: AtomicBool,
}

/// Nothing is being served, and everything was flushed.
const IDLE: u8 = 0;
/// A request is being served, up to the end of its response's body.
const SERVING: u8 = 1;
/// hyper has all of a response, and may not have flushed it.
const FLUSHING: u8 = 2;

/// Marks a request as served until it is dropped, which is to happen with its response's body.
#[derive(Debug)]
pub(super) struct Serving(Arc<ConnectionState>);

impl ConnectionState {
    /// Has there been a request?
    pub(super) fn has_begun(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
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

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.response.store(FLUSHING, Ordering::Relaxed);
    }
}

/// A response's body that keeps its request marked as served.
#[derive(Debug)]
pub(super) struct MarkedBody<B> {
    body: B,
    _serving: Serving,
}

impl<B> MarkedBody<B> {
    pub(super) fn new(body: B, serving: Serving) -> Self {
        Self {
            body,
            _serving: serving,
        }
    }
}

impl<B: Body + Unpin> Body for MarkedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The connection of a client. `refuse` makes the whole response, as bytes, that takes the place of
/// hyper's own with this status.
pub(super) struct ClientConnection<T, F> {
    inner: T,
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
    pub(super) fn new(inner: T, state: Arc<ConnectionState>, refuse: F) -> Self {
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
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, refusal))?;
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
            match Pin::new(&mut self.inner).poll_read(context, &mut buffer) {
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
        let read = Pin::new(&mut this.inner).poll_read(context, buffer);
        this.scanner.scan(&buffer.filled()[before..]);
        if let Some(conflict) = this.scanner.conflict() {
            this.state.conflict.store(conflict, Ordering::Relaxed);
        }
        read
    }
}

impl<T, F> AsyncWrite for ClientConnection<T, F>
where
    T: AsyncRead + AsyncWrite + Unpin,
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
        Pin::new(&mut this.inner).poll_write(context, bytes)
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
        Pin::new(&mut this.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_refusal(context))?;
        ready!(Pin::new(&mut this.inner).poll_flush(context))?;
        let response = &this.state.response;
        if response.load(Ordering::Relaxed) == FLUSHING {
            response.store(IDLE, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_refusal(context))?;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(context))?;
        }
        if this.state.is_refused.load(Ordering::Relaxed) {
            ready!(this.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}
