//! Compares the replay of gates with a model that searches every gate before every event.
//!
//! The replay keeps departures and evictable gates sorted; the model searches. Both must give the
//! same output for any events.

use std::collections::BTreeMap;
use std::fmt::Write;

use policy::gate::{Ask, Decision, Gate, GateOptions, GateSettings, Permit};
use policy::line::{Ticket, Tickets};
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;
use policy::{classify, hint};

use super::super::gate::GateReplay;
use super::super::{Problem, Replay, built};

/// Searches all gates.
struct Model {
    settings: GateSettings,
    tickets: Tickets,
    gates: BTreeMap<u64, ModelGate>,
    permits: BTreeMap<u64, (u64, Permit)>,
    asks: u64,
    uses: u64,
}

struct ModelGate {
    gate: Gate,
    line: Vec<(Ticket, u64)>,
    used: u64,
    /// The last event at this gate: no ticket leaves before it.
    touched: Timestamp,
}

impl Model {
    fn new(settings: GateSettings) -> Self {
        Self {
            settings,
            tickets: Tickets::new(),
            gates: BTreeMap::new(),
            permits: BTreeMap::new(),
            asks: 0,
            uses: 0,
        }
    }

    fn admit_due(&mut self, now: Timestamp, out: &mut String) {
        loop {
            let next = self.gates.iter().filter_map(|(&key, model)| {
                let &(_, number) = model.line.first()?;
                let due = model.gate.next_admission(&self.settings, &self.tickets)?;
                Some((due.max(model.touched), number, key))
            });
            let Some((due, number, key)) = next.min().filter(|&(due, ..)| due <= now) else {
                return;
            };
            let model = self.gates.get_mut(&key).unwrap();
            let (ticket, permit) = model
                .gate
                .admit_next(&self.settings, &mut self.tickets, due)
                .unwrap();
            assert_eq!(model.line.remove(0), (ticket, number));
            model.touched = due;
            self.permits.insert(number, (key, permit));
            writeln!(out, "{number} leaves at {}", due.as_nanos()).unwrap();
        }
    }

    fn acquire(&mut self, key: u64, now: Timestamp, out: &mut String) {
        self.admit_due(now, out);
        self.asks += 1;
        self.gates
            .retain(|_, model| !model.gate.is_idle(&self.settings, now));
        if !self.gates.contains_key(&key) {
            if self.gates.len() >= self.settings.max_gates() {
                let evictable = self.gates.iter();
                let evictable = evictable.filter(|(_, model)| model.gate.is_evictable(now));
                let Some((&oldest, _)) = evictable.min_by_key(|(_, model)| model.used) else {
                    return out.push_str("refuse\n");
                };
                self.gates.remove(&oldest);
            }
            let model = ModelGate {
                gate: Gate::new(&self.settings, now),
                line: Vec::new(),
                used: 0,
                touched: now,
            };
            self.gates.insert(key, model);
        }
        let model = self.gates.get_mut(&key).unwrap();
        self.uses += 1;
        model.used = self.uses;
        model.touched = now;
        let ask = Ask::until(now + self.settings.max_wait());
        match model
            .gate
            .acquire(&self.settings, &mut self.tickets, &ask, now)
        {
            Decision::Admit(permit) => {
                self.permits.insert(self.asks, (key, permit));
                out.push_str("admit\n");
            }
            Decision::Wait { ticket, .. } => {
                model.line.push((ticket, self.asks));
                out.push_str("wait\n");
            }
            Decision::Refuse { .. } => out.push_str("refuse\n"),
        }
    }

    fn settle(&mut self, number: u64, outcome: &Outcome, verdict: Verdict, now: Timestamp) -> f64 {
        let (key, permit) = self.permits.remove(&number).unwrap();
        let model = self.gates.get_mut(&key).unwrap();
        model
            .gate
            .settle(&self.settings, permit, outcome, Some(verdict), now);
        self.uses += 1;
        model.used = self.uses;
        model.touched = now;
        model.gate.rate()
    }
}

/// Runs both on the same random events.
struct Comparison {
    model: Model,
    replay: GateReplay,
    random: u64,
    now: u64,
}

impl Comparison {
    fn new(given: &[(&str, &str)], seed: u64) -> Self {
        let settings = || {
            built(
                GateOptions::default(),
                given.iter().copied(),
                GateOptions::build,
            )
            .unwrap()
        };
        Self {
            model: Model::new(settings()),
            replay: GateReplay::new(settings(), false),
            random: seed,
            now: 0,
        }
    }

    /// A number below `end`: the upper bits of a linear congruential generator.
    fn draw(&mut self, end: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    fn step(&mut self, name: &str) {
        self.now += match self.draw(10) {
            0..=3 => 0,
            4..=7 => self.draw(500_000_000),
            8 => self.draw(20_000_000_000),
            _ => self.draw(100) * 1_000_000_000,
        };
        let now = Timestamp::from_nanos(self.now);
        let at = super::at::Seconds(now);
        let mut expected = String::new();
        self.model.admit_due(now, &mut expected);
        let outstanding: Vec<u64> = self.model.permits.keys().copied().collect();
        let line = if outstanding.is_empty() || self.draw(2) == 0 {
            let key = self.draw(12);
            self.model.acquire(key, now, &mut expected);
            format!(r#"{{"at":{at},"acquire":"host{key}"}}"#)
        } else {
            let number = outstanding[usize::try_from(self.draw(outstanding.len() as u64)).unwrap()];
            let status = [200, 200, 200, 404, 429, 503][usize::try_from(self.draw(6)).unwrap()];
            let wait = if status == 429 {
                self.draw(200).to_string()
            } else {
                String::new()
            };
            let (outcome, verdict) = judged(status, &wait);
            let rate = self.model.settle(number, &outcome, verdict, now);
            writeln!(expected, "rate {rate}").unwrap();
            format!(
                r#"{{"at":{at},"settle":{number},"status":{status},"latency_ms":50,"headers":{{"retry-after":"{wait}"}}}}"#
            )
        };
        let actual = self.replay(&line).unwrap();
        assert_eq!(actual, expected, "{name}: {line}");
    }

    fn replay(&mut self, line: &str) -> Result<String, Problem> {
        let mut out = Vec::new();
        self.replay.line(line, &mut out)?;
        Ok(std::str::from_utf8(&out)
            .unwrap()
            .lines()
            .map(short)
            .collect())
    }
}

fn judged(status: u16, wait: &str) -> (Outcome, Verdict) {
    let response = hint::Response {
        status,
        headers: [("retry-after", wait.as_bytes())],
        body: b"",
    };
    let hint = hint::read(&response, None);
    let verdict = classify::response(&[], &response, &hint).verdict.unwrap();
    let latency = std::time::Duration::from_millis(50);
    (Outcome::status(status, latency).with_hint(hint), verdict)
}

/// A line of output in the model's format.
fn short(line: &str) -> String {
    let answer: BTreeMap<&str, &serde_json::value::RawValue> = serde_json::from_str(line).unwrap();
    let field = |name| answer.get(name).map(|value| value.get());
    if let Some(number) = field("admitted") {
        let at = super::at::scaled(field("at").unwrap(), 9).unwrap();
        format!("{number} leaves at {at}\n")
    } else if let Some(decision) = field("decision") {
        format!("{}\n", decision.trim_matches('"'))
    } else {
        format!("rate {}\n", field("rate").unwrap())
    }
}

#[test]
fn replay_agrees_with_a_model_that_searches_all_gates() {
    let settings: [&[(&str, &str)]; 4] = [
        &[("strategy", "aimd"), ("max_gates", "5")],
        &[
            ("strategy", "aimd"),
            ("consecutive_failures", "2"),
            ("idle_after", "30s"),
        ],
        &[
            ("strategy", "fixed"),
            ("initial_rate", "3"),
            ("max_in_flight", "2"),
        ],
        &[("max_gates", "8"), ("max_wait", "300s")],
    ];
    for given in settings {
        for seed in 0..20 {
            let mut comparison = Comparison::new(given, seed);
            for step in 0..500 {
                comparison.step(&format!("{given:?}, seed {seed}, step {step}"));
            }
        }
    }
}
