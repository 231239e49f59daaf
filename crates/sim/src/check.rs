//! Invariants of every run, checked on every event.
//!
//! The checks compute a gate's state a second time, from the requests sent and their results, and
//! compare the gate with it. They read from the gate only what is not visible from outside: its
//! rate, its breaker's state and the waits it assumes. The bounds are those of the design, not
//! typical values: a slow or unlucky scenario satisfies all of them.
//!
//! Only gates are checked. Clients with other controllers count in the figures, the progress and the
//! trace.

mod gate;
mod pauses;
mod progress;
#[cfg(test)]
mod tests;
mod tokens;
mod totals;

use std::fmt;

use policy::time::Timestamp;

use self::gate::GateChecker;
use self::progress::Progress;
use self::totals::Totals;
use crate::measure::Figures;
use crate::scenario::Scenario;
use crate::simulate::{ClientEvent, Observation, Observer, simulate_observed};

/// Runs a scenario twice and checks every event.
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
/// The first violation of an invariant.
pub fn check(scenario: &Scenario, seed: u64) -> Result<CheckedRun, Violation> {
    let (mut checker, figures) = Checker::run(scenario, seed);
    checker.finish(scenario, &figures);
    let (again, _) = Checker::run(scenario, seed);
    let Trace { hash, events } = checker.trace;
    checker
        .violations
        .require(hash == again.trace.hash, Invariant::Deterministic, || {
            format!("{hash:016x}, then {:016x}", again.trace.hash)
        });
    match checker.violations.first {
        Some(violation) => Err(violation),
        None => Ok(CheckedRun {
            figures,
            events,
            trace: hash,
        }),
    }
}

/// A run without violations.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedRun {
    /// Its figures.
    pub figures: Figures,
    /// The number of events checked.
    pub events: u64,
    /// A hash of all events: equal for equal runs.
    pub trace: u64,
}

/// What must hold in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Nothing is sent during a hold.
    NoSendDuringHold,
    /// A hold lasts at least as long as the longest wait that the server named.
    HoldOnlyGrows,
    /// Only `adaptive` holds without a server's hint: for ten seconds at most, or for a window whose length it has
    /// measured, so no longer than since the first refusal.
    AssumedHoldIsBounded,
    /// Nothing is sent while the breaker is Open or Isolated.
    NoSendWhileOpen,
    /// While HalfOpen, at most `half_open_probes` are in flight, and each is marked as a probe.
    ProbesAreBounded,
    /// The breaker opens on failures, for at least `open_first` and at most `open_for`; it closes after
    /// `half_open_probes` successes; there are no other transitions.
    BreakerTransitionIsLegal,
    /// `consecutive_failures` open the breaker.
    FailuresOpenBreaker,
    /// Every request takes a token: never more than the burst and what the rate adds. After a hold one
    /// saved token is left, after an open breaker one for each probe.
    TokenPerRequest,
    /// A known limit is kept in any interval of its length.
    KnownLimitIsKept,
    /// At most `max_in_flight` are in flight, and the gate's count is right.
    InFlightIsBounded,
    /// At most `max_waiting` wait.
    LineIsBounded,
    /// The rate is between `min_rate` and `max_rate`.
    RateIsBounded,
    /// The rate rises only after accepted requests, by at most one step of the strategy; growth near a
    /// ceiling starts again slowly after a pause.
    GrowthIsBounded,
    /// The result of an attempt sent before the current epoch changes neither rate nor epoch, and the
    /// rate falls only with a new epoch.
    OldEpochIsIgnored,
    /// A client with a backlog and nothing in flight asks again by the end of its pause plus one token
    /// and the longest period of its limits.
    WaitIsBounded,
    /// While the upstream is available and a client may send, a request is accepted within the bound of
    /// `Progress`, also after outages, bans and steps.
    Progress,
    /// No client gets nothing among equal clients.
    NoStarvation,
    /// The figures equal the counts of events.
    FiguresMatchEvents,
    /// The same scenario and seed give the same events.
    Deterministic,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// When.
    pub at: Timestamp,
    /// The number of the client; 0 if it concerns all.
    pub client: usize,
    /// What was observed.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            invariant,
            at,
            client,
            detail,
        } = self;
        let seconds = at.seconds_since(Timestamp::ZERO);
        write!(
            f,
            "{invariant:?} at {seconds:.9} s, client {client}: {detail}"
        )
    }
}

impl std::error::Error for Violation {}

/// Checks all events of a run.
struct Checker {
    gates: Vec<Option<GateChecker>>,
    progress: Progress,
    totals: Totals,
    trace: Trace,
    violations: Violations,
}

impl Checker {
    fn run(scenario: &Scenario, seed: u64) -> (Self, Figures) {
        let mut checker = Self::new(scenario);
        let figures = simulate_observed(scenario, seed, &mut checker);
        (checker, figures)
    }

    fn new(scenario: &Scenario) -> Self {
        let clients = scenario.client_count();
        Self {
            gates: (0..clients).map(|_| None).collect(),
            progress: Progress::new(scenario),
            totals: Totals::new(clients),
            trace: Trace::new(),
            violations: Violations::default(),
        }
    }

    fn finish(&mut self, scenario: &Scenario, figures: &Figures) {
        self.violations.at = Timestamp::ZERO + scenario.duration;
        self.violations.client = 0;
        self.progress
            .advance(self.violations.at, &mut self.violations);
        self.totals.check_figures(figures, &mut self.violations);
        self.totals
            .check_shares(scenario, figures, &mut self.violations);
    }
}

impl Observer for Checker {
    fn observe(&mut self, observation: &Observation<'_>) {
        let client = observation.client;
        self.violations.at = observation.now;
        self.violations.client = client;
        self.trace.add(observation);
        self.totals.add(observation);
        let mut held_until = Timestamp::ZERO;
        if let Some(view) = &observation.gate {
            let gate = self.gates[client].get_or_insert_with(|| GateChecker::new(view.settings));
            gate.check(observation, view, &mut self.violations);
            held_until = gate.directed_until();
        }
        self.progress
            .check(observation, held_until, &mut self.violations);
    }
}

/// The first violation, and the time and client of the current event.
#[derive(Debug, Default)]
struct Violations {
    at: Timestamp,
    client: usize,
    first: Option<Violation>,
}

impl Violations {
    /// Records a violation of `invariant` unless `holds`.
    fn require(&mut self, holds: bool, invariant: Invariant, detail: impl FnOnce() -> String) {
        if !holds && self.first.is_none() {
            self.first = Some(Violation {
                invariant,
                at: self.at,
                client: self.client,
                detail: detail(),
            });
        }
    }
}

/// A hash of all events (FNV over words), to compare two runs.
#[derive(Debug)]
struct Trace {
    hash: u64,
    events: u64,
}

impl Trace {
    fn new() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
        }
    }

    fn add(&mut self, observation: &Observation<'_>) {
        let now = observation.now;
        self.events += 1;
        self.add_word(now.as_nanos());
        self.add_word(observation.client as u64);
        self.add_word(u64::from(observation.has_backlog));
        match observation.event {
            ClientEvent::Waits { until } => self.add_time(until),
            ClientEvent::Sent { class, ends, .. } => {
                self.add_word(class as u64);
                self.add_time(Some(ends));
            }
            ClientEvent::Ended { class, result, .. } => {
                self.add_word(class as u64);
                let latency = result.outcome.latency.as_nanos();
                self.add_word(u64::try_from(latency).unwrap_or(u64::MAX));
            }
        }
        if let Some(view) = &observation.gate {
            self.add_word(view.gate.rate().to_bits());
            self.add_word(u64::from(view.gate.epoch()));
            self.add_time(view.gate.hold_until(now));
            self.add_word(view.gate.breaker_state(now) as u64);
        }
    }

    fn add_time(&mut self, at: Option<Timestamp>) {
        self.add_word(at.map_or(u64::MAX, Timestamp::as_nanos));
    }

    fn add_word(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        // Multiplication moves bits only upwards, so the high half is mixed in.
        self.hash ^= self.hash >> 32;
    }
}
