//! Draws the file of one scenario.

use std::fmt::Write;

use policy::random::Random;

use crate::draw::{Draw, number, seconds};

/// The scenario file with number `index` of the set of `seed`.
pub(super) fn text(seed: u64, index: u64) -> String {
    let mut generator = Generator::new(seed, index);
    _ = writeln!(
        generator.text,
        "# Random upstream {index} of the set with seed {seed}."
    );
    generator.scenario();
    generator.text
}

/// The highest capacity, per second.
const MAX_RATE: f64 = 2000.0;
/// The lowest capacity of a single client: `min_rate` of a gate.
const MIN_RATE: f64 = 0.1;
/// The lowest share of one of several clients: five times `min_rate`.
const MIN_SHARE: f64 = 0.5;
/// Requests of a run at most: 300 s of the highest capacity.
const MAX_REQUESTS: f64 = 600_000.0;
/// Requests of each client at least.
const MIN_REQUESTS: f64 = 100.0;
const MIN_DURATION_S: f64 = 300.0;
/// The settled figures start then.
const SETTLED_S: f64 = 60.0;
/// Windows up to this length have any phase.
const MAX_FREE_PERIOD_S: f64 = 5.0;
/// Requests in flight per client on average. A gate allows 256.
const MAX_IN_FLIGHT: f64 = 100.0;

struct Generator {
    draw: Draw,
    text: String,
    clients: u64,
    /// The capacity at the start, per second.
    rate: f64,
    /// The highest capacity during the run.
    max_rate: f64,
    /// In seconds.
    duration: f64,
}

/// What is drawn of a limit that later draws depend on.
struct Limit {
    kind: LimitKind,
    /// Whether a client gets to know when it may send again.
    is_announced: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum LimitKind {
    Bucket,
    Window { period: f64 },
    Slots { service: f64 },
}

impl Generator {
    fn new(seed: u64, index: u64) -> Self {
        // Two rounds, so that scenarios of neighbouring seeds and numbers are unrelated.
        let set = Random::from_seed(seed).next_u64();
        let stream = Random::from_seed(set ^ index).next_u64();
        Self {
            draw: Draw::new(stream),
            text: String::new(),
            clients: 1,
            rate: 0.0,
            max_rate: 0.0,
            duration: MIN_DURATION_S,
        }
    }

    fn scenario(&mut self) {
        let seed = self.draw.below(1_000_000_000);
        if self.draw.chance(0.25) {
            self.clients = crate::whole(self.draw.spread(2.0, 17.0));
        }
        let body = std::mem::take(&mut self.text);
        self.text.push_str("\n[upstream]\n");
        let limit = self.limit();
        let refusal = self.times(&limit);
        self.troubles(&limit, refusal);
        self.client(&limit);
        let rest = std::mem::replace(&mut self.text, body);
        let duration = seconds(self.duration);
        self.line("duration", duration);
        self.line("seed", seed);
        self.text.push_str(&rest);
    }

    fn limit(&mut self) -> Limit {
        match self.draw.below(10) {
            0..=4 => self.bucket(),
            5..=7 => self.window(),
            _ => self.slots(),
        }
    }

    fn bucket(&mut self) -> Limit {
        self.draw_rate(MAX_RATE);
        let burst = match self.draw.below(10) {
            0..=1 => 1.0,
            2..=6 => self.draw.spread(1.0, 31.0).floor(),
            _ => (self.rate * self.draw.between(0.2, 5.0)).round(),
        };
        let (retry_after, headers) = (self.draw.chance(0.25), self.draw.chance(0.1));
        let least = match self.clients {
            1 if headers => 2,
            1 => 1,
            several => 2 * several,
        };
        self.max_rate = self.rate;
        let steps = self.step_rates(|at| at, |rate| rate);
        // 20 ms of the limit: clients cannot time requests more precisely than that.
        let burst = burst.max(least as f64).max((0.02 * self.max_rate).ceil());
        self.line("kind", "\"bucket\"");
        self.line("rate", number(self.rate));
        self.line("burst", number(burst));
        let steps = steps
            .into_iter()
            .map(|(at, rate)| (at, format!("rate = {}", number(rate))));
        self.steps(steps.collect());
        self.hints(retry_after, headers);
        Limit {
            kind: LimitKind::Bucket,
            is_announced: retry_after || headers,
        }
    }

    fn window(&mut self) -> Limit {
        const USUAL_S: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0];
        let period = match self.draw.chance(0.8) {
            true => USUAL_S[self.pick(USUAL_S.len())],
            false => self.draw.spread(1.0, 300.0).round(),
        };
        let max_rate = MAX_REQUESTS / (SETTLED_S + 5.0 * period).max(MIN_DURATION_S);
        self.draw_rate(max_rate);
        let min_quota = 2.0 * self.clients as f64;
        let quota = |rate: f64| (rate * period).round().max(min_quota);
        self.rate = quota(self.rate) / period;
        let windows = |at: f64| ((at - SETTLED_S) / period).round();
        let count = (self.duration - SETTLED_S) / period;
        self.duration = SETTLED_S + count.ceil().max(5.0) * period;
        let phase = if period > MAX_FREE_PERIOD_S {
            // A window starts at 60 s.
            (period - SETTLED_S % period) % period
        } else {
            self.draw.between(0.0, period)
        };
        self.max_rate = self.rate;
        let steps = self.step_rates(
            |at| SETTLED_S + windows(at) * period,
            |rate| quota(rate) / period,
        );
        self.line("kind", "\"window\"");
        self.line("quota", quota(self.rate));
        self.line("period", seconds(period));
        if phase > 0.0 {
            self.line("phase", seconds(phase));
        }
        let steps = steps
            .into_iter()
            .map(|(at, rate)| (at, format!("quota = {}", quota(rate))));
        self.steps(steps.collect());
        let (retry_after, headers) = (self.draw.chance(0.5), self.draw.chance(0.35));
        self.hints(retry_after, headers);
        Limit {
            kind: LimitKind::Window { period },
            is_announced: retry_after || headers,
        }
    }

    fn slots(&mut self) -> Limit {
        let slots = self.draw.spread(1.0, 101.0).floor();
        let slowest = slots / (MIN_SHARE * self.clients as f64);
        let service = self.draw.spread(0.005, 2.0);
        let service = service.min(slowest).max(slots / MAX_RATE);
        self.rate = slots / service;
        self.max_rate = self.rate;
        self.set_duration();
        let least = slots.max(10.0).max(2.0 * self.clients as f64);
        let queue = self.draw.spread(least, 10.0 * least).round();
        let fitting = |rate: f64| (rate * service).floor().clamp(1.0, 100.0);
        let steps = self.step_rates(|at| at, |rate| fitting(rate) / service);
        let steps = steps.into_iter().map(|(at, rate)| {
            let slots = (rate * service).round();
            (at, format!("slots = {slots}"))
        });
        self.line("kind", "\"slots\"");
        self.line("slots", slots);
        self.line("service", seconds(service));
        self.line("queue", queue);
        self.steps(steps.collect());
        Limit {
            kind: LimitKind::Slots { service },
            is_announced: false,
        }
    }

    /// Draws the capacity, at most `max`, and sets the duration.
    fn draw_rate(&mut self, max: f64) {
        self.rate = self.draw.spread(self.min_rate(), max);
        self.set_duration();
    }

    fn min_rate(&self) -> f64 {
        match self.clients {
            1 => MIN_RATE,
            several => MIN_SHARE * several as f64,
        }
    }

    fn set_duration(&mut self) {
        let needed = MIN_REQUESTS * self.clients as f64 / self.rate;
        self.duration = (60.0 * (needed / 60.0).ceil()).max(MIN_DURATION_S);
    }

    /// No, one or two changes of the first capacity, at times that `aligned` adjusts, to capacities that
    /// `rounded` makes possible. A step that changes little is left out.
    fn step_rates(
        &mut self,
        aligned: impl Fn(f64) -> f64,
        rounded: impl Fn(f64) -> f64,
    ) -> Vec<(f64, f64)> {
        let times: &[(f64, f64)] = match self.draw.below(100) {
            0..=11 => &[(0.3, 0.7)],
            12..=19 => &[(0.25, 0.4), (0.55, 0.7)],
            _ => &[],
        };
        let mut steps: Vec<(f64, f64)> = Vec::new();
        let max = MAX_RATE.min(MAX_REQUESTS / self.duration);
        for (from, to) in times {
            let at = aligned(self.draw.between(*from, *to) * self.duration);
            let (low, high) = [(0.2, 0.7), (1.4, 5.0)][self.pick(2)];
            let rate = self.rate * self.draw.spread(low, high);
            let rate = rounded(rate.min(max).max(self.min_rate()));
            self.max_rate = self.max_rate.max(rate);
            let before = steps.last().map_or(self.rate, |(_, rate)| *rate);
            if (rate / before).ln().abs() > 0.1 {
                steps.push((at, rate));
            }
        }
        steps
    }

    fn steps(&mut self, steps: Vec<(f64, String)>) {
        if steps.is_empty() {
            return;
        }
        let steps: Vec<String> = steps
            .into_iter()
            .map(|(at, change)| format!("{{ at = {}, {change} }}", seconds(at)))
            .collect();
        self.line("steps", format!("[{}]", steps.join(", ")));
    }

    fn hints(&mut self, retry_after: bool, headers: bool) {
        self.line("retry_after", retry_after);
        self.line("headers", headers);
    }

    /// Draws latencies; returns the time from sending a request to its refusal, in seconds.
    fn times(&mut self, limit: &Limit) -> f64 {
        let most = MAX_IN_FLIGHT * self.clients as f64 / self.max_rate;
        let network = self.draw.spread(0.001, 0.08).min(most / 4.0);
        let refusal = self.draw.spread(0.001, 0.05);
        let latency = self.draw.spread(0.005, 1.0).min(most / 2.0);
        let spread = self.draw.between(0.1, 0.6);
        if !matches!(limit.kind, LimitKind::Slots { .. }) {
            self.line("latency", seconds(latency));
        }
        self.line("latency_spread", number(spread));
        self.line("refuse_latency", seconds(refusal));
        self.line("network", seconds(network));
        refusal + 2.0 * network
    }

    fn troubles(&mut self, limit: &Limit, refusal: f64) {
        if self.draw.chance(0.25) {
            let share = self.draw.spread(0.001, 0.05);
            self.line("failure_rate", number(share));
        }
        if self.draw.chance(0.12) {
            self.outage();
        }
        if self.draw.chance(0.25) {
            self.ban(limit, refusal);
        }
    }

    fn outage(&mut self) {
        let from = self.draw.between(0.3, 0.6) * self.duration;
        let to = from + self.draw.spread(5.0, 60.0);
        let share = self.draw.between(0.0, 1.0);
        let timeout = self.draw.spread(1.0, 10.0);
        let status = match self.draw.below(5) {
            0 => ", status = 502",
            1 => ", status = 503",
            _ => "",
        };
        let (from, to, share) = (seconds(from), seconds(to), number(share));
        let timeout = seconds(timeout);
        self.line(
            "outage",
            format!(
                "[{{ from = {from}, to = {to}, timeout_share = {share}, timeout = {timeout}{status} }}]"
            ),
        );
    }

    /// Adds a ban where one can be avoided; see the module.
    fn ban(&mut self, limit: &Limit, refusal: f64) {
        let excesses = 3 + self.draw.below(8);
        let within = self.draw.between(10.0, 60.0).round();
        let length = self.draw.between(30.0, 120.0).round();
        let is_avoidable = match limit.kind {
            LimitKind::Bucket => true,
            LimitKind::Window { period } => limit.is_announced || period <= MAX_FREE_PERIOD_S,
            LimitKind::Slots { .. } => false,
        };
        let on_the_way = self.max_rate * refusal;
        if self.clients > 1 || !is_avoidable || on_the_way > excesses as f64 / 2.0 {
            return;
        }
        let (within, length) = (seconds(within), seconds(length));
        let ban = format!("{{ excesses = {excesses}, within = {within}, for = {length} }}");
        self.line("ban", ban);
    }

    fn client(&mut self, limit: &Limit) {
        self.text.push_str("\n[[client]]\n");
        let clients = self.clients;
        self.line("count", clients);
        self.line("strategy", "\"adaptive\"");
        let start = match limit.kind {
            LimitKind::Window { period } if period > MAX_FREE_PERIOD_S => period.min(20.0),
            _ if clients > 1 => 20.0,
            _ => 0.0,
        };
        if start > 0.0 {
            self.line("start", format!("\"0s..{start}s\""));
        }
        if self.draw.chance(0.15) {
            let offered = self.rate / clients as f64 * self.draw.spread(0.3, 2.0);
            self.line("backlog", format!("\"{}/s\"", number(offered)));
        }
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.draw.below(count as u64)).unwrap_or(0)
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        _ = writeln!(self.text, "{name} = {value}");
    }
}
