//! Connections over HTTP/2: many requests at once, each on a stream of its own.
//!
//! Streams share the window of their connection, so a client that stops reading its response could
//! keep the responses of all others from coming. Here the window of a stream is small, and that of a
//! connection has room for all its streams: a response that is not read delays no other. Where
//! the server allows fewer streams, or all are in use, a further connection is opened, up to a bound;
//! past that a request waits until a stream is free.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use http::uri::Scheme;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use policy::outcome::{Failure, Phase};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::destination::WorkerConnections;
use super::error::SendError;
use super::http1::Io;
use super::request_body::RequestBody;

/// A connection over HTTP/2.
#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest<RequestBody>,
    streams: Arc<Streams>,
}

/// The streams of one connection.
#[derive(Debug)]
struct Streams {
    open: AtomicUsize,
    /// How many the server allows.
    allowed: AtomicUsize,
    /// The connections that it is one of. Set when it is taken in.
    owner: OnceLock<Weak<WorkerConnections>>,
    /// Lets the task of the connection look at what the server allows.
    look: Notify,
    is_tls: bool,
}

/// A stream for one request.
#[derive(Debug)]
pub(super) struct Http2Stream {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) place: StreamPlace,
}

/// The place of a request among the streams of its connection, up to the end of its response.
#[derive(Debug)]
pub(super) struct StreamPlace {
    streams: Arc<Streams>,
    owner: Arc<WorkerConnections>,
}

/// Streams of a connection at most, whatever the server allows.
const MAX_STREAMS: u32 = 100;

/// What a server may send of one response before anyone reads it.
const STREAM_WINDOW: u32 = 64 << 10;

/// Room for all streams, so that none keeps others from coming.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;

/// The longest head of a response, as over HTTP/1.1.
const MAX_HEADER_LIST: u32 = 256 << 10;

/// Only while requests are in flight; an idle connection gets no pings.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

impl Http2Connection {
    /// Begins to speak HTTP/2 over `io`, and waits until the server has said how many streams it
    /// allows.
    pub(super) async fn establish(io: impl Io + 'static, is_tls: bool) -> Result<Self, SendError> {
        let broken = || {
            let message = "the connection broke during the handshake";
            SendError::failed(Failure::Reset, Phase::Connecting, message)
        };
        let settings = Arc::new(Notify::new());
        let io = ReadSignal {
            inner: io,
            signal: Arc::clone(&settings),
        };
        let connected = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            // A connection that died silently would fail every request, each after its timeout.
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_LIST)
            // None before the server has said how many.
            .initial_max_send_streams(0)
            .handshake(TokioIo::new(io))
            .await;
        let (sender, mut connection) = connected.map_err(|_| broken())?;
        while connection.current_max_send_streams() == 0 {
            tokio::select! {
                _ = &mut connection => return Err(broken()),
                // What was read is looked at by another task.
                () = settings.notified() => yield_now().await,
            }
        }
        let streams = Arc::new(Streams {
            open: AtomicUsize::new(0),
            allowed: AtomicUsize::new(0),
            owner: OnceLock::new(),
            look: Notify::new(),
            is_tls,
        });
        streams.allow(connection.current_max_send_streams());
        tokio::spawn(drive(connection, Arc::clone(&streams)));
        Ok(Self { sender, streams })
    }

    /// Lets it wake requests that wait for a stream of `owner`.
    pub(super) fn enter(&self, owner: &Arc<WorkerConnections>) {
        _ = self.streams.owner.set(Arc::downgrade(owner));
    }

    /// Asks for a look at what the server allows now.
    pub(super) fn look(&self) {
        self.streams.look.notify_one();
    }

    /// Can no more requests be sent on it?
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Is it used by no request?
    pub(super) fn is_unused(&self) -> bool {
        self.streams.open.load(Ordering::Relaxed) == 0
    }

    /// A free stream, if there is one. For the connections of `owner`.
    pub(super) fn stream(&self, owner: &Arc<WorkerConnections>) -> Option<Http2Stream> {
        let allowed = self.streams.allowed.load(Ordering::Relaxed);
        let open = self.streams.open.load(Ordering::Relaxed);
        if open >= allowed {
            return None;
        }
        self.streams.open.fetch_add(1, Ordering::Relaxed);
        Some(Http2Stream {
            sender: self.sender.clone(),
            place: StreamPlace {
                streams: Arc::clone(&self.streams),
                owner: Arc::clone(owner),
            },
        })
    }
}

/// Drives a connection to its end, and notes how many streams the server allows: when it is polled, which
/// is with each request, and when someone waits for a stream.
async fn drive<T: Io + 'static>(
    mut connection: Connection<TokioIo<ReadSignal<T>>, RequestBody, TokioExecutor>,
    streams: Arc<Streams>,
) {
    loop {
        let driving = poll_fn(|context| {
            let polled = Pin::new(&mut connection).poll(context);
            streams.allow(connection.current_max_send_streams());
            polled
        });
        tokio::select! {
            // Its requests have their errors from hyper.
            _ = driving => return,
            () = streams.look.notified() => {}
        }
    }
}

impl Streams {
    /// The server allows so many. If these are more than before, requests that wait are woken.
    fn allow(&self, streams: usize) {
        let streams = streams.min(MAX_STREAMS as usize);
        let before = self.allowed.swap(streams, Ordering::Relaxed);
        if streams > before
            && let Some(owner) = self.owner.get().and_then(Weak::upgrade)
        {
            for _ in before..streams {
                owner.stream_is_free();
            }
        }
    }
}

/// Signals every read: hyper says nothing when settings arrive.
struct ReadSignal<T> {
    inner: T,
    signal: Arc<Notify>,
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadSignal<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_ready() {
            self.signal.notify_one();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadSignal<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
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

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
        self.owner.stream_is_free();
    }
}

impl Http2Stream {
    /// The scheme of requests on it.
    pub(super) fn scheme(&self) -> Scheme {
        match self.place.streams.is_tls {
            true => Scheme::HTTPS,
            false => Scheme::HTTP,
        }
    }
}

/// The request for HTTP/2, which has no `Host`: scheme and authority are part of the address.
pub(super) fn for_http2(mut request: Request<RequestBody>, scheme: Scheme) -> Request<RequestBody> {
    if let Some(host) = request.headers_mut().remove(http::header::HOST) {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(scheme);
        parts.authority = host.as_bytes().try_into().ok();
        if let Ok(uri) = http::Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    *request.version_mut() = http::Version::HTTP_2;
    request
}
