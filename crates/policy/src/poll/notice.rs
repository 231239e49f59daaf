//! What is worth telling people about a poll, in the words of the log.

use std::fmt;
use std::time::Duration;

use super::{Next, Poll, State};

/// A change that is worth a line in the log. Nothing is while all is normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A 429: the next check comes later.
    RateLimited {
        /// How much later.
        wait: Duration,
        /// The how-manieth 429 in a row it is.
        attempt: u32,
    },
    /// The first success after 429s.
    Recovered,
    /// There was no success for too long.
    GaveUp,
}

impl Notice {
    /// What changed from `before` to `after`, which is the same poll after an answer and `next`.
    pub fn of(before: &Poll, after: &Poll, next: &Next) -> Option<Self> {
        if before.state().is_end() {
            return None;
        }
        let attempt = after.consecutive_429();
        match (next.state, next.wait) {
            (State::GaveUp, _) => Some(Self::GaveUp),
            (_, Some(wait)) if attempt > before.consecutive_429() => {
                Some(Self::RateLimited { wait, attempt })
            }
            _ if before.banner() && !after.banner() => Some(Self::Recovered),
            _ => None,
        }
    }

    /// The name of the log's event.
    pub const fn event(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "poll_rate_limited",
            Self::Recovered => "poll_recovered",
            Self::GaveUp => "poll_gave_up",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited { wait, attempt } => {
                let millis = wait.as_nanos().div_ceil(1_000_000);
                write!(
                    f,
                    "Rate limited. Backing off to {millis}ms. Attempt {attempt}"
                )
            }
            Self::Recovered => f.write_str("Rate limit cleared. Resetting to normal interval."),
            Self::GaveUp => f.write_str("Rate limited for too long. Stopping retries."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{Answer, Job, PollSettings, Told};
    use crate::time::Timestamp;

    #[test]
    fn every_change_is_told_once_and_the_normal_never() {
        let settings = PollSettings::default();
        let mut poll = Poll::new(Timestamp::ZERO);
        let mut said = Vec::new();
        let success = Told {
            answer: Answer::Success,
            job: Some(Job::Running { progress: None }),
        };
        let refused = Told::from(Answer::Throttled { wait: None });
        let failed = Told::from(Answer::Failed { wait: None });
        for (told, seconds) in [
            (success, 0),
            (refused, 3),
            (refused, 5),
            (failed, 9),
            (success, 10),
            (success, 13),
            (refused, 400),
            (refused, 402),
        ] {
            let before = poll.clone();
            let next = poll.answered(&settings, &told, Timestamp::from_secs(seconds));
            let notice = Notice::of(&before, &poll, &next);
            said.extend(notice.map(|notice| format!("{}: {notice}", notice.event())));
        }
        assert_eq!(
            said,
            [
                "poll_rate_limited: Rate limited. Backing off to 2000ms. Attempt 1",
                "poll_rate_limited: Rate limited. Backing off to 4000ms. Attempt 2",
                "poll_recovered: Rate limit cleared. Resetting to normal interval.",
                "poll_gave_up: Rate limited for too long. Stopping retries.",
            ]
        );
    }
}
