//! The settings of a gate, consistent by construction.
//!
//! Defaults adapt to the options, and all contradictions between two options are reported together.

use std::time::Duration;

use super::options::{GateOptions, GateValues, RATE_BOUNDS};
use crate::breaker::{BreakerSettings, MIN_PROBE_LOST_AFTER};
use crate::duration::Seconds;
use crate::limits::Limit;
use crate::rate::{AimdSettings, Strategy};
use crate::setting::{Options, SettingError, SettingErrors, Values, fit};
use crate::window::MAX_SLICES;

/// The settings of a gate, complete and without contradictions.
///
/// ```
/// use std::time::Duration;
/// # use tidegate_policy::gate as tidegate;
/// use tidegate::GateSettings;
///
/// // Nothing is known: learn it.
/// let learned = GateSettings::default();
/// // Ten per second, whatever the server says.
/// let fixed = GateSettings::fixed(10.0);
/// // The published limits; below them the rate is learned.
/// let published = GateSettings::limits("10/1s, 5000/1d")?;
/// let own = GateSettings::builder()
///     .max_rate(50.0)
///     .max_in_flight(8)
///     .max_wait(Duration::from_secs(5))
///     .build()?;
/// # Ok::<(), tidegate_policy::setting::SettingErrors>(())
/// ```
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

impl GateOptions {
    /// Combines the options with the defaults.
    ///
    /// # Errors
    ///
    /// All values out of bounds, and all contradictions between options.
    pub fn build(self) -> Result<GateSettings, SettingErrors> {
        let mut problems = self.out_of_bounds();
        let is_aimd = self.strategy == Some(Strategy::Aimd);
        let mut values = self.clone().over(GateValues::defaults_of(is_aimd));
        self.fit_rates(&mut values, &mut problems);
        fit(
            ("open_first", self.open_first, &mut values.open_first),
            ("open_for", self.open_for, &mut values.open_for),
            &mut problems,
        );
        self.fit_window(&mut values, &mut problems);
        SettingErrors::none_of(problems, GateSettings::new(values))
    }

    /// `min ≤ initial ≤ max`.
    fn fit_rates(&self, values: &mut GateValues, problems: &mut Vec<SettingError>) {
        let (min, initial, max) = (self.min_rate, self.initial_rate, self.max_rate);
        let GateValues {
            min_rate,
            initial_rate,
            max_rate,
            ..
        } = values;
        fit(
            ("min_rate", min, min_rate),
            ("max_rate", max, max_rate),
            problems,
        );
        fit(
            ("min_rate", min, min_rate),
            ("initial_rate", initial, initial_rate),
            problems,
        );
        fit(
            ("initial_rate", initial, initial_rate),
            ("max_rate", max, max_rate),
            problems,
        );
    }

    /// `slice ≤ window`, and no more than [`MAX_SLICES`] slices in a window.
    fn fit_window(&self, values: &mut GateValues, problems: &mut Vec<SettingError>) {
        let slices = u32::try_from(MAX_SLICES).unwrap_or(u32::MAX);
        if let (None, Some(slice)) = (self.window, self.window_slice) {
            values.window = values.window.clamp(slice, slice.saturating_mul(slices));
        }
        fit(
            ("window_slice", self.window_slice, &mut values.window_slice),
            ("window", self.window, &mut values.window),
            problems,
        );
        let (slice, window) = (values.window_slice, values.window);
        // Rounded up, so that at most `slices` fit.
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let finest = Duration::from_nanos(nanos.div_ceil(MAX_SLICES));
        if slice >= finest {
            return;
        }
        if self.window_slice.is_none() {
            values.window_slice = finest;
            return;
        }
        let expected = format!(
            "at least {}, a {MAX_SLICES}th of `window` ({})",
            Seconds(finest),
            Seconds(window)
        );
        problems.push(SettingError::new("window_slice", Seconds(slice), expected));
    }
}

/// Defines a method for each option, which sets it.
macro_rules! setters {
    ($($(#[$doc:meta])+ $option:ident: $type:ty;)+) => {$(
        $(#[$doc])+
        #[must_use = "the options are returned with the change"]
        pub fn $option(mut self, $option: $type) -> Self {
            self.$option = Some($option);
            self
        }
    )+};
}

/// The typed way to set options; all are in `docs/reference/settings.md`. Values are checked by
/// [`build`](Self::build).
impl GateOptions {
    setters! {
        /// How the rate moves.
        strategy: Strategy;
        /// Requests per second to begin with.
        initial_rate: f64;
        /// The rate never falls below this.
        min_rate: f64;
        /// The rate never rises above this.
        max_rate: f64;
        /// Known limits, which apply besides the rate.
        limits: Vec<Limit>;
        /// Attempts in flight at once; more wait.
        max_in_flight: u32;
        /// Asks that may wait; the next one is refused.
        max_waiting: u32;
        /// How long an ask may wait.
        max_wait: Duration;
        /// During a longer hold asks are refused at once.
        max_hold: Duration;
        /// The share of failures in the window that opens the breaker.
        error_rate_threshold: f64;
        /// With fewer outcomes in the window the share does not open the breaker.
        min_samples: u32;
        /// This many failures in a row open the breaker.
        consecutive_failures: u16;
        /// The time span that the breaker looks at.
        window: Duration;
        /// The window moves in steps of this.
        window_slice: Duration;
        /// How long the breaker stays open before the first probe.
        open_first: Duration;
        /// Later open times grow up to this.
        open_for: Duration;
        /// Probes at once while half-open, and successes needed to close again.
        half_open_probes: u8;
        /// A gate that was not used for this long is removed.
        idle_after: Duration;
        /// How many gates there may be.
        max_gates: u32;
        /// Parts of the registry that lock separately; a power of two.
        shards: u32;
    }
}

impl GateSettings {
    /// Options that are set one by one, each with its type.
    pub fn builder() -> GateOptions {
        GateOptions::default()
    }

    /// A constant rate per second, with holds and breaker as usual. A rate outside of 0.000001 to
    /// 1000000000 is brought into these bounds, and NaN is the lowest.
    pub fn fixed(rate: f64) -> Self {
        let rate = if rate.is_nan() { 0.0 } else { rate };
        let options = Self::builder().strategy(Strategy::Fixed);
        let options = options.initial_rate(rate.clamp(RATE_BOUNDS.0, RATE_BOUNDS.1));
        options
            .build()
            .expect("a rate within its bounds fits the defaults")
    }

    /// Known limits, such as `100/1m` or `10/1s, 5000/1d`: never more in any interval of that length.
    /// Below them the rate is learned as usual.
    ///
    /// # Errors
    ///
    /// If the text has another form, or there are more than eight.
    pub fn limits(limits: &str) -> Result<Self, SettingErrors> {
        let mut options = Self::builder();
        options.set("limits", limits)?;
        options.build()
    }

    fn new(values: GateValues) -> Self {
        Self {
            enabled: values.enabled,
            strategy: values.strategy,
            initial_rate: values.initial_rate,
            min_rate: values.min_rate,
            max_rate: values.max_rate,
            limits: values.limits.into_boxed_slice(),
            max_in_flight: values.max_in_flight,
            max_waiting: values.max_waiting,
            max_wait: values.max_wait,
            max_hold: values.max_hold,
            breaker: BreakerSettings {
                error_rate_threshold: values.error_rate_threshold,
                min_samples: values.min_samples,
                consecutive_failures: values.consecutive_failures,
                window: values.window,
                window_slice: values.window_slice,
                open_first: values.open_first,
                open_for: values.open_for,
                half_open_probes: values.half_open_probes,
                one_probe_first: values.strategy == Strategy::Adaptive,
                probe_lost_after: MIN_PROBE_LOST_AFTER,
            },
            idle_after: values.idle_after,
            max_gates: values.max_gates,
            shards: values.shards,
            throttled_after: values.throttled_after,
            aimd: AimdSettings {
                burst: values.burst,
                increase: values.increase,
                decrease: values.decrease,
                latency_target: values.latency_target,
                latency_degrade_factor: values.latency_degrade_factor,
                count_throttled: values.count_throttled,
            },
        }
    }

    /// `false`: every ask is admitted and feedback is ignored.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// The rate strategy.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The initial rate per second.
    pub fn initial_rate(&self) -> f64 {
        self.initial_rate
    }

    /// The bounds of the rate.
    pub fn rate_bounds(&self) -> (f64, f64) {
        (self.min_rate, self.max_rate)
    }

    /// How long a caller may wait.
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// During a longer hold, asks are refused at once.
    pub fn max_hold(&self) -> Duration {
        self.max_hold
    }

    /// Known limits, which apply in addition to the rate.
    pub fn known_limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The maximum number of attempts in flight.
    pub fn max_in_flight(&self) -> u32 {
        self.max_in_flight
    }

    /// The maximum number of waiting asks.
    pub fn max_waiting(&self) -> u32 {
        self.max_waiting
    }

    /// Settings of the strategy `aimd`.
    pub fn aimd(&self) -> &AimdSettings {
        &self.aimd
    }

    /// A gate that was not used for this long is removed.
    pub fn idle_after(&self) -> Duration {
        self.idle_after
    }

    /// The maximum number of gates.
    pub fn max_gates(&self) -> usize {
        self.max_gates as usize
    }

    /// The number of shards of the registry; a power of two.
    pub fn shards(&self) -> usize {
        self.shards as usize
    }

    /// A wait longer than this counts as throttled.
    pub fn throttled_after(&self) -> Duration {
        self.throttled_after
    }

    /// Sets how long the sender waits for the head of a response, including connecting.
    ///
    /// An attempt without a response counts as lost only after that time, and never before
    /// [`MIN_PROBE_LOST_AFTER`](crate::breaker::MIN_PROBE_LOST_AFTER). Without this, a breaker
    /// could not close on an upstream that responds more slowly.
    pub fn set_response_timeout(&mut self, timeout: Duration) {
        self.breaker.probe_lost_after = timeout.max(MIN_PROBE_LOST_AFTER);
    }

    /// How long an attempt may go without a response before it counts as lost.
    #[inline]
    pub(crate) fn lost_after(&self) -> Duration {
        self.breaker.probe_lost_after
    }

    /// When the breaker opens and how it closes.
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
    fn fixed_has_a_constant_rate_within_bounds() {
        let rate = |rate| {
            let settings = GateSettings::fixed(rate);
            assert_eq!(settings.strategy(), Strategy::Fixed);
            settings.initial_rate()
        };
        assert_eq!((rate(10.0), rate(20_000.0)), (10.0, 20_000.0));
        assert_eq!((rate(0.0), rate(f64::NAN)), (1e-6, 1e-6));
        assert_eq!((rate(-1.0), rate(f64::INFINITY)), (1e-6, 1e9));
    }

    #[test]
    fn limits_are_read_from_text() {
        let settings = GateSettings::limits("10/1s, 5000/1d").unwrap();
        let limits: Vec<String> = settings
            .known_limits()
            .iter()
            .map(Limit::to_string)
            .collect();
        assert_eq!(limits, ["10/1s", "5000/1d"]);
        assert_eq!(settings.strategy(), Strategy::Adaptive);
        let error = GateSettings::limits("often").unwrap_err();
        let expected =
            "`limits` is `often`, expected a count and a period such as `10/1s` or `5000/1d`";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn builder_sets_the_same_as_text_and_checks_values() {
        let typed = GateSettings::builder()
            .strategy(Strategy::Aimd)
            .max_rate(50.0)
            .limits(vec![Limit::new(10, secs(1)).unwrap()])
            .max_in_flight(8)
            .max_wait(secs(5));
        let written = options(&[
            ("strategy", "aimd"),
            ("max_rate", "50"),
            ("limits", "10/1s"),
            ("max_in_flight", "8"),
            ("max_wait", "5s"),
        ]);
        assert_eq!(typed, written);
        let error = typed.max_rate(0.0).max_in_flight(0).build().unwrap_err();
        assert_eq!(error.len(), 2, "{error}");
    }

    #[test]
    fn defaults_adapt_to_options() {
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
    fn reports_every_contradiction() {
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
                "`window_slice` is `1s`, expected at least 4s, a 15th of `window` (60s)",
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
            ["`min_rate` is `2`, expected at most `initial_rate` (1)"]
        );
    }
}
