//! Named backoffs, so that most users choose a name instead of five numbers.
//!
//! All but `crawl` have a jitter of `0.5..1.5` and add up to 5 s to a wait that the server names.
//! That is enough for some hundred items to return one by one at a typical rate limit, and short
//! compared with the waits that servers ask for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::backoff::{BackoffSettings, Growth};
use crate::jitter::{Jitter, RetryAfterJitter};
use crate::setting::Kind;
use crate::suggest::suggestion;

/// A backoff with a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// 1 s doubling up to 30 s, 5 sends: the general-purpose default. It covers a restart or a
    /// failover, which take seconds, and reports anything longer within half a minute.
    #[default]
    Standard,
    /// 500 ms doubling up to 10 s, 5 sends: for a person waiting at a screen, at most about 10 s.
    Aggressive,
    /// 2 s doubling up to 30 s, 5 sends: for upstreams that recover slowly, and for battery-powered
    /// devices.
    Conservative,
    /// 2 s doubling up to 1 min, 7 sends: for background work, where a minute or two
    /// more may make it succeed.
    Background,
    /// 200 ms doubling up to 5 s, 3 sends, full jitter: for one page of thousands. It is not worth
    /// a long wait, and the gate sets the pace.
    Crawl,
}

impl Preset {
    /// All presets, the default first.
    pub const ALL: &'static [Self] = &[
        Self::Standard,
        Self::Aggressive,
        Self::Conservative,
        Self::Background,
        Self::Crawl,
    ];

    /// Its format in settings.
    pub const KIND: Kind = Kind::Choice(&[
        "standard",
        "aggressive",
        "conservative",
        "background",
        "crawl",
    ]);

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Aggressive => "aggressive",
            Self::Conservative => "conservative",
            Self::Background => "background",
            Self::Crawl => "crawl",
        }
    }

    /// What it is for, in one sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Standard => "The default.",
            Self::Aggressive => "For requests that a person waits for.",
            Self::Conservative => "For upstreams that are slow to recover.",
            Self::Background => "For work that no person waits for.",
            Self::Crawl => "For one page of thousands (fetch and jobs).",
        }
    }

    /// Its settings.
    pub fn settings(self) -> BackoffSettings {
        let (base, max, max_attempts) = match self {
            Self::Standard => (1000, 30_000, 5),
            Self::Aggressive => (500, 10_000, 5),
            Self::Conservative => (2000, 30_000, 5),
            Self::Background => (2000, 60_000, 7),
            Self::Crawl => (200, 5000, 3),
        };
        BackoffSettings {
            base: Duration::from_millis(base),
            max: Duration::from_millis(max),
            max_attempts,
            jitter: match self {
                Self::Crawl => Jitter::Full,
                Self::Standard | Self::Aggressive | Self::Conservative | Self::Background => {
                    Jitter::STANDARD
                }
            },
            retry_after_jitter: RetryAfterJitter::UpTo(Duration::from_secs(5)),
            growth: Growth::Exponential,
        }
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL
            .iter()
            .copied()
            .find(|preset| preset.as_str() == name);
        found.ok_or_else(|| UnknownPreset(name.to_owned()))
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name without a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPreset(String);

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Preset::ALL.iter().copied().map(Preset::as_str).collect();
        let name = &self.0;
        match suggestion(name, &names) {
            Some(close) => write!(f, "`{name}` is not a preset; did you mean `{close}`?"),
            None => write!(
                f,
                "`{name}` is not a preset, expected one of {}",
                names.join(", ")
            ),
        }
    }
}

impl std::error::Error for UnknownPreset {}

crate::setting_values!(Preset);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::BackoffOptions;

    #[test]
    fn finds_presets_by_name() {
        for &preset in Preset::ALL {
            assert_eq!(preset.as_str().parse(), Ok(preset));
        }
        let error = |name: &str| name.parse::<Preset>().unwrap_err().to_string();
        assert_eq!(
            error("standart"),
            "`standart` is not a preset; did you mean `standard`?"
        );
        assert_eq!(
            error("x"),
            "`x` is not a preset, expected one of standard, aggressive, conservative, background, crawl"
        );
    }

    #[test]
    fn equals_its_settings_written_out() {
        let numbers = [
            ("1s", "30s", "5", "0.5..1.5"),
            ("500ms", "10s", "5", "0.5..1.5"),
            ("2s", "30s", "5", "0.5..1.5"),
            ("2s", "60s", "7", "0.5..1.5"),
            ("200ms", "5s", "3", "full"),
        ];
        for (preset, (base, max, max_attempts, jitter)) in Preset::ALL.iter().copied().zip(numbers)
        {
            let mut options = BackoffOptions::default();
            for (name, value) in [
                ("base", base),
                ("max", max),
                ("max_attempts", max_attempts),
                ("jitter", jitter),
                ("retry_after_jitter", "5s"),
                ("growth", "exponential"),
            ] {
                options.set(name, value).unwrap();
            }
            assert_eq!(options.build().unwrap(), preset.settings(), "{preset}");
        }
    }
}
