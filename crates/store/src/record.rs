//! What is stored, as plain records.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::GateRecord;
use policy::hint::Source;
use policy::ladder::{Disabled, LadderOptions, LadderRecord, LadderSettings};
use policy::setting::{SettingError, SettingErrors, Values};
use policy::time::WallTime;
use thiserror::Error;

use crate::error::StoreError;

/// Everything that is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredState {
    /// Gates, by key.
    pub gates: Vec<StoredGate>,
    /// The states of endpoints, by pool and name.
    pub endpoints: Vec<StoredEndpoint>,
    /// How endpoints are protected, by pool. A pool that is missing is as configured.
    pub protections: BTreeMap<String, Protection>,
    /// Endpoints added at run time, in the order in which they were added.
    pub added: Vec<AddedEndpoint>,
    /// Endpoints removed at run time, by pool and name.
    pub removed: Vec<RemovedEndpoint>,
    /// Refresh tokens that replaced configured ones, by credential.
    pub rotated: Vec<RotatedToken>,
    /// Why some refresh tokens could not be read. They stay stored.
    pub unreadable: Vec<StoreError>,
}

/// The record of a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredGate {
    /// What the gate is for.
    pub key: String,
    /// The gate.
    pub record: GateRecord,
    /// When it was written.
    pub at: WallTime,
}

/// The source of a hold, by its name. One that is no longer known still held the gate.
pub(crate) fn source(name: &str) -> Source {
    match name {
        "body" => Source::Body,
        "counted" => Source::Counted,
        name => Source::of_header(name).unwrap_or(Source::Assumed),
    }
}

/// The state of a breaker, by its word.
pub(crate) fn breaker_state(word: &str) -> Option<BreakerState> {
    let states = [
        BreakerState::Closed,
        BreakerState::Open,
        BreakerState::HalfOpen,
        BreakerState::Isolated,
    ];
    states.into_iter().find(|state| state.as_str() == word)
}

/// The state of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEndpoint {
    /// Its pool.
    pub pool: String,
    /// Its name there.
    pub name: String,
    /// Its ladder.
    pub record: LadderRecord,
    /// When it was written.
    pub at: WallTime,
}

/// How the endpoints of a pool are protected: names and values as [`LadderOptions`] takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Values by the names of [`LadderOptions::NAMES`]; one that is missing has its default.
    pub values: BTreeMap<String, String>,
}

impl Protection {
    /// The values of settings. A list is separated by commas, so a phrase with a comma in it comes
    /// back as two.
    pub fn of(settings: &LadderSettings) -> Self {
        let written = settings.written().into_iter();
        Self {
            values: written
                .map(|(name, parts)| (name.to_owned(), parts.join(",")))
                .collect(),
        }
    }

    /// The settings, or everything that is invalid about them: a newer version
    /// may have written what this one does not know.
    pub fn settings(&self) -> Result<LadderSettings, SettingErrors> {
        let mut options = LadderOptions::default();
        let problems: Vec<SettingError> = self
            .values
            .iter()
            .filter_map(|(name, value)| options.set(name, value).err())
            .collect();
        match SettingErrors::of(problems) {
            Some(problems) => Err(problems),
            None => options.build(),
        }
    }
}

/// An endpoint that a person added at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedEndpoint {
    /// Its pool.
    pub pool: String,
    /// Its name there.
    pub name: String,
    /// The base of its requests' URLs. Checked before it is stored: here it is text.
    pub url: String,
    /// Headers that every request gets.
    pub headers: Vec<(String, Reference)>,
}

/// An endpoint of the configuration that a person removed at run time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemovedEndpoint {
    /// Its pool.
    pub pool: String,
    /// Its name there.
    pub name: String,
}

/// What nodes share about pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedPools {
    /// The states of endpoints, by pool and name.
    pub endpoints: Vec<SharedEndpoint>,
    /// As in [`StoredState`].
    pub protections: BTreeMap<String, Protection>,
    /// As in [`StoredState`].
    pub added: Vec<AddedEndpoint>,
    /// As in [`StoredState`].
    pub removed: Vec<RemovedEndpoint>,
}

/// The state of an endpoint that nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedEndpoint {
    /// Its pool.
    pub pool: String,
    /// Its name there.
    pub name: String,
    /// Its ladder.
    pub record: LadderRecord,
    /// How long ago it was written.
    pub age: Duration,
    /// Whether this process wrote it.
    pub is_own: bool,
    /// Another one with every write.
    pub version: u64,
}

impl SharedEndpoint {
    /// As it is stored by one node, whose time is `now`.
    pub fn stored_at(&self, now: WallTime) -> StoredEndpoint {
        StoredEndpoint {
            pool: self.pool.clone(),
            name: self.name.clone(),
            record: self.record.clone(),
            at: WallTime::from_unix_millis(
                now.as_unix_millis()
                    .saturating_sub(i64::try_from(self.age.as_millis()).unwrap_or(i64::MAX)),
            ),
        }
    }
}

/// Why an endpoint is disabled, as it is stored: a word, and the number of errors.
pub(crate) fn disabled_words(disabled: Option<Disabled>) -> (Option<&'static str>, Option<u32>) {
    let errors = match disabled {
        Some(Disabled::Errors(errors)) => Some(errors),
        _ => None,
    };
    (disabled.map(Disabled::as_str), errors)
}

/// Why an endpoint is disabled; `None` for a word that is not known.
pub(crate) fn disabled_of(word: &str, errors: Option<u32>) -> Option<Disabled> {
    let known = [
        Disabled::Errors(errors.unwrap_or(0)),
        Disabled::QuotaExhausted,
        Disabled::CredentialRejected,
        Disabled::Person,
    ];
    known.into_iter().find(|known| known.as_str() == word)
}

/// Headers as one text.
pub(crate) fn headers_to_text(headers: &[(String, Reference)]) -> String {
    let pairs = headers
        .iter()
        .map(|(name, value)| serde_json::json!([name, value.as_str()]));
    serde_json::Value::Array(pairs.collect()).to_string()
}

/// Neither the text nor a value of it is shown: it may be a secret that was put there by hand.
pub(crate) fn headers_from_text(text: &str) -> Result<Vec<(String, Reference)>, String> {
    let pairs: Vec<(String, String)> = serde_json::from_str(text)
        .map_err(|_| "headers are no list of pairs of texts".to_owned())?;
    let read = |(name, value): (String, String)| match value.parse() {
        Ok(reference) => Ok((name, reference)),
        Err(error) => Err(format!("the header `{name}`: {error}")),
    };
    pairs.into_iter().map(read).collect()
}

/// A refresh token that an authorization server issued in place of the configured one.
/// Without it nothing can be refreshed after a restart. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct RotatedToken {
    /// The name of the credential.
    pub credential: String,
    /// The fingerprint of the configuration that the token descends from. The token is of use only
    /// while that is configured.
    pub origin: String,
    /// The token.
    pub token: String,
}

impl fmt::Debug for RotatedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatedToken")
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

/// Where a secret is found: `env:NAME` or `file:PATH`, after a word such as `Bearer` if need be.
/// There is no value of this type that is a secret itself.
///
/// ```
/// use store::Reference;
///
/// let reference: Reference = "Bearer env:KEY_A".parse().unwrap();
/// assert_eq!(reference.as_str(), "Bearer env:KEY_A");
/// assert!("k-123".parse::<Reference>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference(Box<str>);

impl Reference {
    /// As it is written in settings.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let text = text.trim();
        let reference = match text.split_once(' ') {
            Some((word, rest)) if is_scheme(word) => rest.trim_start(),
            _ => text,
        };
        let place = reference
            .strip_prefix("env:")
            .or_else(|| reference.strip_prefix("file:"));
        match place {
            Some(place) if !place.is_empty() => Ok(Self(text.into())),
            _ => Err(InvalidReference),
        }
    }
}

/// The word of an authentication scheme. Anything else before a reference may be half a secret.
fn is_scheme(word: &str) -> bool {
    word.len() <= 16 && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// A value that is not a reference. It is not shown, for it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a secret must not be written out, expected `env:NAME` or `file:PATH`")]
pub struct InvalidReference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_are_taken() {
        for text in [
            "env:KEY",
            "file:/run/secrets/b",
            "Bearer env:KEY",
            " env:K ",
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.as_str(), text.trim());
        }
        for text in [
            "",
            "k-123",
            "env:",
            "file:",
            "Bearer k-123",
            "Bearer",
            "k-123 env:KEY",
            "averyveryverylongword env:KEY",
            "ENV:KEY",
        ] {
            assert_eq!(text.parse::<Reference>(), Err(InvalidReference), "{text}");
        }
    }

    #[test]
    fn protection_comes_back_as_it_was_written() {
        let mut options = LadderOptions::default();
        for (name, value) in [
            ("enabled", "false"),
            ("pauses", "1500ms,60s"),
            ("disable_after", "3"),
            ("unreachable", "true"),
            ("probing_after", "7"),
            ("statuses", "429"),
            ("texts", "slow down,try later"),
        ] {
            options.set(name, value).unwrap();
        }
        let settings = options.build().unwrap();
        let protection = Protection::of(&settings);
        assert_eq!(protection.settings().unwrap(), settings);
        assert_eq!(protection.values["pauses"], "1500ms,60s");
        let defaults = LadderSettings::default();
        assert_eq!(Protection::of(&defaults).settings().unwrap(), defaults);
        assert_eq!(Protection::default().settings().unwrap(), defaults);
    }

    #[test]
    fn reports_all_problems_of_a_protection_at_once() {
        let protection = Protection {
            values: [("disable_after", "99"), ("later", "1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        };
        assert_eq!(protection.settings().unwrap_err().len(), 2);
    }
}
