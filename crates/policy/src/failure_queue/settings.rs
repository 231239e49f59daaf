//! What people write about a failure queue, and what it works with.

use std::str::FromStr;
use std::time::Duration;

use crate::duration;
use crate::setting::{SettingError, SettingErrors, positive, unknown, whole};

/// What was written about a failure queue; `None` leaves the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureQueueOptions {
    /// The gap without any failure; zero is no gap at all.
    pub base: Option<Duration>,
    /// How many failures are kept at most.
    pub max_size: Option<u32>,
    /// Failures this old are forgotten; zero is never.
    pub max_age: Option<Duration>,
    /// How the gap grows with failures.
    pub growth: Option<Growth>,
    /// Jitter of up to this much is added to every gap.
    pub variance: Option<Duration>,
    /// How often an item is tried at most, the first time included.
    pub attempts: Option<u32>,
    /// Without any success for this long, everything is given up.
    pub give_up_after: Option<Duration>,
}

impl FailureQueueOptions {
    /// The names of all settings, as people write them.
    pub const NAMES: [&'static str; 7] = [
        "base",
        "max_size",
        "max_age",
        "growth",
        "variance",
        "attempts",
        "give_up_after",
    ];

    /// Sets one setting from text.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let value = value.trim();
        self.assign(name, value)
            .map_err(|expected| SettingError::new(name, value, expected))
    }

    fn assign(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "base" => self.base = Some(duration::parse(value)?),
            "max_size" => self.max_size = Some(whole(value, 1, 100_000)?),
            "max_age" => self.max_age = Some(duration::parse(value)?),
            "growth" => self.growth = Some(value.parse()?),
            "variance" => self.variance = Some(duration::parse(value)?),
            "attempts" => self.attempts = Some(whole(value, 1, 1_000)?),
            "give_up_after" => self.give_up_after = Some(positive(value)?),
            _ => return Err(unknown(name, &Self::NAMES)),
        }
        Ok(())
    }

    /// Fits everything together. No two of these settings can contradict each other.
    pub fn build(self) -> Result<FailureQueueSettings, SettingErrors> {
        Ok(FailureQueueSettings {
            base: self.base.unwrap_or(Duration::from_secs(30)),
            max_size: self.max_size.unwrap_or(100),
            max_age: self.max_age.unwrap_or(Duration::from_secs(300)),
            growth: self.growth.unwrap_or_default(),
            variance: self.variance.unwrap_or(Duration::ZERO),
            attempts: self.attempts.unwrap_or(3),
            give_up_after: self.give_up_after.unwrap_or(Duration::from_secs(300)),
        })
    }
}

/// How a gap grows with the failures that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// `base · (1 + failures)`. The default.
    #[default]
    Linear,
    /// `base · 2^failures`.
    Double,
}

impl Growth {
    /// The word for it in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Double => "double",
        }
    }
}

impl FromStr for Growth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "linear" => Ok(Self::Linear),
            "double" => Ok(Self::Double),
            _ => Err("`linear` or `double`".to_owned()),
        }
    }
}

/// The settings of a failure queue, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureQueueSettings {
    base: Duration,
    max_size: u32,
    max_age: Duration,
    growth: Growth,
    variance: Duration,
    attempts: u32,
    give_up_after: Duration,
}

impl FailureQueueSettings {
    /// The gap without any failure.
    pub fn base(&self) -> Duration {
        self.base
    }

    /// How many failures are kept at most.
    pub fn max_size(&self) -> usize {
        self.max_size as usize
    }

    /// Failures this old are forgotten; `None` is never.
    pub fn max_age(&self) -> Option<Duration> {
        (!self.max_age.is_zero()).then_some(self.max_age)
    }

    /// How the gap grows with failures.
    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// Jitter of up to this much is added to every gap.
    pub fn variance(&self) -> Duration {
        self.variance
    }

    /// The same settings without jitter.
    pub fn without_variance(self) -> Self {
        Self {
            variance: Duration::ZERO,
            ..self
        }
    }

    /// How often an item is tried at most, the first time included.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Without any success for this long, everything is given up.
    pub fn give_up_after(&self) -> Duration {
        self.give_up_after
    }
}

impl Default for FailureQueueSettings {
    fn default() -> Self {
        FailureQueueOptions::default()
            .build()
            .expect("the defaults fit together")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_set() {
        for name in FailureQueueOptions::NAMES {
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
    fn the_defaults_are_those_of_the_documents() {
        let settings = FailureQueueSettings::default();
        assert_eq!(settings.base(), Duration::from_secs(30));
        assert_eq!(settings.max_size(), 100);
        assert_eq!(settings.max_age(), Some(Duration::from_secs(300)));
        assert_eq!(settings.growth().as_str(), "linear");
        assert_eq!(settings.variance(), Duration::ZERO);
        assert_eq!(settings.attempts(), 3);
        assert_eq!(settings.give_up_after(), Duration::from_secs(300));
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_what_could() {
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
