//! Serves HTTP/2 with hyper, and ends what hyper would keep for ever.
//!
//! hyper has no timeout for clients that send no requests and answer pings, and none for a stream whose
//! client never opens its window: hyper does not ask for another piece of the body meanwhile, so that
//! the body cannot notice, with a place in flight and a connection to the upstream. The connection looks
//! at its streams from outside and ends such bodies. hyper keeps the stream with the piece that it has;
//! only the end of the connection frees that.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::body::ServedBody;
use super::handle::handle;
use super::listen::drain_begins;
use super::serving::Serving;
use super::when_woken::WhenWoken;
use super::worker::Worker;
use crate::client_body::ClientBody;
use crate::exchange::BodyError;
use crate::http1::ClientStream;

/// Serves requests until the connection ends. A stream, or the connection, may be silent for `idle`.
pub(super) async fn serve(
    worker: &Arc<Worker>,
    stream: ClientStream,
    idle: Duration,
    drain: &mut watch::Receiver<bool>,
) {
    let state = Arc::new(Http2Connection::default());
    let service = service_fn(|request: Request<Incoming>| {
        let (worker, state) = (Arc::clone(worker), Arc::clone(&state));
        async move {
            let served = state.serve();
            let request = request.map(ClientBody::Http2);
            let marked = handle(&worker, Serving::Http2(state), request).await;
            let mut response = marked.response;
            marked.mark.add_to(response.headers_mut());
            Ok::<_, Infallible>(response.map(|body| Http2Body::new(body, served)))
        }
    });
    let connection = builder(idle).serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let stop = WhenWoken::new(async {
        tokio::select! {
            () = drain_begins(drain) => StopReason::Draining,
            reason = silence(&state, idle) => reason,
        }
    });
    // An error ends the connection, and concerns only its client.
    let stopped = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        reason = stop => reason,
    };
    match stopped {
        StopReason::Silent => {}
        StopReason::Draining => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ = connection => {}
                () = drained(&state, idle) => {}
            }
        }
        // Its other streams have some time to finish.
        StopReason::Stalled => {
            connection.as_mut().graceful_shutdown();
            _ = timeout(idle, connection).await;
        }
    }
}

/// Why no more requests of a connection are served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopReason {
    /// The gateway is draining.
    Draining,
    /// The connection was open for too long without a request.
    Silent,
    /// Its client does not read a response.
    Stalled,
}

/// Waits until a connection was without a request for `idle`. Meanwhile, ends responses that the client
/// does not read.
async fn silence(state: &Http2Connection, idle: Duration) -> StopReason {
    let (mut since, mut last) = (Instant::now(), state.at_rest());
    loop {
        sleep(idle / CHECKS).await;
        if state.end_stalled(idle) {
            return StopReason::Stalled;
        }
        let (now, rest) = (Instant::now(), state.at_rest());
        if rest.is_none() || rest != last {
            (since, last) = (now, rest);
        } else if now >= since + idle {
            return StopReason::Silent;
        }
    }
}

/// Waits until a connection that takes no more requests is without one, or a response is held whose client
/// does not read. A client that does not say that it is done need not be waited for.
async fn drained(state: &Http2Connection, idle: Duration) {
    loop {
        let before = state.at_rest();
        sleep(DRAIN_INTERVAL.min(idle)).await;
        let is_unused = before.is_some() && state.at_rest() == before;
        if state.end_stalled(idle) || is_unused {
            return;
        }
    }
}

/// How long a client has to take the end of its last response.
const DRAIN_INTERVAL: Duration = Duration::from_millis(500);

/// How often a connection is looked at within the time that it may be silent.
const CHECKS: u32 = 8;

fn builder(idle: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // A client that is gone does not answer pings, and its connection is closed.
        .keep_alive_interval(idle)
        // One upload that waits must not keep the others of its connection from coming.
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // Of a response whose client does not read, about this much and one piece are in memory.
        .max_send_buf_size(MAX_SEND_BUFFERED)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_concurrent_streams(1000);
    builder
}

const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
const MAX_SEND_BUFFERED: usize = 16 << 10;

/// As over HTTP/1; longer heads are refused without a problem document.
const MAX_HEADER_LIST: u32 = 256 << 10;

/// What is known of a connection's requests.
#[derive(Debug, Default)]
pub(super) struct Http2Connection {
    requests: AtomicU64,
    /// How many of them are over.
    finished: AtomicU64,
    /// Bodies of responses that may not have ended.
    streams: Mutex<Vec<Weak<StreamBody>>>,
}

/// Marks a request as served until it is dropped, which is to happen with its response's body.
#[derive(Debug)]
pub(super) struct ServedStream(Arc<Http2Connection>);

impl Http2Connection {
    /// Begins to serve the next request.
    pub(super) fn serve(self: &Arc<Self>) -> ServedStream {
        self.requests.fetch_add(1, Ordering::Relaxed);
        ServedStream(Arc::clone(self))
    }

    /// How many requests there have been, if none is being served.
    fn at_rest(&self) -> Option<u64> {
        let requests = self.requests.load(Ordering::Relaxed);
        (self.finished.load(Ordering::Relaxed) == requests).then_some(requests)
    }

    /// Ends the bodies of which the client has read nothing for so long. Returns whether one is still
    /// held as long again after that.
    fn end_stalled(&self, longest: Duration) -> bool {
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

    /// Lets the connection end this body if its client reads nothing.
    fn add_stream(&self, stream: &Arc<StreamBody>) {
        let mut streams = self.streams();
        // As many as h2 allows at once are alive; those before are forgotten when the list is full.
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Arc::downgrade(stream));
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Weak<StreamBody>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ServedStream {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::Relaxed);
    }
}

/// The body of a response, as hyper gets it: it keeps its request marked as served.
#[derive(Debug)]
struct Http2Body {
    body: Passing,
    _served: ServedStream,
}

#[derive(Debug)]
enum Passing {
    /// There is none.
    Direct(ServedBody),
    Stream(Arc<StreamBody>),
}

/// The body of a response that its connection can end.
#[derive(Debug)]
struct StreamBody(Mutex<StreamState>);

#[derive(Debug)]
struct StreamState {
    /// `None` once it was ended.
    body: Option<ServedBody>,
    /// Since when hyper has a piece and wants no other.
    taken: Option<Instant>,
}

impl Http2Body {
    fn new(body: ServedBody, served: ServedStream) -> Self {
        let body = match body.is_end_stream() {
            true => Passing::Direct(body),
            false => {
                let taken = Some(Instant::now());
                let body = Some(body);
                let stream = Arc::new(StreamBody(Mutex::new(StreamState { body, taken })));
                served.0.add_stream(&stream);
                Passing::Stream(stream)
            }
        };
        Self {
            body,
            _served: served,
        }
    }
}

impl StreamBody {
    /// Ends the body if its client has read nothing for so long. Returns whether it has read nothing for
    /// twice as long, so that the stream stays although its body was ended.
    fn end_if_stalled(&self, longest: Duration) -> bool {
        let mut state = self.lock();
        let Some(pause) = state.taken.map(|since| since.elapsed()) else {
            return false;
        };
        if pause >= longest {
            state.body = None;
        }
        pause >= 2 * longest
    }

    fn poll_frame(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.lock();
        state.taken = None;
        let Some(body) = &mut state.body else {
            return Poll::Ready(Some(Err(BodyError::Silent)));
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        state.taken = frame.is_some().then(Instant::now);
        Poll::Ready(frame)
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.body {
            Passing::Direct(body) => Pin::new(body).poll_frame(context),
            Passing::Stream(stream) => stream.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Passing::Direct(body) => body.is_end_stream(),
            Passing::Stream(stream) => {
                let state = stream.lock();
                state.body.as_ref().is_some_and(Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Passing::Direct(body) => body.size_hint(),
            Passing::Stream(stream) => {
                let state = stream.lock();
                state
                    .body
                    .as_ref()
                    .map_or_else(SizeHint::default, Body::size_hint)
            }
        }
    }
}
