//! What is left of a record when it is read again.
//!
//! A record holds lengths of time and when it was written. What has passed since then by the
//! calendar is taken off: a hold of an hour that was written half an hour ago is one of half an
//! hour, and one that has ended is gone.
//!
//! The wall clock may be set between runs. If it is before the time of writing, it is unknown how
//! much has passed: nothing is taken off, but nothing is held for longer than `max_hold`
//! from now either, for what was written may have been over for long. A calendar that is right
//! leaves longer holds as they are: what a server asked for is not shortened. One that was set
//! forward cannot be told from a long stop, and ends holds early.

use std::time::Duration;

use policy::breaker::{BreakerRecord, BreakerState};
use policy::gate::GateRecord;
use policy::ladder::LadderRecord;
use policy::time::WallTime;

use crate::record::{StoredEndpoint, StoredGate};

impl StoredGate {
    /// The record to restore at `now`: without what has passed, and after a jump of the calendar
    /// at most `max_hold`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use policy::breaker::{BreakerRecord, BreakerState};
    /// use policy::gate::GateRecord;
    /// use policy::time::WallTime;
    /// use store::StoredGate;
    ///
    /// let breaker = BreakerRecord {
    ///     state: BreakerState::Closed,
    ///     open_for: Duration::ZERO,
    ///     openings: 0,
    /// };
    /// let stored = StoredGate {
    ///     key: "api.example.com".to_owned(),
    ///     record: GateRecord {
    ///         rate: 5.0,
    ///         ceiling: None,
    ///         banned_above: None,
    ///         hold: Some(Duration::from_secs(60)),
    ///         hold_source: None,
    ///         breaker,
    ///         cost: None,
    ///     },
    ///     at: WallTime::from_unix_millis(0),
    /// };
    /// let now = WallTime::from_unix_millis(45_000);
    /// let record = stored.record_at(now, Duration::from_secs(3600));
    /// assert_eq!(record.hold, Some(Duration::from_secs(15)));
    /// ```
    pub fn record_at(&self, now: WallTime, max_hold: Duration) -> GateRecord {
        let age = Age::of(self.at, now, max_hold);
        let hold = self.record.hold.map(|hold| age.left_of(hold));
        let hold = hold.filter(|left| !left.is_zero());
        GateRecord {
            hold,
            hold_source: hold.and(self.record.hold_source),
            breaker: breaker_at(&self.record.breaker, age),
            ..self.record
        }
    }
}

impl StoredEndpoint {
    /// The record to restore at `now`: without what has passed, and after a jump of the calendar
    /// at most `max_hold`. A pause that has ended is one of zero length, as in every record of a
    /// ladder.
    pub fn record_at(&self, now: WallTime, max_hold: Duration) -> LadderRecord {
        let age = Age::of(self.at, now, max_hold);
        LadderRecord {
            pause: self.record.pause.map(|pause| age.left_of(pause)),
            paused_for: self.record.paused_for.map(|length| age.added_to(length)),
            disabled_for: self.record.disabled_for.map(|length| age.added_to(length)),
            ..self.record.clone()
        }
    }
}

/// A breaker whose open time has passed is still Open: it probes before it closes.
fn breaker_at(record: &BreakerRecord, age: Age) -> BreakerRecord {
    let open_for = match record.state {
        BreakerState::Open => age.left_of(record.open_for),
        BreakerState::Closed | BreakerState::HalfOpen | BreakerState::Isolated => record.open_for,
    };
    BreakerRecord {
        open_for,
        ..*record
    }
}

/// How old a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// So much has passed.
    Passed(Duration),
    /// The wall clock was set back: the age is unknown, so at most this much is left.
    Unknown(Duration),
}

impl Age {
    fn of(written: WallTime, now: WallTime, max_hold: Duration) -> Self {
        match now.until(written) {
            Some(back) if back > CORRECTION => Self::Unknown(max_hold),
            _ => Self::Passed(written.until(now).unwrap_or_default()),
        }
    }

    fn left_of(self, length: Duration) -> Duration {
        match self {
            Self::Passed(passed) => length.saturating_sub(passed),
            Self::Unknown(max) => length.min(max),
        }
    }

    /// A length of time that has gone on since.
    fn added_to(self, length: Duration) -> Duration {
        match self {
            Self::Passed(passed) => length.saturating_add(passed),
            Self::Unknown(_) => length,
        }
    }
}

/// Clocks are corrected by seconds all the time; that is no jump, and no reason to end a long hold
/// before its time.
const CORRECTION: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use policy::hint::Source;
    use policy::ladder::Disabled;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn seconds(seconds: i64) -> WallTime {
        WallTime::from_unix_millis(seconds * 1000)
    }

    fn gate(hold: Option<u64>, state: BreakerState, open_for: u64) -> StoredGate {
        StoredGate {
            key: "a".to_owned(),
            record: GateRecord {
                rate: 7.5,
                ceiling: Some(9.0),
                banned_above: None,
                hold: hold.map(Duration::from_secs),
                hold_source: hold.map(|_| Source::RetryAfter),
                breaker: BreakerRecord {
                    state,
                    open_for: Duration::from_secs(open_for),
                    openings: 3,
                },
                cost: None,
            },
            at: seconds(1000),
        }
    }

    /// What is left of a hold, in seconds.
    fn hold_at(hold: u64, now: i64) -> Option<u64> {
        let stored = gate(Some(hold), BreakerState::Closed, 0);
        let record = stored.record_at(seconds(now), HOUR);
        assert_eq!(record.hold.is_some(), record.hold_source.is_some());
        assert_eq!((record.rate, record.ceiling), (7.5, Some(9.0)));
        record.hold.map(|left| left.as_secs())
    }

    #[test]
    fn subtracts_elapsed_time_from_a_hold() {
        assert_eq!(hold_at(60, 1000), Some(60));
        assert_eq!(hold_at(60, 1045), Some(15));
        assert_eq!(hold_at(60, 1059), Some(1));
    }

    #[test]
    fn a_hold_that_has_ended_is_gone() {
        assert_eq!(hold_at(60, 1060), None);
        assert_eq!(hold_at(60, 1_000_000_000), None);
        assert_eq!(hold_at(0, 1000), None);
    }

    #[test]
    fn a_calendar_set_back_takes_nothing_off() {
        assert_eq!(hold_at(60, 990), Some(60));
        assert_eq!(hold_at(60, 0), Some(60));
        assert_eq!(hold_at(60, -1_000_000_000), Some(60));
    }

    #[test]
    fn after_a_jump_nothing_is_held_for_longer_than_max_hold() {
        assert_eq!(hold_at(86_400, 0), Some(3600));
    }

    #[test]
    fn does_not_shorten_a_hold_unless_the_clock_jumped() {
        assert_eq!(hold_at(86_400, 1001), Some(86_399));
        // Clocks are corrected by seconds.
        assert_eq!(hold_at(86_400, 941), Some(86_400));
        assert_eq!(hold_at(86_400, 940), Some(86_400));
        assert_eq!(hold_at(86_400, 939), Some(3600));
    }

    #[test]
    fn an_open_time_passes_and_ends_in_probes() {
        let open = |now| {
            let stored = gate(None, BreakerState::Open, 20);
            stored.record_at(seconds(now), HOUR).breaker
        };
        let left = |now| (open(now).state, open(now).open_for.as_secs());
        assert_eq!(left(1005), (BreakerState::Open, 15));
        assert_eq!(left(1020), (BreakerState::Open, 0));
        assert_eq!(left(2000), (BreakerState::Open, 0));
        assert_eq!(left(0), (BreakerState::Open, 20));
        assert_eq!(open(2000).openings, 3);
    }

    #[test]
    fn only_a_person_ends_isolation() {
        let stored = gate(None, BreakerState::Isolated, 0);
        let record = stored.record_at(seconds(1_000_000_000), HOUR);
        assert_eq!(record.breaker, stored.record.breaker);
    }

    #[test]
    fn a_pause_passes_and_the_count_stays() {
        let stored = StoredEndpoint {
            pool: "llm".to_owned(),
            name: "a".to_owned(),
            record: LadderRecord {
                consecutive_errors: 5,
                pause: Some(Duration::from_secs(600)),
                paused_for: Some(Duration::from_secs(30)),
                last_error: Some("HTTP 503".into()),
                disabled: Some(Disabled::Errors(5)),
                disabled_for: Some(Duration::from_secs(40)),
            },
            at: seconds(1000),
        };
        let at = |now| stored.record_at(seconds(now), Duration::from_secs(300));
        assert_eq!(at(1100).pause, Some(Duration::from_secs(500)));
        assert_eq!(at(9999).pause, Some(Duration::ZERO));
        assert_eq!(at(0).pause, Some(Duration::from_secs(300)));
        assert_eq!(
            at(9999),
            LadderRecord {
                pause: Some(Duration::ZERO),
                paused_for: Some(Duration::from_secs(9029)),
                disabled_for: Some(Duration::from_secs(9039)),
                ..stored.record.clone()
            }
        );
        // It is not known how much has passed.
        assert_eq!(at(0).disabled_for, stored.record.disabled_for);
    }

    proptest! {
        #[test]
        fn nothing_ever_grows(hold: u64, open: u64, written: i64, now: i64, max_hold: u64) {
            let mut stored = gate(Some(hold), BreakerState::Open, open);
            stored.at = WallTime::from_unix_millis(written);
            let now = WallTime::from_unix_millis(now);
            let record = stored.record_at(now, Duration::from_secs(max_hold));
            prop_assert!(record.hold <= stored.record.hold);
            prop_assert!(record.breaker.open_for <= stored.record.breaker.open_for);
        }
    }
}
