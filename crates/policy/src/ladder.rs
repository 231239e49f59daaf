//! The growing pauses of an endpoint, and the point at which only a person can help.
//!
//! A gate paces one upstream; a ladder takes an endpoint out of its pool for a while, so that the
//! others do the work. Each error that climbs pauses for longer than the one before, and after
//! `disable_after` of them in a row the endpoint is disabled: whoever owns it has to look.
//!
//! Answers come late and in any order, so every attempt carries the [epoch](Ladder::epoch) it
//! started in, and every pause begins a new one. Ten refusals of one burst are one step, a
//! success that was under way when the pause began does not end it, and what was sent before a
//! person enabled the endpoint cannot disable it again. Results of an older epoch change nothing
//! at all, not even the last error.
//!
//! At the edges: an endpoint is free at the very instant its pause ends; the count stays until a
//! success or a person clears it, so the next error goes on where the last one stopped; the last
//! pause repeats past the end of the list; a wait that the server names replaces the step, however
//! long or short it is.

mod ended;
mod record;
mod settings;

use std::time::Duration;

pub use ended::{Ended, Trouble};
pub use record::LadderRecord;
pub use settings::{LadderOptions, LadderSettings};

use crate::duration::Rounded;
use crate::hint::Source;
use crate::outcome::Verdict;
use crate::time::Timestamp;

/// What is kept about the errors of one endpoint.
///
/// ```
/// use policy::ladder::{Ended, Ladder, LadderSettings};
/// use policy::time::Timestamp;
///
/// let settings = LadderSettings::default();
/// let mut ladder = Ladder::new();
/// let epoch = ladder.epoch();
/// ladder.settle(&settings, epoch, &Ended::status(429), Timestamp::ZERO);
/// assert!(ladder.is_paused(Timestamp::from_secs(29)));
/// assert!(!ladder.is_paused(Timestamp::from_secs(30)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    epoch: u32,
    consecutive_errors: u32,
    /// Successes since the last error.
    successes: u32,
    paused_until: Option<Timestamp>,
    last_error: Option<Box<str>>,
    disabled: Option<Disabled>,
}

/// Why an endpoint is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// So many errors came in a row.
    Errors(u32),
    /// Its server says that an allowance is used up.
    QuotaExhausted,
    /// A person switched it off.
    Person,
}

impl Disabled {
    /// The word for it in logs and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Errors(_) => "errors",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Person => "person",
        }
    }
}

/// What a result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it was sent before the present epoch began.
    Late,
    /// Nothing: there was nothing to clear, the endpoint is disabled, or no answer came that says
    /// anything.
    Unchanged,
    /// A success cleared pause, count and last error.
    Cleared,
    /// An error that does not climb: only the last error changed.
    Noted,
    /// The gate asked for more than the limit, as `adaptive` does to find it: only the last error
    /// changed, and responses to what was sent before no longer count.
    Probed,
    /// An error climbed: a pause began.
    Paused {
        /// How long it lasts.
        pause: Duration,
        /// Who named it; `assumed` for a step of the ladder.
        source: Source,
    },
    /// An error climbed for the last time: a pause began, and only a person ends this.
    DisabledByErrors {
        /// How long the pause lasts.
        pause: Duration,
        /// Who named it; `assumed` for a step of the ladder.
        source: Source,
    },
    /// An allowance is used up: only a person ends this.
    DisabledByQuota,
}

impl Ladder {
    /// An endpoint that has had no error.
    pub const fn new() -> Self {
        Self {
            epoch: 0,
            consecutive_errors: 0,
            successes: 0,
            paused_until: None,
            last_error: None,
            disabled: None,
        }
    }

    /// The epoch that an attempt started now carries.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Tells how an attempt ended that started in `epoch`.
    pub fn settle(
        &mut self,
        settings: &LadderSettings,
        epoch: u32,
        ended: &Ended<'_>,
        now: Timestamp,
    ) -> Step {
        let is_success = ended.verdict == Some(Verdict::Success);
        if is_success && (epoch == self.epoch || self.consecutive_errors == 0) {
            // Also of those sent before the last probe: that the endpoint took them is no less
            // true.
            self.successes = self.successes.saturating_add(1);
        }
        if epoch != self.epoch {
            return Step::Late;
        }
        match ended.verdict {
            Some(Verdict::Success) => self.succeed(),
            None if ended.trouble.is_none() => Step::Unchanged,
            _ => self.fail(settings, ended, now),
        }
    }

    fn succeed(&mut self) -> Step {
        let is_clear = self.consecutive_errors == 0 && self.last_error.is_none();
        if self.disabled.is_some() || is_clear {
            return Step::Unchanged;
        }
        self.clear();
        Step::Cleared
    }

    fn fail(&mut self, settings: &LadderSettings, ended: &Ended<'_>, now: Timestamp) -> Step {
        self.last_error = Some(ended.shown());
        let successes = std::mem::take(&mut self.successes);
        if ended.verdict == Some(Verdict::QuotaExhausted) {
            self.epoch = self.epoch.wrapping_add(1);
            self.disabled = Some(Disabled::QuotaExhausted);
            return Step::DisabledByQuota;
        }
        if !settings.climbs(ended) {
            return Step::Noted;
        }
        if settings.is_probing(ended, successes) {
            // The other refusals of the same burst are no errors either.
            self.epoch = self.epoch.wrapping_add(1);
            return Step::Probed;
        }
        self.climb(settings, ended.wait, now)
    }

    fn climb(
        &mut self,
        settings: &LadderSettings,
        told: Option<(Duration, Source)>,
        now: Timestamp,
    ) -> Step {
        self.epoch = self.epoch.wrapping_add(1);
        self.consecutive_errors = self.consecutive_errors.saturating_add(1);
        let step = settings.pause(self.consecutive_errors);
        let (pause, source) = told.unwrap_or((step, Source::Assumed));
        // A pause only ever grows, also if an attempt made during it names a shorter one.
        let until = self.paused_until.unwrap_or(now).max(now + pause);
        self.paused_until = Some(until);
        let pause = until.since(now);
        if self.consecutive_errors < settings.disable_after() {
            return Step::Paused { pause, source };
        }
        self.disabled = Some(Disabled::Errors(self.consecutive_errors));
        Step::DisabledByErrors { pause, source }
    }

    /// A person enables the endpoint: all error state is cleared, and what is still under way no
    /// longer counts.
    pub fn enable(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.disabled = None;
        self.clear();
    }

    /// A person disables the endpoint: it stays so until a person enables it, and what is still
    /// under way no longer counts. What is known of its errors stays visible.
    pub fn disable(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.disabled = Some(Disabled::Person);
    }

    fn clear(&mut self) {
        self.consecutive_errors = 0;
        self.paused_until = None;
        self.last_error = None;
    }

    /// May it be used, pauses aside?
    pub fn is_enabled(&self) -> bool {
        self.disabled.is_none()
    }

    /// Why it is disabled, if it is.
    pub fn disabled(&self) -> Option<Disabled> {
        self.disabled
    }

    /// Is it paused at `now`? At the end of its pause it no longer is.
    pub fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// The end of the last pause, also when it has passed, until a success or a person clears it.
    pub fn paused_until(&self) -> Option<Timestamp> {
        self.paused_until
    }

    /// What is left of the pause; zero if there is none.
    pub fn remaining(&self, now: Timestamp) -> Duration {
        self.paused_until
            .map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Errors that climbed since the last success.
    pub fn consecutive_errors(&self) -> u32 {
        self.consecutive_errors
    }

    /// Has it been paused, and not succeeded since?
    pub fn is_recovering(&self, now: Timestamp) -> bool {
        self.is_enabled() && self.consecutive_errors > 0 && !self.is_paused(now)
    }

    /// The last error, for people: its text, or its status.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Why it cannot be used, for people; `None` if it can.
    pub fn describe(&self, now: Timestamp) -> Option<String> {
        let last = self.last_error().unwrap_or("no error");
        match self.disabled {
            Some(Disabled::Errors(1)) => Some(format!("disabled after one error ({last})")),
            Some(Disabled::Errors(count)) => {
                Some(format!("disabled after {count} errors in a row ({last})"))
            }
            Some(Disabled::QuotaExhausted) => {
                Some(format!("disabled: an allowance is used up ({last})"))
            }
            Some(Disabled::Person) => Some("disabled by a person".to_owned()),
            None if self.is_paused(now) => Some(format!(
                "paused for {} more ({last})",
                Rounded(self.remaining(now))
            )),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests;
