//! Serves HTTP/1.1 to a client, one request after the other, in the task of its connection.
//!
//! A request is read, served and answered before the next one is read: clients may send several at once,
//! but get their responses in order. While a request is served, the task watches whether its client
//! leaves. Between two requests nothing is held but the connection: see [`Served::Resting`].

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::response::Parts;
use hyper::body::Body;
use policy::time::WallTime;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::connection::{ClientConnection, Next};
use super::request_head::{Refusal, RequestHead, RequestReader, ResponseTerms};
use super::response_writer::{
    BodyLength, Ending, HeadLines, MarkedResponse, ResponseWriter, Truncated,
};
use super::write_buffer::WriteBuffer;
use crate::client_body::ClientBody;

/// What responds to requests.
pub(crate) trait Service: Sync {
    /// The body of a response.
    type Body: Body<Data = Bytes> + Unpin + Send;
    /// What its head says besides its headers.
    type Mark: HeadLines + Send;

    /// Responds to a request that came on `client`.
    fn respond(
        &self,
        request: Request<ClientBody>,
        client: &Arc<ClientConnection>,
    ) -> impl Future<Output = MarkedResponse<Self::Body, Self::Mark>> + Send;

    /// Responds to what is no request. It is the last response of its connection.
    fn refuse(&self, refusal: Refusal) -> MarkedResponse<Self::Body, Self::Mark>;

    /// Are no further requests taken?
    fn is_draining(&self) -> bool;

    /// The time, for the `Date` of a response.
    fn now(&self) -> WallTime;
}

/// Why a connection is served no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It needs no memory until the client sends more. The last request ended at about this time.
    Resting { since: Instant },
    /// Its client speaks HTTP/2, and has sent nothing else.
    Http2,
    /// It is closed, or for another protocol from now on.
    Ended,
}

/// Serves requests until the connection rests or ends. A head has to come within `idle`; `since` is when
/// the last request before ended.
pub(crate) async fn serve<S: Service>(
    service: &S,
    connection: &Arc<ClientConnection>,
    idle: Duration,
    since: Instant,
) -> Served {
    let mut server = Server {
        service,
        connection,
        reader: RequestReader::default(),
        buffer: WriteBuffer::default(),
        pauses: Pauses::new(idle, since),
    };
    loop {
        let next = poll_fn(|context| server.poll_next(context)).await;
        let is_open = match next {
            Ok(Next::Request) => server.answer().await,
            Ok(Next::Http2) => return Served::Http2,
            Ok(Next::Refused(refusal)) => server.refuse(refusal).await,
            Ok(Next::Closed) => false,
            Err(served) => {
                connection.release();
                return served;
            }
        };
        if !is_open {
            connection.abandon();
            return Served::Ended;
        }
    }
}

/// What one connection is served with.
struct Server<'a, S> {
    service: &'a S,
    connection: &'a Arc<ClientConnection>,
    reader: RequestReader,
    buffer: WriteBuffer,
    pauses: Pauses,
}

impl<S: Service> Server<'_, S> {
    /// What comes next, or how it ended if nothing came.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Next, Served>> {
        match self.connection.poll_head(&mut self.reader, context) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending => {
                let has_part = self.reader.has_part();
                let is_draining = || self.service.is_draining();
                let ended = ready!(self.pauses.poll_end(has_part, is_draining, context));
                Poll::Ready(Err(ended))
            }
        }
    }

    /// Serves one request. Returns whether another may follow.
    async fn answer(&mut self) -> bool {
        let Some(RequestHead {
            request,
            body,
            awaits_continue,
            terms,
        }) = self.reader.take_head()
        else {
            return false;
        };
        self.pauses.note_request();
        let (connection, body) = (
            self.connection,
            self.connection.begin(body, awaits_continue),
        );
        let response = {
            // Pinned at once: it is large, and would be copied.
            let request = request.map(|()| body);
            let mut responding = pin!(self.service.respond(request, connection));
            let responded = poll_fn(|context| match responding.as_mut().poll(context) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => connection.poll_left(context).map(|()| None),
            });
            match responded.await {
                Some(response) => response,
                None => return false,
            }
        };
        let closes = !connection.begin_response() || self.service.is_draining();
        let MarkedResponse { response, mark } = response;
        let (head, body) = response.into_parts();
        let ending = self.write(&head, mark, body, terms, closes).await;
        self.reader.reuse(head.headers);
        match ending {
            Ending::Open if connection.has_body_ended() => !self.service.is_draining(),
            Ending::Open | Ending::Close => Box::pin(self.end(ending == Ending::Close)).await,
            Ending::Switch => {
                connection.switch();
                false
            }
            Ending::Break => false,
        }
    }

    /// Responds to what is no request.
    async fn refuse(&mut self, refusal: Refusal) -> bool {
        let MarkedResponse { response, mark } = self.service.refuse(refusal);
        let (head, body) = response.into_parts();
        let terms = ResponseTerms::default();
        if self.write(&head, mark, body, terms, true).await == Ending::Close {
            Box::pin(self.close(true)).await;
        }
        false
    }

    /// Writes a response.
    async fn write(
        &mut self,
        head: &Parts,
        mark: S::Mark,
        body: S::Body,
        terms: ResponseTerms,
        closes: bool,
    ) -> Ending {
        let (length, now) = (BodyLength::of(&body), self.service.now());
        let (buffer, connection) = (&mut self.buffer, self.connection);
        let mut writer = ResponseWriter::begin(buffer, head, &mark, length, terms, closes, now);
        let mut body = Some(body);
        poll_fn(|context| poll_write(&mut writer, buffer, &mut body, connection, context)).await
    }

    /// Ends a request whose response was written and is the last, or whose body is not over. Returns
    /// whether another may follow.
    async fn end(&self, is_last: bool) -> bool {
        let connection = self.connection;
        // What asks for the body has timeouts of its own.
        poll_fn(|context| connection.poll_released(context)).await;
        let discarding = poll_fn(|context| connection.poll_discard(context));
        let is_over = matches!(timeout(MAX_DISCARD_TIME, discarding).await, Ok(true));
        if is_over && !is_last && !self.service.is_draining() {
            return true;
        }
        self.close(!is_over).await;
        false
    }

    /// Closes the connection. A socket that is closed while it has unread bytes is reset, and the reset may
    /// overtake the response: what the client still sends is read for a while.
    async fn close(&self, has_unread: bool) {
        let connection = self.connection;
        let is_shut = poll_fn(|context| connection.poll_shutdown(context)).await;
        if is_shut.is_ok() && (has_unread || connection.has_unread()) {
            let mut left = MAX_LINGER_BYTES;
            let reading = poll_fn(|context| {
                while left > 0 {
                    match ready!(connection.poll_skip(context)) {
                        0 => break,
                        length => left = left.saturating_sub(length),
                    }
                }
                Poll::Ready(())
            });
            _ = timeout(MAX_LINGER, reading).await;
        }
    }
}

/// The longest that the rest of a request is read whose response was written.
const MAX_DISCARD_TIME: Duration = Duration::from_secs(10);

const MAX_LINGER: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 1 << 20;

/// Writes a response, and watches whether its client leaves.
fn poll_write<B: Body<Data = Bytes> + Unpin>(
    writer: &mut ResponseWriter,
    buffer: &mut WriteBuffer,
    body: &mut Option<B>,
    connection: &ClientConnection,
    context: &mut Context<'_>,
) -> Poll<Ending> {
    loop {
        // Before the head is written: a short body goes out with it.
        let staged = poll_stage(writer, buffer, body, context);
        if staged == Poll::Ready(Err(Truncated)) {
            // What the client has not taken by now is not waited for.
            _ = connection.poll_write(buffer, context);
            if writer.is_until_close() {
                connection.reset();
            }
            return Poll::Ready(Ending::Break);
        }
        match connection.poll_write(buffer, context) {
            Poll::Ready(Err(_)) => return Poll::Ready(Ending::Break),
            Poll::Ready(Ok(())) if writer.has_ended() => return Poll::Ready(writer.ending()),
            Poll::Ready(Ok(())) if staged.is_ready() => {}
            _ => return connection.poll_left(context).map(|()| Ending::Break),
        }
    }
}

/// Takes pieces of the body as long as there is room for them.
fn poll_stage<B: Body<Data = Bytes> + Unpin>(
    writer: &mut ResponseWriter,
    buffer: &mut WriteBuffer,
    body: &mut Option<B>,
    context: &mut Context<'_>,
) -> Poll<Result<(), Truncated>> {
    while let Some(source) = body
        && !writer.has_ended()
        && !buffer.is_full()
    {
        let frame = ready!(Pin::new(&mut *source).poll_frame(context));
        let frame = frame.transpose().map_err(|_| Truncated)?;
        let is_whole = source.is_end_stream();
        writer.write(buffer, frame, is_whole)?;
    }
    if writer.has_ended() {
        // Its request is not in flight any more when the client has the response.
        *body = None;
    }
    Poll::Ready(Ok(()))
}

/// Times between requests, by one timer that fires now and then: to register one for each request
/// takes as long as a gate's decision, and nearly none of them fires.
struct Pauses {
    idle: Duration,
    tick: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The timer wakes the task of the connection.
    is_set: bool,
    /// When the last request ended, as of the last tick.
    since: Instant,
    /// There was a request since the last tick.
    has_request: bool,
    /// The tick at which the beginning of a head was there.
    part_since: Option<Instant>,
}

/// How often a connection that is used is looked at, to find out whether it rests: long enough for a
/// client that sends one request after the other. A drain is noticed as soon.
const TICK: Duration = Duration::from_millis(400);

impl Pauses {
    fn new(idle: Duration, since: Instant) -> Self {
        Self {
            idle,
            tick: TICK.min(idle),
            timer: None,
            is_set: false,
            since,
            has_request: false,
            part_since: None,
        }
    }

    fn note_request(&mut self) {
        self.has_request = true;
        self.part_since = None;
    }

    /// Ready when nothing came for so long that the connection rests, or ends. `has_part`: the
    /// beginning of a head has come.
    fn poll_end(
        &mut self,
        has_part: bool,
        is_draining: impl Fn() -> bool,
        context: &mut Context<'_>,
    ) -> Poll<Served> {
        let tick = self.tick;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(tick)));
        // It wakes the task once it was polled there, and need not be polled by each request.
        if self.is_set && !timer.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            self.is_set = true;
            ready!(timer.as_mut().poll(context));
            let now = Instant::now();
            if is_draining() {
                // Half a request, of which nothing is known, need not be waited for.
                return Poll::Ready(Served::Ended);
            }
            if has_part {
                if now >= *self.part_since.get_or_insert(now) + self.idle {
                    return Poll::Ready(Served::Ended);
                }
            } else if mem::take(&mut self.has_request) {
                self.since = now;
            } else {
                // Empty lines are no request, and do not keep a connection open.
                return Poll::Ready(Served::Resting { since: self.since });
            }
            timer.as_mut().reset(now + tick);
        }
    }
}

#[cfg(test)]
mod tests;
