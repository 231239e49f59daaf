//! Listening, dealing connections out, and stopping without losing anyone.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{mpsc, watch};

use super::routes::Routes;
use super::trails::RequestTrails;
use super::worker::{Front, Worker};
use crate::state::State;

/// A gateway that serves.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    front: Arc<Front>,
    drain: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// Why it cannot serve.
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
    /// The system gives no thread.
    #[error("cannot start a worker")]
    Thread(#[source] io::Error),
}

/// One worker, as it is seen by whoever deals out connections.
struct Seat {
    open: Arc<AtomicUsize>,
    connections: mpsc::Sender<std::net::TcpStream>,
}

impl Gateway {
    /// Listens, and serves from then on.
    ///
    /// # Errors
    ///
    /// If the address is taken, or there is no thread to be had.
    pub fn start(state: Arc<State>, address: SocketAddr) -> Result<Self, StartError> {
        let listen = |error| StartError::Listen { address, error };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let front = Arc::new(Front::new(state, address));
        let (drain, draining) = watch::channel(false);
        let mut threads = Vec::new();
        let mut seats = Vec::new();
        for number in 0..front.state.core().workers() {
            let (connections, coming) = mpsc::channel(MOST_COMING);
            let open = Arc::new(AtomicUsize::new(0));
            let worker = Worker::new(Arc::clone(&front), number, Arc::clone(&open));
            let draining = draining.clone();
            let name = format!("worker-{number}");
            threads.push(spawn(name, async move {
                Arc::new(worker).run(coming, draining).await;
            })?);
            seats.push(Seat { open, connections });
        }
        threads.push(spawn(
            "listener".to_owned(),
            accept(listener, seats, draining),
        )?);
        Ok(Self {
            address,
            front,
            drain,
            threads,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves what is configured since the last reload of the state.
    pub fn reload(&self) {
        self.front.reload(self.address);
    }

    /// The routes as of now.
    pub fn routes(&self) -> Arc<Routes> {
        self.front.routes()
    }

    /// Decision trails of the last requests.
    pub fn trails(&self) -> &Arc<RequestTrails> {
        self.front.trails()
    }

    /// Takes no more connections and no more requests; what is under way goes on.
    pub fn drain(&self) {
        self.front.start_draining();
        self.drain.send_replace(true);
    }

    /// Waits until all connections are done, after [`Gateway::drain`].
    pub fn join(self) {
        for thread in self.threads {
            // Who panicked has said so.
            _ = thread.join();
        }
    }

    /// Are all connections done?
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

/// Connections that wait for their worker to take them over.
const MOST_COMING: usize = 1024;

/// More than that are left to the system's queue until one is done.
const MOST_OPEN: usize = 20_000;

/// Before looking again whether there is room.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until draining begins.
pub(super) async fn begins(drain: &mut watch::Receiver<bool>) {
    // Without a sender nobody will ever say so, and everything ends with the process.
    _ = drain.wait_for(|is_draining| *is_draining).await;
}

fn spawn(
    name: String,
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(StartError::Thread)?;
    let thread = Builder::new()
        .name(name)
        .spawn(move || runtime.block_on(work));
    thread.map_err(StartError::Thread)
}

/// Takes connections and gives each to whoever has fewest.
async fn accept(listener: TcpListener, seats: Vec<Seat>, mut drain: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = begins(&mut drain) => return,
        };
        let Ok((stream, _)) = accepted else {
            // Too many files are open, or the caller has gone again.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        while seats
            .iter()
            .map(|seat| seat.open.load(Ordering::Relaxed))
            .sum::<usize>()
            >= MOST_OPEN
        {
            tokio::time::sleep(PAUSE).await;
        }
        let seat = seats
            .iter()
            .min_by_key(|seat| seat.open.load(Ordering::Relaxed));
        if let (Some(seat), Ok(stream)) = (seat, stream.into_std()) {
            seat.open.fetch_add(1, Ordering::Relaxed);
            if seat.connections.send(stream).await.is_err() {
                return;
            }
        }
    }
}
