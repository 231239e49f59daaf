//! Clients without rate limits: each sends a request, waits for the response, and sends the next at
//! once.
//!
//! They use real HTTP and share one thread, because they do little work.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::background::Background;
use super::client::Client;

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

/// The clients of one upstream.
#[derive(Debug)]
pub(super) struct ClientGroup {
    pub(super) pool: &'static str,
    pub(super) clients: u32,
    pub(super) counts: Arc<Counts>,
}

/// Starts to send to `gateway`; `observe` is called every [`OBSERVE_EVERY`] meanwhile.
pub(super) fn start(
    gateway: SocketAddr,
    client_groups: Vec<ClientGroup>,
    mut observe: impl FnMut() + Send + 'static,
) -> io::Result<Background> {
    Background::start("demo-clients", move || async move {
        for group in &client_groups {
            for _ in 0..group.clients {
                let counts = Arc::clone(&group.counts);
                tokio::spawn(send_forever(gateway, group.pool, counts));
            }
        }
        let mut ticks = tokio::time::interval(OBSERVE_EVERY);
        loop {
            ticks.tick().await;
            observe();
        }
    })
}

/// The resolution of the time at which a rate was reached.
pub(super) const OBSERVE_EVERY: Duration = Duration::from_millis(100);

async fn send_forever(gateway: SocketAddr, pool: &'static str, counts: Arc<Counts>) {
    let mut client = Client::new(gateway, ("tidegate-max-wait", MAX_WAIT.to_owned()));
    let path = format!("/{pool}/work");
    loop {
        counts.open.fetch_add(1, Ordering::Relaxed);
        let response = client.get(&path).await;
        counts.open.fetch_sub(1, Ordering::Relaxed);
        if response.is_ok_and(|(status, _)| status.is_success()) {
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
const MAX_WAIT: &str = "20s";
