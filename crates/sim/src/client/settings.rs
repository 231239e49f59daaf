//! What a client is like: what drives it, what it has to send, and from when on.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use policy::backoff::{BackoffOptions, BackoffSettings};
use policy::failure_queue::FailureQueueSettings;
use policy::gate::{GateOptions, GateSettings};
use policy::jitter::Jitter;
use policy::ladder::LadderSettings;
use policy::poll::PollSettings;
use policy::pool::Balance;
use policy::rate;
use policy::suggest::suggestion;
use policy::time::Timestamp;

use super::controller::Controller;
use super::failing::Failing;
use super::gated::Gated;
use super::polling::Polling;
use super::pooled::Pooled;
use super::retrying::{Manner, Retrying};
use crate::load::{Backlog, Start};

/// Clients of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// How many of them there are.
    pub count: u32,
    /// What decides when they send.
    pub driver: Driver,
    /// At most so many requests of each are under way at once. For those that only retry: how many
    /// workers each has.
    pub max_in_flight: u32,
    /// When they begin.
    pub start: Start,
    /// What each has to send.
    pub backlog: Backlog,
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
    /// Retries as `policy::item` says.
    Backoff(BackoffSettings),
    /// The gap after recent failures.
    FailureQueue(FailureQueueSettings),
    /// Endpoints with ladders.
    Protection(PoolSettings),
    /// Following a job.
    Poll {
        /// How.
        settings: PollSettings,
        /// How long a job takes; `None`: it never ends.
        job: Option<Duration>,
    },
}

/// A controller from outside of this crate. Two of them are equal if their names are.
#[derive(Clone, Copy, Debug)]
pub struct CustomController {
    /// What it is called.
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
    /// What each endpoint's ladder does.
    pub ladder: LadderSettings,
    /// How many endpoints there are.
    pub endpoints: u32,
    /// How one is chosen.
    pub balance: Balance,
}

impl ClientSettings {
    /// One client with this strategy and everything else as usual.
    pub fn of(strategy: Strategy) -> Self {
        Self {
            count: 1,
            driver: strategy.driver(DEFAULT_IN_FLIGHT),
            max_in_flight: DEFAULT_IN_FLIGHT,
            start: Start::default(),
            backlog: Backlog::Endless,
        }
    }

    /// The same clients with another strategy, which has its own usual settings.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.driver = strategy.driver(self.max_in_flight);
        self
    }

    pub(super) fn controller(&self, now: Timestamp) -> Box<dyn Controller> {
        let most = self.max_in_flight;
        match &self.driver {
            Driver::Gate(settings) => Box::new(Gated::new(settings.clone(), now)),
            Driver::Naive(settings) => {
                Box::new(Retrying::new(settings.clone(), Manner::Naive, most))
            }
            Driver::Custom(custom) => (custom.build)(most),
            Driver::Backoff(settings) => {
                Box::new(Retrying::new(settings.clone(), Manner::ByItem, most))
            }
            Driver::FailureQueue(settings) => Box::new(Failing::new(settings.clone(), most, now)),
            Driver::Protection(settings) => Box::new(Pooled::new(settings, most)),
            Driver::Poll { settings, job } => Box::new(Polling::new(settings.clone(), *job)),
        }
    }
}

/// As many as a gate allows at once if nothing else is written.
pub(crate) const DEFAULT_IN_FLIGHT: u32 = 256;

/// A strategy by its word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// A gate that learns the limit.
    Adaptive,
    /// A gate that adds a little and halves.
    Aimd,
    /// A gate with this rate, for ever.
    Fixed(f64),
    /// No gate: naive retries with full jitter.
    None,
}

impl Strategy {
    /// The words, with what stands for a number.
    pub const WORDS: [&'static str; 4] = ["adaptive", "aimd", "fixed:RATE", "none"];

    /// What was written about a gate of this strategy and nothing else; `None` if it has no gate.
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
                Driver::Gate(
                    options
                        .build()
                        .expect("a strategy's own settings fit together"),
                )
            }
            None => Driver::Naive(naive()),
        }
    }
}

/// How clients without any policy retry: as the loops that people write do, a fifth of a second at
/// first, doubling up to ten, full jitter, without end.
pub(crate) fn naive() -> BackoffSettings {
    let options = BackoffOptions {
        base: Some(Duration::from_millis(200)),
        max: Some(Duration::from_secs(10)),
        jitter: Some(Jitter::Full),
        ..BackoffOptions::default()
    };
    options.build().expect("these settings fit together")
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || UnknownStrategy(text.to_owned());
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "aimd" => Ok(Self::Aimd),
            "none" => Ok(Self::None),
            _ => {
                let rate = text.strip_prefix("fixed:").ok_or_else(wrong)?;
                let mut options = GateOptions::default();
                options.set("initial_rate", rate).map_err(|_| wrong())?;
                options.initial_rate.map(Self::Fixed).ok_or_else(wrong)
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

/// A word that no strategy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStrategy(String);

impl UnknownStrategy {
    /// What would have been right.
    pub fn expected(&self) -> String {
        let words = "`adaptive`, `aimd`, `fixed:RATE` (requests per second) or `none`";
        if self.0.starts_with("fixed") {
            return "`fixed:RATE` with a rate such as `fixed:50`, in requests per second"
                .to_owned();
        }
        match suggestion(&self.0, &PLAIN) {
            Some(close) => format!("{words}; did you mean `{close}`?"),
            None => words.to_owned(),
        }
    }
}

/// The words without a number.
const PLAIN: [&str; 3] = ["adaptive", "aimd", "none"];

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no strategy, expected {}",
            self.0,
            self.expected()
        )
    }
}

impl std::error::Error for UnknownStrategy {}
