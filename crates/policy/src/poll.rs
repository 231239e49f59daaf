//! Polling a job: when to ask for its status next, and when to stop.
//!
//! The interval depends on the job's progress: a job that has just started will not be done in two
//! seconds. A 429 means that polling itself is too fast; the waits then double up to a maximum, and
//! the first success restores the normal interval. This replaces a gate's undirected reaction: the
//! status of one job is not enough traffic to learn a rate from.
//!
//! Polling ends when the job is done or has failed, when it does not exist, after too many other
//! errors, or after `give_up_after` since the last successful response. A `Retry-After` that ends
//! later than that gives up at once. Giving up is checked first, on every unsuccessful response;
//! only the job's own end takes precedence.
//!
//! Edge cases: exactly `give_up_after` is not yet too long; missing, negative or non-numeric
//! progress counts as 0, and above 100 as late; responses after the end change nothing.

mod notice;
mod settings;

use std::fmt;
use std::time::Duration;

pub use notice::Notice;
pub use settings::{PollOptions, PollSettings};

use crate::time::Timestamp;

/// Polls one job.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_policy::poll::{Poll, PollSettings, PollState, ResponseKind, StatusResponse};
/// use tidegate_policy::time::Timestamp;
///
/// let settings = PollSettings::default();
/// let mut poll = Poll::new(Timestamp::ZERO);
/// let refused = StatusResponse::from(ResponseKind::Throttled { wait: None });
/// let next = poll.after(&settings, &refused, Timestamp::ZERO);
/// assert_eq!(next.state, PollState::Slowed);
/// assert_eq!(next.wait, Some(Duration::from_secs(2)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Poll {
    /// The first request before any success.
    last_success: Timestamp,
    progress: Option<f64>,
    consecutive_429: u32,
    other_errors: u32,
    end: Option<PollState>,
}

/// The response to a status request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatusResponse {
    /// What kind of response it is.
    pub kind: ResponseKind,
    /// What it says about the job; an error may contain it too.
    pub job: Option<JobStatus>,
}

/// The kind of response to a status request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// 2xx or 3xx.
    Success,
    /// 429.
    Throttled {
        /// The wait named by the server.
        wait: Option<Duration>,
    },
    /// 404: the job does not exist.
    NotFound,
    /// Any other error, or no response.
    Failed {
        /// The wait named by the server.
        wait: Option<Duration>,
    },
}

/// The status of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JobStatus {
    /// It is running.
    Running {
        /// In percent; missing counts as 0.
        progress: Option<f64>,
    },
    /// It is done.
    Done,
    /// It failed or was cancelled.
    Failed,
}

/// The state of polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollState {
    /// At the normal interval.
    Polling,
    /// Slower, because of 429s.
    Slowed,
    /// Ended: the job is done.
    Done,
    /// Ended: the job failed or was cancelled, or there were too many other errors.
    Failed,
    /// Ended: no success for too long.
    GaveUp,
    /// Ended: the job does not exist.
    NotFound,
}

impl PollState {
    /// The name in replay, logs and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Slowed => "slowed",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::GaveUp => "gave_up",
            Self::NotFound => "not_found",
        }
    }

    /// Whether polling has ended.
    pub const fn is_end(self) -> bool {
        !matches!(self, Self::Polling | Self::Slowed)
    }
}

/// What to do after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollStep {
    /// The state after the response.
    pub state: PollState,
    /// The wait before the next request; `None` once polling has ended.
    pub wait: Option<Duration>,
    /// Why.
    pub reason: PollReason,
}

/// Why polling waits or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollReason {
    /// Nothing is known about the job yet.
    NoData,
    /// The job is below 30 %.
    Early,
    /// The job is from 30 % to below 70 %.
    Middle,
    /// The job is at 70 % or more.
    Late,
    /// A 429: a step of the ladder.
    Throttled,
    /// The server named a wait longer than our own step.
    Directed,
    /// Another error: one of a few retries.
    Retry,
    /// The job's own status ended it.
    Job,
    /// The job does not exist.
    NotFound,
    /// Too many consecutive other errors.
    Errors,
    /// No success for too long.
    NoSuccess,
    /// The server named a wait that ends after we would give up.
    WaitTooLong,
    /// Polling had already ended.
    Ended,
}

impl fmt::Display for PollReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoData => "nothing is known about the job yet",
            Self::Early => "the job is below 30 %",
            Self::Middle => "the job is from 30 % to below 70 %",
            Self::Late => "the job is at 70 % or more",
            Self::Throttled => "the server refused",
            Self::Directed => "the server named a wait longer than our own",
            Self::Retry => "an error that may pass",
            Self::Job => "the status of the job says so",
            Self::NotFound => "there is no such job",
            Self::Errors => "too many errors in a row",
            Self::NoSuccess => "no success for too long",
            Self::WaitTooLong => "the server asks to wait until after we would give up",
            Self::Ended => "it had already ended",
        })
    }
}

impl Poll {
    /// Starts polling; the first request is sent at `started`.
    pub fn new(started: Timestamp) -> Self {
        Self {
            last_success: started,
            progress: None,
            consecutive_429: 0,
            other_errors: 0,
            end: None,
        }
    }

    /// Applies a response and returns what to do next.
    pub fn after(
        &mut self,
        settings: &PollSettings,
        response: &StatusResponse,
        now: Timestamp,
    ) -> PollStep {
        if let Some(state) = self.end {
            return PollStep {
                state,
                wait: None,
                reason: PollReason::Ended,
            };
        }
        if response.kind == ResponseKind::Success {
            self.last_success = self.last_success.max(now);
            self.consecutive_429 = 0;
            self.other_errors = 0;
        }
        match response.job {
            Some(JobStatus::Done) => return self.finish(PollState::Done, PollReason::Job),
            Some(JobStatus::Failed) => return self.finish(PollState::Failed, PollReason::Job),
            Some(JobStatus::Running { progress }) => self.progress = Some(progress.unwrap_or(0.0)),
            None => {}
        }
        match response.kind {
            ResponseKind::Success => self.stage_interval(settings),
            error => self.after_error(settings, error, now),
        }
    }

    fn after_error(
        &mut self,
        settings: &PollSettings,
        error: ResponseKind,
        now: Timestamp,
    ) -> PollStep {
        let named = self.count(error);
        let latest = self.gives_up_after(settings);
        if now > latest {
            return self.finish(PollState::GaveUp, PollReason::NoSuccess);
        }
        if named.is_some_and(|wait| now + wait > latest) {
            return self.finish(PollState::GaveUp, PollReason::WaitTooLong);
        }
        let (step, reason) = match error {
            ResponseKind::Success | ResponseKind::NotFound => {
                return self.finish(PollState::NotFound, PollReason::NotFound);
            }
            ResponseKind::Throttled { .. } => {
                let step = settings.throttled(self.consecutive_429);
                (step, PollReason::Throttled)
            }
            ResponseKind::Failed { .. } if self.other_errors > settings.other_retries() => {
                return self.finish(PollState::Failed, PollReason::Errors);
            }
            ResponseKind::Failed { .. } => {
                (settings.retry(self.other_errors - 1), PollReason::Retry)
            }
        };
        match named.filter(|&wait| wait > step) {
            Some(wait) => self.wait(wait, PollReason::Directed),
            None => self.wait(step, reason),
        }
    }

    /// Counts an error and returns the wait named by the server.
    fn count(&mut self, error: ResponseKind) -> Option<Duration> {
        match error {
            ResponseKind::Success | ResponseKind::NotFound => None,
            ResponseKind::Throttled { wait } => {
                self.consecutive_429 = self.consecutive_429.saturating_add(1);
                self.other_errors = 0;
                wait
            }
            ResponseKind::Failed { wait } => {
                self.other_errors = self.other_errors.saturating_add(1);
                wait
            }
        }
    }

    fn stage_interval(&self, settings: &PollSettings) -> PollStep {
        match self.progress {
            None => self.wait(settings.first(), PollReason::NoData),
            Some(progress) if progress >= LATE => self.wait(settings.late(), PollReason::Late),
            Some(progress) if progress >= MIDDLE => {
                self.wait(settings.middle(), PollReason::Middle)
            }
            Some(_) => self.wait(settings.early(), PollReason::Early),
        }
    }

    fn wait(&self, wait: Duration, reason: PollReason) -> PollStep {
        PollStep {
            state: self.state(),
            wait: Some(wait),
            reason,
        }
    }

    fn finish(&mut self, state: PollState, reason: PollReason) -> PollStep {
        self.end = Some(state);
        PollStep {
            state,
            wait: None,
            reason,
        }
    }

    /// The latest time at which an unsuccessful response does not yet end polling.
    pub fn gives_up_after(&self, settings: &PollSettings) -> Timestamp {
        self.last_success + settings.give_up_after()
    }

    /// The current state.
    pub fn state(&self) -> PollState {
        match self.end {
            Some(end) => end,
            None if self.consecutive_429 > 0 => PollState::Slowed,
            None => PollState::Polling,
        }
    }

    /// 429s since the last success.
    pub fn consecutive_429(&self) -> u32 {
        self.consecutive_429
    }

    /// Whether to show the slowing-down notice: there were 429s since the last success.
    pub fn banner(&self) -> bool {
        self.consecutive_429 > 0
    }

    /// Other errors since the last success or 429.
    pub fn other_errors(&self) -> u32 {
        self.other_errors
    }

    /// The job's last known progress; it stays visible while polling is slowed.
    pub fn progress(&self) -> Option<f64> {
        self.progress
    }
}

impl From<ResponseKind> for StatusResponse {
    fn from(kind: ResponseKind) -> Self {
        Self { kind, job: None }
    }
}

/// Percentage from which a job is in its middle stage.
const MIDDLE: f64 = 30.0;
/// Percentage from which a job is in its late stage.
const LATE: f64 = 70.0;

#[cfg(test)]
mod tests;
