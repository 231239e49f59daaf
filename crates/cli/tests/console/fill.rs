//! A data folder with as much as a busy server has: thousands of gates, a hundred thousand
//! operations.

use std::path::Path;
use std::time::Duration;

use policy::breaker::{BreakerRecord, BreakerState};
use policy::gate::GateRecord;
use policy::hint::Source;
use policy::time::WallTime;
use store::operations::{NewOperation, StoredRequest, wait};
use store::{Change, Store, StoredGate};

/// The gate to which the operations go. It is held, so that none is sent.
const DESTINATION: &str = "orders.example.com";
const DAY: Duration = Duration::from_secs(86_400);

/// Fills a data folder for a server that is started afterwards.
pub(crate) fn fill(folder: &Path, gates: usize, operations: usize) {
    let store = Store::open(folder).expect("the folder is new");
    let now = tidegate::Clock::system().wall();
    let others =
        (1..gates).map(|number| gate(format!("host-{number:05}.example.com"), number, now));
    let held = GateRecord {
        hold: Some(DAY),
        hold_source: Some(Source::Assumed),
        ..record(1)
    };
    let held = Change::Gate(StoredGate {
        key: DESTINATION.to_owned(),
        record: held,
        at: now,
    });
    wait(Box::pin(store.save_all(others.chain([held])))).expect("gates are stored");
    let queue = store.operations();
    // Many at once share a transaction; more than the store's queue has room for are refused.
    for first in (0..operations).step_by(TOGETHER) {
        let numbers = first..operations.min(first + TOGETHER);
        let inserted: Vec<_> = numbers
            .map(|number| queue.insert(operation(number, now)))
            .collect();
        for call in inserted {
            wait(call).expect("operations are stored");
        }
    }
}

const TOGETHER: usize = 1000;

fn gate(key: String, number: usize, at: WallTime) -> Change {
    let record = record(number);
    Change::Gate(StoredGate { key, record, at })
}

fn record(number: usize) -> GateRecord {
    GateRecord {
        rate: 2.0 + (number % 400) as f64,
        ceiling: number
            .is_multiple_of(3)
            .then_some(5.0 + (number % 400) as f64),
        banned_above: None,
        hold: None,
        hold_source: None,
        breaker: BreakerRecord {
            state: BreakerState::Closed,
            open_for: Duration::ZERO,
            openings: 0,
        },
        cost: None,
    }
}

fn operation(number: usize, now: WallTime) -> NewOperation {
    let id = format!("op_{number:026}");
    NewOperation {
        kind: "default".to_owned(),
        destination: DESTINATION.to_owned(),
        request: StoredRequest {
            method: "POST".to_owned(),
            url: format!("https://{DESTINATION}/orders"),
            body: b"{}".to_vec(),
            ..StoredRequest::default()
        },
        summary: format!("POST https://{DESTINATION}"),
        idempotency_key: id.clone(),
        fingerprint: id.clone().into_bytes(),
        id,
        client: String::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: None,
        accepted_at: now,
        expires_at: now + DAY,
        retain: 7 * DAY,
        is_reported: false,
    }
}
