//! A worker: one thread, one runtime, its own connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::answer;
use super::connection::{ClientConnection, ConnectionState, MarkedBody};
use super::guard::Guard;
use super::handle::handle;
use super::listen::begins;
use super::routes::Routes;
use super::trails::{RequestId, RequestTrails};
use crate::metrics::{Metrics, RouteMetrics};
use crate::stall::Unstalled;
use crate::state::State;

/// What all workers have in common.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) state: Arc<State>,
    routes: ArcSwap<Routes>,
    trails: Arc<RequestTrails>,
    guard: ArcSwap<Guard>,
    via: HeaderValue,
    is_draining: AtomicBool,
    no_route: Arc<RouteMetrics>,
}

impl Front {
    pub(super) fn new(state: Arc<State>, address: SocketAddr) -> Self {
        let core = state.core();
        let routes = Routes::new(state.configuration(), core.metrics());
        let settings = routes.settings();
        let guard = Guard::new(settings, address);
        let trails = RequestTrails::new(core.workers(), settings.trails.keep);
        // A name of this process, by which it knows what has passed through it.
        let id = trails.process();
        let via = HeaderValue::try_from(format!("1.1 tidegate-{id:08x}"));
        Self {
            guard: ArcSwap::from_pointee(guard),
            via: via.expect("made of letters and digits"),
            is_draining: AtomicBool::new(false),
            no_route: core.metrics().route(Metrics::NO_ROUTE),
            trails: Arc::new(trails),
            routes: ArcSwap::from_pointee(routes),
            state,
        }
    }

    pub(super) fn guard(&self) -> arc_swap::Guard<Arc<Guard>> {
        self.guard.load()
    }

    /// Serves what is configured now.
    pub(super) fn reload(&self, address: SocketAddr) {
        let routes = Routes::new(self.state.configuration(), self.state.core().metrics());
        let guard = Guard::new(routes.settings(), address);
        self.guard.store(Arc::new(guard));
        self.routes.store(Arc::new(routes));
    }

    pub(super) fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    pub(super) fn trails(&self) -> &Arc<RequestTrails> {
        &self.trails
    }

    /// Where requests count that lead nowhere.
    pub(super) fn no_route(&self) -> &RouteMetrics {
        &self.no_route
    }

    /// What we put on every request.
    pub(super) fn via(&self) -> &HeaderValue {
        &self.via
    }

    /// Has it come through here already?
    pub(super) fn has_passed(&self, headers: &HeaderMap) -> bool {
        let ours = self.via.as_bytes();
        let values = headers.get_all(header::VIA).iter();
        let mut parts = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        parts.any(|part| part.trim_ascii() == ours)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    pub(super) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }
}

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) front: Arc<Front>,
    pub(super) number: usize,
    /// Connections that are open, for whoever deals them out.
    open: Arc<AtomicUsize>,
}

impl Worker {
    pub(super) fn new(front: Arc<Front>, number: usize, open: Arc<AtomicUsize>) -> Self {
        Self {
            front,
            number,
            open,
        }
    }

    pub(super) fn name_request(&self) -> RequestId {
        self.front.trails().new_id(self.number)
    }

    /// Serves connections as they come, until there are no more and all are done.
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
            tokio::time::sleep(LOOK).await;
        }
        sweep.abort();
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, mut drain: watch::Receiver<bool>) {
        let _open = Open(Arc::clone(&self.open));
        _ = stream.set_nodelay(true);
        let state = Arc::new(ConnectionState::default());
        let service = service_fn(|request: Request<Incoming>| {
            let worker = Arc::clone(&self);
            let serving = state.serve();
            async move {
                let response = handle(&worker, &serving, request).await;
                Ok::<_, Infallible>(response.map(|body| MarkedBody::new(body, serving)))
            }
        });
        let idle = self.front.routes().times().idle;
        let worker = Arc::clone(&self);
        let stream = ClientConnection::new(
            Unstalled::new(stream, idle),
            Arc::clone(&state),
            move |status, bytes: &[u8]| answer::refuse_unparsed(&worker, status, bytes),
        );
        let builder = builder(idle);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        // How a connection ends is its caller's matter.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = begins(&mut drain) => {}
            () = silence(&state, idle) => return,
        }
        connection.as_mut().graceful_shutdown();
        _ = connection.await;
    }

    /// Closes connections to endpoints that nobody uses.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let routes = self.front.routes();
            for (_, route) in routes.routes() {
                for endpoint in route.pool.endpoints() {
                    endpoint
                        .data()
                        .target
                        .close_idle(self.number, routes.times().idle);
                }
            }
        }
    }
}

/// Waits until a connection has been there for so long without a single request. The parser has a
/// clock of its own for heads, but it starts only when it is known which HTTP is spoken.
async fn silence(state: &ConnectionState, idle: Duration) {
    tokio::time::sleep(idle).await;
    if state.has_begun() {
        std::future::pending::<()>().await;
    }
}

/// Often enough, for a connection that is used again after a long time is checked then.
const SWEEP: Duration = Duration::from_secs(5);
/// How soon a worker notices that its last connection is done.
const LOOK: Duration = Duration::from_millis(20);

fn builder(idle: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_buf_size(MOST_BUFFERED);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Who is gone without a word does not answer, and is not kept.
        .keep_alive_interval(idle)
        .max_concurrent_streams(1000);
    builder
}

/// hyper refuses a longer head, and one with more than 100 headers: to allow more costs it memory for
/// each request. The guard is stricter about their size.
const MOST_BUFFERED: usize = 256 << 10;

/// A connection that is open.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
