//! Points of series, one for each second.

use std::collections::VecDeque;
use std::time::Duration;

use policy::gate::GateSnapshot;
use policy::rate::Why;
use policy::time::Timestamp;
use tidegate::Totals;

use super::{MAX_POINTS, WaitingByReason};

/// The last points of a series. A second without one is a gap.
#[derive(Debug)]
pub(super) struct Ring<P>(VecDeque<(u64, P)>);

impl<P> Default for Ring<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P: Copy> Ring<P> {
    /// Records the point of the second that ends at `now`.
    pub(super) fn push(&mut self, point: P, now: Timestamp) {
        self.push_at(second(now), point);
    }

    fn push_at(&mut self, second: u64, point: P) {
        match self.0.back_mut() {
            Some((last, known)) if *last >= second => *known = point,
            _ => {
                if self.0.len() >= MAX_POINTS {
                    self.0.pop_front();
                }
                self.0.push_back((second, point));
            }
        }
    }

    /// Records the same for every second from `since` to `now`, if that is a short time: it is the
    /// mean over it.
    pub(super) fn fill(&mut self, point: P, since: Timestamp, now: Timestamp) {
        let (first, last) = (second(since) + 1, second(now));
        let is_short = last.saturating_sub(first) <= MAX_FILLED;
        let first = if is_short { first.min(last) } else { last };
        for second in first..=last {
            self.push_at(second, point);
        }
    }

    /// The points of the last `window`, oldest first, and when the first second began.
    pub(super) fn window(&self, window: Duration, now: Timestamp) -> (Timestamp, Vec<Option<P>>) {
        let length = window.as_secs().clamp(1, MAX_POINTS as u64);
        let last = second(now);
        let first = (last + 1).saturating_sub(length);
        let mut points = vec![None; usize::try_from(last + 1 - first).unwrap_or(0)];
        let from = self.0.partition_point(|(second, _)| *second < first);
        for (second, point) in self.0.range(from..) {
            let place = usize::try_from(second - first).unwrap_or(usize::MAX);
            if let Some(slot) = points.get_mut(place) {
                *slot = Some(*point);
            }
        }
        (Timestamp::ZERO + Duration::from_secs(first), points)
    }
}

/// Seconds that one look may stand for.
const MAX_FILLED: u64 = 15;

fn second(at: Timestamp) -> u64 {
    at.since(Timestamp::ZERO).as_secs()
}

/// All gates in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::admin) struct TotalPoint {
    pub(in crate::admin) requests: f32,
    pub(in crate::admin) accepted: f32,
    pub(in crate::admin) refused: f32,
    pub(in crate::admin) failed: f32,
    pub(in crate::admin) retries: f32,
    pub(in crate::admin) waiting: u32,
    pub(in crate::admin) waiting_for: WaitingByReason,
}

impl TotalPoint {
    pub(super) fn between(
        before: &Totals,
        after: &Totals,
        waiting_for: WaitingByReason,
        seconds: f64,
    ) -> Self {
        let rate = |count: fn(&Totals) -> u64| {
            // A gate that was reset counts from zero.
            let count = count(after).saturating_sub(count(before));
            narrow(count as f64 / seconds)
        };
        Self {
            requests: rate(|totals| totals.requests),
            accepted: rate(|totals| totals.accepted),
            refused: rate(|totals| totals.refused),
            failed: rate(|totals| totals.failed),
            retries: rate(|totals| totals.retries),
            waiting: u32::try_from(after.waiting).unwrap_or(u32::MAX),
            waiting_for,
        }
    }
}

/// One gate in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::admin) struct GatePoint {
    pub(in crate::admin) rate: f32,
    /// Not a number if there is none, as for the next but one.
    pub(in crate::admin) ceiling: f32,
    pub(in crate::admin) accepted: f32,
    pub(in crate::admin) refused: f32,
    pub(in crate::admin) failed: f32,
    pub(in crate::admin) latency_ms: f32,
    pub(in crate::admin) p95_ms: f32,
    pub(in crate::admin) waiting: u32,
    pub(in crate::admin) in_flight: u32,
}

/// A run of changes of the rate, in one direction and for one reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::admin) struct RateChange {
    /// When the last of them was seen.
    pub(in crate::admin) at: Timestamp,
    pub(in crate::admin) from: f64,
    pub(in crate::admin) to: f64,
    pub(in crate::admin) why: Why,
}

/// What is recorded of a gate.
#[derive(Debug)]
pub(super) struct RecordedGate {
    pub(super) points: Ring<GatePoint>,
    changes: VecDeque<RateChange>,
    before: Option<(Timestamp, [u32; 3], f64)>,
    /// When it was last looked at or among the busiest.
    pub(super) used_at: Timestamp,
}

const MAX_CHANGES: usize = 50;

/// Changes that follow each other within this time are one run.
const RUN_GAP: Duration = Duration::from_secs(15);

impl RecordedGate {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            points: Ring::default(),
            changes: VecDeque::new(),
            before: None,
            used_at: now,
        }
    }

    pub(super) fn record(&mut self, gate: &GateSnapshot, now: Timestamp) {
        let results = super::results(gate);
        let before = self.before.replace((now, results, gate.rate));
        let Some((at, counts, rate)) = before.filter(|(at, ..)| *at < now) else {
            return;
        };
        let seconds = now.seconds_since(at);
        let per_second = |place: usize| {
            let count = results[place].saturating_sub(counts[place]);
            narrow(f64::from(count) / seconds)
        };
        self.points.push(
            GatePoint {
                rate: narrow(gate.rate),
                ceiling: gate.ceiling.map_or(f32::NAN, narrow),
                accepted: per_second(0),
                refused: per_second(1),
                failed: per_second(2),
                latency_ms: millis(gate.latency_ewma),
                p95_ms: gate.latency_p95.map_or(f32::NAN, millis),
                waiting: gate.waiting,
                in_flight: gate.in_flight,
            },
            now,
        );
        if rate.to_bits() != gate.rate.to_bits() {
            self.add_change(RateChange {
                at: now,
                from: rate,
                to: gate.rate,
                why: gate.why,
            });
        }
    }

    /// Those since this time, newest first.
    pub(super) fn changes(&self, since: Timestamp) -> Vec<RateChange> {
        let changes = self.changes.iter().rev().copied();
        changes.take_while(|change| change.at >= since).collect()
    }

    pub(super) fn add_change(&mut self, change: RateChange) {
        if let Some(last) = self.changes.back_mut() {
            let same = last.why == change.why && last.is_rise() == change.is_rise();
            if same && change.at.since(last.at) <= RUN_GAP {
                (last.at, last.to) = (change.at, change.to);
                return;
            }
        }
        if self.changes.len() >= MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}

impl RateChange {
    pub(in crate::admin) fn is_rise(&self) -> bool {
        self.to > self.from
    }
}

fn millis(time: Duration) -> f32 {
    narrow(crate::core::millis(time))
}

/// Three digits are shown, and seven stay.
#[expect(
    clippy::cast_possible_truncation,
    reason = "precision is lost on purpose"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}
