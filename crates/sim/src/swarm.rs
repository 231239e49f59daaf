//! Random scenarios, each generated from a seed as a scenario file, with many values at the edges.
//!
//! A scenario's length depends on its rates, so that each has a few thousand requests: many short
//! scenarios find more than a few long ones.

use std::fmt::Write;
use std::ops::Range;

use crate::check::{CheckedRun, Violation, check};
use crate::draw::{Draw, number, seconds};
use crate::scenario::Scenario;

/// The scenario file of this seed.
///
/// ```
/// use sim::scenario::Scenario;
/// use sim::swarm;
///
/// let text = swarm::scenario_text(7);
/// assert!(Scenario::read("7.toml", text.as_bytes()).is_ok());
/// assert_eq!(text, swarm::scenario_text(7));
/// ```
pub fn scenario_text(seed: u64) -> String {
    let mut generator = Generator::new(seed);
    generator.scenario();
    generator.text
}

/// Runs the scenario of this seed and checks every event.
///
/// # Errors
///
/// The first violation of an invariant.
pub fn run(seed: u64) -> Result<CheckedRun, Violation> {
    let scenario = Scenario::read("swarm", scenario_text(seed).as_bytes())
        .expect("generated scenarios are valid");
    check(&scenario, scenario.seed)
}

struct Generator {
    draw: Draw,
    text: String,
    seed: u64,
    /// Capacity of the upstream at the start, per second.
    rate: f64,
    /// In seconds.
    duration: f64,
}

/// About this many requests reach the limit in one scenario.
const REQUESTS: f64 = 3000.0;
/// Long enough for a breaker to open and close.
const MIN_DURATION_S: f64 = 8.0;
/// Short enough to run many scenarios, also with low rates.
const MAX_DURATION_S: f64 = 400.0;

impl Generator {
    fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        // Nearly all real limits are below a thousand per second.
        let rate = if draw.chance(0.1) {
            draw.spread(500.0, 5000.0)
        } else {
            draw.spread(0.05, 500.0)
        };
        let length = (REQUESTS / rate).clamp(MIN_DURATION_S, MAX_DURATION_S);
        let duration = length * draw.spread(0.5, 1.5);
        Self {
            draw,
            text: String::new(),
            seed,
            rate,
            duration,
        }
    }

    fn scenario(&mut self) {
        let duration = seconds(self.duration);
        self.line("duration", &duration);
        let seed = self.seed;
        self.line("seed", seed);
        self.text.push_str("\n[upstream]\n");
        self.limit();
        self.times();
        self.failures();
        self.clients();
    }

    fn limit(&mut self) {
        match self.draw.below(3) {
            0 => self.bucket(),
            1 => self.window(),
            _ => self.slots(),
        }
    }

    fn bucket(&mut self) {
        let burst = match self.draw.below(4) {
            0 => 1.0,
            1 => self.draw.spread(1.0, 2.0),
            2 => self.draw.spread(1.0, 50.0).floor(),
            _ => (2.0 * self.rate).max(1.0).ceil(),
        };
        self.line("kind", "\"bucket\"");
        self.line("rate", number(self.rate));
        self.line("burst", number(burst));
        self.steps(|generator, rate| {
            let mut changes = format!("rate = {}", number(rate));
            if generator.draw.chance(0.3) {
                let burst = generator.draw.spread(1.0, 100.0).floor();
                _ = write!(changes, ", burst = {}", number(burst));
            }
            changes
        });
    }

    fn window(&mut self) {
        let max = (self.duration / 2.0).clamp(1.0, 120.0);
        let period = self.draw.spread(0.5, max);
        let quota = (self.rate * period).ceil().max(1.0);
        self.line("kind", "\"window\"");
        self.line("quota", quota);
        let text = seconds(period);
        self.line("period", text);
        if self.draw.chance(0.7) {
            let share = self.draw.between(0.0, 1.0);
            let phase = seconds(share * period);
            self.line("phase", phase);
        }
        self.steps(|_, rate| format!("quota = {}", (rate * period).ceil().max(1.0)));
    }

    fn slots(&mut self) {
        let service = self.draw.spread(0.005, 2.0);
        let slots = (self.rate * service).ceil().clamp(1.0, 2000.0);
        let queue = self.queue();
        self.line("kind", "\"slots\"");
        self.line("slots", slots);
        let text = seconds(service);
        self.line("service", text);
        self.line("queue", queue);
        self.steps(|generator, rate| match generator.draw.below(3) {
            0 => format!("queue = {}", generator.queue()),
            _ => format!("slots = {}", (rate * service).ceil().clamp(1.0, 2000.0)),
        });
    }

    fn queue(&mut self) -> u64 {
        match self.draw.below(3) {
            0 => 0,
            1 => self.draw.below(10),
            _ => self.draw.below(500),
        }
    }

    /// Up to three steps, each to between a tenth and ten times the first rate.
    fn steps(&mut self, change: impl Fn(&mut Self, f64) -> String) {
        if !self.draw.chance(0.25) {
            return;
        }
        let mut steps = Vec::new();
        let mut at = 0.0;
        for _ in 0..=self.draw.below(3) {
            at += self.draw.between(0.01, 0.6) * self.duration;
            let rate = self.rate * self.draw.spread(0.1, 10.0);
            let changes = change(self, rate.clamp(0.05, 5000.0));
            steps.push(format!("{{ at = {}, {changes} }}", seconds(at)));
        }
        self.line("steps", format!("[{}]", steps.join(", ")));
    }

    fn times(&mut self) {
        let (retry_after, headers) = (self.draw.chance(0.4), self.draw.chance(0.3));
        self.line("retry_after", retry_after);
        self.line("headers", headers);
        self.maybe_seconds("latency", 0.5, 0.001..2.0);
        self.maybe_seconds("refuse_latency", 0.3, 0.001..0.5);
        self.maybe_seconds("network", 0.4, 0.000_1..0.3);
        if self.draw.chance(0.5) {
            let spread = self.draw.between(0.0, 1.0);
            self.line("latency_spread", number(spread));
        }
        if self.draw.chance(0.3) {
            let share = self.draw.spread(0.001, 0.5);
            self.line("failure_rate", number(share));
        }
    }

    fn failures(&mut self) {
        if self.draw.chance(0.35) {
            self.outages();
        }
        if self.draw.chance(0.2) {
            let excesses = 1 + self.draw.below(10);
            let [within, length] =
                [(0.5, 60.0), (0.5, 30.0)].map(|(low, high)| seconds(self.draw.spread(low, high)));
            let ban = format!("{{ excesses = {excesses}, within = {within}, for = {length} }}");
            self.line("ban", ban);
        }
    }

    /// From the very beginning at times, and at times past the end.
    fn outages(&mut self) {
        let mut outages = Vec::new();
        let mut at = 0.0;
        for _ in 0..=self.draw.below(3) {
            if !self.draw.chance(0.1) {
                at += self.draw.between(0.001, 0.7) * self.duration;
            }
            let end = at + self.draw.spread(0.002, 0.5) * self.duration + 0.001;
            let (from, to) = (seconds(at), seconds(end));
            let share = self.draw.between(0.0, 1.0);
            let timeout = self.draw.spread(0.05, 10.0);
            let (share, timeout) = (number(share), seconds(timeout));
            outages.push(format!(
                "{{ from = {from}, to = {to}, timeout_share = {share}, timeout = {timeout} }}"
            ));
            at = end + 0.002;
        }
        self.line("outage", format!("[{}]", outages.join(", ")));
    }

    fn clients(&mut self) {
        let groups = 1 + u64::from(self.draw.chance(0.25));
        let mut left = 16;
        for _ in 0..groups {
            let count = match self.draw.below(3) {
                0 => 1,
                1 => 1 + self.draw.below(4),
                _ => 1 + self.draw.below(16),
            };
            let count = count.min(left);
            left -= count;
            if count > 0 {
                self.client(count);
            }
        }
    }

    fn client(&mut self, count: u64) {
        self.text.push_str("\n[[client]]\n");
        self.line("count", count);
        let fair = self.rate / count as f64;
        match self.draw.below(4) {
            0 => {
                let rate = fair * self.draw.spread(0.3, 2.0);
                self.line("strategy", format!("\"fixed:{}\"", number(rate)));
            }
            1 => {
                self.line("strategy", "\"aimd\"");
                self.aimd();
                self.rates(fair);
            }
            _ => {
                self.line("strategy", "\"adaptive\"");
                self.rates(fair);
            }
        }
        if self.draw.chance(0.2) {
            self.limits(fair);
        }
        if self.draw.chance(0.4) {
            self.breaker();
        }
        self.maybe_seconds("max_hold", 0.1, 0.5..60.0);
        if self.draw.chance(0.4) {
            let max = self.draw.spread(1.0, 300.0).floor();
            self.line("max_in_flight", max);
        }
        self.load(fair);
    }

    /// Minimum, initial and maximum rate, in order; each may be left out.
    fn rates(&mut self, fair: f64) {
        let mut rates = [
            fair * self.draw.spread(0.01, 1.0),
            fair * self.draw.spread(0.05, 5.0),
            fair * self.draw.spread(0.5, 50.0),
        ];
        rates.sort_by(f64::total_cmp);
        let names = ["min_rate", "initial_rate", "max_rate"];
        for (name, rate) in names.into_iter().zip(rates) {
            if self.draw.chance(0.4) {
                self.line(name, number(rate));
            }
        }
    }

    fn aimd(&mut self) {
        self.maybe_number("burst", 1.0..50.0);
        self.maybe_number("increase", 0.01..5.0);
        self.maybe_number("decrease", 0.1..0.95);
        self.maybe_seconds("latency_target", 0.4, 0.01..3.0);
        self.maybe_number("latency_degrade_factor", 1.0..4.0);
        if self.draw.chance(0.3) {
            let counts = self.draw.chance(0.5);
            self.line("count_throttled", counts);
        }
    }

    fn limits(&mut self, fair: f64) {
        let mut limits = Vec::new();
        for _ in 0..=self.draw.below(2) {
            let period = self.draw.spread(0.2, 20.0);
            let count = (fair * period * self.draw.spread(0.3, 3.0)).ceil().max(1.0);
            let millis = (period * 1e3).round();
            limits.push(format!("\"{count}/{millis}ms\""));
        }
        self.line("limits", format!("[{}]", limits.join(", ")));
    }

    fn breaker(&mut self) {
        self.maybe_number("error_rate_threshold", 0.05..1.0);
        if self.draw.chance(0.4) {
            let samples = 1 + self.draw.below(50);
            self.line("min_samples", samples);
        }
        if self.draw.chance(0.4) {
            let failures = 1 + self.draw.below(12);
            self.line("consecutive_failures", failures);
        }
        if self.draw.chance(0.4) {
            let probes = 1 + self.draw.below(10);
            self.line("half_open_probes", probes);
        }
        if self.draw.chance(0.4) {
            let first = self.draw.spread(0.05, 10.0);
            let last = first * self.draw.spread(1.0, 4.0);
            let (first, last) = (seconds(first), seconds(last));
            self.line("open_first", first);
            self.line("open_for", last);
        }
        if self.draw.chance(0.3) {
            let slice = self.draw.spread(0.1, 5.0);
            let window = slice * self.draw.between(1.1, 10.0);
            let (slice, window) = (seconds(slice), seconds(window));
            self.line("window_slice", slice);
            self.line("window", window);
        }
    }

    fn load(&mut self, fair: f64) {
        match self.draw.below(4) {
            0 => {
                let rate = fair * self.draw.spread(0.05, 3.0);
                self.line("backlog", format!("\"{}/s\"", number(rate.max(0.001))));
            }
            1 => {
                let total = 1.0 + fair * self.duration * self.draw.spread(0.05, 1.0);
                self.line("backlog", total.floor());
            }
            _ => {}
        }
        if self.draw.chance(0.3) {
            let from = self.draw.between(0.0, 0.3) * self.duration;
            let to = from + self.draw.between(0.0, 0.3) * self.duration;
            let millis = |seconds: f64| (seconds * 1e3).round();
            let (from, to) = (millis(from), millis(to));
            self.line("start", format!("\"{from}ms..{to}ms\""));
        }
    }

    fn maybe_number(&mut self, name: &str, range: Range<f64>) {
        if self.draw.chance(0.4) {
            let value = self.draw.spread(range.start, range.end);
            self.line(name, number(value));
        }
    }

    fn maybe_seconds(&mut self, name: &str, chance: f64, range: Range<f64>) {
        if self.draw.chance(chance) {
            let text = seconds(self.draw.spread(range.start, range.end));
            self.line(name, text);
        }
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        _ = writeln!(self.text, "{name} = {value}");
    }
}
