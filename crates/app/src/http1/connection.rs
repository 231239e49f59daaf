//! The connection of a client: its bytes, and where in a request they are.
//!
//! Request and response share it. The body of a request is read when it is asked for, by the task that
//! asks; meanwhile the connection's own task serves the request, and then writes the response. What is
//! asked for and does not come fills no memory: as much is read ahead as one read brings.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;
use tokio_rustls::server::TlsStream;

use super::request_head::{HeadRead, Refusal, RequestReader};
use super::{BodyDecoder, Decoded, ReadBuffer, WriteBuffer};
use crate::client_body::{ClientBody, ClientBodyError};
use crate::stall::WriteTimeout;

/// What the connection of a client is made over.
pub(crate) trait ClientIo: AsyncRead + AsyncWrite + Unpin + Send {
    /// Has the other side closed the connection? Known without reading.
    fn has_left(&self) -> bool;

    /// Ready when there is something to read, or the other side has closed the connection.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Makes the end of the connection a reset.
    fn reset(&self);
}

impl ClientIo for WriteTimeout<TcpStream> {
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

    fn reset(&self) {
        _ = self.get_ref().set_zero_linger();
    }
}

impl ClientIo for TlsStream<WriteTimeout<TcpStream>> {
    fn has_left(&self) -> bool {
        self.get_ref().0.has_left()
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.get_ref().0.poll_readable(context)
    }

    fn reset(&self) {
        self.get_ref().0.reset();
    }
}

/// The connection of a client.
pub(crate) struct ClientConnection(Mutex<ConnectionState>);

struct ConnectionState {
    io: Box<dyn ClientIo>,
    input: ReadBuffer,
    /// What was read and belongs to the body, or lies behind the request.
    unread: Bytes,
    /// Of the present request.
    body: BodyDecoder,
    /// Its number, counted from 1. Bodies of earlier ones are over.
    request: u64,
    /// Its body may still be asked for.
    is_held: bool,
    /// Its body is malformed, or the client has left in the middle of it.
    is_broken: bool,
    /// The client sends the body when it is asked for.
    awaits_continue: bool,
    /// Its response has begun, so that its body is not asked for any more.
    has_response: bool,
    /// What is left to be written of asking for it.
    interim: &'static [u8],
    /// How much of it may still be thrown away.
    discardable: u64,
    /// Wakes the connection's own task when the body is over or not asked for any more.
    waker: Option<Waker>,
    /// The next protocol on the connection, which waits for the response.
    upgrade: Option<oneshot::Sender<()>>,
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// As much of a body is read and thrown away behind a response: longer than most bodies. A connection
/// that is closed while its client still sends is reset, and the reset may overtake the response.
const MAX_DISCARD: u64 = 64 << 20;

/// What comes next on a connection.
#[derive(Debug)]
pub(super) enum Next {
    /// A request, whose head the reader has.
    Request,
    /// It speaks HTTP/2.
    Http2,
    Refused(Refusal),
    /// It was closed, or broke.
    Closed,
}

impl ClientConnection {
    /// The connection of a client that has sent nothing yet.
    pub(crate) fn new(io: impl ClientIo + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new(ConnectionState {
            io: Box::new(io),
            input: ReadBuffer::default(),
            unread: Bytes::new(),
            body: BodyDecoder::Length(0),
            request: 0,
            is_held: false,
            is_broken: false,
            awaits_continue: false,
            has_response: false,
            interim: b"",
            discardable: 0,
            waker: None,
            upgrade: None,
        })))
    }

    /// Has the client closed the connection, unnoticed so far? That is seen when its bytes are read, and
    /// they are not read while a body, or another request, waits before them.
    pub(crate) fn has_left_unnoticed(&self) -> bool {
        let state = self.lock();
        let is_watched = state.body.has_ended() && state.unread.is_empty();
        !is_watched && state.io.has_left()
    }

    /// Ready when there is something to read, or the client has left.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.lock().io.poll_readable(context)
    }

    /// The connection itself, for another protocol behind the response to the present request.
    pub(crate) fn upgrade(self: &Arc<Self>) -> UpgradeTicket {
        let (sender, responded) = oneshot::channel();
        self.lock().upgrade = Some(sender);
        UpgradeTicket {
            responded,
            connection: Arc::clone(self),
        }
    }

    /// Its bytes, from the first that is unread.
    pub(crate) fn stream(self: &Arc<Self>) -> ClientStream {
        ClientStream(Arc::clone(self))
    }

    /// Reads the next head.
    pub(super) fn poll_head(
        &self,
        reader: &mut RequestReader,
        context: &mut Context<'_>,
    ) -> Poll<Next> {
        let state = &mut *self.lock();
        loop {
            if !state.unread.is_empty() {
                match reader.read(&mut state.unread) {
                    Ok(HeadRead::Head) => return Poll::Ready(Next::Request),
                    Ok(HeadRead::Http2) => return Poll::Ready(Next::Http2),
                    Ok(HeadRead::Partial) => {}
                    Err(refusal) => return Poll::Ready(Next::Refused(refusal)),
                }
            }
            match ready!(state.input.poll_read(&mut *state.io, 0, context)) {
                Ok(bytes) if !bytes.is_empty() => state.unread = bytes,
                _ => return Poll::Ready(Next::Closed),
            }
        }
    }

    /// Begins with a request. Returns its body.
    pub(super) fn begin(self: &Arc<Self>, body: BodyDecoder, awaits_continue: bool) -> ClientBody {
        let mut state = self.lock();
        state.request += 1;
        state.upgrade = None;
        if body.has_ended() {
            return ClientBody::None;
        }
        let length = body.length();
        state.body = body;
        (state.is_held, state.has_response) = (true, false);
        state.awaits_continue = awaits_continue;
        state.discardable = MAX_DISCARD;
        ClientBody::Http1(Http1Body {
            connection: Arc::clone(self),
            request: state.request,
            length,
            has_ended: false,
        })
    }

    /// The response to the present request begins: its body is not asked for any more. Returns whether
    /// it is known where the next request begins. A client that was not asked for its body may send it
    /// all the same.
    pub(super) fn begin_response(&self) -> bool {
        let mut state = self.lock();
        state.has_response = true;
        !state.awaits_continue && !state.is_broken
    }

    /// Ready when the client has left. A body that is not asked for any more is thrown away.
    pub(super) fn poll_left(&self, context: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.lock();
        if !state.body.has_ended() {
            if state.is_held || state.awaits_continue {
                state.wake_later(context);
                return Poll::Pending;
            }
            if !ready!(state.poll_discard(context)) {
                return Poll::Pending;
            }
        }
        state.poll_end(context)
    }

    /// Is the body of the present request over?
    pub(super) fn has_body_ended(&self) -> bool {
        self.lock().body.has_ended()
    }

    /// Ready when the body of the present request is over, or is not asked for any more.
    pub(super) fn poll_released(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.is_held || state.is_broken || state.body.has_ended() {
            return Poll::Ready(());
        }
        state.wake_later(context);
        Poll::Pending
    }

    /// Throws away what is left of the body of the present request. Ready when it is over (`true`), has no
    /// end, or is too long.
    pub(super) fn poll_discard(&self, context: &mut Context<'_>) -> Poll<bool> {
        self.lock().poll_discard(context)
    }

    /// Writes everything.
    pub(super) fn poll_write(
        &self,
        buffer: &mut WriteBuffer,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let state = &mut *self.lock();
        ready!(state.poll_interim(context))?;
        buffer.poll_write(&mut *state.io, context)
    }

    pub(super) fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock().io).poll_shutdown(context)
    }

    /// Has the client sent what was not read as part of a request, as far as is known?
    pub(super) fn has_unread(&self) -> bool {
        !self.lock().unread.is_empty()
    }

    /// Reads and throws away. Ready when the client has left, or with how much that was.
    pub(super) fn poll_skip(&self, context: &mut Context<'_>) -> Poll<usize> {
        let state = &mut *self.lock();
        let read = ready!(state.input.poll_read(&mut *state.io, 0, context));
        Poll::Ready(read.map_or(0, |bytes| bytes.len()))
    }

    /// Makes the end of the connection a reset.
    pub(super) fn reset(&self) {
        self.lock().io.reset();
    }

    /// Passes the connection on to its next protocol, if it has one.
    pub(super) fn switch(&self) {
        let upgrade = self.lock().upgrade.take();
        _ = upgrade.map(|upgrade| upgrade.send(()));
    }

    /// Ends the connection, even if a body of it is still held, whose holder learns of it when it asks for
    /// more, or a next protocol waits for it.
    pub(super) fn abandon(&self) {
        let state = &mut *self.lock();
        state.upgrade = None;
        if state.is_held && !state.body.has_ended() {
            state.request += 1;
            let mut context = Context::from_waker(Waker::noop());
            _ = Pin::new(&mut *state.io).poll_shutdown(&mut context);
        }
    }

    /// Gives memory back that a connection without a request does not need.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        state.input.release();
        state.waker = None;
    }

    /// A panic of a reader would leave nothing half done here.
    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionState {
    /// The next frame of the present request's body.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        if self.is_broken {
            return Poll::Ready(Some(Err(ClientBodyError::Broken)));
        }
        if self.awaits_continue && !self.has_response {
            self.awaits_continue = false;
            self.interim = CONTINUE;
        }
        if ready!(self.poll_interim(context)).is_err() {
            self.is_broken = true;
            return Poll::Ready(Some(Err(ClientBodyError::Broken)));
        }
        loop {
            match self.body.decode(&mut self.unread) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(_) => {
                    self.is_broken = true;
                    return Poll::Ready(Some(Err(ClientBodyError::Malformed)));
                }
            }
            let run = self.body.run();
            match ready!(self.input.poll_read(&mut *self.io, run, context)) {
                Ok(bytes) if !bytes.is_empty() => self.unread = bytes,
                _ => {
                    self.is_broken = true;
                    return Poll::Ready(Some(Err(ClientBodyError::Broken)));
                }
            }
        }
    }

    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interim.is_empty() {
            let writing = Pin::new(&mut *self.io).poll_write(context, self.interim);
            match ready!(writing)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => self.interim = &self.interim[length..],
            }
            if self.interim.is_empty() {
                ready!(Pin::new(&mut *self.io).poll_flush(context))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Throws the rest of the body away. Ready when it is over (`true`), has no end, or is too long.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.awaits_continue || self.discardable == 0 {
                return Poll::Ready(false);
            }
            match ready!(self.poll_body(context)) {
                Some(Ok(frame)) => {
                    let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                    self.discardable = self.discardable.saturating_sub(length.max(1));
                }
                Some(Err(_)) => return Poll::Ready(false),
                None => return Poll::Ready(true),
            }
        }
    }

    /// Reads what comes behind a request, once. Ready when that is the end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.unread.is_empty() {
            return Poll::Pending;
        }
        match ready!(self.input.poll_read(&mut *self.io, 0, context)) {
            Ok(bytes) if !bytes.is_empty() => {
                self.unread = bytes;
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    fn wake_later(&mut self, context: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.waker = Some(context.waker().clone()),
        }
    }
}

/// The body of one request, read from its connection.
pub(crate) struct Http1Body {
    connection: Arc<ClientConnection>,
    /// The number of the request.
    request: u64,
    length: Option<u64>,
    has_ended: bool,
}

impl Http1Body {
    /// The next frame of it.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let (frame, waker) = {
            let state = &mut *self.connection.lock();
            if state.request != self.request {
                return Poll::Ready(Some(Err(ClientBodyError::Broken)));
            }
            let frame = ready!(state.poll_body(context));
            self.has_ended = state.body.has_ended();
            let is_over = self.has_ended || state.is_broken;
            let waker = if is_over { state.waker.take() } else { None };
            (frame, waker)
        };
        // The connection's own task goes on with what comes behind it.
        if let Some(waker) = waker
            && !waker.will_wake(context.waker())
        {
            waker.wake();
        }
        Poll::Ready(frame)
    }

    /// Is it over?
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// How long it was in all, if its head says that.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.connection.lock();
            if state.request != self.request {
                return;
            }
            state.is_held = false;
            match self.has_ended {
                true => None,
                false => state.waker.take(),
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never what is sent or received.
        f.debug_struct("ClientConnection").finish_non_exhaustive()
    }
}

impl fmt::Debug for Http1Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Body").finish_non_exhaustive()
    }
}

/// A connection that changes to another protocol with the response to its present request.
#[derive(Debug)]
pub(crate) struct UpgradeTicket {
    responded: oneshot::Receiver<()>,
    connection: Arc<ClientConnection>,
}

impl UpgradeTicket {
    /// The connection, once the client has the response; `None` if there will be none.
    pub(crate) async fn responded(self) -> Option<ClientStream> {
        self.responded.await.ok()?;
        Some(ClientStream(self.connection))
    }
}

/// The bytes of a connection, from the first that is unread.
pub(crate) struct ClientStream(Arc<ClientConnection>);

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let state = &mut *self.0.lock();
        if state.unread.is_empty() {
            return Pin::new(&mut *state.io).poll_read(context, buffer);
        }
        let length = state.unread.len().min(buffer.remaining());
        buffer.put_slice(&state.unread[..length]);
        state.unread.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock().io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock().io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock().io).poll_shutdown(context)
    }
}
