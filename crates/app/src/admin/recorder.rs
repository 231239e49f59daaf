//! Records the last quarter of an hour: totals, and the figures of the busiest gates and of those
//! that are looked at.
//!
//! Once a second it looks at every recorded gate, and at all gates together. The second costs more
//! with more gates, so it takes place less often if it takes long: at most 1 % of a core. Nothing is
//! recorded on the path of requests: figures are differences of counters, changes of the rate are
//! differences of two seconds, and times of holds and breakers come from events of changes.
//!
//! Bounds: [`MAX_RECORDED`] gates of 32 KiB each, 8 MiB; counters of at most [`MAX_MARKS`] gates,
//! twice, 8 MiB; bands of at most [`MAX_BANDED`] gates, 5 MiB; all of them only when there are so many
//! gates.

mod bands;
mod points;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::gate::{GateSnapshot, Reason};
use policy::time::Timestamp;
use tidegate::event::{Event, EventListener};
use tidegate::{GateView, Limiter, Totals};

pub(super) use bands::{Band, BandState};
use bands::{Bands, StateChange};
use points::RecordedGate;
use points::Ring;
pub(super) use points::{GatePoint, RateChange, TotalPoint};

/// Points of one series, one for each second.
pub(super) const MAX_POINTS: usize = 900;

/// Gates that are recorded at a time.
pub(super) const MAX_RECORDED: usize = 256;

/// The busiest gates, which are always recorded.
const BUSIEST: usize = 64;

/// How long a gate is recorded that is neither looked at nor among the busiest.
const UNUSED_AFTER: Duration = Duration::from_secs(900);

/// Gates whose counters are marked, for figures per second.
const MAX_MARKS: usize = 100_000;

/// Gates whose holds and breakers are recorded.
const MAX_BANDED: usize = 4096;

/// Changes that wait for the next second.
const MAX_PENDING: usize = 4096;

/// How often counters are marked. Figures per second are means over the time since the last mark
/// that is at least four seconds old.
const MARK_EVERY: Duration = Duration::from_secs(5);
const MIN_MARK_AGE: Duration = Duration::from_secs(4);

/// Looking at all gates may take this share of the time: one part in a hundred.
const WALK_SHARE: u32 = 100;
const MAX_WALK_INTERVAL: Duration = Duration::from_secs(10);

/// Gates that refuse, for the list of what needs attention.
const MAX_REFUSING: usize = 8;

/// The recorder of a limiter.
#[derive(Debug)]
pub(super) struct Recorder {
    limiter: Limiter,
    hasher: RandomState,
    pending: Arc<Pending>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    totals: Ring<TotalPoint>,
    latest: Option<Latest>,
    next_walk: Option<Timestamp>,
    gates: HashMap<String, RecordedGate>,
    /// The older first.
    marks: [Option<Marks>; 2],
    bands: HashMap<String, Bands>,
}

/// All gates at one moment.
#[derive(Clone, Debug)]
pub(super) struct Latest {
    at: Timestamp,
    pub(super) totals: Totals,
    pub(super) waiting: WaitingByReason,
    /// Gates that are Open or Isolated, the first few.
    pub(super) refusing: Vec<(String, BreakerState, Option<Timestamp>)>,
}

/// How many callers wait for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitingByReason {
    pub(super) rate: u32,
    pub(super) hold: u32,
    pub(super) breaker_open: u32,
    pub(super) in_flight: u32,
}

impl WaitingByReason {
    pub(super) fn of(gate: &GateSnapshot) -> Self {
        let mut waiting = Self::default();
        waiting.add(gate);
        waiting
    }

    fn add(&mut self, gate: &GateSnapshot) {
        let count = match gate.waiting_for {
            None => return,
            Some(Reason::Hold) => &mut self.hold,
            Some(Reason::BreakerOpen) => &mut self.breaker_open,
            Some(Reason::InFlight) => &mut self.in_flight,
            // Others are reasons to refuse.
            Some(_) => &mut self.rate,
        };
        *count = count.saturating_add(gate.waiting);
    }
}

/// What a gate did per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PerSecond {
    pub(super) accepted: f64,
    pub(super) refused: f64,
    pub(super) failed: f64,
}

/// The counters of all gates at one moment, by the hash of the key.
#[derive(Debug)]
struct Marks {
    at: Timestamp,
    results: HashMap<u64, [u32; 3]>,
}

/// Figures per second, for a walk over many gates.
pub(super) struct Figures<'a> {
    hasher: &'a RandomState,
    state: MutexGuard<'a, State>,
    now: Timestamp,
}

impl Figures<'_> {
    pub(super) fn per_second(&self, key: &str, gate: &GateSnapshot) -> PerSecond {
        self.state
            .per_second(self.hasher, key, results(gate), self.now)
    }
}

/// What is recorded of one gate.
#[derive(Clone, Debug, Default)]
pub(super) struct GateHistory {
    /// One for each second of the window, oldest first.
    pub(super) points: Vec<Option<GatePoint>>,
    pub(super) bands: Vec<Band>,
    /// Newest first.
    pub(super) changes: Vec<RateChange>,
}

impl Recorder {
    pub(super) fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            hasher: RandomState::new(),
            pending: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// What receives events of changes for it.
    pub(super) fn listener(&self) -> Arc<dyn EventListener> {
        Arc::clone(&self.pending) as Arc<dyn EventListener>
    }

    /// Records a second. To be called about once a second.
    pub(super) fn tick(&self) {
        let now = self.limiter.clock().now();
        let mut state = self.lock();
        if state.next_walk.is_none_or(|at| now >= at) {
            self.walk(&mut state, now);
        }
        state
            .gates
            .retain(|_, gate| now.since(gate.used_at) < UNUSED_AFTER);
        for (key, gate) in &mut state.gates {
            if let Some(view) = self.limiter.gate(key) {
                gate.record(&view.gate, now);
            }
        }
    }

    /// Reads all gates: totals, callers in line by reason, and the busiest.
    fn walk(&self, state: &mut State, now: Timestamp) {
        let newest = state.marks[1].as_ref().map(|marks| marks.at);
        let is_mark_due = newest.is_none_or(|at| now.since(at) >= MARK_EVERY);
        let mut marked = is_mark_due.then(HashMap::new);
        let mut waiting = WaitingByReason::default();
        let mut refusing = Vec::new();
        let seen = self.limiter.select(0, BUSIEST, |key, gate| {
            waiting.add(gate);
            let refuses = matches!(gate.breaker, BreakerState::Open | BreakerState::Isolated);
            if refuses && refusing.len() < MAX_REFUSING {
                refusing.push((key.to_owned(), gate.breaker, gate.breaker_until));
            }
            let results = results(gate);
            if let Some(marked) = &mut marked
                && marked.len() < MAX_MARKS
                && results != [0; 3]
            {
                marked.insert(self.hasher.hash_one(key), results);
            }
            let figures = state.per_second(&self.hasher, key, results, now);
            let busy = figures.accepted + figures.refused + figures.failed;
            (busy > 0.0).then_some(busy)
        });
        if let Some(results) = marked {
            state.marks.rotate_left(1);
            state.marks[1] = Some(Marks { at: now, results });
            state.bands.retain(|_, bands| !bands.is_over(now));
        }
        state.add_total(seen.totals, waiting, now);
        state.latest = Some(Latest {
            at: now,
            totals: seen.totals,
            waiting,
            refusing,
        });
        for GateView { key, .. } in seen.gates {
            state.use_gate(&key, now);
        }
        let took = self.limiter.clock().now().since(now);
        // A little less than a second, for ticks are not exact.
        let pause = (took * WALK_SHARE).min(MAX_WALK_INTERVAL);
        state.next_walk = Some(now + pause.max(Duration::from_millis(500)));
    }

    /// All gates as they were at the last look; looks now if there was none.
    pub(super) fn latest(&self) -> Latest {
        if let Some(latest) = &self.lock().latest {
            return latest.clone();
        }
        self.tick();
        let latest = self.lock().latest.clone();
        latest.expect("a first tick looks at all gates")
    }

    /// Totals of the last `window`, one for each second, oldest first, and when the first second
    /// began.
    pub(super) fn totals(&self, window: Duration) -> (Timestamp, Vec<Option<TotalPoint>>) {
        let now = self.limiter.clock().now();
        self.lock().totals.window(window, now)
    }

    /// Records this gate for some time to come.
    pub(super) fn watch(&self, key: &str) {
        let now = self.limiter.clock().now();
        self.lock().use_gate(key, now);
    }

    /// What is recorded of a gate in the last `window`, and when the first second began. Records it
    /// from now on.
    pub(super) fn history(&self, key: &str, window: Duration) -> (Timestamp, GateHistory) {
        let now = self.limiter.clock().now();
        let mut state = self.lock();
        state.use_gate(key, now);
        let (start, points) = match state.gates.get(key) {
            Some(gate) => gate.points.window(window, now),
            None => Ring::default().window(window, now),
        };
        let changes = state.gates.get(key).map(|gate| gate.changes(start));
        let bands = state.bands.get(key).map(|bands| bands.since(start));
        let history = GateHistory {
            points,
            bands: bands.unwrap_or_default(),
            changes: changes.unwrap_or_default(),
        };
        (start, history)
    }

    /// What a gate accepted per second in the last minute, oldest first; `None` if it is not recorded.
    pub(super) fn recent(&self, key: &str) -> Option<Vec<Option<f64>>> {
        let now = self.limiter.clock().now();
        let state = self.lock();
        let (_, points) = state.gates.get(key)?.points.window(MINUTE, now);
        let accepted = |point: Option<GatePoint>| {
            point.map(|point| super::gates::rounded(f64::from(point.accepted)))
        };
        // Nothing was recorded before the clock began.
        let missing = SPARKLINE_POINTS.saturating_sub(points.len());
        let points = points.into_iter().map(accepted);
        Some(std::iter::repeat_n(None, missing).chain(points).collect())
    }

    /// Since when a gate is in this state, if that is known.
    pub(super) fn since(&self, key: &str, state: BandState) -> Option<Band> {
        let now = self.limiter.clock().now();
        self.lock().bands.get(key)?.current(state, now)
    }

    /// Figures per second.
    pub(super) fn figures(&self) -> Figures<'_> {
        Figures {
            hasher: &self.hasher,
            state: self.lock(),
            now: self.limiter.clock().now(),
        }
    }

    /// With everything applied that happened so far.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, at, change) in self.pending.take() {
            state.apply(key, at, change);
        }
        state
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const SPARKLINE_POINTS: usize = 60;

fn results(gate: &GateSnapshot) -> [u32; 3] {
    [gate.succeeded, gate.throttled, gate.failed]
}

impl State {
    fn per_second(
        &self,
        hasher: &RandomState,
        key: &str,
        results: [u32; 3],
        now: Timestamp,
    ) -> PerSecond {
        let [older, newer] = &self.marks;
        let is_old_enough = |marks: &&Marks| now.since(marks.at) >= MIN_MARK_AGE;
        let marks = newer.as_ref().filter(is_old_enough);
        let Some(marks) = marks.or(older.as_ref()).or(newer.as_ref()) else {
            return PerSecond::default();
        };
        let seconds = now.seconds_since(marks.at);
        if seconds < 0.5 {
            return PerSecond::default();
        }
        let hash = hasher.hash_one(key);
        let before = marks.results.get(&hash).copied().unwrap_or_default();
        let rate = |place: usize| {
            let count = results[place].saturating_sub(before[place]);
            f64::from(count) / seconds
        };
        PerSecond {
            accepted: rate(0),
            refused: rate(1),
            failed: rate(2),
        }
    }

    fn add_total(&mut self, totals: Totals, waiting: WaitingByReason, now: Timestamp) {
        let Some(before) = &self.latest else {
            return;
        };
        let seconds = now.seconds_since(before.at);
        if seconds <= 0.0 {
            return;
        }
        let point = TotalPoint::between(&before.totals, &totals, waiting, seconds);
        self.totals.fill(point, before.at, now);
    }

    fn use_gate(&mut self, key: &str, now: Timestamp) {
        if let Some(gate) = self.gates.get_mut(key) {
            gate.used_at = now;
            return;
        }
        if self.gates.len() >= MAX_RECORDED {
            let oldest = self.gates.iter().min_by_key(|(_, gate)| gate.used_at);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.gates.remove(&key);
            }
        }
        self.gates.insert(key.to_owned(), RecordedGate::new(now));
    }

    fn apply(&mut self, key: String, at: Timestamp, change: StateChange) {
        if self.bands.len() >= MAX_BANDED && !self.bands.contains_key(&key) {
            let oldest = self
                .bands
                .iter()
                .min_by_key(|(_, bands)| bands.changed_at());
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.bands.remove(&key);
            }
        }
        self.bands.entry(key).or_default().apply(at, change);
    }
}

/// Changes that wait to be applied, so that a task that causes one waits for nothing.
#[derive(Debug, Default)]
struct Pending(Mutex<Vec<(String, Timestamp, StateChange)>>);

impl Pending {
    fn take(&self) -> Vec<(String, Timestamp, StateChange)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventListener for Pending {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        let Some((key, change)) = StateChange::of(event) else {
            return;
        };
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < MAX_PENDING {
            pending.push((key.to_owned(), at, change));
        }
    }

    fn wants_everything(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
