//! The thread that connects the gates of this node with the server of the fleet.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use policy::random::Random;
use store::{FleetMember, FleetMessage, FleetOpenError, FleetServer, GatesAddress, OpenError};
use tidegate::fleet::{Claim, SharedGates};
use tidegate::{Clock, Timestamp};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

use super::calls::Calls;
use super::health::{FleetHealth, HealthChange};
use super::{agreed_gate, shares};
use crate::core::Core;
use crate::log::Log;
use crate::redact::Text;
use crate::settings::Settings;

/// The thread that makes the calls of this node.
#[derive(Debug)]
pub struct FleetWorker {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Why gates cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum FleetStartError {
    /// The server cannot be reached or used, and this node has no shares from before.
    #[error(transparent)]
    Open(OpenError),
    /// What was stored in the data folder cannot be read.
    #[error("cannot read the shares in `{}`\nhint: remove the file `fleet-shares.json`", .folder.display())]
    Shares {
        /// The data folder.
        folder: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// There is no thread for it.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// What the tasks of the thread share.
pub(super) struct Shared {
    pub(super) gates: SharedGates,
    pub(super) health: Arc<FleetHealth>,
    pub(super) lease: Duration,
    /// The connection has ended.
    pub(super) lost: Notify,
    interval: Duration,
    clock: Clock,
    log: Log,
    folder: PathBuf,
    namespace: String,
    random: RefCell<Random>,
    /// What is in the file.
    saved: RefCell<Vec<(String, Claim)>>,
}

impl FleetWorker {
    /// Enters the fleet of `settings` with the gates of `core`, if there is one, and makes their calls
    /// from now on. Comes before the first request. Also returns a warning if the server cannot be
    /// reached, but this node has shares from before and continues with them.
    ///
    /// # Errors
    ///
    /// If the server cannot be used, or not be reached by a node without shares.
    pub fn start(
        core: &Core,
        settings: &Settings,
    ) -> Result<Option<(Self, Option<String>)>, FleetStartError> {
        let address = settings.storage.gates.as_ref();
        // The settings have checked it.
        let address = address.and_then(|address| address.expose().parse().ok());
        let parts = (core.limiter().shared_gates(), core.fleet());
        let (Some(address), (Some(gates), Some(health))) = (address, parts) else {
            return Ok(None);
        };
        let folder = settings.server.data.clone();
        let namespace = &settings.storage.shared_gates.namespace;
        let claims = shares::read(&folder, namespace).map_err(|source| {
            let folder = folder.clone();
            FleetStartError::Shares { folder, source }
        })?;
        for (key, claim) in &claims {
            gates.restore(key, claim);
        }
        let start = Start {
            address,
            member: member(&gates, settings),
            gates,
            health: Arc::clone(health),
            settings: settings.storage.shared_gates.clone(),
            clock: core.clock().clone(),
            log: core.log().clone(),
            folder,
            claims,
        };
        start.spawn().map(Some)
    }

    /// Gives up what this node has, and ends the thread: after the last request, because from then on
    /// gates admit nothing new.
    pub async fn stop(mut self) {
        _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // It is bounded by the time of a release; a panic of it was printed by its hook.
            _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// What the thread starts with.
struct Start {
    address: GatesAddress,
    member: FleetMember,
    gates: SharedGates,
    health: Arc<FleetHealth>,
    settings: crate::settings::SharedGateSettings,
    clock: Clock,
    log: Log,
    folder: PathBuf,
    claims: Vec<(String, Claim)>,
}

impl Start {
    fn spawn(self) -> Result<(FleetWorker, Option<String>), FleetStartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(FleetStartError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let (opened, opening) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("fleet".to_owned())
            .spawn(move || runtime.block_on(self.run(&opened, stopped)))
            .map_err(FleetStartError::Thread)?;
        let warning = match opening.recv() {
            Ok(opened) => opened.map_err(FleetStartError::Open)?,
            // It panicked, which its hook has printed.
            Err(_) => None,
        };
        let thread = Some(thread);
        Ok((FleetWorker { stop, thread }, warning))
    }

    async fn run(
        self,
        opened: &mpsc::Sender<Result<Option<String>, OpenError>>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let (messages, received) = tokio::sync::mpsc::channel(MAX_MESSAGES);
        let seed = self.member.node.0;
        let (server, is_joined) = match self.open(messages).await {
            Ok((server, warning)) => {
                let is_joined = warning.is_none();
                _ = opened.send(Ok(warning));
                (server, is_joined)
            }
            Err(error) => {
                _ = opened.send(Err(error));
                return;
            }
        };
        let shared = Rc::new(Shared {
            gates: self.gates,
            health: self.health,
            lease: self.settings.gates_lease,
            lost: Notify::new(),
            interval: self.settings.gates_interval,
            clock: self.clock,
            log: self.log,
            folder: self.folder,
            namespace: self.settings.namespace,
            random: RefCell::new(Random::from_seed(seed)),
            saved: RefCell::new(self.claims),
        });
        let mut calls = Calls::new(Rc::clone(&shared), server, is_joined);
        let is_lost = Rc::clone(&calls.is_lost);
        tokio::select! {
            () = calls.run() => {}
            () = shared.tick() => {}
            () = shared.receive(received, &is_lost) => {}
            _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
        }
        shared.save().await;
        calls.release().await;
    }

    /// Enters the fleet; a warning if the server cannot be reached and there are shares from before.
    async fn open(
        &self,
        messages: tokio::sync::mpsc::Sender<FleetMessage>,
    ) -> Result<(FleetServer, Option<String>), OpenError> {
        let started = self.clock.now();
        let mut server = FleetServer::new(self.address.clone(), self.member.clone(), messages)?;
        match server.open().await {
            Ok(_) => {
                self.health.answered(self.clock.now());
                Ok((server, None))
            }
            Err(FleetOpenError {
                error,
                is_unreachable: true,
            }) if !self.claims.is_empty() => {
                // A warning has one line.
                let problem = error.to_string().replace("\nhint: ", "; ");
                self.health.failed(started, problem.clone());
                Ok((server, Some(format!("{DEGRADED_START}: {problem}"))))
            }
            Err(FleetOpenError { error, .. }) => Err(error),
        }
    }
}

const DEGRADED_START: &str =
    "gates start with the shares that this node had before, because the fleet cannot be reached";

impl Shared {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Between three and five quarters of a time, so that nodes do not stay in step.
    pub(super) fn jittered(&self, time: Duration) -> Duration {
        time.mul_f64(self.random.borrow_mut().between(0.75, 1.25))
    }

    /// Applies the passing of time, and says when the server is silent.
    async fn tick(&self) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut saves_at = self.now() + SAVE_EVERY;
        loop {
            ticks.tick().await;
            self.gates.tick();
            self.report();
            if self.now() >= saves_at {
                self.save().await;
                saves_at = self.now() + SAVE_EVERY;
            }
        }
    }

    fn report(&self) {
        match self.health.change(self.now()) {
            Some(HealthChange::Degraded(problem)) => self.log.fleet_degraded(Text::new(&problem)),
            Some(HealthChange::Recovered(silence)) => self.log.fleet_recovered(silence),
            None => {}
        }
    }

    /// Stores the shares, if there are others than those in the file.
    async fn save(&self) {
        let claims = self.gates.claims(MAX_AGE);
        if claims.is_empty() || *self.saved.borrow() == claims {
            return;
        }
        let (folder, namespace) = (self.folder.clone(), self.namespace.clone());
        let written = claims.clone();
        let write = move || shares::write(&folder, &namespace, &written);
        // A folder that cannot be written is reported by what else is stored there.
        if let Ok(Ok(())) = tokio::task::spawn_blocking(write).await {
            self.saved.replace(claims);
        }
    }

    /// Applies what other nodes have changed.
    async fn receive(&self, mut messages: Receiver<FleetMessage>, is_lost: &Cell<bool>) {
        while let Some(message) = messages.recv().await {
            match message {
                FleetMessage::Notice { key, notice } => self.gates.noticed(&key, &notice),
                FleetMessage::Disconnected => {
                    is_lost.set(true);
                    self.lost.notify_one();
                }
            }
        }
        pending::<()>().await;
    }
}

/// Who this node is, and what all nodes of the fleet must agree on.
fn member(gates: &SharedGates, settings: &Settings) -> FleetMember {
    let shared = &settings.storage.shared_gates;
    FleetMember {
        namespace: shared.namespace.clone(),
        settings: format!(
            "gates_interval={:?} gates_lease={:?} {}",
            shared.gates_interval,
            shared.gates_lease,
            agreed_gate(settings),
        ),
        node: gates.node(),
        about: format!(
            "tidegate/{} {}",
            env!("CARGO_PKG_VERSION"),
            settings.server.listen
        ),
    }
}

/// More messages than arrive while replies are applied; what does not fit is said by the next reply.
const MAX_MESSAGES: usize = 1024;

/// How often shares are stored, if they have changed: as often as what gates learn.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Shares of keys that were not used for longer have expired in Redis, too.
const MAX_AGE: Duration = Duration::from_secs(600);
