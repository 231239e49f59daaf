//! What the store has, so that only changes are written.
//!
//! A record has what is left of a hold, which shrinks with every look. A watermark has the wall time
//! at which it ends instead, so that two looks at an unchanged gate are equal. It is small, because
//! there is one for every gate.
//!
//! Reading a record and handing it to the store is one step under one lock, so that an older record
//! never follows a newer one. The disk is waited for without the lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::ladder::Disabled;
use policy::time::WallTime;
use store::{Change, StoredEndpoint, StoredGate};
use tidegate::{GateRecord, LadderRecord, Limiter};

use super::Configuration;
use crate::redact::Text;

/// What the store has. `None` for a row whose content is unknown because a write failed.
#[derive(Debug, Default)]
pub(super) struct Watermarks {
    gates: HashMap<Box<str>, Option<GateWatermark>>,
    endpoints: BTreeMap<EndpointName, Option<EndpointWatermark>>,
    /// Endpoints that a change is writing at the moment.
    locked_endpoints: BTreeSet<EndpointName>,
    /// Keys of gates that a change is writing at the moment.
    locked_gates: BTreeSet<String>,
}

/// Pool and name of an endpoint.
pub(super) type EndpointName = (String, String);

impl Watermarks {
    /// A gate that was restored.
    pub(super) fn insert_gate(&mut self, gate: &StoredGate) {
        let watermark = GateWatermark::of(&gate.record, gate.at);
        self.gates.insert(gate.key.as_str().into(), Some(watermark));
    }

    /// An endpoint that was restored.
    pub(super) fn insert_endpoint(&mut self, endpoint: &StoredEndpoint) {
        let name = (endpoint.pool.clone(), endpoint.name.clone());
        let watermark = EndpointWatermark::of(&endpoint.record, endpoint.at);
        self.endpoints.insert(name, Some(watermark));
    }

    /// A write failed: the content of the store is unknown.
    pub(super) fn invalidate_all(&mut self) {
        self.gates
            .values_mut()
            .for_each(|watermark| *watermark = None);
        self.endpoints
            .values_mut()
            .for_each(|watermark| *watermark = None);
    }

    /// A change writes this endpoint from now on.
    pub(super) fn lock_endpoint(&mut self, name: EndpointName) {
        self.locked_endpoints.insert(name);
    }

    /// A change has written this endpoint, or has failed to.
    pub(super) fn unlock_endpoint(&mut self, name: &EndpointName) {
        self.locked_endpoints.remove(name);
        if let Some(watermark) = self.endpoints.get_mut(name) {
            *watermark = None;
        }
    }

    /// A change writes this gate from now on.
    pub(super) fn lock_gate(&mut self, key: String) {
        self.locked_gates.insert(key);
    }

    /// A change may have written this gate.
    pub(super) fn unlock_gate(&mut self, key: &str) {
        self.locked_gates.remove(key);
        self.gates.insert(key.into(), None);
    }

    /// Does the record have to be written?
    pub(super) fn has_changed(
        &self,
        key: &str,
        record: &GateRecord,
        threshold: WriteThreshold,
        at: WallTime,
    ) -> bool {
        let Some(Some(watermark)) = self.gates.get(key) else {
            return true;
        };
        watermark.differs(&GateWatermark::of(record, at), threshold, at)
    }

    /// Gates that the store has and the limiter has not, because they were evicted. `live` is the
    /// number of gates of the limiter, and `changed` are those of them that have to be written.
    pub(super) fn evicted(
        &self,
        limiter: &Limiter,
        live: usize,
        changed: &[String],
    ) -> Vec<String> {
        let is_new = |key: &&String| !self.gates.contains_key(key.as_str());
        let new = changed.iter().filter(is_new).count();
        if self.gates.len() + new <= live {
            return Vec::new();
        }
        let keys = self.gates.keys();
        let gone = keys.filter(|key| limiter.record(key).is_none());
        gone.map(ToString::to_string).collect()
    }

    /// The changes for these gates: their records, or that they are gone.
    pub(super) fn gate_changes<'k>(
        &mut self,
        limiter: &Limiter,
        keys: impl Iterator<Item = &'k str>,
    ) -> Vec<Change> {
        keys.filter_map(|key| self.gate_change(limiter, key))
            .collect()
    }

    fn gate_change(&mut self, limiter: &Limiter, key: &str) -> Option<Change> {
        if self.locked_gates.contains(key) {
            return None;
        }
        let Some(record) = limiter.record(key) else {
            let is_stored = self.gates.remove(key).is_some();
            let key = key.to_owned();
            return is_stored.then_some(Change::ForgetGate { key });
        };
        let at = written_at(limiter);
        let watermark = GateWatermark::of(&record, at);
        self.gates.insert(key.into(), Some(watermark));
        let key = key.to_owned();
        Some(Change::Gate(StoredGate { key, record, at }))
    }

    /// The changes for the endpoints of these pools, as far as they differ.
    pub(super) fn pool_changes<'p>(
        &mut self,
        configuration: &Configuration,
        limiter: &Limiter,
        pools: impl Iterator<Item = &'p str>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for name in pools {
            let Some(pool) = configuration.pool(name) else {
                continue;
            };
            for (endpoint, record) in pool.records() {
                let name = (name.to_owned(), endpoint);
                changes.extend(self.endpoint_change(limiter, name, record));
            }
        }
        changes
    }

    fn endpoint_change(
        &mut self,
        limiter: &Limiter,
        name: EndpointName,
        record: LadderRecord,
    ) -> Option<Change> {
        if self.locked_endpoints.contains(&name) {
            return None;
        }
        let record = redacted(record);
        let at = written_at(limiter);
        let watermark = EndpointWatermark::of(&record, at);
        let known = self.endpoints.get(&name);
        if let Some(Some(known)) = known
            && !known.differs(&watermark, at)
        {
            return None;
        }
        self.endpoints.insert(name.clone(), Some(watermark));
        let (pool, name) = name;
        Some(Change::Endpoint(StoredEndpoint {
            pool,
            name,
            record,
            at,
        }))
    }

    /// The changes for endpoints that do not exist any more.
    pub(super) fn removed_endpoints(&mut self, configuration: &Configuration) -> Vec<Change> {
        let mut live = BTreeSet::new();
        for (name, pool) in configuration.pools() {
            let endpoints = pool.endpoints().into_iter();
            live.extend(endpoints.map(|endpoint| (name.to_owned(), endpoint.name().to_owned())));
        }
        let mut gone = Vec::new();
        self.endpoints.retain(|name, _| {
            let stays = live.contains(name) || self.locked_endpoints.contains(name);
            if !stays {
                let (pool, name) = name.clone();
                gone.push(Change::ForgetEndpoint { pool, name });
            }
            stays
        });
        gone
    }
}

/// The wall time for a record that was read just now, in milliseconds and rounded up: a restored
/// hold may end that much later, and never earlier.
fn written_at(limiter: &Limiter) -> WallTime {
    let now = limiter.clock().wall();
    WallTime::from_unix_millis(now.as_unix_millis().saturating_add(1))
}

/// A record whose texts are fit to be stored.
pub(super) fn redacted(record: LadderRecord) -> LadderRecord {
    let shown = |text: &str| Text::new(text).to_string().into_boxed_str();
    LadderRecord {
        last_error: record.last_error.as_deref().map(shown),
        ..record
    }
}

/// How large a change has to be to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteThreshold {
    /// A change that makes a difference after a restart.
    Noticeable,
    /// Any change.
    Any,
}

impl WriteThreshold {
    /// The relative difference of rates that is ignored. An adaptive rate moves with every
    /// response; one percent is learned again within a second.
    const fn rate_tolerance(self) -> f64 {
        match self {
            Self::Noticeable => 0.01,
            Self::Any => 0.0,
        }
    }
}

/// Ends of a hold that differ by less are equal: clocks are read one after the other, and
/// corrected by as much. A hold that is really extended is reported as an event.
const TOLERANCE_MS: u64 = 1000;

/// A gate as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GateWatermark {
    rate: f64,
    /// Zero for none.
    ceiling: f64,
    /// Zero without a ban.
    banned_above: f64,
    /// Zero if costs are not counted.
    cost_rate: f64,
    hold_until: Option<WallTime>,
    open_until: Option<WallTime>,
    state: BreakerState,
    openings: u8,
}

impl GateWatermark {
    /// The watermark of a record that was read at `at`.
    pub(super) fn of(record: &GateRecord, at: WallTime) -> Self {
        let breaker = &record.breaker;
        // A half-open breaker is restored as one whose open time is over.
        let is_open = matches!(breaker.state, BreakerState::Open | BreakerState::HalfOpen);
        Self {
            rate: record.rate,
            ceiling: record.ceiling.unwrap_or_default(),
            banned_above: record.banned_above.unwrap_or_default(),
            cost_rate: record.cost.map_or(0.0, |cost| cost.rate),
            hold_until: record.hold.map(|left| after(at, left)),
            open_until: is_open.then(|| after(at, breaker.open_for)),
            state: match is_open {
                true => BreakerState::Open,
                false => breaker.state,
            },
            openings: breaker.openings,
        }
    }

    /// Would a restart at `now` restore something else?
    pub(super) fn differs(&self, newer: &Self, threshold: WriteThreshold, now: WallTime) -> bool {
        let is_off =
            |one: f64, other: f64| (one - other).abs() > threshold.rate_tolerance() * other.abs();
        is_off(self.rate, newer.rate)
            || is_off(self.ceiling, newer.ceiling)
            || is_off(self.banned_above, newer.banned_above)
            || is_off(self.cost_rate, newer.cost_rate)
            || self.state != newer.state
            || self.openings != newer.openings
            || ends_differ(self.hold_until, newer.hold_until, now)
            || ends_differ(self.open_until, newer.open_until, now)
    }
}

/// An endpoint as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointWatermark {
    consecutive_errors: u32,
    has_pause: bool,
    paused_until: Option<WallTime>,
    last_error: Option<Box<str>>,
    disabled: Option<Disabled>,
}

impl EndpointWatermark {
    /// The watermark of a record that was read at `at`.
    pub(super) fn of(record: &LadderRecord, at: WallTime) -> Self {
        Self {
            consecutive_errors: record.consecutive_errors,
            has_pause: record.pause.is_some(),
            paused_until: record.pause.map(|left| after(at, left)),
            last_error: record.last_error.clone(),
            disabled: record.disabled,
        }
    }

    /// Would a restart at `now` restore something else?
    pub(super) fn differs(&self, newer: &Self, now: WallTime) -> bool {
        self.consecutive_errors != newer.consecutive_errors
            || self.has_pause != newer.has_pause
            || self.last_error != newer.last_error
            || self.disabled != newer.disabled
            || ends_differ(self.paused_until, newer.paused_until, now)
    }
}

/// Ends in the past make no difference.
fn ends_differ(one: Option<WallTime>, other: Option<WallTime>, now: WallTime) -> bool {
    let left = |end: Option<WallTime>| end.filter(|end| *end > now);
    match (left(one), left(other)) {
        (None, None) => false,
        (Some(one), Some(other)) => {
            one.as_unix_millis().abs_diff(other.as_unix_millis()) > TOLERANCE_MS
        }
        (Some(end), None) | (None, Some(end)) => {
            end.as_unix_millis().abs_diff(now.as_unix_millis()) > TOLERANCE_MS
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
    use policy::gate::CostRecord;

    use super::*;

    fn seconds(seconds: i64) -> WallTime {
        WallTime::from_unix_millis(seconds * 1000)
    }

    fn gate(rate: f64, hold: Option<u64>, state: BreakerState, open_for: u64) -> GateRecord {
        GateRecord {
            rate,
            ceiling: None,
            banned_above: None,
            hold: hold.map(Duration::from_secs),
            hold_source: None,
            breaker: BreakerRecord {
                state,
                open_for: Duration::from_secs(open_for),
                openings: 0,
            },
            cost: None,
        }
    }

    /// Is a gate that was written at 0 s and is like this at `now` written again?
    fn has_changed(
        written: &GateRecord,
        newer: &GateRecord,
        now: i64,
        threshold: WriteThreshold,
    ) -> bool {
        let watermark = GateWatermark::of(written, seconds(0));
        watermark.differs(
            &GateWatermark::of(newer, seconds(now)),
            threshold,
            seconds(now),
        )
    }

    #[test]
    fn elapsed_time_is_no_change() {
        use BreakerState::{Closed, HalfOpen, Open};
        let same = |written: &GateRecord, newer: &GateRecord, now| {
            assert!(!has_changed(written, newer, now, WriteThreshold::Any));
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
    fn holds_and_breakers_are_changes() {
        use BreakerState::{Closed, Isolated, Open};
        let changed = |written: &GateRecord, newer: &GateRecord, now| {
            assert!(has_changed(written, newer, now, WriteThreshold::Noticeable));
        };
        let held = gate(2.0, Some(60), Closed, 0);
        changed(&held, &gate(2.0, Some(60), Closed, 0), 15);
        changed(&held, &gate(2.0, None, Closed, 0), 15);
        let plain = gate(2.0, None, Closed, 0);
        changed(&plain, &held, 1);
        changed(&plain, &gate(2.0, None, Open, 4), 1);
        changed(&plain, &gate(2.0, None, Isolated, 0), 1);
        changed(&gate(2.0, None, Isolated, 0), &plain, 1);
    }

    #[test]
    fn a_rate_changes_when_it_differs_noticeably() {
        let of = |rate| gate(rate, None, BreakerState::Closed, 0);
        let is = |rate, threshold| has_changed(&of(100.0), &of(rate), 1, threshold);
        assert!(!is(100.9, WriteThreshold::Noticeable));
        assert!(is(100.9, WriteThreshold::Any));
        assert!(!is(100.0, WriteThreshold::Any));
        assert!(is(102.0, WriteThreshold::Noticeable));
        assert!(is(98.0, WriteThreshold::Noticeable));
        let counting = |rate| GateRecord {
            cost: Some(CostRecord {
                rate,
                ceiling: None,
                mean: 800.0,
            }),
            ..of(100.0)
        };
        let is = |one, other| has_changed(&one, &other, 1, WriteThreshold::Noticeable);
        assert!(is(of(100.0), counting(9.0)));
        assert!(is(counting(9.0), counting(9.2)));
        assert!(!is(counting(9.0), counting(9.05)));
    }

    #[test]
    fn an_endpoint_changes_with_its_ladder() {
        let record = LadderRecord {
            consecutive_errors: 2,
            pause: Some(Duration::from_secs(60)),
            last_error: Some("HTTP 429".into()),
            ..LadderRecord::default()
        };
        let written = EndpointWatermark::of(&record, seconds(0));
        let has_changed = |newer: LadderRecord, now| {
            written.differs(&EndpointWatermark::of(&newer, seconds(now)), seconds(now))
        };
        let later = |pause: u64| LadderRecord {
            pause: Some(Duration::from_secs(pause)),
            ..record.clone()
        };
        assert!(!has_changed(later(45), 15));
        assert!(!has_changed(later(0), 70));
        assert!(has_changed(later(60), 15));
        assert!(has_changed(LadderRecord::default(), 70));
        let disabled = LadderRecord {
            disabled: Some(Disabled::Person),
            ..later(45)
        };
        assert!(has_changed(disabled, 15));
    }
}
