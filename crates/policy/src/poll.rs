//! Following a job that takes a while: when to ask for its status next, and when to stop.
//!
//! How often to ask follows the job's own progress: a job that has hardly begun will not be done
//! in two seconds. A 429 says that asking itself is too much; the waits then double up to a cap,
//! and the first success brings the usual pace back at once. That is the whole ladder of `poll`:
//! it replaces the undirected reaction of a gate, for one job's status is no traffic to learn a
//! rate from.
//!
//! Polling ends for good: when the job is done or has failed, when it does not exist, when other
//! errors do not stop, or when there was no success for `give_up_after`. That time is counted from
//! the last answer that was a success, and only from real answers: data kept from an earlier one
//! proves nothing. A `Retry-After` that ends later than that is not waited for at all.
//!
//! At the edges: exactly `give_up_after` is not yet too long; a progress that is missing, negative
//! or no number is 0, one above 100 is late; what comes after the end changes nothing.

mod notice;
mod settings;

use std::fmt;
use std::time::Duration;

pub use notice::Notice;
pub use settings::{PollOptions, PollSettings};

use crate::time::Timestamp;

/// One job that is followed.
///
/// ```
/// use std::time::Duration;
///
/// use policy::poll::{Answer, Poll, PollSettings, State, Told};
/// use policy::time::Timestamp;
///
/// let settings = PollSettings::default();
/// let mut poll = Poll::new(Timestamp::ZERO);
/// let told = Told::from(Answer::Throttled { wait: None });
/// let next = poll.answered(&settings, &told, Timestamp::ZERO);
/// assert_eq!(next.state, State::Slowed);
/// assert_eq!(next.wait, Some(Duration::from_secs(2)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Poll {
    /// The last success, before any: the first request.
    alive_at: Timestamp,
    progress: Option<f64>,
    consecutive_429: u32,
    other_errors: u32,
    end: Option<State>,
}

/// What came of one request for the status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// What the server answered.
    pub answer: Answer,
    /// What is known of the job with it, wherever it stands: an answer's body, or data that came
    /// along with an error.
    pub job: Option<Job>,
}

/// A server's answer to a request for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 2xx or 3xx.
    Success,
    /// 429.
    Throttled {
        /// How long the server asks to wait.
        wait: Option<Duration>,
    },
    /// 404: there is no such job.
    NotFound,
    /// Any other error, or no answer at all.
    Failed {
        /// How long the server asks to wait.
        wait: Option<Duration>,
    },
}

/// What is known of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Job {
    /// It goes on.
    Running {
        /// In per cent; missing counts as 0.
        progress: Option<f64>,
    },
    /// It is done.
    Done,
    /// It failed or was cancelled.
    Failed,
}

/// Where the polling of a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// At the usual pace.
    Polling,
    /// Slower, because of 429s.
    Slowed,
    /// Ended: the job is done.
    Done,
    /// Ended: the job failed or was cancelled, or other errors did not stop.
    Failed,
    /// Ended: there was no success for too long.
    GaveUp,
    /// Ended: there is no such job.
    NotFound,
}

impl State {
    /// The word for it in replay, logs and the API.
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

    /// Is nothing asked any more?
    pub const fn is_end(self) -> bool {
        !matches!(self, Self::Polling | Self::Slowed)
    }
}

/// What to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Where it stands.
    pub state: State,
    /// How long to wait before asking again; `None` once it has ended.
    pub wait: Option<Duration>,
    /// Why.
    pub why: Why,
}

/// Why to wait so long, or why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing is known of the job yet.
    NoData,
    /// The job has just begun.
    Early,
    /// The job is somewhere in the middle.
    Middle,
    /// The job is nearly done.
    Late,
    /// The server refused: a step of the ladder.
    Throttled,
    /// The server named a longer wait than our own step.
    Directed,
    /// An error that may pass: one of a few retries.
    Retry,
    /// The job said so itself.
    Job,
    /// There is no such job.
    NotFound,
    /// As many errors in a row as are retried.
    Errors,
    /// No success for too long.
    Silence,
    /// The server asks to wait until after we would have given up.
    TooLongAWait,
    /// It had ended before.
    Ended,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoData => "nothing is known of the job yet",
            Self::Early => "the job is below 30 %",
            Self::Middle => "the job is from 30 % to below 70 %",
            Self::Late => "the job is at 70 % or more",
            Self::Throttled => "the server refused",
            Self::Directed => "the server named a wait longer than our own",
            Self::Retry => "an error that may pass",
            Self::Job => "the job itself says so",
            Self::NotFound => "there is no such job",
            Self::Errors => "too many errors in a row",
            Self::Silence => "no success for too long",
            Self::TooLongAWait => "the server asks to wait until after we would give up",
            Self::Ended => "it ended before",
        })
    }
}

impl Poll {
    /// A job that was first asked for at `started`.
    pub fn new(started: Timestamp) -> Self {
        Self {
            alive_at: started,
            progress: None,
            consecutive_429: 0,
            other_errors: 0,
            end: None,
        }
    }

    /// Takes an answer and says what is next.
    pub fn answered(&mut self, settings: &PollSettings, told: &Told, now: Timestamp) -> Next {
        if let Some(state) = self.end {
            return Next {
                state,
                wait: None,
                why: Why::Ended,
            };
        }
        let is_over = matches!(told.job, Some(Job::Done | Job::Failed));
        // The response that ends the job is not counted as an error, whatever its status.
        let wait = match told.answer {
            Answer::NotFound | Answer::Throttled { .. } | Answer::Failed { .. } if is_over => None,
            answer => self.count(answer, now),
        };
        match told.job {
            Some(Job::Done) => return self.ends(State::Done, Why::Job),
            Some(Job::Failed) => return self.ends(State::Failed, Why::Job),
            Some(Job::Running { progress }) => self.progress = Some(progress.unwrap_or(0.0)),
            None => {}
        }
        if told.answer == Answer::Success {
            return self.usual(settings);
        }
        if self.is_silent(settings, now) {
            return self.ends(State::GaveUp, Why::Silence);
        }
        if wait.is_some_and(|wait| self.is_silent(settings, now + wait)) {
            return self.ends(State::GaveUp, Why::TooLongAWait);
        }
        let (step, why) = match told.answer {
            Answer::Success | Answer::NotFound => {
                return self.ends(State::NotFound, Why::NotFound);
            }
            Answer::Throttled { .. } => (settings.throttled(self.consecutive_429), Why::Throttled),
            Answer::Failed { .. } if self.other_errors > settings.other_retries() => {
                return self.ends(State::Failed, Why::Errors);
            }
            Answer::Failed { .. } => (settings.retry(self.other_errors - 1), Why::Retry),
        };
        match wait.filter(|&wait| wait > step) {
            Some(wait) => self.wait(wait, Why::Directed),
            None => self.wait(step, why),
        }
    }

    /// Counts an answer, and says how long the server asks to wait.
    fn count(&mut self, answer: Answer, now: Timestamp) -> Option<Duration> {
        match answer {
            Answer::Success => {
                self.alive_at = self.alive_at.max(now);
                self.consecutive_429 = 0;
                self.other_errors = 0;
                None
            }
            Answer::NotFound => None,
            Answer::Throttled { wait } => {
                self.consecutive_429 = self.consecutive_429.saturating_add(1);
                self.other_errors = 0;
                wait
            }
            Answer::Failed { wait } => {
                self.other_errors = self.other_errors.saturating_add(1);
                wait
            }
        }
    }

    /// The interval of the job's stage.
    fn usual(&self, settings: &PollSettings) -> Next {
        match self.progress {
            None => self.wait(settings.first(), Why::NoData),
            Some(progress) if progress >= LATE => self.wait(settings.late(), Why::Late),
            Some(progress) if progress >= MIDDLE => self.wait(settings.middle(), Why::Middle),
            Some(_) => self.wait(settings.early(), Why::Early),
        }
    }

    fn wait(&self, wait: Duration, why: Why) -> Next {
        Next {
            state: self.state(),
            wait: Some(wait),
            why,
        }
    }

    fn ends(&mut self, state: State, why: Why) -> Next {
        self.end = Some(state);
        Next {
            state,
            wait: None,
            why,
        }
    }

    /// Would there have been no success for too long at `then`?
    fn is_silent(&self, settings: &PollSettings, then: Timestamp) -> bool {
        then.since(self.alive_at) > settings.give_up_after()
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match self.end {
            Some(end) => end,
            None if self.consecutive_429 > 0 => State::Slowed,
            None => State::Polling,
        }
    }

    /// 429s since the last success.
    pub fn consecutive_429(&self) -> u32 {
        self.consecutive_429
    }

    /// Should people be told that checks are slower? Exactly while there were 429s since the last
    /// success.
    pub fn banner(&self) -> bool {
        self.consecutive_429 > 0
    }

    /// Other errors since the last success or 429.
    pub fn other_errors(&self) -> u32 {
        self.other_errors
    }

    /// The job's progress as last heard of; it stays visible while checks are slower.
    pub fn progress(&self) -> Option<f64> {
        self.progress
    }
}

impl From<Answer> for Told {
    fn from(answer: Answer) -> Self {
        Self { answer, job: None }
    }
}

/// Per cent from which a job is in its middle stage.
const MIDDLE: f64 = 30.0;
/// Per cent from which a job is in its late stage.
const LATE: f64 = 70.0;

#[cfg(test)]
mod tests;
