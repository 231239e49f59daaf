//! What people write about polling, and what a poll works with.

use std::time::Duration;

use crate::duration::Exact;
use crate::setting::{SettingError, SettingErrors, positive, unknown, whole};

/// What was written about polling; `None` leaves the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollOptions {
    /// Between checks below 30 %.
    pub early: Option<Duration>,
    /// Between checks from 30 % to below 70 %.
    pub middle: Option<Duration>,
    /// Between checks from 70 %.
    pub late: Option<Duration>,
    /// Between checks while nothing is known of the job.
    pub first: Option<Duration>,
    /// After the first 429; doubles with each further one in a row.
    pub base: Option<Duration>,
    /// The wait after a 429 never grows beyond this, unless the server names a longer one.
    pub max: Option<Duration>,
    /// Without any success for longer than this, polling ends.
    pub give_up_after: Option<Duration>,
    /// How often in a row other errors are retried.
    pub other_retries: Option<u32>,
}

impl PollOptions {
    /// The names of all settings, as people write them.
    pub const NAMES: [&'static str; 8] = [
        "early",
        "middle",
        "late",
        "first",
        "base",
        "max",
        "give_up_after",
        "other_retries",
    ];

    /// Sets one setting from text.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let value = value.trim();
        self.assign(name, value)
            .map_err(|expected| SettingError::new(name, value, expected))
    }

    fn assign(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "early" => self.early = Some(positive(value)?),
            "middle" => self.middle = Some(positive(value)?),
            "late" => self.late = Some(positive(value)?),
            "first" => self.first = Some(positive(value)?),
            "base" => self.base = Some(positive(value)?),
            "max" => self.max = Some(positive(value)?),
            "give_up_after" => self.give_up_after = Some(positive(value)?),
            "other_retries" => self.other_retries = Some(whole(value, 0, 1_000)?),
            _ => return Err(unknown(name, &Self::NAMES)),
        }
        Ok(())
    }

    /// Fits everything together: `base` is at most `max`, and a default gives way to what was
    /// written.
    pub fn build(self) -> Result<PollSettings, SettingErrors> {
        let max = self
            .max
            .unwrap_or_else(|| self.base.unwrap_or_default().max(DEFAULT_MAX));
        let base = self.base.unwrap_or_else(|| DEFAULT_BASE.min(max));
        if base > max {
            let (base, max) = (Exact(base), Exact(max));
            let problem = SettingError::contradiction("base", base, "at most", "max", max);
            return Err(problem.into());
        }
        Ok(PollSettings {
            early: self.early.unwrap_or(Duration::from_secs(3)),
            middle: self.middle.unwrap_or(Duration::from_millis(2500)),
            late: self.late.unwrap_or(Duration::from_secs(2)),
            first: self.first.unwrap_or(Duration::from_secs(2)),
            base,
            max,
            give_up_after: self.give_up_after.unwrap_or(Duration::from_secs(300)),
            other_retries: self.other_retries.unwrap_or(3),
        })
    }
}

/// The settings of polling, whole and without contradictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollSettings {
    early: Duration,
    middle: Duration,
    late: Duration,
    first: Duration,
    base: Duration,
    max: Duration,
    give_up_after: Duration,
    other_retries: u32,
}

impl PollSettings {
    /// Between checks below 30 %.
    pub fn early(&self) -> Duration {
        self.early
    }

    /// Between checks from 30 % to below 70 %.
    pub fn middle(&self) -> Duration {
        self.middle
    }

    /// Between checks from 70 %.
    pub fn late(&self) -> Duration {
        self.late
    }

    /// Between checks while nothing is known of the job.
    pub fn first(&self) -> Duration {
        self.first
    }

    /// The wait after the `n`-th 429 in a row, counted from 1: `base · 2^(n−1)`, at most `max`.
    pub fn throttled(&self, n: u32) -> Duration {
        doubled(self.base, n.saturating_sub(1), self.max)
    }

    /// The wait before retry number `index` of another error, counted from 0.
    pub fn retry(&self, index: u32) -> Duration {
        doubled(RETRY_BASE, index, RETRY_MAX)
    }

    /// Without any success for longer than this, polling ends.
    pub fn give_up_after(&self) -> Duration {
        self.give_up_after
    }

    /// How often in a row other errors are retried.
    pub fn other_retries(&self) -> u32 {
        self.other_retries
    }
}

impl Default for PollSettings {
    fn default() -> Self {
        PollOptions::default()
            .build()
            .expect("the defaults fit together")
    }
}

const DEFAULT_BASE: Duration = Duration::from_secs(2);
const DEFAULT_MAX: Duration = Duration::from_secs(15);

/// A hiccup is over in a second; whoever watches a job does not want to wait longer than five.
const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(5);

fn doubled(base: Duration, times: u32, most: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: &[(&str, &str)]) -> Result<PollSettings, SettingErrors> {
        let mut options = PollOptions::default();
        for (name, value) in given {
            options.set(name, value).unwrap();
        }
        options.build()
    }

    #[test]
    fn every_name_can_be_set() {
        for name in PollOptions::NAMES {
            let value = if name == "other_retries" { "7" } else { "10s" };
            let mut options = PollOptions::default();
            assert_eq!(options.set(name, value), Ok(()), "{name}");
            let settings = options.build().unwrap();
            assert_ne!(settings, PollSettings::default(), "{name} is used");
        }
    }

    #[test]
    fn waits_after_429s_double_up_to_the_cap() {
        let settings = PollSettings::default();
        let waits = [1, 2, 3, 4, 5, 11, 2000, u32::MAX].map(|n| settings.throttled(n).as_secs());
        assert_eq!(waits, [2, 4, 8, 15, 15, 15, 15, 15]);
    }

    #[test]
    fn retries_of_other_errors_double_up_to_five_seconds() {
        let settings = PollSettings::default();
        let waits = [0, 1, 2, 3, 4, u32::MAX].map(|index| settings.retry(index).as_secs());
        assert_eq!(waits, [1, 2, 4, 5, 5, 5]);
    }

    #[test]
    fn a_default_gives_way_and_two_written_ones_must_agree() {
        let short = settings(&[("max", "1s")]).unwrap();
        assert_eq!(short.throttled(1), Duration::from_secs(1));
        let long = settings(&[("base", "20s")]).unwrap();
        assert_eq!(long.throttled(9), Duration::from_secs(20));
        let problems = settings(&[("base", "20s"), ("max", "10s")]).unwrap_err();
        assert_eq!(
            problems[0].to_string(),
            "`base` is `20s`, expected at most `max` (10s)"
        );
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_what_could() {
        let check = |name: &str, value: &str, expected: &str| {
            let error = PollOptions::default().set(name, value).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{name}` is `{value}`, expected {expected}")
            );
        };
        check("early", "0s", "a duration above zero");
        check(
            "max",
            "15",
            "a number with a unit such as `500ms`, `30s` or `5m`",
        );
        check("other_retries", "-1", "a whole number from 0 to 1000");
        check("earley", "1s", "a known setting; did you mean `early`?");
    }
}
