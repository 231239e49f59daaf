//! Everything at once, for people who want to see it: mock upstreams with limits that nobody tells
//! the gateway, the gateway and its admin API as `serve` starts them, and clients that know nothing
//! of limits.
//!
//! Nothing is made up: requests go through sockets, settings are real settings, and what is shown
//! is what the gates and the mocks say. It needs no configuration and no network: all ports are
//! free ones of this machine, and what is stored goes when it ends.

mod cast;
mod course;
mod folder;
mod outcome;
mod picture;
mod story;
mod traffic;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::ladder::{LadderOptions, LadderSettings};
use policy::pool::Balance;
use tidegate::{Clock, GateView, Timestamp};
use url::Url;

pub use outcome::{Learned, Naive, Outcome};
pub use picture::{Badge, Because, Picture, Seen, SeenServer};
pub use story::StoryLine;

use crate::admin::Token;
use crate::mock::{Mock, MockSettings, MockStats};
use crate::server::{Logs, ServeError, Server};
use crate::settings::{Endpoint, Pool, Settings};
use crate::state::State;
use cast::{Role, roles};
use course::{Course, Mark};
use folder::Folder;
use story::Story;
use traffic::{Counts, Crowd, Traffic};

/// A demo that runs.
#[derive(Debug)]
pub struct Demo {
    traffic: Traffic,
    server: Server,
    stage: Arc<Stage>,
    /// Last, for the others use it.
    folder: Folder,
}

/// Why a demo cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// There is no place for what is stored.
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
    /// There is no thread for the clients.
    #[error("cannot start the clients")]
    Clients(#[source] io::Error),
}

/// What everyone looks at.
#[derive(Debug)]
struct Stage {
    state: Arc<State>,
    began: Timestamp,
    players: Vec<Player>,
    story: Arc<Story>,
}

/// One upstream, and its clients.
#[derive(Debug)]
struct Player {
    role: Role,
    mocks: Vec<Mock>,
    counts: Arc<Counts>,
    course: Mutex<Course>,
}

impl Demo {
    /// Starts everything. The gateway listens at `port` of this machine; 0 is any that is free.
    ///
    /// # Errors
    ///
    /// If something cannot be started; then nothing is.
    pub fn start(port: u16) -> Result<Self, DemoError> {
        let folder = Folder::new().map_err(DemoError::Folder)?;
        let players: Vec<Player> = roles()
            .into_iter()
            .map(Player::start)
            .collect::<Result<_, _>>()?;
        let server = Server::start(settings(&players, &folder, port), Logs::silent())?;
        let state = Arc::clone(server.state());
        let began = state.clock().now();
        let story = Arc::new(Story::new(began));
        state.core().events().add(Arc::<Story>::clone(&story));
        let stage = Arc::new(Stage {
            state,
            began,
            players,
            story,
        });
        stage.begin();
        let looks = Arc::clone(&stage);
        let traffic = Traffic::start(server.address(), stage.crowds(), move || looks.look());
        let traffic = traffic.map_err(DemoError::Clients)?;
        Ok(Self {
            traffic,
            server,
            stage,
            folder,
        })
    }

    /// What can be seen of it now.
    pub fn picture(&self) -> Picture {
        Picture {
            elapsed: self.stage.elapsed(),
            gateway: self.server.address(),
            admin: self.server.admin_address(),
            token: Token::path(self.folder.path()),
            upstreams: self.stage.seen(),
            story: self.stage.story.lines(),
        }
    }

    /// Ends it, and tells what it came to. Blocks for some seconds at most.
    pub fn finish(self) -> Outcome {
        let Self {
            traffic,
            server,
            stage,
            folder,
        } = self;
        let mut outcome = Outcome {
            elapsed: stage.elapsed(),
            gateway: server.address(),
            admin: server.admin_address(),
            upstreams: stage.learned(),
        };
        drop(traffic);
        stop(server);
        for (player, learned) in stage.players.iter().zip(&mut outcome.upstreams) {
            learned.naive = outcome::naive(&player.role, outcome.elapsed);
        }
        drop(stage);
        drop(folder);
        outcome
    }
}

/// Ends a server and all that is under way; if there is no runtime to be had, the process's end
/// does that.
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

fn settings(players: &[Player], folder: &Folder, port: u16) -> Settings {
    let mut settings = Settings::default();
    settings.server.listen = (Ipv4Addr::LOCALHOST, port).into();
    settings.server.admin = (Ipv4Addr::LOCALHOST, 0).into();
    settings.server.data = folder.path().to_owned();
    settings.pools = players
        .iter()
        .map(|player| (player.role.name.to_owned(), player.pool()))
        .collect();
    settings
}

impl Player {
    fn start(role: Role) -> Result<Self, DemoError> {
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let mocks = role.servers.iter().map(|server| {
            let settings = MockSettings {
                upstream: Some(server.upstream.clone()),
                ..MockSettings::default()
            };
            Mock::start(settings, any, NonZeroUsize::MIN).map_err(|error| DemoError::Upstream {
                name: role.name,
                error,
            })
        });
        Ok(Self {
            mocks: mocks.collect::<Result<_, _>>()?,
            counts: Arc::default(),
            course: Mutex::new(Course::new(role.period())),
            role,
        })
    }

    /// What the gateway is told: addresses, and no limit.
    fn pool(&self) -> Pool {
        let endpoints = self.role.servers.iter().zip(&self.mocks);
        let endpoints = endpoints.map(|(server, mock)| Endpoint {
            name: server.name.to_owned(),
            url: Url::parse(&mock.url()).expect("an address of this machine is a URL"),
            headers: Vec::new(),
        });
        Pool {
            name: self.role.name.to_owned(),
            balance: Balance::default(),
            endpoints: endpoints.collect(),
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

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The default in a tenth of its time: half a minute is long to look at.
fn protection() -> LadderSettings {
    let options = LadderOptions {
        pauses: Some([3, 6, 12, 30, 60].map(Duration::from_secs).into()),
        ..LadderOptions::default()
    };
    options.build().expect("five growing pauses are right")
}

impl Stage {
    /// Everybody's time begins now.
    fn begin(&self) {
        for mock in self.players.iter().flat_map(|player| &player.mocks) {
            mock.reset();
        }
    }

    fn crowds(&self) -> Vec<Crowd> {
        let crowds = self.players.iter().map(|player| Crowd {
            pool: player.role.name,
            clients: player.role.clients,
            counts: Arc::clone(&player.counts),
        });
        crowds.collect()
    }

    fn clock(&self) -> &Clock {
        self.state.limiter().clock()
    }

    fn elapsed(&self) -> Duration {
        self.clock().now().since(self.began)
    }

    /// Notes how much was answered so far.
    fn look(&self) {
        for player in &self.players {
            let at = self.elapsed();
            let accepted = player.stats().iter().map(|stats| stats.accepted).sum();
            let mark = Mark {
                at,
                accepted,
                possible: player.role.possible(at),
            };
            if player.course().look(mark) {
                let what = format!("gets all that is possible: {}", player.role.truth());
                self.story.tell(self.clock().now(), player.role.name, what);
            }
        }
    }

    fn seen(&self) -> Vec<Seen> {
        let players = self.players.iter();
        players.map(|player| self.seen_of(player)).collect()
    }

    fn seen_of(&self, player: &Player) -> Seen {
        let stats = player.stats();
        let gates = self.gates(player);
        let in_flight: u32 = gates.iter().flatten().map(|gate| gate.gate.in_flight).sum();
        let open = player.counts.open.load(Ordering::Relaxed);
        let first = gates.iter().flatten().next();
        Seen {
            name: player.role.name,
            about: player.role.about,
            truth: player.role.truth(),
            learned: pace(&gates),
            answered: player.course().pace(),
            received: stats.iter().map(|stats| stats.received).sum(),
            refused: stats.iter().map(|stats| stats.refused).sum(),
            waiting: open.saturating_sub(in_flight),
            because: first.map_or(Because::Pace, |gate| self.because(gate)),
            why: first.map_or_else(String::new, |gate| gate.gate.why.to_string()),
            servers: self.seen_servers(player, &gates, &stats),
        }
    }

    /// The gates of an upstream's servers; one that nobody has asked yet has none.
    fn gates(&self, player: &Player) -> Vec<Option<GateView>> {
        let servers = player.role.servers.iter();
        let keys = servers.map(|server| format!("{}/{}", player.role.name, server.name));
        keys.map(|key| self.state.limiter().gate(&key)).collect()
    }

    fn seen_servers(
        &self,
        player: &Player,
        gates: &[Option<GateView>],
        stats: &[MockStats],
    ) -> Vec<SeenServer> {
        let configuration = self.state.configuration();
        let pool = configuration.pool(player.role.name);
        let views = pool.map(|pool| pool.view()).unwrap_or_default();
        let servers = player.role.servers.iter().zip(gates).zip(stats);
        let servers = servers.map(|((server, gate), stats)| {
            let view = views.iter().find(|view| view.name == server.name);
            SeenServer {
                name: server.name,
                truth: server.truth(),
                learned: gate.as_ref().map_or(0.0, |gate| gate.gate.rate),
                breaker: gate
                    .as_ref()
                    .map_or(policy::breaker::BreakerState::Closed, |gate| {
                        gate.gate.breaker
                    }),
                badge: view.and_then(|view| self.badge(view)),
                because: gate
                    .as_ref()
                    .map_or(Because::Pace, |gate| self.because(gate)),
                received: stats.received,
                refused: stats.refused,
            }
        });
        servers.collect()
    }

    fn because(&self, gate: &GateView) -> Because {
        Because::of(&gate.gate, |at| at.since(self.began))
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

    fn learned(&self) -> Vec<Learned> {
        let players = self.players.iter();
        players.map(|player| self.learned_of(player)).collect()
    }

    fn learned_of(&self, player: &Player) -> Learned {
        let stats = player.stats();
        let sum = |count: fn(&MockStats) -> u64| stats.iter().map(count).sum();
        let initial = Settings::default()
            .gates
            .default_value()
            .gate
            .initial_rate();
        let course = player.course();
        let (found, really) = course.found();
        Learned {
            name: player.role.name,
            about: player.role.about,
            truth: player.role.truth(),
            really,
            found,
            within: course.reached(),
            initial: initial * player.mocks.len() as f64,
            learned: pace(&self.gates(player)),
            received: sum(|stats| stats.received),
            accepted: sum(|stats| stats.accepted),
            refused: sum(|stats| stats.refused),
            early: sum(|stats| stats.early),
            unserved: player.counts.bad.load(Ordering::Relaxed),
            latency: slowest(&self.gates(player)),
            naive: Naive::default(),
        }
    }
}

/// What all gates together allow, per second.
fn pace(gates: &[Option<GateView>]) -> f64 {
    gates.iter().flatten().map(|gate| gate.gate.rate).sum()
}

/// How long answers take, of the slowest server.
fn slowest(gates: &[Option<GateView>]) -> Duration {
    let latencies = gates.iter().flatten().map(|gate| gate.gate.latency_ewma);
    latencies.max().unwrap_or_default()
}
