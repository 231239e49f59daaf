//! When a gate was held, open, half-open or isolated.

use std::collections::VecDeque;
use std::time::Duration;

use policy::hint::Source;
use policy::time::Timestamp;
use tidegate::GateOverride;
use tidegate::event::Event;

use super::MAX_POINTS;

/// A state that is shown over a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum BandState {
    Held,
    Open,
    HalfOpen,
    Isolated,
}

/// A stretch of time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) struct Band {
    pub(in crate::admin) state: BandState,
    pub(in crate::admin) from: Timestamp,
    /// Its end, which may be still to come; `None` if that is not known.
    pub(in crate::admin) to: Option<Timestamp>,
    /// Which hint a hold comes from.
    pub(in crate::admin) source: Option<Source>,
    /// Whether a person isolated the gate.
    pub(in crate::admin) by_person: bool,
}

/// What an event changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateChange {
    Held {
        until: Timestamp,
        source: Source,
    },
    /// Without an end it is Isolated.
    Opened {
        until: Option<Timestamp>,
    },
    Closed,
    Overridden(GateOverride),
}

impl StateChange {
    /// The gate and its change, if the event is one.
    pub(super) fn of<'a>(event: &Event<'a>) -> Option<(&'a str, Self)> {
        Some(match *event {
            Event::HoldStarted { key, until, source } => (key, Self::Held { until, source }),
            Event::BreakerOpened { key, until } => (key, Self::Opened { until }),
            Event::BreakerClosed { key } => (key, Self::Closed),
            Event::GateOverridden { key, change } => (key, Self::Overridden(change)),
            _ => return None,
        })
    }
}

/// The last bands of a gate, by the time at which they began.
#[derive(Debug, Default)]
pub(super) struct Bands {
    bands: VecDeque<Band>,
    changed_at: Timestamp,
    isolates: bool,
}

const MAX_BANDS: usize = 32;

impl Bands {
    pub(super) fn changed_at(&self) -> Timestamp {
        self.changed_at
    }

    /// Did all of them end longer ago than is shown?
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let shown = Duration::from_secs(MAX_POINTS as u64);
        let mut ends = self.bands.iter().map(|band| band.to);
        ends.all(|to| to.is_some_and(|to| to + shown < now))
    }

    /// Those that had not ended at this time.
    pub(super) fn since(&self, start: Timestamp) -> Vec<Band> {
        let bands = self.bands.iter().copied();
        bands
            .filter(|band| band.to.is_none_or(|to| to > start))
            .collect()
    }

    /// The band of a state that lasts now.
    pub(super) fn current(&self, state: BandState, now: Timestamp) -> Option<Band> {
        let mut bands = self.bands.iter().rev().copied();
        bands.find(|band| band.state == state && band.lasts_at(now))
    }

    pub(super) fn apply(&mut self, at: Timestamp, change: StateChange) {
        self.changed_at = at;
        match change {
            StateChange::Held { until, source } => self.hold(at, until, source),
            StateChange::Opened { until: Some(until) } => {
                self.end_breaker(at);
                self.push(BandState::Open, at, Some(until));
                // Until an event says how the probes ended.
                self.push(BandState::HalfOpen, until, None);
            }
            StateChange::Opened { until: None } => {
                self.end_breaker(at);
                self.push(BandState::Isolated, at, None);
                if let Some(band) = self.bands.back_mut() {
                    band.by_person = self.isolates;
                }
            }
            StateChange::Closed => self.end_breaker(at),
            StateChange::Overridden(change) => {
                // The isolation itself is the next event.
                self.isolates = change == GateOverride::Isolate;
                if !self.isolates {
                    self.end(at, |_| true);
                }
                return;
            }
        }
        self.isolates = false;
    }

    /// A hold is only ever extended.
    fn hold(&mut self, at: Timestamp, until: Timestamp, source: Source) {
        let mut bands = self.bands.iter_mut().rev();
        let held = bands.find(|band| band.state == BandState::Held && band.lasts_at(at));
        match held {
            Some(band) => (band.to, band.source) = (Some(until), Some(source)),
            None => {
                self.push(BandState::Held, at, Some(until));
                if let Some(band) = self.bands.back_mut() {
                    band.source = Some(source);
                }
            }
        }
    }

    fn end_breaker(&mut self, at: Timestamp) {
        self.end(at, |state| state != BandState::Held);
    }

    /// Ends bands that last, and removes those that had not begun.
    fn end(&mut self, at: Timestamp, is_meant: impl Fn(BandState) -> bool) {
        self.bands.retain(|band| {
            !is_meant(band.state) || band.from < at || band.to.is_some_and(|to| to <= at)
        });
        for band in &mut self.bands {
            if is_meant(band.state) && band.to.is_none_or(|to| to > at) {
                band.to = Some(at);
            }
        }
    }

    fn push(&mut self, state: BandState, from: Timestamp, to: Option<Timestamp>) {
        if self.bands.len() >= MAX_BANDS {
            self.bands.pop_front();
        }
        self.bands.push_back(Band {
            state,
            from,
            to,
            source: None,
            by_person: false,
        });
    }
}

impl Band {
    fn lasts_at(&self, now: Timestamp) -> bool {
        self.from <= now && self.to.is_none_or(|to| to > now)
    }
}
