//! The settings of a failure queue.

use std::time::Duration;

use crate::setting::{Kind, Options, SettingErrors};

crate::settings! {
    /// What was written about a failure queue; `None` leaves the default.
    #[derive(Eq)]
    pub struct FailureQueueOptions;
    /// The settings of a failure queue, complete.
    #[derive(Eq)]
    pub struct FailureQueueSettings(pub(crate)) {
        /// The gap between two commands without any failure; "0s" is no gap at all.
        base: Duration = "30s", Kind::DURATION, get copy;
        /// How many failures are remembered; the oldest is dropped first.
        max_size: u32 = "100", Kind::whole(1, 100_000);
        /// Failures this old do not count any more; "0s" is never.
        max_age: Duration = "300s", Kind::DURATION;
        /// How the gap grows with failures: linear is base × (1 + failures), double is base × 2^failures.
        growth: Growth = "linear", Growth::KIND, get copy;
        /// Up to this much is added to every gap at random.
        variance: Duration = "0s", Kind::DURATION, get copy;
        /// How often an item is tried, the first time included.
        attempts: u32 = "3", Kind::whole(1, 1000), get copy;
        /// Without any success for this long, the run ends; or "none".
        give_up_after: Option<Duration> = "none", Kind::DURATION_OR_NONE, get copy;
    }
}

impl FailureQueueOptions {
    /// Combines the options with the defaults. No two of these settings can contradict each other.
    ///
    /// # Errors
    ///
    /// Every value out of bounds.
    pub fn build(self) -> Result<FailureQueueSettings, SettingErrors> {
        let problems = self.out_of_bounds();
        SettingErrors::none_of(problems, self.over(FailureQueueSettings::default()))
    }
}

/// How a gap grows with the number of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// `base · (1 + failures)`. The default.
    #[default]
    Linear,
    /// `base · 2^failures`.
    Double,
}

crate::words! { pub Growth { Linear = "linear", Double = "double" } }

impl FailureQueueSettings {
    /// The maximum number of stored failures.
    pub fn max_size(&self) -> usize {
        self.max_size as usize
    }

    /// Failures this old no longer count; `None` means never.
    pub fn max_age(&self) -> Option<Duration> {
        (!self.max_age.is_zero()).then_some(self.max_age)
    }

    /// The same settings without jitter.
    pub fn without_variance(self) -> Self {
        Self {
            variance: Duration::ZERO,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_every_setting_by_name() {
        for name in FailureQueueOptions::NAMES.iter().copied() {
            let value = match name {
                "max_size" | "attempts" => "7",
                "growth" => "double",
                _ => "10s",
            };
            let mut options = FailureQueueOptions::default();
            assert_eq!(options.set(name, value), Ok(()), "{name}");
            assert_ne!(options, FailureQueueOptions::default(), "{name} was kept");
            let settings = options.build().unwrap();
            assert_ne!(settings, FailureQueueSettings::default(), "{name} is used");
        }
    }

    #[test]
    fn has_the_documented_defaults() {
        let settings = FailureQueueSettings::default();
        assert_eq!(settings.base(), Duration::from_secs(30));
        assert_eq!(settings.max_size(), 100);
        assert_eq!(settings.max_age(), Some(Duration::from_secs(300)));
        assert_eq!(settings.growth().as_str(), "linear");
        assert_eq!(settings.variance(), Duration::ZERO);
        assert_eq!(settings.attempts(), 3);
        assert_eq!(settings.give_up_after(), None);
    }

    #[test]
    fn refuses_invalid_values_with_expectation() {
        let check = |name: &str, value: &str, expected: &str| {
            let error = FailureQueueOptions::default().set(name, value).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{name}` is `{value}`, expected {expected}")
            );
        };
        let unit = "a number with a unit such as `500ms`, `30s` or `5m`";
        check("base", "30", unit);
        check("max_age", "-1s", unit);
        check("max_size", "0", "a whole number from 1 to 100000");
        check("attempts", "0", "a whole number from 1 to 1000");
        check("growth", "fast", "`linear` or `double`");
        check("give_up_after", "0s", "a duration above zero");
        check("max_sise", "5", "a known setting; did you mean `max_size`?");
    }
}
