//! What a gate works with: settings whose parts fit together by construction.
//!
//! Defaults give way to what was written, and two written parts that contradict each other are
//! reported, all in one go.

use std::time::Duration;

use super::options::GateOptions;
use crate::breaker::{BreakerSettings, MIN_PROBE_LOST_AFTER};
use crate::duration;
use crate::limits::Limit;
use crate::rate::{AimdSettings, Strategy};
use crate::setting::{SettingError, SettingErrors};
use crate::window::MAX_SLICES;

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
    pub(crate) response_timeout: Duration,
    pub(crate) aimd: AimdSettings,
}

impl GateOptions {
    /// Fits everything together. Reports every contradiction between parts that were written.
    pub fn build(self) -> Result<GateSettings, SettingErrors> {
        let strategy = self.strategy.unwrap_or_default();
        let defaults = Defaults::of(strategy);
        let mut problems = Vec::new();
        let (min_rate, initial_rate, max_rate) = self.rates(&defaults, &mut problems);
        let breaker = self.breaker(&defaults, &mut problems);
        if let Some(problems) = SettingErrors::of(problems) {
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
            response_timeout: Duration::ZERO,
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
            problems.push(SettingError::contradiction(
                "min_rate", min, "at most", "max_rate", max,
            ));
            return (min, min, max);
        }
        let initial = self
            .initial_rate
            .unwrap_or_else(|| defaults.initial_rate.clamp(min, max));
        if initial < min {
            problems.push(SettingError::contradiction(
                "initial_rate",
                initial,
                "at least",
                "min_rate",
                min,
            ));
        }
        if initial > max {
            problems.push(SettingError::contradiction(
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
            problems.push(SettingError::contradiction(
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
            problems.push(SettingError::contradiction(
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

    /// Past this a hold is still kept, but callers are told at once.
    pub fn max_hold(&self) -> Duration {
        self.max_hold
    }

    /// Limits that are known, kept as well.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Attempts under way at once.
    pub fn max_in_flight(&self) -> u32 {
        self.max_in_flight
    }

    /// How many may wait; the next is refused.
    pub fn max_waiting(&self) -> u32 {
        self.max_waiting
    }

    /// What only the strategy `aimd` works with.
    pub fn aimd(&self) -> &AimdSettings {
        &self.aimd
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

    /// The sender waits up to `timeout` for the head of a response, connecting included.
    ///
    /// An attempt without a response counts as lost only after that time, and never sooner than
    /// after [`MIN_PROBE_LOST_AFTER`](crate::breaker::MIN_PROBE_LOST_AFTER). Without this, a breaker
    /// could not close on an upstream that takes longer to respond.
    pub fn set_response_timeout(&mut self, timeout: Duration) {
        self.response_timeout = timeout;
    }

    /// After how long without a response an attempt counts as lost.
    #[inline]
    pub(crate) fn lost_after(&self) -> Duration {
        self.response_timeout.max(MIN_PROBE_LOST_AFTER)
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
}
