//! The replay of gates against one that looks at every gate before every event.
//!
//! What is kept sorted here, next departures and gates that may be forgotten, must never show: the
//! slow way and the fast way give the same answers on any events.

use std::collections::BTreeMap;
use std::fmt::Write;

use policy::gate::{Ask, Decision, Gate, GateOptions, GateSettings, Permit};
use policy::line::{Ticket, Tickets};
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;
use policy::{classify, hint};

use super::gate::GateReplay;
use super::{Problem, Replay, built};

/// One that searches.
struct Slow {
    settings: GateSettings,
    tickets: Tickets,
    gates: BTreeMap<u64, SlowGate>,
    permits: BTreeMap<u64, (u64, Permit)>,
    asks: u64,
    uses: u64,
}

struct SlowGate {
    gate: Gate,
    line: Vec<(Ticket, u64)>,
    used: u64,
    /// When anything last happened here: nobody leaves before it.
    touched: Timestamp,
}

impl Slow {
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
            let next = self.gates.iter().filter_map(|(&key, slow)| {
                let &(_, number) = slow.line.first()?;
                let due = slow.gate.next_admission(&self.settings, &self.tickets)?;
                Some((due.max(slow.touched), number, key))
            });
            let Some((due, number, key)) = next.min().filter(|&(due, ..)| due <= now) else {
                return;
            };
            let slow = self.gates.get_mut(&key).unwrap();
            let (ticket, permit) = slow
                .gate
                .admit_next(&self.settings, &mut self.tickets, due)
                .unwrap();
            assert_eq!(slow.line.remove(0), (ticket, number));
            slow.touched = due;
            self.permits.insert(number, (key, permit));
            writeln!(out, "{number} leaves at {}", due.as_nanos()).unwrap();
        }
    }

    fn acquire(&mut self, key: u64, now: Timestamp, out: &mut String) {
        self.admit_due(now, out);
        self.asks += 1;
        self.gates
            .retain(|_, slow| !slow.gate.is_idle(&self.settings, now));
        if !self.gates.contains_key(&key) {
            if self.gates.len() >= self.settings.max_gates() {
                let evictable = self.gates.iter();
                let evictable = evictable.filter(|(_, slow)| slow.gate.is_evictable(now));
                let Some((&oldest, _)) = evictable.min_by_key(|(_, slow)| slow.used) else {
                    return out.push_str("refuse\n");
                };
                self.gates.remove(&oldest);
            }
            let slow = SlowGate {
                gate: Gate::new(&self.settings, now),
                line: Vec::new(),
                used: 0,
                touched: now,
            };
            self.gates.insert(key, slow);
        }
        let slow = self.gates.get_mut(&key).unwrap();
        self.uses += 1;
        slow.used = self.uses;
        slow.touched = now;
        let ask = Ask::until(now + self.settings.max_wait());
        match slow
            .gate
            .acquire(&self.settings, &mut self.tickets, &ask, now)
        {
            Decision::Admit(permit) => {
                self.permits.insert(self.asks, (key, permit));
                out.push_str("admit\n");
            }
            Decision::Wait { ticket, .. } => {
                slow.line.push((ticket, self.asks));
                out.push_str("wait\n");
            }
            Decision::Refuse { .. } => out.push_str("refuse\n"),
        }
    }

    fn settle(&mut self, number: u64, outcome: &Outcome, verdict: Verdict, now: Timestamp) -> f64 {
        let (key, permit) = self.permits.remove(&number).unwrap();
        let slow = self.gates.get_mut(&key).unwrap();
        slow.gate
            .settle(&self.settings, permit, outcome, Some(verdict), now);
        self.uses += 1;
        slow.used = self.uses;
        slow.touched = now;
        slow.gate.rate()
    }
}

/// Both ways over the same events, drawn from a seed.
struct Both {
    slow: Slow,
    fast: GateReplay,
    random: u64,
    now: u64,
}

impl Both {
    fn new(given: &[(&str, &str)], seed: u64) -> Self {
        let settings = || built(given.iter().copied(), GateOptions::build).unwrap();
        Self {
            slow: Slow::new(settings()),
            fast: GateReplay::new(settings(), false),
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
        self.slow.admit_due(now, &mut expected);
        let outstanding: Vec<u64> = self.slow.permits.keys().copied().collect();
        let line = if outstanding.is_empty() || self.draw(2) == 0 {
            let key = self.draw(12);
            self.slow.acquire(key, now, &mut expected);
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
            let rate = self.slow.settle(number, &outcome, verdict, now);
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
        self.fast.line(line, &mut out)?;
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

/// An answer in the words of the slow way.
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
fn searching_and_sorting_give_the_same() {
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
            let mut both = Both::new(given, seed);
            for step in 0..500 {
                both.step(&format!("{given:?}, seed {seed}, step {step}"));
            }
        }
    }
}
