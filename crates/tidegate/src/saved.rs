//! What a limiter has learned, in a form that serde can store.
//!
//! The records of `policy` are plain and know no format. Here they get one, with the wall time at
//! which they were made: a hold of an hour that was saved half an hour ago has half an hour left.

use std::time::Duration;

use policy::breaker::{BreakerRecord, BreakerState};
use policy::gate::{CostRecord, GateRecord};
use policy::hint::Source;
use serde::{Deserialize, Serialize};

use crate::limiter::Limiter;

/// The learned state of all gates, made by [`Limiter::save`] and read by [`Limiter::load`].
///
/// ```
/// use tidegate::{Limiter, SavedGates};
///
/// let limiter = Limiter::new();
/// limiter.try_acquire("api.example.com")?;
/// let json = serde_json::to_string(&limiter.save())?;
///
/// let restarted = Limiter::new();
/// let saved: SavedGates = serde_json::from_str(&json)?;
/// assert_eq!(restarted.load(&saved), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedGates {
    /// When they were saved, in milliseconds of Unix time.
    saved_at_ms: i64,
    gates: Vec<SavedGate>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedGate {
    key: String,
    rate: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ceiling: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    banned_above: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold_source: Option<String>,
    breaker: SavedBreaker,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<SavedCost>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SavedBreaker {
    state: SavedState,
    open_ms: u64,
    openings: u8,
}

/// [`BreakerState`] by its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedState {
    Closed,
    Open,
    HalfOpen,
    Isolated,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SavedCost {
    rate: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ceiling: Option<f64>,
    mean: f64,
}

impl Limiter {
    /// What all gates have learned, to be stored and [loaded](Self::load) after a restart.
    pub fn save(&self) -> SavedGates {
        let records = self.records().into_iter();
        SavedGates {
            saved_at_ms: self.clock().wall().as_unix_millis(),
            gates: records
                .map(|(key, record)| SavedGate::new(key, &record))
                .collect(),
        }
    }

    /// Restores gates that were [saved](Self::save), with holds and open times shortened by the time
    /// that has passed since. Returns how many were restored: not those that exist already, for
    /// which there is no room, or whose numbers are none.
    pub fn load(&self, saved: &SavedGates) -> usize {
        let now = self.clock().wall().as_unix_millis();
        let passed = now.saturating_sub(saved.saved_at_ms);
        // A wall clock may have been set back.
        let passed = Duration::from_millis(u64::try_from(passed).unwrap_or(0));
        let is_restored = |gate: &&SavedGate| {
            let record = gate.record(passed);
            record.is_some_and(|record| self.restore(&gate.key, &record))
        };
        saved.gates.iter().filter(is_restored).count()
    }
}

impl SavedGate {
    fn new(key: String, record: &GateRecord) -> Self {
        Self {
            key,
            rate: record.rate,
            ceiling: record.ceiling,
            banned_above: record.banned_above,
            hold_ms: record.hold.map(millis),
            hold_source: record.hold_source.map(|source| source.as_str().to_owned()),
            breaker: SavedBreaker {
                state: SavedState::of(record.breaker.state),
                open_ms: millis(record.breaker.open_for),
                openings: record.breaker.openings,
            },
            cost: record.cost.map(|cost| SavedCost {
                rate: cost.rate,
                ceiling: cost.ceiling,
                mean: cost.mean,
            }),
        }
    }

    /// The record after this time; `None` if a number in it is not usable.
    fn record(&self, passed: Duration) -> Option<GateRecord> {
        let cost = self.cost.map(|cost| CostRecord {
            rate: cost.rate,
            ceiling: cost.ceiling,
            mean: cost.mean,
        });
        let costs = cost
            .iter()
            .flat_map(|cost| [Some(cost.rate), cost.ceiling, Some(cost.mean)]);
        let mut numbers = costs.chain([Some(self.rate), self.ceiling, self.banned_above]);
        let is_usable = |number: Option<f64>| number.is_none_or(|n| n.is_finite() && n >= 0.0);
        let left = |ms| Duration::from_millis(ms).saturating_sub(passed);
        let hold = self.hold_ms.map(left).filter(|hold| !hold.is_zero());
        numbers.all(is_usable).then(|| GateRecord {
            rate: self.rate,
            ceiling: self.ceiling,
            banned_above: self.banned_above,
            hold,
            hold_source: hold.map(|_| source_of(self.hold_source.as_deref())),
            breaker: BreakerRecord {
                state: self.breaker.state.state(),
                open_for: left(self.breaker.open_ms),
                openings: self.breaker.openings,
            },
            cost,
        })
    }
}

impl SavedState {
    fn of(state: BreakerState) -> Self {
        match state {
            BreakerState::Closed => Self::Closed,
            BreakerState::Open => Self::Open,
            BreakerState::HalfOpen => Self::HalfOpen,
            BreakerState::Isolated => Self::Isolated,
        }
    }

    fn state(self) -> BreakerState {
        match self {
            Self::Closed => BreakerState::Closed,
            Self::Open => BreakerState::Open,
            Self::HalfOpen => BreakerState::HalfOpen,
            Self::Isolated => BreakerState::Isolated,
        }
    }
}

/// The source with this name. One that this version does not know is as good as assumed.
fn source_of(name: Option<&str>) -> Source {
    let named = Source::HEADERS
        .iter()
        .chain([&Source::Body, &Source::Counted]);
    let mut named = named.filter(|source| Some(source.as_str()) == name);
    named.next().copied().unwrap_or(Source::Assumed)
}

/// Rounded up, so that no wait becomes shorter.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use policy::gate::Reason;
    use policy::outcome::Outcome;

    use super::*;
    use crate::clock::ManualClock;

    const KEY: &str = "api.example.com";

    /// A limiter whose wall clock shows this many seconds.
    fn limiter(wall: u64) -> Limiter {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(wall));
        Limiter::builder().clock(clock.clock()).build()
    }

    /// Saved at a wall time of 1000 s, with a hold of an hour and another gate isolated.
    fn json() -> String {
        let limiter = limiter(1000);
        let wait = Some(Duration::from_secs(3600));
        let permit = limiter.try_acquire(KEY).unwrap();
        permit.settle(&Outcome::throttled(Duration::from_millis(40), wait));
        limiter.isolate("other.example.com").unwrap();
        serde_json::to_string(&limiter.save()).unwrap()
    }

    #[test]
    fn hold_is_shortened_by_the_time_that_passed() {
        let saved: SavedGates = serde_json::from_str(&json()).unwrap();
        let restarted = limiter(1000 + 1800);
        assert_eq!(restarted.load(&saved), 2);
        let refusal = restarted.try_acquire(KEY).unwrap_err();
        assert_eq!(refusal.reason(), Reason::Hold);
        assert_eq!(refusal.wait(), Some(Duration::from_secs(1800)));
        let isolated = restarted.gate("other.example.com").unwrap().gate;
        assert_eq!(isolated.breaker, BreakerState::Isolated);
        assert_eq!(restarted.load(&saved), 0, "they exist already");
        let later = limiter(1000 + 3601);
        later.load(&saved);
        assert!(later.try_acquire(KEY).is_ok());
        let set_back = limiter(0);
        set_back.load(&saved);
        let wait = set_back.try_acquire(KEY).unwrap_err().wait();
        assert_eq!(wait, Some(Duration::from_secs(3600)));
    }

    #[test]
    fn unknown_source_and_unusable_numbers_are_not_fatal() {
        let mut saved: SavedGates = serde_json::from_str(&json()).unwrap();
        for gate in &mut saved.gates {
            gate.hold_source = Some("x-new-header".to_owned());
        }
        assert_eq!(limiter(1000).load(&saved), 2);
        saved.gates[0].rate = f64::NAN;
        saved.gates[1].ceiling = Some(-1.0);
        assert_eq!(limiter(1000).load(&saved), 0);
    }
}
