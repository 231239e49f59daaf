//! What was decided about a call, step by step: for headers, logs, consoles and `explain`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use policy::classify;
use policy::duration::Rounded;
use policy::item::{DelaySource, ResendReason, TerminalReason};
use policy::outcome::{Answer, Verdict};
use policy::time::Timestamp;

/// Every decision about one call, in order.
///
/// At most [`Trail::MOST`] steps are kept, the first ones; how many came after is counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trail {
    steps: Vec<TrailStep>,
    left_out: u32,
}

impl Trail {
    /// A call with more steps than this repeats itself.
    pub const MOST: usize = 100;

    /// The steps.
    pub fn steps(&self) -> &[TrailStep] {
        &self.steps
    }

    /// How many steps there were beyond [`Trail::MOST`].
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// Time spent waiting in lines and between attempts.
    pub fn waited(&self) -> Duration {
        let waits = self.steps.iter().map(|step| match step.what {
            What::Admitted { waited, .. } => waited,
            What::Scheduled { delay, .. } => delay,
            What::Kept { .. }
            | What::Refused { .. }
            | What::Answered { .. }
            | What::Unsent
            | What::Refreshed { .. }
            | What::Over { .. } => Duration::ZERO,
        });
        waits.fold(Duration::ZERO, Duration::saturating_add)
    }

    pub(super) fn push(&mut self, at: Timestamp, what: What) {
        if self.steps.len() < Self::MOST {
            self.steps.push(TrailStep { at, what });
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }
}

/// One decision, and when it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct TrailStep {
    /// When, on the limiter's clock.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// It had to wait in the line of a gate, or for an endpoint of a pool; told once for each ask.
    Kept {
        /// Which gate's, or which pool's.
        key: Arc<str>,
        /// By what: the word for it.
        reason: &'static str,
        /// When it would leave as things stood then.
        until: Option<Timestamp>,
    },
    /// It was let out.
    Admitted {
        /// By which gate.
        key: Arc<str>,
        /// After waiting this long.
        waited: Duration,
    },
    /// It was not let out.
    Refused {
        /// By which gate or pool.
        key: Arc<str>,
        /// Why: the word for it.
        reason: &'static str,
        /// When asking again may help.
        until: Option<Timestamp>,
    },
    /// It was sent, and that came of it.
    Answered {
        /// The status, or the way in which no answer came.
        answer: Answer,
        /// The class of that.
        verdict: Option<Verdict>,
        /// From sending to the answer's head, or to the failure.
        latency: Duration,
    },
    /// It was let out and not sent after all: see [`Answered::unsent`](super::Answered::unsent).
    Unsent,
    /// It will be sent again.
    Scheduled {
        /// When.
        until: Timestamp,
        /// How long that is from now.
        delay: Duration,
        /// Where the delay comes from.
        source: DelaySource,
        /// Why it has to be sent again.
        reason: ResendReason,
    },
    /// Its credential was refreshed, or could not be.
    Refreshed {
        /// Is it good now?
        succeeded: bool,
    },
    /// It will not be sent again.
    Over {
        /// Why.
        reason: TerminalReason,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept { key, reason, .. } => write!(f, "waits at `{key}`: {reason}"),
            Self::Admitted { key, waited } if waited.is_zero() => {
                write!(f, "admitted by `{key}` at once")
            }
            Self::Admitted { key, waited } => {
                write!(f, "admitted by `{key}` after {}", Rounded(*waited))
            }
            Self::Refused { key, reason, .. } => write!(f, "refused by `{key}`: {reason}"),
            Self::Answered {
                answer, verdict, ..
            } => {
                match answer {
                    Answer::Status(status) => write!(f, "HTTP {status}")?,
                    Answer::Failed { failure, .. } => {
                        write!(f, "{}", classify::failure(*failure).because)?;
                    }
                }
                match verdict {
                    Some(verdict) => write!(f, ", {}", verdict.as_str()),
                    None => Ok(()),
                }
            }
            Self::Unsent => f.write_str("not sent after all"),
            Self::Scheduled {
                delay,
                source,
                reason,
                ..
            } => write!(
                f,
                "again in {} by {}: {}",
                Rounded(*delay),
                source.as_str(),
                reason.as_str()
            ),
            Self::Refreshed { succeeded: true } => f.write_str("credential refreshed"),
            Self::Refreshed { succeeded: false } => {
                f.write_str("the credential could not be refreshed")
            }
            Self::Over { reason } => write!(f, "over: {reason}"),
        }
    }
}
