//! Settings of clients: the controller, what to send, and when to start.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use policy::backoff::{BackoffOptions, BackoffSettings};
use policy::failure_queue::FailureQueueSettings;
use policy::fleet::SharedSettings;
use policy::gate::{GateOptions, GateSettings};
use policy::jitter::Jitter;
use policy::ladder::LadderSettings;
use policy::poll::PollSettings;
use policy::pool::Balance;
use policy::rate;
use policy::suggest::suggestion;
use policy::time::Timestamp;

use super::controller::Controller;
use super::failure_queue::FailureQueueController;
use super::gate::GateController;
use super::poll::PollController;
use super::pool::PoolController;
use super::retry::{RetryController, RetryRule};
use crate::fleet::FleetSettings;
use crate::load::{Backlog, Start};

/// A number of equal clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// How many clients, or fleets.
    pub count: u32,
    /// Whether each is a fleet that shares one limit, which needs a gate.
    pub fleet: Option<FleetSettings>,
    /// What decides when they send.
    pub driver: Driver,
    /// The maximum number of attempts in flight per client; for clients that only retry without a
    /// gate, the number of workers.
    pub max_in_flight: u32,
    /// When they start.
    pub start: Start,
    /// What each has to send.
    pub backlog: Backlog,
    /// What its requests cost; one if `None`.
    pub cost: Option<CostSettings>,
}

/// The costs of a client's requests: lognormal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostSettings {
    /// The mean.
    pub mean: f64,
    /// Sigma of the distribution. Zero: all are equal.
    pub spread: f64,
    /// What a client asks for, over the actual cost: 0.5 if it guesses half of it. The actual cost is
    /// known with the response.
    pub estimate: f64,
}

/// What decides when a client sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Driver {
    /// A gate.
    Gate(GateSettings),
    /// Naive retries.
    Naive(BackoffSettings),
    /// A controller from outside of this crate.
    Custom(CustomController),
    /// Retries as `policy::item` decides.
    Backoff(BackoffSettings),
    /// The gap after recent failures.
    FailureQueue(FailureQueueSettings),
    /// Endpoints with ladders.
    Protection(PoolSettings),
    /// Polling a job.
    Poll {
        /// The intervals.
        settings: PollSettings,
        /// How long a job takes; `None`: it never ends.
        job: Option<Duration>,
    },
}

/// A controller from outside of this crate. Two of them are equal if their names are.
#[derive(Clone, Copy, Debug)]
pub struct CustomController {
    /// Its name.
    pub name: &'static str,
    /// Builds the controller of one client, which has at most this many attempts in flight.
    pub build: fn(max_in_flight: u32) -> Box<dyn Controller>,
}

impl PartialEq for CustomController {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A pool whose endpoints all lead to the same upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// The settings of each endpoint's ladder.
    pub ladder: LadderSettings,
    /// The number of endpoints.
    pub endpoints: u32,
    /// How an endpoint is chosen.
    pub balance: Balance,
}

impl ClientSettings {
    /// One client with this strategy and defaults for everything else.
    pub fn of(strategy: Strategy) -> Self {
        Self {
            count: 1,
            fleet: None,
            driver: strategy.driver(DEFAULT_IN_FLIGHT),
            max_in_flight: DEFAULT_IN_FLIGHT,
            start: Start::default(),
            backlog: Backlog::Endless,
            cost: None,
        }
    }

    /// The clients with another strategy and its default settings.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.driver = strategy.driver(self.max_in_flight);
        self
    }

    /// The number of senders: clients, or nodes of all fleets.
    pub fn senders(&self) -> u32 {
        let nodes = self.fleet.as_ref().map_or(1, |fleet| fleet.nodes);
        self.count.saturating_mul(nodes)
    }

    /// What all nodes of a fleet agree on; `None` if these clients are no fleet.
    pub(crate) fn shared(&self) -> Option<SharedSettings> {
        let (Some(fleet), Driver::Gate(settings)) = (&self.fleet, &self.driver) else {
            return None;
        };
        let times = &fleet.store.values;
        Some(SharedSettings::new(settings, times.interval, times.lease))
    }

    pub(super) fn controller(&self, now: Timestamp) -> Box<dyn Controller> {
        let max = self.max_in_flight;
        match &self.driver {
            Driver::Gate(settings) => Box::new(GateController::new(settings.clone(), now)),
            Driver::Naive(settings) => Box::new(RetryController::new(
                settings.clone(),
                RetryRule::Naive,
                max,
            )),
            Driver::Custom(custom) => (custom.build)(max),
            Driver::Backoff(settings) => {
                Box::new(RetryController::new(settings.clone(), RetryRule::Item, max))
            }
            Driver::FailureQueue(settings) => {
                Box::new(FailureQueueController::new(settings.clone(), max, now))
            }
            Driver::Protection(settings) => Box::new(PoolController::new(settings, max)),
            Driver::Poll { settings, job } => Box::new(PollController::new(settings.clone(), *job)),
        }
    }
}

/// The default `max_in_flight` of a gate.
pub(crate) const DEFAULT_IN_FLIGHT: u32 = 256;

/// The strategies of `strategy = "…"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// A gate that learns the limit.
    Adaptive,
    /// A gate with additive increase and multiplicative decrease.
    Aimd,
    /// A gate with a constant rate, in requests per second.
    Fixed(f64),
    /// No gate: naive retries with full jitter.
    None,
}

impl Strategy {
    /// The options of a gate with this strategy; `None` if it has no gate.
    pub fn gate_options(self) -> Option<GateOptions> {
        let (strategy, initial_rate) = match self {
            Self::Adaptive => (rate::Strategy::Adaptive, None),
            Self::Aimd => (rate::Strategy::Aimd, None),
            Self::Fixed(rate) => (rate::Strategy::Fixed, Some(rate)),
            Self::None => return None,
        };
        Some(GateOptions {
            strategy: Some(strategy),
            initial_rate,
            ..GateOptions::default()
        })
    }

    fn driver(self, max_in_flight: u32) -> Driver {
        match self.gate_options() {
            Some(options) => {
                let options = GateOptions {
                    max_in_flight: Some(max_in_flight),
                    ..options
                };
                Driver::Gate(options.build().expect("a strategy's defaults are valid"))
            }
            None => Driver::Naive(naive()),
        }
    }
}

/// The delays of naive retries, like in hand-written retry loops: 200 ms, doubling up to 10 s, full
/// jitter.
pub(crate) fn naive() -> BackoffSettings {
    let options = BackoffOptions {
        base: Some(Duration::from_millis(200)),
        max: Some(Duration::from_secs(10)),
        jitter: Some(Jitter::Full),
        ..BackoffOptions::default()
    };
    options.build().expect("these settings are valid")
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownStrategy(text.to_owned());
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "aimd" => Ok(Self::Aimd),
            "none" => Ok(Self::None),
            _ => {
                let rate = text.strip_prefix("fixed:").ok_or_else(unknown)?;
                let mut options = GateOptions::default();
                options.set("initial_rate", rate).map_err(|_| unknown())?;
                options.initial_rate.map(Self::Fixed).ok_or_else(unknown)
            }
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Aimd => f.write_str("aimd"),
            Self::Fixed(rate) => write!(f, "fixed:{rate}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// An unknown strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStrategy(String);

impl UnknownStrategy {
    /// What was expected.
    pub fn expected(&self) -> String {
        let names = "`adaptive`, `aimd`, `fixed:RATE` (requests per second) or `none`";
        if self.0.starts_with("fixed") {
            return "`fixed:RATE` with a rate such as `fixed:50`, in requests per second"
                .to_owned();
        }
        match suggestion(&self.0, &["adaptive", "aimd", "none"]) {
            Some(close) => format!("{names}; did you mean `{close}`?"),
            None => names.to_owned(),
        }
    }
}

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a strategy, expected {}",
            self.0,
            self.expected()
        )
    }
}

impl std::error::Error for UnknownStrategy {}
