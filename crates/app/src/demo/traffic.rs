//! Programs that know nothing of limits: each sends, waits for the answer, and sends again at once.
//!
//! They go through real HTTP, like any program whose base URL was swapped. All of them share a
//! thread: they do next to nothing.

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

/// What the clients of one upstream have seen.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Requests that the gateway has not answered yet.
    pub(super) open: AtomicU32,
    /// Answers with 2xx.
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
pub(super) struct Crowd {
    pub(super) pool: &'static str,
    pub(super) clients: u32,
    pub(super) counts: Arc<Counts>,
}

impl Traffic {
    /// Begins to send to `gateway`; `look` is called every [`LOOK`] meanwhile.
    pub(super) fn start(
        gateway: SocketAddr,
        crowds: Vec<Crowd>,
        mut look: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("demo-clients".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async move {
                for crowd in &crowds {
                    for _ in 0..crowd.clients {
                        let counts = Arc::clone(&crowd.counts);
                        tokio::spawn(client(gateway, crowd.pool, counts));
                    }
                }
                let looking = async {
                    let mut ticks = tokio::time::interval(LOOK);
                    loop {
                        ticks.tick().await;
                        look();
                    }
                };
                tokio::select! {
                    _ = stopped => {}
                    () = looking => {}
                }
            });
        })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Often enough to tell when a pace was reached, to a tenth of a second.
pub(super) const LOOK: Duration = Duration::from_millis(100);

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
        let status = ask(gateway, pool, &mut connection).await;
        counts.open.fetch_sub(1, Ordering::Relaxed);
        if status.is_ok_and(|status| status.is_success()) {
            counts.good.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        counts.bad.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(AFTER_AN_ERROR).await;
    }
}

/// Even the most careless loop takes a moment to write its error down.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

/// How long a client lets itself be kept: longer than the longest window of the upstreams.
const MAX_WAIT: HeaderValue = HeaderValue::from_static("20s");

type Connection = SendRequest<Empty<Bytes>>;

async fn ask(
    gateway: SocketAddr,
    pool: &str,
    connection: &mut Option<Connection>,
) -> Result<StatusCode, Gone> {
    let mut sender = match connection.take() {
        Some(sender) => sender,
        None => connect(gateway).await?,
    };
    let request = Request::get(format!("/{pool}/work"))
        .header(header::HOST, gateway.to_string())
        .header("tidegate-max-wait", MAX_WAIT)
        .body(Empty::new())
        .map_err(|_| Gone)?;
    let answer = sender.send_request(request).await.map_err(|_| Gone)?;
    let status = answer.status();
    answer.into_body().collect().await.map_err(|_| Gone)?;
    *connection = Some(sender);
    Ok(status)
}

/// The connection broke.
struct Gone;

async fn connect(gateway: SocketAddr) -> Result<Connection, Gone> {
    let stream = TcpStream::connect(gateway).await.map_err(|_| Gone)?;
    _ = stream.set_nodelay(true);
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|_| Gone)?;
    tokio::spawn(connection);
    Ok(sender)
}
