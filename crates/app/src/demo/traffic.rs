//! Clients without rate limits: each sends a request, waits for the response, and sends the next at
//! once.
//!
//! They use real HTTP and share one thread, because they do little work.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::oneshot;

/// The counts of the clients of one upstream.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Requests without a response yet.
    pub(super) open: AtomicU32,
    /// Responses with 2xx.
    pub(super) good: AtomicU64,
    /// Everything else, from the upstream or from the gateway.
    pub(super) bad: AtomicU64,
}

/// Clients that send, until this is dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The clients of one upstream.
#[derive(Debug)]
pub(super) struct ClientGroup {
    pub(super) pool: &'static str,
    pub(super) clients: u32,
    pub(super) counts: Arc<Counts>,
}

impl Traffic {
    /// Starts to send to `gateway`; `observe` is called every [`OBSERVE_EVERY`] meanwhile.
    pub(super) fn start(
        gateway: SocketAddr,
        client_groups: Vec<ClientGroup>,
        mut observe: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("demo-clients".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async move {
                for group in &client_groups {
                    for _ in 0..group.clients {
                        let counts = Arc::clone(&group.counts);
                        tokio::spawn(client(gateway, group.pool, counts));
                    }
                }
                let observing = async {
                    let mut ticks = tokio::time::interval(OBSERVE_EVERY);
                    loop {
                        ticks.tick().await;
                        observe();
                    }
                };
                tokio::select! {
                    _ = stopped => {}
                    () = observing => {}
                }
            });
        })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// The resolution of the time at which a rate was reached.
pub(super) const OBSERVE_EVERY: Duration = Duration::from_millis(100);

impl Drop for Traffic {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            _ = thread.join();
        }
    }
}

async fn client(gateway: SocketAddr, pool: &'static str, counts: Arc<Counts>) {
    let mut connection = None;
    loop {
        counts.open.fetch_add(1, Ordering::Relaxed);
        let status = send(gateway, pool, &mut connection).await;
        counts.open.fetch_sub(1, Ordering::Relaxed);
        if status.is_ok_and(|status| status.is_success()) {
            counts.good.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        counts.bad.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
    }
}

/// Keeps a client from looping on errors.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// How long a client waits: longer than the longest window of the upstreams.
const MAX_WAIT: HeaderValue = HeaderValue::from_static("20s");

type Connection = SendRequest<Empty<Bytes>>;

async fn send(
    gateway: SocketAddr,
    pool: &str,
    connection: &mut Option<Connection>,
) -> Result<StatusCode, Disconnected> {
    let mut sender = match connection.take() {
        Some(sender) => sender,
        None => connect(gateway).await?,
    };
    let request = Request::get(format!("/{pool}/work"))
        .header(header::HOST, gateway.to_string())
        .header("tidegate-max-wait", MAX_WAIT)
        .body(Empty::new())
        .map_err(|_| Disconnected)?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|_| Disconnected)?;
    let status = response.status();
    response
        .into_body()
        .collect()
        .await
        .map_err(|_| Disconnected)?;
    *connection = Some(sender);
    Ok(status)
}

/// The connection broke.
struct Disconnected;

async fn connect(gateway: SocketAddr) -> Result<Connection, Disconnected> {
    let stream = TcpStream::connect(gateway)
        .await
        .map_err(|_| Disconnected)?;
    _ = stream.set_nodelay(true);
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|_| Disconnected)?;
    tokio::spawn(connection);
    Ok(sender)
}
