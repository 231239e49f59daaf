//! `gate`: asks and results at gates by key.
//!
//! Before an event takes effect, every ticket that is due at or before its time leaves its line, in
//! order of time over all gates. No ticket leaves after the last event.
//!
//! The state consists of gates, lines and permits in flight. Refused and settled asks are not
//! stored, because a trace may have any number of them.

use std::collections::HashMap;

use policy::gate::{Ask, Decision, Gate, GateSettings, Permit, Reason};
use policy::key::{self, KeyError};
use policy::line::Tickets;
use policy::outcome::Verdict;
use policy::time::Timestamp;

use super::Replay;
use super::at::{At, Timeline};
use super::event::{Event, GateEvent};
use super::explain;
use super::gates::{GateId, Gates};
use super::object::Object;
use super::problem::{Problem, excerpt};
use super::response::Attempt;
use super::waiters::Waiters;

#[derive(Debug)]
pub(super) struct GateReplay {
    settings: GateSettings,
    timeline: Timeline,
    gates: Gates,
    tickets: Tickets,
    waiters: Waiters,
    /// The number of asks so far.
    asks: u64,
    /// Asks that wait or are in flight, by number.
    pending: HashMap<u64, Pending>,
    explain: bool,
}

/// An ask that waits or is in flight.
#[derive(Debug)]
enum Pending {
    /// In a line.
    Waiting,
    /// In flight.
    Admitted { gate: GateId, permit: Permit },
    /// Admitted because gates are disabled.
    Ungated,
}

impl Replay for GateReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let at = event.required_at()?;
        match event.gate_event()? {
            GateEvent::Acquire(key) => {
                let key = key::normalize(&key).map_err(|error| bad_key(&error))?;
                self.timeline.advance(at)?;
                self.admit_due(at.time, out);
                self.acquire(&key, at, out);
            }
            GateEvent::Settle(number) => {
                let attempt = Attempt::read(&event)?;
                self.timeline.advance(at)?;
                self.admit_due(at.time, out);
                self.settle(number, attempt, at, out)?;
            }
        }
        Ok(())
    }
}

impl GateReplay {
    pub(super) fn new(settings: GateSettings, explain: bool) -> Self {
        Self {
            settings,
            timeline: Timeline::default(),
            gates: Gates::default(),
            tickets: Tickets::new(),
            waiters: Waiters::default(),
            asks: 0,
            pending: HashMap::new(),
            explain,
        }
    }

    fn acquire(&mut self, key: &str, at: At<'_>, out: &mut Vec<u8>) {
        self.asks += 1;
        let now = at.time;
        let answer = Object::answering(Some(at), out);
        if !self.settings.enabled() {
            self.pending.insert(self.asks, Pending::Ungated);
            let sentence = self
                .explain
                .then(|| "admitted: gates are switched off".into());
            return write_decision(answer, "admit", None, None, sentence);
        }
        let Some(gate) = self.gates.enter(&self.settings, key, now) else {
            let reason = Reason::TooManyGates;
            let sentence = self.explain.then(|| {
                format!(
                    "refused: the maximum number of gates is in use ({})",
                    self.settings.max_gates()
                )
            });
            return write_decision(answer, "refuse", None, Some(reason), sentence);
        };
        let ask = Ask::until(now + self.settings.max_wait());
        let asked = self.gates.get_mut(gate);
        match asked.acquire(&self.settings, &mut self.tickets, &ask, now) {
            Decision::Admit(permit) => {
                let sentence = self.explain.then(|| explain::admitted(&permit, asked));
                let admitted = Pending::Admitted { gate, permit };
                self.pending.insert(self.asks, admitted);
                write_decision(answer, "admit", None, None, sentence);
            }
            Decision::Wait {
                ticket,
                until,
                reason,
            } => {
                let snapshot = || asked.snapshot(&self.settings, &self.tickets, now);
                let sentence = self
                    .explain
                    .then(|| explain::waits(reason, until, &snapshot()));
                self.waiters.join(gate, ticket, self.asks);
                self.pending.insert(self.asks, Pending::Waiting);
                write_decision(answer, "wait", until, Some(reason), sentence);
            }
            Decision::Refuse { reason, until } => {
                let snapshot = || asked.snapshot(&self.settings, &self.tickets, now);
                let sentence = self
                    .explain
                    .then(|| explain::refused(reason, until, &snapshot()));
                write_decision(answer, "refuse", until, Some(reason), sentence);
            }
        }
        self.gates.used(gate);
        self.refresh(gate, now);
    }

    fn settle(
        &mut self,
        number: u64,
        attempt: Attempt,
        at: At<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let now = at.time;
        let mut judgement = attempt.judgement;
        match self.pending.remove(&number) {
            Some(Pending::Admitted { gate, permit }) => {
                let outcome = attempt.outcome(now.since(permit.admitted_at()));
                let asked = self.gates.get_mut(gate);
                let is_late = permit.epoch() != asked.epoch();
                let settings = &self.settings;
                judgement.verdict =
                    asked.settle(settings, permit, &outcome, judgement.verdict, now);
                let snapshot = || asked.snapshot(&self.settings, &self.tickets, now);
                let sentence = self
                    .explain
                    .then(|| explain::settled(&judgement, is_late, &snapshot()));
                self.gates.used(gate);
                self.refresh(gate, now);
                let gate = self.gates.get(gate);
                self.write_state(at, judgement.verdict, gate, sentence, out);
            }
            Some(Pending::Ungated) => {
                let untouched = Gate::new(&self.settings, now);
                let sentence = self
                    .explain
                    .then(|| "nothing is learned: gates are switched off".into());
                self.write_state(at, judgement.verdict, &untouched, sentence, out);
            }
            Some(Pending::Waiting) => return Err(still_waiting(number)),
            None => return Err(not_out(number, self.asks)),
        }
        Ok(())
    }

    /// Admits every ticket that is due at or before `now`.
    fn admit_due(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        while let Some((time, gate)) = self.waiters.next_due(now) {
            let left = self.gates.get_mut(gate);
            let admitted = left.admit_next(&self.settings, &mut self.tickets, time);
            let Some((ticket, permit)) = admitted else {
                self.postpone(gate, time);
                continue;
            };
            let number = self.waiters.leave(gate, ticket);
            let sentence = self.explain.then(|| explain::left(&permit, left));
            self.pending
                .insert(number, Pending::Admitted { gate, permit });
            Object::new(out)
                .time("at", Some(time))
                .number("admitted", Some(number))
                .explained(sentence)
                .end();
            self.refresh(gate, time);
        }
    }

    /// Schedules a later admission if the gate did not admit when due. That should never happen,
    /// but the same time again would be an endless loop.
    fn postpone(&mut self, id: GateId, after: Timestamp) {
        let next = self
            .gates
            .get(id)
            .next_admission(&self.settings, &self.tickets);
        self.waiters.schedule(id, next.filter(|&next| next > after));
    }

    /// Updates schedule and eviction order of a gate after an event at it.
    fn refresh(&mut self, id: GateId, now: Timestamp) {
        if self.waiters.has_line(id) {
            let gate = self.gates.get(id);
            let next = gate.next_admission(&self.settings, &self.tickets);
            // A ticket that became due in the past leaves now.
            self.waiters.schedule(id, next.map(|next| next.max(now)));
        }
        self.gates.file(id, now);
    }

    fn write_state(
        &self,
        at: At<'_>,
        verdict: Option<Verdict>,
        gate: &Gate,
        sentence: Option<String>,
        out: &mut Vec<u8>,
    ) {
        let now = at.time;
        let window = gate.window(&self.settings, now);
        Object::answering(Some(at), out)
            .text("verdict", verdict.map(Verdict::as_str))
            .float("rate", gate.rate())
            .text("breaker", Some(gate.breaker_state(now).as_str()))
            .time("hold_until", gate.hold_until(now))
            .float("error_rate", window.error_rate())
            .number("consecutive_failures", Some(gate.consecutive_failures()))
            .explained(sentence)
            .end();
    }
}

fn write_decision(
    answer: Object<'_>,
    word: &str,
    until: Option<Timestamp>,
    reason: Option<Reason>,
    sentence: Option<String>,
) {
    answer
        .text("decision", Some(word))
        .time("until", until)
        .text("reason", reason.map(Reason::as_str))
        .explained(sentence)
        .end();
}

fn bad_key(error: &KeyError) -> Problem {
    Problem::new(
        format!(
            "`acquire` is `{}`, expected {}",
            excerpt(error.value()),
            error.expected()
        ),
        "a key is a host, with a port where it matters, such as `api.example.com:8080`",
    )
}

fn still_waiting(number: u64) -> Problem {
    Problem::new(
        format!("`settle` is `{number}`, which still waits, expected one that was admitted"),
        SETTLE,
    )
}

fn not_out(number: u64, asks: u64) -> Problem {
    let what = if number == 0 || number > asks {
        format!("`settle` is `{number}`, expected one of the {asks} acquires so far")
    } else {
        format!(
            "`settle` is `{number}`, which was refused or is settled already, \
             expected one that was admitted"
        )
    };
    Problem::new(what, SETTLE)
}

const SETTLE: &str = "`settle` counts acquire lines from 1; each admitted one is settled once";
