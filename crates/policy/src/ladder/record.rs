//! What of a ladder outlives a process.

use std::time::Duration;

use super::{Disabled, Ladder};
use crate::time::Timestamp;

/// A ladder for the store: durations, no instants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadderRecord {
    /// Errors that climbed since the last success.
    pub consecutive_errors: u32,
    /// What was left of the pause; zero if it was over, `None` if there was none.
    pub pause: Option<Duration>,
    /// The last error, for people.
    pub last_error: Option<Box<str>>,
    /// Why it was disabled.
    pub disabled: Option<Disabled>,
}

impl Ladder {
    /// What must survive a restart.
    pub fn record(&self, now: Timestamp) -> LadderRecord {
        LadderRecord {
            consecutive_errors: self.consecutive_errors,
            pause: self.paused_until.map(|until| until.since(now)),
            last_error: self.last_error.clone(),
            disabled: self.disabled,
        }
    }

    /// A ladder as it was written down. Epochs begin anew: no attempt survives a restart.
    pub fn restore(record: LadderRecord, now: Timestamp) -> Self {
        Self {
            epoch: 0,
            consecutive_errors: record.consecutive_errors,
            successes: 0,
            paused_until: record.pause.map(|left| now + left),
            last_error: record.last_error,
            disabled: record.disabled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::{Ended, LadderSettings};

    #[test]
    fn a_pause_goes_on_after_a_restart() {
        let settings = LadderSettings::default();
        let mut ladder = Ladder::new();
        ladder.settle(&settings, 0, &Ended::status(429), Timestamp::ZERO);
        ladder.settle(&settings, 1, &Ended::status(503), Timestamp::from_secs(40));
        let record = ladder.record(Timestamp::from_secs(55));
        assert_eq!(record.pause, Some(Duration::from_secs(45)));

        // The new process has a clock of its own.
        let ladder = Ladder::restore(record, Timestamp::from_secs(1000));
        assert!(ladder.is_paused(Timestamp::from_secs(1044)));
        assert!(!ladder.is_paused(Timestamp::from_secs(1045)));
        assert_eq!(ladder.consecutive_errors(), 2);
        assert_eq!(ladder.last_error(), Some("HTTP 503"));
    }

    #[test]
    fn a_disabled_endpoint_stays_disabled_after_a_restart() {
        let mut ladder = Ladder::new();
        ladder.disable();
        let ladder = Ladder::restore(ladder.record(Timestamp::ZERO), Timestamp::ZERO);
        assert_eq!(ladder.disabled(), Some(Disabled::Person));
    }
}
