//! `tidegate serve`: the gateway and what belongs to it, from start to the last answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use store::{OpenError, Store, StoreError};
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{Admin, AdminError, Sources};
use crate::engine::Engine;
use crate::gateway::{Gateway, StartError};
use crate::settings::{Problem, Settings};

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    engine: Arc<Engine>,
    gateway: Gateway,
    admin: Admin,
    warnings: Vec<String>,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The gateway cannot.
    #[error(transparent)]
    Gateway(#[from] StartError),
    /// What survives a restart cannot be had.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// What was stored cannot be read.
    #[error("cannot read what was stored")]
    Load(#[from] StoreError),
    /// The admin API cannot.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// What ended a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to stop, and everything under way was finished.
    Drained,
    /// It was interrupted, and everything under way was finished.
    Interrupted,
    /// It was told twice, or what was under way took too long.
    Abandoned,
}

impl Server {
    /// Starts everything that `settings` ask for.
    ///
    /// # Errors
    ///
    /// If something cannot be started; then nothing is.
    pub fn start(settings: Settings) -> Result<Self, ServeError> {
        let listen = settings.server.listen;
        let store = Store::open(&settings.server.data)?;
        let stored = store.load()?;
        let engine = Engine::new(Arc::new(settings), store, workers());
        let warnings = engine.restore(&stored);
        let gateway = Gateway::start(Arc::clone(&engine), listen)?;
        let sources = Sources {
            metrics: Arc::new(String::new),
        };
        let admin = Admin::start(Arc::clone(&engine), sources)?;
        Ok(Self {
            engine,
            gateway,
            admin,
            warnings,
        })
    }

    /// What everything that sends has in common.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Ends it without a signal: takes nothing more, and lets what is under way end for at most
    /// `patience`.
    pub async fn stop(self, patience: Duration) {
        self.gateway.drain();
        self.admin.drain();
        // What takes longer ends with the process.
        _ = tokio::time::timeout(patience, self.drained()).await;
        self.admin.stop();
    }

    /// Where the admin API is.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// What of the stored could not be taken up, in words.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where the data plane is.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// Serves until a signal ends it: SIGTERM and SIGINT drain, a second one abandons what is under
    /// way; SIGHUP serves by what `load` gives, if that is right.
    pub async fn run(
        self,
        load: impl Fn() -> Result<Settings, Vec<Problem>>,
    ) -> std::io::Result<Ended> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let ended = loop {
            tokio::select! {
                _ = terminate.recv() => break Ended::Drained,
                _ = interrupt.recv() => break Ended::Interrupted,
                _ = hang_up.recv() => self.reload(load()),
            }
        };
        self.gateway.drain();
        self.admin.drain();
        let again = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = tokio::time::sleep(LONGEST_DRAIN) => {}
            }
        };
        let ended = tokio::select! {
            () = self.drained() => ended,
            () = again => return Ok(Ended::Abandoned),
        };
        self.admin.stop();
        Ok(ended)
    }

    fn reload(&self, settings: Result<Settings, Vec<Problem>>) {
        if let Ok(settings) = settings {
            self.engine.reload(Arc::new(settings));
            self.gateway.reload();
        }
    }

    async fn drained(&self) {
        while !self.gateway.is_done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Longer than callers wait by default.
const LONGEST_DRAIN: Duration = Duration::from_secs(60);

/// One for each core.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
