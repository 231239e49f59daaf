//! Samples of gates for streams of events.
//!
//! Streams take their samples at the same moments, and each gate is written once for all of them.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::api::AdminState;
use super::bodies::GateTotals;
use super::gates::{recorded_gate, totals_body};
use super::summary::{AttentionList, operation_counts};

/// What streams share of a moment.
#[derive(Debug, Default)]
pub(super) struct Samples(Mutex<Moment>);

#[derive(Debug, Default)]
struct Moment {
    /// The number of the moment.
    tick: Option<u64>,
    /// What every sample begins with.
    start: String,
    /// By key, as JSON; `None` for a gate that does not exist. Emptied at each new moment, so it holds at
    /// most what the streams ask for.
    gates: HashMap<Arc<str>, Option<String>>,
}

/// The shortest time between two samples, and the time between two moments.
pub(super) const MIN_PERIOD: Duration = Duration::from_millis(250);
pub(super) const MAX_PERIOD: Duration = Duration::from_secs(60);

/// Gates that one stream may name.
pub(super) const MAX_KEYS: usize = 100;

impl Samples {
    /// The time from now to the next moment of a stream with this period.
    pub(super) fn until_next(admin: &AdminState, period: Duration) -> Duration {
        let now = admin.state.clock().now().since(Default::default());
        let rest = now.as_nanos() % period.as_nanos().max(1);
        period.saturating_sub(Duration::from_nanos(u64::try_from(rest).unwrap_or(0)))
    }

    /// Writes a sample with these gates.
    pub(super) fn write(&self, admin: &AdminState, keys: &[Arc<str>], id: u64) -> String {
        let now = admin.state.clock().now();
        let tick = now.since(Default::default()).as_millis() / MIN_PERIOD.as_millis();
        let tick = u64::try_from(tick).ok();
        let mut moment = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if moment.tick != tick {
            moment.tick = tick;
            moment.start = start(admin);
            moment.gates.clear();
        }
        for key in keys {
            if !moment.gates.contains_key(key) {
                let gate = gate(admin, key);
                moment.gates.insert(Arc::clone(key), gate);
            }
        }
        let gates = keys.iter().filter_map(|key| moment.gates[key].as_deref());
        let mut text = format!("id: {id}\nevent: sample\ndata: {}", moment.start);
        for (number, gate) in gates.enumerate() {
            text.push_str(if number > 0 { "," } else { "" });
            text.push_str(gate);
        }
        // Writing into a string cannot fail.
        _ = write!(text, "]}}\n\n");
        text
    }
}

/// What all samples of a moment have, up to the list of gates.
fn start(admin: &AdminState) -> String {
    #[derive(Serialize)]
    struct Start {
        at_ms: i64,
        totals: GateTotals,
        operations: std::collections::BTreeMap<String, u64>,
        attention: u64,
        disabled_endpoints: u64,
    }
    let latest = admin.recorder.latest();
    let attention = AttentionList::new(admin, &latest);
    let start = Start {
        at_ms: admin.state.clock().wall().as_unix_millis(),
        totals: totals_body(&latest.totals),
        operations: operation_counts(admin),
        attention: attention.total,
        disabled_endpoints: attention.pools.disabled,
    };
    let text = serde_json::to_string(&start).unwrap_or_default();
    let open = text.strip_suffix('}').unwrap_or(&text);
    format!("{open},\"gates\":[")
}

/// A gate as in the list. It is recorded from now on, for its line is shown.
fn gate(admin: &AdminState, key: &str) -> Option<String> {
    let limiter = admin.state.limiter();
    let view = limiter.gate(key)?;
    admin.recorder.watch(&view.key);
    let gate = recorded_gate(view, limiter.clock(), &admin.recorder);
    serde_json::to_string(&gate).ok()
}
