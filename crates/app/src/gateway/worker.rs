//! A worker: one thread, one runtime, its own connections.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::connection::{ClientConnection, ConnectionState, Peer};
use super::handle::handle;
use super::head_timer::HeadTimer;
use super::lent::Lender;
use super::listen::drain_begins;
use super::marked_body::MarkedBody;
use super::response;
use super::shared::SharedGateway;
use super::trails::RequestId;
use super::when_woken::WhenWoken;
use crate::exchange::Timeouts;
use crate::stall::WriteTimeout;
use crate::state::State;
use crate::tls::{self, Handshakes, NoTls};

/// One thread with its own runtime and connections.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) shared: Arc<SharedGateway>,
    pub(super) number: usize,
    /// Open connections of clients. The listener gives a new one to the worker with the fewest.
    open: Arc<AtomicUsize>,
    /// Bounds the TLS handshakes under way.
    handshakes: Handshakes,
}

impl Worker {
    pub(super) fn new(shared: Arc<SharedGateway>, number: usize, open: Arc<AtomicUsize>) -> Self {
        Self {
            shared,
            number,
            open,
            handshakes: Handshakes::new(MAX_HANDSHAKES),
        }
    }

    pub(super) fn state(&self) -> &Arc<State> {
        &self.shared.state
    }

    /// Counts the connection of a client that goes on without hyper, until it is dropped.
    pub(super) fn count_connection(&self) -> OpenConnection {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(&self.open))
    }

    pub(super) fn new_request_id(&self) -> RequestId {
        self.shared.trails().new_id(self.number)
    }

    /// Serves connections until the listener stops and all of them are closed.
    pub(super) async fn run(
        self: Arc<Self>,
        mut connections: mpsc::Receiver<std::net::TcpStream>,
        drain: watch::Receiver<bool>,
    ) {
        let sweep = tokio::spawn(Arc::clone(&self).sweep());
        while let Some(stream) = connections.recv().await {
            let Ok(stream) = TcpStream::from_std(stream) else {
                self.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            tokio::spawn(Arc::clone(&self).serve(stream, drain.clone()));
        }
        while self.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
        sweep.abort();
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, drain: watch::Receiver<bool>) {
        let _open = OpenConnection(Arc::clone(&self.open));
        _ = stream.set_nodelay(true);
        let routes = self.shared.routes();
        let timeouts = *routes.exchange().timeouts();
        let tls = routes.settings().listeners.data_plane.as_ref();
        let tls = tls.map(|tls| Arc::clone(tls.config()));
        drop(routes);
        match tls {
            None => {
                let Timeouts { idle, min_rate, .. } = timeouts;
                let stream = WriteTimeout::new(stream, min_rate, idle);
                self.serve_on(stream, idle, drain).await;
            }
            // Apart, so that it does not make other connections larger.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, timeouts, drain)).await,
        }
    }

    async fn serve_tls(
        self: Arc<Self>,
        config: Arc<ServerConfig>,
        stream: TcpStream,
        timeouts: Timeouts,
        mut drain: watch::Receiver<bool>,
    ) {
        let Timeouts { idle, min_rate, .. } = timeouts;
        let wrap = |stream| WriteTimeout::new(stream, min_rate, idle);
        let accepted = tokio::select! {
            accepted = tls::accept(config, &self.handshakes, stream, wrap) => accepted,
            () = drain_begins(&mut drain) => return,
        };
        match accepted {
            Ok(stream) => self.serve_on(stream, idle, drain).await,
            Err(NoTls::PlainText(stream)) => {
                let answer = response::refuse_plain_text(&self);
                tls::answer_in_plain_text(stream, &answer).await;
            }
            Err(NoTls::Failed(error)) => self.state().log().tls_failed(&error),
        }
    }

    /// Serves one connection: with hyper as long as there are requests, without in between.
    async fn serve_on<T>(
        self: Arc<Self>,
        mut stream: T,
        idle: Duration,
        mut drain: watch::Receiver<bool>,
    ) where
        T: AsyncRead + AsyncWrite + Peer + Unpin + Send + 'static,
    {
        let mut since = Instant::now();
        loop {
            // Freed while the connection rests: a request and hyper's buffers take some 35 KiB.
            let served = serve_requests(&self, stream, idle, since, &mut drain);
            let Some(resting) = Box::pin(served).await else {
                return;
            };
            (stream, since) = (resting.stream, resting.since);
            tokio::select! {
                () = poll_fn(|context| stream.poll_readable(context)) => {}
                () = drain_begins(&mut drain) => return,
                () = tokio::time::sleep_until(since + idle) => return,
            }
        }
    }

    /// Closes connections to upstreams that are idle for too long.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.shared.routes().exchange().close_idle(self.number);
        }
    }
}

/// A connection between two requests, without hyper.
struct RestingConnection<T> {
    stream: T,
    /// Since when there has been no request.
    since: Instant,
}

/// Serves requests until the connection rests, which it returns then, or ends. `since` is when the last
/// request before ended.
async fn serve_requests<T>(
    worker: &Arc<Worker>,
    stream: T,
    idle: Duration,
    since: Instant,
    drain: &mut watch::Receiver<bool>,
) -> Option<RestingConnection<T>>
where
    T: AsyncRead + AsyncWrite + Peer + Unpin + Send + 'static,
{
    let connection_state = Arc::new(ConnectionState::default());
    let (lender, stream) = Lender::lend(stream);
    let since = {
        let service = service_fn(|request: Request<Incoming>| {
            let worker = Arc::clone(worker);
            let serving = connection_state.serve();
            let version = request.version();
            async move {
                let response = handle(&worker, &serving, request).await;
                Ok::<_, Infallible>(response.map(|body| MarkedBody::new(body, serving, version)))
            }
        });
        let refuse = {
            let worker = Arc::clone(worker);
            move |status, bytes: &[u8]| response::refuse_unparsed(&worker, status, bytes)
        };
        let stream = ClientConnection::new(stream, Arc::clone(&connection_state), refuse);
        let builder = builder(idle);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let stop = WhenWoken::new(async {
            tokio::select! {
                () = drain_begins(drain) => StopReason::Draining,
                reason = silence(&connection_state, idle, since) => reason,
            }
        });
        // An error ends the connection, and concerns only its client.
        let stopped = tokio::select! {
            biased;
            _ = connection.as_mut() => return None,
            reason = stop => reason,
        };
        match stopped {
            StopReason::Resting { since } => since,
            // Half a request, of which nothing is known, need not be waited for.
            StopReason::Draining if !connection_state.is_unused() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    _ = connection => {}
                    () = stall(&connection_state, idle) => {}
                }
                return None;
            }
            // Its other streams have some time to finish.
            StopReason::Stalled => {
                connection.as_mut().graceful_shutdown();
                _ = timeout(idle, connection).await;
                return None;
            }
            StopReason::Draining | StopReason::Silent => return None,
        }
    };
    let stream = lender.take_back()?;
    Some(RestingConnection { stream, since })
}

/// Why hyper serves no more requests of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopReason {
    /// The gateway is draining.
    Draining,
    /// The connection was open for too long without a request.
    Silent,
    /// Its client does not read a response over HTTP/2.
    Stalled,
    /// It needs no hyper until the client sends more. The last request ended at about this time.
    Resting { since: Instant },
}

/// Waits until a connection was open for a while without a request: until it can rest, or for `idle`.
/// hyper's timeout for heads starts only when it knows which version of HTTP is spoken, and over
/// HTTP/2 it has none: a client that answers pings could stay for ever. Meanwhile, ends responses that
/// it does not read. `last` is when the last request before ended.
async fn silence(state: &ConnectionState, idle: Duration, last: Instant) -> StopReason {
    let mut since = Instant::now();
    let mut stalls_checked = since;
    let mut pause = REST_INTERVAL.min(idle);
    loop {
        let before = state.at_rest();
        tokio::time::sleep(pause).await;
        let now = Instant::now();
        if now - stalls_checked >= idle {
            stalls_checked = now;
            if state.end_stalled(idle) {
                return StopReason::Stalled;
            }
        }
        let after = state.at_rest();
        if after != before || after.is_none() {
            since = now;
            pause = match after {
                Some(_) => REST_INTERVAL.min(idle),
                // The longer a request takes, the less often this looks at it.
                None => (2 * pause).min(idle),
            };
            continue;
        }
        if state.can_rest() {
            // Empty lines are no request, and do not keep a connection open.
            let since = if after == Some(0) { last } else { since };
            return StopReason::Resting { since };
        }
        if now >= since + idle {
            return StopReason::Silent;
        }
        // Half a head, or HTTP/2.
        pause = (2 * pause).min(since + idle - now);
    }
}

/// Ends responses over HTTP/2 that the client does not read, until one is held nevertheless.
async fn stall(state: &ConnectionState, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        if state.end_stalled(idle) {
            return;
        }
    }
}

/// How often a connection that is used is looked at, to find out whether it rests: long enough for a
/// client that sends one request after the other.
const REST_INTERVAL: Duration = Duration::from_millis(400);
/// Connections are also checked when they are used.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How soon a draining worker notices that its last connection is closed.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

fn builder(idle: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(HeadTimer::default())
        .header_read_timeout(idle)
        .max_buf_size(MAX_BUFFERED);
    builder
        .http2()
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

/// TLS handshakes of a worker at once. Each takes some 20 KiB and about a millisecond of its core; for
/// more, the oldest ends.
const MAX_HANDSHAKES: usize = 256;

const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
const MAX_SEND_BUFFERED: usize = 16 << 10;

/// hyper refuses a longer head, and one with more than 100 headers: to allow more costs it memory for
/// each request. The guard is stricter about their size.
const MAX_BUFFERED: usize = 256 << 10;

/// The same over HTTP/2, where longer heads are refused without a problem document.
const MAX_HEADER_LIST: u32 = 256 << 10;

/// Counts an open connection.
#[derive(Debug)]
pub(super) struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
