//! The settings of a backoff, and how options override a preset.

use std::str::FromStr;
use std::time::Duration;

use super::{Growth, Steps};
use crate::jitter::{Jitter, RetryAfterJitter};
use crate::setting::{Format, Kind, Options, SettingErrors, ValueError, fit, positive, split_list};

crate::settings! {
    /// Options of a backoff; `None` keeps the value of the preset.
    pub struct BackoffOptions;
    /// The settings of a backoff, complete and without contradictions; made by
    /// [`BackoffOptions::build`] or by a [`Preset`](crate::preset::Preset). The default is `standard`.
    pub struct BackoffSettings(pub(crate)) {
        /// The wait after the first failed send, before jitter.
        // Without any delay a failing server would be called in a tight loop.
        base: Duration = "1s", Kind::POSITIVE, get copy;
        /// The longest wait of the backoff; one that the server names may be longer.
        max: Duration = "30s", Kind::POSITIVE, get copy;
        /// Sends, the first included.
        // At the longest default delay that is a week; use an expiry for more.
        max_attempts: u32 = "5", Kind::whole(1, 10_000), get copy;
        /// A random factor of each wait, so that clients do not retry together; or "none", "full".
        jitter: Jitter = "0.5..1.5", JITTER, get copy;
        /// Up to this is added to a wait that the server names, or a share such as "10%" (at most 5s); it is never shortened.
        retry_after_jitter: RetryAfterJitter = "5s", RetryAfterJitter::KIND, get copy;
        /// How waits grow: exponential, linear, or the steps themselves, such as "30s,1m,2m".
        growth: Growth = "exponential", GROWTH;
    }
}

const JITTER: Kind = Kind::Format(&Format::of(
    "jitter",
    "\"0.5..1.5\"",
    Some("^(none|full|[0-9._]+ *\\.\\. *[0-9._]+)$"),
    |text| text.parse::<Jitter>().map(drop).map_err(String::from),
));

const GROWTH: Kind = Kind::Format(&Format::of("growth", "\"30s,1m,2m\"", None, |text| {
    text.parse::<Growth>().map(drop).map_err(String::from)
}));

impl BackoffOptions {
    /// Applies the options to the preset `standard`.
    ///
    /// # Errors
    ///
    /// Every value out of bounds and every contradiction.
    pub fn build(self) -> Result<BackoffSettings, SettingErrors> {
        self.build_over(BackoffSettings::default())
    }

    /// Applies the options to `defaults`, which adapt: a `base` above the default maximum raises
    /// the maximum, a `max` below the default base lowers the base.
    ///
    /// # Errors
    ///
    /// As [`BackoffOptions::build`].
    pub fn build_over(self, defaults: BackoffSettings) -> Result<BackoffSettings, SettingErrors> {
        let mut problems = self.out_of_bounds();
        let (base, max) = (self.base, self.max);
        let mut longest = match &self.growth {
            Some(Growth::Ladder(steps)) => Some(steps.longest()),
            Some(Growth::Exponential | Growth::Linear) | None => None,
        };
        let written = longest;
        let mut settings = self.over(defaults);
        for (name, written, value) in [
            ("base", base, &mut settings.base),
            ("growth", written, longest.get_or_insert_default()),
        ] {
            let high = ("max", max, &mut settings.max);
            fit((name, written, value), high, &mut problems);
        }
        SettingErrors::none_of(problems, settings)
    }
}

impl FromStr for Growth {
    type Err = ValueError;

    /// Reads a name, or the steps of a ladder separated by commas.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "exponential" => Ok(Self::Exponential),
            "linear" => Ok(Self::Linear),
            _ => {
                let steps: Result<Vec<Duration>, String> = split_list(text).map(positive).collect();
                let steps = steps.ok().filter(|_| !text.ends_with(','));
                let steps = steps.and_then(|steps| Steps::new(&steps));
                steps.map(Self::Ladder).ok_or_else(|| {
                    ValueError::new(format!(
                        "`exponential`, `linear` or up to {} durations above zero such as `30s,1m,2m`",
                        Steps::MAX
                    ))
                })
            }
        }
    }
}

crate::setting_values!(Growth);

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
    fn sets_every_setting_by_name() {
        for name in BackoffOptions::NAMES.iter().copied() {
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
    fn refuses_invalid_values_with_expectation() {
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
    fn suggests_a_name_for_an_unknown_one() {
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
    fn options_override_the_preset() {
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
    fn defaults_adapt_to_options() {
        let built = |settings: &[(&str, &str)]| {
            let built = options(settings).build().unwrap();
            (built.base().as_millis(), built.max().as_millis())
        };
        assert_eq!(built(&[("base", "1m")]), (60_000, 60_000));
        assert_eq!(built(&[("max", "500ms")]), (500, 500));
        assert_eq!(built(&[("growth", "30s,10m")]), (1000, 600_000));
    }

    #[test]
    fn checks_values_set_directly() {
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
    fn reports_every_contradiction() {
        let problems = options(&[("base", "1m"), ("growth", "90s,30s"), ("max", "30s")])
            .build()
            .unwrap_err();
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "`base` is `60s`, expected at most `max` (30s)",
                "`growth` is `90s`, expected at most `max` (30s)",
            ]
        );
    }
}
