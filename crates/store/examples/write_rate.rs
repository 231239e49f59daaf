//! How many changes per second become durable: one at a time, and many together.
//!
//! `cargo run --release -p tidegate-store --example write_rate -- FOLDER`

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use policy::breaker::{BreakerRecord, BreakerState};
use policy::gate::GateRecord;
use policy::time::WallTime;
use store::{Change, Store, StoredGate};

const LENGTH: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("expected a folder")?;
    let store = Store::open(&PathBuf::from(folder))?;
    let mut out = std::io::stdout();
    for callers in [1, 2, 8, 64, 512] {
        let rate = waiting(&store, callers);
        writeln!(
            out,
            "{callers:>4} callers, each waits for its change: {rate:>9.0}/s"
        )?;
    }
    let rate = behind(&store);
    writeln!(
        out,
        "   1 caller writes behind, 1000 gates a time: {rate:>9.0}/s"
    )?;
    Ok(())
}

/// Every caller saves a change and waits until it is durable.
fn waiting(store: &Store, callers: u64) -> f64 {
    let start = Instant::now();
    let count: u64 = std::thread::scope(|scope| {
        let write = |caller| {
            let mut count = 0;
            while start.elapsed() < LENGTH {
                let saved = store.save(gate(&format!("{caller}.example.com"), count));
                saved.wait().expect("the disk works");
                count += 1;
            }
            count
        };
        let threads: Vec<_> = (0..callers)
            .map(|caller| scope.spawn(move || write(caller)))
            .collect();
        let counts = threads.into_iter().map(|thread| thread.join());
        counts.map(|count| count.unwrap_or(0)).sum()
    });
    count as f64 / start.elapsed().as_secs_f64()
}

/// The records of many gates, as they are written every few seconds.
fn behind(store: &Store) -> f64 {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < LENGTH {
        let gates = (0..1000).map(|host| gate(&format!("{host}.api.example.com"), count));
        store.save_all(gates).wait().expect("the disk works");
        count += 1000;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn gate(key: &str, count: u64) -> Change {
    Change::Gate(StoredGate {
        key: key.to_owned(),
        record: GateRecord {
            rate: count as f64,
            ceiling: Some(12.5),
            banned_above: None,
            hold: None,
            hold_source: None,
            breaker: BreakerRecord {
                state: BreakerState::Closed,
                open_for: Duration::ZERO,
                openings: 0,
            },
            cost: None,
        },
        at: WallTime::from_unix_millis(0),
    })
}
