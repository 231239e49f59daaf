//! The settings of polling.

use std::time::Duration;

use crate::setting::{Kind, Options, SettingErrors, fit};

crate::settings! {
    /// What was written about polling; `None` leaves the default.
    #[derive(Eq)]
    pub struct PollOptions;
    /// The settings of polling, complete and without contradictions.
    #[derive(Eq)]
    pub struct PollSettings(pub(crate)) {
        /// Between two requests while progress is below 30.
        early: Duration = "3s", Kind::POSITIVE, get copy;
        /// While it is below 70.
        middle: Duration = "2.5s", Kind::POSITIVE, get copy;
        /// From 70 on.
        late: Duration = "2s", Kind::POSITIVE, get copy;
        /// While nothing is known of the job.
        first: Duration = "2s", Kind::POSITIVE, get copy;
        /// The wait after the first 429; it doubles with each further one in a row.
        base: Duration = "2s", Kind::POSITIVE, get copy;
        /// The longest wait after a 429, unless the server names a longer one.
        max: Duration = "15s", Kind::POSITIVE, get copy;
        /// Without any success for longer than this, polling ends.
        give_up_after: Duration = "300s", Kind::POSITIVE, get copy;
        /// How often in a row other errors are retried.
        other_retries: u32 = "3", Kind::whole(0, 1000), get copy;
    }
}

impl PollOptions {
    /// Combines the options with the defaults: `base` is at most `max`, and defaults adapt to the
    /// options.
    ///
    /// # Errors
    ///
    /// Every value out of bounds and every contradiction.
    pub fn build(self) -> Result<PollSettings, SettingErrors> {
        let mut problems = self.out_of_bounds();
        let (base, max) = (self.base, self.max);
        let mut settings = self.over(PollSettings::default());
        fit(
            ("base", base, &mut settings.base),
            ("max", max, &mut settings.max),
            &mut problems,
        );
        SettingErrors::none_of(problems, settings)
    }
}

impl PollSettings {
    /// The wait after the `n`-th consecutive 429, counted from 1: `base · 2^(n−1)`, at most `max`.
    pub fn throttled(&self, n: u32) -> Duration {
        doubled(self.base, n.saturating_sub(1), self.max)
    }

    /// The wait before retry number `index` of another error, counted from 0.
    pub fn retry(&self, index: u32) -> Duration {
        doubled(RETRY_BASE, index, RETRY_MAX)
    }
}

/// Short failures end within a second, and a person watching a job should not wait longer than
/// five.
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
    fn sets_every_setting_by_name() {
        for name in PollOptions::NAMES.iter().copied() {
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
    fn base_is_at_most_max() {
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
    fn refuses_invalid_values_with_expectation() {
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
