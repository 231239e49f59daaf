//! The growing pauses of an endpoint, and when it is disabled.
//!
//! A gate paces one upstream; a ladder takes an endpoint out of its pool for a while, so that the
//! other endpoints do the work. Each counted error pauses it for longer than the one before, and
//! `disable_after` consecutive errors disable it until a person enables it.
//!
//! Responses arrive late and in any order, so every attempt carries the [epoch](Ladder::epoch) it
//! started in, and every pause starts a new one. Ten refusals of one burst are one step, a success
//! of a request sent before the pause does not end it, and requests sent before a person enabled
//! the endpoint cannot disable it again. Results of an older epoch change nothing, not even the
//! last error.
//!
//! Edge cases: an endpoint is usable at the instant its pause ends. The count stays until a success
//! or a person clears it, so the next error takes the next step. The last pause of the list
//! repeats. A wait that the server names replaces the step, but a pause never gets shorter.

mod result;
mod settings;

use std::time::Duration;

pub use result::{EndpointError, EndpointResult};
pub use settings::{LadderOptions, LadderSettings};

use crate::duration::Rounded;
use crate::hint::Source;
use crate::outcome::Verdict;
use crate::time::Timestamp;

/// The error state of one endpoint.
///
/// ```
/// use tidegate_policy::ladder::{EndpointResult, Ladder, LadderSettings};
/// use tidegate_policy::time::Timestamp;
///
/// let settings = LadderSettings::default();
/// let mut ladder = Ladder::new();
/// let epoch = ladder.epoch();
/// ladder.settle(&settings, epoch, &EndpointResult::status(429), Timestamp::ZERO);
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
    paused_since: Option<Since>,
    last_error: Option<Box<str>>,
    disabled: Option<Disabled>,
    disabled_since: Option<Since>,
}

/// The start of something that may have begun before the clock's origin, as after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Since {
    at: Timestamp,
    /// How long it had lasted at `at`.
    before: Duration,
}

impl Since {
    const fn new(at: Timestamp) -> Self {
        Self {
            at,
            before: Duration::ZERO,
        }
    }

    fn elapsed(self, now: Timestamp) -> Duration {
        self.before.saturating_add(now.since(self.at))
    }
}

/// Why an endpoint is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// This many consecutive errors.
    Errors(u32),
    /// The server says that a quota is used up.
    QuotaExhausted,
    /// The last of too many consecutive errors was that its credential is rejected.
    CredentialRejected,
    /// A person disabled it.
    Person,
}

impl Disabled {
    /// The name in logs and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Errors(_) => "errors",
            Self::QuotaExhausted => "quota_exhausted",
            Self::CredentialRejected => "credential_rejected",
            Self::Person => "person",
        }
    }
}

/// What a result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderStep {
    /// Nothing: the attempt started in an older epoch.
    Late,
    /// Nothing: a success with nothing to clear or on a disabled endpoint, or a 1xx.
    Unchanged,
    /// A success cleared the pause, the count and the last error.
    Cleared,
    /// An error that does not count: only the last error changed.
    NotCounted,
    /// The gate's own probing, not an error: only the last error changed, and a new epoch started.
    Probed,
    /// An error that counted: the endpoint is paused.
    Paused {
        /// The remaining pause.
        pause: Duration,
        /// Which hint the pause comes from; `assumed` for a step of the ladder.
        source: Source,
    },
    /// The last of `disable_after` consecutive errors: the endpoint is paused, and disabled until a
    /// person enables it.
    DisabledByErrors {
        /// The remaining pause.
        pause: Duration,
        /// Which hint the pause comes from; `assumed` for a step of the ladder.
        source: Source,
    },
    /// A quota is used up: the endpoint is disabled until a person enables it.
    DisabledByQuota,
}

impl Ladder {
    /// A ladder without errors.
    pub const fn new() -> Self {
        Self {
            epoch: 0,
            consecutive_errors: 0,
            successes: 0,
            paused_until: None,
            paused_since: None,
            last_error: None,
            disabled: None,
            disabled_since: None,
        }
    }

    /// The epoch for an attempt that starts now.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Applies the result of an attempt that started in `epoch`.
    pub fn settle(
        &mut self,
        settings: &LadderSettings,
        epoch: u32,
        result: &EndpointResult<'_>,
        now: Timestamp,
    ) -> LadderStep {
        let is_success = result.verdict == Some(Verdict::Success);
        if is_success && (epoch == self.epoch || self.consecutive_errors == 0) {
            // Successes of requests sent before the last probe also show that the endpoint accepts
            // work.
            self.successes = self.successes.saturating_add(1);
        }
        if epoch != self.epoch {
            return LadderStep::Late;
        }
        match result.verdict {
            Some(Verdict::Success) => self.succeed(),
            None if result.error.is_none() => LadderStep::Unchanged,
            _ => self.fail(settings, result, now),
        }
    }

    fn succeed(&mut self) -> LadderStep {
        let has_errors = self.consecutive_errors > 0 || self.last_error.is_some();
        if self.disabled.is_some() || !has_errors {
            return LadderStep::Unchanged;
        }
        self.clear();
        LadderStep::Cleared
    }

    fn fail(
        &mut self,
        settings: &LadderSettings,
        result: &EndpointResult<'_>,
        now: Timestamp,
    ) -> LadderStep {
        self.last_error = Some(result.summary());
        let successes = std::mem::take(&mut self.successes);
        if result.verdict == Some(Verdict::QuotaExhausted) {
            self.epoch = self.epoch.wrapping_add(1);
            self.set_disabled(Disabled::QuotaExhausted, now);
            return LadderStep::DisabledByQuota;
        }
        if !result.is_credential_rejected && !settings.climbs(result) {
            return LadderStep::NotCounted;
        }
        if settings.is_probing(result, successes) {
            // The other refusals of the same burst are not errors either.
            self.epoch = self.epoch.wrapping_add(1);
            return LadderStep::Probed;
        }
        self.climb(settings, result, now)
    }

    fn climb(
        &mut self,
        settings: &LadderSettings,
        result: &EndpointResult<'_>,
        now: Timestamp,
    ) -> LadderStep {
        self.epoch = self.epoch.wrapping_add(1);
        self.consecutive_errors = self.consecutive_errors.saturating_add(1);
        let step = settings.pause(self.consecutive_errors);
        let (pause, source) = result.wait.unwrap_or((step, Source::Assumed));
        // A pause never gets shorter, even if an attempt made during it names a shorter one.
        let until = self.paused_until.unwrap_or(now).max(now + pause);
        self.paused_until = Some(until);
        self.paused_since = Some(Since::new(now));
        let pause = until.since(now);
        if self.consecutive_errors < settings.disable_after() {
            return LadderStep::Paused { pause, source };
        }
        let why = match result.is_credential_rejected {
            true => Disabled::CredentialRejected,
            false => Disabled::Errors(self.consecutive_errors),
        };
        self.set_disabled(why, now);
        LadderStep::DisabledByErrors { pause, source }
    }

    /// Enables the endpoint on behalf of a person: clears all error state, and results of requests
    /// in flight no longer count.
    pub fn enable(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.disabled = None;
        self.disabled_since = None;
        self.clear();
    }

    /// Disables the endpoint until a person enables it. Results of requests in flight no longer
    /// count; the error state stays visible.
    pub fn disable(&mut self, now: Timestamp) {
        self.epoch = self.epoch.wrapping_add(1);
        self.set_disabled(Disabled::Person, now);
    }

    /// A further reason replaces the one before; the endpoint has been disabled since the first.
    fn set_disabled(&mut self, why: Disabled, now: Timestamp) {
        self.disabled = Some(why);
        self.disabled_since.get_or_insert_with(|| Since::new(now));
    }

    fn clear(&mut self) {
        self.consecutive_errors = 0;
        self.paused_until = None;
        self.paused_since = None;
        self.last_error = None;
    }

    /// Whether it is not disabled. It may still be paused.
    pub fn is_enabled(&self) -> bool {
        self.disabled.is_none()
    }

    /// Why it is disabled, if it is.
    pub fn disabled(&self) -> Option<Disabled> {
        self.disabled
    }

    /// Whether it is paused at `now`. It no longer is at the instant its pause ends.
    pub fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// The end of the last pause, kept after it has passed until a success or a person clears it.
    pub fn paused_until(&self) -> Option<Timestamp> {
        self.paused_until
    }

    /// How long ago the last pause started; `None` if there is none, or that is not known.
    pub fn paused_for(&self, now: Timestamp) -> Option<Duration> {
        self.paused_since.map(|since| since.elapsed(now))
    }

    /// How long it has been disabled; `None` if it is not, or that is not known.
    pub fn disabled_for(&self, now: Timestamp) -> Option<Duration> {
        self.disabled_since.map(|since| since.elapsed(now))
    }

    /// The remaining pause; zero if there is none.
    pub fn remaining(&self, now: Timestamp) -> Duration {
        self.paused_until
            .map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Counted errors since the last success.
    pub fn consecutive_errors(&self) -> u32 {
        self.consecutive_errors
    }

    /// Whether it was paused and has not succeeded since.
    pub fn is_recovering(&self, now: Timestamp) -> bool {
        self.is_enabled() && self.consecutive_errors > 0 && !self.is_paused(now)
    }

    /// Whether it has no error, is neither paused nor disabled, and a success would change nothing
    /// but the number of successes.
    pub fn is_clear(&self) -> bool {
        let is_usable = self.disabled.is_none() && self.paused_until.is_none();
        is_usable && self.consecutive_errors == 0 && self.last_error.is_none()
    }

    /// Counts successes of attempts that ended while it was [clear](Self::is_clear).
    pub(crate) fn count_successes(&mut self, count: u32) {
        self.successes = self.successes.saturating_add(count);
    }

    /// The last error for display: its text, or its status.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Why it cannot be used, as a sentence; `None` if it can.
    pub fn describe(&self, now: Timestamp) -> Option<String> {
        let last = self.last_error().unwrap_or("no error");
        match self.disabled {
            Some(Disabled::Errors(1)) => Some(format!("disabled after one error ({last})")),
            Some(Disabled::Errors(count)) => {
                Some(format!("disabled after {count} errors in a row ({last})"))
            }
            Some(Disabled::QuotaExhausted) => {
                Some(format!("disabled: the quota is used up ({last})"))
            }
            Some(Disabled::CredentialRejected) => Some(format!("disabled ({last})")),
            Some(Disabled::Person) => Some("disabled by a person".to_owned()),
            None if self.is_paused(now) => Some(format!(
                "paused for {} more ({last})",
                Rounded(self.remaining(now))
            )),
            None => None,
        }
    }
}

/// A ladder as it is stored: durations instead of instants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadderRecord {
    /// Counted errors since the last success.
    pub consecutive_errors: u32,
    /// The remaining pause; zero if it has ended, `None` if there is none.
    pub pause: Option<Duration>,
    /// How long ago the pause started, if that is known.
    pub paused_for: Option<Duration>,
    /// The last error for display.
    pub last_error: Option<Box<str>>,
    /// Why it is disabled, if it is.
    pub disabled: Option<Disabled>,
    /// How long it has been disabled, if that is known.
    pub disabled_for: Option<Duration>,
}

impl Ladder {
    /// The state to persist.
    pub fn record(&self, now: Timestamp) -> LadderRecord {
        LadderRecord {
            consecutive_errors: self.consecutive_errors,
            pause: self.paused_until.map(|until| until.since(now)),
            paused_for: self.paused_for(now),
            last_error: self.last_error.clone(),
            disabled: self.disabled,
            disabled_for: self.disabled_for(now),
        }
    }

    /// Takes the state that another node has written, which begins an epoch. Returns whether it differs
    /// in more than a second of a pause.
    pub fn adopt(&mut self, record: LadderRecord, now: Timestamp) -> bool {
        let new = Self::restore(record, now);
        let ends = (self.paused_until, new.paused_until);
        let is_same_pause = match ends {
            (Some(one), Some(other)) => one.since(other).max(other.since(one)) < SAME_PAUSE,
            (None, None) => true,
            // One that has ended is none.
            (Some(end), None) | (None, Some(end)) => end <= now,
        };
        let is_same = is_same_pause
            && self.consecutive_errors == new.consecutive_errors
            && self.disabled == new.disabled;
        if is_same {
            self.last_error = new.last_error;
            return false;
        }
        let epoch = self.epoch.wrapping_add(1);
        *self = Self { epoch, ..new };
        true
    }

    /// Restores a ladder. Epochs and the count of successes start at zero, because no attempt
    /// survives a restart.
    pub fn restore(record: LadderRecord, now: Timestamp) -> Self {
        let since = |before| Since { at: now, before };
        Self {
            epoch: 0,
            consecutive_errors: record.consecutive_errors,
            successes: 0,
            paused_until: record.pause.map(|left| now + left),
            paused_since: record.paused_for.map(since),
            last_error: record.last_error,
            disabled: record.disabled,
            disabled_since: record.disabled_for.map(since),
        }
    }
}

/// Clocks are read one after the other, and times are stored in milliseconds.
const SAME_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
