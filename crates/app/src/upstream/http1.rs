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

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::proxy::AbsoluteForm;
use super::request_body::RequestBody;
use crate::http1::{BodyDecoder, Decoded, InvalidHttp, MAX_HEAD, ReadBuffer};
use crate::timer::ReusableTimer;

use decode::{Parsed, parse_head};
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
    input: ReadBuffer,
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
    Invalid(#[from] InvalidHttp),
    /// The body of the request broke off.
    #[error("the body of the request broke off")]
    RequestBody,
}

/// As many informational responses, and ends of lines, as come before a response at most. More than
/// servers send, who may say every few seconds that they still work on it.
const MAX_PRELIMINARIES: u8 = 100;

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
            input: ReadBuffer::default(),
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
            let read = self.input.poll_read(&mut *self.io, 0, context);
            let read = ready!(read).map_err(Http1Error::Io)?;
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
                return Poll::Ready(Err(InvalidHttp("a head that is too long").into()));
            }
            self.partial = mem::take(&mut self.unread).into();
        }
    }

    /// Some servers send an empty line behind a body, which may come only after the next request.
    fn skip_empty_lines(&mut self) -> Result<(), InvalidHttp> {
        while let Some(b'\r' | b'\n') = self.unread.first() {
            self.unread.advance(1);
            self.count_preliminary()?;
        }
        Ok(())
    }

    fn count_preliminary(&mut self) -> Result<(), InvalidHttp> {
        self.preliminaries += 1;
        match self.preliminaries > MAX_PRELIMINARIES {
            true => Err(InvalidHttp("no end of informational responses")),
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
            let run = self.body.run();
            match ready!(self.input.poll_read(&mut *self.io, run, context)) {
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
        self.input.release();
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
