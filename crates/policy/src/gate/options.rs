//! What people write about a gate: each setting by its name, optional, judged by itself.

use std::time::Duration;

use crate::duration;
use crate::limits::Limit;
use crate::rate::Strategy;
use crate::setting::{self, SettingError, list, positive, switch, unknown, whole};

/// What was written about a gate; `None` leaves the default of the strategy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateOptions {
    /// `false`: every ask is admitted and feedback ignored.
    pub enabled: Option<bool>,
    /// How the rate moves.
    pub strategy: Option<Strategy>,
    /// Requests per second to begin with.
    pub initial_rate: Option<f64>,
    /// The rate never falls below this.
    pub min_rate: Option<f64>,
    /// The rate never rises above this.
    pub max_rate: Option<f64>,
    /// Limits that are known, kept as well.
    pub limits: Option<Vec<Limit>>,
    /// Attempts under way at once.
    pub max_in_flight: Option<u32>,
    /// How many may wait; the next is refused.
    pub max_waiting: Option<u32>,
    /// How long a caller may be kept waiting.
    pub max_wait: Option<Duration>,
    /// Past this a hold is still kept, but callers are told at once.
    pub max_hold: Option<Duration>,
    /// Share of failures that opens the breaker.
    pub error_rate_threshold: Option<f64>,
    /// Outcomes in the window below which the share says nothing.
    pub min_samples: Option<u32>,
    /// Failures in a row that open the breaker.
    pub consecutive_failures: Option<u16>,
    /// Length of the breaker's window.
    pub window: Option<Duration>,
    /// The window moves in steps of this.
    pub window_slice: Option<Duration>,
    /// How long the breaker stays Open the first time.
    pub open_first: Option<Duration>,
    /// Later stays grow up to this.
    pub open_for: Option<Duration>,
    /// Probes at once while HalfOpen, and successes to close.
    pub half_open_probes: Option<u8>,
    /// A gate nobody used for this long is forgotten.
    pub idle_after: Option<Duration>,
    /// How many gates there may be.
    pub max_gates: Option<u32>,
    /// Parts of the registry that lock apart; a power of two.
    pub shards: Option<u32>,
    /// A wait longer than this counts as throttled.
    pub throttled_after: Option<Duration>,
    /// `aimd`: tokens that may be saved.
    pub burst: Option<f64>,
    /// `aimd`: added to the rate by a fast success.
    pub increase: Option<f64>,
    /// `aimd`: the rate is multiplied by this when it falls.
    pub decrease: Option<f64>,
    /// `aimd`: faster than this lets the rate rise.
    pub latency_target: Option<Duration>,
    /// `aimd`: the target times this makes it fall.
    pub latency_degrade_factor: Option<f64>,
    /// `aimd`: undirected throttling counts in the breaker.
    pub count_throttled: Option<bool>,
}

impl GateOptions {
    /// The names of all settings, as people write them.
    pub const NAMES: [&'static str; 28] = [
        "enabled",
        "strategy",
        "initial_rate",
        "min_rate",
        "max_rate",
        "limits",
        "max_in_flight",
        "max_waiting",
        "max_wait",
        "max_hold",
        "error_rate_threshold",
        "min_samples",
        "consecutive_failures",
        "window",
        "window_slice",
        "open_first",
        "open_for",
        "half_open_probes",
        "idle_after",
        "max_gates",
        "shards",
        "throttled_after",
        "burst",
        "increase",
        "decrease",
        "latency_target",
        "latency_degrade_factor",
        "count_throttled",
    ];

    /// Sets one setting from text. The value alone is judged here; how it fits with the others,
    /// in [`GateOptions::build`].
    ///
    /// ```
    /// let mut options = policy::gate::GateOptions::default();
    /// options.set("max_wait", "5s").unwrap();
    /// let error = options.set("max_wait", "5").unwrap_err();
    /// assert_eq!(error.to_string(), "`max_wait` is `5`, expected a number with a unit such as `500ms`, `30s` or `5m`");
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let value = value.trim();
        self.assign(name, value)
            .map_err(|expected| SettingError::new(name, value, expected))
    }

    fn assign(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "enabled" => self.enabled = Some(switch(value)?),
            "strategy" => self.strategy = Some(value.parse()?),
            "initial_rate" => self.initial_rate = Some(rate(value)?),
            "min_rate" => self.min_rate = Some(rate(value)?),
            "max_rate" => self.max_rate = Some(rate(value)?),
            "limits" => self.limits = Some(limits(value)?),
            "max_in_flight" => self.max_in_flight = Some(whole(value, 1, 1_000_000)?),
            "max_waiting" => self.max_waiting = Some(whole(value, 0, 10_000_000)?),
            "max_wait" => self.max_wait = Some(duration::parse(value)?),
            "max_hold" => self.max_hold = Some(duration::parse(value)?),
            "error_rate_threshold" => {
                self.error_rate_threshold =
                    Some(number(value, 0.0, 1.0, "a share above 0 and at most 1")?);
            }
            "min_samples" => self.min_samples = Some(whole(value, 1, 1_000_000)?),
            "consecutive_failures" => self.consecutive_failures = Some(whole(value, 1, u16::MAX)?),
            "window" => self.window = Some(positive(value)?),
            "window_slice" => self.window_slice = Some(positive(value)?),
            "open_first" => self.open_first = Some(positive(value)?),
            "open_for" => self.open_for = Some(positive(value)?),
            "half_open_probes" => self.half_open_probes = Some(whole(value, 1, 100)?),
            "idle_after" => self.idle_after = Some(positive(value)?),
            "max_gates" => self.max_gates = Some(whole(value, 1, 100_000_000)?),
            "shards" => self.shards = Some(power_of_two(value)?),
            "throttled_after" => self.throttled_after = Some(duration::parse(value)?),
            "burst" => {
                self.burst = Some(at_least_one(value, "a number of tokens from 1 to 1000000")?)
            }
            "increase" => self.increase = Some(number(value, 0.0, 1e6, "a number above 0")?),
            "decrease" => self.decrease = Some(below_one(value)?),
            "latency_target" => self.latency_target = Some(positive(value)?),
            "latency_degrade_factor" => {
                self.latency_degrade_factor = Some(at_least_one(value, "a factor of at least 1")?);
            }
            "count_throttled" => self.count_throttled = Some(switch(value)?),
            _ => return Err(unknown(name, &Self::NAMES)),
        }
        Ok(())
    }
}

fn number(value: &str, above: f64, most: f64, expected: &str) -> Result<f64, String> {
    setting::number(value)
        .filter(|n: &f64| *n > above && *n <= most)
        .ok_or_else(|| expected.to_owned())
}

/// A rate of one request a week is slow enough for anyone, and beyond a thousand million per
/// second a nanosecond clock has nothing left to tell apart.
fn rate(value: &str) -> Result<f64, String> {
    let expected = "a number of requests per second from 0.000001 to 1000000000";
    number(value, 0.0, 1e9, expected).and_then(|rate| {
        if rate < 1e-6 {
            Err(expected.to_owned())
        } else {
            Ok(rate)
        }
    })
}

fn at_least_one(value: &str, expected: &str) -> Result<f64, String> {
    number(value, 0.0, 1e6, expected).and_then(|number| {
        if number < 1.0 {
            Err(expected.to_owned())
        } else {
            Ok(number)
        }
    })
}

fn below_one(value: &str) -> Result<f64, String> {
    let expected = "a factor above 0 and below 1";
    number(value, 0.0, 1.0, expected).and_then(|number| {
        if number < 1.0 {
            Ok(number)
        } else {
            Err(expected.to_owned())
        }
    })
}

fn power_of_two(value: &str) -> Result<u32, String> {
    let expected = "a power of two from 1 to 65536";
    let shards: u32 = whole(value, 1, 65_536).map_err(|_| expected.to_owned())?;
    if shards.is_power_of_two() {
        Ok(shards)
    } else {
        Err(expected.to_owned())
    }
}

/// Several limits, separated by commas; the brackets and quotes of a list are allowed.
fn limits(value: &str) -> Result<Vec<Limit>, String> {
    /// Each costs up to a kilobyte a gate; nobody publishes more than four.
    const MOST: usize = 8;
    let limits = list(value)
        .map(str::parse)
        .collect::<Result<Vec<Limit>, String>>()?;
    if limits.len() > MOST {
        return Err(format!("at most {MOST} limits"));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_set() {
        for name in GateOptions::NAMES {
            let value = match name {
                "enabled" | "count_throttled" => "true",
                "strategy" => "fixed",
                "limits" => "[\"10/1s\", \"5000/1d\"]",
                "max_wait" | "max_hold" | "window" | "window_slice" | "open_first" | "open_for"
                | "idle_after" | "throttled_after" | "latency_target" => "10s",
                "error_rate_threshold" | "decrease" => "0.3",
                _ => "1_024",
            };
            let value = if name == "half_open_probes" {
                "7"
            } else {
                value
            };
            let mut options = GateOptions::default();
            assert_eq!(options.set(name, value), Ok(()), "{name}");
            assert_ne!(options, GateOptions::default(), "{name} was kept");
        }
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_what_could() {
        let check = |name: &str, values: &[&str], expected: &str| {
            for value in values {
                let error = GateOptions::default().set(name, value).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    format!("`{name}` is `{value}`, expected {expected}")
                );
            }
        };
        let rate = "a number of requests per second from 0.000001 to 1000000000";
        check(
            "max_rate",
            &["0", "-1", "NaN", "inf", "1e10", "fast", ""],
            rate,
        );
        check("enabled", &["yes", "1"], "`true` or `false`");
        check(
            "strategy",
            &["aimed", "AIMD"],
            "`adaptive`, `aimd` or `fixed`",
        );
        check(
            "max_in_flight",
            &["0", "-1", "1.5", "99999999999"],
            "a whole number from 1 to 1000000",
        );
        check(
            "half_open_probes",
            &["0", "256"],
            "a whole number from 1 to 100",
        );
        check(
            "error_rate_threshold",
            &["0", "1.1", "NaN"],
            "a share above 0 and at most 1",
        );
        check("window", &["0s"], "a duration above zero");
        check(
            "max_wait",
            &["30"],
            "a number with a unit such as `500ms`, `30s` or `5m`",
        );
        check(
            "shards",
            &["0", "3", "131072"],
            "a power of two from 1 to 65536",
        );
        check(
            "burst",
            &["0.5", "NaN"],
            "a number of tokens from 1 to 1000000",
        );
        check("decrease", &["0", "1", "2"], "a factor above 0 and below 1");
        check("latency_degrade_factor", &["0.9"], "a factor of at least 1");
        check("increase", &["0"], "a number above 0");
        check(
            "limits",
            &["10"],
            "a count and a period such as `10/1s` or `5000/1d`",
        );
        check(
            "limits",
            &["1/1s,1/2s,1/3s,1/4s,1/5s,1/6s,1/7s,1/8s,1/9s"],
            "at most 8 limits",
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_a_suggestion() {
        let error = |name| {
            GateOptions::default()
                .set(name, "1")
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error("max_rat"),
            "`max_rat` is `1`, expected a known setting; did you mean `max_rate`?"
        );
        assert!(error("zzzzzzzzzzzz").contains("a known setting: enabled, strategy"));
    }
}
