//! `[[client]]`: who calls the upstream.

use std::time::Duration;

use policy::backoff::BackoffOptions;
use policy::duration;
use policy::failure_queue::FailureQueueOptions;
use policy::gate::GateOptions;
use policy::ladder::LadderOptions;
use policy::poll::PollOptions;
use policy::pool::Balance;
use policy::preset::Preset;
use policy::setting;
use policy::suggest::suggestion;

use super::section::{Problems, Section};
use crate::client::{ClientSettings, DEFAULT_IN_FLIGHT, Driver, PoolSettings, Strategy, naive};
use crate::load::{Backlog, Start};
use crate::written::document::Table;
use crate::written::problem::Place;

pub(super) fn read(section: &Section<'_>) -> Option<ClientSettings> {
    let manner = manner(section);
    let own = manner.map_or_else(all_names, Manner::names);
    section.allow(&[&COMMON, &*own].concat());
    let count = section.whole("count", 1, 10_000);
    let most = section.whole("max_in_flight", 1, 1_000_000);
    let start = section.text("start", start);
    let backlog = backlog(section);
    let manner = manner?;
    let max_in_flight = most.map_or_else(|| manner.in_flight(), small);
    Some(ClientSettings {
        count: small(count.unwrap_or(1)),
        driver: manner.driver(section, max_in_flight)?,
        max_in_flight,
        start: start.unwrap_or_default(),
        backlog: backlog.unwrap_or_else(|| manner.backlog()),
    })
}

/// What a client that is driven as this one may have, for laying other settings over it.
pub(super) fn fitting_names(table: &Table) -> Vec<&'static str> {
    let unheard = Problems::default();
    let manner = manner(&Section::root(&unheard, table, Place::Default));
    let own = manner.map_or_else(all_names, Manner::names);
    let has_rate = matches!(manner, Some(Manner::Strategy(Strategy::Fixed(_))));
    let names = COMMON.into_iter().chain(own);
    names
        .filter(|name| !(has_rate && *name == "initial_rate"))
        .collect()
}

/// What drives a client, in the words of the file.
pub(super) fn driven_by(table: &Table) -> &str {
    let word = table.get("policy").or_else(|| table.get("strategy"));
    word.map_or("adaptive", |node| node.value.shown())
}

const COMMON: [&str; 6] = [
    "count",
    "strategy",
    "policy",
    "max_in_flight",
    "start",
    "backlog",
];

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What drives a client, by its word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Strategy(Strategy),
    Poll,
    Backoff,
    FailureQueue,
    Protection,
}

const POLICIES: [(&str, Manner); 4] = [
    ("poll", Manner::Poll),
    ("backoff", Manner::Backoff),
    ("failure-queue", Manner::FailureQueue),
    ("protection", Manner::Protection),
];

fn manner(section: &Section<'_>) -> Option<Manner> {
    if section.has("policy") {
        section.expected("strategy", "no strategy next to a policy");
        return section.text("policy", policy);
    }
    if !section.has("strategy") {
        return Some(Manner::Strategy(Strategy::Adaptive));
    }
    let strategy = |word: &str| {
        word.parse::<Strategy>()
            .map_err(|unknown| unknown.expected())
    };
    section.text("strategy", strategy).map(Manner::Strategy)
}

fn policy(word: &str) -> Result<Manner, String> {
    let expected = "`poll`, `backoff`, `failure-queue` or `protection`";
    let known = POLICIES.iter().find(|(name, _)| *name == word);
    known.map(|(_, manner)| *manner).ok_or_else(|| {
        match suggestion(word, &POLICIES.map(|(name, _)| name)) {
            Some(close) => format!("{expected}; did you mean `{close}`?"),
            None => expected.to_owned(),
        }
    })
}

/// Settings of a gate that mean something to a single sender who waits as long as it takes.
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

/// Of the naive: how it waits; how often it tries has no bound.
const NAIVE: [&str; 4] = ["base", "max", "jitter", "growth"];

/// All that any client can have, for one of which it is not known what drives it.
fn all_names() -> Vec<&'static str> {
    let strategies = [GATE.as_slice(), &NAIVE].concat();
    let policies = POLICIES.iter().flat_map(|(_, manner)| manner.names());
    strategies.into_iter().chain(policies).collect()
}

impl Manner {
    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Strategy(Strategy::None) => NAIVE.to_vec(),
            Self::Strategy(Strategy::Adaptive | Strategy::Aimd | Strategy::Fixed(_)) => {
                GATE.to_vec()
            }
            Self::Poll => [PollOptions::NAMES, &["job"]].concat(),
            Self::Backoff => [BackoffOptions::NAMES, &["preset"]].concat(),
            Self::FailureQueue => FailureQueueOptions::NAMES.to_vec(),
            Self::Protection => [LadderOptions::NAMES, &["endpoints", "balance"]].concat(),
        }
    }

    fn driver(self, section: &Section<'_>, max_in_flight: u32) -> Option<Driver> {
        match self {
            Self::Strategy(strategy) => by_strategy(strategy, section, max_in_flight),
            Self::Poll => poll(section),
            Self::Backoff => backoff(section),
            Self::FailureQueue => failure_queue(section),
            Self::Protection => protection(section),
        }
    }

    /// Who is paced by gaps sends one at a time.
    fn in_flight(self) -> u32 {
        match self {
            Self::FailureQueue => 1,
            Self::Strategy(_) | Self::Poll | Self::Backoff | Self::Protection => DEFAULT_IN_FLIGHT,
        }
    }

    /// Who follows jobs follows one, and then it is over.
    fn backlog(self) -> Backlog {
        match self {
            Self::Poll => Backlog::Total(1),
            Self::Strategy(_) | Self::Backoff | Self::FailureQueue | Self::Protection => {
                Backlog::Endless
            }
        }
    }
}

fn by_strategy(strategy: Strategy, section: &Section<'_>, max_in_flight: u32) -> Option<Driver> {
    let Some(options) = strategy.gate_options() else {
        let build = |options: BackoffOptions| options.build_over(naive());
        let options = BackoffOptions::default();
        let settings = section.options(&NAIVE, options, BackoffOptions::set, build);
        return settings.map(Driver::Naive);
    };
    if matches!(strategy, Strategy::Fixed(_)) {
        section.expected("initial_rate", "no other rate next to that of the strategy");
    }
    let options = GateOptions {
        max_in_flight: Some(max_in_flight),
        ..options
    };
    let settings = section.options(&GATE, options, GateOptions::set, GateOptions::build);
    settings.map(Driver::Gate)
}

fn poll(section: &Section<'_>) -> Option<Driver> {
    let job = section.positive_duration("job");
    let settings = section.options(
        PollOptions::NAMES,
        PollOptions::default(),
        PollOptions::set,
        PollOptions::build,
    )?;
    Some(Driver::Poll { settings, job })
}

fn backoff(section: &Section<'_>) -> Option<Driver> {
    let preset = |word: &str| word.parse::<Preset>().map_err(|_| A_PRESET);
    let preset = section.text("preset", preset).unwrap_or_default();
    let build = |options: BackoffOptions| options.build_over(preset.settings());
    let names = BackoffOptions::NAMES;
    let settings = section.options(names, BackoffOptions::default(), BackoffOptions::set, build);
    settings.map(Driver::Backoff)
}

const A_PRESET: &str = "`standard`, `aggressive`, `conservative`, `background` or `crawl`";

fn failure_queue(section: &Section<'_>) -> Option<Driver> {
    let settings = section.options(
        FailureQueueOptions::NAMES,
        FailureQueueOptions::default(),
        FailureQueueOptions::set,
        FailureQueueOptions::build,
    );
    settings.map(Driver::FailureQueue)
}

/// Protection is what is simulated, so it is on unless it is switched off.
fn protection(section: &Section<'_>) -> Option<Driver> {
    let endpoints = section.whole("endpoints", 1, 1000);
    let balance = section.text("balance", str::parse::<Balance>);
    let options = LadderOptions {
        enabled: Some(true),
        ..LadderOptions::default()
    };
    let names = LadderOptions::NAMES;
    let ladder = section.options(names, options, LadderOptions::set, LadderOptions::build)?;
    Some(Driver::Protection(PoolSettings {
        ladder,
        endpoints: small(endpoints.unwrap_or(1)),
        balance: balance.unwrap_or_default(),
    }))
}

/// One moment, or two with `..` between.
fn start(text: &str) -> Result<Start, &'static str> {
    const EXPECTED: &str = "a duration such as `5s`, or two such as `0s..20s`";
    let moment = |text: &str| -> Result<Duration, &'static str> {
        duration::parse(text.trim()).map_err(|_| EXPECTED)
    };
    let Some((from, to)) = text.split_once("..") else {
        let from = moment(text)?;
        return Ok(Start { from, to: from });
    };
    let start = Start {
        from: moment(from)?,
        to: moment(to)?,
    };
    if start.to < start.from {
        return Err("two durations of which the second is no shorter than the first");
    }
    Ok(start)
}

fn backlog(section: &Section<'_>) -> Option<Backlog> {
    if section.is_whole("backlog") {
        return section
            .whole("backlog", 1, MOST_REQUESTS)
            .map(Backlog::Total);
    }
    section.text("backlog", |text| match text {
        "endless" => Ok(Backlog::Endless),
        _ => per_second(text).or_else(|| total(text)).ok_or(A_BACKLOG),
    })
}

const A_BACKLOG: &str = "`endless`, requests per second such as `30/s`, or a total such as `1000`";
/// More than anyone waits for.
const MOST_REQUESTS: u64 = 1_000_000_000;

fn per_second(text: &str) -> Option<Backlog> {
    let number = setting::number(text.strip_suffix("/s")?.trim())?;
    (number > 0.0 && number <= 1e6).then_some(Backlog::PerSecond(number))
}

fn total(text: &str) -> Option<Backlog> {
    let number = setting::number(text)?;
    (1..=MOST_REQUESTS)
        .contains(&number)
        .then_some(Backlog::Total(number))
}
