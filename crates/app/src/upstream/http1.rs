//! A connection over HTTP/1.1, driven by the task of the request that uses it.
//!
//! hyper's client wants a connection to have a task of its own, which exchanges requests and responses
//! with their senders over channels. For a short exchange the channels and wake-ups took more
//! instructions than everything that the gateway does itself. Here the request writes and reads by
//! itself: its task is woken when the server responds, and reads, passes on and writes in one go. The
//! syntax of heads is left to `httparse`, which hyper uses too.
//!
//! Between two requests no task polls the connection. If the server closes it meanwhile, that is seen
//! when the connection is wanted again or when idle ones are looked through.

mod decode;
mod encode;
mod known_head;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem::{self, MaybeUninit};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::proxy::AbsoluteForm;
use super::request_body::RequestBody;
use crate::timer::ReusableTimer;

use decode::{BodyDecoder, Decoded, InvalidResponse, Parsed, parse_head};
use encode::RequestWriter;
use known_head::KnownHead;

/// A connection over HTTP/1.1: one request at a time.
pub(super) struct Http1Connection {
    io: Box<dyn Io>,
    writer: RequestWriter,
    /// Of a connection to a proxy.
    absolute_form: Option<Box<AbsoluteForm>>,
    /// The request's method is HEAD: its response has no body whatever its head says.
    is_head: bool,
    /// The beginning of a response's head.
    partial: Vec<u8>,
    /// How many informational responses and empty lines came before it.
    preliminaries: u8,
    /// What was read and belongs to the body, or lies behind it.
    unread: Bytes,
    body: BodyDecoder,
    /// Where long bodies are read to.
    buffer: BytesMut,
    /// More came with the last read than a short one takes.
    reads_more: bool,
    is_kept_alive: bool,
    /// Has any byte of a response to the last request arrived?
    has_received: bool,
    /// The memory of the request's headers is used for those of its response.
    headers: HeaderMap,
    /// What the heads of its responses have in common.
    known: KnownHead,
    /// The timer of all its requests, one after the other.
    timer: ReusableTimer,
}

/// What a connection is made over.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Why a response did not come, or broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Http1Error {
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[source] io::Error),
    /// The server closed the connection.
    #[error("the connection was closed before the response was complete")]
    Closed,
    /// What came is no response.
    #[error(transparent)]
    Invalid(#[from] InvalidResponse),
    /// The body of the request broke off.
    #[error("the body of the request broke off")]
    RequestBody,
}

/// As much as is read at once to the stack. What has come is copied from there: for a short response
/// that takes less time than to allocate a buffer in which a long one has room.
const SHORT_READ: usize = 4 << 10;

/// The same on a connection whose last response was longer.
const MEDIUM_READ: usize = 32 << 10;

/// From here on a body is read to memory of its own, without a copy.
const LONG: u64 = 8 << 10;

/// As much as is read at once then: so much of a body is in memory for a client that does not read.
const MAX_LONG_READ: usize = 32 << 10;

/// As many informational responses, and ends of lines, as come before a response at most. More than
/// servers send, who may say every few seconds that they still work on it.
const MAX_PRELIMINARIES: u8 = 100;

/// The longest head, as for requests.
const MAX_HEAD: usize = 256 << 10;

impl Http1Connection {
    /// A connection over `io`.
    pub(super) fn new(io: impl Io + 'static) -> Self {
        Self {
            io: Box::new(io),
            writer: RequestWriter::default(),
            absolute_form: None,
            is_head: false,
            partial: Vec::new(),
            preliminaries: 0,
            unread: Bytes::new(),
            body: BodyDecoder::Length(0),
            buffer: BytesMut::new(),
            reads_more: false,
            is_kept_alive: true,
            has_received: false,
            headers: HeaderMap::new(),
            known: KnownHead::default(),
            timer: ReusableTimer::default(),
        }
    }

    /// The same connection, which leads to a proxy.
    pub(super) fn in_absolute_form(mut self, form: AbsoluteForm) -> Self {
        self.absolute_form = Some(Box::new(form));
        self
    }

    /// Is the other side a proxy of ours, which passes requests on?
    pub(super) fn is_proxied(&self) -> bool {
        self.absolute_form.is_some()
    }

    /// Begins with a request; [`response`](Self::response) sends it. No part of that future, which
    /// would be copied with it.
    pub(super) fn begin(&mut self, request: Request<RequestBody>) {
        self.has_received = false;
        self.preliminaries = 0;
        self.is_head = *request.method() == Method::HEAD;
        self.headers = self.writer.begin(request, self.absolute_form.as_deref());
    }

    /// Sends the request and waits for the response's head, until the time that `ends` says; `None` if
    /// it took longer. The body is read by [`poll_frame`](Self::poll_frame).
    pub(super) async fn response(
        &mut self,
        ends: impl Fn() -> Instant,
    ) -> Option<Result<Response<()>, Http1Error>> {
        poll_fn(|context| match self.poll_response(context) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => self.timer.poll_end(&ends, context).map(|()| None),
        })
        .await
    }

    fn poll_response(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, Http1Error>> {
        let written = match self.writer.is_done() {
            true => Poll::Ready(Ok(())),
            false => self.writer.poll_write(&mut *self.io, context),
        };
        let Poll::Ready(Err(error)) = written else {
            return self.poll_head(context);
        };
        self.writer.abandon();
        self.is_kept_alive = false;
        match error {
            Http1Error::RequestBody => Poll::Ready(Err(error)),
            // The server may have responded before it closed the connection.
            error => match self.poll_head(context) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                _ => Poll::Ready(Err(error)),
            },
        }
    }

    /// Reads the head of the response.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Response<()>, Http1Error>> {
        loop {
            let read = ready!(self.poll_read(context)).map_err(Http1Error::Io)?;
            if read.is_empty() {
                return Poll::Ready(Err(Http1Error::Closed));
            }
            self.has_received = true;
            if self.partial.is_empty() {
                self.unread = read;
            } else {
                self.partial.extend_from_slice(&read);
                // A head that comes byte by byte is not parsed for each.
                if memchr::memchr(b'\n', &read).is_none() && self.partial.len() <= MAX_HEAD {
                    continue;
                }
                self.unread = mem::take(&mut self.partial).into();
            }
            loop {
                self.skip_empty_lines()?;
                let (headers, known) = (&mut self.headers, &mut self.known);
                match parse_head(&mut self.unread, self.is_head, headers, known)? {
                    Parsed::Head(head) => {
                        self.is_kept_alive &= head.is_kept_alive;
                        self.body = head.body;
                        return Poll::Ready(Ok(head.response));
                    }
                    Parsed::Informational => self.count_preliminary()?,
                    Parsed::Partial => break,
                }
            }
            if self.unread.len() > MAX_HEAD {
                return Poll::Ready(Err(InvalidResponse("a head that is too long").into()));
            }
            self.partial = mem::take(&mut self.unread).into();
        }
    }

    /// Some servers send an empty line behind a body, which may come only after the next request.
    fn skip_empty_lines(&mut self) -> Result<(), InvalidResponse> {
        while let Some(b'\r' | b'\n') = self.unread.first() {
            self.unread.advance(1);
            self.count_preliminary()?;
        }
        Ok(())
    }

    fn count_preliminary(&mut self) -> Result<(), InvalidResponse> {
        self.preliminaries += 1;
        match self.preliminaries > MAX_PRELIMINARIES {
            true => Err(InvalidResponse("no end of informational responses")),
            false => Ok(()),
        }
    }

    /// The next frame of the response's body. Meanwhile the rest of the request is written.
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http1Error>>> {
        loop {
            match self.body.decode(&mut self.unread) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            if !self.writer.is_done()
                && let Poll::Ready(Err(_)) = self.writer.poll_write(&mut *self.io, context)
            {
                // The server has responded, so it may read no more.
                self.writer.abandon();
                self.is_kept_alive = false;
            }
            match ready!(self.poll_read_body(context)) {
                Err(error) => return Poll::Ready(Some(Err(Http1Error::Io(error)))),
                Ok(bytes) if !bytes.is_empty() => self.unread = bytes,
                Ok(_) if self.body == BodyDecoder::UntilClose => {
                    self.body = BodyDecoder::Length(0);
                    return Poll::Ready(None);
                }
                Ok(_) => return Poll::Ready(Some(Err(Http1Error::Closed))),
            }
        }
    }

    fn poll_read_body(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let run = self.body.run();
        if run >= LONG {
            let room = usize::try_from(run).map_or(MAX_LONG_READ, |run| run.min(MAX_LONG_READ));
            self.buffer.reserve(room);
            let length = ready!(pin!(self.io.read_buf(&mut self.buffer)).poll(context))?;
            // Little must not hold the memory of much while it waits to be passed on.
            if length < room / 2 {
                let copy = Bytes::copy_from_slice(&self.buffer);
                self.buffer = BytesMut::new();
                return Poll::Ready(Ok(copy));
            }
            return Poll::Ready(Ok(self.buffer.split().freeze()));
        }
        self.poll_read(context)
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let read = match self.reads_more {
            false => poll_read_by::<SHORT_READ>(&mut *self.io, context),
            true => poll_read_by::<MEDIUM_READ>(&mut *self.io, context),
        };
        let read = ready!(read)?;
        self.reads_more = read.len() >= SHORT_READ;
        Poll::Ready(Ok(read))
    }

    /// What it is made over, for another protocol.
    pub(super) fn io(&mut self) -> &mut (dyn Io + 'static) {
        &mut *self.io
    }

    /// What was read behind the head of a response.
    pub(super) fn take_unread(&mut self) -> Bytes {
        mem::take(&mut self.unread)
    }

    /// Is the body of the response over?
    pub(super) fn has_ended(&self) -> bool {
        self.body.has_ended()
    }

    /// How long the rest of the body is, if that is known.
    pub(super) fn body_length(&self) -> Option<u64> {
        self.body.length()
    }

    /// Has any byte of a response to the last request arrived?
    pub(super) fn has_received(&self) -> bool {
        self.has_received
    }

    /// Was any byte of the last request written?
    pub(super) fn has_written(&self) -> bool {
        self.writer.has_written()
    }

    /// Makes it ready for another request, now that the last response is over. `None` if it cannot be
    /// used again.
    pub(super) fn into_idle(mut self: Box<Self>) -> Option<Box<Self>> {
        self.buffer = BytesMut::new();
        // Bytes behind a response answer no request.
        let may_be_used = self.is_kept_alive && self.writer.is_done() && self.unread.is_empty();
        may_be_used.then_some(self)
    }

    /// Sends the rest of a request whose response is over already, in a task of its own, and ends the
    /// connection.
    pub(super) fn finish(mut self: Box<Self>) {
        if !self.writer.is_done() {
            tokio::spawn(async move {
                _ = poll_fn(|context| self.writer.poll_write(&mut *self.io, context)).await;
            });
        }
    }

    /// Can another request be sent on it? For a connection that is idle. It reads from the socket only
    /// if something has arrived, and whatever has, it is not for a request to come.
    pub(super) fn is_ready(&mut self) -> bool {
        let mut space = [MaybeUninit::uninit(); 1];
        let mut read = ReadBuf::uninit(&mut space);
        // To a task that has used up its time, tokio would say that nothing has arrived.
        let reading = unconstrained(poll_fn(|context| {
            Pin::new(&mut self.io).poll_read(context, &mut read)
        }));
        let mut context = Context::from_waker(Waker::noop());
        pin!(reading).poll(&mut context).is_pending()
    }
}

/// Reads up to `N` bytes. Not inlined, so that other functions need not have the room on their stack.
#[inline(never)]
fn poll_read_by<const N: usize>(
    io: &mut dyn Io,
    context: &mut Context<'_>,
) -> Poll<io::Result<Bytes>> {
    let mut space = [MaybeUninit::uninit(); N];
    let mut read = ReadBuf::uninit(&mut space);
    ready!(Pin::new(io).poll_read(context, &mut read))?;
    Poll::Ready(Ok(Bytes::copy_from_slice(read.filled())))
}

impl Drop for Http1Connection {
    /// Over TLS the server is notified.
    fn drop(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        _ = Pin::new(&mut self.io).poll_shutdown(&mut context);
    }
}

impl fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never what is sent or received.
        f.debug_struct("Http1Connection")
            .field("is_kept_alive", &self.is_kept_alive)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
