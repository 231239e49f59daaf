//! The log events of polling.

use std::fmt;
use std::time::Duration;

use super::{Poll, PollState, PollStep};

/// A change to be logged. Nothing is logged while all is normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A 429: the next request is sent later.
    RateLimited {
        /// The wait before it.
        wait: Duration,
        /// The number of the consecutive 429, counted from 1.
        attempt: u32,
    },
    /// The first success after 429s.
    Recovered,
    /// No success for too long.
    GaveUp,
}

impl Notice {
    /// The change from `before` to `after`, the same poll after a response that led to `next`.
    pub fn of(before: &Poll, after: &Poll, next: &PollStep) -> Option<Self> {
        if before.state().is_end() {
            return None;
        }
        let attempt = after.consecutive_429();
        match (next.state, next.wait) {
            (PollState::GaveUp, _) => Some(Self::GaveUp),
            (_, Some(wait)) if attempt > before.consecutive_429() => {
                Some(Self::RateLimited { wait, attempt })
            }
            _ if before.banner() && !after.banner() => Some(Self::Recovered),
            _ => None,
        }
    }

    /// The name of the log event.
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
    use crate::poll::{JobStatus, PollSettings, ResponseKind, StatusResponse};
    use crate::time::Timestamp;

    #[test]
    fn logs_every_change_once() {
        let settings = PollSettings::default();
        let mut poll = Poll::new(Timestamp::ZERO);
        let mut messages = Vec::new();
        let success = StatusResponse {
            kind: ResponseKind::Success,
            job: Some(JobStatus::Running { progress: None }),
        };
        let refused = StatusResponse::from(ResponseKind::Throttled { wait: None });
        let failed = StatusResponse::from(ResponseKind::Failed { wait: None });
        for (response, seconds) in [
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
            let next = poll.after(&settings, &response, Timestamp::from_secs(seconds));
            let notice = Notice::of(&before, &poll, &next);
            messages.extend(notice.map(|notice| format!("{}: {notice}", notice.event())));
        }
        assert_eq!(
            messages,
            [
                "poll_rate_limited: Rate limited. Backing off to 2000ms. Attempt 1",
                "poll_rate_limited: Rate limited. Backing off to 4000ms. Attempt 2",
                "poll_recovered: Rate limit cleared. Resetting to normal interval.",
                "poll_gave_up: Rate limited for too long. Stopping retries.",
            ]
        );
    }
}
