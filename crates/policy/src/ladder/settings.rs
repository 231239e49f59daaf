//! The settings of protection: which errors count, and how long each pause is.

use std::time::Duration;

use super::result::{EndpointError, EndpointResult};
use crate::setting::{Kind, Options, SettingErrors};
use crate::text::{contains_words, first_of};

crate::settings! {
    /// What was written about protection; `None` leaves the default.
    #[derive(Eq)]
    pub struct LadderOptions;
    /// The settings of a pool's ladders, complete.
    #[derive(Eq)]
    pub struct LadderSettings(pub(crate)) {
        /// Whether endpoints are paused and disabled on errors; on by default for two or more.
        enabled: bool = none, Kind::Switch, example "true", get copy;
        /// The pause after the first error in a row, the second, and so on; the last repeats.
        pauses: Vec<Duration> = "30s,60s,120s,300s,600s", PAUSES;
        /// This many errors in a row disable the endpoint until a person enables it.
        disable_after: u32 = "5", Kind::whole(1, 10), get copy;
        /// Whether failures to connect count as errors too; by default only the breaker counts them.
        unreachable: bool = "false", Kind::Switch, get copy;
        /// Whether the console shows the test tool.
        show_test_tool: bool = "false", Kind::Switch, get copy;
        /// adaptive: a 429 without a hint after this many successes is our own probing, no error; 0 is off.
        probing_after: u32 = "20", Kind::whole(0, 1_000_000), get copy;
        /// Statuses that count as errors.
        statuses: Vec<u16> = "429,500,502,503,504,529", Kind::list(&STATUS, MAX_LIST);
        /// Phrases in a response that count as errors, as whole words in any case.
        texts: Vec<Box<str>> = "rate limit,too many requests,quota exceeded,service unavailable",
            Kind::list(&Kind::TEXT, MAX_LIST);
    }
}

impl LadderOptions {
    /// Combines the options with the defaults.
    ///
    /// # Errors
    ///
    /// Every value out of bounds.
    pub fn build(self) -> Result<LadderSettings, SettingErrors> {
        let problems = self.out_of_bounds();
        SettingErrors::none_of(problems, self.over(LadderSettings::default()))
    }
}

impl LadderSettings {
    /// Whether the endpoints of a pool of this size are protected. A single endpoint has no
    /// replacement, so unless protection is enabled explicitly, only its gate limits it.
    pub fn protects(&self, endpoints: usize) -> bool {
        self.enabled.unwrap_or(endpoints >= 2)
    }

    /// The pauses, in order.
    pub fn pauses(&self) -> &[Duration] {
        &self.pauses
    }

    /// The pause after the `error`-th consecutive error, counted from 1; the last one repeats.
    pub fn pause(&self, error: u32) -> Duration {
        let index = usize::try_from(error.saturating_sub(1)).unwrap_or(usize::MAX);
        let pause = self.pauses.get(index).or_else(|| self.pauses.last());
        pause.copied().unwrap_or(MIN_PAUSE)
    }

    /// Statuses that count as errors.
    pub fn statuses(&self) -> &[u16] {
        &self.statuses
    }

    /// Phrases that count as errors.
    pub fn texts(&self) -> &[Box<str>] {
        &self.texts
    }

    /// Whether this error climbs the ladder.
    pub fn climbs(&self, result: &EndpointResult<'_>) -> bool {
        match result.error {
            None => false,
            Some(EndpointError::Failure(_)) => self.unreachable,
            Some(EndpointError::Status(status)) if NEVER_CLIMBS.contains(&status) => false,
            Some(EndpointError::Status(status)) => {
                self.statuses.contains(&status) || self.phrase_in(result.text).is_some()
            }
            Some(EndpointError::Text) => {
                self.status_in(result.text).is_some() || self.phrase_in(result.text).is_some()
            }
        }
    }

    /// Whether this error is the gate's own probing, after this many `successes` since the last
    /// error. An endpoint that has accepted many requests is not failing; the gate exceeded its
    /// limit.
    pub(super) fn is_probing(&self, result: &EndpointResult<'_>, successes: u32) -> bool {
        let status = match result.error {
            Some(EndpointError::Status(status)) => Some(status),
            Some(EndpointError::Text) => self.status_in(result.text),
            Some(EndpointError::Failure(_)) | None => None,
        };
        let is_undirected_429 = status == Some(429) && result.wait.is_none();
        let is_on = result.is_gate_probing && self.probing_after > 0;
        is_on && is_undirected_429 && successes >= self.probing_after
    }

    /// The listed status that occurs in `text` as a whole word; used if there is no status.
    pub fn status_in(&self, text: &str) -> Option<u16> {
        let mut listed = self.statuses.iter().copied();
        listed.find(|status| contains_words(text.as_bytes(), &status.to_string()))
    }

    /// The phrase of [`LadderSettings::texts`] that occurs in `text`, if any.
    pub fn phrase_in(&self, text: &str) -> Option<&str> {
        let texts: Vec<&str> = self.texts.iter().map(AsRef::as_ref).collect();
        first_of(text.as_bytes(), &texts)
    }
}

/// These are about a credential or a resource, never about the endpoint's health.
const NEVER_CLIMBS: [u16; 3] = [401, 409, 412];

/// Shorter pauses have no effect: the refused request returns at once.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// The lists are searched on every error.
const MAX_LIST: usize = 100;

const PAUSES: Kind = Kind::List {
    of: &Kind::Duration(MIN_PAUSE),
    min: 1,
    max: MAX_LIST,
};

/// All statuses but those that never climb.
const STATUS: Kind = Kind::Whole {
    min: 400,
    max: 999,
    except: &[401, 409, 412],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::Hint;
    use crate::outcome::{Failure, Verdict};

    fn settings(given: &[(&str, &str)]) -> LadderSettings {
        let mut options = LadderOptions::default();
        for (name, value) in given {
            options.set(name, value).unwrap();
        }
        options.build().unwrap()
    }

    #[test]
    fn sets_every_setting_by_name() {
        for name in LadderOptions::NAMES.iter().copied() {
            let value = match name {
                "pauses" => "1s,2s",
                "disable_after" | "probing_after" => "3",
                "statuses" => "[418, 503]",
                "texts" => "\"slow down\", busy",
                _ => "true",
            };
            let mut options = LadderOptions::default();
            assert_eq!(options.set(name, value), Ok(()), "{name}");
            let settings = options.build().unwrap();
            assert_ne!(settings, LadderSettings::default(), "{name} is used");
        }
    }

    #[test]
    fn refuses_invalid_values_with_expectation() {
        let check = |name: &str, value: &str, expected: &str| {
            let error = LadderOptions::default().set(name, value).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{name}` is `{value}`, expected {expected}")
            );
        };
        check(
            "pauses",
            "",
            "1 to 100 values, each a duration of at least 1s",
        );
        check("pauses", "0s", "a duration of at least 1s");
        check(
            "pauses",
            "30",
            "a number with a unit such as `500ms`, `30s` or `5m`",
        );
        for value in ["0", "11", "abc", "-1"] {
            check("disable_after", value, "a whole number from 1 to 10");
        }
        for value in ["401", "409", "412", "200", "1000", "many"] {
            let expected = "a whole number from 400 to 999 except 401, 409, 412";
            check("statuses", value, expected);
        }
        let error = LadderOptions::default().set("pauses", "[\"30s\", \"999ms\"]");
        assert_eq!(
            error.unwrap_err().to_string(),
            "`pauses[1]` is `999ms`, expected a duration of at least 1s"
        );
        check("enabled", "on", "`true` or `false`");
        check("pause", "30s", "a known setting; did you mean `pauses`?");
    }

    #[test]
    fn checks_values_set_directly() {
        let options = LadderOptions {
            pauses: Some(vec![Duration::ZERO]),
            disable_after: Some(11),
            statuses: Some(vec![429, 401]),
            ..LadderOptions::default()
        };
        let problems = options.build().unwrap_err();
        let names: Vec<_> = problems.iter().map(|problem| &*problem.setting).collect();
        assert_eq!(names, ["pauses", "disable_after", "statuses[1]"]);
        let options = LadderOptions {
            pauses: Some(Vec::new()),
            ..LadderOptions::default()
        };
        assert_eq!(options.build().unwrap_err().len(), 1);
    }

    #[test]
    fn protects_a_single_endpoint_only_if_enabled() {
        assert!(!LadderSettings::default().protects(1));
        assert!(LadderSettings::default().protects(2));
        assert!(settings(&[("enabled", "true")]).protects(1));
        assert!(!settings(&[("enabled", "false")]).protects(2));
    }

    #[test]
    fn climbs_on_listed_statuses_only() {
        let defaults = LadderSettings::default();
        for status in 400..=999 {
            let climbs = defaults.climbs(&EndpointResult::status(status));
            assert_eq!(
                climbs,
                [429, 500, 502, 503, 504, 529].contains(&status),
                "{status}"
            );
        }
        let custom = settings(&[("statuses", "418")]);
        assert!(custom.climbs(&EndpointResult::status(418)));
        assert!(!custom.climbs(&EndpointResult::status(429)));
        assert!(!settings(&[("statuses", "")]).climbs(&EndpointResult::status(429)));
    }

    #[test]
    fn climbs_on_listed_texts_as_whole_words_in_any_case() {
        let check = |text: &str, climbs: bool| {
            let ended =
                EndpointResult::response(400, Some(Verdict::Rejected), text, &Hint::default());
            assert_eq!(LadderSettings::default().climbs(&ended), climbs, "{text}");
            let ended = EndpointResult::message(text);
            assert_eq!(LadderSettings::default().climbs(&ended), climbs, "{text}");
        };
        check("Rate Limit reached", true);
        check("TOO MANY REQUESTS", true);
        check("error: quota_exceeded", true);
        check("Service Unavailable", true);
        check("corporate limit", false);
        check("limit: 3 requests per min", false);
        check("Could not parse JSON structure", false);
        check("timeout of 30000ms exceeded", false);
        check("", false);
    }

    #[test]
    fn reads_a_status_from_text_only_without_a_status() {
        let defaults = LadderSettings::default();
        for text in ["HTTP 429", "429 Too Many Requests", "status=502;"] {
            assert!(defaults.climbs(&EndpointResult::message(text)), "{text}");
        }
        for text in [
            "took 502ms then socket reset",
            "id 15042991",
            "HTTP 401",
            "404",
        ] {
            assert!(!defaults.climbs(&EndpointResult::message(text)), "{text}");
        }
        let known =
            EndpointResult::response(400, Some(Verdict::Rejected), "HTTP 429", &Hint::default());
        assert!(!defaults.climbs(&known));
    }

    #[test]
    fn never_climbs_on_401_409_412() {
        for (status, verdict) in [
            (401, Verdict::Unauthorized),
            (409, Verdict::Conflict),
            (412, Verdict::Conflict),
        ] {
            let ended =
                EndpointResult::response(status, Some(verdict), "rate limit", &Hint::default());
            assert!(!LadderSettings::default().climbs(&ended));
        }
    }

    #[test]
    fn climbs_on_transport_failures_only_if_set() {
        let failed = EndpointResult::failure(Failure::Connect, "service unavailable");
        assert!(!LadderSettings::default().climbs(&failed));
        assert!(settings(&[("unreachable", "true")]).climbs(&failed));
    }

    #[test]
    fn last_pause_repeats() {
        let defaults = LadderSettings::default();
        let pauses: Vec<u64> = [1, 2, 3, 4, 5, 6, u32::MAX]
            .map(|error| defaults.pause(error).as_secs())
            .into();
        assert_eq!(pauses, [30, 60, 120, 300, 600, 600, 600]);
    }
}
