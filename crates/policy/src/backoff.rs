//! How long an item waits before it is resent.
//!
//! The wait after the n-th failed send is `min(max, base · 2^(n-1) · u)` with `u` from the
//! [jitter](Jitter). The maximum applies **after** the jitter; otherwise a delay could exceed it by
//! half. The price is that late delays cluster at the maximum. `full` is the exception: it is drawn
//! below the smaller of delay and maximum, which is its usual definition, and does not cluster.
//!
//! A wait that the server names replaces all of this, whether shorter or longer: the server knows,
//! we guess. Jitter is then only added (up to `retry_after_jitter`), so that callers refused
//! together do not return together. Nothing shortens such a wait, and `max` does not apply.
//!
//! `max_attempts` counts sends, including the first: five sends have four waits. Doubling is the
//! default because the length of an outage is unknown, and doubling is always within a factor of
//! two of the right wait. `linear` and explicit steps are for upstreams whose behaviour is known.

mod options;

use std::fmt;
use std::time::Duration;

pub use self::options::{BackoffOptions, BackoffSettings};
use crate::duration;
use crate::jitter::{Jitter, RetryAfterJitter};
use crate::random::Random;

impl BackoffSettings {
    /// How delays grow.
    pub fn growth(&self) -> &Growth {
        &self.growth
    }

    /// Whether an item may be resent after `attempts` counted sends.
    ///
    /// ```
    /// # use tidegate_policy::backoff as tidegate;
    /// let standard = tidegate::BackoffSettings::default();
    /// assert!(standard.may_retry(4) && !standard.may_retry(5));
    /// ```
    pub fn may_retry(&self, attempts: u32) -> bool {
        attempts < self.max_attempts
    }

    /// The wait after the `n`-th failed send, counted from 1; 0 counts as 1. Defined for every `n`,
    /// including past `max_attempts`.
    pub fn delay(&self, n: u32, random: &mut Random) -> Duration {
        self.delay_at(n, random.unit())
    }

    /// [`Self::delay`] for a number in [0, 1) that was already drawn.
    pub fn delay_at(&self, n: u32, unit: f64) -> Duration {
        let delay = self.unjittered(n);
        match self.jitter {
            Jitter::Full => Jitter::Full.at(delay.min(self.max), unit),
            Jitter::None | Jitter::Range(_) => self.jitter.at(delay, unit).min(self.max),
        }
    }

    /// The wait after the `n`-th failed send without jitter.
    pub fn nominal(&self, n: u32) -> Duration {
        self.unjittered(n).min(self.max)
    }

    /// The shortest and longest possible [`Self::delay`] for `n`.
    pub fn bounds(&self, n: u32) -> (Duration, Duration) {
        let (least, most) = self.jitter.bounds(self.unjittered(n));
        (least.min(self.max), most.min(self.max))
    }

    /// Replaces [`Self::retry_after_jitter`].
    #[must_use]
    pub fn with_retry_after_jitter(self, retry_after_jitter: RetryAfterJitter) -> Self {
        Self {
            retry_after_jitter,
            ..self
        }
    }

    /// The wait when the server named `wait`: `wait` plus up to [`Self::retry_after_jitter`].
    pub fn directed(&self, wait: Duration, random: &mut Random) -> Duration {
        self.directed_at(wait, random.unit())
    }

    /// [`Self::directed`] for a number in [0, 1) that was already drawn.
    pub fn directed_at(&self, wait: Duration, unit: f64) -> Duration {
        let most = self.retry_after_jitter.max_for(wait);
        wait.saturating_add(Jitter::Full.at(most, unit))
    }

    /// The shortest and longest possible [`Self::directed`] for `wait`.
    pub fn directed_bounds(&self, wait: Duration) -> (Duration, Duration) {
        (
            wait,
            wait.saturating_add(self.retry_after_jitter.max_for(wait)),
        )
    }

    /// An estimate of the time until an item is given up: the delays of all sends before jitter and
    /// maximum, `base · (2^max_attempts − 1)` when doubling. It includes the delay after the last
    /// send, which is never waited; [`Self::total_bounds`] gives the actual bounds.
    ///
    /// ```
    /// # use tidegate_policy::backoff as tidegate;
    /// let standard = tidegate::BackoffSettings::default();
    /// assert_eq!(standard.estimate_total().as_secs(), 31);
    /// ```
    pub fn estimate_total(&self) -> Duration {
        (1..=self.max_attempts)
            .map(|n| self.unjittered(n))
            .fold(Duration::ZERO, Duration::saturating_add)
    }

    /// The shortest and longest total of all waits of an item if the server names none. There is
    /// one wait less than there are sends.
    pub fn total_bounds(&self) -> (Duration, Duration) {
        (1..self.max_attempts)
            .map(|n| self.bounds(n))
            .fold((Duration::ZERO, Duration::ZERO), |sum, wait| {
                (sum.0.saturating_add(wait.0), sum.1.saturating_add(wait.1))
            })
    }

    fn unjittered(&self, n: u32) -> Duration {
        self.growth.step(self.base, n.max(1))
    }
}

/// How delays grow from one failed send to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// Doubles each time: base, 2·base, 4·base …
    #[default]
    Exponential,
    /// Adds the base each time: base, 2·base, 3·base …
    Linear,
    /// Explicit steps; the last one repeats, and the base is ignored.
    Ladder(Steps),
}

impl Growth {
    /// The `n`-th step, counted from 1; saturates.
    fn step(&self, base: Duration, n: u32) -> Duration {
        let base = u64::try_from(base.as_nanos()).unwrap_or(u64::MAX);
        let nanos = match self {
            Self::Exponential => base.saturating_mul(power_of_two(n - 1)),
            Self::Linear => base.saturating_mul(u64::from(n)),
            Self::Ladder(steps) => return steps.at(n),
        };
        Duration::from_nanos(nanos)
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exponential => f.write_str("exponential"),
            Self::Linear => f.write_str("linear"),
            Self::Ladder(steps) => {
                for (i, step) in steps.0.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{}", duration::Exact(*step))?;
                }
                Ok(())
            }
        }
    }
}

/// The steps of a ladder, 1 to 32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps(Box<[Duration]>);

impl Steps {
    /// More than anyone writes by hand.
    pub const MAX: usize = 32;

    /// `None` if there are no steps or too many.
    pub fn new(steps: &[Duration]) -> Option<Self> {
        (1..=Self::MAX)
            .contains(&steps.len())
            .then(|| Self(steps.into()))
    }

    /// The longest step.
    pub fn longest(&self) -> Duration {
        self.0.iter().copied().max().unwrap_or_default()
    }

    fn at(&self, n: u32) -> Duration {
        let index = usize::try_from(n - 1).unwrap_or(usize::MAX);
        let step = self.0.get(index).or_else(|| self.0.last());
        step.copied().unwrap_or_default()
    }
}

fn power_of_two(exponent: u32) -> u64 {
    1_u64.checked_shl(exponent).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::preset::Preset;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn settings(settings: &[(&str, &str)]) -> BackoffSettings {
        let mut options = BackoffOptions::default();
        for (name, value) in settings {
            options.set(name, value).unwrap();
        }
        options.build().unwrap()
    }

    #[track_caller]
    fn check_table(backoff: &BackoffSettings, rows: &[(u64, u64)]) {
        for (n, (least, most)) in (1..).zip(rows) {
            assert_eq!(backoff.bounds(n), (millis(*least), millis(*most)), "{n}");
        }
    }

    #[test]
    fn standard_preset_matches_its_table() {
        let rows = [
            (500, 1500),
            (1000, 3000),
            (2000, 6000),
            (4000, 12_000),
            (8000, 24_000),
        ];
        check_table(&BackoffSettings::default(), &rows);
    }

    #[test]
    fn aggressive_preset_matches_its_table_except_last_lower_bound() {
        // The maximum applies after the jitter, so the fifth lower bound is 4 s, not 5 s.
        let rows = [
            (250, 750),
            (500, 1500),
            (1000, 3000),
            (2000, 6000),
            (4000, 10_000),
        ];
        check_table(&Preset::Aggressive.settings(), &rows);
    }

    #[test]
    fn conservative_preset_matches_its_table() {
        let rows = [
            (1000, 3000),
            (2000, 6000),
            (4000, 12_000),
            (8000, 24_000),
            (16_000, 30_000),
        ];
        check_table(&Preset::Conservative.settings(), &rows);
    }

    #[test]
    fn calculates_exponential_backoff_correctly() {
        let backoff = settings(&[("base", "1000ms"), ("max", "30000ms")]);
        let mut random = Random::from_seed(1);
        for _ in 0..1000 {
            let (first, third) = (backoff.delay(1, &mut random), backoff.delay(3, &mut random));
            assert!((millis(500)..millis(1500)).contains(&first), "{first:?}");
            assert!((millis(2000)..millis(6000)).contains(&third), "{third:?}");
        }
    }

    #[test]
    fn respects_maximum_backoff() {
        let backoff = settings(&[("base", "1000ms"), ("max", "10000ms")]);
        let mut random = Random::from_seed(1);
        for _ in 0..1000 {
            assert!(backoff.delay(5, &mut random) <= millis(10_000));
        }
    }

    #[test]
    fn honors_a_retry_after() {
        let backoff = BackoffSettings::default();
        let mut random = Random::from_seed(1);
        for _ in 0..1000 {
            let delay = backoff.directed(Duration::from_secs(120), &mut random);
            assert!(
                (millis(120_000)..millis(125_000)).contains(&delay),
                "{delay:?}"
            );
        }
        assert_eq!(
            backoff.directed_at(millis(120_000), 0.5),
            millis(122_500),
            "the jitter is added, not multiplied"
        );
    }

    #[test]
    fn stops_after_max_attempts() {
        let backoff = settings(&[("max_attempts", "3")]);
        assert_eq!(
            [1, 2, 3, 4].map(|attempts| backoff.may_retry(attempts)),
            [true, true, false, false]
        );
    }

    #[test]
    fn estimate_exceeds_actual_total_bounds() {
        let check = |preset: Preset, estimate: u64, least: u64, most: u64| {
            let backoff = preset.settings();
            assert_eq!(backoff.estimate_total(), millis(estimate));
            assert_eq!(backoff.total_bounds(), (millis(least), millis(most)));
        };
        check(Preset::Standard, 31_000, 7500, 22_500);
        check(Preset::Aggressive, 15_500, 3750, 11_250);
        check(Preset::Conservative, 62_000, 15_000, 45_000);
        check(Preset::Background, 254_000, 63_000, 153_000);
        check(Preset::Crawl, 1400, 0, 600);
    }

    #[test]
    fn one_attempt_has_no_wait() {
        let backoff = settings(&[("max_attempts", "1")]);
        assert_eq!(backoff.total_bounds(), (Duration::ZERO, Duration::ZERO));
        assert!(!backoff.may_retry(1));
    }

    #[test]
    fn maximum_applies_after_jitter() {
        let backoff = Preset::Conservative.settings();
        assert_eq!(backoff.delay_at(5, 0.0), millis(16_000));
        assert_eq!(backoff.delay_at(5, 0.9), millis(30_000));
    }

    #[test]
    fn full_jitter_does_not_cluster_at_the_maximum() {
        let backoff = Preset::Crawl.settings();
        assert_eq!(backoff.bounds(9), (Duration::ZERO, millis(5000)));
        assert_eq!(backoff.delay_at(9, 0.5), millis(2500));
        assert_eq!(backoff.delay_at(1, 0.5), millis(100));
    }

    #[test]
    fn linear_and_ladder_growth() {
        let linear = settings(&[("growth", "linear"), ("jitter", "none")]);
        assert_eq!(
            [1, 2, 3, 99].map(|n| linear.nominal(n)),
            [1000, 2000, 3000, 30_000].map(millis)
        );
        assert_eq!(linear.estimate_total(), millis(15_000));
        let ladder = settings(&[("growth", "30s, 60s, 120s"), ("jitter", "none")]);
        assert_eq!(
            [1, 2, 3, 4, 99].map(|n| ladder.nominal(n)),
            [30_000, 60_000, 120_000, 120_000, 120_000].map(millis)
        );
        assert_eq!(ladder.growth().to_string(), "30s,1m,2m");
    }

    #[test]
    fn delay_of_zeroth_send_is_that_of_the_first() {
        let backoff = BackoffSettings::default();
        assert_eq!(backoff.bounds(0), backoff.bounds(1));
    }

    fn any_settings() -> impl Strategy<Value = BackoffSettings> {
        let jitter = prop_oneof![
            Just("none".to_owned()),
            Just("full".to_owned()),
            (0.0..1.0, 1.0..10.0).prop_map(|(low, high)| format!("{low}..{high}")),
        ];
        let growth = prop_oneof![Just("exponential"), Just("linear"), Just("1s,5s,2s")];
        (1_u64.., 1_u64.., jitter, 0_u64.., growth).prop_map(
            |(base, max, jitter, retry_after_jitter, growth)| {
                let (base, max) = (base.min(max), base.max(max).max(5_000_000_000));
                settings(&[
                    ("base", &format!("{base}ns")),
                    ("max", &format!("{max}ns")),
                    ("jitter", &jitter),
                    ("retry_after_jitter", &format!("{retry_after_jitter}ns")),
                    ("growth", growth),
                ])
            },
        )
    }

    proptest! {
        #[test]
        fn delays_stay_within_bounds_and_maximum(
            backoff in any_settings(),
            n: u32,
            seed: u64,
        ) {
            let mut random = Random::from_seed(seed);
            for n in [n, n % 70, 1, u32::MAX] {
                let (least, most) = backoff.bounds(n);
                let delay = backoff.delay(n, &mut random);
                prop_assert!(least <= delay && delay <= most, "{n}: {delay:?}");
                prop_assert!(delay <= backoff.max());
                prop_assert!(backoff.nominal(n) <= backoff.max());
            }
        }

        #[test]
        fn directed_wait_is_never_shortened(
            backoff in any_settings(),
            secs: u64,
            nanos in 0_u32..1_000_000_000,
            seed: u64,
        ) {
            let wait = Duration::new(secs, nanos);
            let delay = backoff.directed(wait, &mut Random::from_seed(seed));
            let (least, most) = backoff.directed_bounds(wait);
            prop_assert!(wait == least && wait <= delay && delay <= most);
        }

        #[test]
        fn totals_are_sums_and_do_not_overflow(backoff in any_settings(), attempts in 1_u32..200) {
            let backoff = BackoffSettings { max_attempts: attempts, ..backoff };
            let (least, most) = backoff.total_bounds();
            prop_assert!(least <= most);
            prop_assert!(most <= backoff.max().saturating_mul(attempts));
            prop_assert!(backoff.estimate_total() >= backoff.nominal(1));
        }
    }
}
