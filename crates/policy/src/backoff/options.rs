//! What people write about a backoff: each setting by its name, optional, judged by itself; then
//! how what was written fits over a preset.

use std::time::Duration;

use super::{BackoffSettings, Growth, Steps};
use crate::duration;
use crate::jitter::Jitter;
use crate::setting::{SettingError, SettingErrors, positive, whole};
use crate::suggest::suggestion;

/// What was written about a backoff; `None` leaves what the preset has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackoffOptions {
    /// The delay after the first failed send, before jitter.
    pub base: Option<Duration>,
    /// No delay of our own is longer.
    pub max: Option<Duration>,
    /// Sends, the first included.
    pub max_attempts: Option<u32>,
    /// How our own delays are spread.
    pub jitter: Option<Jitter>,
    /// At most so much is added to a wait that the server names.
    pub retry_after_jitter: Option<Duration>,
    /// How delays grow.
    pub growth: Option<Growth>,
}

impl BackoffOptions {
    /// The names of all settings, as people write them.
    pub const NAMES: [&'static str; 6] = [
        "base",
        "max",
        "max_attempts",
        "jitter",
        "retry_after_jitter",
        "growth",
    ];

    /// Sets one setting from text. The value alone is judged here; how it fits with the others,
    /// in [`BackoffOptions::build`].
    ///
    /// ```
    /// let mut options = policy::backoff::BackoffOptions::default();
    /// options.set("jitter", "full").unwrap();
    /// let error = options.set("max_attempts", "0").unwrap_err();
    /// assert_eq!(error.to_string(), "`max_attempts` is `0`, expected a whole number from 1 to 10000");
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
            // Without any delay a failing server would be called in a tight loop.
            "base" => self.base = Some(positive(value)?),
            "max" => self.max = Some(positive(value)?),
            "max_attempts" => self.max_attempts = Some(whole(value, 1, MAX_ATTEMPTS)?),
            "jitter" => self.jitter = Some(value.parse()?),
            "retry_after_jitter" => self.retry_after_jitter = Some(duration::parse(value)?),
            "growth" => self.growth = Some(growth(value)?),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Fits what was written over the preset `standard`.
    ///
    /// # Errors
    ///
    /// Every contradiction between parts that were written.
    pub fn build(self) -> Result<BackoffSettings, SettingErrors> {
        self.build_over(BackoffSettings::default())
    }

    /// Fits what was written over `defaults`, which give way to it: a written `base` above the
    /// default maximum raises that, a written `max` below the default base lowers that.
    ///
    /// # Errors
    ///
    /// Every contradiction between parts that were written, and whatever was filled in by hand and
    /// could not have been written.
    pub fn build_over(self, defaults: BackoffSettings) -> Result<BackoffSettings, SettingErrors> {
        let mut problems = self.out_of_bounds();
        problems.extend(self.contradictions());
        if let Some(problems) = SettingErrors::of(problems) {
            return Err(problems);
        }
        let longest = self.base.max(self.longest_step()).unwrap_or_default();
        let max = self.max.unwrap_or_else(|| defaults.max.max(longest));
        Ok(BackoffSettings {
            base: self.base.unwrap_or_else(|| defaults.base.min(max)),
            max,
            max_attempts: self.max_attempts.unwrap_or(defaults.max_attempts),
            jitter: self.jitter.unwrap_or(defaults.jitter),
            retry_after_jitter: self
                .retry_after_jitter
                .unwrap_or(defaults.retry_after_jitter),
            growth: self.growth.unwrap_or(defaults.growth),
        })
    }

    fn out_of_bounds(&self) -> Vec<SettingError> {
        let written = [
            (
                "base",
                self.base.map(|base| duration::Exact(base).to_string()),
            ),
            ("max", self.max.map(|max| duration::Exact(max).to_string())),
            ("max_attempts", self.max_attempts.map(|n| n.to_string())),
        ];
        let judged = written
            .iter()
            .filter_map(|(name, value)| Self::default().set(name, value.as_ref()?).err());
        judged.collect()
    }

    fn contradictions(&self) -> Vec<SettingError> {
        let Some(max) = self.max else {
            return Vec::new();
        };
        let above = |setting: &str, value: Option<Duration>| {
            let value = value.filter(|value| *value > max)?;
            Some(SettingError {
                setting: setting.to_owned(),
                value: duration::Exact(value).to_string(),
                expected: format!("at most `max` ({})", duration::Exact(max)),
            })
        };
        let base = above("base", self.base);
        let steps = above("growth", self.longest_step());
        base.into_iter().chain(steps).collect()
    }

    fn longest_step(&self) -> Option<Duration> {
        match &self.growth {
            Some(Growth::Ladder(steps)) => Some(steps.longest()),
            Some(Growth::Exponential | Growth::Linear) | None => None,
        }
    }
}

/// At the longest default delay that is a week; who wants to go on longer wants an expiry.
const MAX_ATTEMPTS: u32 = 10_000;

/// A word, or the steps of a ladder separated by commas; the brackets and quotes of a list are
/// allowed.
fn growth(value: &str) -> Result<Growth, String> {
    match value {
        "exponential" => Ok(Growth::Exponential),
        "linear" => Ok(Growth::Linear),
        _ => ladder(value).map(Growth::Ladder).ok_or_else(|| {
            format!(
                "`exponential`, `linear` or up to {} durations above zero such as `30s,1m,2m`",
                Steps::MOST
            )
        }),
    }
}

fn ladder(value: &str) -> Option<Steps> {
    let inner = value.trim_start_matches('[').trim_end_matches(']');
    let steps: Option<Vec<Duration>> = inner
        .split(',')
        .map(|step| positive(step.trim().trim_matches('"')).ok())
        .collect();
    Steps::new(&steps?)
}

fn unknown(name: &str) -> String {
    match suggestion(name, &BackoffOptions::NAMES) {
        Some(close) => format!("a known setting; did you mean `{close}`?"),
        None => format!("a known setting: {}", BackoffOptions::NAMES.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn options(settings: &[(&str, &str)]) -> BackoffOptions {
        let mut options = BackoffOptions::default();
        for (name, value) in settings {
            options.set(name, value).unwrap();
        }
        options
    }

    #[test]
    fn every_name_can_be_set() {
        for name in BackoffOptions::NAMES {
            let value = match name {
                "max_attempts" => "1_000",
                "jitter" => "full",
                "growth" => "[\"30s\", \"1m\"]",
                _ => "10s",
            };
            assert_ne!(options(&[(name, value)]), BackoffOptions::default());
        }
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_what_could() {
        let check = |name: &str, values: &[&str], expected: &str| {
            for value in values {
                let error = BackoffOptions::default().set(name, value).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    format!("`{name}` is `{value}`, expected {expected}")
                );
            }
        };
        check("base", &["0s"], "a duration above zero");
        check(
            "max",
            &["30", ""],
            "a number with a unit such as `500ms`, `30s` or `5m`",
        );
        check(
            "max_attempts",
            &["0", "-1", "2.5", "10001"],
            "a whole number from 1 to 10000",
        );
        check(
            "growth",
            &["cubic", "", "30s,", "0s", "30"],
            "`exponential`, `linear` or up to 32 durations above zero such as `30s,1m,2m`",
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_a_suggestion() {
        let error = |name| BackoffOptions::default().set(name, "1").unwrap_err();
        assert!(
            error("max_attempt")
                .expected
                .contains("did you mean `max_attempts`?")
        );
        assert!(
            error("zzzzzzzz")
                .expected
                .contains("a known setting: base, max")
        );
    }

    #[test]
    fn what_was_written_goes_over_the_preset() {
        let built = options(&[("base", "3s")])
            .build_over(Preset::Background.settings())
            .unwrap();
        assert_eq!(built.base(), Duration::from_secs(3));
        assert_eq!(built.max(), Duration::from_secs(60));
        assert_eq!(built.max_attempts(), 7);
        assert_eq!(
            BackoffOptions::default().build(),
            Ok(BackoffSettings::default())
        );
    }

    #[test]
    fn a_default_gives_way_to_what_was_written() {
        let built = |settings: &[(&str, &str)]| {
            let built = options(settings).build().unwrap();
            (built.base().as_millis(), built.max().as_millis())
        };
        assert_eq!(built(&[("base", "1m")]), (60_000, 60_000));
        assert_eq!(built(&[("max", "500ms")]), (500, 500));
        assert_eq!(built(&[("growth", "30s,10m")]), (1000, 600_000));
    }

    #[test]
    fn what_was_filled_in_by_hand_is_held_to_the_same_bounds() {
        let by_hand = BackoffOptions {
            base: Some(Duration::ZERO),
            max: Some(Duration::MAX),
            max_attempts: Some(0),
            ..BackoffOptions::default()
        };
        let problems = by_hand.build().unwrap_err();
        let settings: Vec<&str> = problems.iter().map(|p| p.setting.as_str()).collect();
        assert_eq!(settings, ["base", "max", "max_attempts"]);
    }

    #[test]
    fn two_written_parts_that_contradict_are_all_reported() {
        let problems = options(&[("base", "1m"), ("growth", "90s,30s"), ("max", "30s")])
            .build()
            .unwrap_err();
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "`base` is `1m`, expected at most `max` (30s)",
                "`growth` is `90s`, expected at most `max` (30s)",
            ]
        );
    }
}
