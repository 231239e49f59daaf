//! What was last written, as far as it makes a difference.
//!
//! A record has what is left of a hold, which is less with every look. A mark has the time by the
//! calendar at which it ends instead, so that two looks at a gate to which nothing happened are the
//! same. It is small, for there is one for every gate.

use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::GateRecord;
use policy::ladder::{Disabled, LadderRecord};
use policy::time::WallTime;

/// How much a change has to be to be worth a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// It would be noticed after a restart.
    Noticeable,
    /// It is one.
    Everything,
}

impl Care {
    /// By how much of itself a rate may be off. An adaptive rate moves with every answer; one in a
    /// hundred is found again within a second.
    const fn of_rate(self) -> f64 {
        match self {
            Self::Noticeable => 0.01,
            Self::Everything => 0.0,
        }
    }
}

/// The end of a hold that moves by less is the same: clocks are read one after the other, and
/// corrected by as much. Whatever really moves it is told as an event.
const SAME_MS: u64 = 1000;

/// A gate that was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GateMark {
    rate: f64,
    /// Zero for none.
    ceiling: f64,
    hold_until: Option<WallTime>,
    open_until: Option<WallTime>,
    state: BreakerState,
    openings: u8,
}

impl GateMark {
    /// What makes a difference in a record of `at`.
    pub(super) fn of(record: &GateRecord, at: WallTime) -> Self {
        let breaker = &record.breaker;
        // One that probes comes back as one whose open time is over.
        let is_open = matches!(breaker.state, BreakerState::Open | BreakerState::HalfOpen);
        Self {
            rate: record.rate,
            ceiling: record.ceiling.unwrap_or_default(),
            hold_until: record.hold.map(|left| after(at, left)),
            open_until: is_open.then(|| after(at, breaker.open_for)),
            state: match is_open {
                true => BreakerState::Open,
                false => breaker.state,
            },
            openings: breaker.openings,
        }
    }

    /// Would a restart at `now` bring back something else?
    pub(super) fn differs(&self, newer: &Self, care: Care, now: WallTime) -> bool {
        let is_off = |one: f64, other: f64| (one - other).abs() > care.of_rate() * other.abs();
        is_off(self.rate, newer.rate)
            || is_off(self.ceiling, newer.ceiling)
            || self.state != newer.state
            || self.openings != newer.openings
            || ends_differ(self.hold_until, newer.hold_until, now)
            || ends_differ(self.open_until, newer.open_until, now)
    }
}

/// An endpoint that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointMark {
    consecutive_errors: u32,
    has_pause: bool,
    paused_until: Option<WallTime>,
    last_error: Option<Box<str>>,
    disabled: Option<Disabled>,
}

impl EndpointMark {
    /// What makes a difference in a record of `at`.
    pub(super) fn of(record: &LadderRecord, at: WallTime) -> Self {
        Self {
            consecutive_errors: record.consecutive_errors,
            has_pause: record.pause.is_some(),
            paused_until: record.pause.map(|left| after(at, left)),
            last_error: record.last_error.clone(),
            disabled: record.disabled,
        }
    }

    /// Would a restart at `now` bring back something else?
    pub(super) fn differs(&self, newer: &Self, now: WallTime) -> bool {
        self.consecutive_errors != newer.consecutive_errors
            || self.has_pause != newer.has_pause
            || self.last_error != newer.last_error
            || self.disabled != newer.disabled
            || ends_differ(self.paused_until, newer.paused_until, now)
    }
}

/// What is over makes no difference any more.
fn ends_differ(one: Option<WallTime>, other: Option<WallTime>, now: WallTime) -> bool {
    let left = |end: Option<WallTime>| end.filter(|end| *end > now);
    match (left(one), left(other)) {
        (None, None) => false,
        (Some(one), Some(other)) => one.as_unix_millis().abs_diff(other.as_unix_millis()) > SAME_MS,
        (Some(end), None) | (None, Some(end)) => {
            end.as_unix_millis().abs_diff(now.as_unix_millis()) > SAME_MS
        }
    }
}

fn after(at: WallTime, length: Duration) -> WallTime {
    let millis = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    WallTime::from_unix_millis(at.as_unix_millis().saturating_add(millis))
}

#[cfg(test)]
mod tests {
    use policy::breaker::BreakerRecord;

    use super::*;

    fn seconds(seconds: i64) -> WallTime {
        WallTime::from_unix_millis(seconds * 1000)
    }

    fn gate(rate: f64, hold: Option<u64>, state: BreakerState, open_for: u64) -> GateRecord {
        GateRecord {
            rate,
            ceiling: None,
            hold: hold.map(Duration::from_secs),
            hold_source: None,
            breaker: BreakerRecord {
                state,
                open_for: Duration::from_secs(open_for),
                openings: 0,
            },
        }
    }

    /// Is a gate that was written at 0 s and looks like this at `now` written again?
    fn is_news(written: &GateRecord, newer: &GateRecord, now: i64, care: Care) -> bool {
        let mark = GateMark::of(written, seconds(0));
        mark.differs(&GateMark::of(newer, seconds(now)), care, seconds(now))
    }

    #[test]
    fn time_that_passes_is_no_news() {
        use BreakerState::{Closed, HalfOpen, Open};
        let same = |written: &GateRecord, newer: &GateRecord, now| {
            assert!(!is_news(written, newer, now, Care::Everything));
        };
        let held = gate(2.0, Some(60), Closed, 0);
        same(&held, &gate(2.0, Some(45), Closed, 0), 15);
        same(&held, &gate(2.0, None, Closed, 0), 60);
        same(&held, &gate(2.0, None, Closed, 0), 1000);
        let opened = gate(2.0, None, Open, 4);
        same(&opened, &gate(2.0, None, Open, 1), 3);
        same(&opened, &gate(2.0, None, HalfOpen, 0), 9);
    }

    #[test]
    fn what_happened_is_news() {
        use BreakerState::{Closed, Isolated, Open};
        let news = |written: &GateRecord, newer: &GateRecord, now| {
            assert!(is_news(written, newer, now, Care::Noticeable));
        };
        let held = gate(2.0, Some(60), Closed, 0);
        news(&held, &gate(2.0, Some(60), Closed, 0), 15);
        news(&held, &gate(2.0, None, Closed, 0), 15);
        let plain = gate(2.0, None, Closed, 0);
        news(&plain, &held, 1);
        news(&plain, &gate(2.0, None, Open, 4), 1);
        news(&plain, &gate(2.0, None, Isolated, 0), 1);
        news(&gate(2.0, None, Isolated, 0), &plain, 1);
    }

    #[test]
    fn a_rate_is_news_when_it_would_be_noticed() {
        let of = |rate| gate(rate, None, BreakerState::Closed, 0);
        let is = |rate, care| is_news(&of(100.0), &of(rate), 1, care);
        assert!(!is(100.9, Care::Noticeable));
        assert!(is(100.9, Care::Everything));
        assert!(!is(100.0, Care::Everything));
        assert!(is(102.0, Care::Noticeable));
        assert!(is(98.0, Care::Noticeable));
    }

    #[test]
    fn an_endpoint_is_news_when_it_changed() {
        let record = LadderRecord {
            consecutive_errors: 2,
            pause: Some(Duration::from_secs(60)),
            last_error: Some("HTTP 429".into()),
            disabled: None,
        };
        let written = EndpointMark::of(&record, seconds(0));
        let is_news = |newer: LadderRecord, now| {
            written.differs(&EndpointMark::of(&newer, seconds(now)), seconds(now))
        };
        let later = |pause: u64| LadderRecord {
            pause: Some(Duration::from_secs(pause)),
            ..record.clone()
        };
        assert!(!is_news(later(45), 15));
        assert!(!is_news(later(0), 70));
        assert!(is_news(later(60), 15));
        assert!(is_news(LadderRecord::default(), 70));
        let disabled = LadderRecord {
            disabled: Some(Disabled::Person),
            ..later(45)
        };
        assert!(is_news(disabled, 15));
    }
}
