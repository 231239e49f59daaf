//! The defaults of strategy `aimd`: giving every one of them changes nothing.

use serde_json::{Value, json};

use crate::assert_close;
use crate::gate::Gate;
use crate::item::replay;

/// Names of the seed and ours, with the unit of ours.
const NAMES: [(&str, &str, &str); 16] = [
    ("enabled", "enabled", ""),
    ("initial_rps", "initial_rate", ""),
    ("min_rps", "min_rate", ""),
    ("max_rps", "max_rate", ""),
    ("token_bucket_capacity", "burst", ""),
    ("aimd_increase", "increase", ""),
    ("aimd_decrease", "decrease", ""),
    ("latency_target", "latency_target", "s"),
    ("latency_degrade_factor", "latency_degrade_factor", ""),
    ("error_rate_threshold", "error_rate_threshold", ""),
    ("min_samples_to_trip", "min_samples", ""),
    ("consecutive_fail_threshold", "consecutive_failures", ""),
    ("half_open_probes", "half_open_probes", ""),
    ("stats_window", "window", "s"),
    ("stats_bucket", "window_slice", "s"),
    ("domain_state_ttl", "idle_after", "s"),
];

/// What is not a setting of the gate's own behaviour.
const SKIPPED: [(&str, &str); 4] = [
    ("retry_base_delay", "checked below: preset `crawl`"),
    ("retry_max_delay", "checked below: preset `crawl`"),
    ("retry_max_attempts", "checked below: preset `crawl`"),
    ("shards", "by design: 64 shards, and a replay has none"),
];

#[test]
fn defaults() {
    let file: Value = serde_json::from_str(include_str!(
        "../../../../conformance/004_config_defaults.json"
    ))
    .unwrap();
    let defaults = file["default"].as_object().unwrap();
    let mut settings = Vec::new();
    for (name, value) in defaults {
        if name == "open_state_duration" {
            settings.push(format!("open_first={value}s"));
            settings.push(format!("open_for={value}s"));
        } else if let Some((_, ours, unit)) = NAMES.iter().find(|(theirs, ..)| theirs == name) {
            settings.push(format!("{ours}={value}{unit}"));
        } else {
            let skipped = SKIPPED.iter().any(|(skipped, _)| skipped == name);
            assert!(skipped, "{name} is neither checked nor listed");
        }
    }
    assert_eq!(settings.len() + SKIPPED.len(), defaults.len() + 1);

    let given: Vec<_> = settings.iter().map(String::as_str).collect();
    assert!(trace(&given) == trace(&[]), "a default is another");
    for setting in given {
        let changed = changed(setting);
        let differs = trace(&[&changed]) != trace(&[]);
        assert!(differs, "{changed} makes no difference");
    }
}

#[test]
fn defaults_of_retries_are_those_of_a_crawl() {
    let file: Value = serde_json::from_str(include_str!(
        "../../../../conformance/004_config_defaults.json"
    ))
    .unwrap();
    let defaults = &file["default"];
    let args = ["--preset", "crawl", "--jitter", "none"];
    let event = |attempt| json!({ "attempt": attempt, "status": 503 });
    let first = &replay(&args, &[event(1)])[0]["delay_ms"];
    assert_close(
        first,
        &json!(1000.0 * defaults["retry_base_delay"].as_f64().unwrap()),
        "base",
    );
    let last = replay(
        &[&args[..], &["--set", "max_attempts=100"]].concat(),
        &[event(99)],
    );
    let max = json!(1000.0 * defaults["retry_max_delay"].as_f64().unwrap());
    assert_close(&last[0]["delay_ms"], &max, "max");
    let sends = replay(&args, &[event(1), event(2), event(3)]);
    let retried = sends.iter().map(|answer| answer["retry"] == true);
    assert_eq!(defaults["retry_max_attempts"], 3);
    assert_eq!(retried.collect::<Vec<_>>(), [true, true, false]);
}

/// Another value for the same setting.
fn changed(setting: &str) -> String {
    let (name, value) = setting.split_once('=').unwrap();
    let (value, unit) = match value.strip_suffix('s') {
        Some(value) => (value, "s"),
        None => (value, ""),
    };
    match value.parse::<f64>() {
        Ok(value) if HALVED.contains(&name) => format!("{name}={}{unit}", value / 2.0),
        Ok(value) => format!("{name}={}{unit}", value * 2.0),
        Err(_) => format!("{name}=false"),
    }
}

/// Twice as much would be more than two seconds refill, no decrease, more than the open time, or
/// no part of the window.
const HALVED: [&str; 4] = ["burst", "decrease", "open_first", "window_slice"];

/// Everything a gate does, once: a burst, rise to the ceiling, slow down, trip both ways, recover,
/// fall to the floor, let the window pass, be forgotten.
fn trace(settings: &[&str]) -> Vec<Value> {
    let mut trace = Trace {
        gate: Gate::new(settings),
        now: 0.0,
        answers: Vec::new(),
    };
    let burst: Vec<_> = (0..6).map(|_| trace.gate.acquire(0.0)).collect();
    for (answer, number) in burst {
        let at = answer["until"].as_f64().unwrap_or(0.0);
        trace.answers.push(answer);
        trace.settle(at, number, 200, 100);
    }
    trace.attempts(0.1, 40, |_| (200, 100));
    for latency in [999, 1000, 1500, 2000, 2500, 4000] {
        trace.attempts(1.0, 1, |_| (200, latency));
    }
    trace.attempts(35.0, 1, |_| (200, 100));
    trace.attempts(0.1, 30, |n| (if n % 3 == 0 { 200 } else { 500 }, 100));
    trace.attempts(0.1, 20, |_| (200, 100));
    trace.attempts(0.1, 12, |_| (500, 100));
    trace.attempts(0.1, 10, |_| (200, 100));
    trace.attempts(100.0, 1, |_| (500, 100));
    trace.attempts(1.0, 70, |_| (401, 100));
    trace.attempts(119.0, 1, |_| (404, 100));
    trace.attempts(121.0, 1, |_| (404, 100));
    trace.gate.end();
    trace.answers
}

struct Trace {
    gate: Gate,
    now: f64,
    answers: Vec<Value>,
}

impl Trace {
    /// So many attempts, each at least `gap` seconds after the one before.
    fn attempts(&mut self, gap: f64, count: u64, result: impl Fn(u64) -> (u64, u64)) {
        for n in 0..count {
            let (status, latency) = result(n);
            let (at, number) = self.ask(self.now + gap);
            self.settle(at, number, status, latency);
        }
    }

    /// Asks until admitted, however long that takes.
    fn ask(&mut self, at: f64) -> (f64, u64) {
        let (answer, number) = self.gate.acquire(at);
        self.answers.push(answer.clone());
        match (answer["decision"].as_str(), answer["until"].as_f64()) {
            (Some("admit"), _) => (at, number),
            (Some("wait"), Some(until)) => (until, number),
            (_, until) => self.ask(until.unwrap_or(at + 1.0)),
        }
    }

    fn settle(&mut self, at: f64, number: u64, status: u64, latency_ms: u64) {
        let result = json!({ "status": status, "latency_ms": latency_ms });
        self.now = at;
        self.answers.push(self.gate.settle_with(at, number, result));
    }
}
