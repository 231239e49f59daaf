//! The decisions about a call, step by step, for headers, logs, consoles and `explain`.

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
/// It holds at most [`Trail::MAX_STEPS`] steps: the first ones, and the last two, which show how
/// the call ended. Steps left out in between are counted. Its `Debug` is the list of decisions in
/// words, because programs that print an error often print it so.
#[derive(Clone, Default, PartialEq)]
pub struct Trail {
    steps: Vec<TrailStep>,
    left_out: u32,
    /// In nanoseconds, which is smaller than a [`Duration`]: results hold a trail.
    waited: u64,
}

impl Trail {
    /// A call with more steps only repeats itself.
    pub const MAX_STEPS: usize = 100;

    /// The recorded steps.
    pub fn steps(&self) -> &[TrailStep] {
        &self.steps
    }

    /// The number of steps left out before the last two.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// Time spent waiting in lines and between attempts, including steps that were left out.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    /// How the call ended, for messages: ` after 5 attempts (exhausted)`. Empty if it did not end.
    #[cfg(any(feature = "reqwest", feature = "tower"))]
    pub(crate) fn ending(&self) -> String {
        let Some(CallDecision::Over { reason }) = self.steps.last().map(|step| &step.decision)
        else {
            return String::new();
        };
        let is_attempt = |step: &&TrailStep| matches!(step.decision, CallDecision::Settled { .. });
        match self.steps.iter().filter(is_attempt).count() {
            // Attempts may be among the steps that were left out.
            _ if self.left_out > 0 => format!(" ({reason})"),
            0 => format!(" ({reason}: never sent)"),
            1 => format!(" after 1 attempt ({reason})"),
            attempts => format!(" after {attempts} attempts ({reason})"),
        }
    }

    pub(super) fn push(&mut self, at: Timestamp, decision: CallDecision) {
        let in_line = match (&decision, self.steps.last()) {
            (CallDecision::Refused { .. }, Some(last)) if last.is_waiting() => at.since(last.at),
            _ => decision.waited(),
        };
        let in_line = u64::try_from(in_line.as_nanos()).unwrap_or(u64::MAX);
        self.waited = self.waited.saturating_add(in_line);
        if self.steps.len() == Self::MAX_STEPS {
            self.steps.remove(Self::MAX_STEPS - 2);
            self.left_out = self.left_out.saturating_add(1);
        }
        if self.steps.is_empty() {
            // Most calls are admitted and answered, and nothing else.
            self.steps = Vec::with_capacity(2);
        }
        self.steps.push(TrailStep { at, decision });
    }
}

// Not derived: every error of a call has a trail, and all fields of its steps fill a page.
impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.steps.iter().map(|step| step.decision.to_string());
        f.debug_list().entries(words).finish()
    }
}

/// One decision and its time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrailStep {
    /// The time on the limiter's clock.
    pub at: Timestamp,
    /// The decision.
    pub decision: CallDecision,
}

/// A decision about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallDecision {
    /// It waited in a gate's line or for an endpoint of a pool. Recorded once per ask.
    Waiting {
        /// The gate or pool.
        key: Arc<str>,
        /// Why.
        reason: RefusalReason,
        /// When it would leave, as estimated at the time.
        until: Option<Timestamp>,
    },
    /// It was admitted.
    Admitted {
        /// The gate.
        key: Arc<str>,
        /// How long it waited.
        waited: Duration,
    },
    /// It was refused.
    Refused {
        /// The gate or pool.
        key: Arc<str>,
        /// Why.
        reason: RefusalReason,
        /// When asking again may help.
        until: Option<Timestamp>,
    },
    /// It was sent, and the server responded or the attempt failed.
    Settled {
        /// The status, or the transport failure.
        response: UpstreamResponse,
        /// The class of the outcome.
        verdict: Option<Verdict>,
        /// From sending to the head of the response, or to the failure.
        latency: Duration,
    },
    /// It was sent a second time beside the first attempt, see [`Call::hedge`](super::Call::hedge).
    Hedged {
        /// The gate of the second attempt.
        key: Arc<str>,
        /// How long after the first.
        after: Duration,
    },
    /// One of two attempts was dropped, because the other was answered first.
    Overtaken {
        /// The gate of the dropped attempt.
        key: Arc<str>,
        /// How long it had been running.
        after: Duration,
    },
    /// It was admitted but not sent, see [`AttemptResult::unsent`](super::AttemptResult::unsent).
    Unsent,
    /// It will be resent.
    Scheduled {
        /// When.
        until: Timestamp,
        /// The delay from now.
        delay: Duration,
        /// Where the delay comes from.
        source: DelaySource,
        /// Why it has to be resent.
        reason: ResendReason,
    },
    /// Its credential was refreshed, or the refresh failed.
    Refreshed {
        /// Whether the refresh succeeded.
        succeeded: bool,
    },
    /// It will not be resent.
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
    /// The wait that this step reports or schedules.
    fn waited(&self) -> Duration {
        match self {
            Self::Admitted { waited, .. } => *waited,
            Self::Scheduled { delay, .. } => *delay,
            Self::Waiting { .. }
            | Self::Refused { .. }
            | Self::Settled { .. }
            | Self::Hedged { .. }
            | Self::Overtaken { .. }
            | Self::Unsent
            | Self::Refreshed { .. }
            | Self::Over { .. } => Duration::ZERO,
        }
    }
}

/// A wait too short to notice reads as none; rounded up it would read as a second.
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
            Self::Settled {
                response, verdict, ..
            } => {
                match response {
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
            Self::Hedged { key, after } => {
                let after = after.as_millis();
                write!(f, "no response after {after} ms, sent to `{key}` too")
            }
            Self::Overtaken { key, after } => {
                let after = after.as_millis();
                write!(
                    f,
                    "attempt at `{key}` dropped after {after} ms: the other was first"
                )
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
    fn long_trail_keeps_first_and_last_steps_and_total_wait() {
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

    #[test]
    fn debug_output_is_a_list_of_decisions_in_words() {
        let mut trail = Trail::default();
        trail.push(Timestamp::ZERO, admitted(Duration::ZERO));
        let reason = TerminalReason::Expired;
        trail.push(Timestamp::ZERO, CallDecision::Over { reason });
        let words = r#"["admitted by `api.example.com` at once", "over: expired"]"#;
        assert_eq!(format!("{trail:?}"), words);
    }
}
