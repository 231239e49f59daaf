//! The demo: mock upstreams, the gateway and its admin API as `serve` starts them, clients, and a
//! script that shows everything else within a minute. The gateway and the clients do not know the
//! limits of the upstreams.
//!
//! Requests go through sockets, and all figures are those of the gates and the mocks. The demo needs
//! no configuration and no network: it listens on free loopback ports and stores its data in a
//! temporary folder.

mod background;
mod client;
mod events;
mod folder;
mod outcome;
mod plan;
mod profile;
mod progress;
mod script;
mod servers;
mod shop;
mod site;
mod tour;
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
pub use store::operations::OperationCounts;
pub use view::{Badge, DemoView, JobView, ServerView, UpstreamView, WaitReason};

use crate::admin::{Token, TourGuide};
use crate::mock::{Mock, MockSettings, MockStats};
use crate::server::{Logs, ServeError, Server};
use crate::settings::{DEFAULT_OPERATION, EndpointSettings, PoolSettings, PoolTimeouts, Settings};
use crate::state::State;
use crate::tls::Transport;
use background::Background;
use events::EventFeed;
use folder::Folder;
use profile::Profile;
use progress::{Progress, Sample};
use script::Script;
use servers::LocalServer;
use shop::Shop;
use site::Site;
use tour::Tour;
use traffic::{ClientGroup, Counts};
use upstreams::{UpstreamPlan, upstream_plans};

/// A running demo.
#[derive(Debug)]
pub struct Demo {
    traffic: Background,
    script: Background,
    server: Server,
    shared: Arc<DemoState>,
    /// The console's address, with the token.
    console: String,
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
    /// The thread of the clients or of the script cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// What the demo and its observer share.
#[derive(Debug)]
struct DemoState {
    state: Arc<State>,
    began: Timestamp,
    upstreams: Vec<RunningUpstream>,
    feed: Arc<EventFeed>,
    tour: Arc<Tour>,
}

/// The servers that the script uses.
struct ScriptServers {
    profile: Arc<Profile>,
    site_server: LocalServer,
    shop_server: LocalServer,
    profile_server: LocalServer,
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
        let token = folder.write_token().map_err(DemoError::Folder)?;
        let upstreams: Vec<RunningUpstream> = upstream_plans()
            .into_iter()
            .map(RunningUpstream::start)
            .collect::<Result<_, _>>()?;
        let servers = ScriptServers::bind()?;
        let settings = settings(&upstreams, &servers, &folder, port);
        let server = Server::start(settings, Logs::silent())?;
        let state = Arc::clone(server.state());
        let began = state.clock().now();
        let feed = Arc::new(EventFeed::new(began));
        state.core().events().add(Arc::<EventFeed>::clone(&feed));
        let tour = Arc::new(Tour::new(state.clock().clone(), began));
        state.core().events().add(Arc::<Tour>::clone(&tour));
        server.set_tour_guide(Arc::<Tour>::clone(&tour));
        let script = Script {
            state: Arc::clone(&state),
            jobs: Arc::clone(server.jobs()),
            tour: Arc::clone(&tour),
            profile: Arc::clone(&servers.profile),
            site_address: servers.site_server.address(),
            profile_address: servers.profile_server.address(),
            admin: server.admin_address(),
            authorization: format!("Bearer {token}"),
        };
        let shared = Arc::new(DemoState {
            state,
            began,
            upstreams,
            feed,
            tour,
        });
        shared.begin();
        let script = servers.start(script).map_err(DemoError::Thread)?;
        let observer = Arc::clone(&shared);
        let traffic = traffic::start(server.address(), shared.client_groups(), move || {
            observer.record()
        });
        let console = format!("http://{}/?token={token}", server.admin_address());
        Ok(Self {
            traffic: traffic.map_err(DemoError::Thread)?,
            script,
            server,
            shared,
            console,
            folder,
        })
    }

    /// Its present state.
    pub fn view(&self) -> DemoView {
        DemoView {
            elapsed: self.shared.elapsed(),
            gateway: self.server.address(),
            console: self.console.clone(),
            admin: self.server.admin_address(),
            token: Token::path(self.folder.path()),
            tour: self.shared.tour.tour(),
            operations: self.shared.state.operations().counts(),
            job: self.shared.job_view(),
            upstreams: self.shared.upstream_views(),
            events: self.shared.feed.events(),
        }
    }

    /// Stops it and returns its results. Blocks for some seconds at most.
    pub fn finish(self) -> Outcome {
        let Self {
            traffic,
            script,
            server,
            shared,
            console: _,
            folder,
        } = self;
        let mut outcome = Outcome {
            elapsed: shared.elapsed(),
            gateway: server.address(),
            admin: server.admin_address(),
            steps: shared.tour.tour().steps,
            upstreams: shared.upstream_outcomes(),
        };
        drop(script);
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

impl ScriptServers {
    fn bind() -> Result<Self, DemoError> {
        let named = |name| move |error| DemoError::Upstream { name, error };
        let profile = Arc::new(Profile::new());
        Ok(Self {
            site_server: LocalServer::bind(Arc::new(Site)).map_err(named("site"))?,
            shop_server: LocalServer::bind(Arc::new(Shop::default())).map_err(named("shop"))?,
            profile_server: LocalServer::bind(Arc::<Profile>::clone(&profile))
                .map_err(named("profiles"))?,
            profile,
        })
    }

    /// Serves, and plays the script.
    fn start(self, script: Script) -> io::Result<Background> {
        Background::start("demo-script", move || async move {
            tokio::join!(
                self.site_server.serve(),
                self.shop_server.serve(),
                self.profile_server.serve(),
                script.run(),
            );
        })
    }

    fn pools(&self) -> [PoolSettings; 2] {
        let servers = [
            (script::SHOP, &self.shop_server),
            (script::PROFILES, &self.profile_server),
        ];
        servers.map(|(name, server)| {
            let url = format!("http://{}", server.address());
            pool_settings(name, [("only", url)])
        })
    }
}

fn settings(
    upstreams: &[RunningUpstream],
    servers: &ScriptServers,
    folder: &Folder,
    port: u16,
) -> Settings {
    let mut settings = Settings::default();
    settings.server.listen = (Ipv4Addr::LOCALHOST, port).into();
    settings.server.admin = (Ipv4Addr::LOCALHOST, 0).into();
    settings.server.data = folder.path().to_owned();
    let pools = upstreams.iter().map(RunningUpstream::pool);
    let pools = pools.chain(servers.pools());
    settings.pools = pools.map(|pool| (pool.name.clone(), pool)).collect();
    // The job and the resource of an operation are URLs, and these are loopback.
    settings.network.allow = vec![LOOPBACK.parse().expect("it is a network")];
    settings.jobs.status_limit = plan::STATUS_LIMIT.parse().expect("it is a limit");
    settings.jobs.status_retry_after = false;
    let default = settings.operation(DEFAULT_OPERATION).clone();
    for kind in [script::ORDER, script::PROFILE_UPDATE] {
        settings.operations.insert(kind.to_owned(), default.clone());
    }
    settings
}

const LOOPBACK: &str = "127.0.0.1/32";

fn pool_settings(
    name: &str,
    endpoints: impl IntoIterator<Item = (&'static str, String)>,
) -> PoolSettings {
    let endpoints = endpoints.into_iter().map(|(name, url)| EndpointSettings {
        name: name.to_owned(),
        url: Url::parse(&url).expect("an address of this machine is a URL"),
        headers: Vec::new(),
        transport: Transport::default(),
    });
    PoolSettings {
        name: name.to_owned(),
        balance: Balance::default(),
        endpoints: endpoints.collect(),
        retry_after_jitter: RetryAfterJitter::CALLS,
        backoff: "standard".to_owned(),
        retry_unsafe: false,
        credential: None,
        protection: protection(),
        rules: Vec::new(),
        timeouts: PoolTimeouts::default(),
    }
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
        let endpoints = endpoints.map(|(server, mock)| (server.name, mock.url()));
        pool_settings(self.plan.name, endpoints)
    }

    fn stats(&self) -> Vec<MockStats> {
        self.mocks.iter().map(Mock::stats).collect()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shorter pauses than the defaults, and fewer of them, to be seen in a minute.
fn protection() -> LadderSettings {
    let options = LadderOptions {
        pauses: Some([2, 4, 8].map(Duration::from_secs).into()),
        disable_after: Some(3),
        ..LadderOptions::default()
    };
    options.build().expect("three growing pauses are right")
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
                if upstream.plan.name == "steady" {
                    self.tour.update(|facts, now| facts.learned_at = Some(now));
                }
                let what = format!("gets all that is possible: {}", upstream.plan.limit());
                self.feed.add(self.clock().now(), upstream.plan.name, what);
            }
        }
        self.record_facts();
    }

    /// Records what the steps of the tour count.
    fn record_facts(&self) {
        for upstream in &self.upstreams {
            match upstream.plan.name {
                "polite" => {
                    let waiting = self.waiting(upstream, &self.gates(upstream));
                    self.tour.update(|facts, now| {
                        if let Some(hold) = facts.hold.as_mut().filter(|hold| now < hold.until) {
                            hold.waiting = hold.waiting.max(waiting);
                        }
                    });
                }
                plan::POOL => {
                    let failed = upstream.counts.bad.load(Ordering::Relaxed);
                    self.tour.update(|facts, _| facts.pool_failed = failed);
                }
                _ => {}
            }
        }
    }

    /// Requests of clients that wait in the gateway.
    fn waiting(&self, upstream: &RunningUpstream, gates: &[Option<GateView>]) -> u32 {
        let in_flight: u32 = gates.iter().flatten().map(|gate| gate.gate.in_flight).sum();
        let open = upstream.counts.open.load(Ordering::Relaxed);
        open.saturating_sub(in_flight)
    }

    fn job_view(&self) -> Option<JobView> {
        let facts = self.tour.facts();
        let job = facts.job()?;
        let wait = job
            .checks
            .next_at
            .map(|at| at.saturating_sub(self.elapsed()));
        Some(JobView {
            id: job.id.clone(),
            progress: job.progress,
            stage: job.stage.clone(),
            end: job.end.clone(),
            refused: match job.checks.is_slowed() {
                true => job.checks.waits.len(),
                false => 0,
            },
            next_check: wait,
        })
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
        let first = gates.iter().flatten().next();
        UpstreamView {
            name: upstream.plan.name,
            about: upstream.plan.about,
            limit: upstream.plan.limit(),
            learned: pace(&gates),
            answered: upstream.progress().pace(),
            received: stats.iter().map(|stats| stats.received).sum(),
            refused: stats.iter().map(|stats| stats.refused).sum(),
            waiting: self.waiting(upstream, &gates),
            wait_reason: first.map_or(WaitReason::Pace, |gate| self.wait_reason(gate)),
            why: first.map_or_else(String::new, |gate| gate.gate.to_string()),
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

#[cfg(test)]
mod tests {
    use super::client::Client;
    use super::*;
    use crate::admin::bodies::DemoTour;

    #[test]
    fn serves_the_tour_with_the_token_of_its_address() {
        let demo = Demo::start(0).unwrap();
        let view = demo.view();
        let (address, token) = view.console.split_once("/?token=").unwrap();
        assert_eq!(address, format!("http://{}", view.admin));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let get = |authorization: String| {
            let mut client = Client::new(view.admin, ("authorization", authorization));
            runtime.block_on(client.get("/api/v1/demo")).unwrap()
        };
        let (status, _) = get("Bearer wrong".to_owned());
        assert_eq!(status.as_u16(), 401);
        let (status, body) = get(format!("Bearer {token}"));
        assert_eq!(status.as_u16(), 200);
        let tour: DemoTour = serde_json::from_slice(&body).unwrap();
        assert_eq!((tour.step, tour.of, tour.round), (1, 8, 1));
        assert_eq!(tour.steps.len(), 8);
        demo.finish();
    }
}
