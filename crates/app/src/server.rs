//! `tidegate serve`: gateway, admin API and persistence, from start to drain.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use store::{OpenError, StoreError};
use tidegate::{Clock, Sort};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::{Admin, AdminError, TourGuide};
use crate::core::Core;
use crate::descriptors;
use crate::fleet::agreed_gate;
#[cfg(feature = "redis")]
use crate::fleet::{FleetStartError, FleetWorker};
use crate::gateway::{Gateway, StartError};
use crate::jobs::{JobWorker, Jobs};
use crate::log::Log;
pub use crate::log::Logs;
use crate::observe::AccessLogError;
use crate::operations::OperationWorker;
use crate::service_manager::{EventLoops, ServiceManager};
use crate::settings::{Problem, Process, Settings};
use crate::state::{Persister, State, open_store};
use crate::telemetry::{Telemetry, TelemetryError};
use config::Location;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    state: Arc<State>,
    persister: Persister,
    gateway: Gateway,
    admin: Admin,
    operations: OperationWorker,
    jobs: Arc<Jobs>,
    job_worker: JobWorker,
    telemetry: Option<Telemetry>,
    /// Makes the calls of gates that are shared.
    #[cfg(feature = "redis")]
    fleet: Option<FleetWorker>,
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
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// Gates cannot be shared.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Fleet(#[from] FleetStartError),
    /// The admin API cannot.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The access log cannot be written.
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
    /// Traces and metrics cannot be exported.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// It was asked to stop, and finished the requests in flight.
    Drained,
    /// It was interrupted, and finished the requests in flight.
    Interrupted,
    /// It was asked twice, or requests in flight took too long.
    Abandoned,
}

/// The signals of a server. Made before the server is announced: a signal that arrives earlier ends
/// the process.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Catches them from now on. Needs a runtime with IO.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

impl Server {
    /// Starts everything that `settings` ask for.
    ///
    /// # Errors
    ///
    /// If something cannot be started; then nothing is.
    pub fn start(settings: Settings, logs: Logs) -> Result<Self, ServeError> {
        // First, because everything else is measured by it.
        descriptors::raise_limit();
        let listen = settings.server.listen;
        let clock = Clock::system();
        let log = Log::new(logs.sink, logs.format, logs.filter, &clock);
        let store = open_store(&settings)?;
        let settings = Arc::new(settings);
        let core = Core::of_server(&settings, log, clock, workers());
        let observers = core.observers();
        observers.set_stdout(logs.access);
        observers.reload(&settings.server)?;
        let telemetry = Telemetry::start(&core, &settings)?;
        let (state, mut warnings) =
            State::restore(Arc::clone(&core), Arc::clone(&settings), store)?;
        #[cfg(feature = "redis")]
        let fleet = FleetWorker::start(&core, &settings)?.map(|(fleet, warning)| {
            warnings.extend(warning);
            fleet
        });
        if state.configuration().pools().next().is_none() {
            warnings.push(NO_POOLS.to_owned());
        }
        let persister = Persister::start(&state).map_err(ServeError::Thread)?;
        let operations = OperationWorker::start(Arc::clone(&state)).map_err(ServeError::Thread)?;
        let gateway = Gateway::start(Arc::clone(&state), listen)?;
        let jobs = Jobs::new(Arc::clone(&state));
        let trails = Arc::clone(gateway.trails());
        let admin = Admin::start(Arc::clone(&state), trails, Arc::clone(&jobs))?;
        let job_worker = JobWorker::start(Arc::clone(&jobs)).map_err(ServeError::Thread)?;
        Ok(Self {
            state,
            persister,
            gateway,
            admin,
            operations,
            jobs,
            job_worker,
            telemetry,
            #[cfg(feature = "redis")]
            fleet,
            warnings,
        })
    }

    /// What survives restarts, and the core that everything shares.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Its jobs.
    pub fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// Ends it without a signal: accepts nothing more, and waits for requests in flight for at most
    /// `timeout`.
    pub async fn stop(self, timeout: Duration) {
        self.gateway.drain();
        self.admin.drain();
        self.operations.drain();
        self.job_worker.drain();
        // What takes longer ends with the process.
        _ = tokio::time::timeout(timeout, self.drained()).await;
        self.operations.stop().await;
        self.job_worker.stop().await;
        if let Some(telemetry) = self.telemetry {
            telemetry.stop().await;
        }
        self.state.core().observers().flush();
        #[cfg(feature = "redis")]
        if let Some(fleet) = self.fleet {
            fleet.stop().await;
        }
        self.admin.stop();
    }

    /// Makes this server a demo, with a guided tour at `/api/v1/demo`.
    pub fn set_tour_guide(&self, guide: Arc<dyn TourGuide>) {
        self.admin.set_tour_guide(guide);
    }

    /// The URL of the data plane, without a path.
    pub fn url(&self) -> String {
        self.gateway.url()
    }

    /// The URL of the admin API, without a path.
    pub fn admin_url(&self) -> String {
        self.admin.url()
    }

    /// Where the admin API is.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// The address of the console.
    pub fn console_address(&self) -> String {
        self.admin.console_address()
    }

    /// The address of the console that signs a browser in: it contains the admin token, so it is for
    /// a person at a terminal and never for a log.
    pub fn sign_in_address(&self) -> String {
        self.admin.sign_in_address()
    }

    /// What the operator should know and do: pools that are missing, and stored changes that
    /// could not be restored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where the data plane is.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// Serves until a signal ends it: SIGTERM and SIGINT drain, a second one abandons what is under
    /// way; SIGHUP serves by what `load` gives, if that is right. A service manager that started this
    /// process is sent each of these steps.
    pub async fn run(
        self,
        signals: Signals,
        load: impl Fn() -> Result<Settings, Vec<Problem>>,
    ) -> ServerEnd {
        let Signals {
            mut terminate,
            mut interrupt,
            mut hang_up,
        } = signals;
        let manager = ServiceManager::new(&Process);
        manager.ready(&self.status());
        let serving = async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break ServerEnd::Drained,
                    _ = interrupt.recv() => break ServerEnd::Interrupted,
                    _ = hang_up.recv() => {
                        manager.reloading();
                        self.reload(load());
                        manager.ready(&self.status());
                    }
                }
            }
        };
        let loops = self.event_loops();
        let ended = tokio::select! {
            ended = serving => ended,
            never = manager.watch(&loops) => match never {},
        };
        let log = self.state.log();
        let in_flight = self
            .state
            .limiter()
            .snapshot(Sort::default(), 0)
            .totals
            .in_flight;
        log.draining(in_flight);
        self.gateway.drain();
        self.admin.drain();
        self.operations.drain();
        self.job_worker.drain();
        let drain = self.state.configuration().settings().server.drain;
        manager.stopping(drain + STOP_TIME);
        let again = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = tokio::time::sleep(drain) => {}
            }
        };
        let finished = async {
            self.drained().await;
            self.persister.finish().await;
        };
        let ended = tokio::select! {
            () = finished => ended,
            () = again => ServerEnd::Abandoned,
            never = manager.watch_end() => match never {},
        };
        self.operations.stop().await;
        self.job_worker.stop().await;
        if let (Some(telemetry), true) = (self.telemetry, ended != ServerEnd::Abandoned) {
            telemetry.stop().await;
        }
        self.state.core().observers().flush();
        #[cfg(feature = "redis")]
        if let Some(fleet) = self.fleet {
            fleet.stop().await;
        }
        log.stopped();
        log.flush();
        if ended == ServerEnd::Abandoned {
            return ended;
        }
        self.admin.stop();
        ended
    }

    /// What a person sees of it, in one line.
    fn status(&self) -> String {
        let (address, admin) = (self.gateway.url(), self.admin.url());
        format!("listening on {address}, admin API on {admin}")
    }

    /// The threads without which no request is served, no operation delivered, and no health shown.
    fn event_loops(&self) -> EventLoops {
        let mut loops = self.gateway.event_loops().to_vec();
        loops.push(self.admin.event_loop().clone());
        loops.push(self.operations.event_loop().clone());
        EventLoops {
            loops,
            clock: self.state.clock().clone(),
        }
    }

    fn reload(&self, settings: Result<Settings, Vec<Problem>>) {
        let log = self.state.log();
        let settings = settings.and_then(|settings| match self.fixed_changes(&settings) {
            problems if problems.is_empty() => Ok(settings),
            problems => Err(problems),
        });
        match settings {
            Ok(settings) => {
                if let Err(error) = self.state.core().observers().reload(&settings.server) {
                    // The rest of the settings is right, and the old file is still open.
                    log.access_log_failed(&error.reason());
                }
                self.state.reload(Arc::new(settings));
                self.gateway.reload();
                log.reloaded();
            }
            Err(problems) => {
                for problem in problems {
                    log.reload_failed(&problem.to_string());
                }
            }
        }
    }

    /// What cannot change while it runs, and differs in `settings`.
    fn fixed_changes(&self, settings: &Settings) -> Vec<Problem> {
        let configuration = self.state.configuration();
        let (before, after) = (&configuration.settings().server, &settings.server);
        let (storage, other) = (&configuration.settings().storage, &settings.storage);
        let (shared, others) = (&storage.shared_gates, &other.shared_gates);
        // The other servers of the fleet would go on with what they have.
        let is_in_fleet = storage.gates.is_some();
        let has_other_gates = agreed_gate(configuration.settings()) != agreed_gate(settings);
        // Other certificates are used from now on; clients of the other scheme would all fail.
        let listeners = &configuration.settings().listeners;
        let started = configuration.settings();
        let headers = &started.telemetry_headers;
        let has_other_telemetry =
            started.telemetry != settings.telemetry || *headers != settings.telemetry_headers;
        let shards = |settings: &Settings| settings.gates.default_value().gate.shards();
        let changes = [
            ("telemetry", has_other_telemetry),
            ("trails.keep", started.trails.keep != settings.trails.keep),
            ("gate.shards", shards(started) != shards(settings)),
            ("server.listen", before.listen != after.listen),
            ("server.admin", before.admin != after.admin),
            ("server.data", before.data != after.data),
            (
                "server.tls",
                listeners.data_plane.is_some() != settings.listeners.data_plane.is_some(),
            ),
            (
                "server.admin_tls",
                listeners.admin.is_some() != settings.listeners.admin.is_some(),
            ),
            ("storage.gates", storage.gates != other.gates),
            ("storage.operations", storage.operations != other.operations),
            ("storage.namespace", shared.namespace != others.namespace),
            (
                "storage.gates_interval",
                shared.gates_interval != others.gates_interval,
            ),
            (
                "storage.gates_lease",
                shared.gates_lease != others.gates_lease,
            ),
            ("gate", is_in_fleet && has_other_gates),
        ];
        let changed = changes.into_iter().filter(|(_, is_changed)| *is_changed);
        changed
            .map(|(key, _)| Problem::about(&Location::Default, key, NEEDS_RESTART))
            .collect()
    }

    async fn drained(&self) {
        while !self.gateway.is_done() || !self.operations.is_done() || !self.job_worker.is_done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What comes after `server.drain` at most: the last write, claims that are released, and calls of the
/// admin API.
const STOP_TIME: Duration = Duration::from_secs(30);

const NEEDS_RESTART: &str = "has changed, which needs a restart; nothing of the file is used until \
                             then, or until it is as before";

const NO_POOLS: &str = "no pool is configured, so every request is answered 404; add a section \
                        `[pool.NAME]` with `endpoints` to the configuration file and send SIGHUP, \
                        or restart; the admin API works";

/// One for each core.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Process, Secret, Sources};
    use crate::tls::{Certificates, Identity, ListenerTls};

    #[test]
    fn reload_refuses_what_needs_a_restart_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut settings = Settings::default();
        settings.server.listen = free;
        settings.server.admin = free;
        settings.server.data = folder.path().to_owned();
        let server = Server::start(settings.clone(), Logs::silent()).unwrap();
        let idle = |server: &Server| server.state.configuration().settings().http.idle_timeout;
        let before = idle(&server);
        let mut other = settings;
        other.http.idle_timeout = before / 2;
        for change in [
            |settings: &mut Settings| settings.server.listen.set_port(1),
            |settings: &mut Settings| settings.server.admin.set_port(1),
            |settings: &mut Settings| settings.server.data.push("other"),
            |settings: &mut Settings| {
                settings.storage.gates = Some(Secret::new("redis://127.0.0.1".to_owned()));
            },
            |settings: &mut Settings| {
                settings.storage.operations = Some(Secret::new("postgres://u@h/d".to_owned()));
            },
            |settings: &mut Settings| settings.storage.shared_gates.namespace.push('x'),
            |settings: &mut Settings| settings.storage.shared_gates.gates_interval *= 2,
            |settings: &mut Settings| settings.storage.shared_gates.gates_lease *= 2,
            |settings: &mut Settings| settings.telemetry.sample = 0.5,
            |settings: &mut Settings| settings.trails.keep += 1,
            |settings: &mut Settings| {
                let sources = Sources {
                    file: Some(("t.toml".to_owned(), b"[gate]\nshards = 8\n".to_vec())),
                    flags: Vec::new(),
                };
                settings.gates = Settings::load(&sources, &Process).unwrap().gates;
            },
        ] {
            let mut changed = other.clone();
            change(&mut changed);
            assert_eq!(server.fixed_changes(&changed).len(), 1);
            server.reload(Ok(changed));
            assert_eq!(idle(&server), before);
        }
        server.reload(Ok(other));
        assert_eq!(idle(&server), before / 2);
        stop(server);
    }

    #[test]
    fn status_says_which_listener_speaks_tls() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let chain = Certificates::from_pem(made.cert.pem().as_bytes()).unwrap();
        let key = made.signing_key.serialize_pem();
        let identity = Identity::new(chain, key.as_bytes(), "cert").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        (settings.server.listen, settings.server.admin) = (free, free);
        settings.server.data = folder.path().to_owned();
        settings.listeners.data_plane = Some(ListenerTls::new(identity, None, &[]));
        let server = Server::start(settings, Logs::silent()).unwrap();
        let (address, admin) = (server.address(), server.admin_address());
        assert_eq!(
            server.status(),
            format!("listening on https://{address}, admin API on http://{admin}")
        );
        stop(server);
    }

    fn stop(server: Server) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime
            .unwrap()
            .block_on(server.stop(Duration::from_secs(1)));
    }
}
