//! The settings of a gate: what people write, and what a gate works with.
//!
//! [`GateOptions`] holds what was written, each part optional. [`GateOptions::build`] makes
//! [`GateSettings`] of it, whose parts fit together by construction: defaults give way to what was
//! written, and two written parts that contradict each other are reported, all in one go.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::breaker::BreakerSettings;
use crate::duration;
use crate::limits::Limit;
use crate::rate::{AimdSettings, Strategy};
use crate::window::MAX_SLICES;

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

/// The settings of a gate, whole and without contradictions.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSettings {
    pub(crate) enabled: bool,
    pub(crate) strategy: Strategy,
    pub(crate) initial_rate: f64,
    pub(crate) min_rate: f64,
    pub(crate) max_rate: f64,
    pub(crate) limits: Box<[Limit]>,
    pub(crate) max_in_flight: u32,
    pub(crate) max_waiting: u32,
    pub(crate) max_wait: Duration,
    pub(crate) max_hold: Duration,
    pub(crate) breaker: BreakerSettings,
    pub(crate) idle_after: Duration,
    pub(crate) max_gates: u32,
    pub(crate) shards: u32,
    pub(crate) throttled_after: Duration,
    pub(crate) aimd: AimdSettings,
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The setting's name as written.
    pub setting: String,
    /// Its value as written.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is `{}`, expected {}",
            self.setting, self.value, self.expected
        )
    }
}

impl std::error::Error for SettingError {}

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
        self.assign(name, value).map_err(|expected| SettingError {
            setting: name.to_owned(),
            value: value.to_owned(),
            expected,
        })
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
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Fits everything together. Reports every contradiction between parts that were written.
    pub fn build(self) -> Result<GateSettings, Vec<SettingError>> {
        let strategy = self.strategy.unwrap_or_default();
        let defaults = Defaults::of(strategy);
        let mut problems = Vec::new();
        let (min_rate, initial_rate, max_rate) = self.rates(&defaults, &mut problems);
        let breaker = self.breaker(&defaults, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(GateSettings {
            enabled: self.enabled.unwrap_or(true),
            strategy,
            initial_rate,
            min_rate,
            max_rate,
            limits: self.limits.unwrap_or_default().into_boxed_slice(),
            max_in_flight: self.max_in_flight.unwrap_or(256),
            max_waiting: self.max_waiting.unwrap_or(10_000),
            max_wait: self.max_wait.unwrap_or(Duration::from_secs(30)),
            max_hold: self.max_hold.unwrap_or(Duration::from_secs(3600)),
            breaker,
            idle_after: self.idle_after.unwrap_or(Duration::from_secs(120)),
            max_gates: self.max_gates.unwrap_or(100_000),
            shards: self.shards.unwrap_or(64),
            throttled_after: self.throttled_after.unwrap_or(Duration::from_millis(100)),
            aimd: AimdSettings {
                burst: self.burst.unwrap_or(4.0),
                increase: self.increase.unwrap_or(0.25),
                decrease: self.decrease.unwrap_or(0.5),
                latency_target: self.latency_target.unwrap_or(Duration::from_secs(1)),
                latency_degrade_factor: self.latency_degrade_factor.unwrap_or(2.0),
                count_throttled: self.count_throttled.unwrap_or(true),
            },
        })
    }

    /// `min ≤ initial ≤ max`: a default moves out of the way of what was written.
    fn rates(&self, defaults: &Defaults, problems: &mut Vec<SettingError>) -> (f64, f64, f64) {
        let min = self.min_rate.unwrap_or_else(|| {
            let written = [self.initial_rate, self.max_rate];
            written
                .into_iter()
                .flatten()
                .fold(defaults.min_rate, f64::min)
        });
        let max = self.max_rate.unwrap_or_else(|| {
            let written = [self.initial_rate, self.min_rate];
            written
                .into_iter()
                .flatten()
                .fold(defaults.max_rate, f64::max)
        });
        if min > max {
            problems.push(contradiction("min_rate", min, "at most", "max_rate", max));
            return (min, min, max);
        }
        let initial = self
            .initial_rate
            .unwrap_or_else(|| defaults.initial_rate.clamp(min, max));
        if initial < min {
            problems.push(contradiction(
                "initial_rate",
                initial,
                "at least",
                "min_rate",
                min,
            ));
        }
        if initial > max {
            problems.push(contradiction(
                "initial_rate",
                initial,
                "at most",
                "max_rate",
                max,
            ));
        }
        (min, initial, max)
    }

    fn breaker(&self, defaults: &Defaults, problems: &mut Vec<SettingError>) -> BreakerSettings {
        let (open_first, open_for) = self.open_times(defaults, problems);
        let (window, window_slice) = self.windows(defaults, problems);
        BreakerSettings {
            error_rate_threshold: self
                .error_rate_threshold
                .unwrap_or(defaults.error_rate_threshold),
            min_samples: self.min_samples.unwrap_or(defaults.min_samples),
            consecutive_failures: self.consecutive_failures.unwrap_or(5),
            window,
            window_slice,
            open_first,
            open_for,
            half_open_probes: self.half_open_probes.unwrap_or(3),
        }
    }

    fn open_times(
        &self,
        defaults: &Defaults,
        problems: &mut Vec<SettingError>,
    ) -> (Duration, Duration) {
        let open_for = self.open_for.unwrap_or_else(|| {
            self.open_first
                .map_or(defaults.open_for, |first| first.max(defaults.open_for))
        });
        let open_first = self
            .open_first
            .unwrap_or_else(|| defaults.open_first.min(open_for));
        if open_first > open_for {
            let (first, last) = (duration::Exact(open_first), duration::Exact(open_for));
            problems.push(contradiction(
                "open_first",
                first,
                "at most",
                "open_for",
                last,
            ));
        }
        (open_first, open_for)
    }

    fn windows(
        &self,
        defaults: &Defaults,
        problems: &mut Vec<SettingError>,
    ) -> (Duration, Duration) {
        let slices = u32::try_from(MAX_SLICES).unwrap_or(u32::MAX);
        let window = self.window.unwrap_or_else(|| match self.window_slice {
            Some(slice) => defaults.window.clamp(slice, slice.saturating_mul(slices)),
            None => defaults.window,
        });
        // Rounded up, so that no more than `slices` ever fit.
        let finest = Duration::from_nanos(
            u64::try_from(window.as_nanos())
                .unwrap_or(u64::MAX)
                .div_ceil(MAX_SLICES),
        );
        let slice = self
            .window_slice
            .unwrap_or_else(|| defaults.window_slice.clamp(finest, window));
        if slice > window {
            let (slice, window) = (duration::Exact(slice), duration::Exact(window));
            problems.push(contradiction(
                "window_slice",
                slice,
                "at most",
                "window",
                window,
            ));
        } else if slice < finest {
            problems.push(SettingError {
                setting: "window_slice".to_owned(),
                value: duration::Exact(slice).to_string(),
                expected: format!(
                    "at least {}, a {MAX_SLICES}th of `window` ({})",
                    duration::Exact(finest),
                    duration::Exact(window)
                ),
            });
        }
        (window, slice)
    }
}

impl GateSettings {
    /// `false`: every ask is admitted and feedback ignored.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// How the rate moves.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Requests per second to begin with.
    pub fn initial_rate(&self) -> f64 {
        self.initial_rate
    }

    /// The bounds within which the rate moves.
    pub fn rate_bounds(&self) -> (f64, f64) {
        (self.min_rate, self.max_rate)
    }

    /// How long a caller may be kept waiting.
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// A gate nobody used for this long is forgotten.
    pub fn idle_after(&self) -> Duration {
        self.idle_after
    }

    /// How many gates there may be.
    pub fn max_gates(&self) -> usize {
        self.max_gates as usize
    }

    /// Parts of the registry that lock apart; a power of two.
    pub fn shards(&self) -> usize {
        self.shards as usize
    }

    /// A wait longer than this counts as throttled.
    pub fn throttled_after(&self) -> Duration {
        self.throttled_after
    }

    /// When the breaker opens and how it closes again.
    pub fn breaker(&self) -> &BreakerSettings {
        &self.breaker
    }
}

impl Default for GateSettings {
    fn default() -> Self {
        GateOptions::default()
            .build()
            .expect("the defaults fit together")
    }
}

/// What differs between strategies.
struct Defaults {
    initial_rate: f64,
    min_rate: f64,
    max_rate: f64,
    error_rate_threshold: f64,
    min_samples: u32,
    window: Duration,
    window_slice: Duration,
    open_first: Duration,
    open_for: Duration,
}

impl Defaults {
    fn of(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Adaptive | Strategy::Fixed => Self {
                initial_rate: 2.0,
                min_rate: 0.1,
                max_rate: 10_000.0,
                error_rate_threshold: 0.5,
                min_samples: 20,
                window: Duration::from_secs(10),
                window_slice: Duration::from_secs(1),
                open_first: Duration::from_secs(1),
                open_for: Duration::from_secs(4),
            },
            Strategy::Aimd => Self {
                initial_rate: 2.0,
                min_rate: 0.25,
                max_rate: 8.0,
                error_rate_threshold: 0.4,
                min_samples: 10,
                window: Duration::from_secs(30),
                window_slice: Duration::from_secs(2),
                open_first: Duration::from_secs(15),
                open_for: Duration::from_secs(15),
            },
        }
    }
}

fn contradiction(
    setting: &str,
    value: impl fmt::Display,
    relation: &str,
    other: &str,
    bound: impl fmt::Display,
) -> SettingError {
    SettingError {
        setting: setting.to_owned(),
        value: value.to_string(),
        expected: format!("{relation} `{other}` ({bound})"),
    }
}

fn switch(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "`true` or `false`".to_owned())
}

fn number(value: &str, above: f64, most: f64, expected: &str) -> Result<f64, String> {
    let number = value.replace('_', "").parse::<f64>();
    number
        .ok()
        .filter(|n| *n > above && *n <= most)
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

fn whole<T: FromStr + PartialOrd + fmt::Display>(
    value: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    let parsed = value.replace('_', "").parse::<T>().ok();
    parsed
        .filter(|number| *number >= least && *number <= most)
        .ok_or_else(|| format!("a whole number from {least} to {most}"))
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

fn positive(value: &str) -> Result<Duration, String> {
    match duration::parse(value)? {
        Duration::ZERO => Err("a duration above zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Several limits, separated by commas; the brackets and quotes of a list are allowed.
fn limits(value: &str) -> Result<Vec<Limit>, String> {
    /// Each costs up to a kilobyte a gate; nobody publishes more than four.
    const MOST: usize = 8;
    let inner = value.trim_start_matches('[').trim_end_matches(']');
    let parts = inner
        .split(',')
        .map(|part| part.trim().trim_matches('"'))
        .filter(|part| !part.is_empty());
    let limits = parts
        .map(str::parse)
        .collect::<Result<Vec<Limit>, String>>()?;
    if limits.len() > MOST {
        return Err(format!("at most {MOST} limits"));
    }
    Ok(limits)
}

fn unknown(name: &str) -> String {
    match suggestion(name, &GateOptions::NAMES) {
        Some(close) => format!("a known setting; did you mean `{close}`?"),
        None => format!("a known setting: {}", GateOptions::NAMES.join(", ")),
    }
}

/// The name closest to `wrong`, if one is close enough to be meant.
pub fn suggestion<'a>(wrong: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &str| edits(wrong, name);
    let closest = names.iter().copied().min_by_key(|name| distance(name))?;
    // A third of the letters wrong is a slip; more is another word.
    (distance(closest) <= closest.len().div_ceil(3)).then_some(closest)
}

/// How many letters have to be added, removed or replaced to turn `a` into `b`. Only the first 64
/// of each are looked at: no setting is longer, and the work stays bounded.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(settings: &[(&str, &str)]) -> GateOptions {
        let mut options = GateOptions::default();
        for (name, value) in settings {
            options.set(name, value).unwrap();
        }
        options
    }

    fn build(settings: &[(&str, &str)]) -> GateSettings {
        options(settings).build().unwrap()
    }

    fn problems(settings: &[(&str, &str)]) -> Vec<String> {
        let problems = options(settings).build().unwrap_err();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_of_adaptive() {
        let settings = GateSettings::default();
        assert_eq!(settings.strategy(), Strategy::Adaptive);
        assert_eq!(
            (settings.initial_rate(), settings.rate_bounds()),
            (2.0, (0.1, 10_000.0))
        );
        assert_eq!(
            (settings.max_in_flight, settings.max_waiting),
            (256, 10_000)
        );
        assert_eq!(settings.max_wait(), Duration::from_secs(30));
        assert_eq!(settings.max_hold, Duration::from_secs(3600));
        assert_eq!(settings.idle_after(), Duration::from_secs(120));
        assert_eq!((settings.max_gates(), settings.shards()), (100_000, 64));
        assert_eq!(settings.throttled_after(), Duration::from_millis(100));
        assert!(settings.enabled() && settings.limits.is_empty());
        let breaker = settings.breaker();
        assert_eq!(
            (breaker.error_rate_threshold, breaker.min_samples),
            (0.5, 20)
        );
        assert_eq!(
            (breaker.consecutive_failures, breaker.half_open_probes),
            (5, 3)
        );
        assert_eq!((breaker.window, breaker.window_slice), (secs(10), secs(1)));
        assert_eq!((breaker.open_first, breaker.open_for), (secs(1), secs(4)));
    }

    #[test]
    fn defaults_of_aimd() {
        let settings = build(&[("strategy", "aimd")]);
        assert_eq!(
            (settings.initial_rate(), settings.rate_bounds()),
            (2.0, (0.25, 8.0))
        );
        let aimd = settings.aimd;
        assert_eq!((aimd.burst, aimd.increase, aimd.decrease), (4.0, 0.25, 0.5));
        assert_eq!(
            (aimd.latency_target, aimd.latency_degrade_factor),
            (secs(1), 2.0)
        );
        assert!(aimd.count_throttled);
        let breaker = settings.breaker();
        assert_eq!(
            (breaker.error_rate_threshold, breaker.min_samples),
            (0.4, 10)
        );
        assert_eq!((breaker.window, breaker.window_slice), (secs(30), secs(2)));
        assert_eq!((breaker.open_first, breaker.open_for), (secs(15), secs(15)));
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

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
    fn a_default_gives_way_to_what_was_written() {
        let rates = |settings: &[(&str, &str)]| {
            let settings = build(settings);
            (settings.min_rate, settings.initial_rate, settings.max_rate)
        };
        assert_eq!(rates(&[("max_rate", "1")]), (0.1, 1.0, 1.0));
        assert_eq!(rates(&[("max_rate", "0.05")]), (0.05, 0.05, 0.05));
        assert_eq!(rates(&[("min_rate", "5")]), (5.0, 5.0, 10_000.0));
        assert_eq!(
            rates(&[("initial_rate", "20000")]),
            (0.1, 20_000.0, 20_000.0)
        );
        assert_eq!(
            rates(&[("strategy", "aimd"), ("min_rate", "50")]),
            (50.0, 50.0, 50.0)
        );

        let open = |settings: &[(&str, &str)]| {
            let breaker = *build(settings).breaker();
            (breaker.open_first, breaker.open_for)
        };
        assert_eq!(
            open(&[("open_for", "500ms")]),
            (Duration::from_millis(500), Duration::from_millis(500))
        );
        assert_eq!(open(&[("open_first", "9s")]), (secs(9), secs(9)));
        assert_eq!(open(&[("open_for", "60s")]), (secs(1), secs(60)));

        let window = |settings: &[(&str, &str)]| {
            let breaker = *build(settings).breaker();
            (breaker.window, breaker.window_slice)
        };
        assert_eq!(window(&[("window", "60s")]), (secs(60), secs(4)));
        assert_eq!(
            window(&[("window", "500ms")]),
            (Duration::from_millis(500), Duration::from_millis(500))
        );
        assert_eq!(window(&[("window_slice", "20s")]), (secs(20), secs(20)));
        assert_eq!(
            window(&[("window_slice", "100ms")]),
            (Duration::from_millis(1500), Duration::from_millis(100))
        );
    }

    #[test]
    fn two_written_parts_that_contradict_are_all_reported() {
        let found = problems(&[
            ("min_rate", "5"),
            ("max_rate", "1"),
            ("open_first", "9s"),
            ("open_for", "1s"),
            ("window", "1m"),
            ("window_slice", "1s"),
        ]);
        assert_eq!(
            found,
            [
                "`min_rate` is `5`, expected at most `max_rate` (1)",
                "`open_first` is `9s`, expected at most `open_for` (1s)",
                "`window_slice` is `1s`, expected at least 4s, a 15th of `window` (1m)",
            ]
        );
        let found = problems(&[
            ("initial_rate", "9"),
            ("max_rate", "8"),
            ("window_slice", "2s"),
            ("window", "1s"),
        ]);
        assert_eq!(
            found,
            [
                "`initial_rate` is `9`, expected at most `max_rate` (8)",
                "`window_slice` is `2s`, expected at most `window` (1s)",
            ]
        );
        let found = problems(&[("initial_rate", "1"), ("min_rate", "2")]);
        assert_eq!(
            found,
            ["`initial_rate` is `1`, expected at least `min_rate` (2)"]
        );
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
