//! What is promised of every run, whatever the scenario: checked event by event.
//!
//! The checks keep books of their own, from what was sent and what came back, and compare a gate
//! with those. They ask it only for what cannot be known from outside: its rate, its breaker's
//! state and the waits that it assumes. Bounds are what is promised, not what is usual: a scenario
//! that is merely slow or unlucky keeps them all.
//!
//! Only gates are looked at. Other clients take part in the figures, in the progress of all and in
//! the trace.

mod counts;
mod fairness;
mod gate;
mod pauses;
mod progress;
#[cfg(test)]
mod tests;
mod tokens;
mod trace;

use std::fmt;

use policy::time::Timestamp;

use self::counts::Counts;
use self::gate::GateWatch;
use self::progress::Progress;
use self::trace::Trace;
use crate::measure::Figures;
use crate::scenario::Scenario;
use crate::simulate::{Observer, Sight, simulate_observed};

/// Plays a scenario twice and looks at everything.
///
/// ```
/// use sim::check::check;
/// use sim::scenario::Shipped;
///
/// let scenario = Shipped::find("o2").unwrap().scenario();
/// assert!(check(&scenario, 1).unwrap().events > 1000);
/// ```
///
/// # Errors
///
/// The first promise that was not kept.
pub fn check(scenario: &Scenario, seed: u64) -> Result<Checked, Violation> {
    let (mut checker, figures) = Checker::over(scenario, seed);
    checker.finish(scenario, &figures);
    let (again, _) = Checker::over(scenario, seed);
    let (trace, events) = (checker.trace.hash(), checker.trace.events());
    checker
        .found
        .expect(trace == again.trace.hash(), Promise::SameTrace, || {
            format!("{trace:016x}, then {:016x}", again.trace.hash())
        });
    match checker.found.first {
        Some(violation) => Err(violation),
        None => Ok(Checked {
            figures,
            events,
            trace,
        }),
    }
}

/// A run that kept every promise.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// What it came to.
    pub figures: Figures,
    /// How many events were looked at.
    pub events: u64,
    /// Made of all events: equal for equal runs.
    pub trace: u64,
}

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Nothing leaves before a hold has ended that the server or a step of our own began.
    HoldIsKept,
    /// A hold is at least as long as the longest wait that the server named: it only ever grows.
    HoldOnlyGrows,
    /// A hold that no server named is assumed by `adaptive` alone, for ten seconds at most.
    WaitIsNotInvented,
    /// Nothing leaves while the breaker is Open or Isolated.
    OpenLetsNobodyThrough,
    /// While HalfOpen, at most `half_open_probes` are out at once, and each is marked as a probe.
    ProbesAreFew,
    /// The breaker opens on failures, for no shorter than `open_first` and no longer than
    /// `open_for`; it closes after as many successful probes as set, and makes no other moves.
    BreakerMovesAsDrawn,
    /// So many failures in a row open it.
    FailuresOpen,
    /// Every request takes a token: never more than the burst and what the rate brings. After a
    /// hold one saved token is left, after an open breaker one for each probe.
    TokensAreTaken,
    /// A known limit is kept in any stretch.
    LimitsAreKept,
    /// No more than `max_in_flight` are under way, and the gate knows how many.
    InFlightIsBounded,
    /// No more than `max_waiting` wait.
    LineIsBounded,
    /// The rate is at least `min_rate` and at most `max_rate`, and stays where it is if fixed.
    RateIsBounded,
    /// The rate rises by accepted answers only, by no more than a step of the strategy; growth
    /// near a ceiling starts anew after a pause.
    GrowthIsSlow,
    /// An answer to a request that left before the last change of epoch moves neither the rate nor
    /// the epoch: many refusals of one moment are one event.
    LateAnswersTeachNothing,
    /// Whoever has something to send and nothing under way knows when to ask again: at the end of
    /// its pause, and a token and the stretches of its limits later.
    WaitsEnd,
    /// While the upstream is there and somebody may send, a request is accepted within the bound of
    /// `Progress`: after outages, bans and steps too.
    AllGoOn,
    /// Of equal clients none is left with nothing.
    NobodyStarves,
    /// Figures agree with what was seen.
    FiguresAddUp,
    /// The same scenario and seed, the same events.
    SameTrace,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// When.
    pub at: Timestamp,
    /// By whose gate; 0 if it is about all.
    pub client: usize,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            promise,
            at,
            client,
            what,
        } = self;
        let seconds = at.seconds_since(Timestamp::ZERO);
        write!(f, "{promise:?} at {seconds:.9} s, client {client}: {what}")
    }
}

impl std::error::Error for Violation {}

/// Looks at all events of a run.
struct Checker {
    gates: Vec<Option<GateWatch>>,
    progress: Progress,
    counts: Counts,
    trace: Trace,
    found: Found,
}

impl Checker {
    fn over(scenario: &Scenario, seed: u64) -> (Self, Figures) {
        let mut checker = Self::new(scenario);
        let figures = simulate_observed(scenario, seed, &mut checker);
        (checker, figures)
    }

    fn new(scenario: &Scenario) -> Self {
        let clients = scenario.client_count();
        Self {
            gates: (0..clients).map(|_| None).collect(),
            progress: Progress::new(scenario),
            counts: Counts::new(clients),
            trace: Trace::new(),
            found: Found::default(),
        }
    }

    fn finish(&mut self, scenario: &Scenario, figures: &Figures) {
        self.found.at = Timestamp::ZERO + scenario.duration;
        self.found.client = 0;
        self.progress.pass(self.found.at, &mut self.found);
        self.counts.compare(figures, &mut self.found);
        fairness::judge(scenario, figures, &self.counts, &mut self.found);
    }
}

impl Observer for Checker {
    fn look(&mut self, sight: &Sight<'_>) {
        self.found.at = sight.now;
        self.found.client = sight.client;
        self.trace.add(sight);
        self.counts.add(sight);
        let mut held_until = Timestamp::ZERO;
        if let Some(view) = &sight.gate {
            let watch =
                self.gates[sight.client].get_or_insert_with(|| GateWatch::new(view.settings));
            watch.look(sight, view, &mut self.found);
            held_until = watch.directed_until();
        }
        self.progress.look(sight, held_until, &mut self.found);
    }
}

/// The first violation, and where things stand.
#[derive(Debug, Default)]
struct Found {
    at: Timestamp,
    client: usize,
    first: Option<Violation>,
}

impl Found {
    /// Notes that `promise` was not kept, unless it holds.
    fn expect(&mut self, holds: bool, promise: Promise, what: impl FnOnce() -> String) {
        if !holds && self.first.is_none() {
            self.first = Some(Violation {
                promise,
                at: self.at,
                client: self.client,
                what: what(),
            });
        }
    }
}
