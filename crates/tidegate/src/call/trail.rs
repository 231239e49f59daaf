//! What was decided about a call, step by step: for headers, logs, consoles and `explain`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use policy::classify;
use policy::duration::Rounded;
use policy::item::{DelaySource, ResendReason, TerminalReason};
use policy::outcome::{UpstreamResponse, Verdict};
use policy::time::Timestamp;

use crate::pool::RefusalReason;

/// Every decision about one call, in order.
///
/// It has at most [`Trail::MAX_STEPS`] steps: the first ones, and the last two, which say how it
/// ended. Those left out between them are counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trail {
    steps: Vec<TrailStep>,
    left_out: u32,
    waited: Duration,
}

impl Trail {
    /// A call with more steps than this repeats itself.
    pub const MAX_STEPS: usize = 100;

    /// The steps.
    pub fn steps(&self) -> &[TrailStep] {
        &self.steps
    }

    /// How many steps are missing before the last two.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// Time spent waiting in lines and between attempts, also in steps that are left out.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    pub(super) fn push(&mut self, at: Timestamp, decision: CallDecision) {
        let in_line = match (&decision, self.steps.last()) {
            (CallDecision::Refused { .. }, Some(last)) if last.is_waiting() => at.since(last.at),
            _ => decision.waited(),
        };
        self.waited = self.waited.saturating_add(in_line);
        if self.steps.len() == Self::MAX_STEPS {
            self.steps.remove(Self::MAX_STEPS - 2);
            self.left_out = self.left_out.saturating_add(1);
        }
        if self.steps.is_empty() {
            // Most calls are admitted and answered, and nothing else.
            self.steps.reserve_exact(2);
        }
        self.steps.push(TrailStep { at, decision });
    }
}

/// One decision, and when it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct TrailStep {
    /// When, on the limiter's clock.
    pub at: Timestamp,
    /// What was decided.
    pub decision: CallDecision,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum CallDecision {
    /// It had to wait in the line of a gate, or for an endpoint of a pool; once for each ask.
    Waiting {
        /// Which gate's, or which pool's.
        key: Arc<str>,
        /// Why.
        reason: RefusalReason,
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
        /// Why.
        reason: RefusalReason,
        /// When asking again may help.
        until: Option<Timestamp>,
    },
    /// It was sent, and that came of it.
    Answered {
        /// The status, or the transport failure.
        answer: UpstreamResponse,
        /// The class of that.
        verdict: Option<Verdict>,
        /// From sending to the answer's head, or to the failure.
        latency: Duration,
    },
    /// It was let out and not sent after all: see [`AttemptResult::unsent`](super::AttemptResult::unsent).
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

impl TrailStep {
    fn is_waiting(&self) -> bool {
        matches!(self.decision, CallDecision::Waiting { .. })
    }
}

impl CallDecision {
    /// How long it waited for this, or will have.
    fn waited(&self) -> Duration {
        match self {
            Self::Admitted { waited, .. } => *waited,
            Self::Scheduled { delay, .. } => *delay,
            Self::Waiting { .. }
            | Self::Refused { .. }
            | Self::Answered { .. }
            | Self::Unsent
            | Self::Refreshed { .. }
            | Self::Over { .. } => Duration::ZERO,
        }
    }
}

/// A time too short to notice reads as none: rounded up it would be a second.
fn is_at_once(time: Duration) -> bool {
    time < Duration::from_millis(1)
}

impl fmt::Display for CallDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { key, reason, .. } => write!(f, "waits at `{key}`: {reason}"),
            Self::Admitted { key, waited } if is_at_once(*waited) => {
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
                    UpstreamResponse::Status(status) => write!(f, "HTTP {status}")?,
                    UpstreamResponse::Failed { failure, .. } => {
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
            } => {
                if is_at_once(*delay) {
                    f.write_str("again at once")?;
                } else {
                    write!(f, "again in {}", Rounded(*delay))?;
                }
                write!(f, " by {}: {}", source.as_str(), reason.as_str())
            }
            Self::Refreshed { succeeded: true } => f.write_str("credential refreshed"),
            Self::Refreshed { succeeded: false } => {
                f.write_str("the credential could not be refreshed")
            }
            Self::Over { reason } => write!(f, "over: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(waited: Duration) -> CallDecision {
        let key = "api.example.com".into();
        CallDecision::Admitted { key, waited }
    }

    #[test]
    fn short_times_read_as_at_once_and_others_round_up() {
        let shown = |waited| admitted(waited).to_string();
        let at_once = "admitted by `api.example.com` at once";
        assert_eq!(shown(Duration::ZERO), at_once);
        assert_eq!(shown(Duration::from_micros(999)), at_once);
        let after = "admitted by `api.example.com` after 1s";
        assert_eq!(shown(Duration::from_millis(1)), after);
        assert_eq!(shown(Duration::from_secs(1)), after);
        let again = |delay| {
            let scheduled = CallDecision::Scheduled {
                until: Timestamp::ZERO,
                delay,
                source: DelaySource::Refresh,
                reason: ResendReason::Verdict(Verdict::Unauthorized),
            };
            scheduled.to_string()
        };
        let at_once = "again at once by refresh: unauthorized";
        assert_eq!(again(Duration::ZERO), at_once);
        let later = "again in 2s by refresh: unauthorized";
        assert_eq!(again(Duration::from_millis(1500)), later);
    }

    #[test]
    fn a_long_trail_keeps_its_beginning_its_end_and_all_its_waits() {
        let mut trail = Trail::default();
        for second in 0..Trail::MAX_STEPS as u64 + 50 {
            trail.push(
                Timestamp::from_secs(second),
                admitted(Duration::from_secs(1)),
            );
        }
        assert_eq!(
            (trail.steps().len(), trail.left_out()),
            (Trail::MAX_STEPS, 50)
        );
        let at: Vec<Timestamp> = trail.steps().iter().map(|step| step.at).collect();
        assert_eq!(at[..2], [0, 1].map(Timestamp::from_secs));
        assert_eq!(at[97..], [97, 148, 149].map(Timestamp::from_secs));
        assert_eq!(trail.waited(), Duration::from_secs(150));
    }
}
