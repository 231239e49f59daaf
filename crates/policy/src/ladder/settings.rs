//! What people write about protection, and what a ladder works with: which errors climb, and how
//! far each step goes.

use std::time::Duration;

use super::ended::{Ended, Trouble};
use crate::duration;
use crate::setting::{self, SettingError, SettingErrors, list, switch, unknown, whole};
use crate::text::{contains_words, first_of};

/// What was written about protection; `None` leaves the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadderOptions {
    /// Are endpoints protected? By default those of pools with two or more.
    pub enabled: Option<bool>,
    /// The pause after the first error, the second, and so on; the last repeats.
    pub pauses: Option<Vec<Duration>>,
    /// The how-manieth error in a row disables.
    pub disable_after: Option<u32>,
    /// Do transport failures climb too?
    pub unreachable: Option<bool>,
    /// Does the console show its test tool?
    pub show_test_tool: Option<bool>,
    /// After this many successes since its last error, an undirected 429 is the gate's own probing
    /// and no error; 0 is off. Only under `adaptive`.
    pub probing_after: Option<u32>,
    /// Statuses that climb.
    pub statuses: Option<Vec<u16>>,
    /// Phrases that climb, as whole words in any case.
    pub texts: Option<Vec<Box<str>>>,
}

impl LadderOptions {
    /// The names of all settings, as people write them.
    pub const NAMES: [&'static str; 8] = [
        "enabled",
        "pauses",
        "disable_after",
        "unreachable",
        "show_test_tool",
        "probing_after",
        "statuses",
        "texts",
    ];

    /// Sets one setting from text. Lists are separated by commas.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let value = value.trim();
        self.assign(name, value)
            .map_err(|expected| SettingError::new(name, value, expected))
    }

    fn assign(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "enabled" => self.enabled = Some(switch(value)?),
            "pauses" => self.pauses = Some(pauses(value)?),
            "disable_after" => self.disable_after = Some(whole(value, 1, 10)?),
            "unreachable" => self.unreachable = Some(switch(value)?),
            "show_test_tool" => self.show_test_tool = Some(switch(value)?),
            "probing_after" => {
                self.probing_after = Some(whole(value, 0, MAX_PROBING_AFTER)?);
            }
            "statuses" => self.statuses = Some(statuses(value)?),
            "texts" => self.texts = Some(texts(value)?),
            _ => return Err(unknown(name, &Self::NAMES)),
        }
        Ok(())
    }

    /// Fits everything together. What was not set through [`Self::set`] is judged here as well.
    pub fn build(self) -> Result<LadderSettings, SettingErrors> {
        let settings = LadderSettings {
            enabled: self.enabled,
            pauses: self
                .pauses
                .unwrap_or_else(|| DEFAULT_PAUSES.map(Duration::from_secs).into())
                .into_boxed_slice(),
            disable_after: self.disable_after.unwrap_or(5),
            unreachable: self.unreachable.unwrap_or(false),
            show_test_tool: self.show_test_tool.unwrap_or(false),
            probing_after: self.probing_after.unwrap_or(20),
            statuses: self
                .statuses
                .unwrap_or_else(|| DEFAULT_STATUSES.into())
                .into_boxed_slice(),
            texts: self
                .texts
                .unwrap_or_else(|| DEFAULT_TEXTS.map(Into::into).into())
                .into_boxed_slice(),
        };
        match SettingErrors::of(settings.problems()) {
            None => Ok(settings),
            Some(problems) => Err(problems),
        }
    }
}

/// The settings of a pool's ladders, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderSettings {
    enabled: Option<bool>,
    pauses: Box<[Duration]>,
    disable_after: u32,
    unreachable: bool,
    show_test_tool: bool,
    probing_after: u32,
    statuses: Box<[u16]>,
    texts: Box<[Box<str>]>,
}

impl LadderSettings {
    /// Are the endpoints of a pool with so many of them protected? One alone has nobody to do its
    /// work meanwhile: unless it was asked for, it is left to its gate.
    pub fn protects(&self, endpoints: usize) -> bool {
        self.enabled.unwrap_or(endpoints >= 2)
    }

    /// What was written about `enabled`.
    pub fn enabled(&self) -> Option<bool> {
        self.enabled
    }

    /// The pauses in their order.
    pub fn pauses(&self) -> &[Duration] {
        &self.pauses
    }

    /// The pause after the `error`-th error in a row, counted from 1; the last repeats.
    pub fn pause(&self, error: u32) -> Duration {
        let index = usize::try_from(error.saturating_sub(1)).unwrap_or(usize::MAX);
        let pause = self.pauses.get(index).or_else(|| self.pauses.last());
        pause.copied().unwrap_or(SHORTEST)
    }

    /// The how-manieth error in a row disables.
    pub fn disable_after(&self) -> u32 {
        self.disable_after
    }

    /// Do transport failures climb too?
    pub fn unreachable(&self) -> bool {
        self.unreachable
    }

    /// Does the console show its test tool?
    pub fn show_test_tool(&self) -> bool {
        self.show_test_tool
    }

    /// After this many successes since its last error, an undirected 429 is the gate's own probing
    /// and no error; 0 is off. Only under `adaptive`.
    pub fn probing_after(&self) -> u32 {
        self.probing_after
    }

    /// Statuses that climb.
    pub fn statuses(&self) -> &[u16] {
        &self.statuses
    }

    /// Phrases that climb.
    pub fn texts(&self) -> &[Box<str>] {
        &self.texts
    }

    /// Is this an error that climbs?
    pub fn climbs(&self, ended: &Ended<'_>) -> bool {
        match ended.trouble {
            None => false,
            Some(Trouble::Failure(_)) => self.unreachable,
            Some(Trouble::Status(status)) if NEVER.contains(&status) => false,
            Some(Trouble::Status(status)) => {
                self.statuses.contains(&status) || self.has_text(ended.text)
            }
            Some(Trouble::Text) => {
                self.status_in(ended.text).is_some() || self.has_text(ended.text)
            }
        }
    }

    /// The listed status that stands in `text` as a whole word: what to go by where no status is
    /// known at all.
    pub fn status_in(&self, text: &str) -> Option<u16> {
        let mut listed = self.statuses.iter().copied();
        listed.find(|status| contains_words(text.as_bytes(), &status.to_string()))
    }

    fn has_text(&self, text: &str) -> bool {
        let texts: Vec<&str> = self.texts.iter().map(AsRef::as_ref).collect();
        first_of(text.as_bytes(), &texts).is_some()
    }

    fn problems(&self) -> Vec<SettingError> {
        let mut problems = Vec::new();
        if self.pauses.is_empty() {
            problems.push(SettingError::new("pauses", "", PAUSES));
        }
        if let Some(&short) = self.pauses.iter().find(|&&pause| pause < SHORTEST) {
            problems.push(SettingError::new("pauses", duration::Exact(short), PAUSES));
        }
        if !(1..=10).contains(&self.disable_after) {
            let expected = "a whole number from 1 to 10";
            problems.push(SettingError::new(
                "disable_after",
                self.disable_after,
                expected,
            ));
        }
        if let Some(&status) = self.statuses.iter().find(|&&status| !may_climb(status)) {
            problems.push(SettingError::new("statuses", status, STATUSES));
        }
        problems
    }
}

impl Default for LadderSettings {
    fn default() -> Self {
        LadderOptions::default()
            .build()
            .expect("the defaults fit together")
    }
}

const DEFAULT_PAUSES: [u64; 5] = [30, 60, 120, 300, 600];
const DEFAULT_STATUSES: [u16; 6] = [429, 500, 502, 503, 504, 529];
const DEFAULT_TEXTS: [&str; 4] = [
    "rate limit",
    "too many requests",
    "quota exceeded",
    "service unavailable",
];

/// These say something about a credential or a resource, never about the endpoint's health.
const NEVER: [u16; 3] = [401, 409, 412];

/// A shorter pause is no pause: the request that was refused is back before anybody noticed.
const SHORTEST: Duration = Duration::from_secs(1);

/// More are not looked at by anyone, and the lists are searched for every error.
const MOST: usize = 100;

/// More successes than this between two errors say nothing more about the endpoint.
const MAX_PROBING_AFTER: u32 = 1_000_000;

const PAUSES: &str = "1 to 100 durations of at least 1s each, such as `30s,60s`";
const STATUSES: &str = "statuses from 400 to 999 without 401, 409 and 412, which never climb";

fn may_climb(status: u16) -> bool {
    (400..=999).contains(&status) && !NEVER.contains(&status)
}

fn pauses(value: &str) -> Result<Vec<Duration>, String> {
    let pauses = list(value)
        .map(duration::parse)
        .collect::<Result<Vec<_>, _>>()?;
    let are_long_enough = pauses.iter().all(|&pause| pause >= SHORTEST);
    if pauses.is_empty() || pauses.len() > MOST || !are_long_enough {
        return Err(PAUSES.to_owned());
    }
    Ok(pauses)
}

fn statuses(value: &str) -> Result<Vec<u16>, String> {
    let read = |part: &str| setting::number(part).filter(|&status| may_climb(status));
    let statuses = list(value).map(read).collect::<Option<Vec<u16>>>();
    statuses
        .filter(|statuses| statuses.len() <= MOST)
        .ok_or_else(|| STATUSES.to_owned())
}

fn texts(value: &str) -> Result<Vec<Box<str>>, String> {
    let texts: Vec<Box<str>> = list(value).map(Into::into).collect();
    if texts.len() > MOST {
        return Err(format!("at most {MOST} texts"));
    }
    Ok(texts)
}

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
    fn every_name_can_be_set() {
        for name in LadderOptions::NAMES {
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
    fn a_value_that_cannot_be_is_refused_with_what_could() {
        let check = |name: &str, value: &str, expected: &str| {
            let error = LadderOptions::default().set(name, value).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{name}` is `{value}`, expected {expected}")
            );
        };
        for value in ["", "[]", "0s", "30s,999ms"] {
            check("pauses", value, PAUSES);
        }
        check(
            "pauses",
            "30",
            "a number with a unit such as `500ms`, `30s` or `5m`",
        );
        for value in ["0", "11", "abc", "-1"] {
            check("disable_after", value, "a whole number from 1 to 10");
        }
        for value in ["401", "409", "412", "200", "1000", "many"] {
            check("statuses", value, STATUSES);
        }
        check("enabled", "on", "`true` or `false`");
        check("pause", "30s", "a known setting; did you mean `pauses`?");
    }

    #[test]
    fn what_was_assigned_without_text_is_judged_too() {
        let options = LadderOptions {
            pauses: Some(vec![Duration::ZERO]),
            disable_after: Some(11),
            statuses: Some(vec![429, 401]),
            ..LadderOptions::default()
        };
        let problems = options.build().unwrap_err();
        let names: Vec<_> = problems.iter().map(|problem| &*problem.setting).collect();
        assert_eq!(names, ["pauses", "disable_after", "statuses"]);
        let options = LadderOptions {
            pauses: Some(Vec::new()),
            ..LadderOptions::default()
        };
        assert_eq!(options.build().unwrap_err().len(), 1);
    }

    #[test]
    fn one_endpoint_alone_is_protected_only_if_asked_for() {
        assert!(!LadderSettings::default().protects(1));
        assert!(LadderSettings::default().protects(2));
        assert!(settings(&[("enabled", "true")]).protects(1));
        assert!(!settings(&[("enabled", "false")]).protects(2));
    }

    #[test]
    fn exactly_the_listed_statuses_climb() {
        let defaults = LadderSettings::default();
        for status in 400..=999 {
            let climbs = defaults.climbs(&Ended::status(status));
            assert_eq!(climbs, DEFAULT_STATUSES.contains(&status), "{status}");
        }
        let own = settings(&[("statuses", "418")]);
        assert!(own.climbs(&Ended::status(418)));
        assert!(!own.climbs(&Ended::status(429)));
        assert!(!settings(&[("statuses", "")]).climbs(&Ended::status(429)));
    }

    #[test]
    fn exactly_the_listed_texts_climb_as_whole_words_in_any_case() {
        let check = |text: &str, climbs: bool| {
            let ended = Ended::answered(400, Some(Verdict::Rejected), text, &Hint::default());
            assert_eq!(LadderSettings::default().climbs(&ended), climbs, "{text}");
            let ended = Ended::message(text);
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
    fn a_status_in_a_text_counts_only_where_no_status_is_known() {
        let defaults = LadderSettings::default();
        for text in ["HTTP 429", "429 Too Many Requests", "status=502;"] {
            assert!(defaults.climbs(&Ended::message(text)), "{text}");
        }
        for text in [
            "took 502ms then socket reset",
            "id 15042991",
            "HTTP 401",
            "404",
        ] {
            assert!(!defaults.climbs(&Ended::message(text)), "{text}");
        }
        let known = Ended::answered(400, Some(Verdict::Rejected), "HTTP 429", &Hint::default());
        assert!(!defaults.climbs(&known));
    }

    #[test]
    fn three_statuses_never_climb_whatever_the_text_says() {
        for (status, verdict) in [
            (401, Verdict::Unauthorized),
            (409, Verdict::Conflict),
            (412, Verdict::Conflict),
        ] {
            let ended = Ended::answered(status, Some(verdict), "rate limit", &Hint::default());
            assert!(!LadderSettings::default().climbs(&ended));
        }
    }

    #[test]
    fn transport_failures_climb_only_if_asked_for() {
        let failed = Ended::failure(Failure::Connect, "service unavailable");
        assert!(!LadderSettings::default().climbs(&failed));
        assert!(settings(&[("unreachable", "true")]).climbs(&failed));
    }

    #[test]
    fn the_last_pause_repeats() {
        let defaults = LadderSettings::default();
        let pauses: Vec<u64> = [1, 2, 3, 4, 5, 6, u32::MAX]
            .map(|error| defaults.pause(error).as_secs())
            .into();
        assert_eq!(pauses, [30, 60, 120, 300, 600, 600, 600]);
    }
}
