//! Listens, distributes connections to workers, and stops without losing requests.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, watch};

use super::routes::Routes;
use super::shared::SharedGateway;
use super::trails::RequestTrails;
use super::worker::Worker;
use crate::descriptors;
use crate::listener;
use crate::state::State;

/// A gateway that serves.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    shared: Arc<SharedGateway>,
    drain: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    loops: Vec<Handle>,
}

/// Why the gateway cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// No thread can be started.
    #[error("cannot start a worker")]
    Thread(#[source] io::Error),
}

/// A worker, as the listener sees it.
struct WorkerHandle {
    open: Arc<AtomicUsize>,
    connections: mpsc::Sender<std::net::TcpStream>,
}

impl Gateway {
    /// Listens, and serves from then on.
    ///
    /// # Errors
    ///
    /// If the address is taken, or no thread can be started.
    pub fn start(state: Arc<State>, address: SocketAddr) -> Result<Self, StartError> {
        let listen = |error| StartError::Listen { address, error };
        let listener = listener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(SharedGateway::new(state, address));
        let (drain, draining) = watch::channel(false);
        let (mut threads, mut loops) = (Vec::new(), Vec::new());
        let mut start = |name, work: Work| {
            let (thread, event_loop) = spawn(name, work)?;
            threads.push(thread);
            loops.push(event_loop);
            Ok(())
        };
        let mut workers = Vec::new();
        for number in 0..shared.state.core().workers() {
            let (connections, coming) = mpsc::channel(MAX_PENDING);
            let open = Arc::new(AtomicUsize::new(0));
            let worker = Worker::new(Arc::clone(&shared), number, Arc::clone(&open));
            let draining = draining.clone();
            let name = format!("worker-{number}");
            start(name, Box::pin(Arc::new(worker).run(coming, draining)))?;
            workers.push(WorkerHandle { open, connections });
        }
        let accept = accept(Arc::clone(&shared), listener, workers, draining);
        start("listener".to_owned(), Box::pin(accept))?;
        Ok(Self {
            address,
            shared,
            drain,
            threads,
            loops,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a path.
    pub fn url(&self) -> String {
        let is_tls = self.routes().settings().listeners.data_plane.is_some();
        listener::url(self.address, is_tls)
    }

    /// Serves what is configured since the last reload of the state.
    pub fn reload(&self) {
        self.shared.reload(self.address);
    }

    /// The routes as of now.
    pub fn routes(&self) -> Arc<Routes> {
        self.shared.routes()
    }

    /// Decision trails of the last requests.
    pub fn trails(&self) -> &Arc<RequestTrails> {
        self.shared.trails()
    }

    /// Takes no more connections and no more requests; those in flight go on.
    pub fn drain(&self) {
        self.shared.start_draining();
        self.drain.send_replace(true);
    }

    /// Waits until all connections are done, after [`Gateway::drain`].
    pub fn join(self) {
        for thread in self.threads {
            // A panic was reported when it happened.
            _ = thread.join();
        }
    }

    /// The event loops of its threads.
    pub(crate) fn event_loops(&self) -> &[Handle] {
        &self.loops
    }

    /// Are all connections done?
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

/// Accepted connections that wait for their worker.
const MAX_PENDING: usize = 1024;

/// Further connections wait in the system's queue; also those beyond their share of descriptors.
const MAX_OPEN: usize = 20_000;

/// How soon accepting is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until draining begins.
pub(super) async fn drain_begins(drain: &mut watch::Receiver<bool>) {
    // Without a sender there is no draining: everything ends with the process.
    _ = drain.wait_for(|is_draining| *is_draining).await;
}

/// What a thread does.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

fn spawn(name: String, work: Work) -> Result<(JoinHandle<()>, Handle), StartError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(StartError::Thread)?;
    let event_loop = runtime.handle().clone();
    let thread = Builder::new()
        .name(name)
        .spawn(move || runtime.block_on(work));
    Ok((thread.map_err(StartError::Thread)?, event_loop))
}

/// Accepts connections, and gives each to the worker with the fewest.
async fn accept(
    shared: Arc<SharedGateway>,
    listener: TcpListener,
    workers: Vec<WorkerHandle>,
    mut drain: watch::Receiver<bool>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let max_open = MAX_OPEN.min(shared.state.core().descriptors().clients());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drain_begins(&mut drain) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Otherwise the client has disconnected.
                if descriptors::are_used_up(&error) {
                    shared.log_no_descriptors();
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        while workers
            .iter()
            .map(|worker| worker.open.load(Ordering::Relaxed))
            .sum::<usize>()
            >= max_open
        {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let worker = workers
            .iter()
            .min_by_key(|worker| worker.open.load(Ordering::Relaxed));
        if let (Some(worker), Ok(stream)) = (worker, stream.into_std()) {
            worker.open.fetch_add(1, Ordering::Relaxed);
            if worker.connections.send(stream).await.is_err() {
                return;
            }
        }
    }
}
