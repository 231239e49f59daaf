//! The demo: mock upstreams, the gateway and its admin API as `serve` starts them, and clients. The
//! gateway and the clients do not know the limits of the upstreams.
//!
//! Requests go through sockets, and all figures are those of the gates and the mocks. The demo needs
//! no configuration and no network: it listens on free loopback ports and stores its data in a
//! temporary folder.

mod events;
mod folder;
mod outcome;
mod progress;
mod traffic;
mod upstreams;
mod view;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::jitter::RetryAfterJitter;
use policy::ladder::{LadderOptions, LadderSettings};
use policy::pool::Balance;
use tidegate::{Clock, GateView, Timestamp};
use url::Url;

pub use events::DemoEvent;
pub use outcome::{NaiveOutcome, Outcome, UpstreamOutcome};
pub use view::{Badge, DemoView, ServerView, UpstreamView, WaitReason};

use crate::admin::Token;
use crate::mock::{Mock, MockSettings, MockStats};
use crate::server::{Logs, ServeError, Server};
use crate::settings::{EndpointSettings, PoolSettings, Settings};
use crate::state::State;
use events::EventFeed;
use folder::Folder;
use progress::{Progress, Sample};
use traffic::{ClientGroup, Counts, Traffic};
use upstreams::{UpstreamPlan, upstream_plans};

/// A running demo.
#[derive(Debug)]
pub struct Demo {
    traffic: Traffic,
    server: Server,
    shared: Arc<DemoState>,
    /// Dropped last, because the others use it.
    folder: Folder,
}

/// Why a demo cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The temporary folder cannot be created.
    #[error("cannot make a temporary folder")]
    Folder(#[source] io::Error),
    /// A mock upstream cannot listen.
    #[error("cannot start the upstream `{name}`")]
    Upstream {
        /// Which one.
        name: &'static str,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The gateway cannot start.
    #[error(transparent)]
    Server(#[from] ServeError),
    /// The clients' thread cannot be started.
    #[error("cannot start the clients")]
    Clients(#[source] io::Error),
}

/// What the demo and its observer share.
#[derive(Debug)]
struct DemoState {
    state: Arc<State>,
    began: Timestamp,
    upstreams: Vec<RunningUpstream>,
    feed: Arc<EventFeed>,
}

/// One upstream, and its clients.
#[derive(Debug)]
struct RunningUpstream {
    plan: UpstreamPlan,
    mocks: Vec<Mock>,
    counts: Arc<Counts>,
    progress: Mutex<Progress>,
}

impl Demo {
    /// Starts everything. The gateway listens at `port` of loopback; 0 takes any free port.
    ///
    /// # Errors
    ///
    /// If a part cannot be started; the others are stopped then.
    pub fn start(port: u16) -> Result<Self, DemoError> {
        let folder = Folder::new().map_err(DemoError::Folder)?;
        let upstreams: Vec<RunningUpstream> = upstream_plans()
            .into_iter()
            .map(RunningUpstream::start)
            .collect::<Result<_, _>>()?;
        let server = Server::start(settings(&upstreams, &folder, port), Logs::silent())?;
        let state = Arc::clone(server.state());
        let began = state.clock().now();
        let feed = Arc::new(EventFeed::new(began));
        state.core().events().add(Arc::<EventFeed>::clone(&feed));
        let shared = Arc::new(DemoState {
            state,
            began,
            upstreams,
            feed,
        });
        shared.begin();
        let observer = Arc::clone(&shared);
        let traffic = Traffic::start(server.address(), shared.client_groups(), move || {
            observer.record()
        });
        let traffic = traffic.map_err(DemoError::Clients)?;
        Ok(Self {
            traffic,
            server,
            shared,
            folder,
        })
    }

    /// Its present state.
    pub fn view(&self) -> DemoView {
        DemoView {
            elapsed: self.shared.elapsed(),
            gateway: self.server.address(),
            admin: self.server.admin_address(),
            token: Token::path(self.folder.path()),
            upstreams: self.shared.upstream_views(),
            events: self.shared.feed.events(),
        }
    }

    /// Stops it and returns its results. Blocks for some seconds at most.
    pub fn finish(self) -> Outcome {
        let Self {
            traffic,
            server,
            shared,
            folder,
        } = self;
        let mut outcome = Outcome {
            elapsed: shared.elapsed(),
            gateway: server.address(),
            admin: server.admin_address(),
            upstreams: shared.upstream_outcomes(),
        };
        drop(traffic);
        stop(server);
        for (upstream, learned) in shared.upstreams.iter().zip(&mut outcome.upstreams) {
            learned.naive = outcome::naive(&upstream.plan, outcome.elapsed);
        }
        drop(shared);
        drop(folder);
        outcome
    }
}

/// Stops a server and its requests in flight; without a runtime, they end with the process.
fn stop(server: Server) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    if let Ok(runtime) = runtime {
        runtime.block_on(server.stop(STOP_TIMEOUT));
    }
}

/// The demo's own clients have ended by then; another client may still wait.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

fn settings(upstreams: &[RunningUpstream], folder: &Folder, port: u16) -> Settings {
    let mut settings = Settings::default();
    settings.server.listen = (Ipv4Addr::LOCALHOST, port).into();
    settings.server.admin = (Ipv4Addr::LOCALHOST, 0).into();
    settings.server.data = folder.path().to_owned();
    settings.pools = upstreams
        .iter()
        .map(|upstream| (upstream.plan.name.to_owned(), upstream.pool()))
        .collect();
    settings
}

impl RunningUpstream {
    fn start(plan: UpstreamPlan) -> Result<Self, DemoError> {
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let mocks = plan.servers.iter().map(|server| {
            let settings = MockSettings {
                upstream: Some(server.upstream.clone()),
                ..MockSettings::default()
            };
            Mock::start(settings, any, NonZeroUsize::MIN).map_err(|error| DemoError::Upstream {
                name: plan.name,
                error,
            })
        });
        Ok(Self {
            mocks: mocks.collect::<Result<_, _>>()?,
            counts: Arc::default(),
            progress: Mutex::new(Progress::new(plan.period())),
            plan,
        })
    }

    /// The gateway's settings of it: addresses, and no limit.
    fn pool(&self) -> PoolSettings {
        let endpoints = self.plan.servers.iter().zip(&self.mocks);
        let endpoints = endpoints.map(|(server, mock)| EndpointSettings {
            name: server.name.to_owned(),
            url: Url::parse(&mock.url()).expect("an address of this machine is a URL"),
            headers: Vec::new(),
        });
        PoolSettings {
            name: self.plan.name.to_owned(),
            balance: Balance::default(),
            endpoints: endpoints.collect(),
            retry_after_jitter: RetryAfterJitter::CALLS,
            backoff: "standard".to_owned(),
            retry_unsafe: false,
            credential: None,
            protection: protection(),
            rules: Vec::new(),
        }
    }

    fn stats(&self) -> Vec<MockStats> {
        self.mocks.iter().map(Mock::stats).collect()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The defaults with a tenth of their pauses, to be seen in a short demo.
fn protection() -> LadderSettings {
    let options = LadderOptions {
        pauses: Some([3, 6, 12, 30, 60].map(Duration::from_secs).into()),
        ..LadderOptions::default()
    };
    options.build().expect("five growing pauses are right")
}

impl DemoState {
    /// Starts the mocks' time now.
    fn begin(&self) {
        for mock in self.upstreams.iter().flat_map(|upstream| &upstream.mocks) {
            mock.reset();
        }
    }

    fn client_groups(&self) -> Vec<ClientGroup> {
        let client_groups = self.upstreams.iter().map(|upstream| ClientGroup {
            pool: upstream.plan.name,
            clients: upstream.plan.clients,
            counts: Arc::clone(&upstream.counts),
        });
        client_groups.collect()
    }

    fn clock(&self) -> &Clock {
        self.state.limiter().clock()
    }

    fn elapsed(&self) -> Duration {
        self.clock().now().since(self.began)
    }

    /// Records the accepted requests so far.
    fn record(&self) {
        for upstream in &self.upstreams {
            let at = self.elapsed();
            let accepted = upstream.stats().iter().map(|stats| stats.accepted).sum();
            let sample = Sample {
                at,
                accepted,
                possible: upstream.plan.possible(at),
            };
            if upstream.progress().record(sample) {
                let what = format!("gets all that is possible: {}", upstream.plan.limit());
                self.feed.add(self.clock().now(), upstream.plan.name, what);
            }
        }
    }

    fn upstream_views(&self) -> Vec<UpstreamView> {
        let upstreams = self.upstreams.iter();
        upstreams
            .map(|upstream| self.upstream_view(upstream))
            .collect()
    }

    fn upstream_view(&self, upstream: &RunningUpstream) -> UpstreamView {
        let stats = upstream.stats();
        let gates = self.gates(upstream);
        let in_flight: u32 = gates.iter().flatten().map(|gate| gate.gate.in_flight).sum();
        let open = upstream.counts.open.load(Ordering::Relaxed);
        let first = gates.iter().flatten().next();
        UpstreamView {
            name: upstream.plan.name,
            about: upstream.plan.about,
            limit: upstream.plan.limit(),
            learned: pace(&gates),
            answered: upstream.progress().pace(),
            received: stats.iter().map(|stats| stats.received).sum(),
            refused: stats.iter().map(|stats| stats.refused).sum(),
            waiting: open.saturating_sub(in_flight),
            wait_reason: first.map_or(WaitReason::Pace, |gate| self.wait_reason(gate)),
            why: first.map_or_else(String::new, |gate| gate.gate.why.to_string()),
            servers: self.server_views(upstream, &gates, &stats),
        }
    }

    /// The gates of an upstream's servers; `None` before a server's first request.
    fn gates(&self, upstream: &RunningUpstream) -> Vec<Option<GateView>> {
        let servers = upstream.plan.servers.iter();
        let keys = servers.map(|server| format!("{}/{}", upstream.plan.name, server.name));
        keys.map(|key| self.state.limiter().gate(&key)).collect()
    }

    fn server_views(
        &self,
        upstream: &RunningUpstream,
        gates: &[Option<GateView>],
        stats: &[MockStats],
    ) -> Vec<ServerView> {
        let configuration = self.state.configuration();
        let pool = configuration.pool(upstream.plan.name);
        let views = pool.map(|pool| pool.view()).unwrap_or_default();
        let servers = upstream.plan.servers.iter().zip(gates).zip(stats);
        let servers = servers.map(|((server, gate), stats)| {
            let view = views.iter().find(|view| view.name == server.name);
            ServerView {
                name: server.name,
                limit: server.limit(),
                learned: gate.as_ref().map_or(0.0, |gate| gate.gate.rate),
                breaker: gate
                    .as_ref()
                    .map_or(policy::breaker::BreakerState::Closed, |gate| {
                        gate.gate.breaker
                    }),
                badge: view.and_then(|view| self.badge(view)),
                wait_reason: gate
                    .as_ref()
                    .map_or(WaitReason::Pace, |gate| self.wait_reason(gate)),
                received: stats.received,
                refused: stats.refused,
            }
        });
        servers.collect()
    }

    fn wait_reason(&self, gate: &GateView) -> WaitReason {
        WaitReason::of(&gate.gate, |at| at.since(self.began))
    }

    fn badge(&self, view: &tidegate::pool::EndpointView) -> Option<Badge> {
        if view.disabled.is_some() {
            return Some(Badge::Disabled);
        }
        view.paused_until.map(|until| Badge::Paused {
            until: until.since(self.began),
            errors: view.consecutive_errors,
        })
    }

    fn upstream_outcomes(&self) -> Vec<UpstreamOutcome> {
        let upstreams = self.upstreams.iter();
        upstreams
            .map(|upstream| self.upstream_outcome(upstream))
            .collect()
    }

    fn upstream_outcome(&self, upstream: &RunningUpstream) -> UpstreamOutcome {
        let stats = upstream.stats();
        let sum = |count: fn(&MockStats) -> u64| stats.iter().map(count).sum();
        let initial = Settings::default()
            .gates
            .default_value()
            .gate
            .initial_rate();
        let progress = upstream.progress();
        let (found, really) = progress.found();
        UpstreamOutcome {
            name: upstream.plan.name,
            about: upstream.plan.about,
            limit: upstream.plan.limit(),
            really,
            found,
            within: progress.reached(),
            initial: initial * upstream.mocks.len() as f64,
            learned: pace(&self.gates(upstream)),
            received: sum(|stats| stats.received),
            accepted: sum(|stats| stats.accepted),
            refused: sum(|stats| stats.refused),
            early: sum(|stats| stats.early),
            unserved: upstream.counts.bad.load(Ordering::Relaxed),
            latency: slowest(&self.gates(upstream)),
            naive: NaiveOutcome::default(),
        }
    }
}

/// The sum of the gates' rates, per second.
fn pace(gates: &[Option<GateView>]) -> f64 {
    gates.iter().flatten().map(|gate| gate.gate.rate).sum()
}

/// The latency of the slowest server.
fn slowest(gates: &[Option<GateView>]) -> Duration {
    let latencies = gates.iter().flatten().map(|gate| gate.gate.latency_ewma);
    latencies.max().unwrap_or_default()
}
