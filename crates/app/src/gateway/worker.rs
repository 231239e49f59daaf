//! A worker: one thread, one runtime, its own connections.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use policy::time::WallTime;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::body::ServedBody;
use super::handle::handle;
use super::listen::drain_begins;
use super::response::{MarkedResponse, ResponseMark};
use super::serving::Serving;
use super::shared::SharedGateway;
use super::trails::RequestId;
use super::{http2, response};
use crate::client_body::ClientBody;
use crate::exchange::Timeouts;
use crate::http1::server::{Served, Service};
use crate::http1::{self, ClientConnection, Refusal};
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

    /// Counts the connection of a client that has become a tunnel, until it is dropped.
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
                self.serve_on(ClientConnection::new(stream), idle, drain)
                    .await;
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
            Ok(stream) => {
                self.serve_on(ClientConnection::new(stream), idle, drain)
                    .await;
            }
            Err(NoTls::PlainText(stream)) => {
                let answer = response::refuse_plain_text(&self);
                tls::answer_in_plain_text(stream, &answer).await;
            }
            Err(NoTls::Failed(error)) => self.state().log().tls_failed(&error),
        }
    }

    /// Serves one connection.
    async fn serve_on(
        self: Arc<Self>,
        connection: Arc<ClientConnection>,
        idle: Duration,
        mut drain: watch::Receiver<bool>,
    ) {
        let mut since = Instant::now();
        loop {
            // Freed while the connection rests: a request takes some 15 KiB.
            let served = Box::pin(http1::server::serve(&*self, &connection, idle, since));
            since = match served.await {
                Served::Resting { since } => since,
                Served::Http2 => {
                    let stream = connection.stream();
                    drop(connection);
                    return Box::pin(http2::serve(&self, stream, idle, &mut drain)).await;
                }
                Served::Ended => return,
            };
            tokio::select! {
                () = poll_fn(|context| connection.poll_readable(context)) => {}
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

impl Service for Worker {
    type Body = ServedBody;
    type Mark = ResponseMark;

    fn respond(
        &self,
        request: Request<ClientBody>,
        client: &Arc<ClientConnection>,
    ) -> impl Future<Output = MarkedResponse> + Send {
        handle(self, Serving::Http1(Arc::clone(client)), request)
    }

    fn refuse(&self, refusal: Refusal) -> MarkedResponse {
        response::refuse_unparsed(self, refusal)
    }

    fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    fn now(&self) -> WallTime {
        self.state().clock().wall()
    }
}

/// Connections are also checked when they are used.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How soon a draining worker notices that its last connection is closed.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// TLS handshakes of a worker at once. Each takes some 20 KiB and about a millisecond of its core; for
/// more, the oldest ends.
const MAX_HANDSHAKES: usize = 256;

/// Counts an open connection.
#[derive(Debug)]
pub(super) struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
