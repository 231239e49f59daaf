//! `[[client]]`: the clients of the upstream.

use std::time::Duration;

use config::document::Table;
use config::{Context, Location, Reader};
use policy::backoff::BackoffOptions;
use policy::failure_queue::FailureQueueOptions;
use policy::gate::GateOptions;
use policy::ladder::LadderOptions;
use policy::poll::PollOptions;
use policy::pool::Balance;
use policy::preset::Preset;
use policy::setting::{Format, Kind, Options, SettingErrors};

use super::fleet;
use crate::client::{
    ClientSettings, CostSettings, DEFAULT_IN_FLIGHT, Driver, PoolSettings, Strategy, naive,
};
use crate::load::{Backlog, Start};

policy::settings! {
    struct ClientOptions;
    struct ClientValues(pub(super)) {
        /// How many of them there are.
        count: u32 = "1", Kind::whole(1, 10_000);
        /// What drives them: a strategy …
        strategy: Strategy = none, STRATEGY;
        /// … or a policy.
        policy: Policy = none, Policy::KIND;
        /// Attempts of each in flight at once.
        max_in_flight: u32 = none, Kind::whole(1, 1_000_000);
        /// When they begin, spread at random.
        start: Start = "0s", START;
        /// What each has to send.
        backlog: Backlog = none, BACKLOG;
    }

    struct CostOptions;
    struct CostValues(pub(super)) {
        /// The mean.
        mean: f64 = none, Kind::number("a cost", 1.0, 1e6);
        /// How much costs are spread: sigma of the lognormal distribution. Zero: not at all.
        spread: f64 = "0.5", Kind::number("a number", 0.0, 3.0);
        /// What a client asks for, over the actual cost, which it learns with the response.
        estimate: f64 = "1.0", Kind::number("a factor", 0.01, 100.0);
    }

    struct JobOptions {
        /// How long a job takes; without it, it never ends.
        job: Duration = none, Kind::POSITIVE;
    }

    struct PresetOptions {
        /// What the settings are laid over.
        preset: Preset = "standard", Preset::KIND;
    }

    struct PoolOptions;
    struct PoolValues(pub(super)) {
        /// How many endpoints there are.
        endpoints: u32 = "1", Kind::whole(1, 1000);
        /// How one is chosen.
        balance: Balance = "least_loaded", Balance::KIND;
    }
}

const STRATEGY: Kind = Kind::Format(&Format::of("strategy", "\"adaptive\"", None, |text| {
    let strategy = text.parse::<Strategy>();
    strategy.map(drop).map_err(|unknown| unknown.expected())
}));

const START: Kind = Kind::Format(&Format::of("start", "\"0s..20s\"", None, |text| {
    text.parse::<Start>().map(drop).map_err(str::to_owned)
}));

const BACKLOG: Kind = Kind::Format(&Format {
    or_number: true,
    ..Format::of("backlog", "\"endless\"", None, |text| {
        text.parse::<Backlog>().map(drop).map_err(str::to_owned)
    })
});

policy::setting_values!(Strategy);

pub(super) fn read(reader: &Reader<'_>) -> Option<ClientSettings> {
    let values = reader
        .options::<ClientOptions>()
        .over(ClientValues::default());
    if reader.has("policy") {
        reader
            .has("strategy")
            .then(|| reader.expected("strategy", "no strategy next to a policy"));
    }
    let sender = Sender::of(reader, &values);
    reader.allow(
        &[
            ClientOptions::NAMES,
            &["cost"],
            &*sender.map_or_else(all_names, Sender::names),
        ]
        .concat(),
    );
    let sender = sender?;
    let max_in_flight = values.max_in_flight.unwrap_or_else(|| sender.in_flight());
    Some(ClientSettings {
        count: values.count,
        fleet: fleet::read(reader, values.count),
        driver: sender.driver(reader, max_in_flight)?,
        max_in_flight,
        start: values.start,
        backlog: values.backlog.unwrap_or_else(|| sender.backlog()),
        cost: read_cost(&reader.table("cost")),
    })
}

fn read_cost(reader: &Reader<'_>) -> Option<CostSettings> {
    if !reader.is_written() {
        return None;
    }
    reader.allow(CostOptions::NAMES);
    reader.require_of::<CostOptions>(&["mean"]);
    let values = reader.options::<CostOptions>().over(CostValues::default());
    Some(CostSettings {
        mean: values.mean?,
        spread: values.spread,
        estimate: values.estimate,
    })
}

/// The settings that a client with this strategy or policy may have.
pub(super) fn fitting_names(table: &Table) -> Vec<&'static str> {
    let context = Context::default();
    let reader = Reader::root(&context, table, Location::Default);
    let values = reader
        .options::<ClientOptions>()
        .over(ClientValues::default());
    let sender = Sender::of(&reader, &values);
    let has_rate = matches!(sender, Some(Sender::Strategy(Strategy::Fixed(_))));
    let own = sender.map_or_else(all_names, Sender::names);
    let common = ClientOptions::NAMES.iter().copied().chain(["cost"]);
    let names = common.chain(own);
    names
        .filter(|name| !(has_rate && *name == "initial_rate"))
        .collect()
}

/// The strategy or policy of a client, as written in the file.
pub(super) fn driven_by(table: &Table) -> &str {
    let word = table.get("policy").or_else(|| table.get("strategy"));
    word.map_or("adaptive", |node| node.value.shown())
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Poll,
    Backoff,
    FailureQueue,
    Protection,
}

policy::words! {
    Policy {
        Poll = "poll",
        Backoff = "backoff",
        FailureQueue = "failure-queue",
        Protection = "protection",
    }
}

/// Gate settings that apply to a single sender without deadlines.
const GATE: [&str; 19] = [
    "initial_rate",
    "min_rate",
    "max_rate",
    "limits",
    "max_hold",
    "error_rate_threshold",
    "min_samples",
    "consecutive_failures",
    "window",
    "window_slice",
    "open_first",
    "open_for",
    "half_open_probes",
    "burst",
    "increase",
    "decrease",
    "latency_target",
    "latency_degrade_factor",
    "count_throttled",
];

/// Settings of naive retries: only the delays, because the attempts have no bound.
const NAIVE: [&str; 4] = ["base", "max", "jitter", "growth"];

/// All settings of any client, for one with an unknown strategy or policy.
fn all_names() -> Vec<&'static str> {
    let strategies = [GATE.as_slice(), &fleet::NAMES, &NAIVE].concat();
    let policies = [
        Policy::Poll,
        Policy::Backoff,
        Policy::FailureQueue,
        Policy::Protection,
    ];
    let policies = policies
        .into_iter()
        .flat_map(|policy| Sender::Policy(policy).names());
    strategies.into_iter().chain(policies).collect()
}

/// The strategy or policy of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sender {
    Strategy(Strategy),
    Policy(Policy),
}

impl Sender {
    /// `None` if it is invalid.
    fn of(reader: &Reader<'_>, values: &ClientValues) -> Option<Self> {
        if reader.has("policy") {
            return values.policy.map(Self::Policy);
        }
        let is_written = reader.has("strategy");
        let strategy = values
            .strategy
            .or_else(|| (!is_written).then_some(Strategy::Adaptive));
        strategy.map(Self::Strategy)
    }

    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Strategy(Strategy::None) => NAIVE.to_vec(),
            Self::Strategy(Strategy::Adaptive | Strategy::Aimd | Strategy::Fixed(_)) => {
                [GATE.as_slice(), &fleet::NAMES].concat()
            }
            Self::Policy(Policy::Poll) => [PollOptions::NAMES, JobOptions::NAMES].concat(),
            Self::Policy(Policy::Backoff) => [BackoffOptions::NAMES, PresetOptions::NAMES].concat(),
            Self::Policy(Policy::FailureQueue) => FailureQueueOptions::NAMES.to_vec(),
            Self::Policy(Policy::Protection) => [LadderOptions::NAMES, PoolOptions::NAMES].concat(),
        }
    }

    fn driver(self, reader: &Reader<'_>, max_in_flight: u32) -> Option<Driver> {
        match self {
            Self::Strategy(strategy) => by_strategy(strategy, reader, max_in_flight),
            Self::Policy(Policy::Poll) => Some(Driver::Poll {
                job: reader.options::<JobOptions>().job,
                settings: built(reader, PollOptions::build)?,
            }),
            Self::Policy(Policy::Backoff) => {
                let preset = reader.options::<PresetOptions>().preset.unwrap_or_default();
                let build = |options: BackoffOptions| options.build_over(preset.settings());
                built(reader, build).map(Driver::Backoff)
            }
            Self::Policy(Policy::FailureQueue) => {
                built(reader, FailureQueueOptions::build).map(Driver::FailureQueue)
            }
            Self::Policy(Policy::Protection) => {
                let pool = reader.options::<PoolOptions>().over(PoolValues::default());
                // Protection is what is simulated, so it is on unless disabled explicitly.
                let build = |mut options: LadderOptions| {
                    options.enabled.get_or_insert(true);
                    options.build()
                };
                Some(Driver::Protection(PoolSettings {
                    ladder: built(reader, build)?,
                    endpoints: pool.endpoints,
                    balance: pool.balance,
                }))
            }
        }
    }

    /// A failure queue sends one request at a time.
    fn in_flight(self) -> u32 {
        match self {
            Self::Policy(Policy::FailureQueue) => 1,
            Self::Strategy(_) | Self::Policy(_) => DEFAULT_IN_FLIGHT,
        }
    }

    /// Polling follows one job.
    fn backlog(self) -> Backlog {
        match self {
            Self::Policy(Policy::Poll) => Backlog::Total(1),
            Self::Strategy(_) | Self::Policy(_) => Backlog::Endless,
        }
    }
}

fn by_strategy(strategy: Strategy, reader: &Reader<'_>, max_in_flight: u32) -> Option<Driver> {
    let Some(options) = strategy.gate_options() else {
        let options = reader.options_of(BackoffOptions::default(), |name| NAIVE.contains(&name));
        let settings = reader.built(options.build_over(naive()), None);
        return settings.map(Driver::Naive);
    };
    if matches!(strategy, Strategy::Fixed(_)) && reader.has("initial_rate") {
        reader.expected("initial_rate", "no other rate next to that of the strategy");
    }
    let options = GateOptions {
        max_in_flight: Some(max_in_flight),
        ..options
    };
    let options = reader.options_of(options, |name| GATE.contains(&name));
    reader.built(options.build(), None).map(Driver::Gate)
}

/// The settings of a policy.
fn built<O: Options, S>(
    reader: &Reader<'_>,
    build: impl FnOnce(O) -> Result<S, SettingErrors>,
) -> Option<S> {
    reader.built(build(reader.options()), None)
}
